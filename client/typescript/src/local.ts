/**
 * Streams by a Unix socket, to a server of the same machine and user: faster than gRPC. The server names the socket, and
 * `OpenSessionResponse.local_stream` documents the format: each message follows its length.
 */

import { readdir, readFile, readlink, stat } from "node:fs/promises";
import { createConnection, type Socket } from "node:net";
import { BinaryReader } from "@bufbuild/protobuf/wire";
import { Code, fromStatus, GradwireConnectionError, type GradwireError, Reason, refused } from "./errors.js";
import type { Receiver, Wire } from "./transport.js";

const PREFIX = 4; // bytes of a length
const LAST = 2 ** 31; // in a length: the message is the stream's status
const LISTENING = 0x10000; // a flag in /proc/net/unix
/** Whether a socket of this name can be used here. GRADWIRE_LOCAL_STREAM=0 forbids it. */
export function usable(name: string): boolean {
  return name !== "" && process.platform === "linux" && process.env["GRADWIRE_LOCAL_STREAM"] !== "0";
}

/** Connect to a socket. Rejects if it is not there, or is another user's. */
export async function connected(name: string): Promise<Socket> {
  const socket = createConnection(`\0${name}`);
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
    });
    // Now, after connecting: a name is used once, so the listener is the one that accepted.
    if (!(await isOwn(name))) throw new Error("the socket is not a process's of this user");
    return socket;
  } catch (thrown) {
    socket.destroy();
    throw thrown;
  }
}

/**
 * Whether a process of this user listens. Node cannot ask the kernel by SO_PEERCRED, but /proc knows. Node pads an address
 * with zeros, which /proc shows as "@". A server listens at the plain address and at the padded one. If one is missing, another
 * user could have had it.
 */
async function isOwn(name: string): Promise<boolean> {
  const inodes = new Set<string>();
  for (const line of (await readFile("/proc/net/unix", "utf8")).split("\n")) {
    const [, , , flags = "", , , inode = "", path = ""] = line.split(/ +/);
    const listens = (Number.parseInt(flags, 16) & LISTENING) !== 0;
    if (listens && path.replace(/@+$/, "") === `@${name}`) inodes.add(`socket:[${inode}]`);
  }
  if (inodes.size < 2) return false;
  const processes = (await readdir("/proc")).filter((each) => /^\d+$/.test(each));
  for (const id of processes) {
    for (const held of await socketsOf(id, inodes)) inodes.delete(held);
    if (inodes.size === 0) return true;
  }
  return false;
}

/** Those of some sockets that a process of this user holds. */
async function socketsOf(id: string, wanted: ReadonlySet<string>): Promise<string[]> {
  try {
    if ((await stat(`/proc/${id}`)).uid !== process.geteuid?.()) return [];
    const files = await readdir(`/proc/${id}/fd`);
    const links = await Promise.all(files.map((each) => readlink(`/proc/${id}/fd/${each}`).catch(() => "")));
    return links.filter((each) => wanted.has(each));
  } catch {
    return []; // it has ended, or may not be looked at
  }
}

/** A stream over a connected socket. */
export function overSocket(socket: Socket, receiver: Receiver): Wire {
  let ended = false;
  const end = (error: GradwireError): void => {
    if (ended) return;
    ended = true;
    socket.destroy();
    receiver.end(error);
  };
  const messages = new Splitter(
    (message) => {
      if (!ended) receiver.message(message);
    },
    (status) => end(errorOf(status)),
  );
  socket.on("data", (data: Buffer) => messages.add(data));
  socket.on("error", (error) => end(fromStatus(Code.UNAVAILABLE, error.message)));
  socket.on("close", () => end(fromStatus(Code.UNAVAILABLE, "the connection was closed")));
  return {
    send: (message) => {
      if (!ended) socket.write(framed(message));
    },
    close: () => {
      ended = true;
      socket.destroy();
    },
  };
}

/** A message after its length, in one piece: the server takes that as it is. */
function framed(message: Uint8Array): Buffer {
  const made = Buffer.allocUnsafe(PREFIX + message.length);
  made.writeUInt32LE(message.length);
  made.set(message, PREFIX);
  return made;
}

/** Splits what arrives into messages. */
class Splitter {
  private parts: Buffer[] = [];
  private bytes = 0;
  private needed = PREFIX; // until there is something to take

  constructor(
    private readonly message: (data: Uint8Array) => void,
    private readonly last: (status: Uint8Array) => void,
  ) {}

  add(data: Buffer): void {
    this.parts.push(data);
    this.bytes += data.length;
    if (this.bytes < this.needed) return;
    let part = this.parts.length === 1 ? data : Buffer.concat(this.parts, this.bytes);
    this.needed = PREFIX;
    while (part.length >= PREFIX) {
      const told = part.readUInt32LE();
      const size = told % LAST;
      this.needed = PREFIX + size;
      if (part.length < this.needed) break;
      const message = new Uint8Array(part.buffer, part.byteOffset + PREFIX, size);
      part = part.subarray(this.needed);
      this.needed = PREFIX;
      if (told >= LAST) {
        this.last(message);
        return;
      }
      this.message(message);
    }
    this.parts = part.length > 0 ? [part] : [];
    this.bytes = part.length;
  }
}

/** The fields of a message: their numbers and, of those with bytes, the bytes, and otherwise the number. */
function* fieldsOf(message: Uint8Array): Generator<{ field: number; bytes: Uint8Array; number: number }> {
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    if (type === 2) yield { field, bytes: reader.bytes(), number: 0 };
    else if (type === 0) yield { field, bytes: new Uint8Array(), number: reader.int32() };
    else reader.skip(type);
  }
}

const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

/** The error of a google.rpc.Status: its code 1, message 2, and details 3, of which one has a google.rpc.ErrorInfo. */
function errorOf(status: Uint8Array): GradwireError {
  let code = 0;
  let message = "";
  let reason = "";
  const metadata: Record<string, string> = {};
  for (const { field, bytes, number } of fieldsOf(status)) {
    if (field === 1) code = number;
    else if (field === 2) message = text(bytes);
    else if (field === 3) {
      const [type, value] = [...fieldsOf(bytes)]; // of google.protobuf.Any
      if (!type || !value || !text(type.bytes).endsWith("/google.rpc.ErrorInfo")) continue;
      for (const told of fieldsOf(value.bytes)) {
        if (told.field === 1) reason = text(told.bytes);
        else if (told.field === 3) {
          const [key, item] = [...fieldsOf(told.bytes)];
          if (key && item) metadata[text(key.bytes)] = text(item.bytes);
        }
      }
    }
  }
  if (code === 0) return fromStatus(Code.UNAVAILABLE, "the server ended the stream");
  const known = (Reason as unknown as Record<string, number>)[reason] as Reason | undefined;
  if (known === undefined) return new GradwireConnectionError(message, { code });
  return refused(known, code, message, metadata);
}

/** Streams by a Unix socket, and where gRPC replaces them. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createConnection, createServer, type Server, type Socket } from "node:net";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { AutogradService, OpenSessionResponseSchema, StreamRequestSchema } from "../src/gen/gradwire/v1/service_pb.js";
import { connected, overSocket, usable } from "../src/local.js";
import { type GradwireError, GradwireRuntimeError, Reason, type Session } from "../src/node.js";
import { ADDRESS, NO_SERVER, withSession } from "./support.js";

const linux = { skip: process.platform === "linux" ? false : "needs Linux" };
const live = { skip: NO_SERVER || linux.skip };

/** How many Unix sockets this process has open. */
function sockets(): number {
  return process.getActiveResourcesInfo().filter((each) => each === "PipeWrap").length;
}

/** The name of the server's socket. */
function socketName(): Promise<string> {
  return new Promise<string>((resolve, reject) => {
    const client = new grpc.Client(ADDRESS, grpc.credentials.createInsecure());
    client.makeUnaryRequest(
      `/${AutogradService.typeName}/OpenSession`,
      (bytes: Buffer) => bytes,
      (bytes: Buffer) => fromBinary(OpenSessionResponseSchema, bytes).localStream,
      Buffer.alloc(0),
      (error, found) => {
        client.close();
        if (error) reject(error);
        else resolve(found ?? "");
      },
    );
  });
}

async function trains(session: Session): Promise<void> {
  const x = session.tensor([1, 2], { requiresGrad: true });
  for (let turn = 0; turn < 50; turn++) await x.mul(x).sum().backward();
  assert.deepEqual(await x.grad.array(), [100, 200]);
}

test("a session beside its server has its stream without gRPC", live, async () => {
  const before = sockets();
  await withSession(async (session) => {
    await trains(session);
    assert.equal(sockets(), before + 1);
  })();
});

test("the stream uses gRPC where local streams are switched off", live, async () => {
  const before = sockets();
  await withSession(
    async (session) => {
      await trains(session);
      assert.equal(sockets(), before);
    },
    { localStream: false },
  )();
  process.env["GRADWIRE_LOCAL_STREAM"] = "0";
  try {
    assert.ok(!usable("x"));
  } finally {
    delete process.env["GRADWIRE_LOCAL_STREAM"];
  }
  assert.ok(usable("x") && !usable(""));
});

test("a socket that is not there, or another user's", live, async () => {
  await assert.rejects(connected("gradwire-none"));
  const name = await socketName();
  (await connected(name)).destroy();
  const geteuid = process.geteuid;
  process.geteuid = () => 2 ** 30;
  try {
    await assert.rejects(connected(name), /this user/);
  } finally {
    process.geteuid = geteuid;
  }
});

test("a socket at the padded address alone is not the server's", linux, async () => {
  const listening = await listen("gradwire-half", () => {});
  await assert.rejects(connected("gradwire-half"), /this user/);
  listening.close();
});

function listen(name: string, accept: (socket: Socket) => void): Promise<Server> {
  return new Promise((resolve) => {
    const server = createServer(accept).listen(`\0${name}`, () => resolve(server));
  });
}

test("messages arrive whole, however they are cut", linux, async () => {
  const listening = await listen("gradwire-echo", (socket) => socket.on("data", (data) => trickle(socket, data)));
  const found: Uint8Array[] = [];
  const sent = [0, 1, 300, 5].map((size) => {
    const value = { case: "acknowledge" as const, value: { acknowledgedSeq: BigInt(size) } };
    return toBinary(StreamRequestSchema, create(StreamRequestSchema, { request: value }));
  });
  await new Promise<void>((resolve, reject) => {
    const message = (data: Uint8Array): void => {
      found.push(data);
      if (found.length === sent.length) resolve(wire.close());
    };
    const wire = overSocket(createConnection("\0gradwire-echo"), { message, end: reject });
    for (const each of sent) wire.send(each);
  });
  assert.deepEqual(
    found.map((each) => fromBinary(StreamRequestSchema, each)),
    sent.map((each) => fromBinary(StreamRequestSchema, each)),
  );
  listening.close();
});

/** Send bytes one by one. */
function trickle(socket: Socket, data: Buffer): void {
  for (const byte of data) socket.write(Uint8Array.of(byte));
}

test("a refusal is the same as by gRPC", live, async () => {
  const socket = await connected(await socketName());
  const refused = await new Promise<GradwireError>((resolve) => {
    const wire = overSocket(socket, { message: () => {}, end: resolve });
    const request = { case: "attach" as const, value: { sessionId: "nonsense", writer: 1 } };
    wire.send(toBinary(StreamRequestSchema, create(StreamRequestSchema, { request })));
  });
  assert.ok(refused instanceof GradwireRuntimeError);
  assert.deepEqual([refused.reason, refused.mayRetry], [Reason.SESSION_NOT_FOUND, false]);
  assert.match(refused.message, /session/);
});

test("the browser's modules import nothing of Node", () => {
  const seen = new Set<string>();
  const visit = (path: string): void => {
    if (seen.has(path)) return;
    seen.add(path);
    for (const [, from = ""] of readFileSync(path, "utf8").matchAll(/^(?:import|export)\b[^;]*?from "([^"]+)"/gms)) {
      assert.doesNotMatch(from, /^node:|grpc-js/, path);
      if (from.startsWith(".")) visit(join(dirname(path), from));
    }
  };
  visit(join(dirname(fileURLToPath(import.meta.url)), "..", "src", "web.js"));
  assert.ok(seen.size > 10);
});

/**
 * Connections from Node, over gRPC.
 *
 * @packageDocumentation
 */

import { readFileSync } from "node:fs";
import type { Socket } from "node:net";
import type { DescMethodUnary, MessageShape } from "@bufbuild/protobuf";
import {
  create,
  type DescMessage,
  type DescMethod,
  fromBinary,
  type MessageInitShape,
  toBinary,
} from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import * as grpc from "@grpc/grpc-js";
import { explained, mistakeOf } from "./advice.js";
import { aboutToken, Code, fromStatus, type GradwireError, GradwireValueError } from "./errors.js";
import {
  AutogradService,
  type DownloadRequest,
  DownloadRequestSchema,
  DownloadResponseSchema,
  UploadRequestSchema,
  type UploadResponse,
  UploadResponseSchema,
  type UploadStartSchema,
} from "./gen/gradwire/v1/service_pb.js";
import { connected, overSocket, usable } from "./local.js";
import { Session, type SessionOptions } from "./session.js";
import { type Restored, restored } from "./snapshot.js";
import type { Channel, Dial, Explained, Receiver, Wire } from "./transport.js";

export * from "./index.js";

/** How Node connects. */
export interface ConnectOptions extends SessionOptions {
  /** Authenticates every call with "authorization: Bearer <token>". */
  token?: string;
  /** Encrypt the connection, and trust the authorities of Node. */
  tls?: boolean;
  /** Encrypt the connection, and trust the authorities of a PEM file, or of PEM text as bytes. */
  ca?: string | Uint8Array;
  /** A client's certificate and key, as PEM files or bytes, where the server asks for them. */
  certificate?: { certificate: string | Uint8Array; key: string | Uint8Array };
  /** The name to expect in the server's certificate, if it is not that of the address. */
  serverName?: string;
  /**
   * Whether the stream may use a Unix socket to a server of the same machine and user, which is faster: true if not given.
   * GRADWIRE_LOCAL_STREAM=0 forbids it, too.
   */
  localStream?: boolean;
  /** Further options of gRPC. */
  grpc?: grpc.ChannelOptions;
}

/**
 * Open a session on a server: "127.0.0.1:50051" or "unix:/path". Several servers of a cluster are a list, or one string with
 * commas: the first that answers is used. A session that moves to another server of the cluster is followed.
 */
export async function connect(address: string | readonly string[], options: ConnectOptions = {}): Promise<Session> {
  return Session.open(...route(address, options), options);
}

/** Open a session from a snapshot that `Session.save` made. The addresses and options are those of `connect`. */
export async function restore(
  address: string | readonly string[],
  name: string,
  options: ConnectOptions = {},
): Promise<Restored> {
  return restored(...route(address, options), name, options);
}

/** The servers' addresses, and how to connect to one. */
function route(address: string | readonly string[], options: ConnectOptions): [readonly string[], Dial] {
  const addresses = typeof address === "string" ? address.split(",").map((each) => each.trim()) : address;
  for (const each of addresses) {
    const mistake = mistakeOf(each);
    if (mistake) throw new GradwireValueError(mistake);
  }
  // gRPC's own error would show the token.
  if (options.token !== undefined && !/^[!-~]{1,4096}$/.test(options.token)) {
    throw new GradwireValueError("a token is 1 to 4096 visible ASCII characters; this one is something else");
  }
  const credentials = credentialsOf(options);
  const settings = {
    "grpc.max_receive_message_length": -1,
    "grpc.max_send_message_length": -1,
    "grpc.initial_reconnect_backoff_ms": 20,
    "grpc.max_reconnect_backoff_ms": 1000,
    // Without these a large value waits for the other side at every 64 KiB.
    "grpc-node.flow_control_window": 4 << 20,
    ...(options.serverName ? { "grpc.ssl_target_name_override": options.serverName } : {}),
    ...options.grpc,
  };
  const { localStream = true } = options;
  const metadata = new grpc.Metadata();
  if (options.token) metadata.set("authorization", `Bearer ${options.token}`);
  return [addresses, (each) => new GrpcChannel(each, credentials, settings, metadata, localStream)];
}

function credentialsOf(options: ConnectOptions): grpc.ChannelCredentials {
  const { ca, certificate, tls } = options;
  if (!tls && !ca && !certificate) return grpc.credentials.createInsecure();
  const own = certificate && { key: pem(certificate.key), chain: pem(certificate.certificate) };
  return grpc.credentials.createSsl(ca ? pem(ca) : null, own?.key ?? null, own?.chain ?? null);
}

function pem(given: string | Uint8Array): Buffer {
  return typeof given === "string" ? readFileSync(given) : Buffer.from(given);
}

const TRAILER = "gradwire-error-bin";

function errorOf(thrown: unknown): GradwireError {
  const { code = Code.UNKNOWN, details, message, metadata } = thrown as Partial<grpc.ServiceError>;
  const told = metadata?.get(TRAILER)[0];
  return fromStatus(code, details || message || "the call failed", told instanceof Buffer ? told : undefined);
}

function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

// Shares the memory.
const asIs = (data: Uint8Array): Buffer => Buffer.from(data.buffer, data.byteOffset, data.byteLength);
const received = (data: Buffer): Uint8Array => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

/** An UploadRequest of data. Copies the data once, where `toBinary` copies it twice, into memory that grows by doubling. */
function dataRequest(data: Uint8Array): Buffer {
  const { number } = UploadRequestSchema.field.data;
  const head = new BinaryWriter().tag(number, WireType.LengthDelimited).uint32(data.length).finish();
  return Buffer.concat([head, data]);
}

const MOST_REJECTED = 2;

/** A connection to one server. */
class GrpcChannel implements Channel {
  private readonly client: grpc.Client;
  private local = ""; // the socket that the server named, if it can be used
  private rejected = 0; // local streams in a row to which the server has not answered

  constructor(
    private readonly address: string,
    private readonly credentials: grpc.ChannelCredentials,
    settings: grpc.ChannelOptions,
    private readonly metadata: grpc.Metadata,
    private readonly localStreams: boolean,
  ) {
    this.client = new grpc.Client(address, credentials, settings);
  }

  unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    timeoutMs?: number,
  ): Promise<MessageShape<O>> {
    const bytes = toBinary(method.input, create(method.input, request));
    const options = timeoutMs ? { deadline: Date.now() + timeoutMs } : {};
    return new Promise((resolve, reject) => {
      const done = (error: grpc.ServiceError | null, answer?: Uint8Array): void => {
        if (error || !answer) reject(errorOf(error));
        else resolve(fromBinary(method.output, answer));
      };
      this.client.makeUnaryRequest(pathOf(method), asIs, received, bytes, this.metadata, options, done);
    });
  }

  offered(localStream: string): boolean {
    const name = this.localStreams && usable(localStream) ? localStream : "";
    const changed = name !== "" && name !== this.local;
    this.local = name;
    if (changed) this.rejected = 0;
    return changed;
  }

  stream(receiver: Receiver): Wire {
    if (!this.local || this.rejected >= MOST_REJECTED) {
      this.rejected = 0;
      return this.byGrpc(receiver);
    }
    return this.byGrpcUnless(connected(this.local), receiver);
  }

  /** A stream by a Unix socket once it is connected, or by gRPC if it cannot be. */
  private byGrpcUnless(connecting: Promise<Socket>, receiver: Receiver): Wire {
    const waiting: Uint8Array[] = [];
    let wire: Wire | undefined;
    let closed = false;
    const use = (made: Wire): void => {
      wire = made;
      if (closed) wire.close();
      for (const message of waiting.splice(0)) wire.send(message);
    };
    this.rejected++; // until the server answers
    const message = (data: Uint8Array): void => {
      this.rejected = 0;
      receiver.message(data);
    };
    connecting.then(
      (socket) => use(overSocket(socket, { message, end: receiver.end })),
      () => {
        if (!closed) use(this.byGrpc(receiver));
      },
    );
    return {
      send: (message) => {
        if (wire) wire.send(message);
        else waiting.push(message);
      },
      close: () => {
        closed = true;
        wire?.close();
      },
    };
  }

  private byGrpc(receiver: Receiver): Wire {
    const call = this.client.makeBidiStreamRequest(
      pathOf(AutogradService.method.stream),
      asIs,
      received,
      this.metadata,
      {},
    );
    let ended = false;
    const end = (error: GradwireError): void => {
      if (ended) return;
      ended = true;
      receiver.end(error);
    };
    call.on("data", (data: Uint8Array) => {
      if (!ended) receiver.message(data);
    });
    call.on("error", (error) => end(errorOf(error)));
    // A status without an error: the server ended the stream.
    call.on("status", () => end(fromStatus(Code.UNAVAILABLE, "the server ended the stream")));
    return {
      send: (message) => {
        if (!ended) call.write(message);
      },
      close: () => {
        ended = true;
        call.cancel();
      },
    };
  }

  upload(start: MessageInitShape<typeof UploadStartSchema>, data: Uint8Array, chunk: number): Promise<UploadResponse> {
    return new Promise((resolve, reject) => {
      const done = (error: grpc.ServiceError | null, answer?: Uint8Array): void => {
        if (error || !answer) reject(errorOf(error));
        else resolve(fromBinary(UploadResponseSchema, answer));
      };
      const path = pathOf(AutogradService.method.upload);
      const call = this.client.makeClientStreamRequest(path, asIs, received, this.metadata, {}, done);
      let at = 0;
      const proceed = (): void => {
        while (at < data.length) {
          const part = data.subarray(at, at + chunk);
          at += part.length;
          if (!call.write(dataRequest(part))) {
            call.once("drain", proceed);
            return;
          }
        }
        call.end();
      };
      call.on("error", () => {}); // `done` gets it
      const part = { case: "start" as const, value: start };
      call.write(toBinary(UploadRequestSchema, create(UploadRequestSchema, { part })));
      proceed();
    });
  }

  download(
    request: Pick<DownloadRequest, "sessionId" | "transferId" | "offset">,
    _total: number,
    take: (offset: number, data: Uint8Array) => void,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      const path = pathOf(AutogradService.method.download);
      const bytes = toBinary(DownloadRequestSchema, create(DownloadRequestSchema, request));
      const call = this.client.makeServerStreamRequest(path, asIs, received, bytes, this.metadata, {});
      call.on("data", (data: Uint8Array) => {
        const part = fromBinary(DownloadResponseSchema, data);
        take(Number(part.offset), part.data);
      });
      call.on("error", (error) => reject(errorOf(error)));
      call.on("end", () => resolve());
    });
  }

  explained(error: GradwireError): Promise<Explained> {
    const told = aboutToken(error, this.metadata.get("authorization").length > 0);
    return explained(told, this.address, this.credentials._isSecure());
  }

  close(): void {
    this.client.close();
  }
}

/**
 * Connections from a browser, by the web gateway: unary calls by Connect, the stream by a WebSocket, and large values by
 * plain HTTP. Works wherever `fetch` and `WebSocket` are.
 *
 * @packageDocumentation
 */

import type { DescMethodUnary, MessageShape } from "@bufbuild/protobuf";
import { create, type DescMessage, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { base64Decode } from "@bufbuild/protobuf/wire";
import { aboutToken, Code, fromStatus, type GradwireError, withAdvice } from "./errors.js";
import {
  AutogradService,
  type DownloadRequest,
  type UploadResponse,
  UploadResponseSchema,
  type UploadStartSchema,
} from "./gen/gradwire/v1/service_pb.js";
import { Session, type SessionOptions } from "./session.js";
import { type Restored, restored } from "./snapshot.js";
import type { Channel, Dial, Explained, Receiver, Wire } from "./transport.js";

export * from "./index.js";

/** How a browser connects. */
export interface ConnectOptions extends SessionOptions {
  /** Authenticates every call. Pages of the gateway's own origin may use a login's cookie and `csrfToken` instead. */
  token?: string;
  /** The `csrfToken` that POST /login answered. */
  csrfToken?: string;
  /** The WebSocket class, where there is no global one: Node before version 22. */
  WebSocket?: typeof WebSocket;
}

/** Open a session by a web gateway, "http://127.0.0.1:8080"; without an address by the one that served the page. */
export function connect(
  address: string | URL = globalThis.location?.origin,
  options: ConnectOptions = {},
): Promise<Session> {
  return Session.open(...route(address, options), options);
}

/** Open a session from a snapshot that `Session.save` made. The address and options are those of `connect`. */
export async function restore(address: string | URL, name: string, options: ConnectOptions = {}): Promise<Restored> {
  return restored(...route(address, options), name, options);
}

/** The gateway's address, and how to connect to it. */
function route(address: string | URL, options: ConnectOptions): [readonly string[], Dial] {
  const gateway = new URL(address);
  const dial = (each: string): Channel | undefined => {
    // A page reaches servers by their gateway only, so it does not follow a session to another server's address.
    return each === gateway.href ? new WebChannel(gateway, options) : undefined;
  };
  return [[gateway.href], dial];
}

const SUBPROTOCOL = "gradwire.v1";
const FIRST_CLOSE_CODE = 4000; // plus the gRPC status code
// Connect's names of gRPC's status codes, by their numbers.
const CODES = [
  ...["ok", "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists"],
  ...["permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range", "unimplemented"],
  ...["internal", "unavailable", "data_loss", "unauthenticated"],
];

interface ConnectError {
  code?: string;
  message?: string;
  details?: { type?: string; value?: string }[];
}

/** The error of a Connect error's JSON. */
function errorOf(text: string, otherwise: string): GradwireError {
  let told: ConnectError;
  try {
    told = JSON.parse(text) as ConnectError;
  } catch {
    return fromStatus(Code.UNAVAILABLE, otherwise); // a proxy's page
  }
  const refusal = told.details?.find((each) => each.type === "gradwire.v1.Error")?.value;
  const code = Math.max(CODES.indexOf(told.code ?? ""), Code.UNKNOWN);
  return fromStatus(code, told.message || otherwise, refusal ? base64Decode(refusal) : undefined);
}

/** A connection to one gateway. */
class WebChannel implements Channel {
  private readonly headers: Record<string, string> = {};
  private readonly ended = new AbortController();

  constructor(
    private readonly gateway: URL,
    private readonly options: ConnectOptions,
  ) {
    if (options.token) this.headers["Authorization"] = `Bearer ${options.token}`;
    if (options.csrfToken) this.headers["X-CSRF-Token"] = options.csrfToken;
  }

  /** Make a request, and return the answer's body. */
  private async fetched(path: string, request: RequestInit, timeoutMs?: number): Promise<Response> {
    const signals = [this.ended.signal, ...(timeoutMs ? [AbortSignal.timeout(timeoutMs)] : [])];
    const headers = { ...this.headers, ...(request.headers as Record<string, string>) };
    let response: Response;
    try {
      response = await fetch(new URL(path, this.gateway), { ...request, headers, signal: AbortSignal.any(signals) });
    } catch (thrown) {
      throw this.broken(thrown);
    }
    if (!response.ok) throw errorOf(await this.read(response.text()), `the gateway answered ${response.status}`);
    return response;
  }

  private async read<T>(body: Promise<T>): Promise<T> {
    try {
      return await body;
    } catch (thrown) {
      throw this.broken(thrown);
    }
  }

  private broken(thrown: unknown): GradwireError {
    const message = thrown instanceof Error ? thrown.message : String(thrown);
    return fromStatus(this.ended.signal.aborted ? Code.CANCELLED : Code.UNAVAILABLE, message);
  }

  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    timeoutMs?: number,
  ): Promise<MessageShape<O>> {
    const body = toBinary(method.input, create(method.input, request));
    const headers = { "Content-Type": "application/proto", "Connect-Protocol-Version": "1" };
    const call = { method: "POST", headers, body: body as Uint8Array<ArrayBuffer> };
    const response = await this.fetched(`/${method.parent.typeName}/${method.name}`, call, timeoutMs);
    return fromBinary(method.output, new Uint8Array(await this.read(response.arrayBuffer())));
  }

  stream(receiver: Receiver): Wire {
    const url = new URL(`/${AutogradService.typeName}/Stream`, this.gateway);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    // A page cannot set headers of a WebSocket, so a second subprotocol carries the secret.
    const { token, csrfToken } = this.options;
    const secret = token ? [`gradwire.bearer.${token}`] : csrfToken ? [`gradwire.csrf.${csrfToken}`] : [];
    const socket = new (this.options.WebSocket ?? WebSocket)(url, [SUBPROTOCOL, ...secret]);
    socket.binaryType = "arraybuffer";
    const waiting: Uint8Array<ArrayBuffer>[] = [];
    let refusal: GradwireError | undefined;
    let ended = false;
    socket.onopen = () => {
      for (const message of waiting.splice(0)) socket.send(message);
    };
    socket.onmessage = ({ data }) => {
      if (ended) return;
      if (typeof data === "string") refusal = errorOf(data, "the gateway ended the stream");
      else receiver.message(new Uint8Array(data as ArrayBuffer));
    };
    socket.onclose = ({ code, reason }) => {
      if (ended) return;
      ended = true;
      const status = code >= FIRST_CLOSE_CODE && code < FIRST_CLOSE_CODE + CODES.length ? code - FIRST_CLOSE_CODE : 0;
      receiver.end(refusal ?? fromStatus(status || Code.UNAVAILABLE, reason || "the WebSocket was closed"));
    };
    return {
      send: (message) => {
        if (ended) return;
        if (socket.readyState === 1) socket.send(message as Uint8Array<ArrayBuffer>);
        else if (socket.readyState === 0) waiting.push(message as Uint8Array<ArrayBuffer>);
      },
      close: () => {
        ended = true;
        socket.close();
      },
    };
  }

  offered(): boolean {
    return false; // a browser has no such sockets
  }

  async upload(start: MessageInitShape<typeof UploadStartSchema>, data: Uint8Array): Promise<UploadResponse> {
    const { sessionId = "", requestId = "", totalBytes = 0n, offset = 0n } = start;
    const end = offset + BigInt(data.length);
    const range = data.length === 0 ? "*" : `${offset}-${end - 1n}`;
    const headers = { "Gradwire-Session": sessionId, "Content-Range": `bytes ${range}/${totalBytes}` };
    const call = { method: "PUT", headers, body: data as Uint8Array<ArrayBuffer> };
    const response = await this.fetched(`/uploads/${encodeURIComponent(requestId)}`, call);
    const told = (await this.read(response.json())) as { transferId: string; receivedBytes: string };
    return create(UploadResponseSchema, {
      transferId: told.transferId,
      receivedBytes: BigInt(told.receivedBytes),
    });
  }

  async download(
    request: Pick<DownloadRequest, "sessionId" | "transferId" | "offset">,
    total: number,
    take: (offset: number, data: Uint8Array) => void,
  ): Promise<void> {
    const range = `bytes=${request.offset}-${total - 1}`;
    const headers = { "Gradwire-Session": request.sessionId, Range: range };
    const response = await this.fetched(`/downloads/${encodeURIComponent(request.transferId)}`, { headers });
    const reader = response.body?.getReader();
    let at = Number(request.offset);
    for (;;) {
      const part = reader && (await this.read(reader.read()));
      if (!part?.value) return;
      take(at, part.value);
      at += part.value.length;
    }
  }

  async explained(error: GradwireError): Promise<Explained> {
    const told = aboutToken(error, !!this.options.token);
    if (!told.isConnectionFailure) return { error: told, final: false };
    const advice = "Start `gradwire serve --web 8080`, or check the address and the origins that the gateway allows.";
    return { error: withAdvice(told, `no web gateway at ${this.gateway.href}: ${told.message}`, advice), final: false };
  }

  close(): void {
    this.ended.abort();
  }
}

/**
 * What the core needs of a connection. `node` has one over gRPC, `web` one over the web gateway. `Servers` chooses among
 * several servers and repeats calls.
 */

import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { asError, Code, type GradwireError, Reason } from "./errors.js";
import type { DownloadRequest, UploadResponse, UploadStartSchema } from "./gen/gradwire/v1/service_pb.js";

/** A stream's way to the server. */
export interface Wire {
  /** Send a StreamRequest. */
  send(message: Uint8Array): void;
  /** End the stream. Nothing is received after it. */
  close(): void;
}

/** A stream's way from the server. */
export interface Receiver {
  /** Take a StreamResponse. */
  message(data: Uint8Array): void;
  /** The stream has ended; called once, and last. */
  end(error: GradwireError): void;
}

/** A connection to one server. Failures are GradwireErrors. */
export interface Channel {
  /** Make a unary call. */
  unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    timeoutMs?: number,
  ): Promise<MessageShape<O>>;
  /** Open a stream. */
  stream(receiver: Receiver): Wire;
  /** Note the Unix socket that the server named for streams. Returns whether a new stream would use it, and none does. */
  offered(localStream: string): boolean;
  /** Send bytes of a transfer in one call. */
  upload(start: MessageInitShape<typeof UploadStartSchema>, data: Uint8Array, chunk: number): Promise<UploadResponse>;
  /** Receive a transfer's bytes in one call; `take` gets each part with its offset. */
  download(
    request: Pick<DownloadRequest, "sessionId" | "transferId" | "offset">,
    total: number,
    take: (offset: number, data: Uint8Array) => void,
  ): Promise<void>;
  /** Tell more about the error of a first call. */
  explained(error: GradwireError): Promise<Explained>;
  /** End the connection. */
  close(): void;
}

/** An error with advice, and whether another try would fail in the same way. */
export interface Explained {
  readonly error: GradwireError;
  readonly final: boolean;
}

/** Connects to an address, or returns nothing where this program cannot reach it. */
export type Dial = (address: string) => Channel | undefined;

const OPENING_MS = 5000; // how long an unreachable server is tried at first; later the session's patience counts
const FIRST_PAUSE = 10;
const LONGEST_PAUSE = 1000;

/** @internal Pauses that grow until something goes well. */
export class Backoff {
  private pause = FIRST_PAUSE;
  private since = performance.now();

  constructor(private readonly patienceMs: number) {}

  /** Something went well. */
  reset(): void {
    this.pause = FIRST_PAUSE;
    this.since = performance.now();
  }

  /** Whether the last success is too long ago. */
  get over(): boolean {
    return performance.now() - this.since > this.patienceMs;
  }

  /** Wait before another try. */
  async wait(): Promise<void> {
    const pause = this.pause * (0.5 + Math.random());
    this.pause = Math.min(2 * this.pause, LONGEST_PAUSE);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

/** @internal The servers that may have the session, and the connection to the one in use. */
export class Servers {
  private readonly addresses: string[];
  private used: Channel | undefined;
  private at = 0;
  private closed = false;

  constructor(
    addresses: readonly string[],
    private readonly dial: Dial,
    readonly patienceMs: number,
  ) {
    this.addresses = [...addresses];
  }

  /** The connection in use. */
  get channel(): Channel {
    const address = this.addresses[this.at] ?? "";
    this.used ??= this.dial(address);
    if (!this.used) throw new TypeError(`gradwire: ${JSON.stringify(address)} is not an address of a server`);
    return this.used;
  }

  /** Use another server from now on, if an error of `from` says so: where the session is, or the next known one. */
  leave(from: Channel, error: GradwireError): void {
    if (this.closed || from !== this.used) return; // another call has left it before
    if (error.reason === Reason.SESSION_MOVED) {
      const endpoint = error.metadata["endpoint"];
      if (endpoint) this.move(endpoint);
      else this.next();
    } else if (error.isConnectionFailure) {
      this.next();
    }
  }

  /** Use a server that another one named. */
  move(endpoint: string): void {
    const known = this.addresses.indexOf(endpoint);
    const channel = known === this.at ? undefined : this.dial(endpoint);
    if (!channel) return;
    if (known < 0) this.addresses.push(endpoint);
    this.at = known < 0 ? this.addresses.length - 1 : known;
    this.used?.close();
    this.used = channel;
  }

  private next(): void {
    if (this.addresses.length < 2) return;
    this.at = (this.at + 1) % this.addresses.length;
    this.used?.close();
    this.used = undefined;
  }

  /** Make a session's first call. Gives up sooner than others, and tells what to do. */
  async open<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>> {
    const backoff = new Backoff(Math.min(this.patienceMs, OPENING_MS));
    for (;;) {
      const channel = this.channel;
      try {
        return await channel.unary(method, request);
      } catch (thrown) {
        const error = asError(thrown);
        const told = await channel.explained(error);
        const last = told.final && this.addresses.length < 2;
        if (!error.mayRetry || backoff.over || last) throw told.error;
        this.leave(channel, error);
      }
      await backoff.wait();
    }
  }

  /** Make a unary call, and repeat it unchanged while the connection fails. */
  async call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>> {
    const backoff = new Backoff(this.patienceMs);
    for (;;) {
      const channel = this.channel;
      try {
        return await channel.unary(method, request);
      } catch (thrown) {
        const error = asError(thrown);
        if (!error.mayRetry || this.closed || backoff.over || error.code === Code.CANCELLED) throw error;
        this.leave(channel, error);
      }
      await backoff.wait();
    }
  }

  close(): void {
    this.closed = true;
    this.used?.close();
  }
}

/**
 * Sends a session's commands over one stream after another. Commands are numbered and kept until they are answered. After a
 * broken connection the writer sends them again, and the server applies none twice.
 */

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Batch, type CommandInit, encoded, encodedCalls, type Waiting, Words } from "./batch.js";
import type { Call } from "./call.js";
import { asError, fromMessage, GradwireConnectionError, type GradwireError, Reason } from "./errors.js";
import type { Error as ErrorMessage } from "./gen/gradwire/v1/errors_pb.js";
import {
  type OpenSessionResponse,
  type Result,
  type RunResponse,
  StreamRequestSchema,
  type StreamResponse,
  StreamResponseSchema,
} from "./gen/gradwire/v1/service_pb.js";
import type { GradMode } from "./gen/gradwire/v1/types_pb.js";
import type { Tensor } from "./tensor.js";
import { Backoff, type Channel, type Servers, type Wire } from "./transport.js";

const SEND_AT = 64; // commands at which a batch is sent while few are under way
const GROW_TO = 1024; // commands up to which a batch grows while many are under way
// Bytes up to which it grows, and up to which it does after a break: a larger message hardly passes a bad connection.
const GROW_BYTES = 8 << 10;
const SMALL_BYTES = 2 << 10;
const MOST_SENT = 8; // batches under way; the server stops reading at 16
const MOST_ROOTS = 1024; // refusals that are remembered for commands that depend on them
const MOST_FAILURES = 64; // refusals of quiet commands kept until the next wait
const MOST_PREPARED_BYTES = 256; // of an op that is worth preparing
// Streams that break since the last answer to a batch, and times the patience; then no connection seems to carry it.
const MOST_PATIENCES = 10;
// A stream that lasts for this part of the patience has carried its batches: the server computes.
const PATIENCE_PARTS = 4;

/** The part of the stub that a stream has told. */
interface Stream {
  readonly channel: Channel;
  readonly wire: Wire;
  attached: boolean;
  /** Bytes that may be sent. */
  credit: number;
  /** Batches of the queue that were sent on this stream. */
  sent: number;
  answered: boolean;
}

/** The streams that broke since the last answer to a batch. */
interface BrokenStreams {
  count: number;
  /** When the first broke. */
  since: number;
  acknowledged: number;
}

/** @internal */
export class Writer {
  // Commands that wait for the next batch.
  private commands: Uint8Array[] = [];
  private readonly words = new Words();
  private calls = 0;
  private count = 0;
  private bytes = 0;
  private waiting = new Map<number, Waiting>();
  private first = 1;
  private next = 1;
  private released: number[] = [];
  private readonly prepared = new Map<string, number>();
  private readonly seen = new Set<string>();

  // Batches that are not answered, in order.
  private readonly queue: Batch[] = [];
  private stream: Stream | undefined;
  private acknowledged = 0;
  private told = 0; // of it, by a message
  private attempt = 0;
  /** Batches that may be under way: few after a break, so that an answer comes before the next one. */
  private window = MOST_SENT;
  /** Why nothing is sent any more. */
  dead: Error | undefined;
  /** How often the stream was opened again. */
  reconnects = 0;
  /** Called with the hooks that the server has dropped. */
  droppedHooks: (hooks: number[]) => void = () => {};

  private failures: GradwireError[] = [];
  private readonly roots = new Map<number, GradwireError>();
  private yielded = true;
  /** Ends the present stream. */
  private end: (error: GradwireError) => void = () => {};
  private readonly limits: { message: number; batch: number; prepared: number };

  constructor(
    private readonly servers: Servers,
    private readonly opened: OpenSessionResponse,
  ) {
    const limits = opened.limits;
    this.limits = {
      message: Number(limits?.maxMessageBytes ?? 0) || Number.POSITIVE_INFINITY,
      batch: Math.min(GROW_TO, Number(limits?.maxBatchCommands ?? 0) || GROW_TO),
      prepared: Number(limits?.maxPrepared ?? 0),
    };
    void this.run();
  }

  // Commands that wait for the next batch

  /** Add a command that is answered only if it fails. */
  send(command: CommandInit): void {
    this.add(encoded(command, true));
  }

  /** Add a command that is not known yet. The commands that follow wait for it. */
  sendLater(command: Promise<CommandInit>): void {
    this.cut();
    const batch = new Batch(this.next, this.next, undefined, new Map());
    this.first = ++this.next;
    if (this.dead) return;
    this.queue.push(batch);
    void command.then((known) => {
      batch.commands = [encoded(known, true)];
      this.pump();
    });
  }

  private add(command: Uint8Array, waiting?: Waiting): void {
    if (this.count > 0 && this.bytes + command.length > this.limits.message - 1024) this.cut();
    this.endCalls();
    this.commands.push(command);
    if (waiting) this.waiting.set(this.next, waiting);
    this.bytes += command.length + 8;
    this.counted();
  }

  /** Follows every command: send a batch that is large enough, or let it grow while many are under way. */
  private counted(): void {
    this.next++;
    this.count++;
    const large = this.count >= this.limits.batch || this.bytes >= (this.window < MOST_SENT ? SMALL_BYTES : GROW_BYTES);
    if (this.count >= SEND_AT && (this.queue.length < MOST_SENT || large)) this.cut();
  }

  private endCalls(): void {
    if (this.calls > 0) {
      this.commands.push(encodedCalls(this.calls, this.words.take()));
      this.calls = 0;
    }
  }

  /** Add a call of an op: the second time and later as a call of a prepared op. */
  op(call: Call, mode: GradMode, made: readonly Tensor[]): void {
    const key = call.key(mode, made.length);
    const number = this.prepared.get(key) ?? this.prepare(key, call, mode, made);
    if (number === undefined) {
      this.send({ case: "op", value: call.request(mode, made) });
      return;
    }
    const before = this.words.length;
    this.words.id(number);
    call.words(this.words, made);
    this.calls++;
    this.bytes += this.words.length - before;
    if (this.bytes > this.limits.message - 65536) this.cutAfterCall();
    else this.counted();
  }

  private cutAfterCall(): void {
    this.next++;
    this.count++;
    this.cut();
  }

  /** Add a Prepare if the call was seen before and the server allows one more. Returns the op's number. */
  private prepare(key: string, call: Call, mode: GradMode, made: readonly Tensor[]): number | undefined {
    if (key === "") return undefined;
    if (!this.seen.has(key)) {
      if (this.seen.size < 4 * this.limits.prepared) this.seen.add(key);
      return undefined;
    }
    if (this.prepared.size >= this.limits.prepared) return undefined;
    const number = this.prepared.size;
    const command = encoded({ case: "prepare", value: { number, op: call.request(mode, made) } }, true);
    if (command.length > MOST_PREPARED_BYTES) return undefined;
    this.seen.delete(key);
    this.prepared.set(key, number);
    this.add(command);
    return number;
  }

  /** Free a tensor with the next batch. */
  release(id: number): void {
    this.released.push(id);
  }

  /** Note a mistake that was found here, for the next wait. */
  failed(error: GradwireError): void {
    if (this.failures.length < MOST_FAILURES) this.failures.push(error);
  }

  /** Forget a noted mistake, which a read has thrown. */
  reported(error: GradwireError): void {
    this.failures = this.failures.filter((each) => each !== error);
  }

  /** Make a batch of the commands that wait. Releases are its end: the server answers before it frees. */
  private cut(): void {
    this.endCalls();
    if (this.released.length > 0) {
      this.commands.push(encoded({ case: "release", value: { tensors: this.released.map(BigInt) } }, true));
      this.released = [];
      this.next++;
    }
    if (this.commands.length === 0) return;
    const batch = new Batch(this.first, this.next - 1, this.commands, this.waiting);
    this.commands = [];
    this.waiting = new Map();
    this.first = this.next;
    this.count = 0;
    this.bytes = 0;
    this.yielded = false;
    if (this.dead) {
      batch.end(this.dead);
      return;
    }
    this.queue.push(batch);
    this.pump();
  }

  // Waiting

  /** Add a command and wait for its answer, which may be a refusal. Rejects if the connection is lost for good. */
  ask(command: CommandInit): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.add(encoded(command, false), { resolve, reject });
      this.cut();
    });
  }

  /** Send what waits, and return when all is answered. */
  async wait(): Promise<void> {
    this.cut();
    const last = this.queue.at(-1);
    if (last) await new Promise<void>((resolve) => last.done.push(resolve));
    if (this.dead) throw this.dead;
  }

  /**
   * Wait until few batches are under way. JavaScript sends only while the program waits: it waits for a turn of the event
   * loop, too, if there is a batch that had none.
   */
  async room(): Promise<void> {
    while (this.queue.length > MOST_SENT && !this.dead) {
      const oldest = this.queue[0] as Batch;
      await new Promise<void>((resolve) => oldest.done.push(resolve));
    }
    if (!this.yielded) {
      this.yielded = true;
      await turn();
    }
    if (this.dead) throw this.dead;
  }

  /** The first refusal of a quiet command since the last wait. The others are dropped: most follow from it. */
  takeFailure(): GradwireError | undefined {
    const first = this.failures[0];
    this.failures = [];
    return first;
  }

  /** The refusal from which another one follows, or the same. */
  origin(failure: GradwireError): GradwireError {
    return this.roots.get(failure.rootSeq) ?? failure;
  }

  /** End everything with an error. */
  kill(error: Error): void {
    if (this.dead) return;
    this.dead = error;
    for (const batch of this.queue.splice(0)) batch.end(error);
    this.cut();
    this.stream?.wire.close();
    this.end(new GradwireConnectionError("the session is closed"));
  }

  // Streams

  /**
   * Count a stream that broke after its start was answered. The result says if so many broke for so long that no
   * connection seems to carry the next batch. A server that answers a stream's start only would otherwise be tried for
   * ever. One batch may compute for longer than the patience.
   */
  private uncarried(broken: BrokenStreams, lastedMs: number): string | undefined {
    const [batch] = this.queue;
    const now = performance.now();
    const carried = !batch || lastedMs > this.servers.patienceMs / PATIENCE_PARTS;
    if (carried || broken.acknowledged !== this.acknowledged) {
      Object.assign(broken, { count: 0, since: now, acknowledged: this.acknowledged });
    }
    if (carried) return undefined;
    if (++broken.count === 1) broken.since = now;
    const most = MOST_PATIENCES * this.servers.patienceMs;
    if (broken.count < MOST_PATIENCES || now - broken.since <= most) return undefined;
    return `${broken.count} connections broke in ${most / 1000} s before a batch of ${batch.size} bytes was answered`;
  }

  /** Keep a stream open until the writer ends. */
  private async run(): Promise<void> {
    const backoff = new Backoff(this.servers.patienceMs);
    const broken: BrokenStreams = { count: 0, since: 0, acknowledged: 0 };
    while (!this.dead) {
      const channel = this.servers.channel;
      const began = performance.now();
      const { answered, error } = await this.streamed();
      if (this.dead) return;
      if (answered) backoff.reset();
      if (!error.mayRetry) return this.kill(error);
      const futile = answered && this.uncarried(broken, performance.now() - began);
      if (futile || backoff.over) {
        const message = `${futile || `no answer for ${this.servers.patienceMs / 1000} s`}: ${error.message}`;
        return this.kill(new GradwireConnectionError(message, { reason: Reason.UNAVAILABLE, code: 14 }));
      }
      this.servers.leave(channel, error);
      await backoff.wait();
    }
  }

  /** Open a stream, and return how it ended and whether it had an answer. */
  private streamed(): Promise<{ answered: boolean; error: GradwireError }> {
    return new Promise((resolve) => {
      let stream: Stream | undefined;
      const end = (error: GradwireError): void => {
        stream?.wire.close();
        this.stream = undefined;
        resolve({ answered: stream?.answered ?? false, error });
      };
      this.end = end;
      try {
        const message = (data: Uint8Array): void => {
          if (stream && stream === this.stream) this.received(stream, fromBinary(StreamResponseSchema, data));
        };
        const { channel } = this.servers;
        const wire = channel.stream({ message, end });
        stream = { channel, wire, attached: false, credit: 0, sent: 0, answered: false };
        this.stream = stream;
        this.attach(wire);
      } catch (thrown) {
        end(asError(thrown));
      }
    });
  }

  private attach(wire: Wire): void {
    if (this.attempt++ > 0) {
      this.reconnects++;
      this.window = 1;
    }
    const { sessionId, writer, epoch } = this.opened;
    const value = { sessionId, writer, epoch, acknowledgedSeq: BigInt(this.acknowledged), attempt: this.attempt };
    this.told = this.acknowledged;
    const request = { case: "attach" as const, value: { ...value, joinedAnswers: true } };
    wire.send(toBinary(StreamRequestSchema, create(StreamRequestSchema, { request })));
  }

  /** Send batches while there is credit, and acknowledge answers before a pause. */
  private pump(): void {
    const stream = this.stream;
    if (!stream?.attached) return;
    while (stream.sent < Math.min(this.queue.length, this.window)) {
      const batch = this.queue[stream.sent] as Batch;
      if (!batch.commands) return; // not known yet
      const message = batch.stamped(this.acknowledged);
      if (stream.credit < batch.size) return;
      stream.credit -= batch.size;
      stream.sent++;
      this.told = this.acknowledged;
      stream.wire.send(message);
    }
    if (this.queue.length === 0 && this.acknowledged > this.told + SEND_AT) {
      this.told = this.acknowledged;
      const request = { case: "acknowledge" as const, value: { acknowledgedSeq: BigInt(this.acknowledged) } };
      stream.wire.send(toBinary(StreamRequestSchema, create(StreamRequestSchema, { request })));
    }
  }

  private received(stream: Stream, message: StreamResponse): void {
    stream.answered = true;
    stream.credit += Number(message.creditBytes);
    if (message.response.case === "attached") {
      // A server that was restarted, or that the session moved to, names its socket only here.
      if (stream.channel.offered(message.response.value.localStream)) {
        this.reopen();
        return;
      }
      stream.attached = true;
    } else if (message.response.case === "batch") this.answered(stream, message.batches || 1, message.response.value);
    this.pump();
  }

  /** Replace the stream by another one, which uses the socket that the server has named. */
  private reopen(): void {
    this.end(new GradwireConnectionError("another stream replaces this one", { reason: Reason.UNAVAILABLE, code: 14 }));
  }

  /** Take batches from the queue, of which the last one has the results. */
  private answered(stream: Stream, count: number, run: RunResponse): void {
    const batches = this.queue.splice(0, count);
    const last = batches.at(-1);
    if (!last) return;
    stream.sent = Math.max(0, stream.sent - batches.length);
    this.acknowledged = last.last;
    this.window = Math.min(2 * this.window, MOST_SENT);
    for (const result of run.results) {
      const seq = Number(result.seq);
      const waiting = last.waiting.get(seq);
      if (result.result.case === "error") this.refused(seq, result.result.value, !waiting);
      waiting?.resolve(result);
      last.waiting.delete(seq);
    }
    for (const batch of batches) batch.end();
    if (run.droppedHooks.length > 0) this.droppedHooks(run.droppedHooks.map(Number));
  }

  /** Remember a refusal, as the origin of others and, of a quiet command, for the next wait. */
  private refused(seq: number, told: ErrorMessage, quiet: boolean): void {
    const failure = fromMessage(told);
    if (failure.reason !== Reason.DEPENDENCY_FAILED) {
      if (this.roots.size >= MOST_ROOTS) this.roots.delete(this.roots.keys().next().value as number);
      this.roots.set(seq, failure);
      if (quiet) this.failed(failure);
    } else if (quiet && !this.roots.has(failure.rootSeq)) {
      this.failed(failure);
    }
  }
}

/** A turn of the event loop, in which messages are sent and received. */
function turn(): Promise<void> {
  return new Promise((resolve) => {
    if (typeof setImmediate === "function") setImmediate(resolve);
    else {
      // A browser's timers wait longer.
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => {
        port1.close();
        resolve();
      };
      port2.postMessage(null);
    }
  });
}

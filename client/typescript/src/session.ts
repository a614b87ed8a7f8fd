/** Sessions: what holds tensors on a server. */

import {
  create,
  type DescMessage,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import type { HookAnswer } from "./autograd.js";
import type { CommandInit } from "./batch.js";
import { download, upload } from "./bulk.js";
import type { Call } from "./call.js";
import { fromMessage, type GradwireError, GradwireRuntimeError, Reason, refusal } from "./errors.js";
import {
  AutogradService,
  type OpenSessionResponse,
  OpenSessionResponseSchema,
  type Result,
} from "./gen/gradwire/v1/service_pb.js";
import { GradMode, RandomAlgorithm } from "./gen/gradwire/v1/types_pb.js";
import { SessionMethods } from "./ops.js";
import { type Body, type Program, type Signature, trace } from "./program.js";
import { loadProgram, type ProgramFile } from "./program-file.js";
import { Tensor } from "./tensor.js";
import { type Dial, Servers } from "./transport.js";
import { type DType, elementSize, elementsOf, nameOf, type Payload, payloadOf, type Values } from "./values.js";
import { Writer } from "./writer.js";

/** The version of this package. */
export const VERSION = "0.1.0";

const PATIENCE_SECONDS = 120;
const MOST_PROGRAMS = 256; // remembered where the server names no limit

/** How a session is opened. */
export interface SessionOptions {
  /** How long the session lives without traffic, in seconds; the server's default if not given. It is renewed until `close`. */
  lease?: number;
  /** The type of a device that the session needs, such as "cuda". A cluster opens it at a server that has one. */
  deviceType?: string;
  /**
   * How long a broken connection is tried again before the session fails, in seconds: 120 if not given. A server that cannot
   * be reached at first is tried for 5 seconds at most.
   */
  patience?: number;
  /** The name that the server's log shows. */
  client?: string;
}

/** What `tensor` can do without. */
export interface TensorOptions {
  /** Without it, numbers become float32, bigints int64, booleans bool; a list has the type that holds all. Typed arrays keep theirs. */
  dtype?: DType;
  /** The shape of flat values. */
  shape?: readonly number[];
  requiresGrad?: boolean;
  device?: string;
}

/** @internal Takes a session's commands: the writer of a live session, or the recorder of a program. */
export interface Sink {
  send(command: CommandInit): void;
  op(call: Call, mode: GradMode, made: readonly Tensor[]): void;
  ask(command: CommandInit): Promise<Result>;
  wait(): Promise<void>;
  room(): Promise<void>;
  release(id: number): void;
  /** Note a mistake for the next wait. */
  failed(error: GradwireError): void;
  /** Forget a noted mistake, which a read has thrown. */
  reported(error: GradwireError): void;
  takeFailure(): GradwireError | undefined;
  origin(failure: GradwireError): GradwireError;
}

/** @internal The fields of a request for a session. */
export function requested(options: SessionOptions): { client: string; leaseMs: number; deviceType: string } {
  const client = options.client ?? `gradwire-typescript/${VERSION}`;
  return { client, leaseMs: 1000 * (options.lease ?? 0), deviceType: options.deviceType ?? "" };
}

/** @internal Make a call that opens a session: at a server, or again at the server of the cluster that its answer names. */
export async function placed(
  servers: Servers,
  call: (followsEndpoint: boolean) => Promise<OpenSessionResponse>,
): Promise<OpenSessionResponse> {
  const opened = await call(true);
  if (!opened.endpoint || opened.sessionId) return opened;
  servers.move(opened.endpoint);
  return call(false); // that server opens it, whatever the load is by then
}

interface Live {
  readonly writer: Writer;
  readonly servers: Servers;
  readonly keeper: ReturnType<typeof setInterval>;
}

/**
 * Holds tensors on a server. Ops only queue commands; they are sent in batches, and their failures surface at the next wait
 * or read. Commands are applied in the order of their calls.
 */
export class Session extends SessionMethods {
  /** @internal The mode of the ops that follow. */
  gradMode: GradMode = GradMode.UNSPECIFIED;
  /** @internal */
  readonly hooks = new Map<number, HookAnswer>();
  private lastId: number;
  private readonly scopes: Tensor[][] = [];
  private recent: string[] = []; // hashes of programs, the most recently run last
  private closed = false;
  private requests = 0;
  private readonly prefix = Math.random().toString(36).slice(2);
  private readonly finalizers: FinalizationRegistry<number>;

  private constructor(
    /** @internal */
    readonly sink: Sink,
    private readonly opened: OpenSessionResponse,
    private readonly live?: Live,
  ) {
    super();
    this.lastId = Number(opened.firstId) - 1;
    // A finalizer only queues the id: it is sent with the next batch.
    this.finalizers = new FinalizationRegistry((id) => sink.release(id));
    if (live) {
      live.writer.droppedHooks = (dropped) => {
        for (const hook of dropped) this.hooks.delete(hook);
      };
    }
  }

  /** @internal Open a session on one of several servers. */
  static open(addresses: readonly string[], dial: Dial, options: SessionOptions): Promise<Session> {
    return Session.begin(addresses, dial, options, (servers) =>
      placed(servers, (followsEndpoint) =>
        servers.open(AutogradService.method.openSession, { ...requested(options), followsEndpoint }),
      ),
    );
  }

  /** @internal Open a session by a call that makes one. */
  static async begin(
    addresses: readonly string[],
    dial: Dial,
    options: SessionOptions,
    open: (servers: Servers) => Promise<OpenSessionResponse>,
  ): Promise<Session> {
    const servers = new Servers(addresses, dial, 1000 * (options.patience ?? PATIENCE_SECONDS));
    try {
      const opened = await open(servers);
      if (!opened.firstId) throw new GradwireRuntimeError("the server gives this client no ids; it is too old");
      servers.channel.offered(opened.localStream);
      const writer = new Writer(servers, opened);
      return new Session(writer, opened, { writer, servers, keeper: keepAlive(servers, writer, opened) });
    } catch (thrown) {
      servers.close();
      throw thrown;
    }
  }

  /** @internal A session whose commands become steps of a program. */
  static recording(sink: Sink, outer: Session): Session {
    const inner = new Session(sink, create(OpenSessionResponseSchema, { firstId: 1n, limits: outer.opened.limits }));
    inner.gradMode = outer.gradMode;
    return inner;
  }

  /** @internal */
  get isRecording(): boolean {
    return !this.live;
  }

  /** The session's id. Keep it secret: it gives access to the session. */
  get id(): string {
    return this.opened.sessionId;
  }

  /** How often the stream was opened again after a broken connection. */
  get reconnects(): number {
    return this.live?.writer.reconnects ?? 0;
  }

  // Waiting

  /** Send all commands and wait until they are answered. Throws the first refusal since the last wait or read. */
  async wait(): Promise<void> {
    await this.sink.wait();
    const failure = this.sink.takeFailure();
    if (failure) throw failure;
  }

  /**
   * Wait until the connection has room for more commands. A loop that awaits nothing else should await this: JavaScript sends
   * nothing while the program runs. `backward` does it, too.
   */
  room(): Promise<void> {
    return this.sink.room();
  }

  /** @internal Send a command and wait for its answer. */
  async ask(command: CommandInit): Promise<Result["result"]> {
    const { result } = await this.sink.ask(command);
    const earlier = this.sink.takeFailure();
    if (earlier) throw earlier;
    if (result.case === "error") throw this.sink.origin(fromMessage(result.value));
    return result;
  }

  /** Stop the session's running and waiting commands. They fail with `Reason.CANCELLED`. */
  async cancel(): Promise<void> {
    await this.live?.servers.call(AutogradService.method.cancel, { sessionId: this.id });
  }

  /** Wait for all commands and end the session; the server frees what it holds. Throws the first refusal that is left. */
  async close(): Promise<void> {
    if (this.closed || !this.live) return;
    this.closed = true;
    const { writer, servers, keeper } = this.live;
    try {
      await this.wait();
    } finally {
      clearInterval(keeper);
      const alive = !writer.dead;
      writer.kill(new GradwireRuntimeError("the session is closed"));
      try {
        if (alive) await servers.channel.unary(AutogradService.method.closeSession, { sessionId: this.id }, 10_000);
      } finally {
        servers.close();
      }
    }
  }

  /** `await using session = …` closes the session at the end of the block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  // Modes

  /** Run f. Ops inside record no graph, and leaves may be changed in place. f must not be async. */
  noGrad<T>(f: () => T extends Promise<unknown> ? never : T): T {
    return this.inMode(GradMode.DISABLED, f);
  }

  /** Run f. Ops inside record no graph, and their results can never be part of one. f must not be async. */
  inferenceMode<T>(f: () => T extends Promise<unknown> ? never : T): T {
    return this.inMode(GradMode.INFERENCE, f);
  }

  private inMode<T>(mode: GradMode, f: () => T): T {
    const before = this.gradMode;
    this.gradMode = mode;
    try {
      const result = f();
      if (result instanceof Promise) {
        throw new TypeError(
          "the function of noGrad and inferenceMode must not be async: the mode ends with its first await",
        );
      }
      return result;
    } finally {
      this.gradMode = before;
    }
  }

  /** Seed the session's random generator, which draws PyTorch's numbers on the CPU (torch.manual_seed). */
  manualSeed(seed: number | bigint): void {
    const set = { case: "seed" as const, value: BigInt(seed) };
    this.sink.send({ case: "manualSeed", value: { set, algorithm: RandomAlgorithm.MT19937 } });
  }

  // Tensors

  /**
   * Make a leaf of values (torch.tensor). Numbers become float32 if no dtype is given. Large values travel in chunks, apart
   * from the commands; the commands that follow wait for them.
   */
  tensor(values: Values, options: TensorOptions = {}): Tensor {
    const { dtype, data, shape } = payloadOf(values, options.dtype, options.shape);
    return this.fromBytes(dtype, data, shape, options);
  }

  /** Make a leaf of little-endian bytes in row-major order. Do not change the bytes afterwards. */
  fromBytes(dtype: DType, data: Uint8Array, shape: readonly number[], options: TensorOptions = {}): Tensor {
    const expected = elementsOf(shape) * elementSize(dtype);
    if (expected !== data.length) {
      const what = `shape [${shape.join(", ")}] of ${nameOf(dtype)}`;
      return this.failedTensor(refusal(Reason.PAYLOAD_SIZE, `${what} has ${expected} bytes, not ${data.length}`));
    }
    const made = this.newTensor();
    const { requiresGrad = false, device = "" } = options;
    const common = { id: BigInt(made.id), requiresGrad, device, gradMode: this.gradMode };
    const payload = { dtype, shape: [...shape], data };
    if (this.live && data.length > Number(this.opened.limits?.maxInlineBytes ?? Number.POSITIVE_INFINITY)) {
      this.live.writer.sendLater(this.transferred(payload, common));
    } else {
      const value = { dtype, shape: shape.map(BigInt), data };
      this.sink.send({ case: "create", value: { ...common, source: { case: "payload", value } } });
    }
    return made;
  }

  /** Upload values, and return the command that makes a tensor of them. */
  private async transferred(
    payload: Payload,
    common: { id: bigint; requiresGrad: boolean; device: string; gradMode: GradMode },
  ): Promise<CommandInit> {
    const { servers } = this.live as Live;
    const { dtype, shape, data } = payload;
    let transferId = "";
    try {
      const name = `${this.prefix}-${++this.requests}`;
      transferId = await upload(servers, this.id, name, data, Number(this.opened.limits?.chunkBytes ?? 0));
    } catch (thrown) {
      // The command without a transfer is refused, and what depends on it. The wait shows this error first.
      this.sink.failed(thrown as GradwireError);
    }
    const value = { transferId, dtype, shape: shape.map(BigInt), totalBytes: BigInt(data.length) };
    return { case: "create", value: { ...common, source: { case: "transfer", value } } };
  }

  /** @internal Fetch a transfer's bytes. */
  download(transferId: string, total: number): Promise<Uint8Array> {
    return download((this.live as Live).servers, this.id, transferId, total);
  }

  /** @internal A fresh id. */
  newId(): number {
    return ++this.lastId;
  }

  /** @internal A tensor with a fresh id. */
  newTensor(): Tensor {
    return this.adopt(++this.lastId);
  }

  /** @internal A tensor of an id that this session releases. */
  adopt(id: number): Tensor {
    const tensor = new Tensor(this, id);
    if (!this.live) return tensor; // a slot of a program
    const scope = this.scopes.at(-1);
    if (scope) scope.push(tensor);
    else this.finalizers.register(tensor, id, tensor);
    return tensor;
  }

  /** @internal A tensor that could not be made. The next wait throws its error. */
  failedTensor(error: GradwireError): Tensor {
    this.sink.failed(error);
    return new Tensor(this, 0, error);
  }

  /** @internal */
  release(tensor: Tensor): void {
    if (tensor.released || tensor.error) return;
    tensor.released = true;
    this.finalizers.unregister(tensor);
    this.sink.release(tensor.id);
  }

  /**
   * Run f and then release all tensors that were made in it, but for those that it returns, alone or in arrays and objects,
   * and those with `keep`. f may be async: then tensors that other code makes meanwhile count, too. The garbage collector
   * releases tensors, too, but it knows nothing of the server's memory: use tidy around the steps of a loop.
   */
  tidy<T>(f: () => T): T {
    const scope: Tensor[] = [];
    this.scopes.push(scope);
    let result: T;
    try {
      result = f();
    } catch (thrown) {
      this.endScope(scope, undefined);
      throw thrown;
    }
    if (!(result instanceof Promise)) {
      this.endScope(scope, result);
      return result;
    }
    const ended = result.then(
      (value: unknown) => {
        this.endScope(scope, value);
        return value;
      },
      (reason: unknown) => {
        this.endScope(scope, undefined);
        throw reason;
      },
    );
    return ended as T;
  }

  private endScope(scope: Tensor[], result: unknown): void {
    this.scopes.splice(this.scopes.lastIndexOf(scope), 1);
    const returned = new Set<Tensor>();
    collect(result, returned);
    const outer = this.scopes.at(-1);
    for (const tensor of scope) {
      if (tensor.released) continue;
      if (tensor.kept) this.finalizers.register(tensor, tensor.id, tensor);
      else if (!returned.has(tensor)) this.release(tensor);
      else if (outer) outer.push(tensor);
      else this.finalizers.register(tensor, tensor.id, tensor);
    }
  }

  // Programs

  /**
   * Make a program of what f does, and register it (torch.compile). f may use only tensors of the session that it gets, reads
   * none, and returns the outputs. Its commands are not applied until the program runs.
   */
  trace(signature: Signature, f: Body): Promise<Program> {
    return trace(this, signature, f);
  }

  /** Load a model that Python exported, given its file's bytes (gradwire.load_program). */
  loadProgram(data: Uint8Array): Promise<ProgramFile> {
    return loadProgram(this, data);
  }

  // Snapshots

  /**
   * Store the session under a name: values, gradients, the graph and the random generator. Waits for all commands. `restore`
   * opens it, and returns the given tensors by their names. The server keeps it for `ttl` seconds; without one, as long as
   * it keeps any. It needs --state-dir.
   */
  async save(
    name: string,
    tensors: Readonly<Record<string, Tensor>> = {},
    options: { ttl?: number } = {},
  ): Promise<void> {
    const named = Object.entries(tensors).map(([key, tensor]) => {
      if (tensor.error) throw tensor.error;
      if (tensor.session !== this) throw refusal(Reason.ARGUMENT_VALUE, `"${key}" is a tensor of another session`);
      return { name: key, id: BigInt(tensor.id) };
    });
    await this.wait();
    const ttlMs = BigInt(Math.round(1000 * (options.ttl ?? 0)));
    await this.call(AutogradService.method.saveSession, { sessionId: this.id, name, ttlMs, tensors: named });
  }

  /** Delete a snapshot of the caller's on the session's server. */
  async deleteSnapshot(name: string): Promise<void> {
    await this.call(AutogradService.method.deleteSnapshot, { name });
  }

  private call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>> {
    if (!this.live) throw refusal(Reason.NOT_SUPPORTED, "a program has no calls of its own");
    return this.live.servers.call(method, request);
  }

  /** @internal Note that a program is the most recently run one. Returns whether the server may have forgotten it. */
  ran(hash: Uint8Array): boolean {
    const key = String.fromCharCode(...hash);
    const at = this.recent.indexOf(key);
    if (at >= 0) this.recent.splice(at, 1);
    this.recent.push(key);
    const most = Number(this.opened.limits?.maxPrograms ?? 0) || MOST_PROGRAMS;
    if (this.recent.length > most) this.recent.shift();
    return at < 0;
  }

  /** @internal Whether the server still has a program. */
  has(hash: Uint8Array): boolean {
    return this.recent.includes(String.fromCharCode(...hash));
  }

  /** @internal Note the programs of a file as the most recently run ones, in the server's order: first those it had. */
  loaded(hashes: readonly Uint8Array[]): void {
    const had = hashes.filter((hash) => this.has(hash));
    const fresh = hashes.filter((hash) => !this.has(hash));
    for (const hash of [...had, ...fresh]) this.ran(hash);
  }
}

/** Renew the lease three times in its length. */
function keepAlive(servers: Servers, writer: Writer, opened: OpenSessionResponse): ReturnType<typeof setInterval> {
  const period = Math.max(opened.leaseMs / 3, 10);
  let under = false;
  const renew = async (): Promise<void> => {
    if (under) return;
    under = true;
    const { channel } = servers;
    try {
      await channel.unary(AutogradService.method.keepAlive, { sessionId: opened.sessionId }, Math.max(period, 1000));
    } catch (thrown) {
      const error = thrown as GradwireError;
      if (error.mayRetry) servers.leave(channel, error);
      else writer.kill(error);
    } finally {
      under = false;
    }
  };
  const timer = setInterval(() => void renew(), Math.min(period, 2 ** 31 - 1));
  // In Node the timer alone does not keep the program running; a browser's is a number.
  (timer as { unref?: () => void }).unref?.();
  return timer;
}

/** Find the tensors of a result. */
function collect(value: unknown, found: Set<Tensor>): void {
  if (value instanceof Tensor) found.add(value);
  else if (Array.isArray(value)) for (const each of value) collect(each, found);
  else if (value && typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype) {
    for (const each of Object.values(value)) collect(each, found);
  }
}

/** TypeScript's side of `python -m benchmarks.languages`, which documents the lines that it reads. */

import { createInterface } from "node:readline";
import type { MessageShape } from "@bufbuild/protobuf";
import {
  create,
  type DescMessage,
  type DescMethodUnary,
  fromBinary,
  type MessageInitShape,
  toBinary,
} from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import {
  AutogradService,
  DownloadRequestSchema,
  DownloadResponseSchema,
  UploadRequestSchema,
  UploadResponseSchema,
} from "../src/gen/gradwire/v1/service_pb.js";
import { type ArgumentSchema, Dtype, GradMode } from "../src/gen/gradwire/v1/types_pb.js";
import { connect, DType, functional, type Program, type Session, type Tensor } from "../src/node.js";

const BATCH = 128;
const RATE = 0.01;
type Sizes = readonly [number, number, number];
const SIZES: Sizes = [64, 256, 10];
const TINY: Sizes = [8, 8, 4]; // of the mode "memory", whose batch is 4
const WINDOW = 4 << 20; // as the SDK's, so that the bare calls are as fast as they can be

function normal(count: number, scale: number): Float32Array {
  return Float32Array.from({ length: count }, () => {
    const length = Math.sqrt(-2 * Math.log(1 - Math.random()));
    return scale * length * Math.cos(2 * Math.PI * Math.random());
  });
}

/** A step of gradient descent. */
function step(session: Session, parameters: readonly Tensor[], x: Tensor, y: Tensor): Tensor {
  const [w1, b1, w2, b2] = parameters as [Tensor, Tensor, Tensor, Tensor];
  const loss = functional.crossEntropy(x.matmul(w1).add(b1).relu().matmul(w2).add(b2), y);
  void loss.backward();
  session.noGrad(() => {
    for (const each of parameters) {
      each.sub_(each.grad.mul(RATE));
      each.grad = null;
    }
  });
  return loss;
}

type Argument = MessageInitShape<typeof ArgumentSchema>;

const asIs = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
const seconds = (begun: number): number => (performance.now() - begun) / 1000;

/** The steps by single calls, each of which waits; and large values by the bare calls. */
class Unary {
  private session = "";
  private chunk = 0;
  private x = 0n;
  private y = 0n;
  private readonly parameters: bigint[] = [];
  private made: bigint[] = [];

  constructor(private readonly client: grpc.Client) {}

  private call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>> {
    return new Promise((resolve, reject) => {
      this.client.makeUnaryRequest(
        `/${method.parent.typeName}/${method.name}`,
        asIs,
        (bytes: Buffer) => bytes,
        toBinary(method.input, create(method.input, request)),
        (error, answer) => (error || !answer ? reject(error) : resolve(fromBinary(method.output, answer))),
      );
    });
  }

  private async op(op: string, args: (bigint | Argument)[], gradMode = GradMode.ENABLED): Promise<bigint> {
    const given = args.map((each) =>
      typeof each === "bigint" ? { kind: { case: "tensor" as const, value: each } } : each,
    );
    const answer = await this.call(AutogradService.method.op, { sessionId: this.session, op, args: given, gradMode });
    const id = answer.outputs[0]?.id ?? 0n;
    this.made.push(id);
    return id;
  }

  async prepare(): Promise<this> {
    const opened = await this.call(AutogradService.method.openSession, { client: "w2-unary" });
    this.session = opened.sessionId;
    this.chunk = Number(opened.limits?.chunkBytes ?? 0);
    const sized = (...sizes: number[]): Argument => ({
      kind: { case: "integers", value: { values: sizes.map(BigInt) } },
    });
    this.x = await this.op("randn", [sized(BATCH, SIZES[0])]);
    this.y = await this.op("zeros", [sized(BATCH), { name: "dtype", kind: { case: "dtype", value: DType.INT64 } }]);
    for (const [rows, columns] of [SIZES.slice(0, 2), SIZES.slice(1)] as [number, number][]) {
      this.parameters.push(await this.op("randn", [sized(rows, columns)]), await this.op("zeros", [sized(columns)]));
    }
    for (const tensor of this.parameters) {
      const request = { sessionId: this.session, tensor, requiresGrad: true };
      await this.call(AutogradService.method.setRequiresGrad, request);
    }
    return this;
  }

  async step(): Promise<void> {
    this.made = [];
    const { session: sessionId } = this;
    const { method } = AutogradService;
    const [w1, b1, w2, b2] = this.parameters as [bigint, bigint, bigint, bigint];
    const hidden = await this.op("relu", [await this.op("add", [await this.op("matmul", [this.x, w1]), b1])]);
    const scores = await this.op("add", [await this.op("matmul", [hidden, w2]), b2]);
    const loss = await this.op("cross_entropy", [scores, this.y]);
    await this.call(method.backward, { sessionId, tensors: [loss] });
    for (const tensor of this.parameters) {
      const gradient = (await this.call(method.grad, { sessionId, tensor })).grad?.id ?? 0n;
      this.made.push(gradient);
      const scaled = await this.op("mul", [gradient, { kind: { case: "float", value: RATE } }], GradMode.DISABLED);
      await this.op("sub_", [tensor, scaled], GradMode.DISABLED);
      this.made.pop(); // the parameter itself
      await this.call(method.setGrad, { sessionId, tensor });
    }
    await this.call(method.release, { sessionId, tensors: this.made });
  }

  /** Seconds of an upload. */
  async upload(mib: number): Promise<number> {
    const { session: sessionId, chunk } = this;
    const data = new Uint8Array(mib << 20);
    const totalBytes = BigInt(data.length);
    const begun = performance.now();
    const transferId = await new Promise<string>((resolve, reject) => {
      const path = `/${AutogradService.typeName}/Upload`;
      const done = (error: grpc.ServiceError | null, answer?: Buffer): void => {
        if (error || !answer) reject(error);
        else resolve(fromBinary(UploadResponseSchema, answer).transferId);
      };
      const call = this.client.makeClientStreamRequest(path, asIs, (bytes: Buffer) => bytes, done);
      const write = (part: MessageInitShape<typeof UploadRequestSchema>["part"]): boolean => {
        return call.write(toBinary(UploadRequestSchema, create(UploadRequestSchema, { part })));
      };
      write({ case: "start", value: { sessionId, totalBytes } });
      let at = 0;
      const proceed = (): void => {
        while (at < data.length) {
          const value = data.subarray(at, at + chunk);
          at += chunk;
          if (!write({ case: "data", value })) {
            call.once("drain", proceed);
            return;
          }
        }
        call.end();
      };
      proceed();
    });
    const taken = seconds(begun);
    const value = { transferId, dtype: Dtype.UINT8, shape: [totalBytes], totalBytes };
    const request = { sessionId, source: { case: "transfer" as const, value } };
    const made = await this.call(AutogradService.method.create, request);
    await this.call(AutogradService.method.release, { sessionId, tensors: [made.tensor?.id ?? 0n] });
    return taken;
  }

  /** Seconds of a download. */
  async download(mib: number): Promise<number> {
    const { session: sessionId } = this;
    const size: Argument = { kind: { case: "integers", value: { values: [BigInt(mib << 18)] } } };
    const tensor = await this.op("ones", [size], GradMode.DISABLED);
    const { result } = await this.call(AutogradService.method.read, { sessionId, tensor });
    const transferId = result.case === "transfer" ? result.value.transferId : "";
    const request = toBinary(DownloadRequestSchema, create(DownloadRequestSchema, { sessionId, transferId }));
    const begun = performance.now();
    const data = new Uint8Array(mib << 20);
    let received = 0;
    await new Promise<void>((resolve, reject) => {
      const path = `/${AutogradService.typeName}/Download`;
      const call = this.client.makeServerStreamRequest(path, asIs, (bytes: Buffer) => bytes, request);
      call.on("data", (bytes: Buffer) => {
        const part = fromBinary(DownloadResponseSchema, bytes).data;
        data.set(part, received);
        received += part.length;
      });
      call.on("error", reject);
      call.on("end", resolve);
    });
    const taken = seconds(begun);
    if (received !== data.length) throw new Error(`${received} bytes came, not ${data.length}`);
    await this.call(AutogradService.method.release, { sessionId, tensors: [tensor] });
    return taken;
  }
}

/** What a step needs: the parameters, inputs and labels. */
function bound(session: Session, sizes: Sizes, batch: number): Tensor[] {
  const parameters = ([sizes.slice(0, 2), sizes.slice(1)] as [number, number][]).flatMap(([rows, columns]) => {
    const weight = session.tensor(normal(rows * columns, 1 / Math.sqrt(rows)), { shape: [rows, columns] });
    return [weight.requiresGrad_(), session.zeros([columns]).requiresGrad_()];
  });
  const x = session.tensor(normal(batch * sizes[0], 1), { shape: [batch, sizes[0]] });
  const y = session.tensor(BigInt64Array.from({ length: batch }, () => BigInt(Math.floor(Math.random() * sizes[2]))));
  return [...parameters, x, y];
}

class Bench {
  private constructor(
    private readonly session: Session,
    private readonly bound: Tensor[],
    private readonly small: Tensor[],
    private readonly program: Program,
    private readonly unary: Unary,
  ) {}

  static async prepared(address: string): Promise<Bench> {
    const session = await connect(address);
    const inputs = bound(session, SIZES, BATCH);
    const program = await session.trace({ inputs }, (recording, given) => {
      const [first, second] = given.slice(4) as [Tensor, Tensor];
      return [step(recording, given.slice(0, 4), first, second).detach()];
    });
    const settings = { "grpc-node.flow_control_window": WINDOW };
    const unary = await new Unary(new grpc.Client(address, grpc.credentials.createInsecure(), settings)).prepare();
    return new Bench(session, inputs, bound(session, TINY, 4), program, unary);
  }

  /** The seconds of a line's work. */
  async answer(mode: string, count: number): Promise<number> {
    if (mode === "upload") return this.upload(count);
    if (mode === "download") return this.download(count);
    if (mode === "bare-upload") return this.unary.upload(count);
    if (mode === "bare-download") return this.unary.download(count);
    if (mode === "live") return live();
    const begun = performance.now();
    await this.take(mode, count);
    return seconds(begun);
  }

  private async upload(mib: number): Promise<number> {
    const values = new Float32Array(mib << 18);
    const begun = performance.now();
    const made = this.session.tensor(values);
    await this.session.wait();
    const taken = seconds(begun);
    made.release();
    return taken;
  }

  private async download(mib: number): Promise<number> {
    using held = this.session.ones([mib << 18]);
    await this.session.wait();
    const begun = performance.now();
    const values = await held.data();
    const taken = seconds(begun);
    if (values.at(-1) !== 1) throw new Error("the values are wrong");
    return taken;
  }

  /** Take steps and read the last loss. */
  private async take(mode: string, steps: number): Promise<void> {
    if (mode === "unary") {
      for (let count = 0; count < steps; count++) await this.unary.step();
      return;
    }
    const { session } = this;
    const given = mode === "memory" ? this.small : this.bound;
    const [x, y] = given.slice(4) as [Tensor, Tensor];
    let loss: Tensor | undefined;
    if (mode === "repeated") [loss] = this.program.run(given, { repeat: steps });
    for (let count = 0; count < (mode === "repeated" ? 0 : steps); count++) {
      loss?.release();
      loss = session.tidy(() => {
        return mode === "program" ? (this.program.run(given)[0] as Tensor) : step(session, given.slice(0, 4), x, y);
      });
      await session.room();
    }
    const value = await loss?.item();
    loss?.release();
    if (!(value !== undefined && value > 0)) throw new Error(`the loss is ${value}`);
  }
}

/** Bytes that live after collections of garbage. */
async function live(): Promise<number> {
  if (!globalThis.gc) throw new Error("needs node --expose-gc");
  for (let count = 0; count < 3; count++) {
    globalThis.gc();
    await new Promise((resolve) => setTimeout(resolve, 20)); // finalizers run between tasks
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

const bench = await Bench.prepared(process.argv[2] ?? "");
for await (const line of createInterface({ input: process.stdin })) {
  const [mode = "", count = "0"] = line.split(" ");
  console.log(await bench.answer(mode, Number(count)));
}
process.exit(0);

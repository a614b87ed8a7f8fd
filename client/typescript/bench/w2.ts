/**
 * Takes training steps of a small network for `python -m benchmarks.languages`: reads lines "mode steps" and answers each
 * with the seconds that they took.
 */

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
import { AutogradService } from "../src/gen/gradwire/v1/service_pb.js";
import { type ArgumentSchema, GradMode } from "../src/gen/gradwire/v1/types_pb.js";
import { connect, DType, functional, type Program, type Session, type Tensor } from "../src/node.js";

const BATCH = 128;
const RATE = 0.01;
const SIZES: [number, number, number] = [64, 256, 10];

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

/** The steps by single calls, each of which waits. */
class Unary {
  private session = "";
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
        (bytes: Uint8Array) => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length),
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
    this.session = (await this.call(AutogradService.method.openSession, { client: "w2-unary" })).sessionId;
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
}

class Bench {
  private constructor(
    private readonly session: Session,
    private readonly bound: Tensor[],
    private readonly program: Program,
    private readonly unary: Unary,
  ) {}

  static async prepared(address: string): Promise<Bench> {
    const session = await connect(address);
    const x = session.tensor(normal(BATCH * SIZES[0], 1), { shape: [BATCH, SIZES[0]] });
    const y = session.tensor(BigInt64Array.from({ length: BATCH }, () => BigInt(Math.floor(Math.random() * SIZES[2]))));
    const parameters = ([SIZES.slice(0, 2), SIZES.slice(1)] as [number, number][]).flatMap(([rows, columns]) => {
      const weight = session.tensor(normal(rows * columns, 1 / Math.sqrt(rows)), { shape: [rows, columns] });
      return [weight.requiresGrad_(), session.zeros([columns]).requiresGrad_()];
    });
    const inputs = [...parameters, x, y];
    const program = await session.trace({ inputs }, (recording, given) => {
      const [first, second] = given.slice(4) as [Tensor, Tensor];
      return [step(recording, given.slice(0, 4), first, second).detach()];
    });
    const unary = await new Unary(new grpc.Client(address, grpc.credentials.createInsecure())).prepare();
    return new Bench(session, inputs, program, unary);
  }

  /** Take steps and read the last loss. */
  async take(mode: string, steps: number): Promise<void> {
    if (mode === "unary") {
      for (let count = 0; count < steps; count++) await this.unary.step();
      return;
    }
    const { session, bound } = this;
    const [x, y] = bound.slice(4) as [Tensor, Tensor];
    await session.tidy(async () => {
      let loss: Tensor | undefined;
      if (mode === "repeated") [loss] = this.program.run(bound, { repeat: steps });
      for (let count = 0; count < (mode === "repeated" ? 0 : steps); count++) {
        loss = session.tidy(() => {
          return mode === "program" ? (this.program.run(bound)[0] as Tensor) : step(session, bound.slice(0, 4), x, y);
        });
        await session.room();
      }
      const value = await loss?.item();
      if (!(value !== undefined && value > 0)) throw new Error(`the loss is ${value}`);
    });
  }
}

const bench = await Bench.prepared(process.argv[2] ?? "");
for await (const line of createInterface({ input: process.stdin })) {
  const [mode = "", steps = "0"] = line.split(" ");
  const begun = performance.now();
  await bench.take(mode, Number(steps));
  console.log((performance.now() - begun) / 1000);
}
process.exit(0);

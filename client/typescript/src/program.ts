/** Programs: commands that were recorded once and that the server runs by one small command. */

import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import type { CommandInit } from "./batch.js";
import { type Call, ProgramNumber } from "./call.js";
import { type GradwireError, Reason, refusal } from "./errors.js";
import { ProgramSchema, type ProgramStepSchema, type RunProgramRequestSchema } from "./gen/gradwire/v1/programs_pb.js";
import type { Result } from "./gen/gradwire/v1/service_pb.js";
import type { GradMode } from "./gen/gradwire/v1/types_pb.js";
import { Session, type Sink } from "./session.js";
import { Tensor } from "./tensor.js";
import { DType } from "./values.js";

/** What a tensor must be like to be bound to a program's input. */
export interface InputLike {
  /** float32 if not given. */
  dtype?: DType;
  /** The shape; of one slice, for a sliced input. */
  shape: readonly number[];
  requiresGrad?: boolean;
  device?: string;
}

/** What a program takes. A tensor as an input stands for its own description. */
export interface Signature {
  inputs: readonly (InputLike | Tensor)[];
  /** How many floating-point numbers each run gives, for example a learning rate. */
  numbers?: number;
}

/** What a run of a program can do without. */
export interface RunOptions {
  /** The program's numbers: one set for all repetitions, or one set for each. */
  numbers?: readonly number[];
  /** The number of repetitions; 1 if not given. */
  repeat?: number;
  /** The inputs, counted from 0, of which each repetition takes the next slice along the first dimension. */
  sliced?: readonly number[];
  /** The number of slices to skip at the beginning. */
  first?: number;
  /** Return the outputs of all repetitions along a new first dimension, instead of those of the last one. */
  stacked?: boolean;
}

/** What is recorded: it gets a session that records, stand-ins for the inputs, and placeholders for the numbers. */
export type Body = (
  session: Session,
  inputs: Tensor[],
  numbers: ProgramNumber[],
) => readonly Tensor[] | Promise<readonly Tensor[]>;

/** A program that a session has registered. */
export class Program {
  /** @internal */
  constructor(
    private readonly session: Session,
    private readonly bytes: Uint8Array,
    private readonly hash: Uint8Array,
    private readonly inputs: number,
    private readonly outputs: number,
  ) {}

  /** @internal */
  get registration(): CommandInit {
    return { case: "registerProgram", value: { hash: this.hash, program: this.bytes } };
  }

  /** Bind tensors to the inputs and run the program. It does not wait: a failure surfaces at the next wait or read. */
  run(inputs: readonly Tensor[], options: RunOptions = {}): Tensor[] {
    let error: GradwireError | undefined;
    if (inputs.length !== this.inputs) {
      error = refusal(Reason.ARGUMENT_TYPE, `the program takes ${this.inputs} inputs, not ${inputs.length}`);
    }
    if (!error && this.session.ran(this.hash)) this.session.sink.send(this.registration);
    const request = { hash: this.hash, inputs: inputs.map((each) => BigInt(each.id)) };
    return runProgram(this.session, request, inputs, this.outputs, options, error);
  }
}

/** @internal Complete a request and send it; with an error, the outputs have it. */
export function runProgram(
  session: Session,
  request: MessageInitShape<typeof RunProgramRequestSchema>,
  inputs: readonly Tensor[],
  count: number,
  options: RunOptions,
  mistake?: GradwireError,
): Tensor[] {
  const foreign = inputs.some((each) => each.session !== session);
  const error =
    mistake ??
    inputs.find((each) => each.error)?.error ??
    (foreign ? refusal(Reason.ARGUMENT_VALUE, "the inputs belong to another session") : undefined);
  if (error) return Array.from({ length: count }, () => session.failedTensor(error));
  const outputs = Array.from({ length: count }, () => session.newTensor());
  const { numbers = [], repeat = 0, sliced = [], first = 0, stacked = false } = options;
  const value = { ...request, numbers: [...numbers], repeat, sliced: [...sliced], first, stacked };
  session.sink.send({ case: "runProgram", value: { ...value, outputs: outputs.map((each) => BigInt(each.id)) } });
  return outputs;
}

/** @internal Record what a body does, and register it. */
export async function trace(session: Session, signature: Signature, body: Body): Promise<Program> {
  const described = signature.inputs.map(async (each): Promise<InputLike> => {
    return each instanceof Tensor ? await each.describe() : each;
  });
  const rows = await Promise.all(described);
  const recorder = new Recorder();
  const inner = Session.recording(recorder, session);
  const inputs = rows.map(() => inner.newTensor());
  const numbers = Array.from({ length: signature.numbers ?? 0 }, (_, place) => new ProgramNumber(place));
  const outputs = await body(inner, inputs, numbers);
  for (const output of outputs) {
    if (output.error) throw output.error;
    if (output.session !== inner) {
      throw refusal(Reason.ARGUMENT_VALUE, "an output of the program is not of its session");
    }
  }
  if (recorder.error) throw recorder.error;
  const program = create(ProgramSchema, {
    inputs: rows.map((row) => ({
      dtype: row.dtype ?? DType.FLOAT32,
      shape: row.shape.map(BigInt),
      requiresGrad: row.requiresGrad ?? false,
      device: row.device ?? "",
    })),
    numbers: numbers.length,
    steps: recorder.steps,
    outputs: outputs.map((each) => BigInt(each.id)),
  });
  const bytes = toBinary(ProgramSchema, program);
  const hash = await sha256(bytes);
  const made = new Program(session, bytes, hash, inputs.length, outputs.length);
  await session.ask(made.registration);
  session.ran(hash);
  return made;
}

async function sha256(bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
}

type Step = NonNullable<MessageInitShape<typeof ProgramStepSchema>["step"]>;

const STEPS = new Set<CommandInit["case"]>([
  "create",
  "backward",
  "retainGrad",
  "grad",
  "gradients",
  "setGrad",
  "setRequiresGrad",
  "setData",
  "manualSeed",
]);

/** Makes steps of a program of a session's commands. */
class Recorder implements Sink {
  readonly steps: MessageInitShape<typeof ProgramStepSchema>[] = [];
  error: GradwireError | undefined;

  send(command: CommandInit): void {
    if (STEPS.has(command.case)) this.steps.push({ step: command as Step });
    else this.failed(refusal(Reason.NOT_SUPPORTED, `a program cannot have ${command.case}`));
  }

  op(call: Call, mode: GradMode, made: readonly Tensor[]): void {
    this.steps.push({ step: { case: "op", value: call.request(mode, made) } });
  }

  failed(error: GradwireError): void {
    this.error ??= error;
  }

  reported(): void {}

  ask(): Promise<Result> {
    const error = refusal(Reason.NOT_SUPPORTED, "a program cannot wait for values while it is recorded");
    this.failed(error);
    return Promise.reject(error);
  }

  wait(): Promise<void> {
    return Promise.resolve();
  }

  room(): Promise<void> {
    return Promise.resolve();
  }

  release(): void {}

  takeFailure(): GradwireError | undefined {
    return undefined;
  }

  origin(failure: GradwireError): GradwireError {
    return failure;
  }
}

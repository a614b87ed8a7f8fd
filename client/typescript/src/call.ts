/** Calls of ops: their arguments, as a message and as the words of a prepared call. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { type GradwireError, GradwireTypeError, Reason, refusal } from "./errors.js";
import type { OpRequestSchema } from "./gen/gradwire/v1/commands_pb.js";
import type { ArgumentSchema, GradMode, IndexItemSchema } from "./gen/gradwire/v1/types_pb.js";
import type { Session } from "./session.js";
import type { Tensor } from "./tensor.js";
import type { DType } from "./values.js";

/** A placeholder for a floating-point number in a program: see `Session.trace`. */
export class ProgramNumber {
  constructor(
    /** The number's place among those of a run. */
    readonly place: number,
  ) {}
}

/** A complex number. */
export class Complex {
  constructor(
    readonly real: number,
    readonly imag: number,
  ) {}
}

/** A number that stays a float though it is whole: see `float`. */
export class Float {
  constructor(readonly value: number) {}
}

/**
 * A number that is a float though it is whole. JavaScript has one type of numbers: elsewhere whole numbers are integers,
 * as in Python. The difference matters for tensors of integers: `t.mul(float(2))` is `t * 2.0`. It also matters for -0,
 * which is the integer 0 without it.
 */
export function float(value: number): Float {
  return new Float(value);
}

/** A number as an op takes it. Bigints and whole numbers of 64 bits are integers, larger ones floats; see `float`. */
export type Numeric = number | bigint | boolean | Float | Complex | ProgramNumber;

/** A tensor or a number. */
export type Operand = Tensor | Numeric;

/** Positions from start up to, but not including, stop. */
export class Slice {
  constructor(
    readonly start?: number,
    readonly stop?: number,
    readonly step?: number,
  ) {}
}

/** `start:stop:step`; undefined stands for a missing bound. */
export function slice(start?: number, stop?: number, step?: number): Slice {
  return new Slice(start, stop, step);
}

/**
 * An item of an index: a position, a slice as `slice(1, 3)` or "1:3", "..." for all dimensions that are not named, null
 * for a new dimension, a boolean, or a tensor of positions or of booleans.
 */
export type IndexItem = number | Slice | string | null | boolean | Tensor;

type ArgumentInit = MessageInitShape<typeof ArgumentSchema>;
type Kind = NonNullable<ArgumentInit["kind"]>;
type Case = Exclude<Kind["case"], undefined>;

/** An argument: ids stay numbers, so that a prepared call is written without a message. */
interface Arg {
  readonly name: string;
  readonly kind: Case;
  readonly value: unknown;
}

/** @internal What makes words: `Words` of a writer, or a test's. */
export interface WordSink {
  id(value: number): void;
  float(value: number): void;
}

/**
 * Collects the arguments of an op. The functions of this package use it. Use it yourself for an op that has none, or whose
 * name is known only at run time: `new Call("add", session).tensor("", a).operand("", 2).one()`. A name of "" means by place.
 */
export class Call {
  private first: Tensor | undefined;
  private readonly args: Arg[] = [];
  private error: GradwireError | undefined;

  constructor(
    readonly op: string,
    private session?: Session,
  ) {}

  private add(name: string, kind: Case, value: unknown): this {
    this.args.push({ name, kind, value });
    return this;
  }

  private fail(error: GradwireError): void {
    this.error ??= error;
  }

  /** @internal Check a tensor and return its id. */
  idOf(name: string, tensor: Tensor): number {
    if (tensor.error) {
      this.session ??= tensor.session;
      this.fail(tensor.error);
      return 0;
    }
    if (!this.session) this.session = tensor.session;
    else if (this.session !== tensor.session) {
      this.fail(
        refusal(Reason.ARGUMENT_VALUE, `${name || "argument"}: the tensor belongs to another session`, this.op),
      );
    }
    return tensor.id;
  }

  /** Add a tensor; null is None. */
  tensor(name: string, tensor: Tensor | null | undefined): this {
    if (!tensor) return this.none(name);
    if (typeof tensor !== "object" || !("session" in tensor)) {
      const given = typeof tensor;
      this.fail(refusal(Reason.ARGUMENT_TYPE, `${this.op}(): argument must be Tensor, not ${given}`, this.op));
      return this;
    }
    const id = this.idOf(name, tensor);
    this.first ??= tensor;
    return this.add(name, "tensor", id);
  }

  /** Add a list of tensors. */
  tensors(name: string, tensors: readonly Tensor[]): this {
    return this.add(
      name,
      "tensors",
      tensors.map((each) => this.idOf(name, each)),
    );
  }

  /** Add a tensor or a number. */
  operand(name: string, value: Operand | null): this {
    if (typeof value === "object" && value && "session" in value) return this.tensor(name, value);
    return this.number(name, value);
  }

  /** Add a number of any kind, or a string where the op takes one in its place. */
  number(name: string, value: Numeric | string | null): this {
    switch (typeof value) {
      case "number":
        // A larger one is a float in Python, too: nobody writes out the 31 digits of 1e30.
        return Number.isInteger(value) && isInt64(value) ? this.integer(name, value) : this.float(name, value);
      case "bigint":
        return this.integer(name, value);
      case "boolean":
        return this.boolean(name, value);
      case "string":
        return this.string(name, value);
    }
    if (value === null) return this.none(name);
    if (value instanceof Float) return this.float(name, value.value);
    if (value instanceof Complex) return this.complex(name, value);
    if (value instanceof ProgramNumber) return this.add(name, "number", value.place);
    this.fail(
      refusal(Reason.ARGUMENT_TYPE, `${this.op}(): argument must be Tensor or Number, not ${typeof value}`, this.op),
    );
    return this;
  }

  /** Add None. */
  none(name: string): this {
    return this.add(name, "none", {});
  }

  /** Add a float. */
  float(name: string, value: number | Float | ProgramNumber): this {
    if (value instanceof ProgramNumber) return this.add(name, "number", value.place);
    return this.add(name, "float", value instanceof Float ? value.value : value);
  }

  /** Add an integer. */
  integer(name: string, value: number | bigint): this {
    return this.isInteger(name, value) ? this.add(name, "integer", value) : this;
  }

  /** Whether a value can be sent as an integer; otherwise the call has failed. */
  private isInteger(name: string, value: number | bigint): boolean {
    if (typeof value === "number" && !Number.isInteger(value)) {
      const sentence = `${this.op}(): argument '${name || "by place"}' must be int, not float`;
      this.fail(refusal(Reason.ARGUMENT_TYPE, sentence, this.op));
      return false;
    }
    if (isInt64(value)) return true;
    this.fail(refusal(Reason.ARGUMENT_VALUE, "Overflow when unpacking long long", this.op));
    return false;
  }

  /** Add a bool. */
  boolean(name: string, value: boolean): this {
    return this.add(name, "boolean", value);
  }

  /** Add a complex number. */
  complex(name: string, value: Complex): this {
    return this.add(name, "complex", value);
  }

  /** Add a string. */
  string(name: string, value: string): this {
    return this.add(name, "string", value);
  }

  /** Add an element type. */
  dtype(name: string, value: DType): this {
    return this.add(name, "dtype", value);
  }

  /** Add a list of integers, or one integer where the op takes both. */
  integers(name: string, value: number | readonly number[]): this {
    if (typeof value === "number") return this.integer(name, value);
    return value.every((each) => this.isInteger(name, each)) ? this.add(name, "integers", value) : this;
  }

  /** Add a list of floats. */
  floats(name: string, value: readonly number[]): this {
    return this.add(name, "floats", value);
  }

  /** Add an index expression. */
  index(name: string, items: readonly IndexItem[]): this {
    return this.add(
      name,
      "index",
      items.map((each) => this.indexItem(name, each)),
    );
  }

  private indexItem(name: string, item: IndexItem): MessageInitShape<typeof IndexItemSchema> {
    if (item === null) return { item: { case: "newAxis", value: true } };
    if (item === "...") return { item: { case: "ellipsis", value: true } };
    if (typeof item === "number") return { item: { case: "integer", value: this.position(item) ?? 0n } };
    if (typeof item === "boolean") return { item: { case: "boolean", value: item } };
    if (typeof item === "string" || item instanceof Slice) {
      const { start, stop, step } = typeof item === "string" ? this.parsed(item) : item;
      const bounds = { start: this.position(start), stop: this.position(stop), step: this.position(step) };
      return { item: { case: "slice", value: bounds } };
    }
    return { item: { case: "tensor", value: BigInt(this.idOf(name, item)) } };
  }

  /** A bound or a position of an index. */
  private position(value: number | undefined): bigint | undefined {
    if (value === undefined) return undefined;
    if (Number.isSafeInteger(value)) return BigInt(value);
    const kinds = "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices";
    this.fail(refusal(Reason.INDEX_OUT_OF_RANGE, `${kinds} (got ${value})`, this.op));
    return undefined;
  }

  /** Read "1:3". */
  private parsed(text: string): Slice {
    const parts = text.split(":").map((part) => (part.trim() === "" ? undefined : Number(part)));
    if (parts.length < 2 || parts.length > 3 || parts.some((part) => part !== undefined && !Number.isInteger(part))) {
      this.fail(
        refusal(Reason.ARGUMENT_TYPE, `"${text}" is no slice: write "start:stop" or "start:stop:step"`, this.op),
      );
      return new Slice();
    }
    return new Slice(...parts);
  }

  // Sending

  /** @internal Throw the mistake that was found, after noting it for the next wait of a program. */
  check(): void {
    if (!this.error) return;
    if (this.session?.isRecording) this.session.sink.failed(this.error);
    throw this.error;
  }

  /** The session, once the arguments are found right. */
  private checked(): Session | undefined {
    if (!this.error && !this.session) {
      this.error = new GradwireTypeError(`${this.op}: a call without a session needs a tensor`, {
        reason: Reason.ARGUMENT_TYPE,
      });
    }
    return this.error ? undefined : this.session;
  }

  /** Note the mistake for the next wait, and return a tensor that has it. */
  private failedTensor(): Tensor {
    const error = this.error as GradwireError;
    if (!this.session) throw error;
    return this.session.failedTensor(error);
  }

  /** Apply an op with as many results as given. */
  several(count: number): Tensor[] {
    const session = this.checked();
    if (!session) return Array.from({ length: count }, () => this.failedTensor());
    const made: Tensor[] = [];
    for (let place = 0; place < count; place++) made.push(session.newTensor());
    session.sink.op(this, session.gradMode, made);
    return made;
  }

  /** Apply an op with one result, or an in-place form. */
  one(): Tensor {
    return this.op.endsWith("_") ? this.inPlace() : (this.several(1)[0] as Tensor);
  }

  /** Apply an in-place form, and return its first tensor. */
  inPlace(): Tensor {
    const session = this.checked();
    if (!session) return this.failedTensor();
    session.sink.op(this, session.gradMode, []);
    return this.first as Tensor;
  }

  /** Apply an op that returns a list. It waits, because only the answer has the list's length. */
  async list(): Promise<Tensor[]> {
    const session = this.checked();
    if (!session) throw this.error;
    const result = await session.ask({ case: "op", value: this.request(session.gradMode, []) });
    if (result.case !== "op") return [];
    return result.value.outputs.map((spec) => session.adopt(Number(spec.id)));
  }

  /** @internal The call as a message. */
  request(mode: GradMode, made: readonly Tensor[]): MessageInitShape<typeof OpRequestSchema> {
    const outputs = made.map((each) => BigInt(each.id));
    return { op: this.op, args: this.args.map(argument), outputs, gradMode: mode };
  }

  /**
   * @internal What two calls must have in common to be calls of one prepared op: all but ids and floats. Empty if the call
   * cannot be prepared.
   */
  key(mode: GradMode, results: number): string {
    let key = `${this.op} ${mode} ${results}`;
    for (const { name, kind, value } of this.args) {
      key += ` ${name}:${kind}`;
      switch (kind) {
        case "tensor":
        case "float":
        case "none":
          break;
        case "tensors":
          key += (value as number[]).length;
          break;
        case "string":
          key += JSON.stringify(value);
          break;
        case "integer":
        case "boolean":
        case "dtype":
        case "number":
        case "integers":
          key += String(value);
          break;
        default:
          return ""; // rare, and sent as they are
      }
    }
    return key;
  }

  /** @internal Write a prepared call's places. */
  words(sink: WordSink, made: readonly Tensor[]): void {
    for (const { kind, value } of this.args) {
      if (kind === "tensor") sink.id(value as number);
      else if (kind === "float") sink.float(value as number);
      else if (kind === "tensors") for (const id of value as number[]) sink.id(id);
    }
    for (const each of made) sink.id(each.id);
  }
}

function isInt64(value: number | bigint): boolean {
  return value >= -(2n ** 63n) && value < 2n ** 63n;
}

function argument({ name, kind, value }: Arg): ArgumentInit {
  switch (kind) {
    case "tensor":
      return { name, kind: { case: kind, value: BigInt(value as number) } };
    case "integer":
      return { name, kind: { case: kind, value: BigInt(value as number) } };
    case "tensors":
      return { name, kind: { case: kind, value: { ids: (value as number[]).map(BigInt) } } };
    case "integers":
      return { name, kind: { case: kind, value: { values: (value as number[]).map(BigInt) } } };
    case "floats":
      return { name, kind: { case: kind, value: { values: value as number[] } } };
    case "index":
      return { name, kind: { case: kind, value: { items: value as MessageInitShape<typeof IndexItemSchema>[] } } };
    case "complex": {
      const { real, imag } = value as Complex;
      return { name, kind: { case: kind, value: { real, imag } } };
    }
    default:
      return { name, kind: { case: kind, value } as Kind };
  }
}

// Objects: what the playground's values are. An int of Python is a bigint, a float is a number.
import { Tensor } from "#sdk/tensor";
import { DType, nameOf } from "#sdk/values";
import { CodeError, type Expression, type Parameter, type Statement } from "./syntax";

export { Tensor };

export class List {
  constructor(readonly items: Value[]) {}
}

export class Tuple {
  constructor(
    readonly items: readonly Value[],
    /** Names of the items, of the results of an op such as max(dim). */
    readonly names: readonly string[] = [],
    /** "torch.Size" and such; empty for a plain tuple. */
    readonly type = "",
  ) {}
}

export class Dtype {
  constructor(readonly value: DType) {}
  get name(): string {
    return nameOf(this.value);
  }
}

export class Range {
  constructor(
    readonly start: bigint,
    readonly stop: bigint,
    readonly step: bigint,
  ) {}
  get length(): number {
    const [distance, step] =
      this.step > 0n ? [this.stop - this.start, this.step] : [this.start - this.stop, -this.step];
    return distance > 0n ? Number((distance + step - 1n) / step) : 0;
  }
  at(place: number): bigint {
    return this.start + this.step * BigInt(place);
  }
}

/** The name of a node of the reverse graph: what `grad_fn` is. */
export class GraphNode {
  constructor(readonly name: string) {}
}

export class Ellipsis {}

export class SliceValue {
  constructor(
    readonly start: Value,
    readonly stop: Value,
    readonly step: Value,
  ) {}
}

/** A function of the code: a lambda or a def. */
export class Closure {
  constructor(
    readonly name: string,
    readonly parameters: readonly Parameter[],
    readonly defaults: readonly (Value | undefined)[],
    readonly body: Expression | readonly Statement[],
    readonly scope: Scope,
  ) {}
}

/** Arguments of a call: by place and by name. */
export interface Given {
  places: Value[];
  names: Map<string, Value>;
}

/** A function that the playground has. */
export class Native {
  constructor(
    readonly name: string,
    readonly call: (given: Given) => Value | Promise<Value>,
  ) {}
}

/** A module below torch: "", "nn.functional", "linalg", … */
export class Module {
  constructor(readonly path: string) {}
  get name(): string {
    return this.path ? `torch.${this.path}` : "torch";
  }
}

/** What `with` takes: a grad mode. */
export class Mode {
  constructor(readonly kind: "no_grad" | "enable_grad" | "inference_mode") {}
}

/** An object with methods only: the handle of a hook. */
export class Handle {
  constructor(
    readonly type: string,
    readonly methods: Record<string, () => void>,
  ) {}
}

export type Value =
  | bigint
  | number
  | boolean
  | string
  | null
  | Tensor
  | List
  | Tuple
  | Dtype
  | Range
  | GraphNode
  | Ellipsis
  | SliceValue
  | Closure
  | Native
  | Module
  | Mode
  | Handle;

/** The names of a block; those of a function see the outer ones. */
export class Scope {
  readonly names = new Map<string, Value>();
  constructor(readonly outer: Scope | null = null) {}

  find(name: string): Value | undefined {
    return this.names.get(name) ?? (this.names.has(name) ? null : this.outer?.find(name));
  }
}

/** The name of a value's type, as in PyTorch's sentences. */
export function typeName(value: Value): string {
  switch (typeof value) {
    case "bigint":
      return "int";
    case "number":
      return "float";
    case "boolean":
      return "bool";
    case "string":
      return "str";
  }
  if (value === null) return "NoneType";
  if (value instanceof Tensor) return "Tensor";
  if (value instanceof List) return "list";
  if (value instanceof Tuple) return value.type || "tuple";
  if (value instanceof Dtype) return "torch.dtype";
  if (value instanceof Range) return "range";
  if (value instanceof GraphNode) return value.name;
  if (value instanceof Ellipsis) return "ellipsis";
  if (value instanceof SliceValue) return "slice";
  if (value instanceof Closure || value instanceof Native) return "function";
  if (value instanceof Module) return "module";
  return value instanceof Mode ? value.kind : value.type;
}

/** Whether a value is an int, a float or a bool. */
export function isNumber(value: Value): value is bigint | number | boolean {
  return typeof value === "bigint" || typeof value === "number" || typeof value === "boolean";
}

/** Whether a value is an int or a bool, which counts as one. */
export function isInteger(value: Value): value is bigint | boolean {
  return typeof value === "bigint" || typeof value === "boolean";
}

export const integer = (value: bigint | boolean): bigint => BigInt(value);

/** A small integer of the code as a number. */
export function small(value: Value, what: string): number {
  if (!isInteger(value)) throw new CodeError("TypeError", `${what} must be int, not ${typeName(value)}`);
  const found = Number(integer(value));
  if (!Number.isSafeInteger(found)) throw new CodeError("OverflowError", `${what} is too large`);
  return found;
}

/** Every tensor that values hold, also in lists of lists and in functions. */
export function tensorsIn(values: Iterable<Value>): Tensor[] {
  const seen = new Set<Value>(values);
  for (const value of seen) {
    // A set's loop also visits what is added during it.
    if (value instanceof List || value instanceof Tuple) for (const each of value.items) seen.add(each);
    else if (value instanceof Closure) {
      for (const each of value.defaults) if (each !== undefined) seen.add(each);
      for (let scope: Scope | null = value.scope; scope; scope = scope.outer)
        for (const each of scope.names.values()) seen.add(each);
    }
  }
  return [...seen].filter((each) => each instanceof Tensor);
}

const DTYPES: Record<string, DType> = {
  float32: DType.FLOAT32,
  float: DType.FLOAT32,
  float64: DType.FLOAT64,
  double: DType.FLOAT64,
  float16: DType.FLOAT16,
  half: DType.FLOAT16,
  bfloat16: DType.BFLOAT16,
  int8: DType.INT8,
  int16: DType.INT16,
  short: DType.INT16,
  int32: DType.INT32,
  int: DType.INT32,
  int64: DType.INT64,
  long: DType.INT64,
  uint8: DType.UINT8,
  bool: DType.BOOL,
  complex64: DType.COMPLEX64,
  complex128: DType.COMPLEX128,
};

/** The dtypes of torch by their names. */
export const dtypes = new Map(Object.entries(DTYPES).map(([name, value]) => [name, new Dtype(value)]));

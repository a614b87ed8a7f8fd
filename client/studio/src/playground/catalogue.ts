// Catalogue: the server's own list of ops. It says which names there are, and which call of an op the arguments fit.

import { ParameterKind as Kind, type OpSchema, type Overload, type Parameter } from "#contract/service_pb";
import type { Argument } from "#contract/types_pb";
import { Call, type IndexItem, Slice } from "#sdk/call";
import type { Session } from "#sdk/session";
import {
  Dtype,
  Ellipsis,
  type Given,
  isInteger,
  isNumber,
  List,
  SliceValue,
  small,
  Tensor,
  Tuple,
  typeName,
  type Value,
} from "./objects";
import { CodeError } from "./syntax";

/** Names that PyTorch takes for a parameter besides its own. */
const OTHER_NAMES: Record<string, string> = { axis: "dim", keepdims: "keepdim", x: "input", x1: "input", x2: "other" };

type Bound = { name: string; value: Value; kind: Kind }[];

export class Catalogue {
  private readonly functions = new Map<string, OpSchema>(); // "linalg.svd", "relu"
  private readonly methods = new Map<string, OpSchema>();
  private readonly ops = new Map<string, OpSchema>();

  constructor(list: readonly OpSchema[]) {
    for (const op of list) {
      this.ops.set(op.name, op);
      const last = op.name.slice(op.name.lastIndexOf(".") + 1);
      const names = [last, ...op.aliases.map((each) => each.slice(each.lastIndexOf(".") + 1))];
      for (const name of names) {
        if (op.function) this.functions.set(op.namespace ? `${op.namespace}.${name}` : name, op);
        if (op.method) this.methods.set(name, op);
      }
    }
  }

  op(name: string): OpSchema {
    const found = this.ops.get(name);
    if (!found) throw new CodeError("NotImplementedError", `the server has no op ${name}`);
    return found;
  }

  /** The function of a module below torch. torch.nn.functional has torch's functions of one tensor, too. */
  functionOf(module: string, name: string): OpSchema | undefined {
    const own = this.functions.get(module ? `${module}.${name}` : name);
    if (own || module !== "nn.functional") return own;
    return FUNCTIONAL_TOO.has(name) ? this.functions.get(name) : undefined;
  }

  method(name: string): OpSchema | undefined {
    return this.methods.get(name);
  }

  /** All names of a module's functions. */
  functionNames(module: string): string[] {
    const start = module ? `${module}.` : "";
    return [...this.functions.keys()].filter((each) => each.startsWith(start)).map((each) => each.slice(start.length));
  }

  methodNames(): string[] {
    return [...this.methods.keys()];
  }

  /** Apply an op. Results of an op with several are a tuple. */
  async apply(session: Session, op: OpSchema, given: Given): Promise<Value> {
    const { overload, bound } = chosen(op, given);
    const call = new Call(op.name, session);
    for (const { name, value, kind } of bound) add(call, name, value, kind);
    for (const each of overload?.parameters ?? []) if (each.fixed) addFixed(call, each.name, each.fixed);
    if (op.inPlace && op.name.endsWith("_")) {
      call.inPlace();
      return first(bound);
    }
    if (overload?.returnsList) return new Tuple(await call.list());
    const made = call.several(Math.max(1, overload?.results.length ?? 1));
    if (made.length === 1) return made[0] as Tensor;
    return new Tuple(made, overload?.results, op.name.slice(op.name.lastIndexOf(".") + 1));
  }
}

/** Functions of torch that torch.nn.functional has, too. */
const FUNCTIONAL_TOO = new Set(
  "relu relu_ sigmoid tanh softmax log_softmax threshold celu selu prelu logsigmoid unfold pixel_shuffle".split(" "),
);

function first(bound: Bound): Value {
  return bound.find((each) => each.value instanceof Tensor)?.value ?? null;
}

/** The overload that the arguments fit. Without one they are sent as they are, and the server says what is wrong. */
function chosen(op: OpSchema, given: Given): { overload: Overload | undefined; bound: Bound } {
  for (const overload of op.overloads) {
    const bound = fitted(overload, given);
    if (bound) return { overload, bound };
  }
  const named = [...given.names].map(([name, value]) => ({ name, value, kind: Kind.UNSPECIFIED }));
  const placed = given.places.map((value) => ({ name: "", value, kind: Kind.UNSPECIFIED }));
  return { overload: undefined, bound: [...placed, ...named] };
}

function fitted(overload: Overload, given: Given): Bound | null {
  const open = overload.parameters.filter((each) => !each.fixed);
  const names = new Map(
    [...given.names].map(([name, value]) => [
      open.some((each) => each.name === name) ? name : (OTHER_NAMES[name] ?? name),
      value,
    ]),
  );
  const bound: Bound = [];
  let at = 0;
  for (const parameter of open) {
    const { name, kind } = parameter;
    let value: Value | undefined = names.get(name);
    names.delete(name);
    if (value === undefined && !parameter.keywordOnly && at < given.places.length) {
      const rest = given.places.slice(at);
      const spread = parameter.variadic && rest.length > 0 && rest.every(isInteger);
      value = spread ? new Tuple(rest) : rest[0];
      at += spread ? rest.length : 1;
    }
    if (value === undefined) {
      if (parameter.default) continue;
      if (parameter.variadic && at >= given.places.length && kind === Kind.INTEGERS) value = new Tuple([]);
      else return null;
    }
    if (!fits(value, parameter)) return null;
    bound.push({ name, value, kind });
  }
  return at === given.places.length && names.size === 0 ? bound : null;
}

function itemsOf(value: Value): readonly Value[] | null {
  return value instanceof List || value instanceof Tuple ? value.items : null;
}

function fits(value: Value, parameter: Parameter): boolean {
  if (value === null) return parameter.optional;
  const items = itemsOf(value);
  switch (parameter.kind) {
    case Kind.TENSOR:
      return value instanceof Tensor;
    case Kind.TENSOR_OR_NUMBER:
      return value instanceof Tensor || isNumber(value);
    case Kind.TENSORS:
      return items?.every((each) => each instanceof Tensor) ?? false;
    case Kind.NUMBER:
    case Kind.FLOAT:
      return isNumber(value);
    case Kind.INTEGER:
      return typeof value === "bigint";
    case Kind.BOOLEAN:
      return typeof value === "boolean";
    case Kind.STRING:
    case Kind.DEVICE:
      return typeof value === "string";
    case Kind.DTYPE:
      return value instanceof Dtype;
    case Kind.INTEGERS:
      return isInteger(value) || (items?.every(isInteger) ?? false);
    case Kind.FLOATS:
      return items?.every(isNumber) ?? false;
    case Kind.NUMBER_OR_STRING:
      return isNumber(value) || typeof value === "string";
    case Kind.INTEGERS_OR_STRING:
      return isInteger(value) || typeof value === "string" || (items?.every(isInteger) ?? false);
    default:
      return true;
  }
}

function add(call: Call, name: string, value: Value, kind: Kind): void {
  const items = itemsOf(value);
  if (kind === Kind.INDEX) call.index(name, indexItems(value));
  else if (value === null) call.none(name);
  else if (value instanceof Tensor) call.tensor(name, value);
  else if (typeof value === "boolean") call.boolean(name, value);
  else if (typeof value === "bigint") call.integer(name, bounded(value));
  else if (typeof value === "number") call.float(name, value);
  else if (typeof value === "string") call.string(name, value);
  else if (value instanceof Dtype) call.dtype(name, value.value);
  else if (items && kind === Kind.FLOATS) call.floats(name, items.map(Number));
  else if (items?.length && items.every((each) => each instanceof Tensor)) call.tensors(name, items as Tensor[]);
  else if (items && kind === Kind.TENSORS) call.tensors(name, []);
  else if (items?.every(isInteger))
    call.integers(
      name,
      items.map((each) => small(each, name)),
    );
  else if (items?.every(isNumber)) call.floats(name, items.map(Number));
  else
    throw new CodeError(
      "TypeError",
      `${call.op}(): argument${name ? ` '${name}'` : ""} must be Tensor or Number, not ${typeName(value)}`,
    );
}

function bounded(value: bigint): bigint {
  if (BigInt.asIntN(64, value) !== value) throw new CodeError("RuntimeError", "Overflow when unpacking long long");
  return value;
}

function addFixed(call: Call, name: string, fixed: Argument): void {
  const { kind } = fixed;
  switch (kind.case) {
    case "boolean":
      call.boolean(name, kind.value);
      break;
    case "integer":
      call.integer(name, kind.value);
      break;
    case "float":
      call.float(name, kind.value);
      break;
    case "string":
      call.string(name, kind.value);
      break;
    case "none":
      call.none(name);
      break;
    default:
      throw new CodeError("NotImplementedError", `${call.op}: its fixed argument ${name} is not known here`);
  }
}

/** The items of an index. */
export function indexItems(value: Value): IndexItem[] {
  const items = value instanceof Tuple ? value.items : [value];
  return items.map((each): IndexItem => {
    if (each instanceof Tensor || each === null || typeof each === "boolean") return each;
    if (each instanceof Ellipsis) return "...";
    if (typeof each === "bigint") return small(each, "an index");
    if (each instanceof SliceValue) {
      const bound = (part: Value) => (part === null ? undefined : small(part, "slice indices"));
      return new Slice(bound(each.start), bound(each.stop), bound(each.step));
    }
    if (each instanceof List && each.items.every(isNumber)) {
      throw new CodeError("IndexError", "an index with a list is not part of the playground: use torch.tensor([...])");
    }
    throw new CodeError(
      "IndexError",
      "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices " +
        `(got ${typeName(each)})`,
    );
  });
}

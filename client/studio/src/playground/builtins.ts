// Builtins: Python's functions that the playground has, and what of torch is no op of the server.
import { itemOf } from "./attributes";
import { backwardOfSeveral, gradOf, taken } from "./gradients";
import type { Interpreter } from "./interpreter";
import { gradEnabled } from "./modes";
import { checked, compared } from "./numbers";
import {
  dtypes,
  type Given,
  integer,
  isInteger,
  isNumber,
  List,
  Mode,
  Module,
  Native,
  Range,
  Tensor,
  Tuple,
  typeName,
  type Value,
} from "./objects";
import { reprText, strText } from "./printing";
import { suggestion } from "./suggestions";
import { CodeError } from "./syntax";
import { tensorOf } from "./tensors";

const MOST_TEXT = 20_000; // characters of one print

/** The module of an import, or of a path below torch. Throws a CodeError for others. */
export function modulePath(name: string): string {
  const path = name === "torch" ? "" : name.startsWith("torch.") ? name.slice(6) : undefined;
  if (path === undefined || (path && !MODULES.has(path)))
    throw new CodeError("ModuleNotFoundError", `No module named '${name}': the playground has only torch`);
  return path;
}

const MODULES = new Set(["nn", "nn.functional", "autograd", "linalg", "fft", "special"]);
const CONSTANTS: Record<string, number> = { pi: Math.PI, e: Math.E, inf: Infinity, nan: Number.NaN };

/** The names that code begins with. */
export function globalNames(interpreter: Interpreter): [string, Value][] {
  return [
    ["torch", new Module("")],
    ["F", new Module("nn.functional")],
    ...Object.entries(functions(interpreter)).map(([name, call]): [string, Value] => [name, new Native(name, call)]),
  ];
}

type Function_ = (given: Given) => Value | Promise<Value>;

/** A member of a module: a function of the playground, an op, a dtype, a constant or a module. */
export function moduleMember(interpreter: Interpreter, module: Module, name: string): Value {
  const inner = module.path ? `${module.path}.${name}` : name;
  const own = torchFunctions(interpreter);
  if (Object.hasOwn(own, inner)) return new Native(name, own[inner] as Function_);
  if (MODULES.has(inner)) return new Module(inner);
  if (module.path === "") {
    const dtype = dtypes.get(name);
    if (dtype) return dtype;
    if (Object.hasOwn(CONSTANTS, name)) return CONSTANTS[name] as number;
  }
  const op = interpreter.catalogue.functionOf(module.path, name);
  if (op) return new Native(name, (given) => interpreter.apply(op, given));
  const known = [...interpreter.catalogue.functionNames(module.path), ...Object.keys(own), ...dtypes.keys()];
  const sentence = `module '${module.name}' has no attribute '${name}'.${suggestion(name, known)}`;
  throw new CodeError("AttributeError", LACKING.get(inner) ?? sentence);
}

/** What learners look for and the playground lacks. */
const LACKING = new Map([
  ["optim", "the playground has no optimizers: write the step under torch.no_grad(), as the lesson on descent does"],
  ["nn.Linear", "the playground has no modules: use F.linear(x, weight, bias)"],
  ["nn.Module", "the playground has no modules: use functions of torch.nn.functional"],
  ["nn.Parameter", "the playground has no modules: use torch.tensor(..., requires_grad=True)"],
]);

function torchFunctions(interpreter: Interpreter): Record<string, Function_> {
  const { session } = interpreter;
  return {
    tensor: (given) => tensorOf(interpreter, given),
    manual_seed: (given) => {
      const seed = taken("manual_seed", given, ["seed"]).get("seed");
      if (seed === undefined || !isInteger(seed)) throw new CodeError("TypeError", "manual_seed() needs an integer");
      session.manualSeed(integer(seed));
      return null;
    },
    no_grad: () => new Mode("no_grad"),
    enable_grad: () => new Mode("enable_grad"),
    inference_mode: () => new Mode("inference_mode"),
    set_grad_enabled: (given) => {
      const [on] = taken("set_grad_enabled", given, ["mode"]).values();
      return new Mode(on === false ? "no_grad" : "enable_grad");
    },
    is_grad_enabled: () => gradEnabled(session),
    is_tensor: (given) => given.places[0] instanceof Tensor,
    "autograd.grad": (given) => gradOf(interpreter, given),
    "autograd.backward": (given) => backwardOfSeveral(given),
    Size: async (given) => {
      const items = (await interpreter.items(given.places[0] ?? new List([]))).all();
      return new Tuple(items, [], "torch.Size");
    },
    equal: async (given) => interpreter.truth(await opOf(interpreter, "equal", given)),
    allclose: async (given) => interpreter.truth(await opOf(interpreter, "allclose", given)),
  };
}

function opOf(interpreter: Interpreter, name: string, given: Given): Promise<Value> {
  return interpreter.apply(interpreter.catalogue.op(name), given);
}

function functions(interpreter: Interpreter): Record<string, Function_> {
  const { show } = interpreter.watcher;
  return {
    print: async (given) => {
      const [sep, end] = [given.names.get("sep") ?? " ", given.names.get("end") ?? "\n"];
      for (const each of given.names.keys())
        if (each !== "sep" && each !== "end")
          throw new CodeError("TypeError", `print() got an unexpected keyword argument '${each}'`);
      const { line } = interpreter;
      const told: string[] = [];
      for (const each of given.places) told.push(await strText(each, show));
      interpreter.watcher.printed(line, (told.join(String(sep)) + String(end)).slice(0, MOST_TEXT));
      return null;
    },
    range: (given) => rangeOf(given),
    len: async (given) => {
      const value = one("len", given);
      if (value instanceof Tensor) {
        const [size] = await value.shape();
        if (size === undefined) throw new CodeError("TypeError", "len() of a 0-d tensor");
        return BigInt(size);
      }
      if (isNumber(value) || value === null)
        throw new CodeError("TypeError", `object of type '${typeName(value)}' has no len()`);
      return BigInt((await interpreter.items(value)).length);
    },
    float: async (given) => {
      const value = await plain(interpreter, one("float", given));
      if (isNumber(value)) return Number(value);
      const text =
        typeof value === "string"
          ? value
              .trim()
              .toLowerCase()
              .replace(/^([+-]?)inf$/, "$1Infinity")
          : "";
      if (text && (text === "nan" || !Number.isNaN(Number(text)))) return Number(text);
      throw new CodeError(
        "ValueError",
        `could not convert ${typeName(value)} to float: ${await reprText(value, show)}`,
      );
    },
    int: async (given) => {
      const value = await plain(interpreter, one("int", given));
      if (isInteger(value)) return integer(value);
      if (typeof value === "number") {
        if (!Number.isFinite(value))
          throw new CodeError("OverflowError", "cannot convert float infinity or nan to integer");
        return checked(BigInt(Math.trunc(value)));
      }
      if (typeof value === "string" && /^\s*[+-]?\d{1,18}\s*$/.test(value)) return BigInt(value.trim());
      throw new CodeError("ValueError", `invalid literal for int() with base 10: ${await reprText(value, show)}`);
    },
    bool: async (given) => interpreter.truth(given.places.length ? one("bool", given) : false),
    str: async (given) => strText(one("str", given), show),
    repr: async (given) => reprText(one("repr", given), show),
    abs: async (given) => {
      const value = one("abs", given);
      if (value instanceof Tensor) return interpreter.op("abs", [value]);
      if (typeof value === "number") return Math.abs(value);
      if (!isInteger(value)) throw new CodeError("TypeError", `bad operand type for abs(): '${typeName(value)}'`);
      return integer(value) < 0n ? checked(-integer(value)) : integer(value);
    },
    round: (given) => rounded(given),
    sum: async (given) => {
      const items = (await interpreter.items(given.places[0] ?? null)).all();
      let total: Value = given.places[1] ?? given.names.get("start") ?? 0n;
      for (const each of items) total = await interpreter.combine("+", total, each);
      return total;
    },
    min: (given) => extreme(interpreter, "min", given),
    max: (given) => extreme(interpreter, "max", given),
    list: async (given) => new List(given.places.length ? (await interpreter.items(one("list", given))).all() : []),
    tuple: async (given) => new Tuple(given.places.length ? (await interpreter.items(one("tuple", given))).all() : []),
    enumerate: async (given) => {
      const items = (await interpreter.items(one("enumerate", given))).all();
      return new List(items.map((each, i) => new Tuple([BigInt(i), each])));
    },
    zip: async (given) => {
      const lists: Value[][] = [];
      for (const each of given.places) lists.push((await interpreter.items(each)).all());
      const length = lists.length ? Math.min(...lists.map((each) => each.length)) : 0;
      return new List(Array.from({ length }, (_, i) => new Tuple(lists.map((each) => each[i] as Value))));
    },
    isinstance: (given) => {
      const [value, type] = given.places;
      if (type instanceof Native) return typeName(value ?? null) === type.name;
      throw new CodeError("TypeError", "isinstance() of the playground takes float, int, bool, str, list or tuple");
    },
  };
}

function one(name: string, given: Given): Value {
  const [value] = given.places;
  if (value === undefined || given.places.length > 1 || given.names.size)
    throw new CodeError("TypeError", `${name}() takes exactly one argument (${given.places.length} given)`);
  return value;
}

/** A tensor of one element as its number. */
async function plain(interpreter: Interpreter, value: Value): Promise<Value> {
  return value instanceof Tensor ? itemOf(interpreter, value) : value;
}

function rangeOf(given: Given): Value {
  const numbers = given.places.map((each) => {
    if (!isInteger(each))
      throw new CodeError("TypeError", `'${typeName(each)}' object cannot be interpreted as an integer`);
    return integer(each);
  });
  const [first, second, step = 1n] = numbers;
  if (first === undefined || numbers.length > 3)
    throw new CodeError("TypeError", `range expected 1 to 3 arguments, got ${numbers.length}`);
  if (step === 0n) throw new CodeError("ValueError", "range() arg 3 must not be zero");
  return second === undefined ? new Range(0n, first, 1n) : new Range(first, second, step);
}

function rounded(given: Given): Value {
  const [value, digits] = given.places;
  if (value === undefined || !isNumber(value))
    throw new CodeError("TypeError", `type ${typeName(value ?? null)} doesn't define __round__ method`);
  if (isInteger(value)) return integer(value);
  if (value === 0 && digits !== undefined) return value; // toFixed loses the sign
  if (digits !== undefined && isInteger(digits))
    return Number(value.toFixed(Math.min(15, Math.max(0, Number(digits)))));
  const near = Math.round(value);
  return BigInt(Math.abs(value % 1) === 0.5 && near % 2 !== 0 ? near - 1 : near);
}

async function extreme(interpreter: Interpreter, name: "min" | "max", given: Given): Promise<Value> {
  const items = given.places.length === 1 ? (await interpreter.items(given.places[0] as Value)).all() : given.places;
  let best: Value | undefined;
  for (const each of items) {
    if (!isNumber(each))
      throw new CodeError("TypeError", `${name}() of the playground takes numbers: use torch.${name}`);
    if (best === undefined || compared(name === "min" ? "<" : ">", each, best as number)) best = each;
  }
  if (best === undefined) throw new CodeError("ValueError", `${name}() iterable argument is empty`);
  return best;
}

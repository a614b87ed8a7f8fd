// Attributes: attributes and methods of tensors, lists and other values. What is not here is an op of the server.
import { moduleMember } from "./builtins";
import { backwardOf, hookOf, taken } from "./gradients";
import type { Interpreter } from "./interpreter";
import {
  Dtype,
  dtypes,
  type Given,
  GraphNode,
  Handle,
  isInteger,
  List,
  Module,
  Native,
  small,
  Tensor,
  Tuple,
  typeName,
  type Value,
} from "./objects";
import type { Shown } from "./printing";
import { suggestion } from "./suggestions";
import { CodeError } from "./syntax";

const WARNING =
  "UserWarning: The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't " +
  "be populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, " +
  "use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access the " +
  "leaf Tensor instead.";

export const sizeOf = (shape: readonly number[]) => new Tuple(shape.map(BigInt), [], "torch.Size");
const elements = (shape: readonly number[]) => shape.reduce((product, size) => product * size, 1);

type Getter = (interpreter: Interpreter, tensor: Tensor) => Promise<Value>;

/** Attributes of a tensor that are no op. */
const ATTRIBUTES: Record<string, Getter> = {
  shape: async (_, t) => sizeOf(await t.shape()),
  ndim: async (_, t) => BigInt((await t.shape()).length),
  dtype: async (_, t) => new Dtype((await t.describe()).dtype),
  device: async (_, t) => (await t.describe()).device,
  requires_grad: async (_, t) => (await t.describe()).requiresGrad,
  is_leaf: async (_, t) => (await t.describe()).isLeaf,
  retains_grad: async (_, t) => (await t.describe()).retainsGrad,
  _version: async (_, t) => BigInt((await t.describe()).version),
  grad_fn: async (_, t) => {
    const { gradFn } = await t.describe();
    return gradFn ? new GraphNode(gradFn) : null;
  },
  grad: (interpreter, t) => gradient(interpreter, t),
  data: (interpreter, t) => interpreter.op("detach", [t]),
};

async function gradient(interpreter: Interpreter, tensor: Tensor): Promise<Value> {
  if (await tensor.hasGrad()) {
    const made = tensor.grad as Tensor;
    interpreter.lines.set(made.id, interpreter.line);
    return made;
  }
  const { isLeaf, retainsGrad } = await tensor.describe();
  if (!isLeaf && !retainsGrad) interpreter.watcher.warned(interpreter.line, WARNING);
  return null;
}

/** Ops of PyTorch that are attributes of a tensor, not methods. */
const PROPERTIES = new Set(["T", "mT", "H", "mH", "real", "imag"]);

type Method = (interpreter: Interpreter, tensor: Tensor, given: Given) => Value | Promise<Value>;

/** Methods of a tensor that are no op of that name. */
const METHODS: Record<string, Method> = {
  backward: (_, t, given) => backwardOf(t, given),
  retain_grad: (_, t) => {
    t.retainGrad();
    return null;
  },
  requires_grad_: (_, t, given) =>
    t.requiresGrad_(taken("requires_grad_", given, ["requires_grad"]).get("requires_grad") !== false),
  register_hook: (interpreter, t, given) => hookOf(interpreter, t, given, false),
  register_post_accumulate_grad_hook: (interpreter, t, given) => hookOf(interpreter, t, given, true),
  item: (interpreter, t) => itemOf(interpreter, t),
  tolist: async (interpreter, t) => {
    const { numbers, shape, dtype } = await real(interpreter, t);
    return listed(numbers, shape, dtype);
  },
  size: async (_, t, given) => {
    const dim = taken("size", given, ["dim"]).get("dim");
    const shape = await t.shape();
    if (dim === undefined || dim === null) return sizeOf(shape);
    const found = shape.at(small(dim, "dim"));
    if (found === undefined || small(dim, "dim") < -shape.length) {
      const range = `[-${shape.length || 1}, ${(shape.length || 1) - 1}]`;
      throw new CodeError("IndexError", `Dimension out of range (expected to be in range of ${range}, but got ${dim})`);
    }
    return BigInt(found);
  },
  dim: async (_, t) => BigInt((await t.shape()).length),
  numel: async (_, t) => BigInt(elements(await t.shape())),
  is_floating_point: async (_, t) => /float/.test(new Dtype((await t.describe()).dtype).name),
  zero_: (interpreter, t) => interpreter.op("zero_", [t]),
};
for (const name of ["float", "double", "half", "bfloat16", "long", "int", "short", "bool"]) {
  METHODS[name] = (interpreter, t) => interpreter.op("to", [t], { dtype: dtypes.get(name) ?? null });
}
METHODS.nelement = METHODS.numel as Method;
METHODS.ndimension = METHODS.dim as Method;

/** A tensor's values. Throws a CodeError for complex ones. */
async function real(interpreter: Interpreter, tensor: Tensor): Promise<Shown> {
  const shown = await interpreter.watcher.show(tensor);
  if (shown.dtype.startsWith("complex")) throw new CodeError("TypeError", "the playground has no complex numbers");
  return shown;
}

/** The value of a tensor of one element. */
export async function itemOf(interpreter: Interpreter, tensor: Tensor): Promise<Value> {
  const { numbers, dtype } = await real(interpreter, tensor);
  if (numbers.length !== 1)
    throw new CodeError("RuntimeError", `a Tensor with ${numbers.length} elements cannot be converted to Scalar`);
  return scalar(numbers[0] ?? 0, dtype);
}

function scalar(value: number | bigint, dtype: string): Value {
  if (dtype === "bool") return Boolean(value);
  return dtype.includes("int") ? BigInt(value) : Number(value);
}

function listed(numbers: ArrayLike<number | bigint>, shape: readonly number[], dtype: string): Value {
  if (numbers.length > 100_000) throw new CodeError("MemoryError", "a list of more than 100,000 numbers");
  let level: Value[] = Array.from(numbers, (each) => scalar(each, dtype));
  for (const size of shape.slice(1).reverse()) {
    const count = size ? level.length / size : 0;
    level = Array.from({ length: count }, (_, row) => new List(level.slice(row * size, (row + 1) * size)));
  }
  return shape.length ? new List(level) : (level[0] ?? null);
}

// Lookups

/** An attribute of a value. */
export async function attributeOf(interpreter: Interpreter, object: Value, name: string): Promise<Value> {
  if (object instanceof Module) return moduleMember(interpreter, object, name);
  if (object instanceof Tensor) {
    const own = Object.hasOwn(ATTRIBUTES, name) ? ATTRIBUTES[name] : undefined;
    if (own) return own(interpreter, object);
    if (PROPERTIES.has(name)) return interpreter.op(name, [object]);
  }
  if (object instanceof Tuple && object.names.includes(name)) return object.items[object.names.indexOf(name)] ?? null;
  if (object instanceof GraphNode && name === "name") return new Native(name, () => object.name);
  if (!hasMethod(interpreter, object, name)) throw missing(interpreter, object, name);
  return new Native(name, (given) => callMethod(interpreter, object, name, given));
}

function hasMethod(interpreter: Interpreter, object: Value, name: string): boolean {
  if (object instanceof Tensor) return Object.hasOwn(METHODS, name) || interpreter.catalogue.method(name) !== undefined;
  if (object instanceof List) return Object.hasOwn(LIST_METHODS, name);
  if (object instanceof Tuple) return object.type === "torch.Size" && name === "numel";
  if (object instanceof Handle) return Object.hasOwn(object.methods, name);
  return typeof object === "string" && Object.hasOwn(STRING_METHODS, name);
}

/** Call a method of a value. */
export async function callMethod(interpreter: Interpreter, object: Value, name: string, given: Given): Promise<Value> {
  if (object instanceof Tensor) {
    const own = Object.hasOwn(METHODS, name) ? METHODS[name] : undefined;
    if (own) return own(interpreter, object, given);
    const op = PROPERTIES.has(name) ? undefined : interpreter.catalogue.method(name);
    if (op) return interpreter.apply(op, { places: [object, ...given.places], names: given.names });
  } else if (hasMethod(interpreter, object, name)) {
    if (object instanceof List) return (LIST_METHODS[name] as ListMethod)(interpreter, object, given);
    if (object instanceof Handle) {
      object.methods[name]?.();
      return null;
    }
    if (object instanceof Tuple)
      return object.items.reduce((product: bigint, each) => product * BigInt(each as bigint), 1n);
    if (typeof object === "string") return (STRING_METHODS[name] as StringMethod)(object, given);
  }
  return interpreter.call(await attributeOf(interpreter, object, name), given);
}

/** Set an attribute of a tensor. */
export function setAttribute(object: Value, name: string, value: Value): void {
  if (!(object instanceof Tensor))
    throw new CodeError("AttributeError", `'${typeName(object)}' object has no attribute '${name}'`);
  switch (name) {
    case "grad":
      if (value !== null && !(value instanceof Tensor)) {
        const sentence = `assigned grad expected to be a Tensor or None but got grad of type ${typeName(value)}`;
        throw new CodeError("TypeError", sentence);
      }
      object.grad = value;
      return;
    case "requires_grad":
      if (typeof value !== "boolean") throw new CodeError("RuntimeError", "requires_grad must be a bool");
      object.requiresGrad_(value);
      return;
    case "data":
      if (!(value instanceof Tensor))
        throw new CodeError("TypeError", `Variable data has to be a tensor, but got ${typeName(value)}`);
      object.setData(value);
      return;
  }
  if (Object.hasOwn(ATTRIBUTES, name) || PROPERTIES.has(name))
    throw new CodeError("AttributeError", `attribute '${name}' of 'torch._C.TensorBase' objects is not writable`);
  throw new CodeError("AttributeError", `the playground has no tensors with an own attribute '${name}'`);
}

function missing(interpreter: Interpreter, object: Value, name: string): CodeError {
  const known =
    object instanceof Tensor ? tensorNames(interpreter) : object instanceof List ? Object.keys(LIST_METHODS) : [];
  const sentence = `'${typeName(object)}' object has no attribute '${name}'.${suggestion(name, known)}`;
  return new CodeError("AttributeError", sentence);
}

function tensorNames(interpreter: Interpreter): string[] {
  return [...Object.keys(ATTRIBUTES), ...Object.keys(METHODS), ...PROPERTIES, ...interpreter.catalogue.methodNames()];
}

type ListMethod = (interpreter: Interpreter, list: List, given: Given) => Value | Promise<Value>;
const MOST_ITEMS = 100_000;

const LIST_METHODS: Record<string, ListMethod> = {
  append: (_, list, given) => {
    const value = taken("append", given, ["object"]).get("object");
    if (value === undefined) throw new CodeError("TypeError", "list.append() takes exactly one argument (0 given)");
    if (list.items.length >= MOST_ITEMS) throw new CodeError("MemoryError", `a list of more than ${MOST_ITEMS} items`);
    list.items.push(value);
    return null;
  },
  pop: (_, list, given) => {
    const at = taken("pop", given, ["index"]).get("index");
    if (at !== undefined && !isInteger(at)) throw new CodeError("TypeError", "an index must be an integer");
    const found = list.items.splice(at === undefined ? -1 : Number(at), 1)[0];
    if (found === undefined) throw new CodeError("IndexError", "pop from empty list");
    return found;
  },
  extend: async (interpreter, list, given) => {
    const items = await interpreter.items(given.places[0] ?? null);
    if (list.items.length + items.length > MOST_ITEMS)
      throw new CodeError("MemoryError", `a list of more than ${MOST_ITEMS} items`);
    list.items.push(...items.all());
    return null;
  },
};

type StringMethod = (text: string, given: Given) => Value;

const STRING_METHODS: Record<string, StringMethod> = {
  upper: (text) => text.toUpperCase(),
  lower: (text) => text.toLowerCase(),
  strip: (text) => text.trim(),
};

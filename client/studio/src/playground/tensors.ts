// Tensors: torch.tensor of nested lists of numbers, with PyTorch's dtypes and refusals.
import { DType } from "#sdk/values";
import { itemOf } from "./attributes";
import { taken } from "./gradients";
import type { Interpreter } from "./interpreter";
import { Dtype, type Given, integer, isInteger, isNumber, List, Tensor, Tuple, typeName, type Value } from "./objects";
import { CodeError } from "./syntax";

const MOST_ELEMENTS = 100_000;
const MOST_DIMS = 60;
const HALVES = new Set([DType.FLOAT16, DType.BFLOAT16, DType.COMPLEX64, DType.COMPLEX128]);

/** torch.tensor(data, dtype=, device=, requires_grad=). */
export async function tensorOf(interpreter: Interpreter, given: Given): Promise<Value> {
  const found = taken("tensor", given, ["data", "dtype", "device", "requires_grad", "pin_memory"]);
  const data = found.get("data");
  if (data === undefined) throw new CodeError("TypeError", 'tensor() missing 1 required positional arguments: "data"');
  const requiresGrad = found.get("requires_grad") === true;
  const asked = found.get("dtype") ?? null;
  if (asked !== null && !(asked instanceof Dtype))
    throw new CodeError("TypeError", `tensor(): argument 'dtype' must be torch.dtype, not ${typeName(asked)}`);
  const device = found.get("device");
  if (device !== undefined && device !== null && typeof device !== "string")
    throw new CodeError("TypeError", `tensor(): argument 'device' must be str, not ${typeName(device)}`);
  if (data instanceof Tensor) {
    const copy = (await interpreter.op("clone", [await interpreter.op("detach", [data])])) as Tensor;
    const cast = asked ? ((await interpreter.op("to", [copy], { dtype: asked })) as Tensor) : copy;
    return requiresGrad ? cast.requiresGrad_() : cast;
  }
  const flat: (bigint | number | boolean)[] = [];
  const shape = await flatten(interpreter, data, flat, 0);
  const dtype = asked?.value ?? inferred(flat);
  const wide = HALVES.has(dtype) ? DType.FLOAT32 : dtype;
  const place = device ? { device } : {};
  if (wide === dtype) {
    const made = interpreter.session.tensor(converted(flat, wide), { dtype: wide, shape, requiresGrad, ...place });
    interpreter.lines.set(made.id, interpreter.line);
    return made;
  }
  const made = interpreter.session.tensor(converted(flat, wide), { dtype: wide, shape, ...place });
  const cast = (await interpreter.op("to", [made], { dtype: asked })) as Tensor;
  return requiresGrad ? cast.requiresGrad_() : cast;
}

function inferred(flat: readonly (bigint | number | boolean)[]): DType {
  if (!flat.length || flat.some((each) => typeof each === "number")) return DType.FLOAT32;
  return flat.every((each) => typeof each === "boolean") ? DType.BOOL : DType.INT64;
}

function converted(flat: readonly (bigint | number | boolean)[], dtype: DType): (bigint | number | boolean)[] {
  if (dtype === DType.BOOL) return flat.map(Boolean);
  if (dtype === DType.FLOAT32 || dtype === DType.FLOAT64) return flat.map(Number);
  return flat.map((each) => {
    if (typeof each !== "number") return integer(each);
    if (!Number.isFinite(each))
      throw new CodeError("RuntimeError", "value cannot be converted to type without overflow");
    return BigInt(Math.trunc(each));
  });
}

async function flatten(
  interpreter: Interpreter,
  value: Value,
  flat: (bigint | number | boolean)[],
  dim: number,
): Promise<number[]> {
  if (isNumber(value)) {
    if (flat.length >= MOST_ELEMENTS)
      throw new CodeError("MemoryError", `a list of more than ${MOST_ELEMENTS} numbers`);
    if (isInteger(value) && BigInt.asIntN(64, integer(value)) !== integer(value))
      throw new CodeError("RuntimeError", "Overflow when unpacking long long");
    flat.push(value);
    return [];
  }
  if (value instanceof Tensor) {
    flat.push((await itemOf(interpreter, value)) as number);
    return [];
  }
  if (!(value instanceof List) && !(value instanceof Tuple)) {
    const sentence = dim ? `not a sequence` : `Could not infer dtype of ${typeName(value)}`;
    throw new CodeError(dim ? "TypeError" : "RuntimeError", sentence);
  }
  if (dim > MOST_DIMS) throw new CodeError("ValueError", `too many dimensions '${typeName(value)}'`);
  let inner: number[] | undefined;
  for (const each of value.items) {
    const isSequence = each instanceof List || each instanceof Tuple;
    if (inner && inner.length > 0 && !isSequence) throw new CodeError("TypeError", "not a sequence");
    const shape = await flatten(interpreter, each, flat, dim + 1);
    if (inner && inner.length > 0 && shape[0] !== inner[0]) {
      const sentence = `expected sequence of length ${inner[0]} at dim ${dim + 1} (got ${shape[0]})`;
      throw new CodeError("ValueError", sentence);
    }
    if (inner && inner.length === 0 && isSequence)
      throw new CodeError("TypeError", `must be real number, not ${typeName(each)}`);
    inner ??= shape;
  }
  return [value.items.length, ...(inner ?? [])];
}

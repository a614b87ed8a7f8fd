/** Values as the protocol has them, little-endian and row-major, and as JavaScript's typed arrays. */

import { Reason, refusal } from "./errors.js";
import { Dtype as DType } from "./gen/gradwire/v1/types_pb.js";

export { DType };

/** JavaScript's arrays of numbers of one type. */
export type TypedArray =
  | Float32Array
  | Float64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | BigInt64Array
  | Uint8Array
  | Uint16Array
  | Uint32Array
  | BigUint64Array;

/** A number, or nested arrays of numbers, as `array` returns them. */
export type Nested = number | Nested[];

/** What becomes a tensor: a typed array, or numbers, bigints or booleans, nested as deep as the tensor has dimensions. */
export type Values = TypedArray | number | bigint | boolean | readonly Values[];

/** A tensor's values: little-endian, row-major, without gaps. */
export interface Payload {
  readonly dtype: DType;
  readonly shape: number[];
  readonly data: Uint8Array;
}

const SIZES: Record<DType, number> = {
  [DType.UNSPECIFIED]: 0,
  [DType.FLOAT32]: 4,
  [DType.FLOAT64]: 8,
  [DType.FLOAT16]: 2,
  [DType.BFLOAT16]: 2,
  [DType.INT8]: 1,
  [DType.INT16]: 2,
  [DType.INT32]: 4,
  [DType.INT64]: 8,
  [DType.UINT8]: 1,
  [DType.BOOL]: 1,
  [DType.COMPLEX64]: 8,
  [DType.COMPLEX128]: 16,
  [DType.UINT16]: 2,
  [DType.UINT32]: 4,
  [DType.UINT64]: 8,
};

/** PyTorch's name of an element type: "float32". */
export function nameOf(dtype: DType): string {
  return DType[dtype]?.toLowerCase() ?? String(dtype);
}

/** Bytes of an element. */
export function elementSize(dtype: DType): number {
  return SIZES[dtype] ?? 0;
}

/** @internal The number of elements of a shape. */
export function elementsOf(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}

const littleEndian = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1;

/** Reverse the bytes of each element where the machine's order is not the protocol's. Changes the bytes. */
function ordered(data: Uint8Array<ArrayBuffer>, size: number): Uint8Array<ArrayBuffer> {
  if (!littleEndian) {
    for (let at = 0; at < data.length; at += size) data.subarray(at, at + size).reverse();
  }
  return data;
}

function typeOf(values: TypedArray): DType {
  if (values instanceof Float32Array) return DType.FLOAT32;
  if (values instanceof Float64Array) return DType.FLOAT64;
  if (values instanceof Int8Array) return DType.INT8;
  if (values instanceof Int16Array) return DType.INT16;
  if (values instanceof Int32Array) return DType.INT32;
  if (values instanceof BigInt64Array) return DType.INT64;
  if (values instanceof Uint8Array) return DType.UINT8;
  if (values instanceof Uint16Array) return DType.UINT16;
  if (values instanceof Uint32Array) return DType.UINT32;
  return DType.UINT64;
}

function isTyped(values: Values): values is TypedArray {
  return ArrayBuffer.isView(values);
}

type Scalar = number | bigint | boolean;

/** The kinds of leaves that nested arrays have. */
interface Kinds {
  readonly typed: Set<DType>;
  plain: boolean;
}

/** The sizes and the elements of nested arrays. Typed arrays may be the innermost ones. */
function flattened(values: Values, kinds: Kinds): { shape: number[]; flat: Scalar[] } {
  if (typeof values !== "object") {
    kinds.plain = true;
    return { shape: [], flat: [values] };
  }
  if (isTyped(values)) {
    kinds.typed.add(typeOf(values));
    return { shape: [values.length], flat: [...values] };
  }
  const parts = values.map((part) => flattened(part, kinds));
  const shape = parts[0]?.shape ?? [];
  for (const part of parts) {
    if (part.shape.length !== shape.length || part.shape.some((size, dim) => size !== shape[dim])) {
      const sentence = `expected sequence of length ${shape[0] ?? 0} at dim 1 (got ${part.shape[0] ?? 0})`;
      throw refusal(Reason.ARGUMENT_VALUE, sentence);
    }
  }
  return { shape: [values.length, ...shape], flat: parts.flatMap((part) => part.flat) };
}

/** The type that holds all elements, as PyTorch infers it. Throws where typed arrays leave it open. */
function inferredType(flat: readonly Scalar[], { typed, plain }: Kinds): DType {
  const [first] = typed;
  if (first !== undefined) {
    if (typed.size === 1 && !plain) return first;
    const names = [...typed].map(nameOf).join(", ");
    throw refusal(Reason.ARGUMENT_TYPE, `arrays of ${names} and other values are mixed: give a dtype`);
  }
  if (flat.length === 0 || flat.some((each) => typeof each === "number")) return DType.FLOAT32;
  return flat.some((each) => typeof each === "bigint") ? DType.INT64 : DType.BOOL;
}

/** @internal The payload of JavaScript values. Without a dtype, bigints are int64, booleans bool, and all with numbers float32. */
export function payloadOf(values: Values, dtype?: DType, shape?: readonly number[]): Payload {
  if (typeof values === "object" && isTyped(values) && (dtype ?? typeOf(values)) === typeOf(values)) {
    // A copy: the caller may change the array before it is sent. (The slice of a Buffer would be none.)
    const bytes = new Uint8Array(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
    return {
      dtype: typeOf(values),
      shape: [...(shape ?? [values.length])],
      data: ordered(bytes, values.BYTES_PER_ELEMENT),
    };
  }
  const kinds: Kinds = { typed: new Set(), plain: false };
  const found = flattened(values, kinds);
  const type = dtype ?? inferredType(found.flat, kinds);
  return { dtype: type, shape: [...(shape ?? found.shape)], data: encoded(found.flat, type) };
}

function encoded(values: Scalar[], dtype: DType): Uint8Array {
  const write = WRITERS[dtype];
  if (!write) {
    throw refusal(Reason.DTYPE, `numbers cannot be made ${nameOf(dtype)} here; make float32, then call to()`);
  }
  const size = elementSize(dtype);
  const data = new Uint8Array(values.length * size);
  const view = new DataView(data.buffer);
  values.forEach((value, index) => {
    write(view, index * size, value);
  });
  return data;
}

type WriteElement = (view: DataView, at: number, value: Scalar) => void;

/** An integer of so many bits. Fractions are cut off, as in PyTorch; what does not fit is refused, not wrapped. */
function whole(value: Scalar, dtype: DType, least: bigint, most: bigint): bigint {
  const given = typeof value === "number" ? Math.trunc(value) : value;
  if (Number.isFinite(Number(given))) {
    const found = BigInt(given);
    if (found >= least && found <= most) return found;
  }
  throw refusal(Reason.RUNTIME, `value cannot be converted to type ${nameOf(dtype)} without overflow`);
}

function signed(value: Scalar, dtype: DType): bigint {
  const half = 1n << BigInt(8 * elementSize(dtype) - 1);
  return whole(value, dtype, -half, half - 1n);
}

function unsigned(value: Scalar, dtype: DType): bigint {
  return whole(value, dtype, 0n, (1n << BigInt(8 * elementSize(dtype))) - 1n);
}

const WRITERS: Partial<Record<DType, WriteElement>> = {
  [DType.FLOAT32]: (view, at, value) => view.setFloat32(at, Number(value), true),
  [DType.FLOAT64]: (view, at, value) => view.setFloat64(at, Number(value), true),
  [DType.INT8]: (view, at, value) => view.setInt8(at, Number(signed(value, DType.INT8))),
  [DType.INT16]: (view, at, value) => view.setInt16(at, Number(signed(value, DType.INT16)), true),
  [DType.INT32]: (view, at, value) => view.setInt32(at, Number(signed(value, DType.INT32)), true),
  [DType.INT64]: (view, at, value) => view.setBigInt64(at, signed(value, DType.INT64), true),
  [DType.UINT8]: (view, at, value) => view.setUint8(at, Number(unsigned(value, DType.UINT8))),
  // NaN is true in Python and PyTorch, but not in JavaScript.
  [DType.BOOL]: (view, at, value) => view.setUint8(at, value || Number.isNaN(value) ? 1 : 0),
  [DType.UINT16]: (view, at, value) => view.setUint16(at, Number(unsigned(value, DType.UINT16)), true),
  [DType.UINT32]: (view, at, value) => view.setUint32(at, Number(unsigned(value, DType.UINT32)), true),
  [DType.UINT64]: (view, at, value) => view.setBigUint64(at, unsigned(value, DType.UINT64), true),
};

/**
 * @internal A payload, which nobody else uses, as a typed array. float16 and bfloat16 become Float32Array, bool Uint8Array, and complex numbers
 * pairs of real and imaginary parts.
 */
export function typedArray(payload: Payload): TypedArray {
  const { dtype } = payload;
  if (dtype === DType.FLOAT16 || dtype === DType.BFLOAT16) return halves(payload);
  const complex = dtype === DType.COMPLEX64 || dtype === DType.COMPLEX128;
  // A copy, so that the array's offset fits its elements; but downloaded values have a buffer of their own.
  const own = payload.data.length === payload.data.buffer.byteLength;
  const bytes = own ? (payload.data as Uint8Array<ArrayBuffer>) : new Uint8Array(payload.data);
  const data = ordered(bytes, complex ? elementSize(dtype) / 2 : elementSize(dtype));
  const { buffer } = data;
  switch (dtype) {
    case DType.FLOAT32:
    case DType.COMPLEX64:
      return new Float32Array(buffer, 0, data.length / 4);
    case DType.FLOAT64:
    case DType.COMPLEX128:
      return new Float64Array(buffer, 0, data.length / 8);
    case DType.INT8:
      return new Int8Array(buffer, 0, data.length);
    case DType.INT16:
      return new Int16Array(buffer, 0, data.length / 2);
    case DType.INT32:
      return new Int32Array(buffer, 0, data.length / 4);
    case DType.INT64:
      return new BigInt64Array(buffer, 0, data.length / 8);
    case DType.UINT16:
      return new Uint16Array(buffer, 0, data.length / 2);
    case DType.UINT32:
      return new Uint32Array(buffer, 0, data.length / 4);
    case DType.UINT64:
      return new BigUint64Array(buffer, 0, data.length / 8);
    default:
      return data;
  }
}

function halves(payload: Payload): Float32Array {
  const view = new DataView(payload.data.buffer, payload.data.byteOffset, payload.data.byteLength);
  const made = new Float32Array(payload.data.length / 2);
  const bits = new Uint32Array(1);
  const float = new Float32Array(bits.buffer);
  for (let index = 0; index < made.length; index++) {
    const half = view.getUint16(2 * index, true);
    bits[0] = half << 16;
    made[index] = payload.dtype === DType.BFLOAT16 ? (float[0] ?? 0) : fromHalf(half);
  }
  return made;
}

/** Convert an IEEE 754 binary16. */
function fromHalf(half: number): number {
  const sign = half >> 15 ? -1 : 1;
  const exponent = (half >> 10) & 31;
  const fraction = half & 1023;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1024 + fraction) * 2 ** (exponent - 25);
}

/** @internal A tensor's values as nested arrays; a complex number is a pair. */
export function nested(payload: Payload): Nested {
  const complex = payload.dtype === DType.COMPLEX64 || payload.dtype === DType.COMPLEX128;
  const shape = complex ? [...payload.shape, 2] : payload.shape;
  let level: Nested[] = Array.from<number | bigint, number>(typedArray(payload), Number);
  for (let dim = shape.length - 1; dim > 0; dim--) {
    const size = shape[dim] as number;
    const rows = elementsOf(shape.slice(0, dim)); // not by a division: the size may be 0
    level = Array.from({ length: rows }, (_, row) => level.slice(row * size, (row + 1) * size));
  }
  return shape.length === 0 ? (level[0] as number) : level;
}

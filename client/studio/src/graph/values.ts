// Values: a tensor's bytes as numbers, and what is drawn of them: statistics, a histogram, a heat map or an image.
import { elements } from "./model";

export interface Values {
  dtype: string;
  shape: number[];
  /** In row-major order; of complex numbers, their absolute values. */
  numbers: Float64Array;
}

export interface Statistics {
  count: number;
  least: number;
  most: number;
  mean: number;
  deviation: number;
  nan: number;
  infinite: number;
  zero: number;
}

const BINS = 32;

/** Numbers from little-endian bytes. */
export function decoded(dtype: string, shape: number[], data: Uint8Array): Values {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const one = READERS[dtype];
  if (!one) throw new Error(`values of ${dtype} are not shown`);
  const count = elements(shape);
  const numbers = new Float64Array(count);
  for (let i = 0; i < count; i++) numbers[i] = one.read(view, i * one.size);
  return { dtype, shape, numbers };
}

interface Reader {
  size: number;
  read: (view: DataView, at: number) => number;
}

const READERS: Record<string, Reader> = {
  float32: { size: 4, read: (view, at) => view.getFloat32(at, true) },
  float64: { size: 8, read: (view, at) => view.getFloat64(at, true) },
  float16: { size: 2, read: (view, at) => half(view.getUint16(at, true)) },
  bfloat16: { size: 2, read: (view, at) => brain(view.getUint16(at, true)) },
  int8: { size: 1, read: (view, at) => view.getInt8(at) },
  int16: { size: 2, read: (view, at) => view.getInt16(at, true) },
  int32: { size: 4, read: (view, at) => view.getInt32(at, true) },
  int64: { size: 8, read: (view, at) => Number(view.getBigInt64(at, true)) },
  uint8: { size: 1, read: (view, at) => view.getUint8(at) },
  uint16: { size: 2, read: (view, at) => view.getUint16(at, true) },
  uint32: { size: 4, read: (view, at) => view.getUint32(at, true) },
  uint64: { size: 8, read: (view, at) => Number(view.getBigUint64(at, true)) },
  bool: { size: 1, read: (view, at) => view.getUint8(at) },
  complex64: { size: 8, read: (view, at) => Math.hypot(view.getFloat32(at, true), view.getFloat32(at + 4, true)) },
  complex128: { size: 16, read: (view, at) => Math.hypot(view.getFloat64(at, true), view.getFloat64(at + 8, true)) },
};

function half(bits: number): number {
  const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? Number.NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -14 * (fraction / 1024);
}

const scratch = new DataView(new ArrayBuffer(4));
function brain(bits: number): number {
  scratch.setUint32(0, bits << 16);
  return scratch.getFloat32(0);
}

/** Mean and deviation are of the finite values. */
export function statistics(numbers: Float64Array): Statistics {
  let [least, most, sum, finite, nan, infinite, zero] = [Infinity, -Infinity, 0, 0, 0, 0, 0];
  for (const value of numbers) {
    if (Number.isNaN(value)) nan++;
    else if (!Number.isFinite(value)) infinite++;
    else {
      finite++;
      sum += value;
      if (value === 0) zero++;
      if (value < least) least = value;
      if (value > most) most = value;
    }
  }
  const mean = finite ? sum / finite : Number.NaN;
  let squares = 0;
  for (const value of numbers) if (Number.isFinite(value)) squares += (value - mean) ** 2;
  const deviation = finite ? Math.sqrt(squares / finite) : Number.NaN;
  return {
    count: numbers.length,
    least: finite ? least : Number.NaN,
    most: finite ? most : Number.NaN,
    mean,
    deviation,
    nan,
    infinite,
    zero,
  };
}

/** How many finite values fall into each of equal bins between the least and the most. */
export function histogram(numbers: Float64Array, told: Statistics, bins = BINS): number[] {
  const counts = new Array<number>(bins).fill(0);
  const width = (told.most - told.least) / bins;
  for (const value of numbers) {
    if (!Number.isFinite(value)) continue;
    const bin = width > 0 ? Math.min(bins - 1, Math.floor((value - told.least) / width)) : bins >> 1;
    counts[bin] = (counts[bin] ?? 0) + 1;
  }
  return counts;
}

/** The size of a heat map: the last two dimensions, the others one below the other. Null for a scalar. */
export function planeOf(shape: readonly number[]): { rows: number; columns: number } | null {
  const columns = shape.at(-1);
  if (!columns) return null;
  const rows = elements(shape.slice(0, -1));
  return rows > 0 ? { rows, columns } : null;
}

/** The layout of an image's channels, where the shape is that of an image; null for others. */
export function imageOf(
  shape: readonly number[],
): { height: number; width: number; channels: number; first: boolean } | null {
  const sides = shape.length === 4 && shape[0] === 1 ? shape.slice(1) : shape;
  if (sides.length !== 3) return null;
  const [a, b, c] = sides as [number, number, number];
  if ((a === 1 || a === 3) && b > 3 && c > 3) return { height: b, width: c, channels: a, first: true };
  if ((c === 1 || c === 3) && a > 3 && b > 3) return { height: a, width: b, channels: c, first: false };
  return null;
}

/** A colour for a number between -1 and 1: blue below zero, white at it, red above; grey for nan. */
export function colour(value: number): [number, number, number] {
  if (Number.isNaN(value)) return [128, 128, 128];
  const t = Math.min(1, Math.abs(value));
  const fade = (strong: number) => Math.round(255 + (strong - 255) * t);
  return value < 0 ? [fade(33), fade(102), fade(172)] : [fade(178), fade(24), fade(43)];
}

// Bytes as numbers, and what is drawn of them.
import { expect, test } from "vitest";
import { colour, decoded, histogram, imageOf, planeOf, statistics } from "../../src/graph/values";

const bytes = (array: { buffer: ArrayBufferLike }) => new Uint8Array(array.buffer);

test("every dtype is read", () => {
  const read = (dtype: string, data: Uint8Array, count: number) => [...decoded(dtype, [count], data).numbers];
  expect(read("float32", bytes(new Float32Array([1.5, -2])), 2)).toEqual([1.5, -2]);
  expect(read("float64", bytes(new Float64Array([0.1])), 1)).toEqual([0.1]);
  expect(read("float16", bytes(new Uint16Array([0x3e00, 0xc000, 0x0001, 0x7c00, 0x7e00])), 5)).toEqual([
    1.5,
    -2,
    2 ** -24,
    Infinity,
    Number.NaN,
  ]);
  expect(read("bfloat16", bytes(new Uint16Array([0x3fc0, 0xc000])), 2)).toEqual([1.5, -2]);
  expect(read("int64", bytes(new BigInt64Array([-5n])), 1)).toEqual([-5]);
  expect(read("uint8", new Uint8Array([200]), 1)).toEqual([200]);
  expect(read("bool", new Uint8Array([0, 1]), 2)).toEqual([0, 1]);
  expect(read("complex64", bytes(new Float32Array([3, 4])), 1)).toEqual([5]);
});

test("a part of a larger buffer is read from its place", () => {
  const whole = bytes(new Float32Array([9, 1, 2]));
  expect([...decoded("float32", [2], whole.subarray(4)).numbers]).toEqual([1, 2]);
});

test("statistics leave nan and inf out", () => {
  const told = statistics(Float64Array.of(0, 2, 4, Number.NaN, Infinity));
  expect(told).toMatchObject({ count: 5, least: 0, most: 4, mean: 2, nan: 1, infinite: 1, zero: 1 });
  expect(told.deviation).toBeCloseTo(Math.sqrt(8 / 3));
});

test("a histogram counts every finite value once", () => {
  const numbers = Float64Array.from({ length: 1000 }, (_, i) => Math.sin(i));
  expect(histogram(numbers, statistics(numbers)).reduce((sum, count) => sum + count, 0)).toBe(1000);
  const same = Float64Array.of(3, 3, 3);
  expect(histogram(same, statistics(same), 4)).toEqual([0, 0, 3, 0]);
});

test("shapes of maps and images", () => {
  expect([planeOf([]), planeOf([3]), planeOf([2, 3, 4]), planeOf([0, 4])]).toEqual([
    null,
    { rows: 1, columns: 3 },
    { rows: 6, columns: 4 },
    null,
  ]);
  expect(imageOf([3, 8, 9])).toEqual({ height: 8, width: 9, channels: 3, first: true });
  expect(imageOf([1, 8, 9, 3])).toEqual({ height: 8, width: 9, channels: 3, first: false });
  expect([imageOf([8, 8]), imageOf([2, 8, 8])]).toEqual([null, null]);
});

test("colours: blue, white, red, grey", () => {
  expect([colour(-1), colour(0), colour(1), colour(Number.NaN)]).toEqual([
    [33, 102, 172],
    [255, 255, 255],
    [178, 24, 43],
    [128, 128, 128],
  ]);
});

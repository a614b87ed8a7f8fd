/** Element types that JavaScript values have. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { GradwireTypeError } from "../src/errors.js";
import { DType, nested, payloadOf, type Values } from "../src/values.js";

const INFERRED: [Values, DType, unknown][] = [
  [[true, 2.5], DType.FLOAT32, [1, 2.5]],
  [[1n, 2.5], DType.FLOAT32, [1, 2.5]],
  [[true, 2n], DType.INT64, [1, 2]],
  [[true, false], DType.BOOL, [1, 0]],
  [[[], []], DType.FLOAT32, [[], []]],
  [
    [Int32Array.of(1, 2), Int32Array.of(3, 4)],
    DType.INT32,
    [
      [1, 2],
      [3, 4],
    ],
  ],
];

test("mixed values have the type that holds them all", () => {
  for (const [values, dtype, expected] of INFERRED) {
    const made = payloadOf(values);
    assert.equal(made.dtype, dtype);
    assert.deepEqual(nested(made), expected);
  }
});

test("typed arrays of two types, or with other values, need a dtype", () => {
  for (const values of [
    [Int32Array.of(1), Float32Array.of(0.5)],
    [Int32Array.of(1), [0.5]],
    [[0.5], BigInt64Array.of(1n)],
  ]) {
    assert.throws(() => payloadOf(values), GradwireTypeError);
    assert.equal(payloadOf(values, DType.FLOAT64).dtype, DType.FLOAT64);
  }
});

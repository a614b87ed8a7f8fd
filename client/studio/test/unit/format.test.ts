// Numbers as text.
import { expect, test } from "vitest";
import { bytesText, counted, idText, rateText, shapeText, timeText, valueText } from "../../src/format";

test("bytes have three digits", () => {
  expect([0, 512, 1023, 1024, 1536, 1048064, 10_485_760, 5e9].map(bytesText)).toEqual([
    "0 B",
    "512 B",
    "1023 B",
    "1.00 KiB",
    "1.50 KiB",
    "1.00 MiB",
    "10.0 MiB",
    "4.66 GiB",
  ]);
});

test("times have two units", () => {
  expect([0.4, 59, 61, 3700, 200_000].map(timeText)).toEqual(["0 s", "59 s", "1 min 1 s", "1 h 1 min", "2 d 7 h"]);
});

test("shapes are Python's", () => {
  expect([[], [3], [2, 4]].map(shapeText)).toEqual(["()", "(3,)", "(2, 4)"]);
});

test("values, rates and counts", () => {
  expect([0, 1, 1 / 3, 123456, 1e-7, Number.NaN, -Infinity].map(valueText)).toEqual([
    "0",
    "1",
    "0.33333",
    "1.23e+5",
    "1.00e-7",
    "nan",
    "-inf",
  ]);
  expect([0, 0.42, 12345.6].map(rateText)).toEqual(["0", "0.4", "12,346"]);
  expect([counted(1, "leaf", "leaves"), counted(2000, "leaf", "leaves")]).toEqual(["1 leaf", "2,000 leaves"]);
});

test("ids are short", () => {
  expect([7, 2 ** 40 + 12, 3 * 2 ** 40 + 1, 2 ** 52 + 5].map(idText)).toEqual(["7", "1.12", "3.1", "s5"]);
});

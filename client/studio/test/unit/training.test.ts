// Curves, scales and histograms of trainings.
import { expect, test } from "vitest";
import { curveOf, nearest, pathOf, placed, rangeOf, smoothed, ticks } from "../../src/training/curves";
import { type Run, Store, tagsOf } from "../../src/training/data";
import { densities, spread } from "../../src/training/histograms";

const NAN = Number.NaN;

test("smoothing begins at the first value and leaves gaps", () => {
  expect(smoothed([4, 4, 4], 0.9).map((each) => each.toFixed(9))).toEqual(Array(3).fill("4.000000000"));
  expect(smoothed([0, 1], 0.5)).toEqual([0, 2 / 3]);
  expect(smoothed([1, NAN, 3], 0.5)).toEqual([1, NAN, (0.25 * 1 + 0.5 * 3) / 0.75]);
  expect(smoothed([1, 2], 0)).toEqual([1, 2]);
});

test("a curve is ordered by its axis", () => {
  const points: [number, number, number | null][] = [
    [2, 160, 5],
    [1, 220, null],
  ];
  expect(curveOf("a", 0, points, "step", 0)).toMatchObject({ xs: [1, 2], raw: [NAN, 5] });
  expect(curveOf("a", 0, points, "time", 0)).toMatchObject({ xs: [0, 1], raw: [5, NAN] });
});

test("ranges leave out what cannot be drawn", () => {
  expect(rangeOf([[1, NAN, 3], [2]])).toEqual({ least: 1, most: 3 });
  expect(rangeOf([[-1, 0, 0.5, 2]], true)).toEqual({ least: 0.5, most: 2 });
  expect(rangeOf([[5]])).toEqual({ least: 4.5, most: 5.5 });
  expect(rangeOf([[0, 0]])).toEqual({ least: -1, most: 1 });
  expect(rangeOf([])).toEqual({ least: 0, most: 1 });
});

test("a logarithmic axis has no place for numbers below zero", () => {
  expect(placed(10, { least: 1, most: 100 }, true)).toBeCloseTo(0.5);
  expect(placed(-1, { least: 1, most: 100 }, true)).toBeNaN();
});

test("ticks are round and few", () => {
  expect(ticks({ least: 0.13, most: 0.87 }, 4, false)).toEqual([0.2, 0.4, 0.6, 0.8]);
  expect(ticks({ least: 0.002, most: 300 }, 4, true)).toEqual([0.01, 0.1, 1, 10, 100]);
  expect(ticks({ least: 2, most: 4 }, 4, true)).toEqual([2, 2.5, 3, 3.5, 4]);
});

test("a gap ends a line, and a lone point can be seen", () => {
  expect(pathOf([0, 1, 2, 3], [5, NAN, 6, 7])).toBe("M0.0 5.0h1M2.0 6.0L3.0 7.0");
});

test("the nearest of equal steps is the newest", () => {
  expect(nearest([1, 2, 2, 5], 2.2)).toBe(2);
  expect(nearest([], 1)).toBe(-1);
});

test("densities compare buckets of any width", () => {
  expect(densities([0, 1, 2, 1, 3, 2, 3, 3, 9])).toEqual([
    { left: 0, right: 1, density: 2 },
    { left: 1, right: 3, density: 1 },
  ]);
});

test("spread points have the first and the last", () => {
  expect(spread([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 3)).toEqual([1, 6, 10]);
  expect(spread([1, 2], 3)).toEqual([1, 2]);
});

function run(name: string, scalars: Record<string, number>): Run {
  return { name, scalars, histograms: {}, images: {}, texts: {} };
}

test("tags of all runs, in the order of their numbers", () => {
  expect(tagsOf([run("a", { "layer10/x": 1, "layer2/x": 1 }), run("b", { loss: 1 })], "scalars")).toEqual([
    "layer2/x",
    "layer10/x",
    "loss",
  ]);
});

test("only series that have grown are asked for again, at most 64 at once", async () => {
  const asked: unknown[][] = [];
  const store = new Store((_, body) => {
    const { series } = body as { series: unknown[] };
    asked.push(series);
    return Promise.resolve(new Response(JSON.stringify({ series: series.map(() => [[1, 2, 3]]) })));
  });
  const shown = Array.from({ length: 70 }, (_, i) => ({ kind: "scalars" as const, tag: `t${i}` }));
  const counts = (seen: number) => Object.fromEntries(shown.map(({ tag }) => [tag, tag === "t3" ? seen : 1]));
  await store.follow([run("a", counts(1))], shown);
  expect(asked.map((each) => each.length)).toEqual([64, 6]);
  await store.follow([run("a", counts(2))], shown);
  expect(asked[2]).toEqual([["scalars", "a", "t3"]]);
  expect(store.points("scalars", "a", "t5")).toEqual([[1, 2, 3]]);
  await store.follow([], shown);
  expect(store.points("scalars", "a", "t5")).toEqual([]);
});

// The layout is the one that Python's client draws, and it is fast. STUDIO_LAYOUTS has graphs that Python laid out.
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { type Edge, type Layout, layOut, type Point } from "../../src/graph/layout";

interface Golden {
  name: string;
  sizes: Point[];
  edges: Edge[];
  layout: Layout;
}

const golden = JSON.parse(readFileSync(process.env.STUDIO_LAYOUTS ?? "", "utf8")) as Golden[];

test.each(golden.map((each) => [each.name, each] as const))("%s is laid out as in Python", (_, each) => {
  const found = layOut(each.sizes, each.edges);
  expect(found.layers).toEqual(each.layout.layers);
  expect(found.routes.map((route) => route.arrives)).toEqual(each.layout.routes.map((route) => route.arrives));
  const flat = (layout: Layout) => [
    layout.width,
    layout.height,
    ...layout.centres.flat(),
    ...layout.routes.flatMap((route) => route.points.flat()),
  ];
  const [mine, other] = [flat(found), flat(each.layout)];
  expect(mine.length).toBe(other.length);
  expect(Math.max(...mine.map((value, i) => Math.abs(value - (other[i] ?? Number.NaN))))).toBeLessThan(1e-6);
});

test("boxes of a layer do not overlap", () => {
  for (const { sizes, layout } of golden) {
    const rows = new Map<number, [number, number][]>();
    layout.layers.forEach((layer, i) => {
      const [x, width] = [layout.centres[i]?.[0] ?? 0, sizes[i]?.[0] ?? 0];
      rows.set(layer, [...(rows.get(layer) ?? []), [x - width / 2, x + width / 2]]);
    });
    for (const row of rows.values()) {
      row.sort(([a], [b]) => a - b);
      for (const [i, [left]] of row.entries()) if (i > 0) expect(left).toBeGreaterThan(row[i - 1]?.[1] ?? 0);
    }
  }
});

test("a cycle is refused", () => {
  expect(() =>
    layOut(
      [
        [10, 10],
        [10, 10],
      ],
      [
        [0, 1],
        [1, 0],
      ],
    ),
  ).toThrow(RangeError);
});

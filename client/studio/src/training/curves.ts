// Curves: smoothing and scales of scalars, apart from how they are drawn.
import type { ScalarPoint } from "./data";

export type Axis = "step" | "time";

export interface Curve {
  run: string;
  /** A number for its colour, the same for a run in every chart. */
  colour: number;
  xs: number[];
  /** As written; gaps are NaN. */
  raw: number[];
  smooth: number[];
}

export interface Range {
  least: number;
  most: number;
}

/** A run's points over steps, or over hours since the first of them. Sorted by step, the newest last among equals. */
export function curveOf(
  run: string,
  colour: number,
  points: readonly ScalarPoint[],
  axis: Axis,
  weight: number,
): Curve {
  const ordered = [...points].sort((a, b) => (axis === "step" ? a[0] - b[0] : a[1] - b[1]));
  const begin = ordered[0]?.[1] ?? 0;
  const raw = ordered.map((each) => each[2] ?? Number.NaN);
  const xs = ordered.map((each) => (axis === "step" ? each[0] : (each[1] - begin) / 60));
  return { run, colour, xs, raw, smooth: smoothed(raw, weight) };
}

/** An exponential moving average whose beginning is not drawn to 0, as TensorBoard's. Gaps stay gaps. */
export function smoothed(values: readonly number[], weight: number): number[] {
  let [last, count] = [0, 0];
  return values.map((value) => {
    if (!Number.isFinite(value) || weight <= 0) return value;
    last = last * weight + (1 - weight) * value;
    count += 1;
    return last / (1 - weight ** count);
  });
}

/** The range of finite values; of positive ones only on a logarithmic axis. */
export function rangeOf(lists: readonly (readonly number[])[], log = false): Range {
  let [least, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const values of lists)
    for (const value of values)
      if (Number.isFinite(value) && (!log || value > 0)) {
        if (value < least) least = value;
        if (value > most) most = value;
      }
  if (least > most) return log ? { least: 1, most: 10 } : { least: 0, most: 1 };
  if (least === most) {
    const around = log ? 0 : Math.abs(least) * 0.1 || 1;
    return log ? { least: least / 2, most: most * 2 } : { least: least - around, most: most + around };
  }
  return { least, most };
}

/** Where a value lies in a range, 0 to 1; NaN where a logarithmic axis has no place for it. */
export function placed(value: number, range: Range, log: boolean): number {
  if (!log) return (value - range.least) / (range.most - range.least);
  if (!(value > 0)) return Number.NaN;
  return Math.log(value / range.least) / Math.log(range.most / range.least);
}

/** About `count` round values within a range; powers of ten on a logarithmic axis, if there are enough. */
export function ticks(range: Range, count: number, log: boolean): number[] {
  if (log) {
    const [first, last] = [Math.ceil(Math.log10(range.least)), Math.floor(Math.log10(range.most))];
    const every = Math.max(1, Math.ceil((last - first) / count));
    const powers: number[] = [];
    for (let power = first; power <= last; power += every) powers.push(10 ** power);
    if (powers.length > 1) return powers;
  }
  const rough = (range.most - range.least) / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * unit).find((each) => each >= rough) ?? rough;
  const found: number[] = [];
  for (let i = Math.ceil(range.least / step); i * step <= range.most && found.length < 20; i++)
    found.push(Number((i * step).toPrecision(12)));
  return found;
}

/** The path of a line. Gaps begin a new piece; a lone point is a short dash. */
export function pathOf(xs: readonly number[], ys: readonly number[]): string {
  let path = "";
  let drawing = false;
  for (let i = 0; i < xs.length; i++) {
    const [x, y] = [xs[i] ?? Number.NaN, ys[i] ?? Number.NaN];
    if (!Number.isFinite(x) || !Number.isFinite(y)) {
      drawing = false;
      continue;
    }
    path += `${drawing ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    if (!drawing && !Number.isFinite(ys[i + 1] ?? Number.NaN)) path += "h1";
    drawing = true;
  }
  return path;
}

/** The index of the value nearest to x; -1 if there is none. */
export function nearest(xs: readonly number[], x: number): number {
  let found = -1;
  for (let i = 0; i < xs.length; i++)
    if (found < 0 || Math.abs((xs[i] ?? 0) - x) <= Math.abs((xs[found] ?? 0) - x)) found = i;
  return found;
}

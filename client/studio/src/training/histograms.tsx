// Histograms over steps: one ridge for each step, the newest in front.
import { counted, valueText } from "../format";
import { rangeOf } from "./curves";
import type { HistogramPoint } from "./data";

const WIDTH = 400;
const HEIGHT = 200;
const RIDGE = 60;
const MOST_RIDGES = 20;
const BASE = 18;

/** So many of the points, evenly spread from the first to the last. */
export function spread<P>(points: readonly P[], most: number): P[] {
  if (points.length <= most) return [...points];
  return Array.from({ length: most }, (_, i) => points[Math.round((i * (points.length - 1)) / (most - 1))] as P);
}

/** Density of each bucket: values per unit, so that wide and narrow ones compare. */
export function densities(buckets: readonly number[]): { left: number; right: number; density: number }[] {
  const found = [];
  for (let i = 0; i + 2 < buckets.length; i += 3) {
    const [left, right, count] = buckets.slice(i, i + 3) as [number, number, number];
    if (right > left) found.push({ left, right, density: count / (right - left) });
  }
  return found;
}

export function Ridges(props: { tag: string; run: string; points: readonly HistogramPoint[] }) {
  const shown = spread(
    [...props.points].sort((a, b) => a[0] - b[0]),
    MOST_RIDGES,
  );
  const all = shown.map(([step, , buckets]) => ({ step, parts: densities(buckets) }));
  const range = rangeOf(all.flatMap(({ parts }) => parts.map((part) => [part.left, part.right])));
  const x = (value: number) => ((value - range.least) / (range.most - range.least)) * WIDTH;
  const gap = (HEIGHT - RIDGE - BASE) / Math.max(1, all.length - 1);
  const [first, last] = [shown[0]?.[0] ?? 0, shown.at(-1)?.[0] ?? 0];
  return (
    <figure class="chart">
      <figcaption class="chart-title" title={`${props.run}: ${props.tag}`}>
        {props.tag} <small>{props.run}</small>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        role="img"
        aria-label={`histograms of ${props.tag} of ${props.run}, steps ${first} to ${last}, from ${valueText(range.least)} to ${valueText(range.most)}`}
      >
        {all.map(({ step, parts }, i) => {
          const base = RIDGE + i * gap;
          const top = Math.max(...parts.map((part) => part.density), 1e-300);
          const path = parts
            .map((part) => {
              const y = (base - (part.density / top) * RIDGE).toFixed(1);
              return `L${x(part.left).toFixed(1)} ${y}L${x(part.right).toFixed(1)} ${y}`;
            })
            .join("");
          return (
            <path
              key={`${i} ${step}`}
              class="ridge"
              d={`M${x(parts[0]?.left ?? 0).toFixed(1)} ${base}${path}V${base}Z`}
            >
              <title>step {step}</title>
            </path>
          );
        })}
        <text x="2" y={HEIGHT - 4}>
          {valueText(range.least)}
        </text>
        <text x={WIDTH - 2} y={HEIGHT - 4} text-anchor="end">
          {valueText(range.most)}
        </text>
      </svg>
      <p class="legend-x">
        Steps {first} (back) to {last} (front), {counted(shown.length, "histogram")}; each has its own height.
      </p>
    </figure>
  );
}

// Chart: the scalars of one tag, a line for each run, and what they are at the pointer.
import { useState } from "preact/hooks";
import { valueText } from "../format";
import { type Curve, nearest, pathOf, placed, rangeOf, ticks } from "./curves";

const WIDTH = 400;
const HEIGHT = 190;
const LEFT = 52;
const BOTTOM = 20;
const TOP = 8;
const RIGHT = 8;
export const COLOURS = 8; // studio.css has as many; further runs have dashed lines

export function Chart(props: { tag: string; curves: readonly Curve[]; log: boolean; unit: string }) {
  const { tag, curves, log, unit } = props;
  const [pointer, setPointer] = useState<number | null>(null);
  const xRange = rangeOf(curves.map((each) => each.xs));
  const yRange = rangeOf(
    curves.flatMap((each) => [each.raw, each.smooth]),
    log,
  );
  const x = (value: number) => LEFT + placed(value, xRange, false) * (WIDTH - LEFT - RIGHT);
  const y = (value: number) => HEIGHT - BOTTOM - placed(value, yRange, log) * (HEIGHT - BOTTOM - TOP);
  const move = (event: PointerEvent) => {
    const box = (event.currentTarget as SVGElement).getBoundingClientRect();
    const part = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
    setPointer(xRange.least + Math.min(1, Math.max(0, part)) * (xRange.most - xRange.least));
  };
  const told = curves.map((curve) => {
    const at = pointer === null ? curve.xs.length - 1 : nearest(curve.xs, pointer);
    return { curve, at, x: curve.xs[at] ?? Number.NaN, raw: curve.raw[at] ?? Number.NaN };
  });
  return (
    <figure class="chart">
      <figcaption class="chart-title" title={tag}>
        {tag}
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        role="img"
        aria-label={`${tag} over ${unit}; ${told.map((each) => `${each.curve.run}: ${valueText(each.raw)}`).join(", ")}`}
        onPointerMove={move}
        onPointerLeave={() => setPointer(null)}
      >
        {ticks(yRange, 4, log).map((value) => (
          <g key={`y${value}`}>
            <line class="grid" x1={LEFT} x2={WIDTH - RIGHT} y1={y(value)} y2={y(value)} />
            <text x={LEFT - 4} y={y(value) + 4} text-anchor="end">
              {valueText(value)}
            </text>
          </g>
        ))}
        {ticks(xRange, 5, false).map((value) => (
          <text key={`x${value}`} x={x(value)} y={HEIGHT - 4} text-anchor="middle">
            {valueText(value)}
          </text>
        ))}
        {curves.map((curve) => (
          <path
            key={`raw ${curve.run}`}
            class={`line faint ${lineClass(curve)}`}
            d={curve.smooth === curve.raw ? "" : pathOf(curve.xs.map(x), curve.raw.map(y))}
          />
        ))}
        {curves.map((curve) => (
          <path key={curve.run} class={`line ${lineClass(curve)}`} d={pathOf(curve.xs.map(x), curve.smooth.map(y))} />
        ))}
        {pointer !== null && <line class="pointer" x1={x(pointer)} x2={x(pointer)} y1={TOP} y2={HEIGHT - BOTTOM} />}
      </svg>
      <ul class="chart-legend">
        {told.slice(0, COLOURS).map(({ curve, at, x: where, raw }) => (
          <li key={curve.run}>
            <Mark curve={curve} />
            <span class="legend-run" title={curve.run}>
              {curve.run}
            </span>
            <span class="legend-value">
              {valueText(curve.smooth[at] ?? Number.NaN)}
              {curve.smooth[at] !== raw && Number.isFinite(raw) ? ` (${valueText(raw)})` : ""}
            </span>
            <span class="legend-x">
              {unit} {valueText(where)}
            </span>
          </li>
        ))}
        {told.length > COLOURS && <li>and {told.length - COLOURS} more</li>}
      </ul>
    </figure>
  );
}

/** The line of a run, as its mark. */
export function Mark(props: { curve: Pick<Curve, "colour"> }) {
  return (
    <svg class="mark" viewBox="0 0 20 8" width="20" height="8" aria-hidden="true">
      <path class={`line ${lineClass(props.curve)}`} d="M0 4H20" />
    </svg>
  );
}

function lineClass(curve: Pick<Curve, "colour">): string {
  return `line-${curve.colour % COLOURS}${curve.colour >= COLOURS ? " dashed" : ""}`;
}

// Steps: chooses one of a series' points by its step. The last one follows the newest.
import { useState } from "preact/hooks";
import type { Point } from "./data";

export interface Chosen<P extends Point> {
  points: readonly P[];
  at: number;
  /** The chosen point; undefined where there is none. */
  point: P | undefined;
  choose: (at: number) => void;
}

/** The points in the order of their steps, and the chosen one. */
export function useStep<P extends Point>(given: readonly P[]): Chosen<P> {
  const points = [...given].sort((a, b) => a[0] - b[0]);
  const [chosen, setChosen] = useState<number | null>(null); // a step; null follows the newest
  const found = points.findIndex((each) => each[0] === chosen);
  const at = found < 0 ? points.length - 1 : found;
  const choose = (index: number) => setChosen(index === points.length - 1 ? null : (points[index]?.[0] ?? null));
  return { points, at, point: points[at], choose };
}

export function StepSlider<P extends Point>(props: { steps: Chosen<P> }) {
  const { points, at, point, choose } = props.steps;
  return (
    <label class="legend-x">
      step {point?.[0] ?? 0}{" "}
      <input
        type="range"
        min={0}
        max={Math.max(0, points.length - 1)}
        value={at}
        disabled={points.length < 2}
        onInput={(e) => choose(Number(e.currentTarget.value))}
      />
    </label>
  );
}

// Sparkline: the last values of a number as a small line.

const WIDTH = 72;
const HEIGHT = 20;

/** The points of a polyline; the largest value reaches the top. */
export function pointsOf(values: readonly number[], most: number, width = WIDTH, height = HEIGHT): string {
  const top = Math.max(...values, 1e-9);
  const left = width - ((values.length - 1) * width) / Math.max(1, most - 1);
  const step = width / Math.max(1, most - 1);
  return values
    .map((value, i) => `${(left + i * step).toFixed(1)},${(height - 1 - (value / top) * (height - 2)).toFixed(1)}`)
    .join(" ");
}

export function Sparkline(props: { values: readonly number[]; most: number; label: string }) {
  const { values, most, label } = props;
  return (
    <svg
      class="sparkline"
      width={WIDTH}
      height={HEIGHT}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      role="img"
      aria-label={label}
    >
      {values.length > 1 && <polyline points={pointsOf(values, most)} />}
    </svg>
  );
}

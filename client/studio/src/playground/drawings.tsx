// Drawings: a tensor's values as a table or a plot, and a surface with lines of equal height and a path.
import { contours } from "d3-contour";
import { useMemo } from "preact/hooks";
import { valueText } from "../format";
import { Plots } from "../graph/plots";
import type { Values } from "../graph/values";
import type { Shown } from "./printing";
import type { Surface } from "./workspace";

const MOST_CELLS = 64; // of a table; more values are plotted
const MOST_COLUMNS = 8;

/** Values as a table if they are few, else as a plot. */
export function Drawn(props: { shown: Shown; what: string }) {
  const { shown, what } = props;
  const values = useMemo(() => plain(shown), [shown]);
  const columns = shown.shape.at(-1) ?? 1;
  const count = values.numbers.length;
  if (shown.shape.length > 2 || count > MOST_CELLS || columns > MOST_COLUMNS || count === 0)
    return <Plots values={values} what={what} />;
  const rows = Array.from({ length: count / Math.max(1, columns) }, (_, row) =>
    [...values.numbers.subarray(row * columns, (row + 1) * columns)].map(valueText),
  );
  return (
    <table class="cells">
      <caption>{what}</caption>
      <tbody>
        {rows.map((row, i) => (
          <tr key={i}>
            {row.map((cell, j) => (
              <td key={j}>{cell}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** As the graph page's plots take them; complex numbers by their absolute values. */
function plain(shown: Shown): Values {
  const { dtype, shape, numbers } = shown;
  const flat = Float64Array.from(numbers as ArrayLike<number>, Number);
  if (!dtype.startsWith("complex")) return { dtype, shape, numbers: flat };
  const sizes = Float64Array.from({ length: flat.length / 2 }, (_, i) =>
    Math.hypot(flat[2 * i] ?? 0, flat[2 * i + 1] ?? 0),
  );
  return { dtype, shape, numbers: sizes };
}

const WIDTH = 360;
const HEIGHT = 300;
const LEVELS = 14;

/** Lines of equal height, closer together where they are low, and the path from its ring to its dot. */
export function SurfaceDrawing(props: { surface: Surface }) {
  const { surface } = props;
  const lines = useMemo(() => linesOf(surface), [surface]);
  const { from, to, path } = surface;
  const at = ([x, y]: [number, number]): [number, number] => [
    ((x - from[0]) / (to[0] - from[0])) * WIDTH,
    HEIGHT - ((y - from[1]) / (to[1] - from[1])) * HEIGHT,
  ];
  const points = path.map(at);
  const origin: [number, number] = [0, 0];
  const [first, last] = [points[0] ?? origin, points.at(-1) ?? origin];
  const [begin, end] = [path[0] ?? origin, path.at(-1) ?? origin];
  const words = (point: [number, number]) => `(${valueText(point[0])}, ${valueText(point[1])})`;
  return (
    <figure class="surface">
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        role="img"
        aria-label={`Surface of f with a path of ${path.length} points from ${words(begin)} to ${words(end)}`}
      >
        {lines.map((each, i) => (
          <path key={i} class="height" d={each} />
        ))}
        <polyline class="path" points={points.map((each) => each.join(",")).join(" ")} />
        {points.map(([x, y], i) => (
          <circle key={i} class="step" cx={x} cy={y} r={2} />
        ))}
        <circle class="begin" cx={first[0]} cy={first[1]} r={6} />
        <circle class="end" cx={last[0]} cy={last[1]} r={5} />
      </svg>
      <figcaption>
        <span>from {words(begin)}</span>
        <span>to {words(end)}</span>
      </figcaption>
    </figure>
  );
}

/** The lines as paths of SVG. A quadratic scale of heights shows the bottom of a valley. */
function linesOf(surface: Surface): string[] {
  const { size, heights } = surface;
  const finite = [...heights].filter(Number.isFinite);
  if (!finite.length) return [];
  const [least, most] = [Math.min(...finite), Math.max(...finite)];
  const levels = Array.from({ length: LEVELS }, (_, i) => least + (most - least) * ((i + 1) / (LEVELS + 1)) ** 2);
  const scale = (value: number, length: number) => ((value - 0.5) / (size - 1)) * length;
  const drawn = contours().size([size, size]).thresholds(levels)(
    [...heights].map((each) => (Number.isFinite(each) ? each : most)),
  );
  const point = ([x, y]: Corner) => `${scale(x, WIDTH).toFixed(1)},${(HEIGHT - scale(y, HEIGHT)).toFixed(1)}`;
  const inside = ([x, y]: Corner) => Math.min(x, y) >= 0.5 && Math.max(x, y) <= size - 0.5;
  return drawn.map(({ coordinates }) =>
    coordinates
      .flat()
      .flatMap((ring) => runsOf(ring as Corner[], inside))
      .map((run) => `M${run.map(point).join("L")}`)
      .join(""),
  );
}

type Corner = [number, number];

/** The parts of a ring inside of the grid. Outside of it a ring is closed by straight lines, which say nothing. */
function runsOf(ring: readonly Corner[], inside: (corner: Corner) => boolean): Corner[][] {
  const runs: Corner[][] = [[]];
  for (const each of ring) {
    if (inside(each)) runs.at(-1)?.push(each);
    else if (runs.at(-1)?.length) runs.push([]);
  }
  return runs.filter((run) => run.length > 1);
}

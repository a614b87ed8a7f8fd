// Plots: a tensor's values as statistics, a histogram, a heat map or an image.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { counted, shapeText, valueText } from "../format";
import { colour, histogram, imageOf, planeOf, type Statistics, statistics, type Values } from "./values";

const MOST_CELLS = 1 << 20;
const FEW = 16; // values that are written out
const HEIGHT = 90;
const WIDTH = 300;

export function Plots(props: { values: Values; what: string }) {
  const { values, what } = props;
  const told = useMemo(() => statistics(values.numbers), [values]);
  const image = imageOf(values.shape);
  const plane = planeOf(values.shape);
  const kinds = ["histogram", ...(plane && values.numbers.length > 1 ? ["heat map"] : []), ...(image ? ["image"] : [])];
  const [kind, setKind] = useState("");
  const shown = kinds.includes(kind) ? kind : image ? "image" : plane && plane.rows > 1 ? "heat map" : "histogram";
  return (
    <section class="plots" aria-label={what}>
      <h3>
        {what}{" "}
        <small>
          {shapeText(values.shape)} {values.dtype}
        </small>
      </h3>
      <Facts told={told} complex={values.dtype.startsWith("complex")} />
      {values.numbers.length <= FEW && <p class="few">{[...values.numbers].map(valueText).join(", ")}</p>}
      {values.numbers.length > 1 && (
        <>
          <div class="tabs" role="group" aria-label={`Drawing of ${what}`}>
            {kinds.map((each) => (
              <button key={each} type="button" aria-pressed={each === shown} onClick={() => setKind(each)}>
                {each}
              </button>
            ))}
          </div>
          {shown === "histogram" && <Histogram values={values} told={told} />}
          {shown === "heat map" && plane && (
            <Pixels values={values} told={told} label={`heat map of ${what}`} {...plane} />
          )}
          {shown === "image" && image && (
            <Pixels
              values={values}
              told={told}
              label={`image of ${what}`}
              rows={image.height}
              columns={image.width}
              image={image}
            />
          )}
        </>
      )}
    </section>
  );
}

function Facts(props: { told: Statistics; complex: boolean }) {
  const { told } = props;
  const parts = [
    `${counted(told.count, "value")}${props.complex ? " (absolute values)" : ""}`,
    `from ${valueText(told.least)} to ${valueText(told.most)}`,
    `mean ${valueText(told.mean)}`,
    `deviation ${valueText(told.deviation)}`,
    ...(told.zero ? [counted(told.zero, "zero", "zeros")] : []),
  ];
  const bad = told.nan + told.infinite;
  return (
    <p class="facts-line">
      {told.count === 1 ? "1 value" : parts.join(" · ")}
      {bad > 0 && (
        <b class="bad">
          {" "}
          · {told.nan} nan, {told.infinite} inf
        </b>
      )}
    </p>
  );
}

function Histogram(props: { values: Values; told: Statistics }) {
  const counts = useMemo(() => histogram(props.values.numbers, props.told), [props.values]);
  const most = Math.max(...counts, 1);
  const width = WIDTH / counts.length;
  return (
    <figure>
      <svg
        class="histogram"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        role="img"
        aria-label={`histogram, most in a bin: ${most}`}
      >
        {counts.map((count, i) => (
          <rect
            key={i}
            x={i * width + 0.5}
            width={width - 1}
            y={HEIGHT - (count / most) * HEIGHT}
            height={(count / most) * HEIGHT}
          />
        ))}
      </svg>
      <figcaption>
        <span>{valueText(props.told.least)}</span>
        <span>{valueText(props.told.most)}</span>
      </figcaption>
    </figure>
  );
}

interface PixelsProps {
  values: Values;
  told: Statistics;
  label: string;
  rows: number;
  columns: number;
  image?: { channels: number; first: boolean };
}

/** One pixel per value; a map too large is sampled. */
function Pixels(props: PixelsProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const every = Math.max(1, Math.ceil(Math.sqrt((props.rows * props.columns) / MOST_CELLS)));
  const [rows, columns] = [Math.ceil(props.rows / every), Math.ceil(props.columns / every)];
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const pixels = context.createImageData(columns, rows);
    const at = props.image ? imagePixel(props, props.image) : mapPixel(props);
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        pixels.data.set([...at(row * every, column * every), 255], 4 * (row * columns + column));
      }
    }
    context.putImageData(pixels, 0, 0);
  }, [props.values, props.image, rows, columns]);
  const scale = Math.max(1, Math.min(24, Math.floor(WIDTH / Math.max(columns, rows / 1.5))));
  const caption = props.image
    ? ""
    : `blue ${valueText(Math.min(0, props.told.least))} · white 0 · red ${valueText(Math.max(0, props.told.most))}`;
  return (
    <figure>
      <canvas
        ref={canvas}
        class="pixels"
        width={columns}
        height={rows}
        style={{ width: `${columns * scale}px` }}
        role="img"
        aria-label={props.label}
      />
      <figcaption>
        {caption}
        {every > 1 ? ` Every ${every}th row and column.` : ""}
      </figcaption>
    </figure>
  );
}

type Pixel = (row: number, column: number) => [number, number, number];

function mapPixel({ values, told, columns }: PixelsProps): Pixel {
  const largest = Math.max(Math.abs(told.least), Math.abs(told.most)) || 1;
  return (row, column) => colour((values.numbers[row * columns + column] ?? 0) / largest);
}

function imagePixel({ values, told, rows, columns }: PixelsProps, image: { channels: number; first: boolean }): Pixel {
  const range = told.most - told.least || 1;
  const { channels, first } = image;
  const grey = (row: number, column: number, channel: number) => {
    const place = first ? (channel * rows + row) * columns + column : (row * columns + column) * channels + channel;
    return Math.round((((values.numbers[place] ?? 0) - told.least) / range) * 255) || 0;
  };
  return (row, column) =>
    [0, 1, 2].map((channel) => grey(row, column, Math.min(channel, channels - 1))) as [number, number, number];
}

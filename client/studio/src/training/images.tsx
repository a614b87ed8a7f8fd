// Images of one tag and run, by step. The browser decodes them from bytes: no address of an image is ever asked for.
import { useEffect, useRef, useState } from "preact/hooks";
import { sentence } from "../calls";
import type { ImagePoint, Store } from "./data";
import { StepSlider, useStep } from "./steps";

const MOST_PIXELS = 1 << 24;

export function Images(props: { tag: string; run: string; points: readonly ImagePoint[]; store: Store }) {
  const { tag, run, store } = props;
  const steps = useStep(props.points);
  const { point } = steps;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [problem, setProblem] = useState("");
  const [step, wall, width, height] = point ?? [0, 0, 0, 0];
  useEffect(() => {
    if (!point) return;
    let over = false;
    const draw = async () => {
      try {
        if (!(width > 0 && height > 0 && width * height <= MOST_PIXELS)) throw new Error("The image is too large.");
        const bitmap = await createImageBitmap(await store.image(run, tag, step), {
          resizeWidth: width,
          resizeHeight: height,
          resizeQuality: "pixelated",
        });
        const element = canvas.current;
        if (over || !element) return;
        element.width = width;
        element.height = height;
        element.getContext("2d")?.drawImage(bitmap, 0, 0);
        setProblem("");
      } catch (error) {
        const unreadable = error instanceof DOMException;
        if (!over) setProblem(unreadable ? "The browser cannot read this image." : sentence(error));
      }
    };
    void draw();
    return () => {
      over = true;
    };
  }, [run, tag, step, wall, width, height]);
  return (
    <figure class="chart">
      <figcaption class="chart-title" title={`${run}: ${tag}`}>
        {tag} <small>{run}</small>
      </figcaption>
      <canvas ref={canvas} class="training-image" role="img" aria-label={`image ${tag} of ${run} at step ${step}`} />
      {problem && <p class="problem">{problem}</p>}
      <StepSlider steps={steps} />
    </figure>
  );
}

// Texts of one tag and run, by step. They are shown as they were written: Markdown and markup stay text.
import type { TextPoint } from "./data";
import { StepSlider, useStep } from "./steps";

export function Texts(props: { tag: string; run: string; points: readonly TextPoint[] }) {
  const { tag, run } = props;
  const steps = useStep(props.points);
  return (
    <figure class="chart">
      <figcaption class="chart-title" title={`${run}: ${tag}`}>
        {tag} <small>{run}</small>
      </figcaption>
      {steps.point ? (
        // It scrolls, so the keyboard must reach it.
        <pre class="training-text" role="region" tabIndex={0} aria-label={`text ${tag} of ${run}`}>
          {steps.point[2]}
        </pre>
      ) : (
        <p class="problem">The gateway holds no more texts.</p>
      )}
      <StepSlider steps={steps} />
    </figure>
  );
}

// Steps: walks through a backward node by node, forth and back, by hand or in time.
import { useEffect, useState } from "preact/hooks";
import { messageOf, shapeText, valueText } from "../format";
import { opName } from "./cards";
import type { Graph } from "./model";
import { statistics } from "./values";
import type { Step } from "./walk";

const PLAY_MS = 900;

export interface Stepping {
  /** The node of the present step; 0 while there is no walk. */
  current: number;
  /** The nodes passed so far; null while there is no walk. */
  passed: ReadonlySet<number> | null;
  steps: Step[];
  place: number;
  problem: string;
  playing: boolean;
  at: (node: number) => Step | undefined;
  start: () => void;
  go: (place: number) => void;
  play: (playing: boolean) => void;
  end: () => void;
}

/** The state of a walk through the backward of a tensor. Another graph or tensor ends it. */
export function useSteps(
  graph: Graph,
  root: number,
  walk: ((graph: Graph, root: number) => Promise<Step[]>) | undefined,
): Stepping {
  const [steps, setSteps] = useState<Step[]>([]);
  const [place, setPlace] = useState(0);
  const [playing, setPlaying] = useState(false);
  const [problem, setProblem] = useState("");
  const [asked, setAsked] = useState(0);
  const end = () => {
    setSteps([]);
    setPlace(0);
    setPlaying(false);
    setProblem("");
  };
  useEffect(() => {
    end();
    setAsked(0);
  }, [graph, root]);
  useEffect(() => {
    if (!asked || !walk) return;
    let gone = false;
    walk(graph, root).then(
      (found) => {
        if (gone) return;
        setSteps(found);
        setPlace(0);
      },
      (error: unknown) => !gone && setProblem(messageOf(error)),
    );
    return () => {
      gone = true;
    };
  }, [asked]);
  useEffect(() => {
    if (!playing) return;
    const last = place >= steps.length - 1;
    const timer = setTimeout(() => (last ? setPlaying(false) : setPlace(place + 1)), last ? 0 : PLAY_MS);
    return () => clearTimeout(timer);
  }, [playing, place, steps]);
  const passed = steps.length ? new Set(steps.slice(0, place + 1).map((step) => step.node)) : null;
  return {
    current: steps[place]?.node ?? 0,
    passed,
    steps,
    place,
    problem,
    playing,
    at: (node) => (passed?.has(node) ? steps.find((step) => step.node === node) : undefined),
    start: () => {
      end();
      setAsked(asked + 1);
    },
    go: (next) => {
      setPlaying(false);
      setPlace(Math.max(0, Math.min(steps.length - 1, next)));
    },
    play: setPlaying,
    end,
  };
}

/** The buttons of a walk, and what arrives at its present step. */
export function Steps(props: { graph: Graph; steps: Stepping }) {
  const { graph, steps: walk } = props;
  const step = walk.steps[walk.place];
  if (!step) {
    return (
      <>
        <button type="button" onClick={walk.start}>
          Step through backward
        </button>
        {walk.problem && (
          <p class="problem" role="alert">
            {walk.problem}
          </p>
        )}
      </>
    );
  }
  return (
    <div class="steps" role="group" aria-label="Steps of the backward">
      <button type="button" aria-label="Step back" disabled={!walk.place} onClick={() => walk.go(walk.place - 1)}>
        ◀
      </button>
      <button type="button" onClick={() => walk.play(!walk.playing)}>
        {walk.playing ? "Pause" : "Play"}
      </button>
      <button
        type="button"
        aria-label="Step forth"
        disabled={walk.place >= walk.steps.length - 1}
        onClick={() => walk.go(walk.place + 1)}
      >
        ▶
      </button>
      <input
        type="range"
        aria-label="Step"
        min={1}
        max={walk.steps.length}
        value={walk.place + 1}
        onInput={(event) => walk.go(Number(event.currentTarget.value) - 1)}
      />
      <span role="status">
        Step {walk.place + 1} of {walk.steps.length}: {told(graph, step)}
      </span>
      <button type="button" onClick={walk.end}>
        End
      </button>
    </div>
  );
}

function told(graph: Graph, step: Step): string {
  const node = graph.nodes.get(step.node);
  const name = node?.leaf ? (graph.names[node.leaf.id] ?? "a leaf") : opName(node?.name ?? "");
  if (!step.gradient) return `${name}. ${step.note}`;
  const { least, most } = statistics(step.gradient.numbers);
  const range = least === most ? valueText(least) : `${valueText(least)} to ${valueText(most)}`;
  return `${name} receives ${shapeText(step.gradient.shape)}: ${range}`;
}

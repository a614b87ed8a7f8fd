// The page of trainings: scalars, histograms, images and texts of TensorBoard's event files, drawn as they are written.
import { useRef, useState } from "preact/hooks";
import { loggedIn, post, sentence } from "../calls";
import { counted } from "../format";
import { usePolling } from "../polling";
import { Chart, Mark } from "./chart";
import { type Axis, type Curve, curveOf } from "./curves";
import {
  type HistogramPoint,
  type ImagePoint,
  KINDS,
  type Kind,
  type Listing,
  type Run,
  Store,
  type TextPoint,
  tagsOf,
} from "./data";
import { Ridges } from "./histograms";
import { Images } from "./images";
import { Texts } from "./texts";

const EVERY = 2000; // milliseconds
const MOST_CHARTS = 24; // at first; more on demand
const FIRST_RUNS = 8; // chosen at first

interface View {
  listing: Listing | null;
  problem: string;
}

interface Choice {
  /** Runs that are not drawn. */
  hidden: ReadonlySet<string>;
  tags: string;
  axis: Axis;
  log: boolean;
  weight: number;
  most: number;
}

interface Shown {
  kind: Kind;
  tag: string;
}

export function TrainingPage() {
  const store = useRef(new Store(post));
  const [view, setView] = useState<View>({ listing: null, problem: "" });
  const [choice, setChoice] = useState<Choice>({
    hidden: new Set(),
    tags: "",
    axis: "step",
    log: false,
    weight: 0.6,
    most: MOST_CHARTS,
  });
  const known = useRef(new Set<string>());
  const change = (part: Partial<Choice>) => setChoice((was) => ({ ...was, ...part }));
  const look = async () => {
    try {
      const listing = await store.current.list();
      const hidden = new Set(choice.hidden);
      for (const [i, run] of listing.runs.entries()) {
        if (!known.current.has(run.name) && i >= FIRST_RUNS && known.current.size >= FIRST_RUNS) hidden.add(run.name);
        known.current.add(run.name);
      }
      const chosen = listing.runs.filter((run) => !hidden.has(run.name));
      await store.current.follow(chosen, shownOf(chosen, choice).slice(0, choice.most));
      if (hidden.size !== choice.hidden.size) change({ hidden });
      setView({ listing, problem: "" });
    } catch (error) {
      setView((was) => ({ ...was, problem: sentence(error) }));
    }
  };
  usePolling(look, EVERY, [loggedIn.value, choice.hidden, choice.tags, choice.most]);
  const listing = view.listing;
  const runs = listing?.runs ?? [];
  const colours = new Map(runs.map((run, i) => [run.name, i]));
  const chosen = runs.filter((run) => !choice.hidden.has(run.name));
  const shown = shownOf(chosen, choice);
  return (
    <>
      <h1>Training</h1>
      {view.problem && (
        <p class="problem" role="alert">
          {view.problem}
        </p>
      )}
      {listing && !listing.configured && <NoFolder />}
      {listing?.configured && runs.length === 0 && (
        <p class="empty">No event file is in the folder yet. SummaryWriter writes them.</p>
      )}
      {listing?.problems.map((each) => (
        <p class="problem" key={each}>
          {each}
        </p>
      ))}
      {runs.length > 0 && (
        <div class="training">
          <section class="training-choice" aria-label="What is drawn">
            <Controls choice={choice} change={change} />
            <RunList runs={runs} colours={colours} choice={choice} change={change} />
          </section>
          <div class="training-charts">
            <p role="status">
              {counted(shown.length, "tag")}
              {listing?.more ? "; the files are still being read" : ""}
            </p>
            {shown.slice(0, choice.most).map(({ kind, tag }) => (
              <Drawing
                key={`${kind} ${tag}`}
                kind={kind}
                tag={tag}
                runs={chosen}
                colours={colours}
                choice={choice}
                store={store.current}
              />
            ))}
            {shown.length > choice.most && (
              <button type="button" onClick={() => change({ most: choice.most + MOST_CHARTS })}>
                Show {Math.min(MOST_CHARTS, shown.length - choice.most)} more
              </button>
            )}
          </div>
        </div>
      )}
    </>
  );
}

function Controls(props: { choice: Choice; change: (part: Partial<Choice>) => void }) {
  const { choice, change } = props;
  return (
    <>
      <label>
        Tags{" "}
        <input
          type="search"
          value={choice.tags}
          placeholder="part of a name"
          onInput={(e) => change({ tags: e.currentTarget.value, most: MOST_CHARTS })}
        />
      </label>
      <label>
        Smoothing {choice.weight.toFixed(2)}
        <input
          type="range"
          min={0}
          max={0.99}
          step={0.01}
          value={choice.weight}
          onInput={(e) => change({ weight: Number(e.currentTarget.value) })}
        />
      </label>
      <label>
        Horizontal axis{" "}
        <select value={choice.axis} onChange={(e) => change({ axis: e.currentTarget.value as Axis })}>
          <option value="step">step</option>
          <option value="time">time</option>
        </select>
      </label>
      <label>
        <input type="checkbox" checked={choice.log} onChange={(e) => change({ log: e.currentTarget.checked })} />{" "}
        Logarithmic values
      </label>
    </>
  );
}

function RunList(props: {
  runs: readonly Run[];
  colours: Map<string, number>;
  choice: Choice;
  change: (part: Partial<Choice>) => void;
}) {
  const { runs, colours, choice, change } = props;
  const toggle = (name: string) => {
    const hidden = new Set(choice.hidden);
    if (!hidden.delete(name)) hidden.add(name);
    change({ hidden });
  };
  return (
    <fieldset class="runs">
      <legend>{counted(runs.length, "run")}</legend>
      <div class="buttons">
        <button type="button" class="small" onClick={() => change({ hidden: new Set() })}>
          All
        </button>
        <button type="button" class="small" onClick={() => change({ hidden: new Set(runs.map((run) => run.name)) })}>
          None
        </button>
      </div>
      <div class="run-list">
        {runs.map((run) => (
          <label key={run.name} title={run.name}>
            <input type="checkbox" checked={!choice.hidden.has(run.name)} onChange={() => toggle(run.name)} />{" "}
            <Mark curve={{ colour: colours.get(run.name) ?? 0 }} /> {run.name}
          </label>
        ))}
      </div>
    </fieldset>
  );
}

function Drawing(props: Shown & { runs: readonly Run[]; colours: Map<string, number>; choice: Choice; store: Store }) {
  const { kind, tag, colours, choice, store } = props;
  const runs = props.runs.filter((run) => run[kind][tag] !== undefined);
  if (kind === "scalars") {
    const curves: Curve[] = runs.map((run) =>
      curveOf(run.name, colours.get(run.name) ?? 0, store.points(kind, run.name, tag), choice.axis, choice.weight),
    );
    return <Chart tag={tag} curves={curves} log={choice.log} unit={choice.axis === "step" ? "step" : "minute"} />;
  }
  return (
    <>
      {runs.map((run) =>
        kind === "histograms" ? (
          <Ridges key={run.name} tag={tag} run={run.name} points={store.points<HistogramPoint>(kind, run.name, tag)} />
        ) : kind === "texts" ? (
          <Texts key={run.name} tag={tag} run={run.name} points={store.points<TextPoint>(kind, run.name, tag)} />
        ) : (
          <Images
            key={run.name}
            tag={tag}
            run={run.name}
            points={store.points<ImagePoint>(kind, run.name, tag)}
            store={store}
          />
        ),
      )}
    </>
  );
}

function NoFolder() {
  return (
    <section class="card">
      <h2>The gateway has no folder of event files</h2>
      <p>
        Start it with <code>gradwire studio HOST:PORT --logdir runs</code>. A program writes the files by{" "}
        <code>gradwire.utils.tensorboard.SummaryWriter("runs/first")</code>.
      </p>
    </section>
  );
}

function shownOf(runs: readonly Run[], choice: Choice): Shown[] {
  const wanted = choice.tags.trim().toLowerCase();
  const found = KINDS.flatMap((kind) => tagsOf(runs, kind).map((tag) => ({ kind, tag })));
  return found.filter(({ tag }) => tag.toLowerCase().includes(wanted));
}

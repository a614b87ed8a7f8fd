// The page of the playground: code with its results below the lines, its variables, its graph, and the lessons.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { address } from "../address";
import { endOnLeaving, loggedIn, sentence } from "../calls";
import { counted } from "../format";
import type { Graph } from "../graph/model";
import { fetchGraph } from "../graph/reading";
import { connectHere } from "./connecting";
import { SurfaceDrawing } from "./drawings";
import { type Editor, makeEditor } from "./editor";
import { PlaygroundGraph } from "./graph";
import { FIRST_CODE, LESSONS, type Lesson } from "./lessons";
import { addressOfCode, addressOfLesson, named } from "./sharing";
import { TaskBox } from "./task";
import { Variables } from "./variables";
import { type Result, Workspace } from "./workspace";
import "./playground.css";

const PAUSE_MS = 400; // after the last key

/** What was typed since the page was loaded, by lesson or link. */
const typed = new Map<string, string>();
const keyOf = (opened: Opened) => opened.lesson?.name ?? (opened.waits ? `link ${opened.code}` : "");

interface Opened {
  lesson: Lesson | null;
  code: string;
  /** Code of a link waits for a click. */
  waits: boolean;
  problem: string;
}

export function PlaygroundPage() {
  const [opened, setOpened] = useState<Opened | null>(null);
  const now = address.value;
  useEffect(() => {
    let gone = false;
    const open = async () => {
      const found = await opening();
      if (!gone) setOpened(found);
    };
    void open();
    return () => {
      gone = true;
    };
  }, [now]);
  return (
    <>
      <h1>Playground</h1>
      <nav class="lessons" aria-label="Lessons">
        <a href="#/playground" aria-current={opened && !opened.lesson ? "page" : undefined}>
          Own code
        </a>
        {LESSONS.map((each) => (
          <a
            key={each.name}
            href={addressOfLesson(each.name)}
            aria-current={each === opened?.lesson ? "page" : undefined}
          >
            {each.title}
          </a>
        ))}
      </nav>
      {opened && <Play opened={opened} />}
    </>
  );
}

async function opening(): Promise<Opened> {
  try {
    const found = await named(location.hash);
    if (found && "code" in found) return { lesson: null, code: found.code, waits: true, problem: "" };
    const name = found?.lesson ?? "";
    const lesson = LESSONS.find((each) => each.name === name) ?? null;
    const problem = name && !lesson ? `There is no lesson "${name}".` : "";
    return { lesson, code: lesson?.code ?? FIRST_CODE, waits: false, problem };
  } catch (error) {
    return { lesson: null, code: FIRST_CODE, waits: false, problem: sentence(error) };
  }
}

interface State {
  result: Result | null;
  graph: Graph | null;
  running: boolean;
  problem: string;
}

/** The session of this page, which ends with it. */
function useWorkspace(): Workspace {
  const workspace = useMemo(() => new Workspace(connectHere), []);
  useEffect(() => {
    const leave = () => {
      const id = workspace.sessionId;
      if (id) endOnLeaving(id);
    };
    addEventListener("pagehide", leave);
    return () => {
      removeEventListener("pagehide", leave);
      void workspace.close();
    };
  }, []);
  return workspace;
}

function Play(props: { opened: Opened }) {
  const { opened } = props;
  const { lesson } = opened;
  const place = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  const timer = useRef(0);
  const workspace = useWorkspace();
  const [waits, setWaits] = useState(opened.waits);
  const [link, setLink] = useState("");
  const [state, setState] = useState<State>({ result: null, graph: null, running: false, problem: "" });
  const run = async () => {
    clearTimeout(timer.current);
    setWaits(false);
    setState((was) => ({ ...was, running: true, problem: "" }));
    try {
      const result = await workspace.run(editor.current?.text() ?? "");
      if (!result) return; // a later run tells its own result
      editor.current?.show(result.notes);
      const graph = result.session && result.last ? await graphOf(result, workspace) : null;
      setState((was) => (workspace.isLatest(result) ? { result, graph, running: false, problem: "" } : was));
    } catch (error) {
      setState((was) => ({ ...was, running: false, problem: sentence(error) }));
    }
  };
  const changed = (code: string) => {
    typed.set(keyOf(opened), code);
    setLink("");
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => void run(), PAUSE_MS);
  };
  useEffect(() => {
    if (!place.current) return;
    const label = lesson ? `Code of the lesson ${lesson.title}` : "Code";
    editor.current = makeEditor(
      place.current,
      typed.get(keyOf(opened)) ?? opened.code,
      label,
      changed,
      () => void run(),
    );
    setWaits(opened.waits);
    setLink("");
    setState({ result: null, graph: null, running: false, problem: "" });
    if (!opened.waits) void run();
    return () => {
      clearTimeout(timer.current);
      editor.current?.close();
    };
  }, [opened, loggedIn.value]);
  const share = async () => {
    const hash = await addressOfCode(editor.current?.text() ?? "");
    setLink(new URL(hash, location.href).href);
    await navigator.clipboard?.writeText(new URL(hash, location.href).href).catch(() => {}); // the field has it, too
  };
  const reset = () => {
    const code = lesson?.code ?? (opened.waits ? opened.code : FIRST_CODE);
    typed.delete(keyOf(opened));
    editor.current?.setText(code);
    void run();
  };
  return (
    <div class="play">
      <section class="code" aria-label="Code">
        {opened.problem && (
          <p class="problem" role="alert">
            {opened.problem}
          </p>
        )}
        {lesson && (
          <div class="lesson">
            <h2>{lesson.title}</h2>
            {lesson.text.map((each) => (
              <p key={each}>{each}</p>
            ))}
          </div>
        )}
        {waits && (
          <p class="why" role="status">
            This code comes from a link. Read it, then choose Run.
          </p>
        )}
        <div class="editor" ref={place} />
        <div class="tools">
          <button type="button" onClick={() => void run()}>
            Run
          </button>
          <button type="button" onClick={reset}>
            Reset
          </button>
          <button type="button" onClick={() => void share()}>
            Make a link
          </button>
          {link && (
            <label>
              Link <input readOnly value={link} onFocus={(e) => e.currentTarget.select()} />
            </label>
          )}
        </div>
        <Status state={state} />
        {lesson && (
          <TaskBox
            key={lesson.name}
            task={lesson.task}
            workspace={workspace}
            result={state.running ? null : state.result}
          />
        )}
      </section>
      <section class="results" aria-label="Results">
        {state.result?.surface && <SurfaceDrawing surface={state.result.surface} />}
        {state.graph && state.result && <PlaygroundGraph graph={state.graph} result={state.result} />}
        {state.result && <Variables variables={state.result.variables} graph={state.graph} root={state.result.last} />}
      </section>
    </div>
  );
}

/** The graph of a run, with the names and lines of its code; null if a later run has freed it. */
async function graphOf(result: Result, workspace: Workspace): Promise<Graph | null> {
  const graph = await fetchGraph(result.session).catch((error: unknown) => {
    if (workspace.isLatest(result)) throw error;
    return null;
  });
  if (!graph) return null;
  const names = Object.fromEntries(
    result.variables.filter((each) => each.tensor).map((each) => [each.tensor, each.name]),
  );
  const lines: Record<string, string> = {};
  for (const [tensor, line] of result.lines) {
    const node = graph.nodeOf.get(tensor);
    if (node !== undefined) lines[node] = `line ${line}`;
  }
  return { ...graph, names, lines };
}

/** How the run went: read aloud, and the whole output as text. */
function Status(props: { state: State }) {
  const { result, running, problem } = props.state;
  const error = result?.notes.find((each) => each.kind === "error");
  const printed = result?.notes.filter((each) => each.kind === "printed") ?? [];
  const words = running
    ? "Running …"
    : error
      ? `Line ${error.line}: ${error.text}`
      : result
        ? `Ran without an error in ${Math.round(result.milliseconds)} ms, ${counted(result.variables.length, "variable")}.`
        : "";
  return (
    <>
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      <p class={error && !running ? "problem" : "few"} role="status">
        {words}
      </p>
      {printed.length > 0 && (
        <section aria-label="Output" class="output">
          <h3>Output</h3>
          <pre>{printed.map((each) => each.text).join("\n")}</pre>
        </section>
      )}
    </>
  );
}

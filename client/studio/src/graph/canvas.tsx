// Canvas: the drawing with its pointer and its keys, and the layout in a worker.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Arranged, type Arranger, startArranger } from "#arrange";
import type { Drawing } from "./cards";
import type { Layout } from "./layout";
import { type Pointed, Scene } from "./scene";

interface Props {
  drawing: Drawing;
  /** Another key is another graph, which is shown whole. */
  of: string;
  chosen: number;
  found: readonly number[];
  /** The card to bring to the middle, with a number that rises at each wish. */
  centred: { card: number; turn: number };
  /** The nodes that the steps of a backward have passed; null while there are none. */
  passed: ReadonlySet<number> | null;
  onChoose: (card: number) => void;
  /** Unfold the chosen card. */
  onOpen: () => void;
  /** Fold the module around the chosen card. */
  onClose: () => void;
  onPoint: (pointed: Pointed | null) => void;
}

const STEP = 60; // pixels of a pan by keys
const CLICK = 4; // pixels that a click may move

/** The layout of a drawing; null until it is there. */
function useLayout(drawing: Drawing): { layout: Layout | null; problem: string } {
  const arranger = useRef<Arranger | null>(null);
  const [answer, setAnswer] = useState<{ drawing: Drawing | null } & Arranged>({
    drawing: null,
    layout: null,
    problem: "",
  });
  useEffect(() => () => arranger.current?.close(), []);
  useEffect(() => {
    arranger.current ??= startArranger();
    arranger.current.ask(drawing.sizes, drawing.edges, (found) => setAnswer({ drawing, ...found }));
  }, [drawing]);
  return answer.drawing === drawing ? answer : { layout: null, problem: "" };
}

export function GraphCanvas(props: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const scene = useRef<Scene | null>(null);
  const shown = useRef("");
  const { layout, problem } = useLayout(props.drawing);
  useEffect(() => {
    if (!canvas.current) return;
    const made = new Scene(canvas.current);
    scene.current = made;
    (canvas.current as HTMLCanvasElement & { scene?: Scene }).scene = made; // read by measurements
    return () => made.close();
  }, []);
  useEffect(() => {
    if (!layout) return;
    scene.current?.show(props.drawing, layout, shown.current === props.of);
    shown.current = props.of;
    scene.current?.mark(props.chosen, props.found);
  }, [layout]);
  useEffect(() => scene.current?.mark(props.chosen, props.found), [props.chosen, props.found]);
  useEffect(() => scene.current?.pass(props.passed), [props.passed, layout]);
  useEffect(() => {
    if (props.centred.card >= 0) scene.current?.centre(props.centred.card);
  }, [props.centred.turn, layout]);
  usePointer(canvas, scene, props);
  const keys = (event: KeyboardEvent) => {
    const now = scene.current;
    if (!now || !onKey(event, now, props)) return;
    event.preventDefault();
  };
  return (
    <div class="drawing">
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-label="Reverse graph. Arrow keys move between nodes, Enter unfolds, Backspace folds, plus and minus zoom, 0 shows all. The list of nodes has the same."
        aria-describedby="node-details"
        onKeyDown={keys}
      />
      {!layout && (
        <p class="waiting" role="status">
          {problem || "Placing the nodes …"}
        </p>
      )}
      <div class="zoom" role="group" aria-label="Zoom">
        <button type="button" aria-label="Zoom in" onClick={() => scene.current?.zoom(1.4)}>
          +
        </button>
        <button type="button" aria-label="Zoom out" onClick={() => scene.current?.zoom(1 / 1.4)}>
          −
        </button>
        <button type="button" onClick={() => scene.current?.fit()}>
          All
        </button>
      </div>
    </div>
  );
}

/** Do what a key says; whether it said something. */
function onKey(event: KeyboardEvent, scene: Scene, props: Props): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const way = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
  if (way && event.shiftKey) {
    scene.pan(-(way[1] ?? 0) * STEP, -(way[0] ?? 0) * STEP);
  } else if (way) {
    const next = props.chosen < 0 ? 0 : scene.neighbour(props.chosen, way[0] ?? 0, way[1] ?? 0);
    props.onChoose(next);
    scene.centre(next);
  } else if (event.key === "+" || event.key === "=") scene.zoom(1.25);
  else if (event.key === "-") scene.zoom(0.8);
  else if (event.key === "0") scene.fit();
  else if (event.key === "Enter") props.onOpen();
  else if (event.key === "Backspace") props.onClose();
  else if (event.key === "Escape") props.onChoose(-1);
  else return false;
  return true;
}

/** Drag to pan, wheel and two fingers to zoom, click to choose, hover to point. */
function usePointer(
  canvas: { current: HTMLCanvasElement | null },
  scene: { current: Scene | null },
  props: Props,
): void {
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const held = new Map<number, { x: number; y: number }>();
    let moved = 0;
    const at = (event: PointerEvent | WheelEvent) => ({ x: event.offsetX, y: event.offsetY });
    const down = (event: PointerEvent) => {
      held.set(event.pointerId, at(event));
      element.setPointerCapture(event.pointerId);
      moved = 0;
    };
    const move = (event: PointerEvent) => {
      const now = at(event);
      const before = held.get(event.pointerId);
      if (!before) {
        const card = scene.current?.cardAt(now.x, now.y) ?? -1;
        element.classList.toggle("over", card >= 0);
        latest.current.onPoint(card >= 0 ? { card, ...now } : null);
        return;
      }
      const others = [...held].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
      const other = others[0];
      if (other) {
        const [was, is] = [
          Math.hypot(before.x - other.x, before.y - other.y),
          Math.hypot(now.x - other.x, now.y - other.y),
        ];
        scene.current?.zoom(is / Math.max(1, was), (now.x + other.x) / 2, (now.y + other.y) / 2);
      } else scene.current?.pan(now.x - before.x, now.y - before.y);
      moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
      held.set(event.pointerId, now);
    };
    const up = (event: PointerEvent) => {
      const now = at(event);
      if (held.delete(event.pointerId) && moved < CLICK)
        latest.current.onChoose(scene.current?.cardAt(now.x, now.y) ?? -1);
    };
    const leave = () => latest.current.onPoint(null);
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const { x, y } = at(event);
      scene.current?.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.03 : 0.0015)), x, y);
    };
    element.addEventListener("pointerdown", down);
    element.addEventListener("pointermove", move);
    element.addEventListener("pointerup", up);
    element.addEventListener("pointercancel", up);
    element.addEventListener("pointerleave", leave);
    element.addEventListener("wheel", wheel, { passive: false });
    return () => {
      element.removeEventListener("pointerdown", down);
      element.removeEventListener("pointermove", move);
      element.removeEventListener("pointerup", up);
      element.removeEventListener("pointercancel", up);
      element.removeEventListener("pointerleave", leave);
      element.removeEventListener("wheel", wheel);
    };
  }, []);
}

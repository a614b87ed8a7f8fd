// Scene: draws a laid-out graph on a canvas, with zoom and pan. Only what is in view is drawn, and only after a change.
import type { Card, Drawing, Look } from "./cards";
import type { EdgePath, Layout } from "./layout";

interface Style {
  fill: string;
  line: string;
  ink: string;
  faint: string;
  /** Square corners: a leaf. */
  square?: boolean;
  dashed?: boolean;
  double?: boolean;
  /** A second outline behind: more is inside. */
  stacked?: boolean;
}

/** Colours of the looks; cards are opaque, so they serve light and dark pages. */
export const STYLES: Record<Look, Style> = {
  root: { fill: "#4f56d3", line: "#4f56d3", ink: "#ffffff", faint: "#e4e6ff" },
  op: { fill: "#f4f5ff", line: "#7b83eb", ink: "#1f2350", faint: "#565c8c" },
  leaf: { fill: "#d9f4e6", line: "#1f8a57", ink: "#0e3d27", faint: "#2f6349", square: true },
  "leaf-none": { fill: "#ffffff", line: "#1f8a57", ink: "#0e3d27", faint: "#a12a2a", square: true, dashed: true },
  retained: { fill: "#ffedc9", line: "#b87503", ink: "#4a3103", faint: "#6d4c0d", double: true },
  "retained-none": { fill: "#ffffff", line: "#b87503", ink: "#4a3103", faint: "#a12a2a", double: true, dashed: true },
  freed: { fill: "#f1f2f4", line: "#868c99", ink: "#4d5360", faint: "#636976", dashed: true },
  run: { fill: "#e7e9fb", line: "#7b83eb", ink: "#1f2350", faint: "#565c8c", double: true },
  module: { fill: "#e1e4fa", line: "#4f56d3", ink: "#1f2350", faint: "#4a5084", stacked: true, square: true },
  unknown: { fill: "#ffffff", line: "#868c99", ink: "#4d5360", faint: "#636976", dashed: true },
};
const EDGE = "#858ba0";
const EDGE_NEAR = "#4f56d3";
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const FIRST = `600 13px ${FONT}`;
const OTHERS = `11px ${FONT}`;
const TEXT_FROM = 0.32; // below this zoom text is not legible, so it is not drawn
const READABLE = 0.62;
const LEAST_ZOOM = 0.01;
const MOST_ZOOM = 3;
const CLOSE = 40; // pixels of room around the whole graph

interface Box {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export interface Pointed {
  /** The index of the card under the pointer; -1 for none. */
  card: number;
  x: number;
  y: number;
}

export class Scene {
  private drawing: Drawing = { cards: [], edges: [], sizes: [] };
  private layout: Layout | null = null;
  private paths: Path2D[] = [];
  private bounds: Box[] = [];
  private scale = 1;
  private offset = { x: 0, y: 0 };
  private frame = 0;
  private chosen = -1;
  private marked = new Set<number>();
  private faint = new Set<number>();
  private readonly context: CanvasRenderingContext2D;
  private readonly watcher: ResizeObserver;
  /** Times of drawing in milliseconds, for measurements. */
  readonly times: number[] = [];

  constructor(private readonly canvas: HTMLCanvasElement) {
    const context = canvas.getContext("2d");
    if (!context) throw new Error("this browser has no 2D canvas");
    this.context = context;
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(canvas);
  }

  /** Show a graph. The view is kept where `keep` says so and there was a graph before. */
  show(drawing: Drawing, layout: Layout, keep: boolean): void {
    const first = this.layout === null;
    [this.drawing, this.layout] = [drawing, layout];
    this.paths = layout.routes.map(pathOf);
    this.bounds = layout.routes.map(boundsOf);
    this.chosen = -1;
    this.faint = new Set();
    if (first || !keep) this.begin();
    this.redraw();
  }

  /** Mark the chosen card and those that a search has found. */
  mark(chosen: number, found: readonly number[]): void {
    this.chosen = chosen;
    this.marked = new Set(found);
    this.redraw();
  }

  /** Show as faint what the steps of a backward have not passed; null ends that. */
  pass(nodes: ReadonlySet<number> | null): void {
    this.faint = new Set();
    if (nodes) this.drawing.cards.forEach((card, i) => !card.nodes.some((id) => nodes.has(id)) && this.faint.add(i));
    this.redraw();
  }

  /** Show the whole graph. */
  fit(): void {
    const { layout } = this;
    if (!layout) return;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    this.scale = Math.min(1, Math.max(this.whole(layout), LEAST_ZOOM));
    this.offset = {
      x: (width - layout.width * this.scale) / 2,
      y: Math.max(CLOSE / 2, (height - layout.height * this.scale) / 2),
    };
    this.redraw();
  }

  /** Show the whole graph, or the part below the root of one too large to be read. */
  private begin(): void {
    const { layout } = this;
    const root = layout?.centres[0];
    this.fit();
    if (!layout || !root || this.whole(layout) >= READABLE) return;
    this.scale = READABLE;
    this.offset = { x: this.canvas.clientWidth / 2 - root[0] * this.scale, y: CLOSE / 2 };
    this.redraw();
  }

  /** The zoom at which the whole graph is in view. */
  private whole(layout: Layout): number {
    return Math.min(
      (this.canvas.clientWidth - CLOSE) / layout.width,
      (this.canvas.clientHeight - CLOSE) / layout.height,
    );
  }

  /** Bring a card to the middle, large enough to read. */
  centre(card: number): void {
    const centre = this.layout?.centres[card];
    if (!centre) return;
    this.scale = Math.max(this.scale, 0.7);
    this.offset = {
      x: this.canvas.clientWidth / 2 - centre[0] * this.scale,
      y: this.canvas.clientHeight / 2 - centre[1] * this.scale,
    };
    this.redraw();
  }

  /** Zoom by a factor around a point of the canvas, by default its middle. */
  zoom(factor: number, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2): void {
    const scale = Math.min(MOST_ZOOM, Math.max(LEAST_ZOOM, this.scale * factor));
    this.offset = {
      x: x - ((x - this.offset.x) * scale) / this.scale,
      y: y - ((y - this.offset.y) * scale) / this.scale,
    };
    this.scale = scale;
    this.redraw();
  }

  /** Move the view by pixels. */
  pan(x: number, y: number): void {
    this.offset = { x: this.offset.x + x, y: this.offset.y + y };
    this.redraw();
  }

  /** The card at a point of the canvas; -1 for none. */
  cardAt(x: number, y: number): number {
    const [px, py] = [(x - this.offset.x) / this.scale, (y - this.offset.y) / this.scale];
    return this.drawing.cards.findIndex((_, i) => {
      const [centre, size] = [this.layout?.centres[i], this.drawing.sizes[i]];
      return centre && size && Math.abs(px - centre[0]) <= size[0] / 2 && Math.abs(py - centre[1]) <= size[1] / 2;
    });
  }

  /** The nearest card in a direction, for the arrow keys; the present one where there is none. */
  neighbour(card: number, down: number, right: number): number {
    const from = this.layout?.centres[card];
    if (!from) return card;
    const joined = new Set(
      this.drawing.edges.flatMap(([a, b]) => (down > 0 && a === card ? [b] : down < 0 && b === card ? [a] : [])),
    );
    const layer = this.layout?.layers[card];
    let [best, least] = [card, Infinity];
    this.layout?.centres.forEach(([x, y], i) => {
      const fits = down ? joined.has(i) : this.layout?.layers[i] === layer && (x - from[0]) * right > 0;
      const distance = Math.abs(x - from[0]) + Math.abs(y - from[1]);
      if (fits && i !== card && distance < least) [best, least] = [i, distance];
    });
    return best;
  }

  /** Free what the browser keeps for the scene. */
  close(): void {
    this.watcher.disconnect();
    cancelAnimationFrame(this.frame);
  }

  private resize(): void {
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(this.canvas.clientWidth * ratio);
    this.canvas.height = Math.round(this.canvas.clientHeight * ratio);
    this.draw();
  }

  private redraw(): void {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  private draw(): void {
    const began = performance.now();
    const { context, layout } = this;
    const ratio = devicePixelRatio || 1;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (!layout) return;
    context.setTransform(ratio * this.scale, 0, 0, ratio * this.scale, ratio * this.offset.x, ratio * this.offset.y);
    const view = this.view();
    this.drawEdges(view);
    this.drawing.cards.forEach((card, i) => {
      const [centre, size] = [layout.centres[i], this.drawing.sizes[i]];
      if (!centre || !size) return;
      const box = {
        left: centre[0] - size[0] / 2,
        top: centre[1] - size[1] / 2,
        right: centre[0] + size[0] / 2,
        bottom: centre[1] + size[1] / 2,
      };
      if (!meets(box, view)) return;
      context.globalAlpha = this.faint.has(i) ? 0.3 : 1;
      this.drawCard(card, i, box);
    });
    context.globalAlpha = 1;
    this.times.push(performance.now() - began);
    if (this.times.length > 600) this.times.splice(0, 300);
  }

  private view(): Box {
    const [left, top] = [-this.offset.x / this.scale, -this.offset.y / this.scale];
    return {
      left,
      top,
      right: left + this.canvas.clientWidth / this.scale,
      bottom: top + this.canvas.clientHeight / this.scale,
    };
  }

  private drawEdges(view: Box): void {
    const { context } = this;
    const heads = this.scale > 0.2;
    const near = new Path2D();
    const far = new Path2D();
    this.paths.forEach((path, e) => {
      const bounds = this.bounds[e];
      if (!bounds || !meets(bounds, view)) return;
      const joined = this.chosen >= 0 && this.drawing.edges[e]?.includes(this.chosen);
      (joined ? near : far).addPath(path);
      const route = this.layout?.routes[e];
      const end = route?.points.at(-1);
      if (heads && route?.arrives && end) (joined ? near : far).addPath(headAt(end[0], end[1]));
    });
    context.lineWidth = Math.max(1.3, 0.6 / this.scale);
    context.strokeStyle = EDGE;
    context.stroke(far);
    context.strokeStyle = EDGE_NEAR;
    context.lineWidth *= 1.8;
    context.stroke(near);
  }

  private drawCard(card: Card, i: number, box: Box): void {
    const { context } = this;
    const style = STYLES[card.look];
    const [width, height] = [box.right - box.left, box.bottom - box.top];
    const corner = style.square ? 3 : Math.min(height / 2, 18);
    if (style.stacked) {
      context.beginPath();
      context.roundRect(box.left + 4, box.top + 4, width, height, corner);
      context.strokeStyle = style.line;
      context.lineWidth = 1.2;
      context.stroke();
    }
    context.beginPath();
    context.roundRect(box.left, box.top, width, height, corner);
    context.fillStyle = style.fill;
    context.fill();
    context.setLineDash(style.dashed ? [5, 4] : []);
    context.lineWidth = i === this.chosen ? 3 : 1.5;
    context.strokeStyle = style.line;
    context.stroke();
    if (style.double) {
      context.beginPath();
      context.roundRect(box.left + 3, box.top + 3, width - 6, height - 6, Math.max(1, corner - 3));
      context.lineWidth = 1;
      context.stroke();
    }
    context.setLineDash([]);
    if (i === this.chosen || this.marked.has(i)) {
      context.beginPath();
      context.roundRect(box.left - 5, box.top - 5, width + 10, height + 10, corner + 5);
      context.lineWidth = Math.max(3, 2.5 / this.scale);
      context.strokeStyle = i === this.chosen ? EDGE_NEAR : "#e0467c";
      context.stroke();
    }
    if (this.scale >= TEXT_FROM) this.drawText(card, style, (box.left + box.right) / 2, box.top);
  }

  private drawText(card: Card, style: Style, x: number, top: number): void {
    const { context } = this;
    context.textAlign = "center";
    card.lines.forEach((line, k) => {
      context.font = k === 0 ? FIRST : OTHERS;
      context.fillStyle = k === 0 ? style.ink : style.faint;
      context.fillText(line, x, top + 19 + 15 * k);
    });
  }
}

const widths = new Map<string, number>();
const ruler = typeof document === "undefined" ? null : document.createElement("canvas").getContext("2d");

/** The width of a card's line as the canvas draws it. */
export function measured(text: string, first: boolean): number {
  const key = `${first ? 1 : 0}${text}`;
  let width = widths.get(key);
  if (width === undefined && ruler) {
    ruler.font = first ? FIRST : OTHERS;
    width = ruler.measureText(text).width;
    if (widths.size > 20_000) widths.clear();
    widths.set(key, width);
  }
  return width ?? 0;
}

function meets(box: Box, view: Box): boolean {
  return box.right >= view.left && box.left <= view.right && box.bottom >= view.top && box.top <= view.bottom;
}

/** Straight down for equal x, else a smooth S-curve. The arrowhead covers the last pixels. */
function pathOf(route: EdgePath): Path2D {
  const path = new Path2D();
  const [first, ...rest] = route.points;
  if (!first) return path;
  let [x, y] = first;
  path.moveTo(x, y);
  rest.forEach(([nextX, given], i) => {
    const nextY = route.arrives && i === rest.length - 1 ? given - 1 : given;
    const middle = (y + nextY) / 2;
    if (Math.abs(nextX - x) < 0.05) path.lineTo(nextX, nextY);
    else path.bezierCurveTo(x, middle, nextX, middle, nextX, nextY);
    [x, y] = [nextX, nextY];
  });
  return path;
}

function headAt(x: number, y: number): Path2D {
  const path = new Path2D();
  path.moveTo(x - 4, y - 7);
  path.lineTo(x, y - 1);
  path.lineTo(x + 4, y - 7);
  return path;
}

function boundsOf(route: EdgePath): Box {
  const [xs, ys] = [route.points.map(([x]) => x), route.points.map(([, y]) => y)];
  return { left: Math.min(...xs), top: Math.min(...ys), right: Math.max(...xs), bottom: Math.max(...ys) };
}

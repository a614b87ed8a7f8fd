// Layout: places the boxes of a directed acyclic graph in layers, and routes the edges between them.
//
// The same four steps as the client's drawing (client/gradwire/_graph/graph_layout.py), so a notebook and this page show
// the same picture: longest-path layers, shared bends for long edges, order by the neighbours' means, and positions by
// least squares. Each step is iterative and about linear in boxes and edges.

export type Point = readonly [number, number];
export type Edge = readonly [number, number];

export const MARGIN = 12;
const BOX_GAP = 24;
const BEND_GAP = 16;
const PORT_GAP = 14;
const SWEEP_LIMIT = 500;
const ORDER_SWEEPS = 12;
const BENDS_PER_BOX = 6;

export interface EdgePath {
  points: Point[];
  /** False if the edge ends in the trunk of another edge to the same box, which has the arrowhead. */
  arrives: boolean;
}

export interface Layout {
  centres: Point[];
  layers: number[];
  routes: EdgePath[];
  width: number;
  height: number;
}

/** Lay out boxes of (width, height), joined by (from, to) pairs of their indices. Throws RangeError for a cycle. */
export function layOut(sizes: readonly Point[], edges: readonly Edge[]): Layout {
  const net = new Net(sizes, edges, layersOf(sizes.length, edges));
  const small = sizes.length <= SWEEP_LIMIT;
  order(net, small ? ORDER_SWEEPS : 0);
  let xs = positions(net, small ? 24 : 4);
  let left = 0;
  xs.forEach((x, v) => {
    left = v === 0 ? x - at(net.widths, v) / 2 : Math.min(left, x - at(net.widths, v) / 2);
  });
  left -= MARGIN;
  xs = xs.map((x) => x - left);
  let right = 0;
  xs.forEach((x, v) => {
    right = Math.max(right, x + at(net.widths, v) / 2);
  });
  const bands = bandsOf(net, xs);
  const middles = bands.map(([top, bottom]) => (top + bottom) / 2);
  const centres = net.layers.map((layer, box): Point => [at(xs, box), at(middles, layer)]);
  const bottom = bands.length ? at(bands, bands.length - 1)[1] : 0;
  return {
    centres,
    layers: net.layers,
    routes: routesOf(net, xs, bands),
    width: right + MARGIN,
    height: bottom + MARGIN,
  };
}

interface Trunk {
  /** The layer of its first bend. */
  start: number;
  bends: number[];
}

/** The boxes and, numbered after them, the bends of the long edges, linked from layer to layer. */
class Net {
  readonly widths: number[];
  rows: number[][];
  readonly above: number[][];
  readonly below: number[][];
  readonly trunks = new Map<number, Trunk>();

  constructor(
    readonly sizes: readonly Point[],
    readonly edges: readonly Edge[],
    readonly layers: number[],
  ) {
    this.widths = sizes.map(([width]) => width);
    this.rows = Array.from({ length: layers.reduce((most, layer) => Math.max(most, layer), -1) + 1 }, () => []);
    layers.forEach((layer, box) => at(this.rows, layer).push(box));
    this.buildTrunks();
    this.above = this.widths.map(() => []);
    this.below = this.widths.map(() => []);
    for (const [source, target] of edges) {
      const step = this.firstStep(source, target);
      if (step >= 0) this.link(source, step);
    }
    for (const [target, { bends }] of this.trunks) {
      bends.forEach((bend, i) => this.link(bend, bends[i + 1] ?? target));
    }
  }

  /** The box or bend of the next layer that an edge leads to; -1 for a long edge without bends. */
  firstStep(source: number, target: number): number {
    const next = at(this.layers, source) + 1;
    if (at(this.layers, target) === next) return target;
    const trunk = this.trunks.get(target);
    return trunk ? at(trunk.bends, next - trunk.start) : -1;
  }

  isBend(vertex: number): boolean {
    return vertex >= this.sizes.length;
  }

  /** The minimum distance between the centres of two neighbours in a row. */
  distance(left: number, right: number): number {
    const air = this.isBend(left) || this.isBend(right) ? BEND_GAP : BOX_GAP;
    return (at(this.widths, left) + at(this.widths, right)) / 2 + air;
  }

  private link(upper: number, lower: number): void {
    at(this.below, upper).push(lower);
    at(this.above, lower).push(upper);
  }

  private buildTrunks(): void {
    const starts = new Map<number, number>();
    for (const [source, target] of this.edges) {
      const below = at(this.layers, source) + 1;
      if (below < at(this.layers, target)) starts.set(target, Math.min(below, starts.get(target) ?? below));
    }
    let left = Math.max(2000, BENDS_PER_BOX * this.sizes.length);
    const shortestFirst = [...starts].sort(
      ([a, from], [b, other]) => at(this.layers, a) - from - (at(this.layers, b) - other),
    );
    for (const [target, start] of shortestFirst) {
      const length = at(this.layers, target) - start;
      left -= length;
      if (left < 0) return;
      const bends = Array.from({ length }, (_, i) => this.widths.length + i);
      for (const [i, bend] of bends.entries()) {
        this.widths.push(0);
        at(this.rows, start + i).push(bend);
      }
      this.trunks.set(target, { start, bends });
    }
  }
}

function layersOf(count: number, edges: readonly Edge[]): number[] {
  const waiting = new Array<number>(count).fill(0);
  const targets: number[][] = Array.from({ length: count }, () => []);
  for (const [source, target] of edges) {
    waiting[target] = at(waiting, target) + 1;
    at(targets, source).push(target);
  }
  const layers = new Array<number>(count).fill(0);
  const ready = waiting.flatMap((left, box) => (left === 0 ? [box] : []));
  for (let i = 0; i < ready.length; i++) {
    const box = at(ready, i);
    for (const target of at(targets, box)) {
      layers[target] = Math.max(at(layers, target), at(layers, box) + 1);
      waiting[target] = at(waiting, target) - 1;
      if (waiting[target] === 0) ready.push(target);
    }
  }
  if (ready.length < count) throw new RangeError("the graph has a cycle, so it has no layers to be drawn in");
  return layers;
}

/** Order the rows from the top, then sweep up and down and keep the order with the fewest crossings. */
function order(net: Net, sweeps: number): void {
  const place = new Array<number>(net.widths.length).fill(0);
  let upper: number[] = [];
  for (const row of net.rows) {
    const found = new Set(upper.flatMap((vertex) => at(net.below, vertex)));
    const rest = row.filter((vertex) => !found.has(vertex));
    row.splice(0, row.length, ...found, ...rest);
    sortRow(row, net.above, place);
    upper = row;
  }
  const copied = () => net.rows.map((row) => [...row]);
  let best = copied();
  let fewest = sweeps ? crossings(net, place) : 0;
  for (let turn = 0; turn < sweeps && fewest > 0; turn++) {
    const up = turn % 2 === 0;
    for (const row of up ? [...net.rows].reverse() : net.rows) sortRow(row, up ? net.below : net.above, place);
    const found = crossings(net, place);
    if (found < fewest) [best, fewest] = [copied(), found];
  }
  net.rows = best;
}

/** Sort a row by the mean place of the neighbours on one side. Vertices without neighbours keep their place. */
function sortRow(row: number[], towards: number[][], place: number[]): void {
  const means = new Map<number, number>();
  for (const vertex of row) {
    const ends = at(towards, vertex);
    if (ends.length) means.set(vertex, ends.reduce((sum, end) => sum + at(place, end), 0) / ends.length);
  }
  const moving = [...means.keys()].sort((one, other) => (means.get(one) ?? 0) - (means.get(other) ?? 0));
  let next = 0;
  for (let i = 0; i < row.length; i++) {
    if (means.has(at(row, i))) row[i] = at(moving, next++);
    place[at(row, i)] = i;
  }
}

function crossings(net: Net, place: number[]): number {
  let total = 0;
  for (const row of net.rows) {
    const seen: number[] = [];
    for (const vertex of row) {
      const ends = at(net.below, vertex)
        .map((end) => at(place, end))
        .sort((a, b) => a - b);
      for (const end of ends) total += seen.length - after(seen, end);
      for (const end of ends) seen.splice(after(seen, end), 0, end);
    }
  }
  return total;
}

/** The place in a sorted list after all values up to `value`. */
function after(sorted: readonly number[], value: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (value < at(sorted, middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The x of every box and bend: near the mean of its neighbours, in order and without overlap. */
function positions(net: Net, rounds: number): number[] {
  const xs = new Array<number>(net.widths.length).fill(0);
  for (const row of net.rows) {
    const places = roomsOf(net, row);
    row.forEach((vertex, i) => {
      xs[vertex] = at(places, i) - at(places, places.length - 1) / 2;
    });
  }
  for (let round = 0; round < rounds; round++) {
    for (const row of net.rows)
      placeRow(
        net,
        row,
        xs,
        row.map((vertex) => wishOf(net, vertex, xs, net.above)),
      );
    for (const row of [...net.rows].reverse())
      placeRow(
        net,
        row,
        xs,
        row.map((vertex) => wishOf(net, vertex, xs, net.below)),
      );
  }
  for (let round = 0; round < rounds; round++) straighten(net, xs);
  return xs;
}

/** Move the bends of each trunk towards one line, with little change to the boxes. */
function straighten(net: Net, xs: number[]): void {
  const lines = new Map<number, number>();
  for (const { bends } of net.trunks.values()) {
    const mean = bends.reduce((sum, bend) => sum + at(xs, bend), 0) / bends.length;
    for (const bend of bends) lines.set(bend, mean);
  }
  for (const row of net.rows) {
    placeRow(
      net,
      row,
      xs,
      row.map((v): Point => (lines.has(v) ? [lines.get(v) ?? 0, 1] : [at(xs, v), 4])),
    );
  }
}

function roomsOf(net: Net, row: readonly number[]): number[] {
  const rooms: number[] = [];
  row.forEach((vertex, i) => rooms.push(i === 0 ? 0 : at(rooms, i - 1) + net.distance(at(row, i - 1), vertex)));
  return rooms;
}

/** Place a row by least squares of its (place, weight) wishes. Vertices that would be too close are pooled. */
function placeRow(net: Net, row: readonly number[], xs: number[], wishes: readonly Point[]): void {
  const rooms = roomsOf(net, row);
  const pools: [weight: number, mean: number, members: number][] = [];
  wishes.forEach(([wish, given], i) => {
    let [weight, mean, members] = [given, wish - at(rooms, i), 1];
    for (let last = pools.at(-1); last && last[1] >= mean; last = pools.at(-1)) {
      pools.pop();
      mean = (weight * mean + last[0] * last[1]) / (weight + last[0]);
      weight += last[0];
      members += last[2];
    }
    pools.push([weight, mean, members]);
  });
  let i = 0;
  for (const [, mean, members] of pools) {
    for (let k = 0; k < members; k++, i++) xs[at(row, i)] = mean + at(rooms, i);
  }
}

function wishOf(net: Net, vertex: number, xs: readonly number[], towards: number[][]): Point {
  const ends = at(towards, vertex);
  if (!ends.length) return [at(xs, vertex), 0.1];
  if (net.isBend(vertex)) {
    const bend = ends.find((end) => net.isBend(end));
    if (bend !== undefined) return [at(xs, bend), 8]; // a trunk is straight before anything else
  }
  return [ends.reduce((sum, end) => sum + at(xs, end), 0) / ends.length, ends.length];
}

/** The top and bottom of every layer. Wide steps get more height between layers, for smooth curves. */
function bandsOf(net: Net, xs: readonly number[]): Point[] {
  const bands: Point[] = [];
  let top = MARGIN;
  for (const row of net.rows) {
    let [height, reach] = [0, 0];
    for (const v of row) {
      if (!net.isBend(v)) height = Math.max(height, at(net.sizes, v)[1]);
      for (const end of at(net.below, v)) reach = Math.max(reach, Math.abs(at(xs, v) - at(xs, end)));
    }
    bands.push([top, top + height]);
    top += height + Math.min(110, 30 + 0.1 * reach);
  }
  return bands;
}

function routesOf(net: Net, xs: readonly number[], bands: readonly Point[]): EdgePath[] {
  const steps = net.edges.map(([source, target]) => net.firstStep(source, target));
  const leave = leavingPorts(net, xs, steps);
  const owners = new Map<number, number>();
  net.edges.forEach(([source, target], e) => {
    const trunk = net.trunks.get(target);
    if (trunk && at(net.layers, source) + 1 === trunk.start && !owners.has(target)) owners.set(target, e);
  });
  const arrive = arrivingPorts(net, xs, steps, leave, owners);
  return net.edges.map(([source, target], e): EdgePath => {
    const [step, layer, x] = [at(steps, e), at(net.layers, source), at(leave, e)];
    const [top, bottom] = at(bands, layer);
    const points: Point[] = [
      [x, (top + bottom) / 2 + at(net.sizes, source)[1] / 2],
      [x, bottom],
    ];
    const trunk = net.trunks.get(target);
    if (trunk && net.isBend(step)) {
      if (owners.get(target) !== e) {
        points.push([at(xs, step), at(bands, layer + 1)[0]]);
        return { points: simplified(points), arrives: false };
      }
      trunk.bends.forEach((bend, i) => {
        for (const y of at(bands, trunk.start + i)) points.push([at(xs, bend), y]);
      });
    }
    const [above, below] = at(bands, at(net.layers, target));
    const end = arrive.get(e) ?? at(xs, target);
    points.push([end, above], [end, (above + below) / 2 - at(net.sizes, target)[1] / 2]);
    return { points: simplified(points), arrives: true };
  });
}

/** Spread a box's edges along its lower side, in the order of their targets. */
function leavingPorts(net: Net, xs: readonly number[], steps: readonly number[]): number[] {
  const leaving: number[][] = net.sizes.map(() => []);
  net.edges.forEach(([source], e) => at(leaving, source).push(e));
  const ports = new Array<number>(net.edges.length).fill(0);
  const goal = (e: number) => at(xs, at(steps, e) < 0 ? at(net.edges, e)[1] : at(steps, e));
  leaving.forEach((group, box) => {
    group.sort((one, other) => goal(one) - goal(other));
    const offsets = spread(group.length, at(net.widths, box));
    group.forEach((e, i) => {
      ports[e] = at(xs, box) + at(offsets, i);
    });
  });
  return ports;
}

/** Spread the edges that arrive at a box along its upper side. A trunk counts as one edge. */
function arrivingPorts(
  net: Net,
  xs: readonly number[],
  steps: readonly number[],
  leave: readonly number[],
  owners: ReadonlyMap<number, number>,
): Map<number, number> {
  const arriving: [x: number, e: number][][] = net.sizes.map(() => []);
  net.edges.forEach(([, target], e) => {
    const step = at(steps, e);
    if (step < 0 || !net.isBend(step)) at(arriving, target).push([at(leave, e), e]);
  });
  for (const [target, e] of owners)
    at(arriving, target).push([at(xs, net.trunks.get(target)?.bends.at(-1) ?? target), e]);
  const ports = new Map<number, number>();
  arriving.forEach((group, box) => {
    group.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
    const first = group[0];
    if (group.length === 1 && first && Math.abs(first[0] - at(xs, box)) < at(net.widths, box) / 2 - PORT_GAP) {
      ports.set(first[1], first[0]); // straight down rather than to the middle
      return;
    }
    const offsets = spread(group.length, at(net.widths, box));
    group.forEach(([, e], i) => ports.set(e, at(xs, box) + at(offsets, i)));
  });
  return ports;
}

function spread(count: number, width: number): number[] {
  const gap = Math.min(PORT_GAP, (0.7 * width) / Math.max(1, count - 1));
  return Array.from({ length: count }, (_, i) => (i - (count - 1) / 2) * gap);
}

/** Drop the points inside straight runs. */
function simplified(points: readonly Point[]): Point[] {
  const kept: Point[] = [];
  for (const point of points) {
    const [last, before] = [kept.at(-1), kept.at(-2)];
    if (last && before && Math.abs(before[0] - point[0]) < 0.05 && Math.abs(last[0] - point[0]) < 0.05) kept.pop();
    kept.push(point);
  }
  return kept;
}

/** An element that exists. */
function at<T>(list: readonly T[], index: number): T {
  return list[index] as T;
}

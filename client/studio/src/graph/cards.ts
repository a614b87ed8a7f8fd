// Cards: what is drawn of a graph. A card is a node, a folded run of operations without branches, or calls of modules.
import { counted, idText, shapeText } from "../format";
import { type Group, groupsOf, heads } from "./folding";
import type { Edge, Point } from "./layout";
import { type Graph, type Node, reachable } from "./model";

/** What a card looks like: each kind differs in outline, letter and colour. */
export type Look =
  | "root"
  | "op"
  | "leaf"
  | "leaf-none"
  | "retained"
  | "retained-none"
  | "freed"
  | "run"
  | "module"
  | "unknown";

export interface Card {
  /** The id of its node, or of the first node of a run. */
  id: number;
  /** The nodes that it stands for, from the root on. */
  nodes: number[];
  look: Look;
  lines: string[];
  /** The equal calls of modules that a folded card stands for. */
  calls?: readonly number[];
}

export interface Drawing {
  cards: Card[];
  edges: Edge[];
  sizes: Point[];
}

const SHORTEST_RUN = 3;
const LONGEST_LINE = 40;

/** How a graph is folded: runs of operations, and all calls of modules but the opened; null for none. */
export interface Folding {
  runs: boolean;
  /** Keys of opened calls, of opened rows of equal calls, and of the opened runs' nodes. */
  opened: ReadonlySet<string> | null;
}

export const nodeKey = (id: number) => `node ${id}`;

/** The drawing of the graph below nodes. */
export function drawn(graph: Graph, roots: readonly number[], folding: Folding, measure: Measure = estimated): Drawing {
  const ids = reachable(graph, roots);
  const groups = folding.opened ? groupsOf(graph, ids, folding.opened) : new Map<number, Group>();
  const inGroup = heads(groups);
  const runs = folding.runs ? runsOf(graph, ids, roots, folding.opened ?? new Set(), inGroup) : new Map();
  const headOf = new Map([...inGroup, ...heads(new Map([...runs].map(([head, nodes]) => [head, { nodes }])))]);
  const cards: Card[] = [];
  const index = new Map<number, number>();
  for (const id of ids) {
    const head = headOf.get(id) ?? id;
    if (index.has(head)) continue;
    index.set(head, cards.length);
    const group = groups.get(head);
    cards.push(group ? moduleCard(graph, head, group) : cardOf(graph, head, runs.get(head) ?? [head], roots));
  }
  const edges: Edge[] = [];
  const joined = new Set<string>();
  for (const id of ids) {
    const from = index.get(headOf.get(id) ?? id) ?? 0;
    for (const edge of graph.nodes.get(id)?.edges ?? []) {
      const to = index.get(headOf.get(edge.node) ?? edge.node);
      if (to === undefined || to === from) continue;
      const folded = inGroup.has(id) || inGroup.has(edge.node);
      if (folded && joined.has(`${from} ${to}`)) continue;
      joined.add(`${from} ${to}`);
      edges.push([from, to]);
    }
  }
  return { cards, edges, sizes: cards.map((card) => sizeOf(card, measure)) };
}

function moduleCard(graph: Graph, id: number, group: Group): Card {
  const [first, last] = [graph.calls[group.calls[0] ?? -1], graph.calls[group.calls.at(-1) ?? -1]];
  const kind = `${first?.kind ?? ""}${group.calls.length > 1 ? ` × ${group.calls.length}` : ""}`;
  const path = first?.path === last?.path ? (first?.path ?? "") : `${first?.path} … ${last?.path}`;
  const leaves = group.nodes.flatMap((each) => graph.nodes.get(each)?.leaf ?? []);
  const without = leaves.filter((leaf) => !leaf.hasGrad).length;
  const lines = [...(path ? [path] : []), kind, counted(group.nodes.length - leaves.length, "operation")];
  if (leaves.length)
    lines.push(
      `${counted(leaves.length, "leaf", "leaves")}${without ? `, ${without} without gradient` : ", all with gradient"}`,
    );
  return { id, nodes: group.nodes, calls: group.calls, look: "module", lines: lines.map(cut) };
}

/** Runs of operations with one way in and one way out, by their first node. */
function runsOf(
  graph: Graph,
  ids: readonly number[],
  roots: readonly number[],
  opened: ReadonlySet<string>,
  inGroup: ReadonlyMap<number, number>,
): Map<number, number[]> {
  const users = new Map<number, number>();
  const next = new Map<number, number>();
  for (const id of ids) {
    const targets = graph.nodes.get(id)?.edges.filter((edge) => graph.nodes.has(edge.node)) ?? [];
    for (const edge of targets) users.set(edge.node, (users.get(edge.node) ?? 0) + 1);
    if (targets.length === 1 && targets[0]) next.set(id, targets[0].node);
  }
  const joins = (id: number) =>
    plain(graph.nodes.get(id)) && !roots.includes(id) && next.has(id) && !opened.has(nodeKey(id)) && !inGroup.has(id);
  const callOf = (id: number) => graph.callOf.get(id) ?? -1;
  const runs = new Map<number, number[]>();
  const taken = new Set<number>();
  for (const id of ids) {
    if (taken.has(id) || !joins(id)) continue;
    const run = [id];
    for (let at = next.get(id); at !== undefined && users.get(at) === 1 && joins(at); at = next.get(at)) {
      if (callOf(at) !== callOf(id)) break;
      run.push(at);
    }
    if (run.length < SHORTEST_RUN) continue;
    for (const member of run) taken.add(member);
    runs.set(id, run);
  }
  return runs;
}

function plain(node: Node | undefined): boolean {
  return node !== undefined && node.leaf === null && !node.retainsGrad;
}

function cardOf(graph: Graph, id: number, nodes: number[], roots: readonly number[]): Card {
  const node = graph.nodes.get(id) as Node;
  if (nodes.length > 1) {
    const last = graph.nodes.get(nodes.at(-1) ?? id) as Node;
    return {
      id,
      nodes,
      look: "run",
      lines: [`${nodes.length} operations`, cut(`${opName(node.name)} … ${opName(last.name)}`)],
    };
  }
  if (node.leaf) {
    const facts = `${shapeText(node.leaf.shape)} ${node.leaf.dtype}`;
    const grad = node.leaf.hasGrad ? "has a gradient" : "gradient: None";
    return {
      id,
      nodes,
      look: node.leaf.hasGrad ? "leaf" : "leaf-none",
      lines: [cut(leafName(graph, node)), cut(facts), grad],
    };
  }
  const lines = [cut(opName(node.name))];
  const made = node.made[0];
  if (made) lines.push(cut(`${shapeText(made.shape)} ${made.dtype}`));
  if (node.retainsGrad)
    lines.push(node.made.some((each) => each.hasGrad) ? "gradient retained" : "retains, still None");
  const retained = node.made.some((each) => each.hasGrad) ? "retained" : "retained-none";
  const look = node.retainsGrad ? retained : roots.includes(id) ? "root" : node.freed ? "freed" : "op";
  return { id, nodes, look, lines };
}

/** An operation without the ending of its node's name. */
export function opName(name: string): string {
  return name.replace(/Backward\d*$/, "");
}

function leafName(graph: Graph, node: Node): string {
  const name = graph.names[node.leaf?.id ?? 0];
  if (name) return name;
  return node.leaf?.id ? `leaf ${idText(node.leaf.id)}` : "leaf";
}

function cut(text: string): string {
  return text.length > LONGEST_LINE ? `${text.slice(0, LONGEST_LINE - 1)}…` : text;
}

/** The width of a card's line in pixels; the first is in bold. */
export type Measure = (text: string, first: boolean) => number;

/** For places without a canvas. */
const estimated: Measure = (text, first) => text.length * (first ? 7.6 : 6.3);

/** The size of a card, with room for its text; the canvas draws with these sizes. */
function sizeOf(card: Card, measure: Measure): Point {
  const widest = Math.max(...card.lines.map((line, i) => measure(line, i === 0)));
  return [Math.round(Math.max(64, widest + 34)), 16 + 15 * card.lines.length];
}

/** Indices of cards that have the text in a name, a shape or an id. */
export function found(graph: Graph, drawing: Drawing, text: string): number[] {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  return drawing.cards.flatMap((card, i) => {
    const all = card.nodes
      .map((id) => graph.nodes.get(id))
      .flatMap((node) => [node?.name ?? "", ...(node?.made.map((each) => idText(each.id)) ?? [])]);
    const paths = card.nodes.map((id) => graph.calls[graph.callOf.get(id) ?? -1]?.path ?? "");
    return [...card.lines, ...all, ...paths].join(" ").toLowerCase().includes(wanted) ? [i] : [];
  });
}

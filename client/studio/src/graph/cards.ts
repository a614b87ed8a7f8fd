// Cards: what is drawn of a graph. A card is a node, or a folded run of operations without branches.
import { idText, shapeText } from "../format";
import type { Edge, Point } from "./layout";
import { type Graph, type Node, reachable } from "./model";

/** What a card looks like: each kind differs in outline, letter and colour. */
export type Look = "root" | "op" | "leaf" | "leaf-none" | "retained" | "retained-none" | "freed" | "run" | "unknown";

export interface Card {
  /** The id of its node, or of the first node of a run. */
  id: number;
  /** The nodes that it stands for, from the root on. */
  nodes: number[];
  look: Look;
  lines: string[];
}

export interface Drawing {
  cards: Card[];
  edges: Edge[];
  sizes: Point[];
}

const SHORTEST_RUN = 3;
const LONGEST_LINE = 40;

/** The drawing of the graph below a node. `fold` joins runs of operations, except those in `opened`. */
export function drawn(graph: Graph, root: number, fold: boolean, opened: ReadonlySet<number>): Drawing {
  const ids = reachable(graph, [root]);
  const runs = fold ? runsOf(graph, ids, root, opened) : new Map<number, number[]>();
  const headOf = new Map<number, number>();
  for (const [head, members] of runs) for (const member of members) headOf.set(member, head);
  const cards: Card[] = [];
  const index = new Map<number, number>();
  for (const id of ids) {
    const head = headOf.get(id) ?? id;
    if (head !== id) continue;
    index.set(id, cards.length);
    cards.push(cardOf(graph, id, runs.get(id) ?? [id], root));
  }
  const edges = new Map<string, Edge>();
  for (const card of cards) {
    const from = index.get(card.id) ?? 0;
    for (const edge of graph.nodes.get(card.nodes.at(-1) ?? 0)?.edges ?? []) {
      const to = index.get(headOf.get(edge.node) ?? edge.node);
      if (to !== undefined) edges.set(`${from} ${to} ${edges.size}`, [from, to]);
    }
  }
  return { cards, edges: [...edges.values()], sizes: cards.map(sizeOf) };
}

/** Runs of operations with one way in and one way out, by their first node. */
function runsOf(
  graph: Graph,
  ids: readonly number[],
  root: number,
  opened: ReadonlySet<number>,
): Map<number, number[]> {
  const users = new Map<number, number>();
  const next = new Map<number, number>();
  for (const id of ids) {
    const targets = graph.nodes.get(id)?.edges.filter((edge) => graph.nodes.has(edge.node)) ?? [];
    for (const edge of targets) users.set(edge.node, (users.get(edge.node) ?? 0) + 1);
    if (targets.length === 1 && targets[0]) next.set(id, targets[0].node);
  }
  const joins = (id: number) => plain(graph.nodes.get(id)) && id !== root && next.has(id) && !opened.has(id);
  const runs = new Map<number, number[]>();
  const taken = new Set<number>();
  for (const id of ids) {
    if (taken.has(id) || !joins(id)) continue;
    const run = [id];
    for (let at = next.get(id); at !== undefined && users.get(at) === 1 && joins(at); at = next.get(at)) run.push(at);
    if (run.length < SHORTEST_RUN) continue;
    for (const member of run) taken.add(member);
    runs.set(id, run);
  }
  return runs;
}

function plain(node: Node | undefined): boolean {
  return node !== undefined && node.leaf === null && !node.retainsGrad;
}

function cardOf(graph: Graph, id: number, nodes: number[], root: number): Card {
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
  const look = node.retainsGrad ? retained : id === root ? "root" : node.freed ? "freed" : "op";
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

/** About the size of a card's text; the canvas draws with these sizes. */
function sizeOf(card: Card): Point {
  const widths = card.lines.map((line, i) => line.length * (i === 0 ? 7.6 : 6.3));
  return [Math.round(Math.max(64, Math.max(...widths) + 34)), 16 + 15 * card.lines.length];
}

/** Indices of cards that have the text in a name, a shape or an id. */
export function found(graph: Graph, drawing: Drawing, text: string): number[] {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  return drawing.cards.flatMap((card, i) => {
    const all = card.nodes
      .map((id) => graph.nodes.get(id))
      .flatMap((node) => [node?.name ?? "", ...(node?.made.map((each) => idText(each.id)) ?? [])]);
    return [...card.lines, ...all].join(" ").toLowerCase().includes(wanted) ? [i] : [];
  });
}

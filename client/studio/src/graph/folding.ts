// Folding: joins the nodes of a graph by the calls of modules that made them.
//
// The same rules as the client's drawing (client/gradwire/_graph/folding.py), but each call is opened by itself.
// Neighbouring closed calls of equal modules are joined. A group that would be in a cycle is opened.
import type { Graph, Node } from "./model";

/** Nodes that are drawn as one card. */
export interface Group {
  /** Equal calls, in the order of the program. */
  calls: number[];
  nodes: number[];
}

export const LEGIBLE = 40;

/** The names of what a user opens: a call of a module, or equal calls that are joined. */
export const callKey = (call: number) => `call ${call}`;
export const runKey = (call: number) => `calls ${call}`;

/** A call and the calls around it, from the outermost on. */
export function chainOf(graph: Graph, call: number): number[] {
  const chain: number[] = [];
  for (let at = call; graph.calls[at]; ) {
    chain.unshift(at);
    const parent = graph.calls[at]?.parent ?? -1;
    at = parent < at ? parent : -1; // callers come first; anything else would be a circle
  }
  return chain;
}

/** What to open at first: as many levels as leave few cards; all of a small graph. */
export function openedAtFirst(graph: Graph, ids: readonly number[]): Set<string> {
  const chains = ids.map((id) => chainOf(graph, graph.callOf.get(id) ?? -1));
  const deepest = Math.max(0, ...chains.map((chain) => chain.length));
  let best = openedTo(chains, ids.length <= LEGIBLE ? deepest : 0);
  for (let depth = 1; depth <= deepest && ids.length > LEGIBLE; depth++) {
    const opened = openedTo(chains, depth);
    const groups = groupsOf(graph, ids, opened);
    const joined = [...groups.values()].reduce((sum, group) => sum + group.nodes.length - 1, 0);
    if (ids.length - joined > LEGIBLE) break;
    best = opened;
  }
  return best;
}

function openedTo(chains: readonly number[][], depth: number): Set<string> {
  const opened = new Set<string>();
  for (const chain of chains) for (const call of chain.slice(0, depth)) opened.add(callKey(call)).add(runKey(call));
  return opened;
}

/** The groups of the closed calls, by their first node. */
export function groupsOf(graph: Graph, ids: readonly number[], opened: ReadonlySet<string>): Map<number, Group> {
  const byCall = new Map<number, Node[]>();
  for (const id of ids) {
    const node = graph.nodes.get(id);
    const closed = chainOf(graph, graph.callOf.get(id) ?? -1).find((call) => !opened.has(callKey(call)));
    if (!node || closed === undefined) continue;
    const members = byCall.get(closed);
    if (members) members.push(node);
    else byCall.set(closed, [node]);
  }
  let runs = runsOf(graph, byCall, opened);
  for (;;) {
    const groups = withLeaves(graph, ids, runs, byCall);
    const torn = inCycles(graph, ids, groups);
    if (!torn.size) return groups;
    // A run is opened to its calls first, a call to its nodes.
    runs = runs.flatMap((run) => {
      const head = byCall.get(run[0] ?? -1)?.[0]?.id ?? 0;
      return torn.has(head) ? (run.length > 1 ? run.map((call) => [call]) : []) : [run];
    });
  }
}

/** Neighbouring closed calls with one caller, joined where class, parameters and inner modules are equal. */
function runsOf(graph: Graph, byCall: ReadonlyMap<number, Node[]>, opened: ReadonlySet<string>): number[][] {
  const runs: number[][] = [];
  const last = new Map<number, { run: number[]; form: string }>();
  graph.calls.forEach(({ parent }, call) => {
    const members = byCall.get(call);
    if (!members) {
      last.delete(parent); // an opened call parts its neighbours
      return;
    }
    const form = formOf(graph, call, members);
    const before = last.get(parent);
    if (before?.form === form && !opened.has(runKey(before.run[0] ?? -1))) before.run.push(call);
    else {
      const run = [call];
      runs.push(run);
      last.set(parent, { run, form });
    }
  });
  return runs;
}

function formOf(graph: Graph, call: number, members: readonly Node[]): string {
  const depth = chainOf(graph, call).length;
  const inside = new Set(
    members.map((node) =>
      chainOf(graph, graph.callOf.get(node.id) ?? -1)
        .slice(depth)
        .map((each) => graph.calls[each]?.kind)
        .join("/"),
    ),
  );
  const shapes = members.flatMap((node) =>
    node.edges.flatMap((edge) => {
      const leaf = graph.nodes.get(edge.node)?.leaf;
      return leaf ? [leaf.shape.join("×")] : [];
    }),
  );
  // The first layer lacks the nodes that lead to an input without grad, so parameters count more than nodes.
  const names = shapes.length ? [] : members.map((node) => node.name);
  return JSON.stringify([graph.calls[call]?.kind, [...inside].sort(), shapes.sort(), names.sort()]);
}

/** The groups, each with the leaves that only its nodes use. */
function withLeaves(
  graph: Graph,
  ids: readonly number[],
  runs: readonly number[][],
  byCall: ReadonlyMap<number, Node[]>,
): Map<number, Group> {
  const groups = new Map<number, Group>();
  const headOf = new Map<number, number>();
  for (const calls of runs) {
    const nodes = calls.flatMap((call) => byCall.get(call)?.map((node) => node.id) ?? []);
    const head = nodes[0] ?? 0;
    groups.set(head, { calls, nodes });
    for (const id of nodes) headOf.set(id, head);
  }
  const users = new Map<number, Set<number>>();
  for (const id of ids) {
    for (const edge of graph.nodes.get(id)?.edges ?? []) {
      const heads = users.get(edge.node) ?? new Set();
      users.set(edge.node, heads.add(headOf.get(id) ?? 0));
    }
  }
  for (const id of ids) {
    const heads = [...(users.get(id) ?? [])];
    if (graph.nodes.get(id)?.leaf && !headOf.has(id) && heads.length === 1) groups.get(heads[0] ?? 0)?.nodes.push(id);
  }
  for (const [head, group] of groups) if (group.nodes.length < 2) groups.delete(head);
  return groups;
}

/** The groups that are in a cycle or behind one. */
function inCycles(graph: Graph, ids: readonly number[], groups: ReadonlyMap<number, Group>): Set<number> {
  const headOf = heads(groups);
  const targets = new Map<number, Set<number>>();
  const waiting = new Map<number, number>();
  for (const id of ids) {
    const source = headOf.get(id) ?? id;
    const mine = targets.get(source) ?? new Set();
    targets.set(source, mine);
    if (!waiting.has(source)) waiting.set(source, 0);
    for (const edge of graph.nodes.get(id)?.edges ?? []) {
      const target = headOf.get(edge.node) ?? edge.node;
      if (!graph.nodes.has(edge.node) || target === source || mine.has(target)) continue;
      mine.add(target);
      waiting.set(target, (waiting.get(target) ?? 0) + 1);
    }
  }
  const ready = [...waiting].flatMap(([id, left]) => (left ? [] : [id]));
  for (let i = 0; i < ready.length; i++) {
    for (const target of targets.get(ready[i] ?? 0) ?? []) {
      const left = (waiting.get(target) ?? 0) - 1;
      waiting.set(target, left);
      if (!left) ready.push(target);
    }
  }
  return new Set([...waiting].flatMap(([id, left]) => (left && groups.has(id) ? [id] : [])));
}

/** The first node of the group that has a node. */
export function heads(groups: ReadonlyMap<number, { nodes: readonly number[] }>): Map<number, number> {
  const found = new Map<number, number>();
  for (const [head, { nodes }] of groups) for (const id of nodes) found.set(id, head);
  return found;
}

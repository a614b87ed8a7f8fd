// Folding by module: which calls are one card, what opens, and that no group makes a cycle.
import { expect, test } from "vitest";
import { callKey, chainOf, groupsOf, heads, openedAtFirst, runKey } from "../../src/graph/folding";
import type { Call, Graph, Node, Tensor } from "../../src/graph/model";

const LEAF = { id: 0, shape: [2], dtype: "float32", hasGrad: false } as unknown as Tensor;

/** A graph of [id, targets, call]; nodes without targets are leaves. */
function graphOf(calls: Call[], given: [number, number[], number][]): Graph {
  const nodes = given.map(([id, to, call]): [number, Node] => [
    id,
    {
      id,
      name: `Op${call}`,
      edges: to.map((node) => ({ node, output: 0 })),
      leaf: to.length ? null : LEAF,
      made: [],
      savedBytes: 0,
      saved: [],
      freed: false,
      retainsGrad: false,
      writer: 1,
      command: id,
    },
  ]);
  return {
    tensors: new Map(),
    nodes: new Map(nodes),
    nodeOf: new Map(),
    partial: false,
    names: {},
    lines: {},
    calls,
    callOf: new Map(given.map(([id, , call]) => [id, call])),
  };
}

const call = (path: string, parent = -1): Call => ({ path, kind: "Layer", parent });

/** A net of layers in a chain, each with two operations and a leaf, 100 · layer apart. */
function layers(count: number): Graph {
  const calls = [call(""), ...Array.from({ length: count }, (_, i) => call(`layers.${i}`, 0))];
  const nodes = Array.from({ length: count }, (_, i): [number, number[], number][] => {
    const base = 100 * (count - i);
    return [
      [base, [base + 1], i + 1],
      [base + 1, [base + 2, ...(i ? [base + 100] : [])], i + 1],
      [base + 2, [], -1],
    ];
  });
  return graphOf(calls, nodes.flat());
}

const ids = (graph: Graph) => [...graph.nodes.keys()];

test("equal neighbours are one group with their leaves, and open to calls, then to nodes", () => {
  const graph = layers(3);
  const closed = groupsOf(graph, ids(graph), new Set([callKey(0)]));
  expect([...closed.values()].map((group) => [group.calls, group.nodes.length])).toEqual([[[1, 2, 3], 9]]);
  const parted = groupsOf(graph, ids(graph), new Set([callKey(0), runKey(1), runKey(2), runKey(3)]));
  expect([...parted.values()].map((group) => group.calls)).toEqual([[1], [2], [3]]);
  const opened = groupsOf(graph, ids(graph), new Set([callKey(0), callKey(2)]));
  expect([...opened.values()].map((group) => group.calls)).toEqual([[1], [3]]);
  expect([...heads(opened).keys()].filter((id) => id >= 200 && id < 300)).toEqual([]);
});

test("a large graph is folded only as far as it must, a small one not at all", () => {
  const small = layers(3);
  expect(groupsOf(small, ids(small), openedAtFirst(small, ids(small))).size).toBe(0);
  const large = layers(20);
  const groups = groupsOf(large, ids(large), openedAtFirst(large, ids(large)));
  expect([...groups.values()].map((group) => group.calls.length)).toEqual([20]);
});

test("a call around other work would make a cycle, so it is opened", () => {
  const graph = graphOf(
    [call("cell")],
    [
      [1, [2], 0],
      [2, [3], -1],
      [3, [4], 0],
      [4, [], -1],
    ],
  );
  expect(groupsOf(graph, ids(graph), new Set()).size).toBe(0);
});

test("calls that name each other as callers end the chain", () => {
  const graph = graphOf([call("a", 1), call("b", 0)], []);
  expect(chainOf(graph, 0)).toEqual([0]);
  expect(chainOf(graph, 1)).toEqual([0, 1]);
});

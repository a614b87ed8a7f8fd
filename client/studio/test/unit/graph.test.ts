// The graph's parts: what is reachable, how runs fold, and why a gradient is None.
import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { type GraphNode, GraphNodeSchema } from "#contract/commands_pb";
import { Dtype } from "#contract/types_pb";
import { drawn, found } from "../../src/graph/cards";
import { assembled, type Graph, lastRoot, reachable, type Tensor } from "../../src/graph/model";
import { why } from "../../src/graph/why";

function tensor(id: number, more: Partial<Tensor> = {}): Tensor {
  return {
    id,
    dtype: "float32",
    shape: [2, 2],
    device: "cpu",
    requiresGrad: true,
    isLeaf: false,
    gradFn: "",
    retainsGrad: false,
    hasGrad: false,
    isView: false,
    version: 0,
    bytes: 16,
    ...more,
  };
}

function node(
  id: number,
  name: string,
  to: number[],
  more: Partial<{ freed: boolean; retainsGrad: boolean }> = {},
): GraphNode {
  return create(GraphNodeSchema, { id: BigInt(id), name, edges: to.map((each) => ({ node: BigInt(each) })), ...more });
}

function leaf(id: number, of: number, hasGrad = false): GraphNode {
  const spec = { id: BigInt(of), dtype: Dtype.FLOAT32, requiresGrad: true, isLeaf: true, hasGrad };
  return create(GraphNodeSchema, { id: BigInt(id), name: "AccumulateGrad", leaf: spec });
}

/** loss(13) = sum(exp(neg(abs(x)))) with x a leaf; y(14) = mul(x, w). */
function example(freed = false, grad = false): Graph {
  const tensors = [
    tensor(10, { isLeaf: true, hasGrad: grad }),
    tensor(11, { isLeaf: true }),
    tensor(12, { isLeaf: true }),
    tensor(13),
    tensor(14),
    tensor(15, { requiresGrad: false, isLeaf: true }),
    tensor(16, { dtype: "int64", requiresGrad: false, isLeaf: true }),
  ];
  const nodes = [
    node(1, "SumBackward0", [2], { freed }),
    node(2, "ExpBackward0", [3], { freed }),
    node(3, "NegBackward0", [4]),
    node(4, "AbsBackward0", [5], { freed }),
    leaf(5, 10, grad),
    node(6, "MulBackward0", [5, 7]),
    leaf(7, 11),
  ];
  return assembled(new Map(tensors.map((each) => [each.id, each])), nodes, [10, 11, 12, 13, 14], [0, 0, 0, 1, 6]);
}

test("tensors and nodes are joined", () => {
  const graph = example();
  expect([graph.nodeOf.get(13), graph.nodeOf.get(10), graph.nodeOf.get(12)]).toEqual([1, 5, undefined]);
  expect(graph.nodes.get(6)?.made.map((each) => each.id)).toEqual([14]);
  expect(reachable(graph, [1])).toEqual([1, 2, 3, 4, 5]);
  expect(reachable(graph, [99])).toEqual([]);
  expect(lastRoot(graph)).toBe(14);
});

test("a run of operations folds into one card, and opens again", () => {
  const graph = example();
  const plain = drawn(graph, [1], { runs: false, opened: new Set() });
  expect(plain.cards.map((card) => card.look)).toEqual(["root", "op", "op", "op", "leaf-none"]);
  expect(plain.edges).toEqual([
    [0, 1],
    [1, 2],
    [2, 3],
    [3, 4],
  ]);
  const folded = drawn(graph, [1], { runs: true, opened: new Set() });
  expect(folded.cards.map((card) => [card.look, card.nodes])).toEqual([
    ["root", [1]],
    ["run", [2, 3, 4]],
    ["leaf-none", [5]],
  ]);
  expect(folded.edges).toEqual([
    [0, 1],
    [1, 2],
  ]);
  expect(drawn(graph, [1], { runs: true, opened: new Set(["node 2", "node 3", "node 4"]) }).cards).toHaveLength(5);
  expect(found(graph, folded, "neg")).toEqual([1]);
  expect(found(graph, folded, "")).toEqual([]);
});

describe("why a gradient is None", () => {
  const said = (graph: Graph, id: number, root = 13) => why(graph, graph.tensors.get(id) as Tensor, root);
  test.each([
    [10, "no backward() has reached it yet"],
    [11, "no path of the graph leads from tensor 13 to it"],
    [12, "no tensor of the session was computed from it"],
    [13, "it is not a leaf"],
    [15, "does not require grad"],
    [16, "int64 has no gradients"],
  ])("of tensor %i", (id, part) => {
    expect(said(example(), id)).toContain(part);
  });

  test("after a backward whose gradient was cleared", () => {
    expect(said(example(true), 10)).toContain("the gradient was cleared");
  });

  test("and when it is there", () => {
    expect(said(example(true, true), 10)).toMatch(/^It has a gradient/);
  });

  test("of a tensor that retains its gradient", () => {
    const graph = example();
    graph.tensors.set(13, tensor(13, { retainsGrad: true }));
    expect(said(graph, 13)).toContain("since retain_grad()");
  });
});

// Model: a session's reverse graph as the page sees it, made of the answers of Describe and Graph.
import type { GraphNode } from "#contract/commands_pb";
import { Dtype, type TensorSpec } from "#contract/types_pb";

/** A tensor of the session. */
export interface Tensor {
  id: number;
  dtype: string;
  shape: number[];
  device: string;
  requiresGrad: boolean;
  isLeaf: boolean;
  gradFn: string;
  retainsGrad: boolean;
  hasGrad: boolean;
  isView: boolean;
  version: number;
  /** Bytes of its values. */
  bytes: number;
}

/** A node of the reverse graph. */
export interface Node {
  id: number;
  name: string;
  /** The nodes that receive its gradients; 0 for an input that needs none. */
  edges: { node: number; output: number }[];
  /** The leaf of an AccumulateGrad node. */
  leaf: Tensor | null;
  /** The tensors of the session that it made. */
  made: Tensor[];
  savedBytes: number;
  saved: string[];
  freed: boolean;
  retainsGrad: boolean;
  /** The writer and the number of the command that made it; 0 if unknown. */
  writer: number;
  command: number;
}

/** One call of a module: its path in the outermost module, its class, and the index of the call around it, or -1. */
export interface Call {
  path: string;
  kind: string;
  parent: number;
}

/** A session's tensors and nodes at one moment. */
export interface Graph {
  tensors: Map<number, Tensor>;
  nodes: Map<number, Node>;
  /** The node that made a tensor, or the AccumulateGrad node of a leaf, by the tensor's id. */
  nodeOf: Map<number, number>;
  /** Whether there were more tensors or nodes than the page takes. */
  partial: boolean;
  /** Names of tensors and lines of nodes, where a program told them. */
  names: Record<string, string>;
  lines: Record<string, string>;
  /** Calls of modules, callers before callees, and the index of the innermost that made a node. */
  calls: readonly Call[];
  callOf: ReadonlyMap<number, number>;
}

/** What a program told about its session. */
export interface Told {
  names?: Record<string, string>;
  lines?: Record<string, string>;
  calls?: readonly Call[];
  callOf?: Record<string, number>;
}

/** The graph with what a program told. */
export function withTold(graph: Graph, told: Told): Graph {
  const callOf = new Map(Object.entries(told.callOf ?? {}).map(([node, call]) => [Number(node), call]));
  return { ...graph, names: told.names ?? {}, lines: told.lines ?? {}, calls: told.calls ?? [], callOf };
}

export const SIZES: Record<string, number> = {
  float32: 4,
  float64: 8,
  float16: 2,
  bfloat16: 2,
  int8: 1,
  int16: 2,
  int32: 4,
  int64: 8,
  uint8: 1,
  bool: 1,
  complex64: 8,
  complex128: 16,
  uint16: 2,
  uint32: 4,
  uint64: 8,
};

/** A dtype's name: "float32". */
export function dtypeName(dtype: Dtype): string {
  return (Dtype[dtype] ?? "UNSPECIFIED").toLowerCase();
}

/** Number of elements of a shape. */
export function elements(shape: readonly number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}

/** A tensor from its description. */
export function tensorOf(spec: TensorSpec): Tensor {
  const shape = spec.shape.map(Number);
  const dtype = dtypeName(spec.dtype);
  return {
    id: Number(spec.id),
    dtype,
    shape,
    device: spec.device,
    requiresGrad: spec.requiresGrad,
    isLeaf: spec.isLeaf,
    gradFn: spec.gradFn,
    retainsGrad: spec.retainsGrad,
    hasGrad: spec.hasGrad,
    isView: spec.isView,
    version: Number(spec.version),
    bytes: elements(shape) * (SIZES[dtype] ?? 0),
  };
}

/** Join tensors and nodes. `roots` has the node of each asked tensor, 0 for a leaf. */
export function assembled(
  tensors: Map<number, Tensor>,
  listed: readonly GraphNode[],
  asked: readonly number[],
  roots: readonly number[],
): Graph {
  const nodes = new Map<number, Node>();
  const nodeOf = new Map<number, number>();
  for (const each of listed) {
    const node = nodeFrom(each);
    nodes.set(node.id, node);
    if (node.leaf?.id) nodeOf.set(node.leaf.id, node.id);
  }
  asked.forEach((id, i) => {
    const [root, tensor] = [roots[i] ?? 0, tensors.get(id)];
    if (!root || !tensor) return;
    nodeOf.set(id, root);
    nodes.get(root)?.made.push(tensor);
  });
  return { tensors, nodes, nodeOf, partial: false, names: {}, lines: {}, calls: [], callOf: new Map() };
}

function nodeFrom(message: GraphNode): Node {
  const saved = message.saved.map((each) => `${each.name} ${dtypeName(each.dtype)} (${each.shape.join(", ")})`);
  return {
    id: Number(message.id),
    name: message.name,
    edges: message.edges.map((edge) => ({ node: Number(edge.node), output: edge.output })),
    leaf: message.leaf ? tensorOf(message.leaf) : null,
    made: [],
    savedBytes: Number(message.savedBytes),
    saved,
    freed: message.freed,
    retainsGrad: message.retainsGrad,
    writer: Number(message.command >> 40n),
    command: Number(message.command & ((1n << 40n) - 1n)),
  };
}

/** The ids of the nodes that a backward from these nodes reaches, in the order of the walk. */
export function reachable(graph: Graph, roots: readonly number[]): number[] {
  const seen = new Set(roots.filter((root) => graph.nodes.has(root)));
  for (const id of seen) {
    // A set's loop also visits what is added during it.
    for (const edge of graph.nodes.get(id)?.edges ?? []) if (graph.nodes.has(edge.node)) seen.add(edge.node);
  }
  return [...seen];
}

/** The tensor that the page shows first: the last with history that no other tensor uses. */
export function lastRoot(graph: Graph): number {
  const used = new Set([...graph.nodes.values()].flatMap((node) => node.edges.map((edge) => edge.node)));
  const ends = [...graph.tensors.values()].filter(
    (tensor) => !tensor.isLeaf && !used.has(graph.nodeOf.get(tensor.id) ?? 0),
  );
  return ends.reduce((last, tensor) => Math.max(last, tensor.id), 0);
}

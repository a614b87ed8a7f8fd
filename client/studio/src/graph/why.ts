// Why: says in a sentence why a tensor's gradient is None, and what to call. The rules are those of `gradwire.explain`.
import { idText } from "../format";
import { type Graph, reachable, type Tensor } from "./model";

const DIFFERENTIABLE = /^(float|bfloat|complex)/;

/** What a tensor is to autograd, as drawn. */
export type Kind = "leaf" | "retained" | "passed" | "constant";

export function kindOf(tensor: Tensor): Kind {
  if (!tensor.requiresGrad) return "constant";
  if (tensor.isLeaf) return "leaf";
  return tensor.retainsGrad ? "retained" : "passed";
}

/** Why the tensor's gradient is there or is None. `root` is the tensor whose graph is shown; 0 for none. */
export function why(graph: Graph, tensor: Tensor, root: number): string {
  if (tensor.hasGrad) {
    const more = tensor.isLeaf ? " The next backward() adds to it." : "";
    return `It has a gradient: a backward() has reached it.${more}`;
  }
  if (!DIFFERENTIABLE.test(tensor.dtype))
    return `Its gradient is None because ${tensor.dtype} has no gradients. Cast it to a floating dtype for one.`;
  const node = graph.nodeOf.get(tensor.id);
  if (!tensor.requiresGrad && node !== undefined) {
    return "Its gradient is None because it no longer requires grad: requires_grad_(False) was called after it was used. Call requires_grad_() to let the next backward() reach it.";
  }
  if (!tensor.requiresGrad) {
    return "Its gradient is None because it does not require grad: it is a constant, or was made under no_grad() or by detach(). Call requires_grad_() before you compute with it.";
  }
  if (!tensor.isLeaf && !tensor.retainsGrad) {
    return "Its gradient is None because it is not a leaf: backward() passes its gradient on and does not keep it. Call retain_grad() before backward().";
  }
  const from = root ? graph.nodeOf.get(root) : undefined;
  const inside = node !== undefined && from !== undefined && reachable(graph, [from]).includes(node);
  if (!tensor.isLeaf)
    return missing(
      graph,
      node,
      "No backward() has passed it since retain_grad().",
      " So it is if retain_grad() was called after the backward().",
    );
  if (node === undefined)
    return "Its gradient is None because no tensor of the session was computed from it. It was not used, or only under no_grad() or through detach().";
  if (!inside && from !== undefined) {
    return `Its gradient is None because no path of the graph leads from tensor ${idText(root)} to it. That tensor was computed without it, or through detach() or no_grad().`;
  }
  return missing(graph, node, "No backward() has reached it yet.");
}

/** The sentence for a tensor that could have a gradient: whether its graph was used by a backward. */
function missing(graph: Graph, node: number | undefined, otherwise: string, late = ""): string {
  if (node !== undefined && above(graph, node).some((id) => graph.nodes.get(id)?.freed)) {
    return `Its gradient is None although a backward() has used its graph: the gradient was cleared, as zero_grad() does, that backward() had other inputs=, or a Function on the way returned None for it.${late}`;
  }
  return `Its gradient is None: ${otherwise.charAt(0).toLowerCase()}${otherwise.slice(1)} Call backward() on a result that depends on it.`;
}

/** The node and all nodes from which a backward reaches it. */
function above(graph: Graph, node: number): number[] {
  const users = new Map<number, number[]>();
  for (const each of graph.nodes.values()) {
    for (const edge of each.edges) users.set(edge.node, [...(users.get(edge.node) ?? []), each.id]);
  }
  const seen = new Set([node]);
  for (const id of seen) for (const user of users.get(id) ?? []) seen.add(user);
  return [...seen];
}

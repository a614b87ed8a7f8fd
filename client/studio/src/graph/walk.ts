// Walk: the steps of a backward from a tensor, with the gradients that arrive, without a change to the session.
//
// One Gradients command computes the gradients of every tensor that the session names, with the graph kept, into ids of
// this page. No leaf's gradient changes. A tensor that retains its gradient would get a new one, so the same batch names
// the old one first and sets it again. The values are read at once and the ids released. Hooks are the program's: the server refuses a
// walk through one.
import { create as message } from "@bufbuild/protobuf";
import { ArgumentSchema } from "#contract/types_pb";
import { server } from "../calls";
import { bytesText, counted } from "../format";
import { elements, type Graph, reachable, type Tensor } from "./model";
import { listTensors, ownBatch, ownIds, readValues } from "./reading";
import type { Values } from "./values";

/** A node that the backward passes. */
export interface Step {
  node: number;
  /** The tensor whose gradient is complete at this step; 0 where the session names none. */
  tensor: number;
  gradient: Values | null;
  /** Why there is no gradient to show. */
  note: string;
}

export const MOST_STEPS = 5000;
const MOST_TENSORS = 256;
const MOST_BYTES = 8 << 20;

/** The nodes in the order in which a backward passes them: the newest first, and a leaf as soon as it is reached. */
export function backwardOrder(graph: Graph, root: number): number[] {
  const ids = reachable(graph, [root]);
  const waiting = new Map<number, number>(ids.map((id) => [id, 0]));
  for (const id of ids) {
    for (const { node } of graph.nodes.get(id)?.edges ?? []) {
      if (waiting.has(node)) waiting.set(node, (waiting.get(node) ?? 0) + 1);
    }
  }
  const rank = (id: number) => (graph.nodes.get(id)?.leaf ? Infinity : id);
  const ready = [root].filter((id) => graph.nodes.has(id));
  const order: number[] = [];
  while (ready.length) {
    const id = ready.splice(
      ready.reduce((best, each, i) => (rank(each) > rank(ready[best] ?? 0) ? i : best), 0),
      1,
    )[0];
    if (id === undefined) break;
    order.push(id);
    for (const { node } of graph.nodes.get(id)?.edges ?? []) {
      const left = (waiting.get(node) ?? 0) - 1;
      waiting.set(node, left);
      if (left === 0) ready.push(node);
    }
  }
  return order;
}

/** The tensors to read a gradient of, by node, and why others are left out. Throws an Error with the refusal. */
export function planned(graph: Graph, root: number): { steps: Step[]; tensors: Tensor[] } {
  const order = backwardOrder(graph, graph.nodeOf.get(root) ?? 0);
  if (!order.length) throw new Error("This tensor has no graph: it does not require grad, so there is no backward.");
  if (order.length > MOST_STEPS)
    throw new Error(`The graph has ${order.length} nodes; a walk takes at most ${MOST_STEPS}.`);
  const freed = order.filter((id) => graph.nodes.get(id)?.freed).length;
  if (freed)
    throw new Error(
      `A backward() has freed the values of ${counted(freed, "node")}, so the gradients cannot be computed again. Compute the result again, or call backward(retain_graph=True).`,
    );
  const tensors: Tensor[] = [];
  let bytes = 0;
  const steps = order.map((id): Step => {
    const node = graph.nodes.get(id);
    const tensor = node?.leaf?.id ? node.leaf : node?.made[0];
    if (!tensor) return { node: id, tensor: 0, gradient: null, note: "No tensor of the session names this gradient." };
    if (tensors.length >= MOST_TENSORS || bytes + tensor.bytes > MOST_BYTES)
      return { node: id, tensor: 0, gradient: null, note: `Not read: a walk reads ${bytesText(MOST_BYTES)} at most.` };
    bytes += tensor.bytes;
    tensors.push(tensor);
    return { node: id, tensor: tensor.id, gradient: null, note: "" };
  });
  return { steps, tensors };
}

/** The steps of a backward from a tensor. Throws the refusal of the page or of the server. */
export async function walkOf(session: string, graph: Graph, root: number): Promise<Step[]> {
  const { steps, tensors } = planned(graph, root);
  const from = graph.tensors.get(root);
  if (!from) throw new Error("The session has no such tensor any more.");
  // As it is now: the program may have retained or received gradients since the page has read the graph.
  const { tensors: present, partial } = await listTensors(session);
  if (partial) throw new Error("The session has too many tensors to tell which of them retain gradients.");
  const retained = steps.flatMap(({ node }) =>
    (graph.nodes.get(node)?.made ?? []).flatMap(({ id }) => present.get(id) ?? []).filter((each) => each.retainsGrad),
  );
  const ids = await ownIds(session, 1 + tensors.length + retained.length);
  const [seed = 0n, ...others] = ids;
  const results = others.slice(0, tensors.length);
  const old = retained.map(({ id, hasGrad }, i) => ({
    tensor: BigInt(id),
    grad: hasGrad ? (others[tensors.length + i] ?? 0n) : 0n,
  }));
  const held = old.filter(({ grad }) => grad);
  try {
    const scalar = elements(from.shape) === 1;
    const ones = message(ArgumentSchema, { kind: { case: "tensor", value: BigInt(root) } });
    // All in one batch, so that no command of the program comes between the reads and the writes.
    const answers = await ownBatch(session, [
      ...held.map(({ tensor, grad }) => ({ case: "grad" as const, value: { tensor, id: grad } })),
      ...(scalar ? [] : [{ case: "op" as const, value: { op: "ones_like", args: [ones], outputs: [seed] } }]),
      {
        case: "gradients" as const,
        value: {
          outputs: [BigInt(root)],
          gradOutputs: scalar ? [] : [seed],
          inputs: tensors.map((tensor) => BigInt(tensor.id)),
          retainGraph: true,
          allowUnused: true,
          results,
        },
      },
      ...old.map((value) => ({ case: "setGrad" as const, value })),
    ]);
    const failed = answers.find((answer) => answer.result.case === "error");
    if (failed?.result.case === "error") throw new Error(failed.result.value.message);
    const found = answers.flatMap((answer) =>
      answer.result.case === "gradients" ? answer.result.value.gradients : [],
    );
    const values = new Map<number, Values>();
    for (const [i, tensor] of tensors.entries()) {
      if (found[i]?.id) values.set(tensor.id, await readValues(session, Number(found[i].id)));
    }
    return steps.map((step) => {
      const gradient = values.get(step.tensor) ?? null;
      return { ...step, gradient, note: gradient ? "" : step.note || "No gradient arrives here." };
    });
  } finally {
    await server.release({ sessionId: session, tensors: ids });
  }
}

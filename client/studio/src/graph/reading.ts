// Reading: asks the server for a session's graph, and for values and gradients, without changing the session's names.
//
// One question about all tensors with history gives every node and tells which tensor which node made. The graph of one
// tensor is then a part of it, found by the page. Grad gives the gradient an id: the page attaches as a writer of its
// own and takes ids of its own range, so it releases only what it named.
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { GraphResponse } from "#contract/commands_pb";
import type { CommandSchema, Result } from "#contract/service_pb";
import type { Payload } from "#contract/types_pb";
import { download, server } from "../calls";
import { assembled, dtypeName, type Graph, type Tensor, tensorOf } from "./model";
import { decoded, type Values } from "./values";
import { Writers } from "./writers";

const PAGE = 5000;
/** Limits of what is asked for; a session may have more. */
export const MOST_TENSORS = 10_000;
export const MOST_NODES = 20_000;

/** List a session's tensors, up to MOST_TENSORS. */
export async function listTensors(session: string): Promise<{ tensors: Map<number, Tensor>; partial: boolean }> {
  const tensors = new Map<number, Tensor>();
  for (let after = 0n; ; ) {
    const page = await server.describe({ sessionId: session, list: true, after, pageSize: PAGE });
    for (const spec of page.tensors) tensors.set(Number(spec.id), tensorOf(spec));
    after = page.tensors.at(-1)?.id ?? after;
    if (!page.more || tensors.size >= MOST_TENSORS) return { tensors, partial: page.more };
  }
}

/** A session's tensors and reverse graph. Throws the server's refusal. */
export async function fetchGraph(session: string): Promise<Graph> {
  const { tensors, partial } = await listTensors(session);
  const asked = [...tensors.values()].filter((tensor) => tensor.requiresGrad).map((tensor) => BigInt(tensor.id));
  const pages: GraphResponse[] = [];
  let count = 0;
  for (let pageToken = ""; asked.length; ) {
    const page = await server.graph({ sessionId: session, tensors: asked, pageSize: PAGE, pageToken, withSaved: true });
    pages.push(page);
    count += page.nodes.length;
    pageToken = page.nextPageToken;
    if (!pageToken || count >= MOST_NODES) break;
  }
  const roots = pages[0]?.roots.map(Number) ?? [];
  const graph = assembled(
    tensors,
    pages.flatMap((page) => page.nodes),
    asked.map(Number),
    roots,
  );
  graph.partial = partial || Boolean(pages.at(-1)?.nextPageToken);
  return graph;
}

/** Read a tensor's values. Throws the server's refusal. */
export async function readValues(session: string, tensor: number): Promise<Values> {
  const answer = await server.read({ sessionId: session, tensor: BigInt(tensor) });
  if (answer.result.case === "transfer") {
    const { dtype, shape, transferId } = answer.result.value;
    return decoded(dtypeName(dtype), shape.map(Number), await download(session, transferId));
  }
  const payload = answer.result.value as Payload;
  return decoded(dtypeName(payload.dtype), payload.shape.map(Number), payload.data);
}

/** This page as a writer of sessions. */
export const writers = new Writers(
  (session) => server.openSession({ sessionId: session, client: "gradwire-studio" }),
  () => sessionStorage,
);

/** Ids of this page's own range. Throws an Error if the session has no range left, or the server's refusal. */
export async function ownIds(session: string, count: number): Promise<bigint[]> {
  const mine = await writers.of(session);
  if (!mine.next) throw new Error("The session has no ids left for this page.");
  const first = mine.next;
  mine.next += BigInt(count);
  return Array.from({ length: count }, (_, i) => first + BigInt(i));
}

async function ownId(session: string): Promise<bigint> {
  const mine = await writers.of(session);
  // 0 says that no range is left: then the server chooses.
  return mine.next && mine.next++;
}

/** Run commands in one batch, in order; their answers, refusals among them. Throws the batch's refusal. */
export function ownBatch(
  session: string,
  commands: MessageInitShape<typeof CommandSchema>["command"][],
): Promise<Result[]> {
  return writers.batch(session, commands.length, async ({ writer, seq }) => {
    const { results } = await server.run({
      sessionId: session,
      writer,
      firstSeq: seq,
      acknowledgedSeq: seq - 1n,
      commands: commands.map((command) => ({ command })),
    });
    return results;
  });
}

/** A tensor's gradient; null where it has none. Throws the server's refusal. */
export async function readGradient(session: string, tensor: number): Promise<Values | null> {
  const id = await ownId(session);
  const { grad } = await server.grad({ sessionId: session, tensor: BigInt(tensor), id });
  if (!grad) return null;
  try {
    return await readValues(session, Number(grad.id));
  } finally {
    if (id) await server.release({ sessionId: session, tensors: [id] });
  }
}

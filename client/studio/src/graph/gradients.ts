// Gradients: reads a tensor's gradient without changing the session's names.
//
// Grad gives the gradient an id. The page attaches as a writer of its own and takes ids of its own range, so it releases
// only what it named.
import { server } from "../calls";
import { readValues, type Values } from "./values";

const nextIds = new Map<string, bigint>();

async function ownId(session: string): Promise<bigint> {
  let next = nextIds.get(session);
  if (next === undefined) next = (await server.openSession({ sessionId: session, client: "gradwire-studio" })).firstId;
  // 0 says that no range is left: then the server chooses.
  nextIds.set(session, next && next + 1n);
  return next;
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

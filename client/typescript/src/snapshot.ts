/** Sessions from snapshots, which `Session.save` makes. */

import { AutogradService } from "./gen/gradwire/v1/service_pb.js";
import type { RestoredTensor } from "./gen/gradwire/v1/snapshots_pb.js";
import { placed, requested, Session, type SessionOptions } from "./session.js";
import type { Tensor } from "./tensor.js";
import type { Dial } from "./transport.js";

/** A session from a snapshot. */
export interface Restored {
  readonly session: Session;
  /** The tensors that were saved under names. */
  readonly tensors: Record<string, Tensor>;
}

/** @internal Open a session from a snapshot on one of several servers. */
export async function restored(
  addresses: readonly string[],
  dial: Dial,
  name: string,
  options: SessionOptions,
): Promise<Restored> {
  let named: RestoredTensor[] = [];
  const session = await Session.begin(addresses, dial, options, async (servers) => {
    const request = { ...requested(options), name, namedOnly: true };
    return placed(servers, async (followsEndpoint) => {
      const answer = await servers.open(AutogradService.method.restoreSession, { ...request, followsEndpoint });
      named = answer.tensors;
      if (!answer.session) throw new TypeError("the server restored no session");
      return answer.session;
    });
  });
  const known = new Map<number, Tensor>(); // a tensor may have several names
  const entries = named.map((each) => {
    const id = Number(each.spec?.id ?? 0);
    const tensor = known.get(id) ?? session.adopt(id);
    known.set(id, tensor);
    return [each.name, tensor] as const;
  });
  return { session, tensors: Object.fromEntries(entries) };
}

// The source of a live session: values, gradients and the steps of a backward, asked of the server.
import { sentence } from "../calls";
import type { Source } from "./details";
import { readGradient, readValues } from "./reading";
import { walkOf } from "./walk";

/** Where the view of a session's graph gets values. Refusals are sentences. */
export function sourceOf(session: string): Source {
  return {
    values: (tensor) => told(readValues(session, tensor)),
    gradient: (tensor) => told(readGradient(session, tensor)),
    walk: (shown, root) => told(walkOf(session, shown, root)),
  };
}

function told<Value>(promise: Promise<Value>): Promise<Value> {
  return promise.catch((error: unknown) => {
    throw new Error(sentence(error));
  });
}

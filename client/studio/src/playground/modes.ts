// Modes: no_grad and its like around a block. The session's mode is that of the ops that follow.
import { GradMode } from "#contract/types_pb";
import type { Session } from "#sdk/session";
import type { Mode } from "./objects";

const MODES: Record<Mode["kind"], GradMode> = {
  no_grad: GradMode.DISABLED,
  enable_grad: GradMode.UNSPECIFIED,
  inference_mode: GradMode.INFERENCE,
};

/** Run f in a mode. */
export async function inMode<T>(session: Session, mode: Mode, f: () => Promise<T>): Promise<T> {
  const before = session.gradMode;
  session.gradMode = MODES[mode.kind];
  try {
    return await f();
  } finally {
    session.gradMode = before;
  }
}

/** Whether ops record a graph now. */
export function gradEnabled(session: Session): boolean {
  return session.gradMode !== GradMode.DISABLED && session.gradMode !== GradMode.INFERENCE;
}

/** Backward, gradients and hooks. */

import type { CommandInit } from "./batch.js";
import { Call } from "./call.js";
import { fromMessage, GradwireError, Reason, refusal } from "./errors.js";
import { type HookCall, HookKind, type TensorSpec } from "./gen/gradwire/v1/types_pb.js";
import type { Session } from "./session.js";
import type { Tensor } from "./tensor.js";

/** What `backward` can do without. */
export interface BackwardOptions {
  /** Gradients of the tensors, in order. One of a tensor with one element may be missing: then it is 1. */
  gradients?: readonly (Tensor | null)[];
  /** Keep the graph's saved values for another backward. */
  retainGraph?: boolean;
  /** Make the gradients themselves differentiable, and keep the graph. */
  createGraph?: boolean;
  /** The only tensors that receive gradients. */
  inputs?: readonly Tensor[];
  /** Refuse a backward in which a node yields nan. */
  checkNan?: boolean;
}

/** What `grad` can do without. */
export interface GradOptions extends Omit<BackwardOptions, "inputs"> {
  /** Return null for an input that the outputs do not depend on. */
  allowUnused?: boolean;
}

type Gradient = (gradient: Tensor) => Tensor | void | Promise<Tensor | void>;
type Accumulated = (leaf: Tensor) => void | Promise<void>;

/** @internal The function of a hook. */
export type HookEntry = { gradient: Gradient } | { accumulated: Accumulated; leaf: Tensor };

/** A registered hook. */
export class Hook {
  /** @internal */
  constructor(
    private readonly session: Session,
    private readonly id: number,
  ) {}

  /** Remove the hook. */
  remove(): void {
    if (!this.session.hooks.delete(this.id)) return;
    this.session.sink.send({ case: "removeHook", value: { hook: BigInt(this.id) } });
  }

  /** `using hook = …` removes the hook at the end of the block. */
  [Symbol.dispose](): void {
    this.remove();
  }
}

/** The session of all tensors. Notes mistakes for the next wait, and throws them. */
function sessionOf(op: string, ...lists: (readonly (Tensor | null)[] | undefined)[]): Session {
  const call = new Call(op);
  let session: Session | undefined;
  for (const tensor of lists.flatMap((list) => list ?? [])) {
    if (!tensor) continue;
    session ??= tensor.session;
    call.idOf("tensors", tensor);
  }
  if (!session) throw refusal(Reason.ARGUMENT_VALUE, `${op}: there is no tensor`);
  call.check();
  return session;
}

function ids(tensors: readonly (Tensor | null)[] | undefined): bigint[] {
  return (tensors ?? []).map((each) => BigInt(each?.id ?? 0));
}

function common(options: BackwardOptions | GradOptions) {
  const { retainGraph, createGraph, checkNan } = options;
  return { retainGraph: retainGraph || undefined, createGraph: createGraph ?? false, checkNan: checkNan ?? false };
}

/** Differentiate several tensors at once (torch.autograd.backward). See `Tensor.backward`. */
export async function backward(tensors: readonly Tensor[], options: BackwardOptions = {}): Promise<void> {
  const session = sessionOf("backward", tensors, options.gradients, options.inputs);
  const answersHooks = session.hooks.size > 0;
  const lists = { tensors: ids(tensors), gradients: ids(options.gradients), inputs: ids(options.inputs) };
  const command: CommandInit = { case: "backward", value: { ...lists, ...common(options), answersHooks } };
  if (answersHooks) {
    await runHooks(session, command);
    return;
  }
  session.sink.send(command);
  await session.sink.room();
}

/**
 * The gradients of outputs by inputs; changes no leaf's (torch.autograd.grad). The command is queued at once. The promise
 * waits for hooks and, with `allowUnused`, for the answer.
 */
export async function grad(
  outputs: readonly Tensor[],
  inputs: readonly Tensor[],
  options: GradOptions & { allowUnused: true },
): Promise<(Tensor | null)[]>;
export async function grad(
  outputs: readonly Tensor[],
  inputs: readonly Tensor[],
  options?: GradOptions & { allowUnused?: false },
): Promise<Tensor[]>;
export async function grad(
  outputs: readonly Tensor[],
  inputs: readonly Tensor[],
  options: GradOptions = {},
): Promise<(Tensor | null)[]> {
  const session = sessionOf("grad", outputs, inputs, options.gradients);
  const answersHooks = session.hooks.size > 0;
  const allowUnused = options.allowUnused ?? false;
  const made = inputs.map(() => session.newTensor());
  const lists = { outputs: ids(outputs), inputs: ids(inputs), gradOutputs: ids(options.gradients), results: ids(made) };
  const value = { ...lists, ...common(options), allowUnused, answersHooks };
  const command: CommandInit = { case: "gradients", value };
  if (!answersHooks && !allowUnused) {
    session.sink.send(command);
    await session.sink.room();
    return made;
  }
  const specs = await runHooks(session, command);
  return made.map((each, place) => {
    if (specs[place]?.id) return each;
    each.release();
    return null;
  });
}

// Hooks

/** @internal */
export function registerHook(tensor: Tensor, gradient: Gradient): Hook {
  return register(tensor, { gradient }, HookKind.TENSOR);
}

/** @internal */
export function registerAccumulatedHook(leaf: Tensor, accumulated: Accumulated): Hook {
  return register(leaf, { accumulated, leaf }, HookKind.ACCUMULATED);
}

function register(tensor: Tensor, entry: HookEntry, kind: HookKind): Hook {
  const { session, error } = tensor;
  if (error || session.isRecording) {
    session.sink.failed(error ?? refusal(Reason.NOT_SUPPORTED, "a program has no hooks"));
    return new Hook(session, 0);
  }
  const hook = session.newId();
  session.hooks.set(hook, entry);
  session.sink.send({ case: "registerHook", value: { hook: BigInt(hook), tensor: BigInt(tensor.id), kind } });
  return new Hook(session, hook);
}

/** Send a backward and run the hooks at which it stops. Returns the gradients of `grad`. */
async function runHooks(session: Session, command: CommandInit): Promise<TensorSpec[]> {
  let next = command;
  let own: { thrown: unknown } | undefined; // of a hook
  for (;;) {
    const { result } = await session.sink.ask(next);
    if (result.case === "error") {
      throw session.sink.takeFailure() ?? session.sink.origin(fromMessage(result.value));
    }
    if (own) throw own.thrown;
    let due: HookCall | undefined;
    let gradients: TensorSpec[] = [];
    if (result.case === "backward") due = result.value.due;
    else if (result.case === "gradients" || result.case === "resumeBackward") ({ due, gradients } = result.value);
    if (!due) {
      const failure = session.sink.takeFailure();
      if (failure) throw failure;
      return gradients;
    }
    let replacement: Tensor | undefined;
    try {
      replacement = await runHook(session, due);
      if (replacement?.error) throw replacement.error;
    } catch (thrown) {
      own = { thrown };
    }
    const replaces = !own && replacement !== undefined;
    const value = { backward: due.backward, abandon: own !== undefined, replaces };
    next = {
      case: "resumeBackward",
      value: { ...value, gradients: replacement && replaces ? ids([replacement]) : [] },
    };
  }
}

/** Call the function of a hook. */
async function runHook(session: Session, due: HookCall): Promise<Tensor | undefined> {
  const entry = session.hooks.get(Number(due.hook));
  if (!entry) {
    throw new GradwireError(`the backward stopped at hook ${due.hook} of another client`, { reason: Reason.RUNTIME });
  }
  for (const spec of due.others) if (spec.id) session.adopt(Number(spec.id)).release();
  if ("accumulated" in entry) {
    await entry.accumulated(entry.leaf);
    return undefined;
  }
  const id = due.gradients[0]?.id;
  return id ? (await entry.gradient(session.adopt(Number(id)))) || undefined : undefined;
}

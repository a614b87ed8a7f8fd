/** Backward, gradients and hooks. */

import type { CommandInit } from "./batch.js";
import { Call } from "./call.js";
import { fromMessage, GradwireError, Reason, refusal } from "./errors.js";
import { GradMode, type HookCall, HookKind, type TensorSpec } from "./gen/gradwire/v1/types_pb.js";
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

type BeforeNode = (outputs: (Tensor | null)[]) => Replaced;
type AfterNode = (inputs: (Tensor | null)[], outputs: (Tensor | null)[]) => Replaced;
type Replaced = readonly (Tensor | null)[] | void | Promise<readonly (Tensor | null)[] | void>;

/** @internal Answers a stop of a backward: the gradients that replace the given ones, or nothing to leave these. */
export type HookAnswer = (due: HookCall) => Promise<readonly (Tensor | null)[] | undefined>;

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
    await runHooks(session, command, options.createGraph);
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
  const specs = await runHooks(session, command, options.createGraph);
  return made.map((each, place) => {
    if (specs[place]?.id) return each;
    each.release();
    return null;
  });
}

// Hooks

/** @internal */
export function registerHook(tensor: Tensor, f: Gradient): Hook {
  const { session } = tensor;
  return register(tensor, HookKind.TENSOR, async (due) => {
    const [gradient] = adopted(session, due.gradients);
    const replacement = gradient && (await f(gradient));
    return replacement ? [replacement] : undefined;
  });
}

/** @internal */
export function registerAccumulatedHook(leaf: Tensor, f: Accumulated): Hook {
  return register(leaf, HookKind.ACCUMULATED, async () => {
    await f(leaf);
    return undefined;
  });
}

/** The node of the graph that made a tensor (grad_fn). It keeps the tensor's graph only as long as the tensor lives. */
export class Node {
  /** @internal */
  constructor(private readonly tensor: Tensor) {}

  /**
   * Call f with the gradients of the node's inputs and outputs, after the node's formulas (Node.register_hook). null is
   * where there is none. f returns the gradients of all inputs, or nothing to leave them, or a promise of these.
   */
  registerHook(f: AfterNode): Hook {
    const { session } = this.tensor;
    return register(this.tensor, HookKind.AFTER, async (due) => {
      return (await f(adopted(session, due.gradients), adopted(session, due.others))) || undefined;
    });
  }

  /**
   * Call f with the gradients of the node's outputs, before the node's formulas (Node.register_prehook). null is where there
   * is none. f returns the gradients of all outputs, or nothing to leave them, or a promise of these.
   */
  registerPrehook(f: BeforeNode): Hook {
    const { session } = this.tensor;
    return register(this.tensor, HookKind.BEFORE, async (due) => {
      return (await f(adopted(session, due.gradients))) || undefined;
    });
  }
}

function register(tensor: Tensor, kind: HookKind, answer: HookAnswer): Hook {
  const { session, error } = tensor;
  if (error || session.isRecording) {
    session.sink.failed(error ?? refusal(Reason.NOT_SUPPORTED, "a program has no hooks"));
    return new Hook(session, 0);
  }
  const hook = addAnswer(session, answer);
  session.sink.send({ case: "registerHook", value: { hook: BigInt(hook), tensor: BigInt(tensor.id), kind } });
  return new Hook(session, hook);
}

/** @internal Add a function that backwards call, under a new number. */
export function addAnswer(session: Session, answer: HookAnswer): number {
  const hook = session.newId();
  session.hooks.set(hook, answer);
  return hook;
}

/** @internal Tensors of the ids that the server made; null where there is none. */
export function adopted(session: Session, specs: readonly TensorSpec[]): (Tensor | null)[] {
  return specs.map((spec) => (spec.id ? session.adopt(Number(spec.id)) : null));
}

/** Send a backward and run the functions at which it stops. Returns the gradients of `grad`. */
async function runHooks(session: Session, command: CommandInit, createGraph = false): Promise<TensorSpec[]> {
  let next = command;
  let own: { thrown: unknown } | undefined; // of a function
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
    let replacement: readonly (Tensor | null)[] | undefined;
    try {
      replacement = await answered(session, due, createGraph);
      for (const each of replacement ?? []) {
        if (each?.error) throw each.error;
        if (each && each.session !== session) {
          throw refusal(Reason.ARGUMENT_VALUE, "the hook's gradient belongs to another session");
        }
      }
    } catch (thrown) {
      own = { thrown };
    }
    const replaces = !own && replacement !== undefined;
    const value = { backward: due.backward, abandon: own !== undefined, replaces };
    next = { case: "resumeBackward", value: { ...value, gradients: replaces ? ids(replacement) : [] } };
  }
}

/** Call the function of a stop. Its ops up to its first await record a graph only for `createGraph`. */
function answered(session: Session, due: HookCall, createGraph: boolean): ReturnType<HookAnswer> {
  const answer = session.hooks.get(Number(due.hook));
  if (!answer) {
    throw new GradwireError(`the backward stopped at hook ${due.hook} of another client`, { reason: Reason.RUNTIME });
  }
  const before = session.gradMode;
  session.gradMode = createGraph ? GradMode.ENABLED : GradMode.DISABLED;
  try {
    return answer(due);
  } finally {
    session.gradMode = before;
  }
}

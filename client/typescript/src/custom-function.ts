/** Functions whose derivatives the program computes itself. */

import { addAnswer, adopted } from "./autograd.js";
import { Call } from "./call.js";
import { Reason, refusal } from "./errors.js";
import { GradMode, type HookCall } from "./gen/gradwire/v1/types_pb.js";
import type { Session } from "./session.js";
import type { Tensor } from "./tensor.js";

/** What a call of a function keeps for its derivative. */
export class FunctionContext {
  /** The kept tensors, with their history. */
  saved: readonly Tensor[] = [];

  /** Keep inputs, results or other tensors (ctx.save_for_backward). Call it in forward. */
  save(...tensors: Tensor[]): void {
    this.saved = tensors;
  }
}

type Several<T> = T | readonly T[];

/**
 * A function whose derivative the program computes itself (torch.autograd.Function). Subclass it and call `apply`. While a
 * graph needs a function's derivative, backwards of the session wait for their end.
 */
export abstract class CustomFunction {
  /** `name` is the function's name: "Square" makes nodes named "SquareBackward". */
  constructor(readonly name: string) {}

  /** Compute the result, or a list of results. No graph is recorded. Results are new tensors, not inputs. */
  abstract forward(context: FunctionContext, ...inputs: Tensor[]): Several<Tensor>;

  /**
   * Compute the gradient of the input from those of the results, or a list of one for each input; null for none. It may be
   * async: then ops after its first await record a graph, unless they are in `noGrad`.
   */
  abstract backward(
    context: FunctionContext,
    ...gradients: Tensor[]
  ): Several<Tensor | null> | Promise<Several<Tensor | null>>;

  /** Call the function, which has one result. */
  apply(...inputs: Tensor[]): Tensor {
    const made = this.applyAll(...inputs);
    if (made.length !== 1) {
      throw refusal(Reason.ARGUMENT_VALUE, `${this.name} has ${made.length} results: call applyAll`);
    }
    return made[0] as Tensor;
  }

  /** Call the function, and return the list of its results. */
  applyAll(...inputs: Tensor[]): Tensor[] {
    const session = this.sessionOf(inputs);
    const context = new FunctionContext();
    const { gradMode } = session;
    const forward = (): Several<Tensor> => this.forward(context, ...inputs);
    const made = listOf(gradMode === GradMode.INFERENCE ? forward() : session.noGrad(forward as () => Tensor));
    const call = new Call(this.name); // an id means another tensor in another session
    for (const each of [...inputs, ...made, ...context.saved]) call.idOf("forward", each);
    call.check();
    if (made.some((each) => inputs.includes(each))) {
      throw refusal(Reason.NOT_SUPPORTED, `${this.name}: forward returned an input; return a new tensor`);
    }
    // In noGrad and inferenceMode an op records nothing either.
    if (gradMode === GradMode.DISABLED || gradMode === GradMode.INFERENCE) return made;
    const hook = addAnswer(session, (due) => this.derived(session, due, inputs.length));
    const wide = (tensors: readonly Tensor[]): bigint[] => tensors.map((each) => BigInt(each.id));
    const tensors = { inputs: wide(inputs), outputs: wide(made), saved: wide(context.saved) };
    session.sink.send({
      case: "recordFunction",
      value: { hook: BigInt(hook), name: `${this.name}Backward`, ...tensors },
    });
    return made;
  }

  /** The session of the inputs. Throws their mistakes. */
  private sessionOf(inputs: readonly Tensor[]): Session {
    const [first] = inputs;
    if (!first) throw refusal(Reason.ARGUMENT_VALUE, `${this.name}: there is no tensor`);
    if (first.session.isRecording) throw refusal(Reason.NOT_SUPPORTED, "a program has no custom functions");
    const call = new Call(this.name);
    for (const each of inputs) call.idOf("inputs", each);
    call.check();
    return first.session;
  }

  /** Answer a stop of a backward at the function. */
  private async derived(session: Session, due: HookCall, count: number): Promise<readonly (Tensor | null)[]> {
    const gradients = adopted(session, due.gradients) as Tensor[]; // the server sends zeros where there is none
    const context = new FunctionContext();
    context.saved = adopted(session, due.others) as Tensor[];
    const found = listOf(await this.backward(context, ...gradients));
    if (found.length !== count) {
      const sentence = `function ${this.name}Backward returned an incorrect number of gradients`;
      throw refusal(Reason.RUNTIME, `${sentence} (expected ${count}, got ${found.length})`);
    }
    return found;
  }
}

function listOf<T extends Tensor | null>(given: Several<T>): T[] {
  return Array.isArray(given) ? [...given] : [given as T];
}

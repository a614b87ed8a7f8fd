// Gradients: backward, torch.autograd.grad and hooks.
import { type BackwardOptions, backward, grad } from "#sdk/autograd";
import type { Interpreter } from "./interpreter";
import { type Given, Handle, List, Tensor, Tuple, typeName, type Value } from "./objects";
import { CodeError } from "./syntax";

/** The arguments of a function by the names of its parameters. */
export function taken(name: string, given: Given, parameters: readonly string[]): Map<string, Value> {
  const found = new Map<string, Value>();
  if (given.places.length > parameters.length) {
    const sentence = `${name}() takes at most ${parameters.length} positional arguments (${given.places.length} given)`;
    throw new CodeError("TypeError", sentence);
  }
  given.places.forEach((value, i) => found.set(parameters[i] as string, value));
  for (const [each, value] of given.names) {
    if (!parameters.includes(each))
      throw new CodeError("TypeError", `${name}() got an unexpected keyword argument '${each}'`);
    if (found.has(each)) throw new CodeError("TypeError", `${name}() got multiple values for argument '${each}'`);
    found.set(each, value);
  }
  return found;
}

function tensors(value: Value | undefined, what: string): Tensor[] {
  if (value === undefined || value === null) return [];
  const items = value instanceof List || value instanceof Tuple ? value.items : [value];
  return items.map((each) => {
    if (!(each instanceof Tensor)) throw new CodeError("TypeError", `${what} must be Tensor, not ${typeName(each)}`);
    return each;
  });
}

function optional(value: Value | undefined, what: string): (Tensor | null)[] {
  if (value === undefined || value === null) return [];
  const items = value instanceof List || value instanceof Tuple ? value.items : [value];
  return items.map((each) => (each === null ? null : (tensors(each, what)[0] as Tensor)));
}

function flags(found: Map<string, Value>): Pick<BackwardOptions, "retainGraph" | "createGraph"> {
  const createGraph = found.get("create_graph") === true;
  const retain = found.get("retain_graph");
  return { createGraph, retainGraph: typeof retain === "boolean" ? retain : createGraph };
}

/** Tensor.backward(gradient, retain_graph, create_graph, inputs). */
export async function backwardOf(tensor: Tensor, given: Given): Promise<Value> {
  const found = taken("backward", given, ["gradient", "retain_graph", "create_graph", "inputs"]);
  const gradient = found.get("gradient");
  const gradients = gradient === undefined || gradient === null ? undefined : optional(gradient, "gradient");
  const inputs = found.get("inputs");
  if (inputs !== undefined && inputs !== null && tensors(inputs, "inputs").length === 0)
    throw new CodeError("RuntimeError", "'inputs' argument to backward() cannot be empty.");
  await backward([tensor], { gradients, ...flags(found), inputs: inputs ? tensors(inputs, "inputs") : undefined });
  return null;
}

/** torch.autograd.backward(tensors, grad_tensors, retain_graph, create_graph). */
export async function backwardOfSeveral(given: Given): Promise<Value> {
  const names = ["tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs"];
  const found = taken("backward", given, names);
  const inputs = found.get("inputs");
  await backward(tensors(found.get("tensors"), "tensors"), {
    gradients: found.get("grad_tensors") ? optional(found.get("grad_tensors"), "grad_tensors") : undefined,
    ...flags(found),
    inputs: inputs ? tensors(inputs, "inputs") : undefined,
  });
  return null;
}

/** torch.autograd.grad: a tuple of gradients, with None for what is not used. */
export async function gradOf(interpreter: Interpreter, given: Given): Promise<Value> {
  const names = ["outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "only_inputs", "allow_unused"];
  const found = taken("grad", given, names);
  const outputs = tensors(found.get("outputs"), "outputs");
  const inputs = tensors(found.get("inputs"), "inputs");
  if (!inputs.length) throw new CodeError("ValueError", "grad requires non-empty inputs.");
  const gradients = found.get("grad_outputs") ? optional(found.get("grad_outputs"), "grad_outputs") : undefined;
  const options = { gradients, ...flags(found) };
  const made: (Tensor | null)[] =
    found.get("allow_unused") === true
      ? await grad(outputs, inputs, { ...options, allowUnused: true })
      : await grad(outputs, inputs, options);
  for (const each of made) if (each) interpreter.lines.set(each.id, interpreter.line);
  return new Tuple(made);
}

/** Tensor.register_hook, and register_post_accumulate_grad_hook. */
export function hookOf(interpreter: Interpreter, tensor: Tensor, given: Given, accumulated: boolean): Value {
  const [hook] = taken("register_hook", given, ["hook"]).values();
  if (hook === undefined)
    throw new CodeError("TypeError", "register_hook() missing 1 required positional argument: 'hook'");
  const called = async (value: Tensor): Promise<Tensor | undefined> => {
    const result = await interpreter.call(hook, { places: [value], names: new Map() });
    return result instanceof Tensor ? result : undefined;
  };
  const made = accumulated
    ? tensor.registerPostAccumulateGradHook(async (leaf) => void (await called(leaf)))
    : tensor.registerHook(called);
  interpreter.hooks.push(made);
  return new Handle("RemovableHandle", { remove: () => made.remove() });
}

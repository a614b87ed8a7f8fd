/**
 * Tensors and gradients on a gradwire server, with PyTorch's semantics.
 *
 * Import `connect` from `gradwire/node` or `gradwire/web`. The names here are the same for both.
 *
 * @packageDocumentation
 */

export { type BackwardOptions, backward, type GradOptions, grad, Hook, Node } from "./autograd.js";
export {
  Call,
  Complex,
  Float,
  float,
  type IndexItem,
  type Numeric,
  type Operand,
  ProgramNumber,
  Slice,
  slice,
} from "./call.js";
export { CustomFunction, FunctionContext } from "./custom-function.js";
export * from "./errors.js";
export * as fft from "./fft.js";
export * as functional from "./functional.js";
export * as linalg from "./linalg.js";
export { type Body, type InputLike, Program, type RunOptions, type Signature } from "./program.js";
export { FileProgram, ProgramFile } from "./program-file.js";
export { Session, type SessionOptions, type TensorOptions, VERSION } from "./session.js";
export type { Restored } from "./snapshot.js";
export * as special from "./special.js";
export { type Description, Tensor } from "./tensor.js";
export * from "./torch.js";
export type { Channel, Dial, Receiver, Wire } from "./transport.js";
export { DType, elementSize, type Nested, nameOf, type Payload, type TypedArray, type Values } from "./values.js";

// Written by tools/sdk_ops.py from the answer to ListOps; do not edit.

/** The functions of torch.special that torch itself lacks. */

import { Call } from "./call.js";
import type { Operand } from "./call.js";
import type { Tensor } from "./tensor.js";

/** -x log(x); 0 at 0, -inf below 0 (torch.special.entr). */
export function entr(input: Tensor): Tensor {
  return new Call("special.entr").tensor("", input).one();
}

/** Scaled complementary error function, exp(x²) * erfc(x) (torch.special.erfcx). */
export function erfcx(input: Tensor): Tensor {
  return new Call("special.erfcx").tensor("", input).one();
}

/** exp(-|x|) times the modified Bessel function of order 0 (torch.special.i0e). */
export function i0e(input: Tensor): Tensor {
  return new Call("special.i0e").tensor("", input).one();
}

/** Modified Bessel function of order 1 (torch.special.i1). */
export function i1(input: Tensor): Tensor {
  return new Call("special.i1").tensor("", input).one();
}

/** exp(-|x|) times the modified Bessel function of order 1 (torch.special.i1e). */
export function i1e(input: Tensor): Tensor {
  return new Call("special.i1e").tensor("", input).one();
}

/** Logarithm of ndtr, accurate in the tail (torch.special.log_ndtr). */
export function logNdtr(input: Tensor): Tensor {
  return new Call("special.log_ndtr").tensor("", input).one();
}

/** Cumulative distribution function of the normal distribution (torch.special.ndtr). */
export function ndtr(input: Tensor): Tensor {
  return new Call("special.ndtr").tensor("", input).one();
}

/** Inverse of ndtr (torch.special.ndtri). */
export function ndtri(input: Tensor): Tensor {
  return new Call("special.ndtri").tensor("", input).one();
}

/** input * log(1 + other); 0 where the input is 0 (torch.special.xlog1py). */
export function xlog1py(input: Operand, other: Operand): Tensor {
  return new Call("special.xlog1py").operand("", input).operand("", other).one();
}

/** Hurwitz zeta function: sum over k >= 0 of (k + other) ** -input (torch.special.zeta). */
export function zeta(input: Operand, other: Operand): Tensor {
  return new Call("special.zeta").operand("", input).operand("", other).one();
}

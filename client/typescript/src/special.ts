// Written by tools/sdk_ops.py from the answer to ListOps; do not edit.

/** The functions of torch.special that torch itself lacks. */

import { Call } from "./call.js";
import type { Operand } from "./call.js";
import type { Tensor } from "./tensor.js";

/** Airy function Ai (torch.special.airy_ai). */
export function airyAi(input: Tensor): Tensor {
  return new Call("special.airy_ai").tensor("", input).one();
}

/** Bessel function of the first kind of order 0 (torch.special.bessel_j0). */
export function besselJ0(input: Tensor): Tensor {
  return new Call("special.bessel_j0").tensor("", input).one();
}

/** Bessel function of the first kind of order 1 (torch.special.bessel_j1). */
export function besselJ1(input: Tensor): Tensor {
  return new Call("special.bessel_j1").tensor("", input).one();
}

/** Bessel function of the second kind of order 0 (torch.special.bessel_y0). */
export function besselY0(input: Tensor): Tensor {
  return new Call("special.bessel_y0").tensor("", input).one();
}

/** Bessel function of the second kind of order 1 (torch.special.bessel_y1). */
export function besselY1(input: Tensor): Tensor {
  return new Call("special.bessel_y1").tensor("", input).one();
}

/** Chebyshev polynomial T of degree n at x (torch.special.chebyshev_polynomial_t). */
export function chebyshevPolynomialT(input: Operand, n: Operand): Tensor {
  return new Call("special.chebyshev_polynomial_t").operand("", input).operand("", n).one();
}

/** Chebyshev polynomial U of degree n at x (torch.special.chebyshev_polynomial_u). */
export function chebyshevPolynomialU(input: Operand, n: Operand): Tensor {
  return new Call("special.chebyshev_polynomial_u").operand("", input).operand("", n).one();
}

/** Chebyshev polynomial V of degree n at x (torch.special.chebyshev_polynomial_v). */
export function chebyshevPolynomialV(input: Operand, n: Operand): Tensor {
  return new Call("special.chebyshev_polynomial_v").operand("", input).operand("", n).one();
}

/** Chebyshev polynomial W of degree n at x (torch.special.chebyshev_polynomial_w). */
export function chebyshevPolynomialW(input: Operand, n: Operand): Tensor {
  return new Call("special.chebyshev_polynomial_w").operand("", input).operand("", n).one();
}

/** -x log(x); 0 at 0, -inf below 0 (torch.special.entr). */
export function entr(input: Tensor): Tensor {
  return new Call("special.entr").tensor("", input).one();
}

/** Scaled complementary error function, exp(x²) * erfc(x) (torch.special.erfcx). */
export function erfcx(input: Tensor): Tensor {
  return new Call("special.erfcx").tensor("", input).one();
}

/** Physicist's Hermite polynomial of degree n (torch.special.hermite_polynomial_h). */
export function hermitePolynomialH(input: Operand, n: Operand): Tensor {
  return new Call("special.hermite_polynomial_h").operand("", input).operand("", n).one();
}

/** Probabilist's Hermite polynomial of degree n (torch.special.hermite_polynomial_he). */
export function hermitePolynomialHe(input: Operand, n: Operand): Tensor {
  return new Call("special.hermite_polynomial_he").operand("", input).operand("", n).one();
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

/** Laguerre polynomial of degree n (torch.special.laguerre_polynomial_l). */
export function laguerrePolynomialL(input: Operand, n: Operand): Tensor {
  return new Call("special.laguerre_polynomial_l").operand("", input).operand("", n).one();
}

/** Legendre polynomial of degree n (torch.special.legendre_polynomial_p). */
export function legendrePolynomialP(input: Operand, n: Operand): Tensor {
  return new Call("special.legendre_polynomial_p").operand("", input).operand("", n).one();
}

/** Logarithm of ndtr, accurate in the tail (torch.special.log_ndtr). */
export function logNdtr(input: Tensor): Tensor {
  return new Call("special.log_ndtr").tensor("", input).one();
}

/** Modified Bessel function of the first kind of order 0 (torch.special.modified_bessel_i0). */
export function modifiedBesselI0(input: Tensor): Tensor {
  return new Call("special.modified_bessel_i0").tensor("", input).one();
}

/** Modified Bessel function of the first kind of order 1 (torch.special.modified_bessel_i1). */
export function modifiedBesselI1(input: Tensor): Tensor {
  return new Call("special.modified_bessel_i1").tensor("", input).one();
}

/** Modified Bessel function of the second kind of order 0 (torch.special.modified_bessel_k0). */
export function modifiedBesselK0(input: Tensor): Tensor {
  return new Call("special.modified_bessel_k0").tensor("", input).one();
}

/** Modified Bessel function of the second kind of order 1 (torch.special.modified_bessel_k1). */
export function modifiedBesselK1(input: Tensor): Tensor {
  return new Call("special.modified_bessel_k1").tensor("", input).one();
}

/** Cumulative distribution function of the normal distribution (torch.special.ndtr). */
export function ndtr(input: Tensor): Tensor {
  return new Call("special.ndtr").tensor("", input).one();
}

/** Inverse of ndtr (torch.special.ndtri). */
export function ndtri(input: Tensor): Tensor {
  return new Call("special.ndtri").tensor("", input).one();
}

/** exp(x) times the modified Bessel function of the second kind of order 0 (torch.special.scaled_modified_bessel_k0). */
export function scaledModifiedBesselK0(input: Tensor): Tensor {
  return new Call("special.scaled_modified_bessel_k0").tensor("", input).one();
}

/** exp(x) times the modified Bessel function of the second kind of order 1 (torch.special.scaled_modified_bessel_k1). */
export function scaledModifiedBesselK1(input: Tensor): Tensor {
  return new Call("special.scaled_modified_bessel_k1").tensor("", input).one();
}

/** Chebyshev polynomial T of degree n at 2 x - 1 (torch.special.shifted_chebyshev_polynomial_t). */
export function shiftedChebyshevPolynomialT(input: Operand, n: Operand): Tensor {
  return new Call("special.shifted_chebyshev_polynomial_t").operand("", input).operand("", n).one();
}

/** Chebyshev polynomial U of degree n at 2 x - 1 (torch.special.shifted_chebyshev_polynomial_u). */
export function shiftedChebyshevPolynomialU(input: Operand, n: Operand): Tensor {
  return new Call("special.shifted_chebyshev_polynomial_u").operand("", input).operand("", n).one();
}

/** Chebyshev polynomial V of degree n at 2 x - 1 (torch.special.shifted_chebyshev_polynomial_v). */
export function shiftedChebyshevPolynomialV(input: Operand, n: Operand): Tensor {
  return new Call("special.shifted_chebyshev_polynomial_v").operand("", input).operand("", n).one();
}

/** Chebyshev polynomial W of degree n at 2 x - 1 (torch.special.shifted_chebyshev_polynomial_w). */
export function shiftedChebyshevPolynomialW(input: Operand, n: Operand): Tensor {
  return new Call("special.shifted_chebyshev_polynomial_w").operand("", input).operand("", n).one();
}

/** Spherical Bessel function of the first kind of order 0 (torch.special.spherical_bessel_j0). */
export function sphericalBesselJ0(input: Tensor): Tensor {
  return new Call("special.spherical_bessel_j0").tensor("", input).one();
}

/** input * log(1 + other); 0 where the input is 0 (torch.special.xlog1py). */
export function xlog1py(input: Operand, other: Operand): Tensor {
  return new Call("special.xlog1py").operand("", input).operand("", other).one();
}

/** Hurwitz zeta function: sum over k >= 0 of (k + other) ** -input (torch.special.zeta). */
export function zeta(input: Operand, other: Operand): Tensor {
  return new Call("special.zeta").operand("", input).operand("", other).one();
}

// Written by tools/sdk_ops.py from the answer to ListOps; do not edit.

/** The functions of torch.fft. */

import { Call } from "./call.js";
import type { Tensor } from "./tensor.js";

/** What `fft` can do without. */
export interface FftOptions {
  n?: number;
  /** -1 if not given. */
  dim?: number;
  norm?: "forward" | "backward" | "ortho";
}

/** What `fft2` can do without. */
export interface Fft2Options {
  s?: number | readonly number[];
  /** [-2, -1] if not given. */
  dim?: number | readonly number[];
  norm?: "forward" | "backward" | "ortho";
}

/** What `fftn` can do without. */
export interface FftnOptions {
  s?: number | readonly number[];
  dim?: number | readonly number[];
  norm?: "forward" | "backward" | "ortho";
}

/** What `fftshift` can do without. */
export interface FftshiftOptions {
  dim?: number | readonly number[];
}

/** What `hfft` can do without. */
export interface HfftOptions {
  n?: number;
  /** -1 if not given. */
  dim?: number;
  norm?: "forward" | "backward" | "ortho";
}

/** What `ifft` can do without. */
export interface IfftOptions {
  n?: number;
  /** -1 if not given. */
  dim?: number;
  norm?: "forward" | "backward" | "ortho";
}

/** What `ifft2` can do without. */
export interface Ifft2Options {
  s?: number | readonly number[];
  /** [-2, -1] if not given. */
  dim?: number | readonly number[];
  norm?: "forward" | "backward" | "ortho";
}

/** What `ifftn` can do without. */
export interface IfftnOptions {
  s?: number | readonly number[];
  dim?: number | readonly number[];
  norm?: "forward" | "backward" | "ortho";
}

/** What `ifftshift` can do without. */
export interface IfftshiftOptions {
  dim?: number | readonly number[];
}

/** What `ihfft` can do without. */
export interface IhfftOptions {
  n?: number;
  /** -1 if not given. */
  dim?: number;
  norm?: "forward" | "backward" | "ortho";
}

/** What `irfft` can do without. */
export interface IrfftOptions {
  n?: number;
  /** -1 if not given. */
  dim?: number;
  norm?: "forward" | "backward" | "ortho";
}

/** What `irfft2` can do without. */
export interface Irfft2Options {
  s?: number | readonly number[];
  /** [-2, -1] if not given. */
  dim?: number | readonly number[];
  norm?: "forward" | "backward" | "ortho";
}

/** What `irfftn` can do without. */
export interface IrfftnOptions {
  s?: number | readonly number[];
  dim?: number | readonly number[];
  norm?: "forward" | "backward" | "ortho";
}

/** What `rfft` can do without. */
export interface RfftOptions {
  n?: number;
  /** -1 if not given. */
  dim?: number;
  norm?: "forward" | "backward" | "ortho";
}

/** What `rfft2` can do without. */
export interface Rfft2Options {
  s?: number | readonly number[];
  /** [-2, -1] if not given. */
  dim?: number | readonly number[];
  norm?: "forward" | "backward" | "ortho";
}

/** What `rfftn` can do without. */
export interface RfftnOptions {
  s?: number | readonly number[];
  dim?: number | readonly number[];
  norm?: "forward" | "backward" | "ortho";
}

/** Discrete Fourier transform along `dim` (torch.fft.fft). */
export function fft(input: Tensor, options: FftOptions = {}): Tensor {
  const call = new Call("fft.fft").tensor("", input);
  if (options.n !== undefined) call.integer("n", options.n);
  if (options.dim !== undefined) call.integer("dim", options.dim);
  if (options.norm !== undefined) call.string("norm", options.norm);
  return call.one();
}

/** Fourier transform over two dimensions (torch.fft.fft2). */
export function fft2(input: Tensor, options: Fft2Options = {}): Tensor {
  const call = new Call("fft.fft2").tensor("", input);
  if (options.s !== undefined) call.integers("s", options.s);
  if (options.dim !== undefined) call.integers("dim", options.dim);
  if (options.norm !== undefined) call.string("norm", options.norm);
  return call.one();
}

/** Fourier transform over several dimensions, by default all or the last len(s) (torch.fft.fftn). */
export function fftn(input: Tensor, options: FftnOptions = {}): Tensor {
  const call = new Call("fft.fftn").tensor("", input);
  if (options.s !== undefined) call.integers("s", options.s);
  if (options.dim !== undefined) call.integers("dim", options.dim);
  if (options.norm !== undefined) call.string("norm", options.norm);
  return call.one();
}

/** Reorder frequencies to ascending order, zero in the middle (torch.fft.fftshift). */
export function fftshift(input: Tensor, options: FftshiftOptions = {}): Tensor {
  const call = new Call("fft.fftshift").tensor("", input);
  if (options.dim !== undefined) call.integers("dim", options.dim);
  return call.one();
}

/** Fourier transform of a Hermitian signal, given its first half, to real numbers (torch.fft.hfft). */
export function hfft(input: Tensor, options: HfftOptions = {}): Tensor {
  const call = new Call("fft.hfft").tensor("", input);
  if (options.n !== undefined) call.integer("n", options.n);
  if (options.dim !== undefined) call.integer("dim", options.dim);
  if (options.norm !== undefined) call.string("norm", options.norm);
  return call.one();
}

/** Inverse Fourier transform along `dim`, scaled by 1/n by default (torch.fft.ifft). */
export function ifft(input: Tensor, options: IfftOptions = {}): Tensor {
  const call = new Call("fft.ifft").tensor("", input);
  if (options.n !== undefined) call.integer("n", options.n);
  if (options.dim !== undefined) call.integer("dim", options.dim);
  if (options.norm !== undefined) call.string("norm", options.norm);
  return call.one();
}

/** Inverse Fourier transform over two dimensions (torch.fft.ifft2). */
export function ifft2(input: Tensor, options: Ifft2Options = {}): Tensor {
  const call = new Call("fft.ifft2").tensor("", input);
  if (options.s !== undefined) call.integers("s", options.s);
  if (options.dim !== undefined) call.integers("dim", options.dim);
  if (options.norm !== undefined) call.string("norm", options.norm);
  return call.one();
}

/** Inverse Fourier transform over several dimensions (torch.fft.ifftn). */
export function ifftn(input: Tensor, options: IfftnOptions = {}): Tensor {
  const call = new Call("fft.ifftn").tensor("", input);
  if (options.s !== undefined) call.integers("s", options.s);
  if (options.dim !== undefined) call.integers("dim", options.dim);
  if (options.norm !== undefined) call.string("norm", options.norm);
  return call.one();
}

/** Inverse of fftshift (torch.fft.ifftshift). */
export function ifftshift(input: Tensor, options: IfftshiftOptions = {}): Tensor {
  const call = new Call("fft.ifftshift").tensor("", input);
  if (options.dim !== undefined) call.integers("dim", options.dim);
  return call.one();
}

/** Inverse of hfft: the first half of a Hermitian signal, from real numbers (torch.fft.ihfft). */
export function ihfft(input: Tensor, options: IhfftOptions = {}): Tensor {
  const call = new Call("fft.ihfft").tensor("", input);
  if (options.n !== undefined) call.integer("n", options.n);
  if (options.dim !== undefined) call.integer("dim", options.dim);
  if (options.norm !== undefined) call.string("norm", options.norm);
  return call.one();
}

/** Inverse of rfft: n real numbers, by default 2 * (m - 1) for an input of length m (torch.fft.irfft). */
export function irfft(input: Tensor, options: IrfftOptions = {}): Tensor {
  const call = new Call("fft.irfft").tensor("", input);
  if (options.n !== undefined) call.integer("n", options.n);
  if (options.dim !== undefined) call.integer("dim", options.dim);
  if (options.norm !== undefined) call.string("norm", options.norm);
  return call.one();
}

/** Inverse of rfft2, to real numbers (torch.fft.irfft2). */
export function irfft2(input: Tensor, options: Irfft2Options = {}): Tensor {
  const call = new Call("fft.irfft2").tensor("", input);
  if (options.s !== undefined) call.integers("s", options.s);
  if (options.dim !== undefined) call.integers("dim", options.dim);
  if (options.norm !== undefined) call.string("norm", options.norm);
  return call.one();
}

/** Inverse of rfftn, to real numbers (torch.fft.irfftn). */
export function irfftn(input: Tensor, options: IrfftnOptions = {}): Tensor {
  const call = new Call("fft.irfftn").tensor("", input);
  if (options.s !== undefined) call.integers("s", options.s);
  if (options.dim !== undefined) call.integers("dim", options.dim);
  if (options.norm !== undefined) call.string("norm", options.norm);
  return call.one();
}

/** Fourier transform of real numbers: the first n // 2 + 1 frequencies (torch.fft.rfft). */
export function rfft(input: Tensor, options: RfftOptions = {}): Tensor {
  const call = new Call("fft.rfft").tensor("", input);
  if (options.n !== undefined) call.integer("n", options.n);
  if (options.dim !== undefined) call.integer("dim", options.dim);
  if (options.norm !== undefined) call.string("norm", options.norm);
  return call.one();
}

/** Fourier transform of real numbers over two dimensions, one-sided along the last (torch.fft.rfft2). */
export function rfft2(input: Tensor, options: Rfft2Options = {}): Tensor {
  const call = new Call("fft.rfft2").tensor("", input);
  if (options.s !== undefined) call.integers("s", options.s);
  if (options.dim !== undefined) call.integers("dim", options.dim);
  if (options.norm !== undefined) call.string("norm", options.norm);
  return call.one();
}

/** Fourier transform of real numbers over several dimensions, one-sided along the last (torch.fft.rfftn). */
export function rfftn(input: Tensor, options: RfftnOptions = {}): Tensor {
  const call = new Call("fft.rfftn").tensor("", input);
  if (options.s !== undefined) call.integers("s", options.s);
  if (options.dim !== undefined) call.integers("dim", options.dim);
  if (options.norm !== undefined) call.string("norm", options.norm);
  return call.one();
}

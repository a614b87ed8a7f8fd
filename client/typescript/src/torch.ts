// Written by tools/sdk_ops.py from the answer to ListOps; do not edit.

/** The functions of torch that are not methods of a tensor. */

import { Call } from "./call.js";
import type { Numeric, Operand, ProgramNumber } from "./call.js";
import type { Tensor } from "./tensor.js";
import type { DType } from "./values.js";

/** What `bucketize` can do without. */
export interface BucketizeOptions {
  /** false if not given. */
  outInt32?: boolean;
  /** false if not given. */
  right?: boolean;
}

/** What `cat` can do without. */
export interface CatOptions {
  /** 0 if not given. */
  dim?: number;
}

/** What `cdist` can do without. */
export interface CdistOptions {
  /** 2.0 if not given. */
  p?: number | ProgramNumber;
  computeMode?: "use_mm_for_euclid_dist_if_necessary" | "use_mm_for_euclid_dist" | "donot_use_mm_for_euclid_dist";
}

/** What `celu` can do without. */
export interface CeluOptions {
  /** 1.0 if not given. */
  alpha?: number | ProgramNumber;
}

/** What `combinations` can do without. */
export interface CombinationsOptions {
  /** 2 if not given. */
  r?: number;
  /** false if not given. */
  withReplacement?: boolean;
}

/** What `cumulativeTrapezoid` can do without. */
export interface CumulativeTrapezoidOptions {
  x?: Tensor | null;
  dx?: Numeric | null;
  /** -1 if not given. */
  dim?: number;
}

/** What `emptyLike` can do without. */
export interface EmptyLikeOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `fullLike` can do without. */
export interface FullLikeOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `meshgrid` can do without. */
export interface MeshgridOptions {
  indexing?: "ij" | "xy";
}

/** What `onesLike` can do without. */
export interface OnesLikeOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `randLike` can do without. */
export interface RandLikeOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `randintLike` can do without. */
export interface RandintLikeOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `randnLike` can do without. */
export interface RandnLikeOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `rsub` can do without. */
export interface RsubOptions {
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `searchsorted` can do without. */
export interface SearchsortedOptions {
  /** false if not given. */
  outInt32?: boolean;
  /** false if not given. */
  right?: boolean;
  side?: "left" | "right";
  sorter?: Tensor | null;
}

/** What `stack` can do without. */
export interface StackOptions {
  /** 0 if not given. */
  dim?: number;
}

/** What `stdMean` can do without. */
export interface StdMeanOptions {
  dim?: number | readonly number[];
  unbiased?: boolean;
  /** false if not given. */
  keepdim?: boolean;
  correction?: Numeric | null;
}

/** What `tensordotInt` can do without. */
export interface TensordotIntOptions {
  /** 2 if not given. */
  dims?: number;
}

/** What `trapezoid` can do without. */
export interface TrapezoidOptions {
  x?: Tensor | null;
  dx?: Numeric | null;
  /** -1 if not given. */
  dim?: number;
}

/** What `varMean` can do without. */
export interface VarMeanOptions {
  dim?: number | readonly number[];
  unbiased?: boolean;
  /** false if not given. */
  keepdim?: boolean;
  correction?: Numeric | null;
}

/** What `zerosLike` can do without. */
export interface ZerosLikeOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** Add dimensions of size 1 up to one dimension (torch.atleast_1d). */
export function atleast1d(input: Tensor): Tensor {
  return new Call("atleast_1d").tensor("", input).one();
}

/** Add dimensions of size 1 up to two dimensions (torch.atleast_2d). */
export function atleast2d(input: Tensor): Tensor {
  return new Call("atleast_2d").tensor("", input).one();
}

/** Add dimensions of size 1 up to three dimensions (torch.atleast_3d). */
export function atleast3d(input: Tensor): Tensor {
  return new Call("atleast_3d").tensor("", input).one();
}

/** Number of successes in `count` trials of probability `prob`; shapes broadcast (torch.binomial). */
export function binomial(count: Tensor, prob: Tensor): Tensor {
  return new Call("binomial").tensor("", count).tensor("", prob).one();
}

/** Block-diagonal matrix; vectors count as rows (torch.block_diag). */
export function blockDiag(tensors: readonly Tensor[]): Tensor {
  return new Call("block_diag").tensors("", tensors).one();
}

/** Expand tensors to their common shape; views (torch.broadcast_tensors). */
export function broadcastTensors(tensors: readonly Tensor[]): Promise<Tensor[]> {
  return new Call("broadcast_tensors").tensors("", tensors).list();
}

/** Index of the interval between `boundaries` that contains each value (torch.bucketize). */
export function bucketize(input: Operand, boundaries: Tensor, options: BucketizeOptions = {}): Tensor {
  const call = new Call("bucketize").operand("", input).tensor("", boundaries);
  if (options.outInt32 !== undefined) call.boolean("out_int32", options.outInt32);
  if (options.right !== undefined) call.boolean("right", options.right);
  return call.one();
}

/** Cartesian product of vectors, one tuple per row; one vector is returned unchanged (torch.cartesian_prod). */
export function cartesianProd(tensors: readonly Tensor[]): Tensor {
  return new Call("cartesian_prod").tensors("", tensors).one();
}

/** Concatenate tensors along `dim` (torch.cat). */
export function cat(tensors: readonly Tensor[], options: CatOptions = {}): Tensor {
  const call = new Call("cat").tensors("", tensors);
  if (options.dim !== undefined) call.integer("dim", options.dim);
  return call.one();
}

/** Pairwise p-norm distances between the rows of x1 and x2 (torch.cdist). */
export function cdist(x1: Tensor, x2: Tensor, options: CdistOptions = {}): Tensor {
  const call = new Call("cdist").tensor("", x1).tensor("", x2);
  if (options.p !== undefined) call.float("p", options.p);
  if (options.computeMode !== undefined) call.string("compute_mode", options.computeMode);
  return call.one();
}

/** input where it is positive, else alpha * (exp(input / alpha) - 1) (torch.nn.functional.celu). */
export function celu(input: Tensor, options: CeluOptions = {}): Tensor {
  const call = new Call("celu").tensor("", input);
  if (options.alpha !== undefined) call.float("alpha", options.alpha);
  return call.one();
}

/** Concatenate along the second dimension, vectors as columns (torch.column_stack). */
export function columnStack(tensors: readonly Tensor[]): Tensor {
  return new Call("column_stack").tensors("", tensors).one();
}

/** Combinations of r elements of a vector, one per row (torch.combinations). */
export function combinations(input: Tensor, options: CombinationsOptions = {}): Tensor {
  const call = new Call("combinations").tensor("", input);
  if (options.r !== undefined) call.integer("r", options.r);
  if (options.withReplacement !== undefined) call.boolean("with_replacement", options.withReplacement);
  return call.one();
}

/** Complex numbers from real and imaginary parts of one dtype (torch.complex). */
export function complex(real: Tensor, imag: Tensor): Tensor {
  return new Call("complex").tensor("", real).tensor("", imag).one();
}

/** Cumulative integral of y along `dim` by the trapezoidal rule (torch.cumulative_trapezoid); see trapezoid. */
export function cumulativeTrapezoid(y: Tensor, options: CumulativeTrapezoidOptions = {}): Tensor {
  const call = new Call("cumulative_trapezoid").tensor("", y);
  if (options.x !== undefined) call.tensor("x", options.x);
  if (options.dx !== undefined) call.number("dx", options.dx);
  if (options.dim !== undefined) call.integer("dim", options.dim);
  return call.one();
}

/** Concatenate along the third dimension (torch.dstack). */
export function dstack(tensors: readonly Tensor[]): Tensor {
  return new Call("dstack").tensors("", tensors).one();
}

/** Sum of products over the labels that the output lacks, by Einstein's notation (torch.einsum). */
export function einsum(equation: string, operands: readonly Tensor[]): Tensor {
  return new Call("einsum").string("", equation).tensors("", operands).one();
}

/** Tensor with the input's shape, to be overwritten; zeros here (torch.empty_like). */
export function emptyLike(input: Tensor, options: EmptyLikeOptions = {}): Tensor {
  const call = new Call("empty_like").tensor("", input);
  if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
  if (options.device !== undefined) call.string("device", options.device);
  if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
  return call.one();
}

/** One value, with the input's shape and dtype (torch.Tensor.fill_). */
export function fill(input: Tensor, value: Operand): Tensor {
  return new Call("fill").tensor("", input).operand("", value).one();
}

/** Tensor filled with one value, with the input's shape (torch.full_like). */
export function fullLike(input: Tensor, fillValue: Numeric, options: FullLikeOptions = {}): Tensor {
  const call = new Call("full_like").tensor("", input).number("", fillValue);
  if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
  if (options.device !== undefined) call.string("device", options.device);
  if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
  return call.one();
}

/** Concatenate along the second dimension, vectors along the first (torch.hstack). */
export function hstack(tensors: readonly Tensor[]): Tensor {
  return new Call("hstack").tensors("", tensors).one();
}

/** Coordinate grids of vectors; "xy" swaps the first two dimensions (torch.meshgrid). */
export function meshgrid(tensors: readonly Tensor[], options: MeshgridOptions = {}): Promise<Tensor[]> {
  const call = new Call("meshgrid").tensors("", tensors);
  if (options.indexing !== undefined) call.string("indexing", options.indexing);
  return call.list();
}

/** Ones with the input's shape (torch.ones_like). */
export function onesLike(input: Tensor, options: OnesLikeOptions = {}): Tensor {
  const call = new Call("ones_like").tensor("", input);
  if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
  if (options.device !== undefined) call.string("device", options.device);
  if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
  return call.one();
}

/** Poisson distributed numbers; each element is a mean (torch.poisson). */
export function poisson(input: Tensor): Tensor {
  return new Call("poisson").tensor("", input).one();
}

/** Complex numbers from absolute values and angles, both float32 or both float64 (torch.polar). */
export function polar(abs: Tensor, angle: Tensor): Tensor {
  return new Call("polar").tensor("", abs).tensor("", angle).one();
}

/** n-th derivative of digamma (torch.polygamma). */
export function polygamma(n: number, input: Tensor): Tensor {
  return new Call("polygamma").integer("", n).tensor("", input).one();
}

/** Uniform random numbers with the input's shape (torch.rand_like). */
export function randLike(input: Tensor, options: RandLikeOptions = {}): Tensor {
  const call = new Call("rand_like").tensor("", input);
  if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
  if (options.device !== undefined) call.string("device", options.device);
  if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
  return call.one();
}

/** Random integers from low to high - 1, with the input's shape (torch.randint_like). */
export function randintLike(input: Tensor, low: number, high: number, options: RandintLikeOptions = {}): Tensor {
  const call = new Call("randint_like").tensor("", input).integer("", low).integer("", high);
  if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
  if (options.device !== undefined) call.string("device", options.device);
  if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
  return call.one();
}

/** Normal random numbers with the input's shape (torch.randn_like). */
export function randnLike(input: Tensor, options: RandnLikeOptions = {}): Tensor {
  const call = new Call("randn_like").tensor("", input);
  if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
  if (options.device !== undefined) call.string("device", options.device);
  if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
  return call.one();
}

/** other - alpha * input (torch.rsub). */
export function rsub(input: Tensor, other: Operand, options: RsubOptions = {}): Tensor {
  const call = new Call("rsub").tensor("", input).operand("", other);
  if (options.alpha !== undefined) call.number("alpha", options.alpha);
  return call.one();
}

/** Insertion index of each value in the sorted last dimension (torch.searchsorted). */
export function searchsorted(sortedSequence: Tensor, input: Operand, options: SearchsortedOptions = {}): Tensor {
  const call = new Call("searchsorted").tensor("", sortedSequence).operand("", input);
  if (options.outInt32 !== undefined) call.boolean("out_int32", options.outInt32);
  if (options.right !== undefined) call.boolean("right", options.right);
  if (options.side !== undefined) call.string("side", options.side);
  if (options.sorter !== undefined) call.tensor("sorter", options.sorter);
  return call.one();
}

/** elu scaled for self-normalizing networks (torch.nn.functional.selu). */
export function selu(input: Tensor): Tensor {
  return new Call("selu").tensor("", input).one();
}

/** Stack tensors of one shape along a new dimension (torch.stack). */
export function stack(tensors: readonly Tensor[], options: StackOptions = {}): Tensor {
  const call = new Call("stack").tensors("", tensors);
  if (options.dim !== undefined) call.integer("dim", options.dim);
  return call.one();
}

/** Standard deviation and mean (torch.std_mean). */
export function stdMean(input: Tensor, options: StdMeanOptions = {}): [std: Tensor, mean: Tensor] {
  const call = new Call("std_mean").tensor("", input);
  if (options.dim !== undefined) call.integers("dim", options.dim);
  if (options.unbiased !== undefined) call.boolean("unbiased", options.unbiased);
  if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
  if (options.correction !== undefined) call.number("correction", options.correction);
  return call.several(2) as [std: Tensor, mean: Tensor];
}

/** Contract the last dims of a with the first of b, or two lists of dims (torch.tensordot). */
export function tensordotInt(a: Tensor, b: Tensor, options: TensordotIntOptions = {}): Tensor {
  const call = new Call("tensordot").tensor("", a).tensor("", b);
  if (options.dims !== undefined) call.integer("dims", options.dims);
  return call.one();
}

/** Contract the last dims of a with the first of b, or two lists of dims (torch.tensordot). */
export function tensordotDims(a: Tensor, b: Tensor, dims: number | readonly number[]): Tensor {
  return new Call("tensordot").tensor("", a).tensor("", b).integers("", dims).one();
}

/** input where it exceeds the threshold, `value` elsewhere (torch.nn.functional.threshold). */
export function threshold(input: Tensor, threshold: Numeric, value: Numeric): Tensor {
  return new Call("threshold").tensor("", input).number("", threshold).number("", value).one();
}

/** Integrate y along `dim` by the trapezoidal rule, with points at x or dx apart (torch.trapezoid). */
export function trapezoid(y: Tensor, options: TrapezoidOptions = {}): Tensor {
  const call = new Call("trapezoid").tensor("", y);
  if (options.x !== undefined) call.tensor("x", options.x);
  if (options.dx !== undefined) call.number("dx", options.dx);
  if (options.dim !== undefined) call.integer("dim", options.dim);
  return call.one();
}

/** Variance and mean (torch.var_mean). */
export function varMean(input: Tensor, options: VarMeanOptions = {}): [var_: Tensor, mean: Tensor] {
  const call = new Call("var_mean").tensor("", input);
  if (options.dim !== undefined) call.integers("dim", options.dim);
  if (options.unbiased !== undefined) call.boolean("unbiased", options.unbiased);
  if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
  if (options.correction !== undefined) call.number("correction", options.correction);
  return call.several(2) as [var_: Tensor, mean: Tensor];
}

/** View a last dimension of size 2 as complex numbers (torch.view_as_complex). */
export function viewAsComplex(input: Tensor): Tensor {
  return new Call("view_as_complex").tensor("", input).one();
}

/** View complex numbers as a last dimension of size 2: real and imaginary part (torch.view_as_real). */
export function viewAsReal(input: Tensor): Tensor {
  return new Call("view_as_real").tensor("", input).one();
}

/** Concatenate along the first dimension, vectors as rows (torch.vstack). */
export function vstack(tensors: readonly Tensor[]): Tensor {
  return new Call("vstack").tensors("", tensors).one();
}

/** Zeros with the input's shape (torch.zeros_like). */
export function zerosLike(input: Tensor, options: ZerosLikeOptions = {}): Tensor {
  const call = new Call("zeros_like").tensor("", input);
  if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
  if (options.device !== undefined) call.string("device", options.device);
  if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
  return call.one();
}

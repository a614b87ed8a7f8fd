// Written by tools/sdk_ops.py from the answer to ListOps; do not edit.

/** The ops as methods of tensors and, where they need no tensor, of sessions. */

import { Call } from "./call.js";
import type { Numeric, Operand, ProgramNumber } from "./call.js";
import type { Session } from "./session.js";
import type { Tensor } from "./tensor.js";
import type { DType } from "./values.js";

/** What `add` can do without. */
export interface AddOptions {
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `add_` can do without. */
export interface AddInPlaceOptions {
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `addbmm` can do without. */
export interface AddbmmOptions {
  /** 1 if not given. */
  beta?: Numeric;
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `addbmm_` can do without. */
export interface AddbmmInPlaceOptions {
  /** 1 if not given. */
  beta?: Numeric;
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `addcdiv` can do without. */
export interface AddcdivOptions {
  /** 1 if not given. */
  value?: Numeric;
}

/** What `addcdiv_` can do without. */
export interface AddcdivInPlaceOptions {
  /** 1 if not given. */
  value?: Numeric;
}

/** What `addcmul` can do without. */
export interface AddcmulOptions {
  /** 1 if not given. */
  value?: Numeric;
}

/** What `addcmul_` can do without. */
export interface AddcmulInPlaceOptions {
  /** 1 if not given. */
  value?: Numeric;
}

/** What `addmm` can do without. */
export interface AddmmOptions {
  /** 1 if not given. */
  beta?: Numeric;
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `addmm_` can do without. */
export interface AddmmInPlaceOptions {
  /** 1 if not given. */
  beta?: Numeric;
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `addmv` can do without. */
export interface AddmvOptions {
  /** 1 if not given. */
  beta?: Numeric;
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `addmv_` can do without. */
export interface AddmvInPlaceOptions {
  /** 1 if not given. */
  beta?: Numeric;
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `addr` can do without. */
export interface AddrOptions {
  /** 1 if not given. */
  beta?: Numeric;
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `addr_` can do without. */
export interface AddrInPlaceOptions {
  /** 1 if not given. */
  beta?: Numeric;
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `all` can do without. */
export interface AllOptions {
  dim?: number | readonly number[];
  /** false if not given. */
  keepdim?: boolean;
}

/** What `allclose` can do without. */
export interface AllcloseOptions {
  /** 1e-05 if not given. */
  rtol?: number | ProgramNumber;
  /** 1e-08 if not given. */
  atol?: number | ProgramNumber;
  /** false if not given. */
  equalNan?: boolean;
}

/** What `amax` can do without. */
export interface AmaxOptions {
  /** [] if not given. */
  dim?: number | readonly number[];
  /** false if not given. */
  keepdim?: boolean;
}

/** What `amin` can do without. */
export interface AminOptions {
  /** [] if not given. */
  dim?: number | readonly number[];
  /** false if not given. */
  keepdim?: boolean;
}

/** What `aminmax` can do without. */
export interface AminmaxOptions {
  dim?: number;
  /** false if not given. */
  keepdim?: boolean;
}

/** What `any` can do without. */
export interface AnyOptions {
  dim?: number | readonly number[];
  /** false if not given. */
  keepdim?: boolean;
}

/** What `arange` can do without. */
export interface ArangeOptions {
  end?: Numeric | null;
  /** 1 if not given. */
  step?: Numeric;
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `argmax` can do without. */
export interface ArgmaxOptions {
  dim?: number;
  /** false if not given. */
  keepdim?: boolean;
}

/** What `argmin` can do without. */
export interface ArgminOptions {
  dim?: number;
  /** false if not given. */
  keepdim?: boolean;
}

/** What `argsort` can do without. */
export interface ArgsortOptions {
  /** -1 if not given. */
  dim?: number;
  /** false if not given. */
  descending?: boolean;
  /** false if not given. */
  stable?: boolean;
}

/** What `asStrided` can do without. */
export interface AsStridedOptions {
  storageOffset?: number;
}

/** What `baddbmm` can do without. */
export interface BaddbmmOptions {
  /** 1 if not given. */
  beta?: Numeric;
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `baddbmm_` can do without. */
export interface BaddbmmInPlaceOptions {
  /** 1 if not given. */
  beta?: Numeric;
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `bernoulli` can do without. */
export interface BernoulliOptions {
  p?: number | ProgramNumber;
}

/** What `bernoulli_` can do without. */
export interface BernoulliInPlaceOptions {
  p?: number | ProgramNumber;
}

/** What `bincount` can do without. */
export interface BincountOptions {
  weights?: Tensor | null;
  /** 0 if not given. */
  minlength?: number;
}

/** What `cauchy_` can do without. */
export interface CauchyInPlaceOptions {
  /** 0.0 if not given. */
  median?: number | ProgramNumber;
  /** 1.0 if not given. */
  sigma?: number | ProgramNumber;
}

/** What `choleskyInverse` can do without. */
export interface CholeskyInverseOptions {
  /** false if not given. */
  upper?: boolean;
}

/** What `choleskySolve` can do without. */
export interface CholeskySolveOptions {
  /** false if not given. */
  upper?: boolean;
}

/** What `chunk` can do without. */
export interface ChunkOptions {
  /** 0 if not given. */
  dim?: number;
}

/** What `clamp` can do without. */
export interface ClampOptions {
  min?: Operand | null;
  max?: Operand | null;
}

/** What `clamp_` can do without. */
export interface ClampInPlaceOptions {
  min?: Operand | null;
  max?: Operand | null;
}

/** What `contiguous` can do without. */
export interface ContiguousOptions {
  /** "contiguous_format" if not given. */
  memoryFormat?: "contiguous_format" | "channels_last" | "channels_last_3d";
}

/** What `copy_` can do without. */
export interface CopyInPlaceOptions {
  /** false if not given. */
  nonBlocking?: boolean;
}

/** What `countNonzero` can do without. */
export interface CountNonzeroOptions {
  dim?: number | readonly number[];
}

/** What `cov` can do without. */
export interface CovOptions {
  /** 1 if not given. */
  correction?: number;
  fweights?: Tensor | null;
  aweights?: Tensor | null;
}

/** What `cross` can do without. */
export interface CrossOptions {
  dim?: number;
}

/** What `cumprod` can do without. */
export interface CumprodOptions {
  dtype?: DType;
}

/** What `cumprod_` can do without. */
export interface CumprodInPlaceOptions {
  dtype?: DType;
}

/** What `cumsum` can do without. */
export interface CumsumOptions {
  dtype?: DType;
}

/** What `cumsum_` can do without. */
export interface CumsumInPlaceOptions {
  dtype?: DType;
}

/** What `diag` can do without. */
export interface DiagOptions {
  /** 0 if not given. */
  diagonal?: number;
}

/** What `diagEmbed` can do without. */
export interface DiagEmbedOptions {
  /** 0 if not given. */
  offset?: number;
  /** -2 if not given. */
  dim1?: number;
  /** -1 if not given. */
  dim2?: number;
}

/** What `diagflat` can do without. */
export interface DiagflatOptions {
  /** 0 if not given. */
  offset?: number;
}

/** What `diagonal` can do without. */
export interface DiagonalOptions {
  /** 0 if not given. */
  offset?: number;
  /** 0 if not given. */
  dim1?: number;
  /** 1 if not given. */
  dim2?: number;
}

/** What `diagonalScatter` can do without. */
export interface DiagonalScatterOptions {
  /** 0 if not given. */
  offset?: number;
  /** 0 if not given. */
  dim1?: number;
  /** 1 if not given. */
  dim2?: number;
}

/** What `diff` can do without. */
export interface DiffOptions {
  /** 1 if not given. */
  n?: number;
  /** -1 if not given. */
  dim?: number;
  prepend?: Tensor | null;
  append?: Tensor | null;
}

/** What `dist` can do without. */
export interface DistOptions {
  /** 2 if not given. */
  p?: number | ProgramNumber;
}

/** What `div` can do without. */
export interface DivOptions {
  roundingMode?: "trunc" | "floor";
}

/** What `div_` can do without. */
export interface DivInPlaceOptions {
  roundingMode?: "trunc" | "floor";
}

/** What `empty` can do without. */
export interface EmptyOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `exponential_` can do without. */
export interface ExponentialInPlaceOptions {
  /** 1.0 if not given. */
  lambd?: number | ProgramNumber;
}

/** What `eye` can do without. */
export interface EyeOptions {
  m?: number;
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `flatten` can do without. */
export interface FlattenOptions {
  /** 0 if not given. */
  startDim?: number;
  /** -1 if not given. */
  endDim?: number;
}

/** What `full` can do without. */
export interface FullOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `gather` can do without. */
export interface GatherOptions {
  /** false if not given. */
  sparseGrad?: boolean;
}

/** What `hardshrink` can do without. */
export interface HardshrinkOptions {
  /** 0.5 if not given. */
  lambd?: number | ProgramNumber;
}

/** What `histc` can do without. */
export interface HistcOptions {
  /** 100 if not given. */
  bins?: number;
  /** 0.0 if not given. */
  min?: number | ProgramNumber;
  /** 0.0 if not given. */
  max?: number | ProgramNumber;
}

/** What `indexAdd` can do without. */
export interface IndexAddOptions {
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `indexAdd_` can do without. */
export interface IndexAddInPlaceOptions {
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `indexPut` can do without. */
export interface IndexPutOptions {
  /** false if not given. */
  accumulate?: boolean;
}

/** What `indexPut_` can do without. */
export interface IndexPutInPlaceOptions {
  /** false if not given. */
  accumulate?: boolean;
}

/** What `indexReduce` can do without. */
export interface IndexReduceOptions {
  /** true if not given. */
  includeSelf?: boolean;
}

/** What `indexReduce_` can do without. */
export interface IndexReduceInPlaceOptions {
  /** true if not given. */
  includeSelf?: boolean;
}

/** What `isclose` can do without. */
export interface IscloseOptions {
  /** 1e-05 if not given. */
  rtol?: number | ProgramNumber;
  /** 1e-08 if not given. */
  atol?: number | ProgramNumber;
  /** false if not given. */
  equalNan?: boolean;
}

/** What `isin` can do without. */
export interface IsinOptions {
  /** false if not given. */
  assumeUnique?: boolean;
  /** false if not given. */
  invert?: boolean;
}

/** What `istft` can do without. */
export interface IstftOptions {
  hopLength?: number;
  winLength?: number;
  window?: Tensor | null;
  /** true if not given. */
  center?: boolean;
  /** false if not given. */
  normalized?: boolean;
  onesided?: boolean;
  length?: number;
  /** false if not given. */
  returnComplex?: boolean;
}

/** What `kthvalue` can do without. */
export interface KthvalueOptions {
  /** -1 if not given. */
  dim?: number;
  /** false if not given. */
  keepdim?: boolean;
}

/** What `linspace` can do without. */
export interface LinspaceOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `logNormal_` can do without. */
export interface LogNormalInPlaceOptions {
  /** 1.0 if not given. */
  mean?: number | ProgramNumber;
  /** 2.0 if not given. */
  std?: number | ProgramNumber;
}

/** What `logSoftmax` can do without. */
export interface LogSoftmaxOptions {
  dtype?: DType;
}

/** What `logit` can do without. */
export interface LogitOptions {
  eps?: number | ProgramNumber;
}

/** What `logit_` can do without. */
export interface LogitInPlaceOptions {
  eps?: number | ProgramNumber;
}

/** What `logspace` can do without. */
export interface LogspaceOptions {
  /** 10.0 if not given. */
  base?: number | ProgramNumber;
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `logsumexp` can do without. */
export interface LogsumexpOptions {
  /** false if not given. */
  keepdim?: boolean;
}

/** What `maxDim` can do without. */
export interface MaxDimOptions {
  /** false if not given. */
  keepdim?: boolean;
}

/** What `maxOther` can do without. */
export interface MaxOtherOptions {
  other?: Tensor;
}

/** What `mean` can do without. */
export interface MeanOptions {
  dim?: number | readonly number[];
  /** false if not given. */
  keepdim?: boolean;
  dtype?: DType;
}

/** What `medianDim` can do without. */
export interface MedianDimOptions {
  /** false if not given. */
  keepdim?: boolean;
}

/** What `minDim` can do without. */
export interface MinDimOptions {
  /** false if not given. */
  keepdim?: boolean;
}

/** What `minOther` can do without. */
export interface MinOtherOptions {
  other?: Tensor;
}

/** What `mode` can do without. */
export interface ModeOptions {
  /** -1 if not given. */
  dim?: number;
  /** false if not given. */
  keepdim?: boolean;
}

/** What `multinomial` can do without. */
export interface MultinomialOptions {
  /** false if not given. */
  replacement?: boolean;
}

/** What `nanToNum` can do without. */
export interface NanToNumOptions {
  nan?: number | ProgramNumber;
  posinf?: number | ProgramNumber;
  neginf?: number | ProgramNumber;
}

/** What `nanToNum_` can do without. */
export interface NanToNumInPlaceOptions {
  nan?: number | ProgramNumber;
  posinf?: number | ProgramNumber;
  neginf?: number | ProgramNumber;
}

/** What `nanmean` can do without. */
export interface NanmeanOptions {
  dim?: number | readonly number[];
  /** false if not given. */
  keepdim?: boolean;
  dtype?: DType;
}

/** What `nanmedianDim` can do without. */
export interface NanmedianDimOptions {
  /** false if not given. */
  keepdim?: boolean;
}

/** What `nanquantile` can do without. */
export interface NanquantileOptions {
  dim?: number;
  /** false if not given. */
  keepdim?: boolean;
  /** "linear" if not given. */
  interpolation?: "linear" | "lower" | "higher" | "midpoint" | "nearest";
}

/** What `nansum` can do without. */
export interface NansumOptions {
  dim?: number | readonly number[];
  /** false if not given. */
  keepdim?: boolean;
  dtype?: DType;
}

/** What `newEmpty` can do without. */
export interface NewEmptyOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `newFull` can do without. */
export interface NewFullOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `newOnes` can do without. */
export interface NewOnesOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `newZeros` can do without. */
export interface NewZerosOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `norm` can do without. */
export interface NormOptions {
  /** "fro" if not given. */
  p?: Numeric | "fro" | "nuc" | null;
  dim?: number | readonly number[];
  /** false if not given. */
  keepdim?: boolean;
  dtype?: DType;
}

/** What `normal` can do without. */
export interface NormalOptions {
  /** 1.0 if not given. */
  std?: Operand;
  size?: number | readonly number[];
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `normal_` can do without. */
export interface NormalInPlaceOptions {
  /** 0.0 if not given. */
  mean?: number | ProgramNumber;
  /** 1.0 if not given. */
  std?: number | ProgramNumber;
}

/** What `ones` can do without. */
export interface OnesOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `prod` can do without. */
export interface ProdOptions {
  dim?: number;
  /** false if not given. */
  keepdim?: boolean;
  dtype?: DType;
}

/** What `put` can do without. */
export interface PutOptions {
  /** false if not given. */
  accumulate?: boolean;
}

/** What `put_` can do without. */
export interface PutInPlaceOptions {
  /** false if not given. */
  accumulate?: boolean;
}

/** What `quantile` can do without. */
export interface QuantileOptions {
  dim?: number;
  /** false if not given. */
  keepdim?: boolean;
  /** "linear" if not given. */
  interpolation?: "linear" | "lower" | "higher" | "midpoint" | "nearest";
}

/** What `rand` can do without. */
export interface RandOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `randint` can do without. */
export interface RandintOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `randn` can do without. */
export interface RandnOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `random_` can do without. */
export interface RandomInPlaceOptions {
  /** 0 if not given. */
  from?: number;
  to?: number;
}

/** What `randperm` can do without. */
export interface RandpermOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `repeatInterleave` can do without. */
export interface RepeatInterleaveOptions {
  dim?: number;
  outputSize?: number;
}

/** What `roll` can do without. */
export interface RollOptions {
  /** [] if not given. */
  dims?: number | readonly number[];
}

/** What `rot90` can do without. */
export interface Rot90Options {
  /** 1 if not given. */
  k?: number;
  /** [0, 1] if not given. */
  dims?: number | readonly number[];
}

/** What `round` can do without. */
export interface RoundOptions {
  /** 0 if not given. */
  decimals?: number;
}

/** What `round_` can do without. */
export interface RoundInPlaceOptions {
  /** 0 if not given. */
  decimals?: number;
}

/** What `scalarTensor` can do without. */
export interface ScalarTensorOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** What `scatterValue` can do without. */
export interface ScatterValueOptions {
  value?: Numeric;
}

/** What `scatterValue_` can do without. */
export interface ScatterValueInPlaceOptions {
  value?: Numeric;
}

/** What `scatterReduce` can do without. */
export interface ScatterReduceOptions {
  /** true if not given. */
  includeSelf?: boolean;
}

/** What `scatterReduce_` can do without. */
export interface ScatterReduceInPlaceOptions {
  /** true if not given. */
  includeSelf?: boolean;
}

/** What `sliceScatter` can do without. */
export interface SliceScatterOptions {
  /** 0 if not given. */
  dim?: number;
  start?: number;
  end?: number;
  /** 1 if not given. */
  step?: number;
}

/** What `softmax` can do without. */
export interface SoftmaxOptions {
  dtype?: DType;
}

/** What `sort` can do without. */
export interface SortOptions {
  /** -1 if not given. */
  dim?: number;
  /** false if not given. */
  descending?: boolean;
  /** false if not given. */
  stable?: boolean;
}

/** What `splitInt` can do without. */
export interface SplitIntOptions {
  /** 0 if not given. */
  dim?: number;
}

/** What `splitSections` can do without. */
export interface SplitSectionsOptions {
  /** 0 if not given. */
  dim?: number;
}

/** What `splitWithSizes` can do without. */
export interface SplitWithSizesOptions {
  /** 0 if not given. */
  dim?: number;
}

/** What `squeeze` can do without. */
export interface SqueezeOptions {
  dim?: number | readonly number[];
}

/** What `std` can do without. */
export interface StdOptions {
  dim?: number | readonly number[];
  unbiased?: boolean;
  /** false if not given. */
  keepdim?: boolean;
  correction?: Numeric | null;
}

/** What `stft` can do without. */
export interface StftOptions {
  hopLength?: number;
  winLength?: number;
  window?: Tensor | null;
  /** true if not given. */
  center?: boolean;
  /** "reflect" if not given. */
  padMode?: "constant" | "reflect" | "replicate" | "circular";
  /** false if not given. */
  normalized?: boolean;
  onesided?: boolean;
  returnComplex?: boolean;
  alignToWindow?: boolean;
}

/** What `sub` can do without. */
export interface SubOptions {
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `sub_` can do without. */
export interface SubInPlaceOptions {
  /** 1 if not given. */
  alpha?: Numeric;
}

/** What `sum` can do without. */
export interface SumOptions {
  dim?: number | readonly number[];
  /** false if not given. */
  keepdim?: boolean;
  dtype?: DType;
}

/** What `takeAlongDim` can do without. */
export interface TakeAlongDimOptions {
  dim?: number;
}

/** What `tensorSplitSections` can do without. */
export interface TensorSplitSectionsOptions {
  /** 0 if not given. */
  dim?: number;
}

/** What `tensorSplitIndices` can do without. */
export interface TensorSplitIndicesOptions {
  /** 0 if not given. */
  dim?: number;
}

/** What `to` can do without. */
export interface ToOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  nonBlocking?: boolean;
  /** false if not given. */
  copy?: boolean;
}

/** What `topk` can do without. */
export interface TopkOptions {
  /** -1 if not given. */
  dim?: number;
  /** true if not given. */
  largest?: boolean;
  /** true if not given. */
  sorted?: boolean;
}

/** What `tril` can do without. */
export interface TrilOptions {
  /** 0 if not given. */
  diagonal?: number;
}

/** What `tril_` can do without. */
export interface TrilInPlaceOptions {
  /** 0 if not given. */
  diagonal?: number;
}

/** What `trilIndices` can do without. */
export interface TrilIndicesOptions {
  /** 0 if not given. */
  offset?: number;
  dtype?: DType;
  device?: string;
}

/** What `triu` can do without. */
export interface TriuOptions {
  /** 0 if not given. */
  diagonal?: number;
}

/** What `triu_` can do without. */
export interface TriuInPlaceOptions {
  /** 0 if not given. */
  diagonal?: number;
}

/** What `triuIndices` can do without. */
export interface TriuIndicesOptions {
  /** 0 if not given. */
  offset?: number;
  dtype?: DType;
  device?: string;
}

/** What `unbind` can do without. */
export interface UnbindOptions {
  /** 0 if not given. */
  dim?: number;
}

/** What `uniform_` can do without. */
export interface UniformInPlaceOptions {
  /** 0.0 if not given. */
  from?: number | ProgramNumber;
  /** 1.0 if not given. */
  to?: number | ProgramNumber;
}

/** What `unique` can do without. */
export interface UniqueOptions {
  /** true if not given. */
  sorted?: boolean;
  dim?: number;
}

/** What `uniqueInverse` can do without. */
export interface UniqueInverseOptions {
  /** true if not given. */
  sorted?: boolean;
  dim?: number;
}

/** What `uniqueCounts` can do without. */
export interface UniqueCountsOptions {
  /** true if not given. */
  sorted?: boolean;
  dim?: number;
}

/** What `uniqueInverseCounts` can do without. */
export interface UniqueInverseCountsOptions {
  /** true if not given. */
  sorted?: boolean;
  dim?: number;
}

/** What `uniqueConsecutive` can do without. */
export interface UniqueConsecutiveOptions {
  dim?: number;
}

/** What `uniqueConsecutiveInverse` can do without. */
export interface UniqueConsecutiveInverseOptions {
  dim?: number;
}

/** What `uniqueConsecutiveCounts` can do without. */
export interface UniqueConsecutiveCountsOptions {
  dim?: number;
}

/** What `uniqueConsecutiveInverseCounts` can do without. */
export interface UniqueConsecutiveInverseCountsOptions {
  dim?: number;
}

/** What `unsafeChunk` can do without. */
export interface UnsafeChunkOptions {
  /** 0 if not given. */
  dim?: number;
}

/** What `unsafeSplit` can do without. */
export interface UnsafeSplitOptions {
  /** 0 if not given. */
  dim?: number;
}

/** What `unsafeSplitWithSizes` can do without. */
export interface UnsafeSplitWithSizesOptions {
  /** 0 if not given. */
  dim?: number;
}

/** What `var` can do without. */
export interface VarOptions {
  dim?: number | readonly number[];
  unbiased?: boolean;
  /** false if not given. */
  keepdim?: boolean;
  correction?: Numeric | null;
}

/** What `zeros` can do without. */
export interface ZerosOptions {
  dtype?: DType;
  device?: string;
  /** false if not given. */
  requiresGrad?: boolean;
}

/** ListOpsResponse.hash of these ops. */
export const OPS_HASH = "0bb29ede29c60df70218504a9c53bcc8ba99f843460bb46582dbced35b8cd179";

/** The ops that are methods of a tensor. */
export abstract class TensorMethods {
  /** Transpose and conjugate a matrix (torch.Tensor.H). */
  H(this: Tensor): Tensor {
    return new Call("H").tensor("", this).one();
  }

  /** Reverse the order of all dimensions (torch.Tensor.T). */
  T(this: Tensor): Tensor {
    return new Call("T").tensor("", this).one();
  }

  /** Absolute value; real for complex numbers (torch.abs). */
  abs(this: Tensor): Tensor {
    return new Call("abs").tensor("", this).one();
  }

  /** Absolute value; real for complex numbers (torch.abs). */
  abs_(this: Tensor): Tensor {
    return new Call("abs_").tensor("", this).inPlace();
  }

  /** Inverse cosine (torch.acos). */
  acos(this: Tensor): Tensor {
    return new Call("acos").tensor("", this).one();
  }

  /** Inverse cosine (torch.acos). */
  acos_(this: Tensor): Tensor {
    return new Call("acos_").tensor("", this).inPlace();
  }

  /** Inverse hyperbolic cosine (torch.acosh). */
  acosh(this: Tensor): Tensor {
    return new Call("acosh").tensor("", this).one();
  }

  /** Inverse hyperbolic cosine (torch.acosh). */
  acosh_(this: Tensor): Tensor {
    return new Call("acosh_").tensor("", this).inPlace();
  }

  /** input + alpha * other (torch.add). */
  add(this: Tensor, other: Operand, options: AddOptions = {}): Tensor {
    const call = new Call("add").operand("", this).operand("", other);
    if (options.alpha !== undefined) call.number("alpha", options.alpha);
    return call.one();
  }

  /** input + alpha * other (torch.add). */
  add_(this: Tensor, other: Operand, options: AddInPlaceOptions = {}): Tensor {
    const call = new Call("add_").tensor("", this).operand("", other);
    if (options.alpha !== undefined) call.number("alpha", options.alpha);
    return call.inPlace();
  }

  /** beta * input + alpha * bmm(batch1, batch2).sum(0) (torch.addbmm). */
  addbmm(this: Tensor, batch1: Tensor, batch2: Tensor, options: AddbmmOptions = {}): Tensor {
    const call = new Call("addbmm").tensor("", this).tensor("", batch1).tensor("", batch2);
    if (options.beta !== undefined) call.number("beta", options.beta);
    if (options.alpha !== undefined) call.number("alpha", options.alpha);
    return call.one();
  }

  /** beta * input + alpha * bmm(batch1, batch2).sum(0) (torch.addbmm). */
  addbmm_(this: Tensor, batch1: Tensor, batch2: Tensor, options: AddbmmInPlaceOptions = {}): Tensor {
    const call = new Call("addbmm_").tensor("", this).tensor("", batch1).tensor("", batch2);
    if (options.beta !== undefined) call.number("beta", options.beta);
    if (options.alpha !== undefined) call.number("alpha", options.alpha);
    return call.inPlace();
  }

  /** input + value * tensor1 / tensor2 (torch.addcdiv). */
  addcdiv(this: Tensor, tensor1: Tensor, tensor2: Tensor, options: AddcdivOptions = {}): Tensor {
    const call = new Call("addcdiv").tensor("", this).tensor("", tensor1).tensor("", tensor2);
    if (options.value !== undefined) call.number("value", options.value);
    return call.one();
  }

  /** input + value * tensor1 / tensor2 (torch.addcdiv). */
  addcdiv_(this: Tensor, tensor1: Tensor, tensor2: Tensor, options: AddcdivInPlaceOptions = {}): Tensor {
    const call = new Call("addcdiv_").tensor("", this).tensor("", tensor1).tensor("", tensor2);
    if (options.value !== undefined) call.number("value", options.value);
    return call.inPlace();
  }

  /** input + value * tensor1 * tensor2 (torch.addcmul). */
  addcmul(this: Tensor, tensor1: Tensor, tensor2: Tensor, options: AddcmulOptions = {}): Tensor {
    const call = new Call("addcmul").tensor("", this).tensor("", tensor1).tensor("", tensor2);
    if (options.value !== undefined) call.number("value", options.value);
    return call.one();
  }

  /** input + value * tensor1 * tensor2 (torch.addcmul). */
  addcmul_(this: Tensor, tensor1: Tensor, tensor2: Tensor, options: AddcmulInPlaceOptions = {}): Tensor {
    const call = new Call("addcmul_").tensor("", this).tensor("", tensor1).tensor("", tensor2);
    if (options.value !== undefined) call.number("value", options.value);
    return call.inPlace();
  }

  /** beta * input + alpha * (mat1 @ mat2) (torch.addmm). */
  addmm(this: Tensor, mat1: Tensor, mat2: Tensor, options: AddmmOptions = {}): Tensor {
    const call = new Call("addmm").tensor("", this).tensor("", mat1).tensor("", mat2);
    if (options.beta !== undefined) call.number("beta", options.beta);
    if (options.alpha !== undefined) call.number("alpha", options.alpha);
    return call.one();
  }

  /** beta * input + alpha * (mat1 @ mat2) (torch.addmm). */
  addmm_(this: Tensor, mat1: Tensor, mat2: Tensor, options: AddmmInPlaceOptions = {}): Tensor {
    const call = new Call("addmm_").tensor("", this).tensor("", mat1).tensor("", mat2);
    if (options.beta !== undefined) call.number("beta", options.beta);
    if (options.alpha !== undefined) call.number("alpha", options.alpha);
    return call.inPlace();
  }

  /** beta * input + alpha * (mat @ vec) (torch.addmv). input: broadcasts to (n,); mat: (n, k); vec: (k,). */
  addmv(this: Tensor, mat: Tensor, vec: Tensor, options: AddmvOptions = {}): Tensor {
    const call = new Call("addmv").tensor("", this).tensor("", mat).tensor("", vec);
    if (options.beta !== undefined) call.number("beta", options.beta);
    if (options.alpha !== undefined) call.number("alpha", options.alpha);
    return call.one();
  }

  /** beta * input + alpha * (mat @ vec) (torch.addmv). input: broadcasts to (n,); mat: (n, k); vec: (k,). */
  addmv_(this: Tensor, mat: Tensor, vec: Tensor, options: AddmvInPlaceOptions = {}): Tensor {
    const call = new Call("addmv_").tensor("", this).tensor("", mat).tensor("", vec);
    if (options.beta !== undefined) call.number("beta", options.beta);
    if (options.alpha !== undefined) call.number("alpha", options.alpha);
    return call.inPlace();
  }

  /** beta * input + alpha * outer(vec1, vec2) (torch.addr). input: broadcasts to (n, m); vec1: (n,); vec2: (m,). */
  addr(this: Tensor, vec1: Tensor, vec2: Tensor, options: AddrOptions = {}): Tensor {
    const call = new Call("addr").tensor("", this).tensor("", vec1).tensor("", vec2);
    if (options.beta !== undefined) call.number("beta", options.beta);
    if (options.alpha !== undefined) call.number("alpha", options.alpha);
    return call.one();
  }

  /** beta * input + alpha * outer(vec1, vec2) (torch.addr). input: broadcasts to (n, m); vec1: (n,); vec2: (m,). */
  addr_(this: Tensor, vec1: Tensor, vec2: Tensor, options: AddrInPlaceOptions = {}): Tensor {
    const call = new Call("addr_").tensor("", this).tensor("", vec1).tensor("", vec2);
    if (options.beta !== undefined) call.number("beta", options.beta);
    if (options.alpha !== undefined) call.number("alpha", options.alpha);
    return call.inPlace();
  }

  /** Whether all elements over `dim`, or over all dimensions, are nonzero (torch.all). */
  all(this: Tensor, options: AllOptions = {}): Tensor {
    const call = new Call("all").tensor("", this);
    if (options.dim !== undefined) call.integers("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    return call.one();
  }

  /** Whether all elements are close; a 0-d bool (torch.allclose). */
  allclose(this: Tensor, other: Tensor, options: AllcloseOptions = {}): Tensor {
    const call = new Call("allclose").tensor("", this).tensor("", other);
    if (options.rtol !== undefined) call.float("rtol", options.rtol);
    if (options.atol !== undefined) call.float("atol", options.atol);
    if (options.equalNan !== undefined) call.boolean("equal_nan", options.equalNan);
    return call.one();
  }

  /** Maximum over `dim`, or over all dimensions; ties share the gradient (torch.amax). */
  amax(this: Tensor, options: AmaxOptions = {}): Tensor {
    const call = new Call("amax").tensor("", this);
    if (options.dim !== undefined) call.integers("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    return call.one();
  }

  /** Minimum over `dim`, or over all dimensions; ties share the gradient (torch.amin). */
  amin(this: Tensor, options: AminOptions = {}): Tensor {
    const call = new Call("amin").tensor("", this);
    if (options.dim !== undefined) call.integers("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    return call.one();
  }

  /** Minimum and maximum, of all elements or along `dim` (torch.aminmax). */
  aminmax(this: Tensor, options: AminmaxOptions = {}): [min: Tensor, max: Tensor] {
    const call = new Call("aminmax").tensor("", this);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    return call.several(2) as [min: Tensor, max: Tensor];
  }

  /** Angle of complex numbers; for real numbers 0, pi if negative, nan for nan (torch.angle). */
  angle(this: Tensor): Tensor {
    return new Call("angle").tensor("", this).one();
  }

  /** Whether any element over `dim`, or over all dimensions, is nonzero (torch.any). */
  any(this: Tensor, options: AnyOptions = {}): Tensor {
    const call = new Call("any").tensor("", this);
    if (options.dim !== undefined) call.integers("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    return call.one();
  }

  /** Index of the maximum, along `dim` or in the flattened tensor (torch.argmax). */
  argmax(this: Tensor, options: ArgmaxOptions = {}): Tensor {
    const call = new Call("argmax").tensor("", this);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    return call.one();
  }

  /** Index of the minimum, along `dim` or in the flattened tensor (torch.argmin). */
  argmin(this: Tensor, options: ArgminOptions = {}): Tensor {
    const call = new Call("argmin").tensor("", this);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    return call.one();
  }

  /** Indices that sort along `dim` (torch.argsort); equal elements as with `sort`. */
  argsort(this: Tensor, options: ArgsortOptions = {}): Tensor {
    const call = new Call("argsort").tensor("", this);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    if (options.descending !== undefined) call.boolean("descending", options.descending);
    if (options.stable !== undefined) call.boolean("stable", options.stable);
    return call.one();
  }

  /** Indices of nonzero elements, one per row (torch.argwhere). */
  argwhere(this: Tensor): Tensor {
    return new Call("argwhere").tensor("", this).one();
  }

  /** View of the input's memory with the given sizes and strides, in elements (torch.as_strided). */
  asStrided(
    this: Tensor,
    size: number | readonly number[],
    stride: number | readonly number[],
    options: AsStridedOptions = {},
  ): Tensor {
    const call = new Call("as_strided").tensor("", this).integers("", size).integers("", stride);
    if (options.storageOffset !== undefined) call.integer("storage_offset", options.storageOffset);
    return call.one();
  }

  /** Inverse sine (torch.asin). */
  asin(this: Tensor): Tensor {
    return new Call("asin").tensor("", this).one();
  }

  /** Inverse sine (torch.asin). */
  asin_(this: Tensor): Tensor {
    return new Call("asin_").tensor("", this).inPlace();
  }

  /** Inverse hyperbolic sine (torch.asinh). */
  asinh(this: Tensor): Tensor {
    return new Call("asinh").tensor("", this).one();
  }

  /** Inverse hyperbolic sine (torch.asinh). */
  asinh_(this: Tensor): Tensor {
    return new Call("asinh_").tensor("", this).inPlace();
  }

  /** Inverse tangent (torch.atan). */
  atan(this: Tensor): Tensor {
    return new Call("atan").tensor("", this).one();
  }

  /** Angle of the point (other, input) (torch.atan2). */
  atan2(this: Tensor, other: Tensor): Tensor {
    return new Call("atan2").tensor("", this).tensor("", other).one();
  }

  /** Angle of the point (other, input) (torch.atan2). */
  atan2_(this: Tensor, other: Tensor): Tensor {
    return new Call("atan2_").tensor("", this).tensor("", other).inPlace();
  }

  /** Inverse tangent (torch.atan). */
  atan_(this: Tensor): Tensor {
    return new Call("atan_").tensor("", this).inPlace();
  }

  /** Inverse hyperbolic tangent (torch.atanh). */
  atanh(this: Tensor): Tensor {
    return new Call("atanh").tensor("", this).one();
  }

  /** Inverse hyperbolic tangent (torch.atanh). */
  atanh_(this: Tensor): Tensor {
    return new Call("atanh_").tensor("", this).inPlace();
  }

  /** beta * input + alpha * bmm(batch1, batch2) (torch.baddbmm). */
  baddbmm(this: Tensor, batch1: Tensor, batch2: Tensor, options: BaddbmmOptions = {}): Tensor {
    const call = new Call("baddbmm").tensor("", this).tensor("", batch1).tensor("", batch2);
    if (options.beta !== undefined) call.number("beta", options.beta);
    if (options.alpha !== undefined) call.number("alpha", options.alpha);
    return call.one();
  }

  /** beta * input + alpha * bmm(batch1, batch2) (torch.baddbmm). */
  baddbmm_(this: Tensor, batch1: Tensor, batch2: Tensor, options: BaddbmmInPlaceOptions = {}): Tensor {
    const call = new Call("baddbmm_").tensor("", this).tensor("", batch1).tensor("", batch2);
    if (options.beta !== undefined) call.number("beta", options.beta);
    if (options.alpha !== undefined) call.number("alpha", options.alpha);
    return call.inPlace();
  }

  /** Draw 1 with the probability given by each element, or by p, else 0 (torch.bernoulli). The gradient is zero. */
  bernoulli(this: Tensor, options: BernoulliOptions = {}): Tensor {
    const call = new Call("bernoulli").tensor("", this);
    if (options.p !== undefined) call.float("p", options.p);
    return call.one();
  }

  /** Write 1 with the probability given by each element, or by p, else 0 (torch.Tensor.bernoulli_). */
  bernoulli_(this: Tensor, options: BernoulliInPlaceOptions = {}): Tensor {
    const call = new Call("bernoulli_").tensor("", this);
    if (options.p !== undefined) call.float("p", options.p);
    return call.inPlace();
  }

  /** Count each integer from 0 on, or sum its weights (torch.bincount). */
  bincount(this: Tensor, options: BincountOptions = {}): Tensor {
    const call = new Call("bincount").tensor("", this);
    if (options.weights !== undefined) call.tensor("weights", options.weights);
    if (options.minlength !== undefined) call.integer("minlength", options.minlength);
    return call.one();
  }

  /** Bitwise and (torch.bitwise_and). */
  bitwiseAnd(this: Tensor, other: Operand): Tensor {
    return new Call("bitwise_and").operand("", this).operand("", other).one();
  }

  /** Bitwise and (torch.bitwise_and). */
  bitwiseAnd_(this: Tensor, other: Operand): Tensor {
    return new Call("bitwise_and_").tensor("", this).operand("", other).inPlace();
  }

  /** Shift the bits of the input left by `other`; 0 from the dtype's width on (torch.bitwise_left_shift). */
  bitwiseLeftShift(this: Tensor, other: Operand): Tensor {
    return new Call("bitwise_left_shift").operand("", this).operand("", other).one();
  }

  /** Shift the bits of the input left by `other`; 0 from the dtype's width on (torch.bitwise_left_shift). */
  bitwiseLeftShift_(this: Tensor, other: Operand): Tensor {
    return new Call("bitwise_left_shift_").tensor("", this).operand("", other).inPlace();
  }

  /** Bitwise not; logical not for bools (torch.bitwise_not). */
  bitwiseNot(this: Tensor): Tensor {
    return new Call("bitwise_not").tensor("", this).one();
  }

  /** Bitwise not; logical not for bools (torch.bitwise_not). */
  bitwiseNot_(this: Tensor): Tensor {
    return new Call("bitwise_not_").tensor("", this).inPlace();
  }

  /** Bitwise or (torch.bitwise_or). */
  bitwiseOr(this: Tensor, other: Operand): Tensor {
    return new Call("bitwise_or").operand("", this).operand("", other).one();
  }

  /** Bitwise or (torch.bitwise_or). */
  bitwiseOr_(this: Tensor, other: Operand): Tensor {
    return new Call("bitwise_or_").tensor("", this).operand("", other).inPlace();
  }

  /** Shift the bits of the input right by `other`, with sign extension (torch.bitwise_right_shift). */
  bitwiseRightShift(this: Tensor, other: Operand): Tensor {
    return new Call("bitwise_right_shift").operand("", this).operand("", other).one();
  }

  /** Shift the bits of the input right by `other`, with sign extension (torch.bitwise_right_shift). */
  bitwiseRightShift_(this: Tensor, other: Operand): Tensor {
    return new Call("bitwise_right_shift_").tensor("", this).operand("", other).inPlace();
  }

  /** Bitwise exclusive or (torch.bitwise_xor). */
  bitwiseXor(this: Tensor, other: Operand): Tensor {
    return new Call("bitwise_xor").operand("", this).operand("", other).one();
  }

  /** Bitwise exclusive or (torch.bitwise_xor). */
  bitwiseXor_(this: Tensor, other: Operand): Tensor {
    return new Call("bitwise_xor_").tensor("", this).operand("", other).inPlace();
  }

  /** Products of two batches of matrices (torch.bmm). */
  bmm(this: Tensor, mat2: Tensor): Tensor {
    return new Call("bmm").tensor("", this).tensor("", mat2).one();
  }

  /** Expand dimensions of size 1 to `size`; a view (torch.broadcast_to). */
  broadcastTo(this: Tensor, size: number | readonly number[]): Tensor {
    return new Call("broadcast_to").tensor("", this).integers("", size).one();
  }

  /** Cauchy distributed numbers, with the input's shape (torch.Tensor.cauchy_). */
  cauchy_(this: Tensor, options: CauchyInPlaceOptions = {}): Tensor {
    const call = new Call("cauchy_").tensor("", this);
    if (options.median !== undefined) call.float("median", options.median);
    if (options.sigma !== undefined) call.float("sigma", options.sigma);
    return call.inPlace();
  }

  /** Smallest integer not below the input (torch.ceil). */
  ceil(this: Tensor): Tensor {
    return new Call("ceil").tensor("", this).one();
  }

  /** Smallest integer not below the input (torch.ceil). */
  ceil_(this: Tensor): Tensor {
    return new Call("ceil_").tensor("", this).inPlace();
  }

  /** Inverse of A, given its Cholesky factor (torch.cholesky_inverse). */
  choleskyInverse(this: Tensor, options: CholeskyInverseOptions = {}): Tensor {
    const call = new Call("cholesky_inverse").tensor("", this);
    if (options.upper !== undefined) call.boolean("upper", options.upper);
    return call.one();
  }

  /** Solve A @ X = B, given A's Cholesky factor (torch.cholesky_solve). */
  choleskySolve(this: Tensor, L: Tensor, options: CholeskySolveOptions = {}): Tensor {
    const call = new Call("cholesky_solve").tensor("", this).tensor("", L);
    if (options.upper !== undefined) call.boolean("upper", options.upper);
    return call.one();
  }

  /** Split into at most `chunks` parts of equal size, the last maybe smaller (torch.chunk). */
  chunk(this: Tensor, chunks: number, options: ChunkOptions = {}): Promise<Tensor[]> {
    const call = new Call("chunk").tensor("", this).integer("", chunks);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.list();
  }

  /** Clamp the input to [min, max]; one of the bounds may be None (torch.clamp). */
  clamp(this: Tensor, options: ClampOptions = {}): Tensor {
    const call = new Call("clamp").tensor("", this);
    if (options.min !== undefined) call.operand("min", options.min);
    if (options.max !== undefined) call.operand("max", options.max);
    return call.one();
  }

  /** Clamp the input to [min, max]; one of the bounds may be None (torch.clamp). */
  clamp_(this: Tensor, options: ClampInPlaceOptions = {}): Tensor {
    const call = new Call("clamp_").tensor("", this);
    if (options.min !== undefined) call.operand("min", options.min);
    if (options.max !== undefined) call.operand("max", options.max);
    return call.inPlace();
  }

  /** Clamp the input to at most max (torch.clamp_max). */
  clampMax(this: Tensor, max: Operand): Tensor {
    return new Call("clamp_max").tensor("", this).operand("", max).one();
  }

  /** Clamp the input to at most max (torch.clamp_max). */
  clampMax_(this: Tensor, max: Operand): Tensor {
    return new Call("clamp_max_").tensor("", this).operand("", max).inPlace();
  }

  /** Clamp the input to at least min (torch.clamp_min). */
  clampMin(this: Tensor, min: Operand): Tensor {
    return new Call("clamp_min").tensor("", this).operand("", min).one();
  }

  /** Clamp the input to at least min (torch.clamp_min). */
  clampMin_(this: Tensor, min: Operand): Tensor {
    return new Call("clamp_min_").tensor("", this).operand("", min).inPlace();
  }

  /** Copy with the input's strides if it has no gaps, else row-major; with a node in the graph (torch.clone). */
  clone(this: Tensor): Tensor {
    return new Call("clone").tensor("", this).one();
  }

  /** Complex conjugate; a real tensor is returned unchanged (torch.conj). */
  conj(this: Tensor): Tensor {
    return new Call("conj").tensor("", this).one();
  }

  /** Return the tensor itself if it lies in the memory format without gaps, else a copy (torch.Tensor.contiguous). */
  contiguous(this: Tensor, options: ContiguousOptions = {}): Tensor {
    const call = new Call("contiguous").tensor("", this);
    if (options.memoryFormat !== undefined) call.string("memory_format", options.memoryFormat);
    return call.one();
  }

  /** src, broadcast to the input's shape and cast to its dtype and device (torch.Tensor.copy_). */
  copy_(this: Tensor, src: Tensor, options: CopyInPlaceOptions = {}): Tensor {
    const call = new Call("copy_").tensor("", this).tensor("", src);
    if (options.nonBlocking !== undefined) call.boolean("non_blocking", options.nonBlocking);
    return call.inPlace();
  }

  /** Absolute value of the input with the sign of `other` (torch.copysign). */
  copysign(this: Tensor, other: Operand): Tensor {
    return new Call("copysign").tensor("", this).operand("", other).one();
  }

  /** Absolute value of the input with the sign of `other` (torch.copysign). */
  copysign_(this: Tensor, other: Operand): Tensor {
    return new Call("copysign_").tensor("", this).operand("", other).inPlace();
  }

  /** Correlation coefficients of variables, one per row, in [-1, 1] (torch.corrcoef). */
  corrcoef(this: Tensor): Tensor {
    return new Call("corrcoef").tensor("", this).one();
  }

  /** Cosine (torch.cos). */
  cos(this: Tensor): Tensor {
    return new Call("cos").tensor("", this).one();
  }

  /** Cosine (torch.cos). */
  cos_(this: Tensor): Tensor {
    return new Call("cos_").tensor("", this).inPlace();
  }

  /** Hyperbolic cosine (torch.cosh). */
  cosh(this: Tensor): Tensor {
    return new Call("cosh").tensor("", this).one();
  }

  /** Hyperbolic cosine (torch.cosh). */
  cosh_(this: Tensor): Tensor {
    return new Call("cosh_").tensor("", this).inPlace();
  }

  /** Number of nonzero elements over `dim`, or over all dimensions (torch.count_nonzero). */
  countNonzero(this: Tensor, options: CountNonzeroOptions = {}): Tensor {
    const call = new Call("count_nonzero").tensor("", this);
    if (options.dim !== undefined) call.integers("dim", options.dim);
    return call.one();
  }

  /** Covariance matrix of variables, one per row (torch.cov). */
  cov(this: Tensor, options: CovOptions = {}): Tensor {
    const call = new Call("cov").tensor("", this);
    if (options.correction !== undefined) call.integer("correction", options.correction);
    if (options.fweights !== undefined) call.tensor("fweights", options.fweights);
    if (options.aweights !== undefined) call.tensor("aweights", options.aweights);
    return call.one();
  }

  /** Cross product; `dim` defaults to the first dimension of size 3 (torch.cross). */
  cross(this: Tensor, other: Tensor, options: CrossOptions = {}): Tensor {
    const call = new Call("cross").tensor("", this).tensor("", other);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.one();
  }

  /** Running maximum along `dim`, and its index (torch.cummax). */
  cummax(this: Tensor, dim: number): [values: Tensor, indices: Tensor] {
    return new Call("cummax").tensor("", this).integer("", dim).several(2) as [values: Tensor, indices: Tensor];
  }

  /** Running minimum along `dim`, and its index (torch.cummin). */
  cummin(this: Tensor, dim: number): [values: Tensor, indices: Tensor] {
    return new Call("cummin").tensor("", this).integer("", dim).several(2) as [values: Tensor, indices: Tensor];
  }

  /** Running product along `dim` (torch.cumprod). */
  cumprod(this: Tensor, dim: number, options: CumprodOptions = {}): Tensor {
    const call = new Call("cumprod").tensor("", this).integer("", dim);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    return call.one();
  }

  /** Running product along `dim` (torch.cumprod). */
  cumprod_(this: Tensor, dim: number, options: CumprodInPlaceOptions = {}): Tensor {
    const call = new Call("cumprod_").tensor("", this).integer("", dim);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    return call.inPlace();
  }

  /** Running sum along `dim` (torch.cumsum). */
  cumsum(this: Tensor, dim: number, options: CumsumOptions = {}): Tensor {
    const call = new Call("cumsum").tensor("", this).integer("", dim);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    return call.one();
  }

  /** Running sum along `dim` (torch.cumsum). */
  cumsum_(this: Tensor, dim: number, options: CumsumInPlaceOptions = {}): Tensor {
    const call = new Call("cumsum_").tensor("", this).integer("", dim);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    return call.inPlace();
  }

  /** Convert degrees to radians (torch.deg2rad). */
  deg2rad(this: Tensor): Tensor {
    return new Call("deg2rad").tensor("", this).one();
  }

  /** Convert degrees to radians (torch.deg2rad). */
  deg2rad_(this: Tensor): Tensor {
    return new Call("deg2rad_").tensor("", this).inPlace();
  }

  /** Determinants of square matrices (torch.det). */
  det(this: Tensor): Tensor {
    return new Call("det").tensor("", this).one();
  }

  /** Return a leaf with the same storage, outside the graph (torch.Tensor.detach). */
  detach(this: Tensor): Tensor {
    return new Call("detach").tensor("", this).one();
  }

  /** Return a leaf with the same storage, outside the graph (torch.Tensor.detach). */
  detach_(this: Tensor): Tensor {
    return new Call("detach_").tensor("", this).inPlace();
  }

  /** Diagonal matrix of a vector, or diagonal of a matrix (torch.diag). */
  diag(this: Tensor, options: DiagOptions = {}): Tensor {
    const call = new Call("diag").tensor("", this);
    if (options.diagonal !== undefined) call.integer("diagonal", options.diagonal);
    return call.one();
  }

  /** Put the last dimension on the diagonal of two new dimensions, zeros elsewhere (torch.diag_embed). */
  diagEmbed(this: Tensor, options: DiagEmbedOptions = {}): Tensor {
    const call = new Call("diag_embed").tensor("", this);
    if (options.offset !== undefined) call.integer("offset", options.offset);
    if (options.dim1 !== undefined) call.integer("dim1", options.dim1);
    if (options.dim2 !== undefined) call.integer("dim2", options.dim2);
    return call.one();
  }

  /** Diagonal matrix of the elements in row-major order (torch.diagflat). */
  diagflat(this: Tensor, options: DiagflatOptions = {}): Tensor {
    const call = new Call("diagflat").tensor("", this);
    if (options.offset !== undefined) call.integer("offset", options.offset);
    return call.one();
  }

  /** Diagonal of two dimensions, as a new last dimension (torch.diagonal). */
  diagonal(this: Tensor, options: DiagonalOptions = {}): Tensor {
    const call = new Call("diagonal").tensor("", this);
    if (options.offset !== undefined) call.integer("offset", options.offset);
    if (options.dim1 !== undefined) call.integer("dim1", options.dim1);
    if (options.dim2 !== undefined) call.integer("dim2", options.dim2);
    return call.one();
  }

  /** Copy of the input with `src` on the diagonal of two dimensions (torch.diagonal_scatter). */
  diagonalScatter(this: Tensor, src: Tensor, options: DiagonalScatterOptions = {}): Tensor {
    const call = new Call("diagonal_scatter").tensor("", this).tensor("", src);
    if (options.offset !== undefined) call.integer("offset", options.offset);
    if (options.dim1 !== undefined) call.integer("dim1", options.dim1);
    if (options.dim2 !== undefined) call.integer("dim2", options.dim2);
    return call.one();
  }

  /** n-th differences of neighbours along `dim` (torch.diff). */
  diff(this: Tensor, options: DiffOptions = {}): Tensor {
    const call = new Call("diff").tensor("", this);
    if (options.n !== undefined) call.integer("n", options.n);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    if (options.prepend !== undefined) call.tensor("prepend", options.prepend);
    if (options.append !== undefined) call.tensor("append", options.append);
    return call.one();
  }

  /** Derivative of lgamma (torch.digamma). */
  digamma(this: Tensor): Tensor {
    return new Call("digamma").tensor("", this).one();
  }

  /** Derivative of lgamma (torch.digamma). */
  digamma_(this: Tensor): Tensor {
    return new Call("digamma_").tensor("", this).inPlace();
  }

  /** p-norm of input - other; shapes broadcast (torch.dist). */
  dist(this: Tensor, other: Tensor, options: DistOptions = {}): Tensor {
    const call = new Call("dist").tensor("", this).tensor("", other);
    if (options.p !== undefined) call.float("p", options.p);
    return call.one();
  }

  /** input / other; with rounding_mode rounded down ("floor") or towards zero ("trunc") (torch.div). */
  div(this: Tensor, other: Operand, options: DivOptions = {}): Tensor {
    const call = new Call("div").operand("", this).operand("", other);
    if (options.roundingMode !== undefined) call.string("rounding_mode", options.roundingMode);
    return call.one();
  }

  /** input / other; with rounding_mode rounded down ("floor") or towards zero ("trunc") (torch.div). */
  div_(this: Tensor, other: Operand, options: DivInPlaceOptions = {}): Tensor {
    const call = new Call("div_").tensor("", this).operand("", other);
    if (options.roundingMode !== undefined) call.string("rounding_mode", options.roundingMode);
    return call.inPlace();
  }

  /** Dot product of two vectors (torch.dot). */
  dot(this: Tensor, tensor: Tensor): Tensor {
    return new Call("dot").tensor("", this).tensor("", tensor).one();
  }

  /** Split along the third dimension (torch.dsplit); see tensor_split. */
  dsplitInt(this: Tensor, indicesOrSections: number): Promise<Tensor[]> {
    return new Call("dsplit").tensor("", this).integer("", indicesOrSections).list();
  }

  /** Split along the third dimension (torch.dsplit); see tensor_split. */
  dsplitArray(this: Tensor, indicesOrSections: number | readonly number[]): Promise<Tensor[]> {
    return new Call("dsplit").tensor("", this).integers("", indicesOrSections).list();
  }

  /** input == other, elementwise (torch.eq). */
  eq(this: Tensor, other: Operand): Tensor {
    return new Call("eq").tensor("", this).operand("", other).one();
  }

  /** input == other, elementwise (torch.eq). */
  eq_(this: Tensor, other: Operand): Tensor {
    return new Call("eq_").tensor("", this).operand("", other).inPlace();
  }

  /** Whether shapes and all elements are equal; a 0-d bool (torch.equal). */
  equal(this: Tensor, other: Tensor): Tensor {
    return new Call("equal").tensor("", this).tensor("", other).one();
  }

  /** Error function (torch.erf). */
  erf(this: Tensor): Tensor {
    return new Call("erf").tensor("", this).one();
  }

  /** Error function (torch.erf). */
  erf_(this: Tensor): Tensor {
    return new Call("erf_").tensor("", this).inPlace();
  }

  /** 1 - erf, accurate in the tail (torch.erfc). */
  erfc(this: Tensor): Tensor {
    return new Call("erfc").tensor("", this).one();
  }

  /** 1 - erf, accurate in the tail (torch.erfc). */
  erfc_(this: Tensor): Tensor {
    return new Call("erfc_").tensor("", this).inPlace();
  }

  /** Inverse of erf (torch.erfinv). */
  erfinv(this: Tensor): Tensor {
    return new Call("erfinv").tensor("", this).one();
  }

  /** Inverse of erf (torch.erfinv). */
  erfinv_(this: Tensor): Tensor {
    return new Call("erfinv_").tensor("", this).inPlace();
  }

  /** e to the power of input (torch.exp). */
  exp(this: Tensor): Tensor {
    return new Call("exp").tensor("", this).one();
  }

  /** 2 to the power of input (torch.exp2). */
  exp2(this: Tensor): Tensor {
    return new Call("exp2").tensor("", this).one();
  }

  /** 2 to the power of input (torch.exp2). */
  exp2_(this: Tensor): Tensor {
    return new Call("exp2_").tensor("", this).inPlace();
  }

  /** e to the power of input (torch.exp). */
  exp_(this: Tensor): Tensor {
    return new Call("exp_").tensor("", this).inPlace();
  }

  /** Expand dimensions of size 1 and add leading ones; -1 keeps a size; a view (torch.Tensor.expand). */
  expand(this: Tensor, size: number | readonly number[]): Tensor {
    return new Call("expand").tensor("", this).integers("", size).one();
  }

  /** Expand to the shape of `other`; a view (torch.Tensor.expand_as). */
  expandAs(this: Tensor, other: Tensor): Tensor {
    return new Call("expand_as").tensor("", this).tensor("", other).one();
  }

  /** exp(input) - 1, accurate near 0 (torch.expm1). */
  expm1(this: Tensor): Tensor {
    return new Call("expm1").tensor("", this).one();
  }

  /** exp(input) - 1, accurate near 0 (torch.expm1). */
  expm1_(this: Tensor): Tensor {
    return new Call("expm1_").tensor("", this).inPlace();
  }

  /** Exponentially distributed numbers, with the input's shape (torch.Tensor.exponential_). */
  exponential_(this: Tensor, options: ExponentialInPlaceOptions = {}): Tensor {
    const call = new Call("exponential_").tensor("", this);
    if (options.lambd !== undefined) call.float("lambd", options.lambd);
    return call.inPlace();
  }

  /** One value, with the input's shape and dtype (torch.Tensor.fill_). */
  fill_(this: Tensor, value: Operand): Tensor {
    return new Call("fill_").tensor("", this).operand("", value).inPlace();
  }

  /** Merge the dimensions start_dim to end_dim, inclusive, into one (torch.flatten). */
  flatten(this: Tensor, options: FlattenOptions = {}): Tensor {
    const call = new Call("flatten").tensor("", this);
    if (options.startDim !== undefined) call.integer("start_dim", options.startDim);
    if (options.endDim !== undefined) call.integer("end_dim", options.endDim);
    return call.one();
  }

  /** Reverse the order of elements along `dims`; a copy (torch.flip). */
  flip(this: Tensor, dims: number | readonly number[]): Tensor {
    return new Call("flip").tensor("", this).integers("", dims).one();
  }

  /** Reverse the second dimension (torch.fliplr). */
  fliplr(this: Tensor): Tensor {
    return new Call("fliplr").tensor("", this).one();
  }

  /** Reverse the first dimension (torch.flipud). */
  flipud(this: Tensor): Tensor {
    return new Call("flipud").tensor("", this).one();
  }

  /** pow in double precision (torch.float_power). */
  floatPower(this: Tensor, exponent: Operand): Tensor {
    return new Call("float_power").operand("", this).operand("", exponent).one();
  }

  /** pow in double precision (torch.float_power). */
  floatPower_(this: Tensor, exponent: Operand): Tensor {
    return new Call("float_power_").tensor("", this).operand("", exponent).inPlace();
  }

  /** Largest integer not above the input (torch.floor). */
  floor(this: Tensor): Tensor {
    return new Call("floor").tensor("", this).one();
  }

  /** Largest integer not above the input (torch.floor). */
  floor_(this: Tensor): Tensor {
    return new Call("floor_").tensor("", this).inPlace();
  }

  /** Quotient, rounded down; backward is refused, as in PyTorch (torch.floor_divide). */
  floorDivide(this: Tensor, other: Operand): Tensor {
    return new Call("floor_divide").operand("", this).operand("", other).one();
  }

  /** Quotient, rounded down; backward is refused, as in PyTorch (torch.floor_divide). */
  floorDivide_(this: Tensor, other: Operand): Tensor {
    return new Call("floor_divide_").tensor("", this).operand("", other).inPlace();
  }

  /** Larger of two elements; of a number and nan, the number (torch.fmax). */
  fmax(this: Tensor, other: Tensor): Tensor {
    return new Call("fmax").tensor("", this).tensor("", other).one();
  }

  /** Smaller of two elements; of a number and nan, the number (torch.fmin). */
  fmin(this: Tensor, other: Tensor): Tensor {
    return new Call("fmin").tensor("", this).tensor("", other).one();
  }

  /** Remainder of the division, with the dividend's sign (torch.fmod). */
  fmod(this: Tensor, other: Operand): Tensor {
    return new Call("fmod").tensor("", this).operand("", other).one();
  }

  /** Remainder of the division, with the dividend's sign (torch.fmod). */
  fmod_(this: Tensor, other: Operand): Tensor {
    return new Call("fmod_").tensor("", this).operand("", other).inPlace();
  }

  /** Fractional part, with the input's sign (torch.frac). */
  frac(this: Tensor): Tensor {
    return new Call("frac").tensor("", this).one();
  }

  /** Fractional part, with the input's sign (torch.frac). */
  frac_(this: Tensor): Tensor {
    return new Call("frac_").tensor("", this).inPlace();
  }

  /** Mantissas in [0.5, 1) with the input's sign, and int32 exponents: input = mantissa * 2**exponent (torch.frexp). */
  frexp(this: Tensor): [mantissa: Tensor, exponent: Tensor] {
    return new Call("frexp").tensor("", this).several(2) as [mantissa: Tensor, exponent: Tensor];
  }

  /** result[i, j, ...] = input[i, index[i, j, ...], ...] for dim 1, and so on (torch.gather). */
  gather(this: Tensor, dim: number, index: Tensor, options: GatherOptions = {}): Tensor {
    const call = new Call("gather").tensor("", this).integer("", dim).tensor("", index);
    if (options.sparseGrad !== undefined) call.boolean("sparse_grad", options.sparseGrad);
    return call.one();
  }

  /** Greatest common divisor of integers (torch.gcd). */
  gcd(this: Tensor, other: Tensor): Tensor {
    return new Call("gcd").tensor("", this).tensor("", other).one();
  }

  /** Greatest common divisor of integers (torch.gcd). */
  gcd_(this: Tensor, other: Tensor): Tensor {
    return new Call("gcd_").tensor("", this).tensor("", other).inPlace();
  }

  /** input >= other, elementwise (torch.ge). */
  ge(this: Tensor, other: Operand): Tensor {
    return new Call("ge").tensor("", this).operand("", other).one();
  }

  /** input >= other, elementwise (torch.ge). */
  ge_(this: Tensor, other: Operand): Tensor {
    return new Call("ge_").tensor("", this).operand("", other).inPlace();
  }

  /** Number of trials up to the first success of probability p, with the input's shape (torch.Tensor.geometric_). */
  geometric_(this: Tensor, p: number | ProgramNumber): Tensor {
    return new Call("geometric_").tensor("", this).float("", p).inPlace();
  }

  /** Householder vectors below the diagonal of R, and their factors (torch.geqrf). */
  geqrf(this: Tensor): [a: Tensor, tau: Tensor] {
    return new Call("geqrf").tensor("", this).several(2) as [a: Tensor, tau: Tensor];
  }

  /** input > other, elementwise (torch.gt). */
  gt(this: Tensor, other: Operand): Tensor {
    return new Call("gt").tensor("", this).operand("", other).one();
  }

  /** input > other, elementwise (torch.gt). */
  gt_(this: Tensor, other: Operand): Tensor {
    return new Call("gt_").tensor("", this).operand("", other).inPlace();
  }

  /** 0 within [-lambd, lambd], input elsewhere (torch.nn.functional.hardshrink). */
  hardshrink(this: Tensor, options: HardshrinkOptions = {}): Tensor {
    const call = new Call("hardshrink").tensor("", this);
    if (options.lambd !== undefined) call.float("lambd", options.lambd);
    return call.one();
  }

  /** 0 below zero, 1 above, `values` at zero; backward is refused, as in PyTorch (torch.heaviside). */
  heaviside(this: Tensor, values: Tensor): Tensor {
    return new Call("heaviside").tensor("", this).tensor("", values).one();
  }

  /** 0 below zero, 1 above, `values` at zero; backward is refused, as in PyTorch (torch.heaviside). */
  heaviside_(this: Tensor, values: Tensor): Tensor {
    return new Call("heaviside_").tensor("", this).tensor("", values).inPlace();
  }

  /** Histogram: count the elements in each of `bins` equal bins from min to max (torch.histc). */
  histc(this: Tensor, options: HistcOptions = {}): Tensor {
    const call = new Call("histc").tensor("", this);
    if (options.bins !== undefined) call.integer("bins", options.bins);
    if (options.min !== undefined) call.float("min", options.min);
    if (options.max !== undefined) call.float("max", options.max);
    return call.one();
  }

  /** Split along the second dimension, a vector along its only dimension (torch.hsplit); see tensor_split. */
  hsplitInt(this: Tensor, indicesOrSections: number): Promise<Tensor[]> {
    return new Call("hsplit").tensor("", this).integer("", indicesOrSections).list();
  }

  /** Split along the second dimension, a vector along its only dimension (torch.hsplit); see tensor_split. */
  hsplitArray(this: Tensor, indicesOrSections: number | readonly number[]): Promise<Tensor[]> {
    return new Call("hsplit").tensor("", this).integers("", indicesOrSections).list();
  }

  /** sqrt(input**2 + other**2) (torch.hypot). */
  hypot(this: Tensor, other: Tensor): Tensor {
    return new Call("hypot").tensor("", this).tensor("", other).one();
  }

  /** sqrt(input**2 + other**2) (torch.hypot). */
  hypot_(this: Tensor, other: Tensor): Tensor {
    return new Call("hypot_").tensor("", this).tensor("", other).inPlace();
  }

  /** Modified Bessel function of order 0 (torch.i0). */
  i0(this: Tensor): Tensor {
    return new Call("i0").tensor("", this).one();
  }

  /** Modified Bessel function of order 0 (torch.i0). */
  i0_(this: Tensor): Tensor {
    return new Call("i0_").tensor("", this).inPlace();
  }

  /** Regularized lower incomplete gamma function; input is the order, other the argument (torch.igamma). */
  igamma(this: Tensor, other: Tensor): Tensor {
    return new Call("igamma").tensor("", this).tensor("", other).one();
  }

  /** Regularized lower incomplete gamma function; input is the order, other the argument (torch.igamma). */
  igamma_(this: Tensor, other: Tensor): Tensor {
    return new Call("igamma_").tensor("", this).tensor("", other).inPlace();
  }

  /** Regularized upper incomplete gamma function; input is the order, other the argument (torch.igammac). */
  igammac(this: Tensor, other: Tensor): Tensor {
    return new Call("igammac").tensor("", this).tensor("", other).one();
  }

  /** Regularized upper incomplete gamma function; input is the order, other the argument (torch.igammac). */
  igammac_(this: Tensor, other: Tensor): Tensor {
    return new Call("igammac_").tensor("", this).tensor("", other).inPlace();
  }

  /** Imaginary part, a view (torch.imag). */
  imag(this: Tensor): Tensor {
    return new Call("imag").tensor("", this).one();
  }

  /** Copy of the input with the slices of `source` added at the indices `index` along `dim` (torch.index_add). */
  indexAdd(this: Tensor, dim: number, index: Tensor, source: Tensor, options: IndexAddOptions = {}): Tensor {
    const call = new Call("index_add").tensor("", this).integer("", dim).tensor("", index).tensor("", source);
    if (options.alpha !== undefined) call.number("alpha", options.alpha);
    return call.one();
  }

  /** Copy of the input with the slices of `source` added at the indices `index` along `dim` (torch.index_add). */
  indexAdd_(this: Tensor, dim: number, index: Tensor, source: Tensor, options: IndexAddInPlaceOptions = {}): Tensor {
    const call = new Call("index_add_").tensor("", this).integer("", dim).tensor("", index).tensor("", source);
    if (options.alpha !== undefined) call.number("alpha", options.alpha);
    return call.inPlace();
  }

  /** Copy of the input with the slices of `source` written at the indices `index` along `dim` (torch.index_copy). */
  indexCopy(this: Tensor, dim: number, index: Tensor, source: Tensor): Tensor {
    return new Call("index_copy").tensor("", this).integer("", dim).tensor("", index).tensor("", source).one();
  }

  /** Copy of the input with the slices of `source` written at the indices `index` along `dim` (torch.index_copy). */
  indexCopy_(this: Tensor, dim: number, index: Tensor, source: Tensor): Tensor {
    return new Call("index_copy_").tensor("", this).integer("", dim).tensor("", index).tensor("", source).inPlace();
  }

  /** Copy of the input with `value` in the slices at the indices `index` along `dim` (torch.index_fill). */
  indexFill(this: Tensor, dim: number, index: Tensor, value: Operand): Tensor {
    return new Call("index_fill").tensor("", this).integer("", dim).tensor("", index).operand("", value).one();
  }

  /** Copy of the input with `value` in the slices at the indices `index` along `dim` (torch.index_fill). */
  indexFill_(this: Tensor, dim: number, index: Tensor, value: Operand): Tensor {
    return new Call("index_fill_").tensor("", this).integer("", dim).tensor("", index).operand("", value).inPlace();
  }

  /** Copy of the input with `values` written, or added, at the selected elements (torch.index_put). */
  indexPut(this: Tensor, indices: readonly Tensor[], values: Operand, options: IndexPutOptions = {}): Tensor {
    const call = new Call("index_put").tensor("", this).tensors("", indices).operand("", values);
    if (options.accumulate !== undefined) call.boolean("accumulate", options.accumulate);
    return call.one();
  }

  /** Copy of the input with `values` written, or added, at the selected elements (torch.index_put). */
  indexPut_(this: Tensor, indices: readonly Tensor[], values: Operand, options: IndexPutInPlaceOptions = {}): Tensor {
    const call = new Call("index_put_").tensor("", this).tensors("", indices).operand("", values);
    if (options.accumulate !== undefined) call.boolean("accumulate", options.accumulate);
    return call.inPlace();
  }

  /** Reduce the slices of `source` into the input at the positions `index` along `dim` (torch.index_reduce). */
  indexReduce(
    this: Tensor,
    dim: number,
    index: Tensor,
    source: Tensor,
    reduce: "prod" | "mean" | "amax" | "amin",
    options: IndexReduceOptions = {},
  ): Tensor {
    const call = new Call("index_reduce").tensor("", this).integer("", dim).tensor("", index).tensor("", source).string("", reduce);
    if (options.includeSelf !== undefined) call.boolean("include_self", options.includeSelf);
    return call.one();
  }

  /** Reduce the slices of `source` into the input at the positions `index` along `dim` (torch.index_reduce). */
  indexReduce_(
    this: Tensor,
    dim: number,
    index: Tensor,
    source: Tensor,
    reduce: "prod" | "mean" | "amax" | "amin",
    options: IndexReduceInPlaceOptions = {},
  ): Tensor {
    const call = new Call("index_reduce_").tensor("", this).integer("", dim).tensor("", index).tensor("", source).string("", reduce);
    if (options.includeSelf !== undefined) call.boolean("include_self", options.includeSelf);
    return call.inPlace();
  }

  /** Slices at the indices `index` along `dim` (torch.index_select). */
  indexSelect(this: Tensor, dim: number, index: Tensor): Tensor {
    return new Call("index_select").tensor("", this).integer("", dim).tensor("", index).one();
  }

  /** Contract the last dims of both; with a 0-dim tensor, multiply (torch.inner). */
  inner(this: Tensor, other: Tensor): Tensor {
    return new Call("inner").tensor("", this).tensor("", other).one();
  }

  /** Inverses of square matrices (torch.inverse). */
  inverse(this: Tensor): Tensor {
    return new Call("inverse").tensor("", this).one();
  }

  /** Whether |input - other| <= atol + rtol * |other|, elementwise (torch.isclose). */
  isclose(this: Tensor, other: Tensor, options: IscloseOptions = {}): Tensor {
    const call = new Call("isclose").tensor("", this).tensor("", other);
    if (options.rtol !== undefined) call.float("rtol", options.rtol);
    if (options.atol !== undefined) call.float("atol", options.atol);
    if (options.equalNan !== undefined) call.boolean("equal_nan", options.equalNan);
    return call.one();
  }

  /** Whether each element is neither nan nor infinite (torch.isfinite). */
  isfinite(this: Tensor): Tensor {
    return new Call("isfinite").tensor("", this).one();
  }

  /** Whether each element is inf or -inf (torch.isinf). */
  isinf(this: Tensor): Tensor {
    return new Call("isinf").tensor("", this).one();
  }

  /** Whether each element is nan (torch.isnan). */
  isnan(this: Tensor): Tensor {
    return new Call("isnan").tensor("", this).one();
  }

  /** Whether each element is -inf (torch.isneginf). */
  isneginf(this: Tensor): Tensor {
    return new Call("isneginf").tensor("", this).one();
  }

  /** Whether each element is inf (torch.isposinf). */
  isposinf(this: Tensor): Tensor {
    return new Call("isposinf").tensor("", this).one();
  }

  /** Whether the imaginary part of each element is 0; True for real dtypes (torch.isreal). */
  isreal(this: Tensor): Tensor {
    return new Call("isreal").tensor("", this).one();
  }

  /** Inverse of `stft` with the same arguments (torch.istft). */
  istft(this: Tensor, nFft: number, options: IstftOptions = {}): Tensor {
    const call = new Call("istft").tensor("", this).integer("", nFft);
    if (options.hopLength !== undefined) call.integer("hop_length", options.hopLength);
    if (options.winLength !== undefined) call.integer("win_length", options.winLength);
    if (options.window !== undefined) call.tensor("window", options.window);
    if (options.center !== undefined) call.boolean("center", options.center);
    if (options.normalized !== undefined) call.boolean("normalized", options.normalized);
    if (options.onesided !== undefined) call.boolean("onesided", options.onesided);
    if (options.length !== undefined) call.integer("length", options.length);
    if (options.returnComplex !== undefined) call.boolean("return_complex", options.returnComplex);
    return call.one();
  }

  /** Kronecker product: a block matrix of `other` times each element of the input (torch.kron). */
  kron(this: Tensor, other: Tensor): Tensor {
    return new Call("kron").tensor("", this).tensor("", other).one();
  }

  /** k-th smallest value along `dim`, and its index (torch.kthvalue). */
  kthvalue(this: Tensor, k: number, options: KthvalueOptions = {}): [values: Tensor, indices: Tensor] {
    const call = new Call("kthvalue").tensor("", this).integer("", k);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    return call.several(2) as [values: Tensor, indices: Tensor];
  }

  /** Least common multiple of integers (torch.lcm). */
  lcm(this: Tensor, other: Tensor): Tensor {
    return new Call("lcm").tensor("", this).tensor("", other).one();
  }

  /** Least common multiple of integers (torch.lcm). */
  lcm_(this: Tensor, other: Tensor): Tensor {
    return new Call("lcm_").tensor("", this).tensor("", other).inPlace();
  }

  /** input * 2**other (torch.ldexp). */
  ldexp(this: Tensor, other: Tensor): Tensor {
    return new Call("ldexp").tensor("", this).tensor("", other).one();
  }

  /** input * 2**other (torch.ldexp). */
  ldexp_(this: Tensor, other: Tensor): Tensor {
    return new Call("ldexp_").tensor("", this).tensor("", other).inPlace();
  }

  /** input <= other, elementwise (torch.le). */
  le(this: Tensor, other: Operand): Tensor {
    return new Call("le").tensor("", this).operand("", other).one();
  }

  /** input <= other, elementwise (torch.le). */
  le_(this: Tensor, other: Operand): Tensor {
    return new Call("le_").tensor("", this).operand("", other).inPlace();
  }

  /** input + weight * (end - input) (torch.lerp). */
  lerp(this: Tensor, end: Tensor, weight: Operand): Tensor {
    return new Call("lerp").tensor("", this).tensor("", end).operand("", weight).one();
  }

  /** input + weight * (end - input) (torch.lerp). */
  lerp_(this: Tensor, end: Tensor, weight: Operand): Tensor {
    return new Call("lerp_").tensor("", this).tensor("", end).operand("", weight).inPlace();
  }

  /** Logarithm of the absolute value of the gamma function (torch.lgamma). */
  lgamma(this: Tensor): Tensor {
    return new Call("lgamma").tensor("", this).one();
  }

  /** Logarithm of the absolute value of the gamma function (torch.lgamma). */
  lgamma_(this: Tensor): Tensor {
    return new Call("lgamma_").tensor("", this).inPlace();
  }

  /** Natural logarithm (torch.log). */
  log(this: Tensor): Tensor {
    return new Call("log").tensor("", this).one();
  }

  /** Logarithm to base 10 (torch.log10). */
  log10(this: Tensor): Tensor {
    return new Call("log10").tensor("", this).one();
  }

  /** Logarithm to base 10 (torch.log10). */
  log10_(this: Tensor): Tensor {
    return new Call("log10_").tensor("", this).inPlace();
  }

  /** log(1 + input), accurate near 0 (torch.log1p). */
  log1p(this: Tensor): Tensor {
    return new Call("log1p").tensor("", this).one();
  }

  /** log(1 + input), accurate near 0 (torch.log1p). */
  log1p_(this: Tensor): Tensor {
    return new Call("log1p_").tensor("", this).inPlace();
  }

  /** Logarithm to base 2 (torch.log2). */
  log2(this: Tensor): Tensor {
    return new Call("log2").tensor("", this).one();
  }

  /** Logarithm to base 2 (torch.log2). */
  log2_(this: Tensor): Tensor {
    return new Call("log2_").tensor("", this).inPlace();
  }

  /** Natural logarithm (torch.log). */
  log_(this: Tensor): Tensor {
    return new Call("log_").tensor("", this).inPlace();
  }

  /** Log-normally distributed numbers, with the input's shape (torch.Tensor.log_normal_). */
  logNormal_(this: Tensor, options: LogNormalInPlaceOptions = {}): Tensor {
    const call = new Call("log_normal_").tensor("", this);
    if (options.mean !== undefined) call.float("mean", options.mean);
    if (options.std !== undefined) call.float("std", options.std);
    return call.inPlace();
  }

  /** log(softmax(input, dim)), without underflow (torch.log_softmax). */
  logSoftmax(this: Tensor, dim: number, options: LogSoftmaxOptions = {}): Tensor {
    const call = new Call("log_softmax").tensor("", this).integer("", dim);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    return call.one();
  }

  /** log(exp(input) + exp(other)) (torch.logaddexp). */
  logaddexp(this: Tensor, other: Tensor): Tensor {
    return new Call("logaddexp").tensor("", this).tensor("", other).one();
  }

  /** log2(2**input + 2**other) (torch.logaddexp2). */
  logaddexp2(this: Tensor, other: Tensor): Tensor {
    return new Call("logaddexp2").tensor("", this).tensor("", other).one();
  }

  /** Logarithm of the running sum of exp(input) along `dim`, without overflow (torch.logcumsumexp). */
  logcumsumexp(this: Tensor, dim: number): Tensor {
    return new Call("logcumsumexp").tensor("", this).integer("", dim).one();
  }

  /** Logarithms of determinants; nan for negative ones, -inf for 0 (torch.logdet). input: (..., n, n). */
  logdet(this: Tensor): Tensor {
    return new Call("logdet").tensor("", this).one();
  }

  /** True where both are nonzero (torch.logical_and). */
  logicalAnd(this: Tensor, other: Tensor): Tensor {
    return new Call("logical_and").tensor("", this).tensor("", other).one();
  }

  /** True where both are nonzero (torch.logical_and). */
  logicalAnd_(this: Tensor, other: Tensor): Tensor {
    return new Call("logical_and_").tensor("", this).tensor("", other).inPlace();
  }

  /** True where the input is zero (torch.logical_not). */
  logicalNot(this: Tensor): Tensor {
    return new Call("logical_not").tensor("", this).one();
  }

  /** True where the input is zero (torch.logical_not). */
  logicalNot_(this: Tensor): Tensor {
    return new Call("logical_not_").tensor("", this).inPlace();
  }

  /** True where either is nonzero (torch.logical_or). */
  logicalOr(this: Tensor, other: Tensor): Tensor {
    return new Call("logical_or").tensor("", this).tensor("", other).one();
  }

  /** True where either is nonzero (torch.logical_or). */
  logicalOr_(this: Tensor, other: Tensor): Tensor {
    return new Call("logical_or_").tensor("", this).tensor("", other).inPlace();
  }

  /** True where exactly one is nonzero (torch.logical_xor). */
  logicalXor(this: Tensor, other: Tensor): Tensor {
    return new Call("logical_xor").tensor("", this).tensor("", other).one();
  }

  /** True where exactly one is nonzero (torch.logical_xor). */
  logicalXor_(this: Tensor, other: Tensor): Tensor {
    return new Call("logical_xor_").tensor("", this).tensor("", other).inPlace();
  }

  /** log(x / (1 - x)), with x clamped to [eps, 1 - eps] (torch.logit). */
  logit(this: Tensor, options: LogitOptions = {}): Tensor {
    const call = new Call("logit").tensor("", this);
    if (options.eps !== undefined) call.float("eps", options.eps);
    return call.one();
  }

  /** log(x / (1 - x)), with x clamped to [eps, 1 - eps] (torch.logit). */
  logit_(this: Tensor, options: LogitInPlaceOptions = {}): Tensor {
    const call = new Call("logit_").tensor("", this);
    if (options.eps !== undefined) call.float("eps", options.eps);
    return call.inPlace();
  }

  /** log(sum(exp(input))) over `dim`, without overflow (torch.logsumexp). */
  logsumexp(this: Tensor, dim: number | readonly number[], options: LogsumexpOptions = {}): Tensor {
    const call = new Call("logsumexp").tensor("", this).integers("", dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    return call.one();
  }

  /** input < other, elementwise (torch.lt). */
  lt(this: Tensor, other: Operand): Tensor {
    return new Call("lt").tensor("", this).operand("", other).one();
  }

  /** input < other, elementwise (torch.lt). */
  lt_(this: Tensor, other: Operand): Tensor {
    return new Call("lt_").tensor("", this).operand("", other).inPlace();
  }

  /** Transpose and conjugate the matrices in the last two dimensions (torch.Tensor.mH). */
  mH(this: Tensor): Tensor {
    return new Call("mH").tensor("", this).one();
  }

  /** Transpose the matrices in the last two dimensions (torch.Tensor.mT). */
  mT(this: Tensor): Tensor {
    return new Call("mT").tensor("", this).one();
  }

  /** value where the mask is True, input elsewhere (torch.masked_fill). */
  maskedFill(this: Tensor, mask: Tensor, value: Operand): Tensor {
    return new Call("masked_fill").tensor("", this).tensor("", mask).operand("", value).one();
  }

  /** value where the mask is True, input elsewhere (torch.masked_fill). */
  maskedFill_(this: Tensor, mask: Tensor, value: Operand): Tensor {
    return new Call("masked_fill_").tensor("", this).tensor("", mask).operand("", value).inPlace();
  }

  /** Copy of the input with elements of `source`, in row-major order, where the mask is True (torch.masked_scatter). */
  maskedScatter(this: Tensor, mask: Tensor, source: Tensor): Tensor {
    return new Call("masked_scatter").tensor("", this).tensor("", mask).tensor("", source).one();
  }

  /** Copy of the input with elements of `source`, in row-major order, where the mask is True (torch.masked_scatter). */
  maskedScatter_(this: Tensor, mask: Tensor, source: Tensor): Tensor {
    return new Call("masked_scatter_").tensor("", this).tensor("", mask).tensor("", source).inPlace();
  }

  /** Vector of the elements where the mask is True (torch.masked_select). */
  maskedSelect(this: Tensor, mask: Tensor): Tensor {
    return new Call("masked_select").tensor("", this).tensor("", mask).one();
  }

  /** input @ other: vectors, matrices, or batches of them that broadcast (torch.matmul). */
  matmul(this: Tensor, other: Tensor): Tensor {
    return new Call("matmul").tensor("", this).tensor("", other).one();
  }

  /** Matrix exponential of square matrices (torch.matrix_exp). */
  matrixExp(this: Tensor): Tensor {
    return new Call("matrix_exp").tensor("", this).one();
  }

  /** Maximum of all elements; with a dim, values and indices along it; with a tensor, `maximum` (torch.max). */
  max(this: Tensor): Tensor {
    return new Call("max").tensor("", this).one();
  }

  /** Maximum of all elements; with a dim, values and indices along it; with a tensor, `maximum` (torch.max). */
  maxDim(this: Tensor, dim: number, options: MaxDimOptions = {}): [values: Tensor, indices: Tensor] {
    const call = new Call("max").tensor("", this).integer("", dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    return call.several(2) as [values: Tensor, indices: Tensor];
  }

  /** Maximum of all elements; with a dim, values and indices along it; with a tensor, `maximum` (torch.max). */
  maxOther(this: Tensor, options: MaxOtherOptions = {}): Tensor {
    const call = new Call("max").tensor("", this);
    if (options.other !== undefined) call.tensor("other", options.other);
    return call.one();
  }

  /** Larger of two elements; nan if either is nan (torch.maximum). */
  maximum(this: Tensor, other: Tensor): Tensor {
    return new Call("maximum").tensor("", this).tensor("", other).one();
  }

  /** Mean over `dim`, or over all dimensions; of a float or complex dtype (torch.mean). */
  mean(this: Tensor, options: MeanOptions = {}): Tensor {
    const call = new Call("mean").tensor("", this);
    if (options.dim !== undefined) call.integers("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    return call.one();
  }

  /** Lower median of all elements; with a dim, values and indices along it (torch.median). */
  median(this: Tensor): Tensor {
    return new Call("median").tensor("", this).one();
  }

  /** Lower median of all elements; with a dim, values and indices along it (torch.median). */
  medianDim(this: Tensor, dim: number, options: MedianDimOptions = {}): [values: Tensor, indices: Tensor] {
    const call = new Call("median").tensor("", this).integer("", dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    return call.several(2) as [values: Tensor, indices: Tensor];
  }

  /** Minimum of all elements; with a dim, values and indices along it; with a tensor, `minimum` (torch.min). */
  min(this: Tensor): Tensor {
    return new Call("min").tensor("", this).one();
  }

  /** Minimum of all elements; with a dim, values and indices along it; with a tensor, `minimum` (torch.min). */
  minDim(this: Tensor, dim: number, options: MinDimOptions = {}): [values: Tensor, indices: Tensor] {
    const call = new Call("min").tensor("", this).integer("", dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    return call.several(2) as [values: Tensor, indices: Tensor];
  }

  /** Minimum of all elements; with a dim, values and indices along it; with a tensor, `minimum` (torch.min). */
  minOther(this: Tensor, options: MinOtherOptions = {}): Tensor {
    const call = new Call("min").tensor("", this);
    if (options.other !== undefined) call.tensor("other", options.other);
    return call.one();
  }

  /** Smaller of two elements; nan if either is nan (torch.minimum). */
  minimum(this: Tensor, other: Tensor): Tensor {
    return new Call("minimum").tensor("", this).tensor("", other).one();
  }

  /** Product of two matrices (torch.mm). */
  mm(this: Tensor, mat2: Tensor): Tensor {
    return new Call("mm").tensor("", this).tensor("", mat2).one();
  }

  /** Most frequent value along `dim`, the smallest of several, and its index (torch.mode). */
  mode(this: Tensor, options: ModeOptions = {}): [values: Tensor, indices: Tensor] {
    const call = new Call("mode").tensor("", this);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    return call.several(2) as [values: Tensor, indices: Tensor];
  }

  /** Move dimensions to other positions; the others keep their order (torch.movedim). */
  moveaxis(this: Tensor, source: number | readonly number[], destination: number | readonly number[]): Tensor {
    return new Call("moveaxis").tensor("", this).integers("", source).integers("", destination).one();
  }

  /** Move dimensions to other positions; the others keep their order (torch.movedim). */
  movedim(this: Tensor, source: number | readonly number[], destination: number | readonly number[]): Tensor {
    return new Call("movedim").tensor("", this).integers("", source).integers("", destination).one();
  }

  /** Sort along the first dimension (torch.msort). */
  msort(this: Tensor): Tensor {
    return new Call("msort").tensor("", this).one();
  }

  /** input * other (torch.mul). */
  mul(this: Tensor, other: Operand): Tensor {
    return new Call("mul").operand("", this).operand("", other).one();
  }

  /** input * other (torch.mul). */
  mul_(this: Tensor, other: Operand): Tensor {
    return new Call("mul_").tensor("", this).operand("", other).inPlace();
  }

  /** Draw indices by the weights in each row (torch.multinomial). */
  multinomial(this: Tensor, numSamples: number, options: MultinomialOptions = {}): Tensor {
    const call = new Call("multinomial").tensor("", this).integer("", numSamples);
    if (options.replacement !== undefined) call.boolean("replacement", options.replacement);
    return call.one();
  }

  /** Product of a matrix and a vector (torch.mv). */
  mv(this: Tensor, vec: Tensor): Tensor {
    return new Call("mv").tensor("", this).tensor("", vec).one();
  }

  /** Logarithm of the multivariate gamma function of dimension p (torch.mvlgamma). */
  mvlgamma(this: Tensor, p: number): Tensor {
    return new Call("mvlgamma").tensor("", this).integer("", p).one();
  }

  /** Logarithm of the multivariate gamma function of dimension p (torch.mvlgamma). */
  mvlgamma_(this: Tensor, p: number): Tensor {
    return new Call("mvlgamma_").tensor("", this).integer("", p).inPlace();
  }

  /** Replace nan, inf and -inf; by default by 0, the dtype's largest and smallest number (torch.nan_to_num). */
  nanToNum(this: Tensor, options: NanToNumOptions = {}): Tensor {
    const call = new Call("nan_to_num").tensor("", this);
    if (options.nan !== undefined) call.float("nan", options.nan);
    if (options.posinf !== undefined) call.float("posinf", options.posinf);
    if (options.neginf !== undefined) call.float("neginf", options.neginf);
    return call.one();
  }

  /** Replace nan, inf and -inf; by default by 0, the dtype's largest and smallest number (torch.nan_to_num). */
  nanToNum_(this: Tensor, options: NanToNumInPlaceOptions = {}): Tensor {
    const call = new Call("nan_to_num_").tensor("", this);
    if (options.nan !== undefined) call.float("nan", options.nan);
    if (options.posinf !== undefined) call.float("posinf", options.posinf);
    if (options.neginf !== undefined) call.float("neginf", options.neginf);
    return call.inPlace();
  }

  /** Mean over `dim`, or over all dimensions, without nan (torch.nanmean). */
  nanmean(this: Tensor, options: NanmeanOptions = {}): Tensor {
    const call = new Call("nanmean").tensor("", this);
    if (options.dim !== undefined) call.integers("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    return call.one();
  }

  /** Lower median without nan; with a dim, values and indices along it (torch.nanmedian). */
  nanmedian(this: Tensor): Tensor {
    return new Call("nanmedian").tensor("", this).one();
  }

  /** Lower median without nan; with a dim, values and indices along it (torch.nanmedian). */
  nanmedianDim(this: Tensor, dim: number, options: NanmedianDimOptions = {}): [values: Tensor, indices: Tensor] {
    const call = new Call("nanmedian").tensor("", this).integer("", dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    return call.several(2) as [values: Tensor, indices: Tensor];
  }

  /** q-th quantiles without nan (torch.nanquantile); arguments as of `quantile`. */
  nanquantile(this: Tensor, q: Operand, options: NanquantileOptions = {}): Tensor {
    const call = new Call("nanquantile").tensor("", this).operand("", q);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    if (options.interpolation !== undefined) call.string("interpolation", options.interpolation);
    return call.one();
  }

  /** Sum over `dim`, or over all dimensions; nan counts as 0 (torch.nansum). */
  nansum(this: Tensor, options: NansumOptions = {}): Tensor {
    const call = new Call("nansum").tensor("", this);
    if (options.dim !== undefined) call.integers("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    return call.one();
  }

  /** `length` elements from `start` along a dimension (torch.narrow). */
  narrow(this: Tensor, dim: number, start: number, length: number): Tensor {
    return new Call("narrow").tensor("", this).integer("", dim).integer("", start).integer("", length).one();
  }

  /** input != other, elementwise (torch.ne). */
  ne(this: Tensor, other: Operand): Tensor {
    return new Call("ne").tensor("", this).operand("", other).one();
  }

  /** input != other, elementwise (torch.ne). */
  ne_(this: Tensor, other: Operand): Tensor {
    return new Call("ne_").tensor("", this).operand("", other).inPlace();
  }

  /** -input (torch.neg). */
  neg(this: Tensor): Tensor {
    return new Call("neg").tensor("", this).one();
  }

  /** -input (torch.neg). */
  neg_(this: Tensor): Tensor {
    return new Call("neg_").tensor("", this).inPlace();
  }

  /** Tensor with the input's dtype and device, to be overwritten; zeros here (torch.Tensor.new_empty). */
  newEmpty(this: Tensor, size: number | readonly number[], options: NewEmptyOptions = {}): Tensor {
    const call = new Call("new_empty").tensor("", this).integers("", size);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** Tensor filled with one value, with the input's dtype and device (torch.Tensor.new_full). */
  newFull(this: Tensor, size: number | readonly number[], fillValue: Numeric, options: NewFullOptions = {}): Tensor {
    const call = new Call("new_full").tensor("", this).integers("", size).number("", fillValue);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** Ones with the input's dtype and device (torch.Tensor.new_ones). */
  newOnes(this: Tensor, size: number | readonly number[], options: NewOnesOptions = {}): Tensor {
    const call = new Call("new_ones").tensor("", this).integers("", size);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** Zeros with the input's dtype and device (torch.Tensor.new_zeros). */
  newZeros(this: Tensor, size: number | readonly number[], options: NewZerosOptions = {}): Tensor {
    const call = new Call("new_zeros").tensor("", this).integers("", size);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** Next floating-point number after the input, towards `other` (torch.nextafter). */
  nextafter(this: Tensor, other: Tensor): Tensor {
    return new Call("nextafter").tensor("", this).tensor("", other).one();
  }

  /** Next floating-point number after the input, towards `other` (torch.nextafter). */
  nextafter_(this: Tensor, other: Tensor): Tensor {
    return new Call("nextafter_").tensor("", this).tensor("", other).inPlace();
  }

  /** Indices of nonzero elements, one per row; or a tuple of one vector per dimension (torch.nonzero). */
  nonzero(this: Tensor): Tensor {
    return new Call("nonzero").tensor("", this).one();
  }

  /** Indices of nonzero elements, one per row; or a tuple of one vector per dimension (torch.nonzero). */
  nonzeroAsTuple(this: Tensor): Promise<Tensor[]> {
    return new Call("nonzero").tensor("", this).boolean("as_tuple", true).list();
  }

  /**
   * p-norm of the elements over `dim`, or of all elements (torch.norm).
   *
   * @deprecated linalg.norm, linalg.vector_norm or linalg.matrix_norm
   */
  norm(this: Tensor, options: NormOptions = {}): Tensor {
    const call = new Call("norm").tensor("", this);
    if (options.p !== undefined) call.number("p", options.p);
    if (options.dim !== undefined) call.integers("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    return call.one();
  }

  /** Write normal random numbers of the given mean and standard deviation into the input (torch.Tensor.normal_). */
  normal_(this: Tensor, options: NormalInPlaceOptions = {}): Tensor {
    const call = new Call("normal_").tensor("", this);
    if (options.mean !== undefined) call.float("mean", options.mean);
    if (options.std !== undefined) call.float("std", options.std);
    return call.inPlace();
  }

  /** Outer product of two vectors (torch.outer). */
  outer(this: Tensor, vec2: Tensor): Tensor {
    return new Call("outer").tensor("", this).tensor("", vec2).one();
  }

  /** Reorder the dimensions (torch.permute). */
  permute(this: Tensor, dims: number | readonly number[]): Tensor {
    return new Call("permute").tensor("", this).integers("", dims).one();
  }

  /** Return the input itself (torch.positive). */
  positive(this: Tensor): Tensor {
    return new Call("positive").tensor("", this).one();
  }

  /** input ** exponent (torch.pow). Refuses an integer tensor with a negative integer as exponent. */
  pow(this: Tensor, exponent: Operand): Tensor {
    return new Call("pow").operand("", this).operand("", exponent).one();
  }

  /** input ** exponent (torch.pow). Refuses an integer tensor with a negative integer as exponent. */
  pow_(this: Tensor, exponent: Operand): Tensor {
    return new Call("pow_").tensor("", this).operand("", exponent).inPlace();
  }

  /** input where it is positive, else weight * input (torch.prelu). */
  prelu(this: Tensor, weight: Tensor): Tensor {
    return new Call("prelu").tensor("", this).tensor("", weight).one();
  }

  /** Product over `dim`, or over all dimensions (torch.prod). */
  prod(this: Tensor, options: ProdOptions = {}): Tensor {
    const call = new Call("prod").tensor("", this);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    return call.one();
  }

  /** Copy of the input with `source` at flat positions `index`, added if `accumulate` (torch.put). */
  put(this: Tensor, index: Tensor, source: Tensor, options: PutOptions = {}): Tensor {
    const call = new Call("put").tensor("", this).tensor("", index).tensor("", source);
    if (options.accumulate !== undefined) call.boolean("accumulate", options.accumulate);
    return call.one();
  }

  /** Copy of the input with `source` at flat positions `index`, added if `accumulate` (torch.put). */
  put_(this: Tensor, index: Tensor, source: Tensor, options: PutInPlaceOptions = {}): Tensor {
    const call = new Call("put_").tensor("", this).tensor("", index).tensor("", source);
    if (options.accumulate !== undefined) call.boolean("accumulate", options.accumulate);
    return call.inPlace();
  }

  /** q-th quantiles along `dim`, or of all elements; nan if a value is nan (torch.quantile). */
  quantile(this: Tensor, q: Operand, options: QuantileOptions = {}): Tensor {
    const call = new Call("quantile").tensor("", this).operand("", q);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    if (options.interpolation !== undefined) call.string("interpolation", options.interpolation);
    return call.one();
  }

  /** Convert radians to degrees (torch.rad2deg). */
  rad2deg(this: Tensor): Tensor {
    return new Call("rad2deg").tensor("", this).one();
  }

  /** Convert radians to degrees (torch.rad2deg). */
  rad2deg_(this: Tensor): Tensor {
    return new Call("rad2deg_").tensor("", this).inPlace();
  }

  /** Random integers from [from_, to); by default up to the largest exact integer (torch.Tensor.random_). */
  random_(this: Tensor, options: RandomInPlaceOptions = {}): Tensor {
    const call = new Call("random_").tensor("", this);
    if (options.from !== undefined) call.integer("from_", options.from);
    if (options.to !== undefined) call.integer("to", options.to);
    return call.inPlace();
  }

  /** Flatten to one dimension (torch.ravel). */
  ravel(this: Tensor): Tensor {
    return new Call("ravel").tensor("", this).one();
  }

  /** Real part, a view; a real tensor is returned unchanged (torch.real). */
  real(this: Tensor): Tensor {
    return new Call("real").tensor("", this).one();
  }

  /** 1 / input (torch.reciprocal). */
  reciprocal(this: Tensor): Tensor {
    return new Call("reciprocal").tensor("", this).one();
  }

  /** 1 / input (torch.reciprocal). */
  reciprocal_(this: Tensor): Tensor {
    return new Call("reciprocal_").tensor("", this).inPlace();
  }

  /** max(input, 0) (torch.nn.functional.relu). The derivative at 0 is 0. */
  relu(this: Tensor): Tensor {
    return new Call("relu").tensor("", this).one();
  }

  /** max(input, 0) (torch.nn.functional.relu). The derivative at 0 is 0. */
  relu_(this: Tensor): Tensor {
    return new Call("relu_").tensor("", this).inPlace();
  }

  /** Remainder of the division, with the divisor's sign (torch.remainder). */
  remainder(this: Tensor, other: Operand): Tensor {
    return new Call("remainder").operand("", this).operand("", other).one();
  }

  /** Remainder of the division, with the divisor's sign (torch.remainder). */
  remainder_(this: Tensor, other: Operand): Tensor {
    return new Call("remainder_").tensor("", this).operand("", other).inPlace();
  }

  /** Scale each slice along `dim` down to a p-norm of at most maxnorm (torch.renorm). */
  renorm(this: Tensor, p: number | ProgramNumber, dim: number, maxnorm: number | ProgramNumber): Tensor {
    return new Call("renorm").tensor("", this).float("", p).integer("", dim).float("", maxnorm).one();
  }

  /** Scale each slice along `dim` down to a p-norm of at most maxnorm (torch.renorm). */
  renorm_(this: Tensor, p: number | ProgramNumber, dim: number, maxnorm: number | ProgramNumber): Tensor {
    return new Call("renorm_").tensor("", this).float("", p).integer("", dim).float("", maxnorm).inPlace();
  }

  /** Repeat the tensor along each dimension; leading dimensions are added as needed (torch.Tensor.repeat). */
  repeat(this: Tensor, repeats: number | readonly number[]): Tensor {
    return new Call("repeat").tensor("", this).integers("", repeats).one();
  }

  /** Repeat each element, or each slice along `dim`, next to itself (torch.repeat_interleave). */
  repeatInterleave(this: Tensor, repeats: Operand, options: RepeatInterleaveOptions = {}): Tensor {
    const call = new Call("repeat_interleave").tensor("", this).operand("", repeats);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    if (options.outputSize !== undefined) call.integer("output_size", options.outputSize);
    return call.one();
  }

  /** Reshape in row-major order; a view if the strides allow it, else a copy (torch.reshape). */
  reshape(this: Tensor, shape: number | readonly number[]): Tensor {
    return new Call("reshape").tensor("", this).integers("", shape).one();
  }

  /** Reshape to the shape of `other` (torch.Tensor.reshape_as). */
  reshapeAs(this: Tensor, other: Tensor): Tensor {
    return new Call("reshape_as").tensor("", this).tensor("", other).one();
  }

  /** Return the tensor itself: conjugation is never lazy here (torch.resolve_conj). */
  resolveConj(this: Tensor): Tensor {
    return new Call("resolve_conj").tensor("", this).one();
  }

  /** Shift elements cyclically along `dims`; along the flattened tensor if `dims` is empty or None (torch.roll). */
  roll(this: Tensor, shifts: number | readonly number[], options: RollOptions = {}): Tensor {
    const call = new Call("roll").tensor("", this).integers("", shifts);
    if (options.dims !== undefined) call.integers("dims", options.dims);
    return call.one();
  }

  /** Rotate by 90 degrees `k` times in the plane of two dimensions, from the first to the second (torch.rot90). */
  rot90(this: Tensor, options: Rot90Options = {}): Tensor {
    const call = new Call("rot90").tensor("", this);
    if (options.k !== undefined) call.integer("k", options.k);
    if (options.dims !== undefined) call.integers("dims", options.dims);
    return call.one();
  }

  /** Round to the nearest integer, halves to even; or to `decimals` decimals (torch.round). */
  round(this: Tensor, options: RoundOptions = {}): Tensor {
    const call = new Call("round").tensor("", this);
    if (options.decimals !== undefined) call.integer("decimals", options.decimals);
    return call.one();
  }

  /** Round to the nearest integer, halves to even; or to `decimals` decimals (torch.round). */
  round_(this: Tensor, options: RoundInPlaceOptions = {}): Tensor {
    const call = new Call("round_").tensor("", this);
    if (options.decimals !== undefined) call.integer("decimals", options.decimals);
    return call.inPlace();
  }

  /** 1 / sqrt(input) (torch.rsqrt). */
  rsqrt(this: Tensor): Tensor {
    return new Call("rsqrt").tensor("", this).one();
  }

  /** 1 / sqrt(input) (torch.rsqrt). */
  rsqrt_(this: Tensor): Tensor {
    return new Call("rsqrt_").tensor("", this).inPlace();
  }

  /** Copy of the input with `src`, or a value, written at the indices along `dim` (torch.scatter). */
  scatterSrc(this: Tensor, dim: number, index: Tensor, src: Operand): Tensor {
    return new Call("scatter").tensor("", this).integer("", dim).tensor("", index).operand("", src).one();
  }

  /** Copy of the input with `src`, or a value, written at the indices along `dim` (torch.scatter). */
  scatterValue(this: Tensor, dim: number, index: Tensor, options: ScatterValueOptions = {}): Tensor {
    const call = new Call("scatter").tensor("", this).integer("", dim).tensor("", index);
    if (options.value !== undefined) call.number("value", options.value);
    return call.one();
  }

  /** Copy of the input with `src`, or a value, written at the indices along `dim` (torch.scatter). */
  scatterSrc_(this: Tensor, dim: number, index: Tensor, src: Operand): Tensor {
    return new Call("scatter_").tensor("", this).integer("", dim).tensor("", index).operand("", src).inPlace();
  }

  /** Copy of the input with `src`, or a value, written at the indices along `dim` (torch.scatter). */
  scatterValue_(this: Tensor, dim: number, index: Tensor, options: ScatterValueInPlaceOptions = {}): Tensor {
    const call = new Call("scatter_").tensor("", this).integer("", dim).tensor("", index);
    if (options.value !== undefined) call.number("value", options.value);
    return call.inPlace();
  }

  /** Copy of the input with `src` added at the indices along `dim` (torch.scatter_add). */
  scatterAdd(this: Tensor, dim: number, index: Tensor, src: Tensor): Tensor {
    return new Call("scatter_add").tensor("", this).integer("", dim).tensor("", index).tensor("", src).one();
  }

  /** Copy of the input with `src` added at the indices along `dim` (torch.scatter_add). */
  scatterAdd_(this: Tensor, dim: number, index: Tensor, src: Tensor): Tensor {
    return new Call("scatter_add_").tensor("", this).integer("", dim).tensor("", index).tensor("", src).inPlace();
  }

  /** Reduce the elements of `src` into the input at the positions `index` along `dim` (torch.scatter_reduce). */
  scatterReduce(
    this: Tensor,
    dim: number,
    index: Tensor,
    src: Tensor,
    reduce: "sum" | "prod" | "mean" | "amax" | "amin",
    options: ScatterReduceOptions = {},
  ): Tensor {
    const call = new Call("scatter_reduce").tensor("", this).integer("", dim).tensor("", index).tensor("", src).string("", reduce);
    if (options.includeSelf !== undefined) call.boolean("include_self", options.includeSelf);
    return call.one();
  }

  /** Reduce the elements of `src` into the input at the positions `index` along `dim` (torch.scatter_reduce). */
  scatterReduce_(
    this: Tensor,
    dim: number,
    index: Tensor,
    src: Tensor,
    reduce: "sum" | "prod" | "mean" | "amax" | "amin",
    options: ScatterReduceInPlaceOptions = {},
  ): Tensor {
    const call = new Call("scatter_reduce_").tensor("", this).integer("", dim).tensor("", index).tensor("", src).string("", reduce);
    if (options.includeSelf !== undefined) call.boolean("include_self", options.includeSelf);
    return call.inPlace();
  }

  /** Select one index along a dimension and remove the dimension (torch.select). */
  select(this: Tensor, dim: number, index: number): Tensor {
    return new Call("select").tensor("", this).integer("", dim).integer("", index).one();
  }

  /** Copy of the input with `src` at one index of `dim` (torch.select_scatter). */
  selectScatter(this: Tensor, src: Tensor, dim: number, index: number): Tensor {
    return new Call("select_scatter").tensor("", this).tensor("", src).integer("", dim).integer("", index).one();
  }

  /** Sign; for complex numbers z / |z|, or 0 for 0 (torch.sgn). */
  sgn(this: Tensor): Tensor {
    return new Call("sgn").tensor("", this).one();
  }

  /** Sign; for complex numbers z / |z|, or 0 for 0 (torch.sgn). */
  sgn_(this: Tensor): Tensor {
    return new Call("sgn_").tensor("", this).inPlace();
  }

  /** 1 / (1 + exp(-input)) (torch.sigmoid). */
  sigmoid(this: Tensor): Tensor {
    return new Call("sigmoid").tensor("", this).one();
  }

  /** 1 / (1 + exp(-input)) (torch.sigmoid). */
  sigmoid_(this: Tensor): Tensor {
    return new Call("sigmoid_").tensor("", this).inPlace();
  }

  /** -1, 0 or 1; 0 for nan (torch.sign). */
  sign(this: Tensor): Tensor {
    return new Call("sign").tensor("", this).one();
  }

  /** -1, 0 or 1; 0 for nan (torch.sign). */
  sign_(this: Tensor): Tensor {
    return new Call("sign_").tensor("", this).inPlace();
  }

  /** Whether the sign bit of each element is set; also of -0.0 (torch.signbit). */
  signbit(this: Tensor): Tensor {
    return new Call("signbit").tensor("", this).one();
  }

  /** Sine (torch.sin). */
  sin(this: Tensor): Tensor {
    return new Call("sin").tensor("", this).one();
  }

  /** Sine (torch.sin). */
  sin_(this: Tensor): Tensor {
    return new Call("sin_").tensor("", this).inPlace();
  }

  /** sin(pi x) / (pi x); 1 at 0 (torch.sinc). */
  sinc(this: Tensor): Tensor {
    return new Call("sinc").tensor("", this).one();
  }

  /** sin(pi x) / (pi x); 1 at 0 (torch.sinc). */
  sinc_(this: Tensor): Tensor {
    return new Call("sinc_").tensor("", this).inPlace();
  }

  /** Hyperbolic sine (torch.sinh). */
  sinh(this: Tensor): Tensor {
    return new Call("sinh").tensor("", this).one();
  }

  /** Hyperbolic sine (torch.sinh). */
  sinh_(this: Tensor): Tensor {
    return new Call("sinh_").tensor("", this).inPlace();
  }

  /** Copy of the input with `src` in a slice of `dim`: start to end, by step (torch.slice_scatter). */
  sliceScatter(this: Tensor, src: Tensor, options: SliceScatterOptions = {}): Tensor {
    const call = new Call("slice_scatter").tensor("", this).tensor("", src);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    if (options.start !== undefined) call.integer("start", options.start);
    if (options.end !== undefined) call.integer("end", options.end);
    if (options.step !== undefined) call.integer("step", options.step);
    return call.one();
  }

  /** Signs of determinants, and the logarithms of their absolute values (torch.slogdet). */
  slogdet(this: Tensor): [sign: Tensor, logabsdet: Tensor] {
    return new Call("slogdet").tensor("", this).several(2) as [sign: Tensor, logabsdet: Tensor];
  }

  /** exp(input) divided by its sum along a dimension (torch.softmax). */
  softmax(this: Tensor, dim: number, options: SoftmaxOptions = {}): Tensor {
    const call = new Call("softmax").tensor("", this).integer("", dim);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    return call.one();
  }

  /** Sort along `dim`; return the values and their indices (torch.sort). */
  sort(this: Tensor, options: SortOptions = {}): [values: Tensor, indices: Tensor] {
    const call = new Call("sort").tensor("", this);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    if (options.descending !== undefined) call.boolean("descending", options.descending);
    if (options.stable !== undefined) call.boolean("stable", options.stable);
    return call.several(2) as [values: Tensor, indices: Tensor];
  }

  /** Split into parts of one size, the last maybe smaller, or of given sizes (torch.split); a tuple of views. */
  splitInt(this: Tensor, splitSizeOrSections: number, options: SplitIntOptions = {}): Promise<Tensor[]> {
    const call = new Call("split").tensor("", this).integer("", splitSizeOrSections);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.list();
  }

  /** Split into parts of one size, the last maybe smaller, or of given sizes (torch.split); a tuple of views. */
  splitSections(
    this: Tensor,
    splitSizeOrSections: number | readonly number[],
    options: SplitSectionsOptions = {},
  ): Promise<Tensor[]> {
    const call = new Call("split").tensor("", this).integers("", splitSizeOrSections);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.list();
  }

  /** Split into parts of the given sizes, whose sum is the dimension's size (torch.split_with_sizes). */
  splitWithSizes(
    this: Tensor,
    splitSizes: number | readonly number[],
    options: SplitWithSizesOptions = {},
  ): Promise<Tensor[]> {
    const call = new Call("split_with_sizes").tensor("", this).integers("", splitSizes);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.list();
  }

  /** Square root (torch.sqrt). */
  sqrt(this: Tensor): Tensor {
    return new Call("sqrt").tensor("", this).one();
  }

  /** Square root (torch.sqrt). */
  sqrt_(this: Tensor): Tensor {
    return new Call("sqrt_").tensor("", this).inPlace();
  }

  /** input * input (torch.square). */
  square(this: Tensor): Tensor {
    return new Call("square").tensor("", this).one();
  }

  /** input * input (torch.square). */
  square_(this: Tensor): Tensor {
    return new Call("square_").tensor("", this).inPlace();
  }

  /** Remove dimensions of size 1: all of them, or those in `dim` (torch.squeeze). */
  squeeze(this: Tensor, options: SqueezeOptions = {}): Tensor {
    const call = new Call("squeeze").tensor("", this);
    if (options.dim !== undefined) call.integers("dim", options.dim);
    return call.one();
  }

  /** Standard deviation: the square root of the variance (torch.std). */
  std(this: Tensor, options: StdOptions = {}): Tensor {
    const call = new Call("std").tensor("", this);
    if (options.dim !== undefined) call.integers("dim", options.dim);
    if (options.unbiased !== undefined) call.boolean("unbiased", options.unbiased);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    if (options.correction !== undefined) call.number("correction", options.correction);
    return call.one();
  }

  /** Short-time Fourier transform: transforms of frames, hop_length apart (torch.stft). */
  stft(this: Tensor, nFft: number, options: StftOptions = {}): Tensor {
    const call = new Call("stft").tensor("", this).integer("", nFft);
    if (options.hopLength !== undefined) call.integer("hop_length", options.hopLength);
    if (options.winLength !== undefined) call.integer("win_length", options.winLength);
    if (options.window !== undefined) call.tensor("window", options.window);
    if (options.center !== undefined) call.boolean("center", options.center);
    if (options.padMode !== undefined) call.string("pad_mode", options.padMode);
    if (options.normalized !== undefined) call.boolean("normalized", options.normalized);
    if (options.onesided !== undefined) call.boolean("onesided", options.onesided);
    if (options.returnComplex !== undefined) call.boolean("return_complex", options.returnComplex);
    if (options.alignToWindow !== undefined) call.boolean("align_to_window", options.alignToWindow);
    return call.one();
  }

  /** input - alpha * other (torch.sub). */
  sub(this: Tensor, other: Operand, options: SubOptions = {}): Tensor {
    const call = new Call("sub").operand("", this).operand("", other);
    if (options.alpha !== undefined) call.number("alpha", options.alpha);
    return call.one();
  }

  /** input - alpha * other (torch.sub). */
  sub_(this: Tensor, other: Operand, options: SubInPlaceOptions = {}): Tensor {
    const call = new Call("sub_").tensor("", this).operand("", other);
    if (options.alpha !== undefined) call.number("alpha", options.alpha);
    return call.inPlace();
  }

  /** Sum over `dim`, or over all dimensions; integers are summed in int64 (torch.sum). */
  sum(this: Tensor, options: SumOptions = {}): Tensor {
    const call = new Call("sum").tensor("", this);
    if (options.dim !== undefined) call.integers("dim", options.dim);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    return call.one();
  }

  /** Sum over the dimensions that broadcasting from `size` adds or expands (torch.Tensor.sum_to_size). */
  sumToSize(this: Tensor, size: number | readonly number[]): Tensor {
    return new Call("sum_to_size").tensor("", this).integers("", size).one();
  }

  /** Swap two dimensions (torch.swapaxes). */
  swapaxes(this: Tensor, axis0: number, axis1: number): Tensor {
    return new Call("swapaxes").tensor("", this).integer("", axis0).integer("", axis1).one();
  }

  /** Swap two dimensions (torch.swapdims). */
  swapdims(this: Tensor, dim0: number, dim1: number): Tensor {
    return new Call("swapdims").tensor("", this).integer("", dim0).integer("", dim1).one();
  }

  /** Transpose a matrix; vectors and scalars are returned unchanged (torch.t). */
  t(this: Tensor): Tensor {
    return new Call("t").tensor("", this).one();
  }

  /** Elements of the flattened tensor at `index` (torch.take). */
  take(this: Tensor, index: Tensor): Tensor {
    return new Call("take").tensor("", this).tensor("", index).one();
  }

  /** gather with broadcasting except along `dim`; without `dim`, of the flattened tensors (torch.take_along_dim). */
  takeAlongDim(this: Tensor, indices: Tensor, options: TakeAlongDimOptions = {}): Tensor {
    const call = new Call("take_along_dim").tensor("", this).tensor("", indices);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.one();
  }

  /** Tangent (torch.tan). */
  tan(this: Tensor): Tensor {
    return new Call("tan").tensor("", this).one();
  }

  /** Tangent (torch.tan). */
  tan_(this: Tensor): Tensor {
    return new Call("tan_").tensor("", this).inPlace();
  }

  /** Hyperbolic tangent (torch.tanh). */
  tanh(this: Tensor): Tensor {
    return new Call("tanh").tensor("", this).one();
  }

  /** Hyperbolic tangent (torch.tanh). */
  tanh_(this: Tensor): Tensor {
    return new Call("tanh_").tensor("", this).inPlace();
  }

  /** Split into a number of parts, or at the given indices (torch.tensor_split). */
  tensorSplitSections(
    this: Tensor,
    indicesOrSections: number,
    options: TensorSplitSectionsOptions = {},
  ): Promise<Tensor[]> {
    const call = new Call("tensor_split").tensor("", this).integer("", indicesOrSections);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.list();
  }

  /** Split into a number of parts, or at the given indices (torch.tensor_split). */
  tensorSplitIndices(
    this: Tensor,
    indicesOrSections: number | readonly number[],
    options: TensorSplitIndicesOptions = {},
  ): Promise<Tensor[]> {
    const call = new Call("tensor_split").tensor("", this).integers("", indicesOrSections);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.list();
  }

  /** Repeat the tensor along its last dimensions; leading dimensions are added as needed (torch.tile). */
  tile(this: Tensor, dims: number | readonly number[]): Tensor {
    return new Call("tile").tensor("", this).integers("", dims).one();
  }

  /** Convert to another dtype or device; return the same tensor if nothing changes (torch.Tensor.to). */
  to(this: Tensor, options: ToOptions = {}): Tensor {
    const call = new Call("to").tensor("", this);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.nonBlocking !== undefined) call.boolean("non_blocking", options.nonBlocking);
    if (options.copy !== undefined) call.boolean("copy", options.copy);
    return call.one();
  }

  /** The k largest (or smallest) values along `dim`, sorted, and their indices (torch.topk). */
  topk(this: Tensor, k: number, options: TopkOptions = {}): [values: Tensor, indices: Tensor] {
    const call = new Call("topk").tensor("", this).integer("", k);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    if (options.largest !== undefined) call.boolean("largest", options.largest);
    if (options.sorted !== undefined) call.boolean("sorted", options.sorted);
    return call.several(2) as [values: Tensor, indices: Tensor];
  }

  /** Sum of a matrix's diagonal (torch.trace). input: (n, m). Raises EngineError: SHAPE. */
  trace(this: Tensor): Tensor {
    return new Call("trace").tensor("", this).one();
  }

  /** Swap two dimensions (torch.transpose). */
  transpose(this: Tensor, dim0: number, dim1: number): Tensor {
    return new Call("transpose").tensor("", this).integer("", dim0).integer("", dim1).one();
  }

  /** Lower triangle: zeros above a diagonal (torch.tril). */
  tril(this: Tensor, options: TrilOptions = {}): Tensor {
    const call = new Call("tril").tensor("", this);
    if (options.diagonal !== undefined) call.integer("diagonal", options.diagonal);
    return call.one();
  }

  /** Lower triangle: zeros above a diagonal (torch.tril). */
  tril_(this: Tensor, options: TrilInPlaceOptions = {}): Tensor {
    const call = new Call("tril_").tensor("", this);
    if (options.diagonal !== undefined) call.integer("diagonal", options.diagonal);
    return call.inPlace();
  }

  /** Upper triangle: zeros below a diagonal (torch.triu). */
  triu(this: Tensor, options: TriuOptions = {}): Tensor {
    const call = new Call("triu").tensor("", this);
    if (options.diagonal !== undefined) call.integer("diagonal", options.diagonal);
    return call.one();
  }

  /** Upper triangle: zeros below a diagonal (torch.triu). */
  triu_(this: Tensor, options: TriuInPlaceOptions = {}): Tensor {
    const call = new Call("triu_").tensor("", this);
    if (options.diagonal !== undefined) call.integer("diagonal", options.diagonal);
    return call.inPlace();
  }

  /** Round towards zero (torch.trunc). */
  trunc(this: Tensor): Tensor {
    return new Call("trunc").tensor("", this).one();
  }

  /** Round towards zero (torch.trunc). */
  trunc_(this: Tensor): Tensor {
    return new Call("trunc_").tensor("", this).inPlace();
  }

  /** Convert to the dtype of `other` (torch.Tensor.type_as). */
  typeAs(this: Tensor, other: Tensor): Tensor {
    return new Call("type_as").tensor("", this).tensor("", other).one();
  }

  /** Split a dimension into its slices, without the dimension (torch.unbind); a tuple of views. */
  unbind(this: Tensor, options: UnbindOptions = {}): Promise<Tensor[]> {
    const call = new Call("unbind").tensor("", this);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.list();
  }

  /** Split a dimension into several (torch.unflatten). */
  unflatten(this: Tensor, dim: number, sizes: number | readonly number[]): Tensor {
    return new Call("unflatten").tensor("", this).integer("", dim).integers("", sizes).one();
  }

  /** Windows of `size` elements, `step` apart, along a dimension (torch.Tensor.unfold). */
  unfold(this: Tensor, dimension: number, size: number, step: number): Tensor {
    return new Call("unfold").tensor("", this).integer("", dimension).integer("", size).integer("", step).one();
  }

  /** Uniform random numbers from [from_, to), with the input's shape (torch.Tensor.uniform_). */
  uniform_(this: Tensor, options: UniformInPlaceOptions = {}): Tensor {
    const call = new Call("uniform_").tensor("", this);
    if (options.from !== undefined) call.float("from_", options.from);
    if (options.to !== undefined) call.float("to", options.to);
    return call.inPlace();
  }

  /** Distinct elements, or slices along `dim`, always sorted (torch.unique). */
  unique(this: Tensor, options: UniqueOptions = {}): Tensor {
    const call = new Call("unique").tensor("", this);
    if (options.sorted !== undefined) call.boolean("sorted", options.sorted);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.one();
  }

  /** Distinct elements, or slices along `dim`, always sorted (torch.unique). */
  uniqueInverse(this: Tensor, options: UniqueInverseOptions = {}): [output: Tensor, inverseIndices: Tensor] {
    const call = new Call("unique").tensor("", this).boolean("return_inverse", true);
    if (options.sorted !== undefined) call.boolean("sorted", options.sorted);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.several(2) as [output: Tensor, inverseIndices: Tensor];
  }

  /** Distinct elements, or slices along `dim`, always sorted (torch.unique). */
  uniqueCounts(this: Tensor, options: UniqueCountsOptions = {}): [output: Tensor, counts: Tensor] {
    const call = new Call("unique").tensor("", this).boolean("return_counts", true);
    if (options.sorted !== undefined) call.boolean("sorted", options.sorted);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.several(2) as [output: Tensor, counts: Tensor];
  }

  /** Distinct elements, or slices along `dim`, always sorted (torch.unique). */
  uniqueInverseCounts(
    this: Tensor,
    options: UniqueInverseCountsOptions = {},
  ): [output: Tensor, inverseIndices: Tensor, counts: Tensor] {
    const call = new Call("unique").tensor("", this).boolean("return_inverse", true).boolean("return_counts", true);
    if (options.sorted !== undefined) call.boolean("sorted", options.sorted);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.several(3) as [output: Tensor, inverseIndices: Tensor, counts: Tensor];
  }

  /** First element, or slice along `dim`, of each run of equal ones (torch.unique_consecutive). */
  uniqueConsecutive(this: Tensor, options: UniqueConsecutiveOptions = {}): Tensor {
    const call = new Call("unique_consecutive").tensor("", this);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.one();
  }

  /** First element, or slice along `dim`, of each run of equal ones (torch.unique_consecutive). */
  uniqueConsecutiveInverse(
    this: Tensor,
    options: UniqueConsecutiveInverseOptions = {},
  ): [output: Tensor, inverseIndices: Tensor] {
    const call = new Call("unique_consecutive").tensor("", this).boolean("return_inverse", true);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.several(2) as [output: Tensor, inverseIndices: Tensor];
  }

  /** First element, or slice along `dim`, of each run of equal ones (torch.unique_consecutive). */
  uniqueConsecutiveCounts(
    this: Tensor,
    options: UniqueConsecutiveCountsOptions = {},
  ): [output: Tensor, counts: Tensor] {
    const call = new Call("unique_consecutive").tensor("", this).boolean("return_counts", true);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.several(2) as [output: Tensor, counts: Tensor];
  }

  /** First element, or slice along `dim`, of each run of equal ones (torch.unique_consecutive). */
  uniqueConsecutiveInverseCounts(
    this: Tensor,
    options: UniqueConsecutiveInverseCountsOptions = {},
  ): [output: Tensor, inverseIndices: Tensor, counts: Tensor] {
    const call = new Call("unique_consecutive").tensor("", this).boolean("return_inverse", true).boolean("return_counts", true);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.several(3) as [output: Tensor, inverseIndices: Tensor, counts: Tensor];
  }

  /** Like chunk, as unsafe_split does (torch.unsafe_chunk). */
  unsafeChunk(this: Tensor, chunks: number, options: UnsafeChunkOptions = {}): Promise<Tensor[]> {
    const call = new Call("unsafe_chunk").tensor("", this).integer("", chunks);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.list();
  }

  /** Like split, but the parts may be changed in place, each with its own version (torch.unsafe_split). */
  unsafeSplit(
    this: Tensor,
    splitSize: number | readonly number[],
    options: UnsafeSplitOptions = {},
  ): Promise<Tensor[]> {
    const call = new Call("unsafe_split").tensor("", this).integers("", splitSize);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.list();
  }

  /** Like split_with_sizes, as unsafe_split does (torch.unsafe_split_with_sizes). */
  unsafeSplitWithSizes(
    this: Tensor,
    splitSizes: number | readonly number[],
    options: UnsafeSplitWithSizesOptions = {},
  ): Promise<Tensor[]> {
    const call = new Call("unsafe_split_with_sizes").tensor("", this).integers("", splitSizes);
    if (options.dim !== undefined) call.integer("dim", options.dim);
    return call.list();
  }

  /** Insert a dimension of size 1 at `dim` (torch.unsqueeze). */
  unsqueeze(this: Tensor, dim: number): Tensor {
    return new Call("unsqueeze").tensor("", this).integer("", dim).one();
  }

  /** Variance over `dim`, or all dimensions; the divisor is the count minus `correction`, by default 1 (torch.var). */
  var(this: Tensor, options: VarOptions = {}): Tensor {
    const call = new Call("var").tensor("", this);
    if (options.dim !== undefined) call.integers("dim", options.dim);
    if (options.unbiased !== undefined) call.boolean("unbiased", options.unbiased);
    if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
    if (options.correction !== undefined) call.number("correction", options.correction);
    return call.one();
  }

  /** Dot product of a vector's conjugate and another vector (torch.vdot). */
  vdot(this: Tensor, other: Tensor): Tensor {
    return new Call("vdot").tensor("", this).tensor("", other).one();
  }

  /** Reshape in row-major order, always a view (torch.Tensor.view). */
  view(this: Tensor, size: number | readonly number[]): Tensor {
    return new Call("view").tensor("", this).integers("", size).one();
  }

  /** View with the shape of `other` (torch.Tensor.view_as). */
  viewAs(this: Tensor, other: Tensor): Tensor {
    return new Call("view_as").tensor("", this).tensor("", other).one();
  }

  /** Split along the first dimension (torch.vsplit); see tensor_split. */
  vsplitInt(this: Tensor, indicesOrSections: number): Promise<Tensor[]> {
    return new Call("vsplit").tensor("", this).integer("", indicesOrSections).list();
  }

  /** Split along the first dimension (torch.vsplit); see tensor_split. */
  vsplitArray(this: Tensor, indicesOrSections: number | readonly number[]): Promise<Tensor[]> {
    return new Call("vsplit").tensor("", this).integers("", indicesOrSections).list();
  }

  /** input where the condition is True, other elsewhere (torch.where). */
  where(this: Tensor, input: Operand, other: Operand): Tensor {
    return new Call("where").tensor("", this).operand("", input).operand("", other).one();
  }

  /** input * log(other); 0 where the input is 0 (torch.xlogy). */
  xlogy(this: Tensor, other: Operand): Tensor {
    return new Call("xlogy").operand("", this).operand("", other).one();
  }

  /** input * log(other); 0 where the input is 0 (torch.xlogy). */
  xlogy_(this: Tensor, other: Operand): Tensor {
    return new Call("xlogy_").tensor("", this).operand("", other).inPlace();
  }

  /** Zeros with the input's shape and dtype (torch.Tensor.zero_). */
  zero_(this: Tensor): Tensor {
    return new Call("zero_").tensor("", this).inPlace();
  }
}

/** The ops that make tensors of nothing. */
export abstract class SessionMethods {
  /** Range from start to end, end excluded, by step; a single number is the end (torch.arange). */
  arange(this: Session, start: Numeric, options: ArangeOptions = {}): Tensor {
    const call = new Call("arange", this).number("", start);
    if (options.end !== undefined) call.number("end", options.end);
    if (options.step !== undefined) call.number("step", options.step);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** Tensor to be overwritten; zeros here, so that it cannot expose other sessions' memory (torch.empty). */
  empty(this: Session, size: number | readonly number[], options: EmptyOptions = {}): Tensor {
    const call = new Call("empty", this).integers("", size);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** Identity matrix of n rows and m columns (torch.eye). */
  eye(this: Session, n: number, options: EyeOptions = {}): Tensor {
    const call = new Call("eye", this).integer("", n);
    if (options.m !== undefined) call.integer("m", options.m);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** Tensor filled with one value; the dtype is the value's by default (torch.full). */
  full(this: Session, size: number | readonly number[], fillValue: Numeric, options: FullOptions = {}): Tensor {
    const call = new Call("full", this).integers("", size).number("", fillValue);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** Whether each element is in `test_elements` (torch.isin). */
  isin(this: Session, elements: Operand, testElements: Operand, options: IsinOptions = {}): Tensor {
    const call = new Call("isin", this).operand("", elements).operand("", testElements);
    if (options.assumeUnique !== undefined) call.boolean("assume_unique", options.assumeUnique);
    if (options.invert !== undefined) call.boolean("invert", options.invert);
    return call.one();
  }

  /** `steps` evenly spaced numbers from start to end, both included (torch.linspace). */
  linspace(this: Session, start: Numeric, end: Numeric, steps: number, options: LinspaceOptions = {}): Tensor {
    const call = new Call("linspace", this).number("", start).number("", end).integer("", steps);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** base raised to the numbers of linspace (torch.logspace). */
  logspace(this: Session, start: Numeric, end: Numeric, steps: number, options: LogspaceOptions = {}): Tensor {
    const call = new Call("logspace", this).number("", start).number("", end).integer("", steps);
    if (options.base !== undefined) call.float("base", options.base);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** Normal random numbers; mean and std are tensors or numbers; two numbers need a size (torch.normal). */
  normal(this: Session, mean: Operand, options: NormalOptions = {}): Tensor {
    const call = new Call("normal", this).operand("", mean);
    if (options.std !== undefined) call.operand("std", options.std);
    if (options.size !== undefined) call.integers("size", options.size);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** Tensor of ones (torch.ones). */
  ones(this: Session, size: number | readonly number[], options: OnesOptions = {}): Tensor {
    const call = new Call("ones", this).integers("", size);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** Uniform random numbers from [0, 1) (torch.rand). */
  rand(this: Session, size: number | readonly number[], options: RandOptions = {}): Tensor {
    const call = new Call("rand", this).integers("", size);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** Random integers from low to high - 1 (torch.randint). */
  randint(
    this: Session,
    low: number,
    high: number,
    size: number | readonly number[],
    options: RandintOptions = {},
  ): Tensor {
    const call = new Call("randint", this).integer("", low).integer("", high).integers("", size);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** Normal random numbers of mean 0 and variance 1 (torch.randn). */
  randn(this: Session, size: number | readonly number[], options: RandnOptions = {}): Tensor {
    const call = new Call("randn", this).integers("", size);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** Random permutation of 0 to n - 1 (torch.randperm). */
  randperm(this: Session, n: number, options: RandpermOptions = {}): Tensor {
    const call = new Call("randperm", this).integer("", n);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** 0-d tensor of a number, float32 by default (torch.scalar_tensor). */
  scalarTensor(this: Session, s: Numeric, options: ScalarTensorOptions = {}): Tensor {
    const call = new Call("scalar_tensor", this).number("", s);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }

  /** Indices of a matrix's elements on and below a diagonal: (2, count), rows first (torch.tril_indices). */
  trilIndices(this: Session, row: number, col: number, options: TrilIndicesOptions = {}): Tensor {
    const call = new Call("tril_indices", this).integer("", row).integer("", col);
    if (options.offset !== undefined) call.integer("offset", options.offset);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    return call.one();
  }

  /** Indices of a matrix's elements on and above a diagonal: (2, count), rows first (torch.triu_indices). */
  triuIndices(this: Session, row: number, col: number, options: TriuIndicesOptions = {}): Tensor {
    const call = new Call("triu_indices", this).integer("", row).integer("", col);
    if (options.offset !== undefined) call.integer("offset", options.offset);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    return call.one();
  }

  /** Tensor of zeros (torch.zeros). */
  zeros(this: Session, size: number | readonly number[], options: ZerosOptions = {}): Tensor {
    const call = new Call("zeros", this).integers("", size);
    if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
    if (options.device !== undefined) call.string("device", options.device);
    if (options.requiresGrad !== undefined) call.boolean("requires_grad", options.requiresGrad);
    return call.one();
  }
}

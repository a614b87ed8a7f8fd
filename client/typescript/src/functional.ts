// Written by tools/sdk_ops.py from the answer to ListOps; do not edit.

/** The functions of torch.nn.functional that are not methods of a tensor. */

import { Call } from "./call.js";
import type { Numeric, Operand, ProgramNumber } from "./call.js";
import type { Tensor } from "./tensor.js";
import type { DType } from "./values.js";

/** What `alphaDropout` can do without. */
export interface AlphaDropoutOptions {
  /** 0.5 if not given. */
  p?: number | ProgramNumber;
  /** false if not given. */
  training?: boolean;
}

/** What `avgPool1d` can do without. */
export interface AvgPool1dOptions {
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** false if not given. */
  ceilMode?: boolean;
  /** true if not given. */
  countIncludePad?: boolean;
}

/** What `avgPool2d` can do without. */
export interface AvgPool2dOptions {
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** false if not given. */
  ceilMode?: boolean;
  /** true if not given. */
  countIncludePad?: boolean;
  divisorOverride?: number;
}

/** What `avgPool3d` can do without. */
export interface AvgPool3dOptions {
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** false if not given. */
  ceilMode?: boolean;
  /** true if not given. */
  countIncludePad?: boolean;
  divisorOverride?: number;
}

/** What `batchNorm` can do without. */
export interface BatchNormOptions {
  weight?: Tensor | null;
  bias?: Tensor | null;
  /** false if not given. */
  training?: boolean;
  /** 0.1 if not given. */
  momentum?: number | ProgramNumber;
  /** 1e-05 if not given. */
  eps?: number | ProgramNumber;
}

/** What `bilinear` can do without. */
export interface BilinearOptions {
  bias?: Tensor | null;
}

/** What `binaryCrossEntropy` can do without. */
export interface BinaryCrossEntropyOptions {
  weight?: Tensor | null;
  sizeAverage?: boolean;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
}

/** What `binaryCrossEntropyWithLogits` can do without. */
export interface BinaryCrossEntropyWithLogitsOptions {
  weight?: Tensor | null;
  sizeAverage?: boolean;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
  posWeight?: Tensor | null;
}

/** What `conv1d` can do without. */
export interface Conv1dOptions {
  bias?: Tensor | null;
  /** 1 if not given. */
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** 1 if not given. */
  dilation?: number | readonly number[];
  /** 1 if not given. */
  groups?: number;
}

/** What `conv1dPadding` can do without. */
export interface Conv1dPaddingOptions {
  bias?: Tensor | null;
  /** 1 if not given. */
  stride?: number | readonly number[];
  padding?: "valid" | "same";
  /** 1 if not given. */
  dilation?: number | readonly number[];
  /** 1 if not given. */
  groups?: number;
}

/** What `conv2d` can do without. */
export interface Conv2dOptions {
  bias?: Tensor | null;
  /** 1 if not given. */
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** 1 if not given. */
  dilation?: number | readonly number[];
  /** 1 if not given. */
  groups?: number;
}

/** What `conv2dPadding` can do without. */
export interface Conv2dPaddingOptions {
  bias?: Tensor | null;
  /** 1 if not given. */
  stride?: number | readonly number[];
  padding?: "valid" | "same";
  /** 1 if not given. */
  dilation?: number | readonly number[];
  /** 1 if not given. */
  groups?: number;
}

/** What `conv3d` can do without. */
export interface Conv3dOptions {
  bias?: Tensor | null;
  /** 1 if not given. */
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** 1 if not given. */
  dilation?: number | readonly number[];
  /** 1 if not given. */
  groups?: number;
}

/** What `conv3dPadding` can do without. */
export interface Conv3dPaddingOptions {
  bias?: Tensor | null;
  /** 1 if not given. */
  stride?: number | readonly number[];
  padding?: "valid" | "same";
  /** 1 if not given. */
  dilation?: number | readonly number[];
  /** 1 if not given. */
  groups?: number;
}

/** What `convTranspose1d` can do without. */
export interface ConvTranspose1dOptions {
  bias?: Tensor | null;
  /** 1 if not given. */
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** 0 if not given. */
  outputPadding?: number | readonly number[];
  /** 1 if not given. */
  groups?: number;
  /** 1 if not given. */
  dilation?: number | readonly number[];
}

/** What `convTranspose2d` can do without. */
export interface ConvTranspose2dOptions {
  bias?: Tensor | null;
  /** 1 if not given. */
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** 0 if not given. */
  outputPadding?: number | readonly number[];
  /** 1 if not given. */
  groups?: number;
  /** 1 if not given. */
  dilation?: number | readonly number[];
}

/** What `convTranspose3d` can do without. */
export interface ConvTranspose3dOptions {
  bias?: Tensor | null;
  /** 1 if not given. */
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** 0 if not given. */
  outputPadding?: number | readonly number[];
  /** 1 if not given. */
  groups?: number;
  /** 1 if not given. */
  dilation?: number | readonly number[];
}

/** What `cosineEmbeddingLoss` can do without. */
export interface CosineEmbeddingLossOptions {
  /** 0.0 if not given. */
  margin?: number | ProgramNumber;
  sizeAverage?: boolean;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
}

/** What `cosineSimilarity` can do without. */
export interface CosineSimilarityOptions {
  /** 1 if not given. */
  dim?: number;
  /** 1e-08 if not given. */
  eps?: number | ProgramNumber;
}

/** What `crossEntropy` can do without. */
export interface CrossEntropyOptions {
  weight?: Tensor | null;
  sizeAverage?: boolean;
  /** -100 if not given. */
  ignoreIndex?: number;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
  /** 0.0 if not given. */
  labelSmoothing?: number | ProgramNumber;
}

/** What `ctcLoss` can do without. */
export interface CtcLossOptions {
  /** 0 if not given. */
  blank?: number;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
  /** false if not given. */
  zeroInfinity?: boolean;
}

/** What `dropout` can do without. */
export interface DropoutOptions {
  /** 0.5 if not given. */
  p?: number | ProgramNumber;
  /** true if not given. */
  training?: boolean;
}

/** What `dropout1d` can do without. */
export interface Dropout1dOptions {
  /** 0.5 if not given. */
  p?: number | ProgramNumber;
  /** true if not given. */
  training?: boolean;
}

/** What `dropout2d` can do without. */
export interface Dropout2dOptions {
  /** 0.5 if not given. */
  p?: number | ProgramNumber;
  /** true if not given. */
  training?: boolean;
}

/** What `dropout3d` can do without. */
export interface Dropout3dOptions {
  /** 0.5 if not given. */
  p?: number | ProgramNumber;
  /** true if not given. */
  training?: boolean;
}

/** What `dropout_` can do without. */
export interface DropoutInPlaceOptions {
  /** 0.5 if not given. */
  p?: number | ProgramNumber;
  /** true if not given. */
  training?: boolean;
}

/** What `elu` can do without. */
export interface EluOptions {
  /** 1.0 if not given. */
  alpha?: number | ProgramNumber;
}

/** What `elu_` can do without. */
export interface EluInPlaceOptions {
  /** 1.0 if not given. */
  alpha?: number | ProgramNumber;
}

/** What `embedding` can do without. */
export interface EmbeddingOptions {
  paddingIdx?: number;
  maxNorm?: number | ProgramNumber;
  /** 2.0 if not given. */
  normType?: number | ProgramNumber;
  /** false if not given. */
  scaleGradByFreq?: boolean;
  /** false if not given. */
  sparse?: boolean;
}

/** What `embeddingBag` can do without. */
export interface EmbeddingBagOptions {
  offsets?: Tensor | null;
  maxNorm?: number | ProgramNumber;
  /** 2.0 if not given. */
  normType?: number | ProgramNumber;
  /** false if not given. */
  scaleGradByFreq?: boolean;
  /** "mean" if not given. */
  mode?: "sum" | "mean" | "max";
  /** false if not given. */
  sparse?: boolean;
  perSampleWeights?: Tensor | null;
  /** false if not given. */
  includeLastOffset?: boolean;
  paddingIdx?: number;
}

/** What `featureAlphaDropout` can do without. */
export interface FeatureAlphaDropoutOptions {
  /** 0.5 if not given. */
  p?: number | ProgramNumber;
  /** false if not given. */
  training?: boolean;
}

/** What `fold` can do without. */
export interface FoldOptions {
  /** 1 if not given. */
  dilation?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** 1 if not given. */
  stride?: number | readonly number[];
}

/** What `gaussianNllLoss` can do without. */
export interface GaussianNllLossOptions {
  /** false if not given. */
  full?: boolean;
  /** 1e-06 if not given. */
  eps?: number | ProgramNumber;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
}

/** What `gelu` can do without. */
export interface GeluOptions {
  /** "none" if not given. */
  approximate?: "none" | "tanh";
}

/** What `glu` can do without. */
export interface GluOptions {
  /** -1 if not given. */
  dim?: number;
}

/** What `gridSample` can do without. */
export interface GridSampleOptions {
  /** "bilinear" if not given. */
  mode?: "bilinear" | "nearest" | "bicubic";
  /** "zeros" if not given. */
  paddingMode?: "zeros" | "border" | "reflection";
  alignCorners?: boolean;
}

/** What `groupNorm` can do without. */
export interface GroupNormOptions {
  weight?: Tensor | null;
  bias?: Tensor | null;
  /** 1e-05 if not given. */
  eps?: number | ProgramNumber;
}

/** What `hardtanh` can do without. */
export interface HardtanhOptions {
  /** -1.0 if not given. */
  minVal?: number | ProgramNumber;
  /** 1.0 if not given. */
  maxVal?: number | ProgramNumber;
}

/** What `hardtanh_` can do without. */
export interface HardtanhInPlaceOptions {
  /** -1.0 if not given. */
  minVal?: number | ProgramNumber;
  /** 1.0 if not given. */
  maxVal?: number | ProgramNumber;
}

/** What `hingeEmbeddingLoss` can do without. */
export interface HingeEmbeddingLossOptions {
  /** 1.0 if not given. */
  margin?: number | ProgramNumber;
  sizeAverage?: boolean;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
}

/** What `huberLoss` can do without. */
export interface HuberLossOptions {
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
  /** 1.0 if not given. */
  delta?: number | ProgramNumber;
  weight?: Tensor | null;
}

/** What `instanceNorm` can do without. */
export interface InstanceNormOptions {
  runningMean?: Tensor | null;
  runningVar?: Tensor | null;
  weight?: Tensor | null;
  bias?: Tensor | null;
  /** true if not given. */
  useInputStats?: boolean;
  /** 0.1 if not given. */
  momentum?: number | ProgramNumber;
  /** 1e-05 if not given. */
  eps?: number | ProgramNumber;
}

/** What `interpolate` can do without. */
export interface InterpolateOptions {
  size?: number | readonly number[];
  scaleFactor?: readonly number[];
  /** "nearest" if not given. */
  mode?: "nearest" | "linear" | "bilinear" | "bicubic" | "trilinear" | "area" | "nearest-exact";
  alignCorners?: boolean;
  recomputeScaleFactor?: boolean;
  /** false if not given. */
  antialias?: boolean;
}

/** What `klDiv` can do without. */
export interface KlDivOptions {
  sizeAverage?: boolean;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "batchmean" | "sum" | "mean";
  /** false if not given. */
  logTarget?: boolean;
}

/** What `l1Loss` can do without. */
export interface L1LossOptions {
  sizeAverage?: boolean;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
  weight?: Tensor | null;
}

/** What `layerNorm` can do without. */
export interface LayerNormOptions {
  weight?: Tensor | null;
  bias?: Tensor | null;
  /** 1e-05 if not given. */
  eps?: number | ProgramNumber;
}

/** What `leakyRelu` can do without. */
export interface LeakyReluOptions {
  /** 0.01 if not given. */
  negativeSlope?: number | ProgramNumber;
}

/** What `leakyRelu_` can do without. */
export interface LeakyReluInPlaceOptions {
  /** 0.01 if not given. */
  negativeSlope?: number | ProgramNumber;
}

/** What `linear` can do without. */
export interface LinearOptions {
  bias?: Tensor | null;
}

/** What `localResponseNorm` can do without. */
export interface LocalResponseNormOptions {
  /** 0.0001 if not given. */
  alpha?: number | ProgramNumber;
  /** 0.75 if not given. */
  beta?: number | ProgramNumber;
  /** 1.0 if not given. */
  k?: number | ProgramNumber;
}

/** What `lpPool1d` can do without. */
export interface LpPool1dOptions {
  stride?: number | readonly number[];
  /** false if not given. */
  ceilMode?: boolean;
}

/** What `lpPool2d` can do without. */
export interface LpPool2dOptions {
  stride?: number | readonly number[];
  /** false if not given. */
  ceilMode?: boolean;
}

/** What `lpPool3d` can do without. */
export interface LpPool3dOptions {
  stride?: number | readonly number[];
  /** false if not given. */
  ceilMode?: boolean;
}

/** What `marginRankingLoss` can do without. */
export interface MarginRankingLossOptions {
  /** 0.0 if not given. */
  margin?: number | ProgramNumber;
  sizeAverage?: boolean;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
}

/** What `maxPool1d` can do without. */
export interface MaxPool1dOptions {
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** 1 if not given. */
  dilation?: number | readonly number[];
  /** false if not given. */
  ceilMode?: boolean;
}

/** What `maxPool1dReturnIndices` can do without. */
export interface MaxPool1dReturnIndicesOptions {
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** 1 if not given. */
  dilation?: number | readonly number[];
  /** false if not given. */
  ceilMode?: boolean;
}

/** What `maxPool2d` can do without. */
export interface MaxPool2dOptions {
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** 1 if not given. */
  dilation?: number | readonly number[];
  /** false if not given. */
  ceilMode?: boolean;
}

/** What `maxPool2dReturnIndices` can do without. */
export interface MaxPool2dReturnIndicesOptions {
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** 1 if not given. */
  dilation?: number | readonly number[];
  /** false if not given. */
  ceilMode?: boolean;
}

/** What `maxPool3d` can do without. */
export interface MaxPool3dOptions {
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** 1 if not given. */
  dilation?: number | readonly number[];
  /** false if not given. */
  ceilMode?: boolean;
}

/** What `maxPool3dReturnIndices` can do without. */
export interface MaxPool3dReturnIndicesOptions {
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** 1 if not given. */
  dilation?: number | readonly number[];
  /** false if not given. */
  ceilMode?: boolean;
}

/** What `maxUnpool1d` can do without. */
export interface MaxUnpool1dOptions {
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  outputSize?: number | readonly number[];
}

/** What `maxUnpool2d` can do without. */
export interface MaxUnpool2dOptions {
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  outputSize?: number | readonly number[];
}

/** What `maxUnpool3d` can do without. */
export interface MaxUnpool3dOptions {
  stride?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  outputSize?: number | readonly number[];
}

/** What `mseLoss` can do without. */
export interface MseLossOptions {
  sizeAverage?: boolean;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
  weight?: Tensor | null;
}

/** What `multiHeadAttentionForward` can do without. */
export interface MultiHeadAttentionForwardOptions {
  /** true if not given. */
  training?: boolean;
  keyPaddingMask?: Tensor | null;
  attnMask?: Tensor | null;
  /** false if not given. */
  useSeparateProjWeight?: boolean;
  qProjWeight?: Tensor | null;
  kProjWeight?: Tensor | null;
  vProjWeight?: Tensor | null;
  staticK?: Tensor | null;
  staticV?: Tensor | null;
  /** true if not given. */
  averageAttnWeights?: boolean;
  /** false if not given. */
  isCausal?: boolean;
}

/** What `multiHeadAttentionForwardWithoutWeights` can do without. */
export interface MultiHeadAttentionForwardWithoutWeightsOptions {
  /** true if not given. */
  training?: boolean;
  keyPaddingMask?: Tensor | null;
  attnMask?: Tensor | null;
  /** false if not given. */
  useSeparateProjWeight?: boolean;
  qProjWeight?: Tensor | null;
  kProjWeight?: Tensor | null;
  vProjWeight?: Tensor | null;
  staticK?: Tensor | null;
  staticV?: Tensor | null;
  /** true if not given. */
  averageAttnWeights?: boolean;
  /** false if not given. */
  isCausal?: boolean;
}

/** What `multiMarginLoss` can do without. */
export interface MultiMarginLossOptions {
  /** 1 if not given. */
  p?: Numeric;
  /** 1.0 if not given. */
  margin?: Numeric;
  weight?: Tensor | null;
  sizeAverage?: boolean;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
}

/** What `multilabelMarginLoss` can do without. */
export interface MultilabelMarginLossOptions {
  sizeAverage?: boolean;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
}

/** What `multilabelSoftMarginLoss` can do without. */
export interface MultilabelSoftMarginLossOptions {
  weight?: Tensor | null;
  sizeAverage?: boolean;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
}

/** What `nllLoss` can do without. */
export interface NllLossOptions {
  weight?: Tensor | null;
  sizeAverage?: boolean;
  /** -100 if not given. */
  ignoreIndex?: number;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
}

/** What `unfold` can do without. */
export interface UnfoldOptions {
  /** 1 if not given. */
  dilation?: number | readonly number[];
  /** 0 if not given. */
  padding?: number | readonly number[];
  /** 1 if not given. */
  stride?: number | readonly number[];
}

/** What `normalize` can do without. */
export interface NormalizeOptions {
  /** 2.0 if not given. */
  p?: number | ProgramNumber;
  /** 1 if not given. */
  dim?: number | readonly number[];
  /** 1e-12 if not given. */
  eps?: number | ProgramNumber;
}

/** What `oneHot` can do without. */
export interface OneHotOptions {
  /** -1 if not given. */
  numClasses?: number;
}

/** What `pad` can do without. */
export interface PadOptions {
  /** "constant" if not given. */
  mode?: "constant" | "reflect" | "replicate" | "circular";
  value?: number | ProgramNumber;
}

/** What `pairwiseDistance` can do without. */
export interface PairwiseDistanceOptions {
  /** 2.0 if not given. */
  p?: number | ProgramNumber;
  /** 1e-06 if not given. */
  eps?: number | ProgramNumber;
  /** false if not given. */
  keepdim?: boolean;
}

/** What `pdist` can do without. */
export interface PdistOptions {
  /** 2.0 if not given. */
  p?: number | ProgramNumber;
}

/** What `poissonNllLoss` can do without. */
export interface PoissonNllLossOptions {
  /** true if not given. */
  logInput?: boolean;
  /** false if not given. */
  full?: boolean;
  sizeAverage?: boolean;
  /** 1e-08 if not given. */
  eps?: number | ProgramNumber;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
}

/** What `rmsNorm` can do without. */
export interface RmsNormOptions {
  weight?: Tensor | null;
  eps?: number | ProgramNumber;
}

/** What `rrelu` can do without. */
export interface RreluOptions {
  /** 0.125 if not given. */
  lower?: number | ProgramNumber;
  /** 0.3333333333333333 if not given. */
  upper?: number | ProgramNumber;
  /** false if not given. */
  training?: boolean;
}

/** What `rrelu_` can do without. */
export interface RreluInPlaceOptions {
  /** 0.125 if not given. */
  lower?: number | ProgramNumber;
  /** 0.3333333333333333 if not given. */
  upper?: number | ProgramNumber;
  /** false if not given. */
  training?: boolean;
}

/** What `scaledDotProductAttention` can do without. */
export interface ScaledDotProductAttentionOptions {
  attnMask?: Tensor | null;
  /** 0.0 if not given. */
  dropoutP?: number | ProgramNumber;
  /** false if not given. */
  isCausal?: boolean;
  scale?: number | ProgramNumber;
  /** false if not given. */
  enableGqa?: boolean;
}

/** What `smoothL1Loss` can do without. */
export interface SmoothL1LossOptions {
  sizeAverage?: boolean;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
  /** 1.0 if not given. */
  beta?: number | ProgramNumber;
}

/** What `softMarginLoss` can do without. */
export interface SoftMarginLossOptions {
  sizeAverage?: boolean;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
}

/** What `softmin` can do without. */
export interface SoftminOptions {
  dtype?: DType;
}

/** What `softplus` can do without. */
export interface SoftplusOptions {
  /** 1.0 if not given. */
  beta?: number | ProgramNumber;
  /** 20.0 if not given. */
  threshold?: number | ProgramNumber;
}

/** What `softshrink` can do without. */
export interface SoftshrinkOptions {
  /** 0.5 if not given. */
  lambd?: number | ProgramNumber;
}

/** What `tripletMarginLoss` can do without. */
export interface TripletMarginLossOptions {
  /** 1.0 if not given. */
  margin?: number | ProgramNumber;
  /** 2.0 if not given. */
  p?: number | ProgramNumber;
  /** 1e-06 if not given. */
  eps?: number | ProgramNumber;
  /** false if not given. */
  swap?: boolean;
  sizeAverage?: boolean;
  reduce?: boolean;
  /** "mean" if not given. */
  reduction?: "none" | "mean" | "sum";
}

/** Mean of each window, with as many windows as output elements (torch.nn.functional.adaptive_avg_pool1d). */
export function adaptiveAvgPool1d(input: Tensor, outputSize: number | readonly number[]): Tensor {
  return new Call("adaptive_avg_pool1d").tensor("", input).integers("", outputSize).one();
}

/** Mean of each window, with as many windows as output elements (torch.nn.functional.adaptive_avg_pool2d). */
export function adaptiveAvgPool2d(input: Tensor, outputSize: number | readonly number[]): Tensor {
  return new Call("adaptive_avg_pool2d").tensor("", input).integers("", outputSize).one();
}

/** Mean of each window, with as many windows as output elements (torch.nn.functional.adaptive_avg_pool3d). */
export function adaptiveAvgPool3d(input: Tensor, outputSize: number | readonly number[]): Tensor {
  return new Call("adaptive_avg_pool3d").tensor("", input).integers("", outputSize).one();
}

/** Maximum of each window, with as many windows as output elements (torch.nn.functional.adaptive_max_pool1d). */
export function adaptiveMaxPool1d(input: Tensor, outputSize: number | readonly number[]): Tensor {
  return new Call("adaptive_max_pool1d").tensor("", input).integers("", outputSize).one();
}

/** Maximum of each window, with as many windows as output elements (torch.nn.functional.adaptive_max_pool1d). */
export function adaptiveMaxPool1dReturnIndices(
  input: Tensor,
  outputSize: number | readonly number[],
): [values: Tensor, indices: Tensor] {
  return new Call("adaptive_max_pool1d").tensor("", input).integers("", outputSize).boolean("return_indices", true).several(2) as [values: Tensor, indices: Tensor];
}

/** Maximum of each window, with as many windows as output elements (torch.nn.functional.adaptive_max_pool2d). */
export function adaptiveMaxPool2d(input: Tensor, outputSize: number | readonly number[]): Tensor {
  return new Call("adaptive_max_pool2d").tensor("", input).integers("", outputSize).one();
}

/** Maximum of each window, with as many windows as output elements (torch.nn.functional.adaptive_max_pool2d). */
export function adaptiveMaxPool2dReturnIndices(
  input: Tensor,
  outputSize: number | readonly number[],
): [values: Tensor, indices: Tensor] {
  return new Call("adaptive_max_pool2d").tensor("", input).integers("", outputSize).boolean("return_indices", true).several(2) as [values: Tensor, indices: Tensor];
}

/** Maximum of each window, with as many windows as output elements (torch.nn.functional.adaptive_max_pool3d). */
export function adaptiveMaxPool3d(input: Tensor, outputSize: number | readonly number[]): Tensor {
  return new Call("adaptive_max_pool3d").tensor("", input).integers("", outputSize).one();
}

/** Maximum of each window, with as many windows as output elements (torch.nn.functional.adaptive_max_pool3d). */
export function adaptiveMaxPool3dReturnIndices(
  input: Tensor,
  outputSize: number | readonly number[],
): [values: Tensor, indices: Tensor] {
  return new Call("adaptive_max_pool3d").tensor("", input).integers("", outputSize).boolean("return_indices", true).several(2) as [values: Tensor, indices: Tensor];
}

/** Dropout that preserves the mean and variance of SELU's results (torch.nn.functional.alpha_dropout). */
export function alphaDropout(input: Tensor, options: AlphaDropoutOptions = {}): Tensor {
  const call = new Call("alpha_dropout").tensor("", input);
  if (options.p !== undefined) call.float("p", options.p);
  if (options.training !== undefined) call.boolean("training", options.training);
  return call.one();
}

/** Mean of each window (torch.nn.functional.avg_pool1d). input: (n, c, l) or (c, l). */
export function avgPool1d(
  input: Tensor,
  kernelSize: number | readonly number[],
  options: AvgPool1dOptions = {},
): Tensor {
  const call = new Call("avg_pool1d").tensor("", input).integers("", kernelSize);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.ceilMode !== undefined) call.boolean("ceil_mode", options.ceilMode);
  if (options.countIncludePad !== undefined) call.boolean("count_include_pad", options.countIncludePad);
  return call.one();
}

/** Mean of each window (torch.nn.functional.avg_pool2d). input: (n, c, h, w) or (c, h, w). */
export function avgPool2d(
  input: Tensor,
  kernelSize: number | readonly number[],
  options: AvgPool2dOptions = {},
): Tensor {
  const call = new Call("avg_pool2d").tensor("", input).integers("", kernelSize);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.ceilMode !== undefined) call.boolean("ceil_mode", options.ceilMode);
  if (options.countIncludePad !== undefined) call.boolean("count_include_pad", options.countIncludePad);
  if (options.divisorOverride !== undefined) call.integer("divisor_override", options.divisorOverride);
  return call.one();
}

/** Mean of each window (torch.nn.functional.avg_pool3d). input: (n, c, d, h, w) or (c, d, h, w). */
export function avgPool3d(
  input: Tensor,
  kernelSize: number | readonly number[],
  options: AvgPool3dOptions = {},
): Tensor {
  const call = new Call("avg_pool3d").tensor("", input).integers("", kernelSize);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.ceilMode !== undefined) call.boolean("ceil_mode", options.ceilMode);
  if (options.countIncludePad !== undefined) call.boolean("count_include_pad", options.countIncludePad);
  if (options.divisorOverride !== undefined) call.integer("divisor_override", options.divisorOverride);
  return call.one();
}

/** Normalize each channel to mean 0 and variance 1, then scale and shift (torch.nn.functional.batch_norm). */
export function batchNorm(
  input: Tensor,
  runningMean: Tensor | null,
  runningVar: Tensor | null,
  options: BatchNormOptions = {},
): Tensor {
  const call = new Call("batch_norm").tensor("", input).tensor("", runningMean).tensor("", runningVar);
  if (options.weight !== undefined) call.tensor("weight", options.weight);
  if (options.bias !== undefined) call.tensor("bias", options.bias);
  if (options.training !== undefined) call.boolean("training", options.training);
  if (options.momentum !== undefined) call.float("momentum", options.momentum);
  if (options.eps !== undefined) call.float("eps", options.eps);
  return call.one();
}

/** input1 @ A @ input2 + bias, for each matrix A of the weight (torch.nn.functional.bilinear). */
export function bilinear(input1: Tensor, input2: Tensor, weight: Tensor, options: BilinearOptions = {}): Tensor {
  const call = new Call("bilinear").tensor("", input1).tensor("", input2).tensor("", weight);
  if (options.bias !== undefined) call.tensor("bias", options.bias);
  return call.one();
}

/** Binary cross entropy of probabilities; logarithms are at least -100 (torch.nn.functional.binary_cross_entropy). */
export function binaryCrossEntropy(input: Tensor, target: Tensor, options: BinaryCrossEntropyOptions = {}): Tensor {
  const call = new Call("binary_cross_entropy").tensor("", input).tensor("", target);
  if (options.weight !== undefined) call.tensor("weight", options.weight);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  return call.one();
}

/** Binary cross entropy of sigmoid(input) (torch.nn.functional.binary_cross_entropy_with_logits). */
export function binaryCrossEntropyWithLogits(
  input: Tensor,
  target: Tensor,
  options: BinaryCrossEntropyWithLogitsOptions = {},
): Tensor {
  const call = new Call("binary_cross_entropy_with_logits").tensor("", input).tensor("", target);
  if (options.weight !== undefined) call.tensor("weight", options.weight);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  if (options.posWeight !== undefined) call.tensor("pos_weight", options.posWeight);
  return call.one();
}

/** Interleave the channels of the groups (torch.nn.functional.channel_shuffle). input: (n, c, ...). */
export function channelShuffle(input: Tensor, groups: number): Tensor {
  return new Call("channel_shuffle").tensor("", input).integer("", groups).one();
}

/** Cross-correlation over one spatial dimension (torch.nn.functional.conv1d). */
export function conv1d(input: Tensor, weight: Tensor, options: Conv1dOptions = {}): Tensor {
  const call = new Call("conv1d").tensor("", input).tensor("", weight);
  if (options.bias !== undefined) call.tensor("bias", options.bias);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  if (options.groups !== undefined) call.integer("groups", options.groups);
  return call.one();
}

/** Cross-correlation over one spatial dimension (torch.nn.functional.conv1d). */
export function conv1dPadding(input: Tensor, weight: Tensor, options: Conv1dPaddingOptions = {}): Tensor {
  const call = new Call("conv1d").tensor("", input).tensor("", weight);
  if (options.bias !== undefined) call.tensor("bias", options.bias);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.string("padding", options.padding);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  if (options.groups !== undefined) call.integer("groups", options.groups);
  return call.one();
}

/** Cross-correlation over two spatial dimensions (torch.nn.functional.conv2d). */
export function conv2d(input: Tensor, weight: Tensor, options: Conv2dOptions = {}): Tensor {
  const call = new Call("conv2d").tensor("", input).tensor("", weight);
  if (options.bias !== undefined) call.tensor("bias", options.bias);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  if (options.groups !== undefined) call.integer("groups", options.groups);
  return call.one();
}

/** Cross-correlation over two spatial dimensions (torch.nn.functional.conv2d). */
export function conv2dPadding(input: Tensor, weight: Tensor, options: Conv2dPaddingOptions = {}): Tensor {
  const call = new Call("conv2d").tensor("", input).tensor("", weight);
  if (options.bias !== undefined) call.tensor("bias", options.bias);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.string("padding", options.padding);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  if (options.groups !== undefined) call.integer("groups", options.groups);
  return call.one();
}

/** Cross-correlation over three spatial dimensions (torch.nn.functional.conv3d). */
export function conv3d(input: Tensor, weight: Tensor, options: Conv3dOptions = {}): Tensor {
  const call = new Call("conv3d").tensor("", input).tensor("", weight);
  if (options.bias !== undefined) call.tensor("bias", options.bias);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  if (options.groups !== undefined) call.integer("groups", options.groups);
  return call.one();
}

/** Cross-correlation over three spatial dimensions (torch.nn.functional.conv3d). */
export function conv3dPadding(input: Tensor, weight: Tensor, options: Conv3dPaddingOptions = {}): Tensor {
  const call = new Call("conv3d").tensor("", input).tensor("", weight);
  if (options.bias !== undefined) call.tensor("bias", options.bias);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.string("padding", options.padding);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  if (options.groups !== undefined) call.integer("groups", options.groups);
  return call.one();
}

/** Transposed convolution over one spatial dimension (torch.nn.functional.conv_transpose1d). */
export function convTranspose1d(input: Tensor, weight: Tensor, options: ConvTranspose1dOptions = {}): Tensor {
  const call = new Call("conv_transpose1d").tensor("", input).tensor("", weight);
  if (options.bias !== undefined) call.tensor("bias", options.bias);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.outputPadding !== undefined) call.integers("output_padding", options.outputPadding);
  if (options.groups !== undefined) call.integer("groups", options.groups);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  return call.one();
}

/** Transposed convolution over two spatial dimensions (torch.nn.functional.conv_transpose2d). */
export function convTranspose2d(input: Tensor, weight: Tensor, options: ConvTranspose2dOptions = {}): Tensor {
  const call = new Call("conv_transpose2d").tensor("", input).tensor("", weight);
  if (options.bias !== undefined) call.tensor("bias", options.bias);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.outputPadding !== undefined) call.integers("output_padding", options.outputPadding);
  if (options.groups !== undefined) call.integer("groups", options.groups);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  return call.one();
}

/** Transposed convolution over three spatial dimensions (torch.nn.functional.conv_transpose3d). */
export function convTranspose3d(input: Tensor, weight: Tensor, options: ConvTranspose3dOptions = {}): Tensor {
  const call = new Call("conv_transpose3d").tensor("", input).tensor("", weight);
  if (options.bias !== undefined) call.tensor("bias", options.bias);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.outputPadding !== undefined) call.integers("output_padding", options.outputPadding);
  if (options.groups !== undefined) call.integer("groups", options.groups);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  return call.one();
}

/** 1 - cos where target is 1, max(0, cos - margin) where it is -1 (torch.nn.functional.cosine_embedding_loss). */
export function cosineEmbeddingLoss(
  input1: Tensor,
  input2: Tensor,
  target: Tensor,
  options: CosineEmbeddingLossOptions = {},
): Tensor {
  const call = new Call("cosine_embedding_loss").tensor("", input1).tensor("", input2).tensor("", target);
  if (options.margin !== undefined) call.float("margin", options.margin);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  return call.one();
}

/** Cosine similarity of vectors along `dim` (torch.nn.functional.cosine_similarity). */
export function cosineSimilarity(x1: Tensor, x2: Tensor, options: CosineSimilarityOptions = {}): Tensor {
  const call = new Call("cosine_similarity").tensor("", x1).tensor("", x2);
  if (options.dim !== undefined) call.integer("dim", options.dim);
  if (options.eps !== undefined) call.float("eps", options.eps);
  return call.one();
}

/** Cross entropy of softmax(input) with class or probability targets (torch.nn.functional.cross_entropy). */
export function crossEntropy(input: Tensor, target: Tensor, options: CrossEntropyOptions = {}): Tensor {
  const call = new Call("cross_entropy").tensor("", input).tensor("", target);
  if (options.weight !== undefined) call.tensor("weight", options.weight);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.ignoreIndex !== undefined) call.integer("ignore_index", options.ignoreIndex);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  if (options.labelSmoothing !== undefined) call.float("label_smoothing", options.labelSmoothing);
  return call.one();
}

/** -log of the probability of all alignments of log_probs with the targets (torch.nn.functional.ctc_loss). */
export function ctcLoss(
  logProbs: Tensor,
  targets: Tensor,
  inputLengths: Tensor,
  targetLengths: Tensor,
  options: CtcLossOptions = {},
): Tensor {
  const call = new Call("ctc_loss").tensor("", logProbs).tensor("", targets).tensor("", inputLengths).tensor("", targetLengths);
  if (options.blank !== undefined) call.integer("blank", options.blank);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  if (options.zeroInfinity !== undefined) call.boolean("zero_infinity", options.zeroInfinity);
  return call.one();
}

/** Set elements to 0 with probability p and scale the others by 1 / (1 - p) (torch.nn.functional.dropout). */
export function dropout(input: Tensor, options: DropoutOptions = {}): Tensor {
  const call = new Call("dropout").tensor("", input);
  if (options.p !== undefined) call.float("p", options.p);
  if (options.training !== undefined) call.boolean("training", options.training);
  return call.one();
}

/** Set whole channels to 0 with probability p (torch.nn.functional.dropout1d). input: (n, c, l) or (c, l). */
export function dropout1d(input: Tensor, options: Dropout1dOptions = {}): Tensor {
  const call = new Call("dropout1d").tensor("", input);
  if (options.p !== undefined) call.float("p", options.p);
  if (options.training !== undefined) call.boolean("training", options.training);
  return call.one();
}

/** Set whole channels to 0 with probability p (torch.nn.functional.dropout2d). input: (n, c, h, w). */
export function dropout2d(input: Tensor, options: Dropout2dOptions = {}): Tensor {
  const call = new Call("dropout2d").tensor("", input);
  if (options.p !== undefined) call.float("p", options.p);
  if (options.training !== undefined) call.boolean("training", options.training);
  return call.one();
}

/** Set whole channels to 0 with probability p (torch.nn.functional.dropout3d). input: (n, c, d, h, w). */
export function dropout3d(input: Tensor, options: Dropout3dOptions = {}): Tensor {
  const call = new Call("dropout3d").tensor("", input);
  if (options.p !== undefined) call.float("p", options.p);
  if (options.training !== undefined) call.boolean("training", options.training);
  return call.one();
}

/** Set elements to 0 with probability p and scale the others by 1 / (1 - p) (torch.nn.functional.dropout). */
export function dropout_(input: Tensor, options: DropoutInPlaceOptions = {}): Tensor {
  const call = new Call("dropout_").tensor("", input);
  if (options.p !== undefined) call.float("p", options.p);
  if (options.training !== undefined) call.boolean("training", options.training);
  return call.inPlace();
}

/** input where it is positive, else alpha * (exp(input) - 1) (torch.nn.functional.elu). */
export function elu(input: Tensor, options: EluOptions = {}): Tensor {
  const call = new Call("elu").tensor("", input);
  if (options.alpha !== undefined) call.float("alpha", options.alpha);
  return call.one();
}

/** input where it is positive, else alpha * (exp(input) - 1) (torch.nn.functional.elu). */
export function elu_(input: Tensor, options: EluInPlaceOptions = {}): Tensor {
  const call = new Call("elu_").tensor("", input);
  if (options.alpha !== undefined) call.float("alpha", options.alpha);
  return call.inPlace();
}

/** Look up rows of a table (torch.nn.functional.embedding). */
export function embedding(input: Tensor, weight: Tensor, options: EmbeddingOptions = {}): Tensor {
  const call = new Call("embedding").tensor("", input).tensor("", weight);
  if (options.paddingIdx !== undefined) call.integer("padding_idx", options.paddingIdx);
  if (options.maxNorm !== undefined) call.float("max_norm", options.maxNorm);
  if (options.normType !== undefined) call.float("norm_type", options.normType);
  if (options.scaleGradByFreq !== undefined) call.boolean("scale_grad_by_freq", options.scaleGradByFreq);
  if (options.sparse !== undefined) call.boolean("sparse", options.sparse);
  return call.one();
}

/** Sum, mean or maximum of a table's rows over bags of indices (torch.nn.functional.embedding_bag). */
export function embeddingBag(input: Tensor, weight: Tensor, options: EmbeddingBagOptions = {}): Tensor {
  const call = new Call("embedding_bag").tensor("", input).tensor("", weight);
  if (options.offsets !== undefined) call.tensor("offsets", options.offsets);
  if (options.maxNorm !== undefined) call.float("max_norm", options.maxNorm);
  if (options.normType !== undefined) call.float("norm_type", options.normType);
  if (options.scaleGradByFreq !== undefined) call.boolean("scale_grad_by_freq", options.scaleGradByFreq);
  if (options.mode !== undefined) call.string("mode", options.mode);
  if (options.sparse !== undefined) call.boolean("sparse", options.sparse);
  if (options.perSampleWeights !== undefined) call.tensor("per_sample_weights", options.perSampleWeights);
  if (options.includeLastOffset !== undefined) call.boolean("include_last_offset", options.includeLastOffset);
  if (options.paddingIdx !== undefined) call.integer("padding_idx", options.paddingIdx);
  return call.one();
}

/** alpha_dropout of whole channels (torch.nn.functional.feature_alpha_dropout). */
export function featureAlphaDropout(input: Tensor, options: FeatureAlphaDropoutOptions = {}): Tensor {
  const call = new Call("feature_alpha_dropout").tensor("", input);
  if (options.p !== undefined) call.float("p", options.p);
  if (options.training !== undefined) call.boolean("training", options.training);
  return call.one();
}

/** Sum columns into the sliding blocks of an image (torch.nn.functional.fold). */
export function fold(
  input: Tensor,
  outputSize: number | readonly number[],
  kernelSize: number | readonly number[],
  options: FoldOptions = {},
): Tensor {
  const call = new Call("fold").tensor("", input).integers("", outputSize).integers("", kernelSize);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  return call.one();
}

/** Negative log-likelihood of target for mean input and variance var (torch.nn.functional.gaussian_nll_loss). */
export function gaussianNllLoss(
  input: Tensor,
  target: Tensor,
  var_: Operand,
  options: GaussianNllLossOptions = {},
): Tensor {
  const call = new Call("gaussian_nll_loss").tensor("", input).tensor("", target).operand("", var_);
  if (options.full !== undefined) call.boolean("full", options.full);
  if (options.eps !== undefined) call.float("eps", options.eps);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  return call.one();
}

/** input * normal CDF of the input, or its "tanh" approximation (torch.nn.functional.gelu). */
export function gelu(input: Tensor, options: GeluOptions = {}): Tensor {
  const call = new Call("gelu").tensor("", input);
  if (options.approximate !== undefined) call.string("approximate", options.approximate);
  return call.one();
}

/** First half of a dimension times the sigmoid of the second half (torch.nn.functional.glu). */
export function glu(input: Tensor, options: GluOptions = {}): Tensor {
  const call = new Call("glu").tensor("", input);
  if (options.dim !== undefined) call.integer("dim", options.dim);
  return call.one();
}

/** Sample the image at the grid's positions (torch.nn.functional.grid_sample). */
export function gridSample(input: Tensor, grid: Tensor, options: GridSampleOptions = {}): Tensor {
  const call = new Call("grid_sample").tensor("", input).tensor("", grid);
  if (options.mode !== undefined) call.string("mode", options.mode);
  if (options.paddingMode !== undefined) call.string("padding_mode", options.paddingMode);
  if (options.alignCorners !== undefined) call.boolean("align_corners", options.alignCorners);
  return call.one();
}

/** Normalize groups of channels of each sample to mean 0 and variance 1 (torch.nn.functional.group_norm). */
export function groupNorm(input: Tensor, numGroups: number, options: GroupNormOptions = {}): Tensor {
  const call = new Call("group_norm").tensor("", input).integer("", numGroups);
  if (options.weight !== undefined) call.tensor("weight", options.weight);
  if (options.bias !== undefined) call.tensor("bias", options.bias);
  if (options.eps !== undefined) call.float("eps", options.eps);
  return call.one();
}

/** input / 6 + 1 / 2, clamped to [0, 1] (torch.nn.functional.hardsigmoid). */
export function hardsigmoid(input: Tensor): Tensor {
  return new Call("hardsigmoid").tensor("", input).one();
}

/** input / 6 + 1 / 2, clamped to [0, 1] (torch.nn.functional.hardsigmoid). */
export function hardsigmoid_(input: Tensor): Tensor {
  return new Call("hardsigmoid_").tensor("", input).inPlace();
}

/** input * hardsigmoid(input) (torch.nn.functional.hardswish). */
export function hardswish(input: Tensor): Tensor {
  return new Call("hardswish").tensor("", input).one();
}

/** input * hardsigmoid(input) (torch.nn.functional.hardswish). */
export function hardswish_(input: Tensor): Tensor {
  return new Call("hardswish_").tensor("", input).inPlace();
}

/** Clamp the input to [min_val, max_val] (torch.nn.functional.hardtanh). The derivative at the bounds is 0. */
export function hardtanh(input: Tensor, options: HardtanhOptions = {}): Tensor {
  const call = new Call("hardtanh").tensor("", input);
  if (options.minVal !== undefined) call.float("min_val", options.minVal);
  if (options.maxVal !== undefined) call.float("max_val", options.maxVal);
  return call.one();
}

/** Clamp the input to [min_val, max_val] (torch.nn.functional.hardtanh). The derivative at the bounds is 0. */
export function hardtanh_(input: Tensor, options: HardtanhInPlaceOptions = {}): Tensor {
  const call = new Call("hardtanh_").tensor("", input);
  if (options.minVal !== undefined) call.float("min_val", options.minVal);
  if (options.maxVal !== undefined) call.float("max_val", options.maxVal);
  return call.inPlace();
}

/** input where target is 1, max(0, margin - input) where it is -1 (torch.nn.functional.hinge_embedding_loss). */
export function hingeEmbeddingLoss(input: Tensor, target: Tensor, options: HingeEmbeddingLossOptions = {}): Tensor {
  const call = new Call("hinge_embedding_loss").tensor("", input).tensor("", target);
  if (options.margin !== undefined) call.float("margin", options.margin);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  return call.one();
}

/** Quadratic below delta, linear above (torch.nn.functional.huber_loss). */
export function huberLoss(input: Tensor, target: Tensor, options: HuberLossOptions = {}): Tensor {
  const call = new Call("huber_loss").tensor("", input).tensor("", target);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  if (options.delta !== undefined) call.float("delta", options.delta);
  if (options.weight !== undefined) call.tensor("weight", options.weight);
  return call.one();
}

/** Normalize each channel of each sample to mean 0 and variance 1 (torch.nn.functional.instance_norm). */
export function instanceNorm(input: Tensor, options: InstanceNormOptions = {}): Tensor {
  const call = new Call("instance_norm").tensor("", input);
  if (options.runningMean !== undefined) call.tensor("running_mean", options.runningMean);
  if (options.runningVar !== undefined) call.tensor("running_var", options.runningVar);
  if (options.weight !== undefined) call.tensor("weight", options.weight);
  if (options.bias !== undefined) call.tensor("bias", options.bias);
  if (options.useInputStats !== undefined) call.boolean("use_input_stats", options.useInputStats);
  if (options.momentum !== undefined) call.float("momentum", options.momentum);
  if (options.eps !== undefined) call.float("eps", options.eps);
  return call.one();
}

/** Resize the last one to three dimensions (torch.nn.functional.interpolate). */
export function interpolate(input: Tensor, options: InterpolateOptions = {}): Tensor {
  const call = new Call("interpolate").tensor("", input);
  if (options.size !== undefined) call.integers("size", options.size);
  if (options.scaleFactor !== undefined) call.floats("scale_factor", options.scaleFactor);
  if (options.mode !== undefined) call.string("mode", options.mode);
  if (options.alignCorners !== undefined) call.boolean("align_corners", options.alignCorners);
  if (options.recomputeScaleFactor !== undefined) call.boolean("recompute_scale_factor", options.recomputeScaleFactor);
  if (options.antialias !== undefined) call.boolean("antialias", options.antialias);
  return call.one();
}

/** Kullback-Leibler divergence of `target` (probabilities) and `input` (logarithms) (torch.nn.functional.kl_div). */
export function klDiv(input: Tensor, target: Tensor, options: KlDivOptions = {}): Tensor {
  const call = new Call("kl_div").tensor("", input).tensor("", target);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  if (options.logTarget !== undefined) call.boolean("log_target", options.logTarget);
  return call.one();
}

/** Absolute difference (torch.nn.functional.l1_loss). */
export function l1Loss(input: Tensor, target: Tensor, options: L1LossOptions = {}): Tensor {
  const call = new Call("l1_loss").tensor("", input).tensor("", target);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  if (options.weight !== undefined) call.tensor("weight", options.weight);
  return call.one();
}

/** Normalize the last dimensions to mean 0 and variance 1, then scale and shift (torch.nn.functional.layer_norm). */
export function layerNorm(
  input: Tensor,
  normalizedShape: number | readonly number[],
  options: LayerNormOptions = {},
): Tensor {
  const call = new Call("layer_norm").tensor("", input).integers("", normalizedShape);
  if (options.weight !== undefined) call.tensor("weight", options.weight);
  if (options.bias !== undefined) call.tensor("bias", options.bias);
  if (options.eps !== undefined) call.float("eps", options.eps);
  return call.one();
}

/** input where positive, negative_slope * input elsewhere (torch.nn.functional.leaky_relu). */
export function leakyRelu(input: Tensor, options: LeakyReluOptions = {}): Tensor {
  const call = new Call("leaky_relu").tensor("", input);
  if (options.negativeSlope !== undefined) call.float("negative_slope", options.negativeSlope);
  return call.one();
}

/** input where positive, negative_slope * input elsewhere (torch.nn.functional.leaky_relu). */
export function leakyRelu_(input: Tensor, options: LeakyReluInPlaceOptions = {}): Tensor {
  const call = new Call("leaky_relu_").tensor("", input);
  if (options.negativeSlope !== undefined) call.float("negative_slope", options.negativeSlope);
  return call.inPlace();
}

/** input @ weight.T + bias (torch.nn.functional.linear). */
export function linear(input: Tensor, weight: Tensor, options: LinearOptions = {}): Tensor {
  const call = new Call("linear").tensor("", input).tensor("", weight);
  if (options.bias !== undefined) call.tensor("bias", options.bias);
  return call.one();
}

/** input / (k + alpha * mean of squares of `size` neighbouring channels)**beta (nn.functional.local_response_norm) (torch.nn.functional.local_response_norm). */
export function localResponseNorm(input: Tensor, size: number, options: LocalResponseNormOptions = {}): Tensor {
  const call = new Call("local_response_norm").tensor("", input).integer("", size);
  if (options.alpha !== undefined) call.float("alpha", options.alpha);
  if (options.beta !== undefined) call.float("beta", options.beta);
  if (options.k !== undefined) call.float("k", options.k);
  return call.one();
}

/** log(sigmoid(input)), without overflow (torch.nn.functional.logsigmoid). */
export function logsigmoid(input: Tensor): Tensor {
  return new Call("logsigmoid").tensor("", input).one();
}

/** p-th root of the sum of p-th powers of each window (torch.nn.functional.lp_pool1d). */
export function lpPool1d(
  input: Tensor,
  normType: Numeric,
  kernelSize: number | readonly number[],
  options: LpPool1dOptions = {},
): Tensor {
  const call = new Call("lp_pool1d").tensor("", input).number("", normType).integers("", kernelSize);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.ceilMode !== undefined) call.boolean("ceil_mode", options.ceilMode);
  return call.one();
}

/** p-th root of the sum of p-th powers of each window (torch.nn.functional.lp_pool2d). */
export function lpPool2d(
  input: Tensor,
  normType: Numeric,
  kernelSize: number | readonly number[],
  options: LpPool2dOptions = {},
): Tensor {
  const call = new Call("lp_pool2d").tensor("", input).number("", normType).integers("", kernelSize);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.ceilMode !== undefined) call.boolean("ceil_mode", options.ceilMode);
  return call.one();
}

/** p-th root of the sum of p-th powers of each window (torch.nn.functional.lp_pool3d). */
export function lpPool3d(
  input: Tensor,
  normType: Numeric,
  kernelSize: number | readonly number[],
  options: LpPool3dOptions = {},
): Tensor {
  const call = new Call("lp_pool3d").tensor("", input).number("", normType).integers("", kernelSize);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.ceilMode !== undefined) call.boolean("ceil_mode", options.ceilMode);
  return call.one();
}

/** max(0, margin - target * (input1 - input2)), target 1 or -1 (torch.nn.functional.margin_ranking_loss). */
export function marginRankingLoss(
  input1: Tensor,
  input2: Tensor,
  target: Tensor,
  options: MarginRankingLossOptions = {},
): Tensor {
  const call = new Call("margin_ranking_loss").tensor("", input1).tensor("", input2).tensor("", target);
  if (options.margin !== undefined) call.float("margin", options.margin);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  return call.one();
}

/** Maximum of each window (torch.nn.functional.max_pool1d). */
export function maxPool1d(
  input: Tensor,
  kernelSize: number | readonly number[],
  options: MaxPool1dOptions = {},
): Tensor {
  const call = new Call("max_pool1d").tensor("", input).integers("", kernelSize);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  if (options.ceilMode !== undefined) call.boolean("ceil_mode", options.ceilMode);
  return call.one();
}

/** Maximum of each window (torch.nn.functional.max_pool1d). */
export function maxPool1dReturnIndices(
  input: Tensor,
  kernelSize: number | readonly number[],
  options: MaxPool1dReturnIndicesOptions = {},
): [values: Tensor, indices: Tensor] {
  const call = new Call("max_pool1d").tensor("", input).integers("", kernelSize).boolean("return_indices", true);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  if (options.ceilMode !== undefined) call.boolean("ceil_mode", options.ceilMode);
  return call.several(2) as [values: Tensor, indices: Tensor];
}

/** Maximum of each window (torch.nn.functional.max_pool2d). */
export function maxPool2d(
  input: Tensor,
  kernelSize: number | readonly number[],
  options: MaxPool2dOptions = {},
): Tensor {
  const call = new Call("max_pool2d").tensor("", input).integers("", kernelSize);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  if (options.ceilMode !== undefined) call.boolean("ceil_mode", options.ceilMode);
  return call.one();
}

/** Maximum of each window (torch.nn.functional.max_pool2d). */
export function maxPool2dReturnIndices(
  input: Tensor,
  kernelSize: number | readonly number[],
  options: MaxPool2dReturnIndicesOptions = {},
): [values: Tensor, indices: Tensor] {
  const call = new Call("max_pool2d").tensor("", input).integers("", kernelSize).boolean("return_indices", true);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  if (options.ceilMode !== undefined) call.boolean("ceil_mode", options.ceilMode);
  return call.several(2) as [values: Tensor, indices: Tensor];
}

/** Maximum of each window (torch.nn.functional.max_pool3d). */
export function maxPool3d(
  input: Tensor,
  kernelSize: number | readonly number[],
  options: MaxPool3dOptions = {},
): Tensor {
  const call = new Call("max_pool3d").tensor("", input).integers("", kernelSize);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  if (options.ceilMode !== undefined) call.boolean("ceil_mode", options.ceilMode);
  return call.one();
}

/** Maximum of each window (torch.nn.functional.max_pool3d). */
export function maxPool3dReturnIndices(
  input: Tensor,
  kernelSize: number | readonly number[],
  options: MaxPool3dReturnIndicesOptions = {},
): [values: Tensor, indices: Tensor] {
  const call = new Call("max_pool3d").tensor("", input).integers("", kernelSize).boolean("return_indices", true);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  if (options.ceilMode !== undefined) call.boolean("ceil_mode", options.ceilMode);
  return call.several(2) as [values: Tensor, indices: Tensor];
}

/** Invert max_pool1d: values at their indices, zeros elsewhere (torch.nn.functional.max_unpool1d). */
export function maxUnpool1d(
  input: Tensor,
  indices: Tensor,
  kernelSize: number | readonly number[],
  options: MaxUnpool1dOptions = {},
): Tensor {
  const call = new Call("max_unpool1d").tensor("", input).tensor("", indices).integers("", kernelSize);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.outputSize !== undefined) call.integers("output_size", options.outputSize);
  return call.one();
}

/** Invert max_pool2d: values at their indices, zeros elsewhere (torch.nn.functional.max_unpool2d). */
export function maxUnpool2d(
  input: Tensor,
  indices: Tensor,
  kernelSize: number | readonly number[],
  options: MaxUnpool2dOptions = {},
): Tensor {
  const call = new Call("max_unpool2d").tensor("", input).tensor("", indices).integers("", kernelSize);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.outputSize !== undefined) call.integers("output_size", options.outputSize);
  return call.one();
}

/** Invert max_pool3d: values at their indices, zeros elsewhere (torch.nn.functional.max_unpool3d). */
export function maxUnpool3d(
  input: Tensor,
  indices: Tensor,
  kernelSize: number | readonly number[],
  options: MaxUnpool3dOptions = {},
): Tensor {
  const call = new Call("max_unpool3d").tensor("", input).tensor("", indices).integers("", kernelSize);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.outputSize !== undefined) call.integers("output_size", options.outputSize);
  return call.one();
}

/** input * tanh(softplus(input)) (torch.nn.functional.mish). */
export function mish(input: Tensor): Tensor {
  return new Call("mish").tensor("", input).one();
}

/** input * tanh(softplus(input)) (torch.nn.functional.mish). */
export function mish_(input: Tensor): Tensor {
  return new Call("mish_").tensor("", input).inPlace();
}

/** Squared difference (torch.nn.functional.mse_loss). */
export function mseLoss(input: Tensor, target: Tensor, options: MseLossOptions = {}): Tensor {
  const call = new Call("mse_loss").tensor("", input).tensor("", target);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  if (options.weight !== undefined) call.tensor("weight", options.weight);
  return call.one();
}

/** Multi-head attention with projections (torch.nn.functional.multi_head_attention_forward). */
export function multiHeadAttentionForward(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  embedDimToCheck: number,
  numHeads: number,
  inProjWeight: Tensor | null,
  inProjBias: Tensor | null,
  biasK: Tensor | null,
  biasV: Tensor | null,
  addZeroAttn: boolean,
  dropoutP: number | ProgramNumber,
  outProjWeight: Tensor,
  outProjBias: Tensor | null,
  options: MultiHeadAttentionForwardOptions = {},
): [attnOutput: Tensor, attnOutputWeights: Tensor] {
  const call = new Call("multi_head_attention_forward").tensor("", query).tensor("", key).tensor("", value).integer("", embedDimToCheck).integer("", numHeads).tensor("", inProjWeight).tensor("", inProjBias).tensor("", biasK).tensor("", biasV).boolean("", addZeroAttn).float("", dropoutP).tensor("", outProjWeight).tensor("", outProjBias);
  if (options.training !== undefined) call.boolean("training", options.training);
  if (options.keyPaddingMask !== undefined) call.tensor("key_padding_mask", options.keyPaddingMask);
  if (options.attnMask !== undefined) call.tensor("attn_mask", options.attnMask);
  if (options.useSeparateProjWeight !== undefined) call.boolean("use_separate_proj_weight", options.useSeparateProjWeight);
  if (options.qProjWeight !== undefined) call.tensor("q_proj_weight", options.qProjWeight);
  if (options.kProjWeight !== undefined) call.tensor("k_proj_weight", options.kProjWeight);
  if (options.vProjWeight !== undefined) call.tensor("v_proj_weight", options.vProjWeight);
  if (options.staticK !== undefined) call.tensor("static_k", options.staticK);
  if (options.staticV !== undefined) call.tensor("static_v", options.staticV);
  if (options.averageAttnWeights !== undefined) call.boolean("average_attn_weights", options.averageAttnWeights);
  if (options.isCausal !== undefined) call.boolean("is_causal", options.isCausal);
  return call.several(2) as [attnOutput: Tensor, attnOutputWeights: Tensor];
}

/** Multi-head attention with projections (torch.nn.functional.multi_head_attention_forward). */
export function multiHeadAttentionForwardWithoutWeights(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  embedDimToCheck: number,
  numHeads: number,
  inProjWeight: Tensor | null,
  inProjBias: Tensor | null,
  biasK: Tensor | null,
  biasV: Tensor | null,
  addZeroAttn: boolean,
  dropoutP: number | ProgramNumber,
  outProjWeight: Tensor,
  outProjBias: Tensor | null,
  options: MultiHeadAttentionForwardWithoutWeightsOptions = {},
): Tensor {
  const call = new Call("multi_head_attention_forward").tensor("", query).tensor("", key).tensor("", value).integer("", embedDimToCheck).integer("", numHeads).tensor("", inProjWeight).tensor("", inProjBias).tensor("", biasK).tensor("", biasV).boolean("", addZeroAttn).float("", dropoutP).tensor("", outProjWeight).tensor("", outProjBias).boolean("need_weights", false);
  if (options.training !== undefined) call.boolean("training", options.training);
  if (options.keyPaddingMask !== undefined) call.tensor("key_padding_mask", options.keyPaddingMask);
  if (options.attnMask !== undefined) call.tensor("attn_mask", options.attnMask);
  if (options.useSeparateProjWeight !== undefined) call.boolean("use_separate_proj_weight", options.useSeparateProjWeight);
  if (options.qProjWeight !== undefined) call.tensor("q_proj_weight", options.qProjWeight);
  if (options.kProjWeight !== undefined) call.tensor("k_proj_weight", options.kProjWeight);
  if (options.vProjWeight !== undefined) call.tensor("v_proj_weight", options.vProjWeight);
  if (options.staticK !== undefined) call.tensor("static_k", options.staticK);
  if (options.staticV !== undefined) call.tensor("static_v", options.staticV);
  if (options.averageAttnWeights !== undefined) call.boolean("average_attn_weights", options.averageAttnWeights);
  if (options.isCausal !== undefined) call.boolean("is_causal", options.isCausal);
  return call.one();
}

/** Mean over classes of max(0, margin - input[target] + input)^p (torch.nn.functional.multi_margin_loss). */
export function multiMarginLoss(input: Tensor, target: Tensor, options: MultiMarginLossOptions = {}): Tensor {
  const call = new Call("multi_margin_loss").tensor("", input).tensor("", target);
  if (options.p !== undefined) call.number("p", options.p);
  if (options.margin !== undefined) call.number("margin", options.margin);
  if (options.weight !== undefined) call.tensor("weight", options.weight);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  return call.one();
}

/** Sum of max(0, 1 - (listed - other)) over all pairs / c (torch.nn.functional.multilabel_margin_loss). */
export function multilabelMarginLoss(
  input: Tensor,
  target: Tensor,
  options: MultilabelMarginLossOptions = {},
): Tensor {
  const call = new Call("multilabel_margin_loss").tensor("", input).tensor("", target);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  return call.one();
}

/** Mean over classes of the logistic loss of each class (torch.nn.functional.multilabel_soft_margin_loss). */
export function multilabelSoftMarginLoss(
  input: Tensor,
  target: Tensor,
  options: MultilabelSoftMarginLossOptions = {},
): Tensor {
  const call = new Call("multilabel_soft_margin_loss").tensor("", input).tensor("", target);
  if (options.weight !== undefined) call.tensor("weight", options.weight);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  return call.one();
}

/** Negative log-likelihood of the target class (torch.nn.functional.nll_loss). */
export function nllLoss(input: Tensor, target: Tensor, options: NllLossOptions = {}): Tensor {
  const call = new Call("nll_loss").tensor("", input).tensor("", target);
  if (options.weight !== undefined) call.tensor("weight", options.weight);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.ignoreIndex !== undefined) call.integer("ignore_index", options.ignoreIndex);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  return call.one();
}

/** Extract sliding blocks of the last two dimensions as columns (torch.nn.functional.unfold). */
export function unfold(input: Tensor, kernelSize: number | readonly number[], options: UnfoldOptions = {}): Tensor {
  const call = new Call("nn.functional.unfold").tensor("", input).integers("", kernelSize);
  if (options.dilation !== undefined) call.integers("dilation", options.dilation);
  if (options.padding !== undefined) call.integers("padding", options.padding);
  if (options.stride !== undefined) call.integers("stride", options.stride);
  return call.one();
}

/** Divide by the p-norm along `dim`, but at least by eps (torch.nn.functional.normalize). */
export function normalize(input: Tensor, options: NormalizeOptions = {}): Tensor {
  const call = new Call("normalize").tensor("", input);
  if (options.p !== undefined) call.float("p", options.p);
  if (options.dim !== undefined) call.integers("dim", options.dim);
  if (options.eps !== undefined) call.float("eps", options.eps);
  return call.one();
}

/** One-hot encoding in a new last dimension, int64 (torch.nn.functional.one_hot). */
export function oneHot(tensor: Tensor, options: OneHotOptions = {}): Tensor {
  const call = new Call("one_hot").tensor("", tensor);
  if (options.numClasses !== undefined) call.integer("num_classes", options.numClasses);
  return call.one();
}

/** Pad the last dimensions (torch.nn.functional.pad). */
export function pad(input: Tensor, pad: number | readonly number[], options: PadOptions = {}): Tensor {
  const call = new Call("pad").tensor("", input).integers("", pad);
  if (options.mode !== undefined) call.string("mode", options.mode);
  if (options.value !== undefined) call.float("value", options.value);
  return call.one();
}

/** p-norm of x1 - x2 + eps over the last dimension (torch.nn.functional.pairwise_distance). */
export function pairwiseDistance(x1: Tensor, x2: Tensor, options: PairwiseDistanceOptions = {}): Tensor {
  const call = new Call("pairwise_distance").tensor("", x1).tensor("", x2);
  if (options.p !== undefined) call.float("p", options.p);
  if (options.eps !== undefined) call.float("eps", options.eps);
  if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
  return call.one();
}

/** p-norm distances of all pairs of rows: (0, 1), (0, 2), ... (torch.nn.functional.pdist). */
export function pdist(input: Tensor, options: PdistOptions = {}): Tensor {
  const call = new Call("pdist").tensor("", input);
  if (options.p !== undefined) call.float("p", options.p);
  return call.one();
}

/** Rearrange (..., c * r * r, h, w) to (..., c, h * r, w * r) (torch.nn.functional.pixel_shuffle). */
export function pixelShuffle(input: Tensor, upscaleFactor: number): Tensor {
  return new Call("pixel_shuffle").tensor("", input).integer("", upscaleFactor).one();
}

/** Rearrange (..., c, h * r, w * r) to (..., c * r * r, h, w) (torch.nn.functional.pixel_unshuffle). */
export function pixelUnshuffle(input: Tensor, downscaleFactor: number): Tensor {
  return new Call("pixel_unshuffle").tensor("", input).integer("", downscaleFactor).one();
}

/** Negative log-likelihood of target for the rate exp(input), or input (torch.nn.functional.poisson_nll_loss). */
export function poissonNllLoss(input: Tensor, target: Tensor, options: PoissonNllLossOptions = {}): Tensor {
  const call = new Call("poisson_nll_loss").tensor("", input).tensor("", target);
  if (options.logInput !== undefined) call.boolean("log_input", options.logInput);
  if (options.full !== undefined) call.boolean("full", options.full);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.eps !== undefined) call.float("eps", options.eps);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  return call.one();
}

/** min(max(input, 0), 6) (torch.nn.functional.relu6). */
export function relu6(input: Tensor): Tensor {
  return new Call("relu6").tensor("", input).one();
}

/** min(max(input, 0), 6) (torch.nn.functional.relu6). */
export function relu6_(input: Tensor): Tensor {
  return new Call("relu6_").tensor("", input).inPlace();
}

/** Divide the last dimensions by the root of their mean square (torch.nn.functional.rms_norm). */
export function rmsNorm(
  input: Tensor,
  normalizedShape: number | readonly number[],
  options: RmsNormOptions = {},
): Tensor {
  const call = new Call("rms_norm").tensor("", input).integers("", normalizedShape);
  if (options.weight !== undefined) call.tensor("weight", options.weight);
  if (options.eps !== undefined) call.float("eps", options.eps);
  return call.one();
}

/** leaky_relu with a random slope from [lower, upper]; without training, their mean (torch.nn.functional.rrelu). */
export function rrelu(input: Tensor, options: RreluOptions = {}): Tensor {
  const call = new Call("rrelu").tensor("", input);
  if (options.lower !== undefined) call.float("lower", options.lower);
  if (options.upper !== undefined) call.float("upper", options.upper);
  if (options.training !== undefined) call.boolean("training", options.training);
  return call.one();
}

/** leaky_relu with a random slope from [lower, upper]; without training, their mean (torch.nn.functional.rrelu). */
export function rrelu_(input: Tensor, options: RreluInPlaceOptions = {}): Tensor {
  const call = new Call("rrelu_").tensor("", input);
  if (options.lower !== undefined) call.float("lower", options.lower);
  if (options.upper !== undefined) call.float("upper", options.upper);
  if (options.training !== undefined) call.boolean("training", options.training);
  return call.inPlace();
}

/** softmax(query @ key.T * scale + mask) @ value (torch.nn.functional.scaled_dot_product_attention). */
export function scaledDotProductAttention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  options: ScaledDotProductAttentionOptions = {},
): Tensor {
  const call = new Call("scaled_dot_product_attention").tensor("", query).tensor("", key).tensor("", value);
  if (options.attnMask !== undefined) call.tensor("attn_mask", options.attnMask);
  if (options.dropoutP !== undefined) call.float("dropout_p", options.dropoutP);
  if (options.isCausal !== undefined) call.boolean("is_causal", options.isCausal);
  if (options.scale !== undefined) call.float("scale", options.scale);
  if (options.enableGqa !== undefined) call.boolean("enable_gqa", options.enableGqa);
  return call.one();
}

/** input * sigmoid(input) (torch.nn.functional.silu). */
export function silu(input: Tensor): Tensor {
  return new Call("silu").tensor("", input).one();
}

/** input * sigmoid(input) (torch.nn.functional.silu). */
export function silu_(input: Tensor): Tensor {
  return new Call("silu_").tensor("", input).inPlace();
}

/** Quadratic below beta, linear above (torch.nn.functional.smooth_l1_loss). */
export function smoothL1Loss(input: Tensor, target: Tensor, options: SmoothL1LossOptions = {}): Tensor {
  const call = new Call("smooth_l1_loss").tensor("", input).tensor("", target);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  if (options.beta !== undefined) call.float("beta", options.beta);
  return call.one();
}

/** log(1 + exp(-target * input)), target 1 or -1 (torch.nn.functional.soft_margin_loss). */
export function softMarginLoss(input: Tensor, target: Tensor, options: SoftMarginLossOptions = {}): Tensor {
  const call = new Call("soft_margin_loss").tensor("", input).tensor("", target);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  return call.one();
}

/** softmax(-input, dim) (torch.nn.functional.softmin). */
export function softmin(input: Tensor, dim: number, options: SoftminOptions = {}): Tensor {
  const call = new Call("softmin").tensor("", input).integer("", dim);
  if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
  return call.one();
}

/** log(1 + exp(beta * input)) / beta; input itself where beta * input > threshold (torch.nn.functional.softplus). */
export function softplus(input: Tensor, options: SoftplusOptions = {}): Tensor {
  const call = new Call("softplus").tensor("", input);
  if (options.beta !== undefined) call.float("beta", options.beta);
  if (options.threshold !== undefined) call.float("threshold", options.threshold);
  return call.one();
}

/** Shift the input towards 0 by lambd; 0 within [-lambd, lambd] (torch.nn.functional.softshrink). */
export function softshrink(input: Tensor, options: SoftshrinkOptions = {}): Tensor {
  const call = new Call("softshrink").tensor("", input);
  if (options.lambd !== undefined) call.float("lambd", options.lambd);
  return call.one();
}

/** input / (1 + |input|) (torch.nn.functional.softsign). */
export function softsign(input: Tensor): Tensor {
  return new Call("softsign").tensor("", input).one();
}

/** input - tanh(input) (torch.nn.functional.tanhshrink). */
export function tanhshrink(input: Tensor): Tensor {
  return new Call("tanhshrink").tensor("", input).one();
}

/** max(0, margin + d(anchor, positive) - d(anchor, negative)) (torch.nn.functional.triplet_margin_loss). */
export function tripletMarginLoss(
  anchor: Tensor,
  positive: Tensor,
  negative: Tensor,
  options: TripletMarginLossOptions = {},
): Tensor {
  const call = new Call("triplet_margin_loss").tensor("", anchor).tensor("", positive).tensor("", negative);
  if (options.margin !== undefined) call.float("margin", options.margin);
  if (options.p !== undefined) call.float("p", options.p);
  if (options.eps !== undefined) call.float("eps", options.eps);
  if (options.swap !== undefined) call.boolean("swap", options.swap);
  if (options.sizeAverage !== undefined) call.boolean("size_average", options.sizeAverage);
  if (options.reduce !== undefined) call.boolean("reduce", options.reduce);
  if (options.reduction !== undefined) call.string("reduction", options.reduction);
  return call.one();
}

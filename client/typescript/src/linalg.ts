// Written by tools/sdk_ops.py from the answer to ListOps; do not edit.

/** The functions of torch.linalg. */

import { Call } from "./call.js";
import type { Numeric, Operand, ProgramNumber } from "./call.js";
import type { Tensor } from "./tensor.js";
import type { DType } from "./values.js";

/** What `cholesky` can do without. */
export interface CholeskyOptions {
  /** false if not given. */
  upper?: boolean;
}

/** What `cond` can do without. */
export interface CondOptions {
  p?: Numeric | "fro" | "nuc" | null;
}

/** What `cross` can do without. */
export interface CrossOptions {
  /** -1 if not given. */
  dim?: number;
}

/** What `diagonal` can do without. */
export interface DiagonalOptions {
  /** 0 if not given. */
  offset?: number;
  /** -2 if not given. */
  dim1?: number;
  /** -1 if not given. */
  dim2?: number;
}

/** What `eigh` can do without. */
export interface EighOptions {
  /** "L" if not given. */
  UPLO?: "L" | "U";
}

/** What `eigvalsh` can do without. */
export interface EigvalshOptions {
  /** "L" if not given. */
  UPLO?: "L" | "U";
}

/** What `ldlFactor` can do without. */
export interface LdlFactorOptions {
  /** false if not given. */
  hermitian?: boolean;
}

/** What `ldlFactorEx` can do without. */
export interface LdlFactorExOptions {
  /** false if not given. */
  hermitian?: boolean;
  /** false if not given. */
  checkErrors?: boolean;
}

/** What `ldlSolve` can do without. */
export interface LdlSolveOptions {
  /** false if not given. */
  hermitian?: boolean;
}

/** What `lstsq` can do without. */
export interface LstsqOptions {
  rcond?: number | ProgramNumber;
  driver?: "gels" | "gelsy" | "gelsd" | "gelss";
}

/** What `lu` can do without. */
export interface LuOptions {
  /** true if not given. */
  pivot?: boolean;
}

/** What `luFactor` can do without. */
export interface LuFactorOptions {
  /** true if not given. */
  pivot?: boolean;
}

/** What `luFactorEx` can do without. */
export interface LuFactorExOptions {
  /** true if not given. */
  pivot?: boolean;
  /** false if not given. */
  checkErrors?: boolean;
}

/** What `luSolve` can do without. */
export interface LuSolveOptions {
  /** true if not given. */
  left?: boolean;
  /** false if not given. */
  adjoint?: boolean;
}

/** What `matrixNorm` can do without. */
export interface MatrixNormOptions {
  /** "fro" if not given. */
  ord?: Numeric | "fro" | "nuc";
  /** [-2, -1] if not given. */
  dim?: number | readonly number[];
  /** false if not given. */
  keepdim?: boolean;
  dtype?: DType;
}

/** What `matrixRank` can do without. */
export interface MatrixRankOptions {
  atol?: Operand | null;
  rtol?: Operand | null;
  /** false if not given. */
  hermitian?: boolean;
}

/** What `norm` can do without. */
export interface NormOptions {
  ord?: Numeric | "fro" | "nuc" | null;
  dim?: number | readonly number[];
  /** false if not given. */
  keepdim?: boolean;
  dtype?: DType;
}

/** What `pinv` can do without. */
export interface PinvOptions {
  atol?: Operand | null;
  rtol?: Operand | null;
  /** false if not given. */
  hermitian?: boolean;
}

/** What `qr` can do without. */
export interface QrOptions {
  /** "reduced" if not given. */
  mode?: "reduced" | "complete" | "r";
}

/** What `solve` can do without. */
export interface SolveOptions {
  /** true if not given. */
  left?: boolean;
}

/** What `solveTriangular` can do without. */
export interface SolveTriangularOptions {
  upper?: boolean;
  /** true if not given. */
  left?: boolean;
  /** false if not given. */
  unitriangular?: boolean;
}

/** What `svd` can do without. */
export interface SvdOptions {
  /** true if not given. */
  fullMatrices?: boolean;
}

/** What `tensorinv` can do without. */
export interface TensorinvOptions {
  /** 2 if not given. */
  ind?: number;
}

/** What `tensorsolve` can do without. */
export interface TensorsolveOptions {
  dims?: number | readonly number[];
}

/** What `vander` can do without. */
export interface VanderOptions {
  N?: number;
}

/** What `vecdot` can do without. */
export interface VecdotOptions {
  /** -1 if not given. */
  dim?: number;
}

/** What `vectorNorm` can do without. */
export interface VectorNormOptions {
  /** 2 if not given. */
  ord?: Numeric;
  dim?: number | readonly number[];
  /** false if not given. */
  keepdim?: boolean;
  dtype?: DType;
}

/** Cholesky factor: L with L @ L^H = A, or U with U^H @ U = A if `upper` (torch.linalg.cholesky). */
export function cholesky(A: Tensor, options: CholeskyOptions = {}): Tensor {
  const call = new Call("linalg.cholesky").tensor("", A);
  if (options.upper !== undefined) call.boolean("upper", options.upper);
  return call.one();
}

/** Condition numbers: norm of each matrix times the norm of its inverse (torch.linalg.cond). */
export function cond(A: Tensor, options: CondOptions = {}): Tensor {
  const call = new Call("linalg.cond").tensor("", A);
  if (options.p !== undefined) call.number("p", options.p);
  return call.one();
}

/** Cross product along a dimension of size 3 (torch.linalg.cross). */
export function cross(input: Tensor, other: Tensor, options: CrossOptions = {}): Tensor {
  const call = new Call("linalg.cross").tensor("", input).tensor("", other);
  if (options.dim !== undefined) call.integer("dim", options.dim);
  return call.one();
}

/** Determinants of square matrices (torch.linalg.det). A: (..., n, n). Raises EngineError: SHAPE. */
export function det(A: Tensor): Tensor {
  return new Call("linalg.det").tensor("", A).one();
}

/** Diagonals of matrices; a view (torch.linalg.diagonal). Raises EngineError: DIM_OUT_OF_RANGE. */
export function diagonal(A: Tensor, options: DiagonalOptions = {}): Tensor {
  const call = new Call("linalg.diagonal").tensor("", A);
  if (options.offset !== undefined) call.integer("offset", options.offset);
  if (options.dim1 !== undefined) call.integer("dim1", options.dim1);
  if (options.dim2 !== undefined) call.integer("dim2", options.dim2);
  return call.one();
}

/** Eigenvalues and eigenvectors of square matrices, always complex (torch.linalg.eig). */
export function eig(A: Tensor): [eigenvalues: Tensor, eigenvectors: Tensor] {
  return new Call("linalg.eig").tensor("", A).several(2) as [eigenvalues: Tensor, eigenvectors: Tensor];
}

/** Eigenvalues of Hermitian matrices in ascending order, and eigenvectors as columns (torch.linalg.eigh). */
export function eigh(A: Tensor, options: EighOptions = {}): [eigenvalues: Tensor, eigenvectors: Tensor] {
  const call = new Call("linalg.eigh").tensor("", A);
  if (options.UPLO !== undefined) call.string("UPLO", options.UPLO);
  return call.several(2) as [eigenvalues: Tensor, eigenvectors: Tensor];
}

/** Eigenvalues of square matrices, always complex, in arbitrary order (torch.linalg.eigvals). */
export function eigvals(A: Tensor): Tensor {
  return new Call("linalg.eigvals").tensor("", A).one();
}

/** Eigenvalues of Hermitian matrices in ascending order (torch.linalg.eigvalsh). */
export function eigvalsh(A: Tensor, options: EigvalshOptions = {}): Tensor {
  const call = new Call("linalg.eigvalsh").tensor("", A);
  if (options.UPLO !== undefined) call.string("UPLO", options.UPLO);
  return call.one();
}

/** First n columns of a product of Householder reflections 1 - tau_i v_i v_i^H (torch.linalg.householder_product). */
export function householderProduct(input: Tensor, tau: Tensor): Tensor {
  return new Call("linalg.householder_product").tensor("", input).tensor("", tau).one();
}

/** Inverses of square matrices (torch.linalg.inv). */
export function inv(A: Tensor): Tensor {
  return new Call("linalg.inv").tensor("", A).one();
}

/** Factors L D L^T of symmetric matrices, or L D L^H of Hermitian ones, packed (torch.linalg.ldl_factor). */
export function ldlFactor(A: Tensor, options: LdlFactorOptions = {}): [LD: Tensor, pivots: Tensor] {
  const call = new Call("linalg.ldl_factor").tensor("", A);
  if (options.hermitian !== undefined) call.boolean("hermitian", options.hermitian);
  return call.several(2) as [LD: Tensor, pivots: Tensor];
}

/** ldl_factor with int32 infos: the index from 1 of a zero of D, 0 for none (torch.linalg.ldl_factor_ex). */
export function ldlFactorEx(A: Tensor, options: LdlFactorExOptions = {}): [LD: Tensor, pivots: Tensor, info: Tensor] {
  const call = new Call("linalg.ldl_factor_ex").tensor("", A);
  if (options.hermitian !== undefined) call.boolean("hermitian", options.hermitian);
  if (options.checkErrors !== undefined) call.boolean("check_errors", options.checkErrors);
  return call.several(3) as [LD: Tensor, pivots: Tensor, info: Tensor];
}

/** Solve A @ X = B, given A's ldl_factor (torch.linalg.ldl_solve). */
export function ldlSolve(LD: Tensor, pivots: Tensor, B: Tensor, options: LdlSolveOptions = {}): Tensor {
  const call = new Call("linalg.ldl_solve").tensor("", LD).tensor("", pivots).tensor("", B);
  if (options.hermitian !== undefined) call.boolean("hermitian", options.hermitian);
  return call.one();
}

/** Least squares: X that minimizes |A @ X - B|, with the smallest norm (torch.linalg.lstsq). */
export function lstsq(
  A: Tensor,
  B: Tensor,
  options: LstsqOptions = {},
): [solution: Tensor, residuals: Tensor, rank: Tensor, singularValues: Tensor] {
  const call = new Call("linalg.lstsq").tensor("", A).tensor("", B);
  if (options.rcond !== undefined) call.float("rcond", options.rcond);
  if (options.driver !== undefined) call.string("driver", options.driver);
  return call.several(4) as [solution: Tensor, residuals: Tensor, rank: Tensor, singularValues: Tensor];
}

/** LU factorization: P, L, U with P @ L @ U = A (torch.linalg.lu). */
export function lu(A: Tensor, options: LuOptions = {}): [P: Tensor, L: Tensor, U: Tensor] {
  const call = new Call("linalg.lu").tensor("", A);
  if (options.pivot !== undefined) call.boolean("pivot", options.pivot);
  return call.several(3) as [P: Tensor, L: Tensor, U: Tensor];
}

/** LU factorization, packed: L and U in one matrix, and the pivots (torch.linalg.lu_factor). */
export function luFactor(A: Tensor, options: LuFactorOptions = {}): [LU: Tensor, pivots: Tensor] {
  const call = new Call("linalg.lu_factor").tensor("", A);
  if (options.pivot !== undefined) call.boolean("pivot", options.pivot);
  return call.several(2) as [LU: Tensor, pivots: Tensor];
}

/** lu_factor with int32 infos: the index from 1 of the first zero pivot, 0 for none (torch.linalg.lu_factor_ex). */
export function luFactorEx(A: Tensor, options: LuFactorExOptions = {}): [LU: Tensor, pivots: Tensor, info: Tensor] {
  const call = new Call("linalg.lu_factor_ex").tensor("", A);
  if (options.pivot !== undefined) call.boolean("pivot", options.pivot);
  if (options.checkErrors !== undefined) call.boolean("check_errors", options.checkErrors);
  return call.several(3) as [LU: Tensor, pivots: Tensor, info: Tensor];
}

/** Solve A @ X = B, or X @ A = B if not `left`, given A's lu_factor (torch.linalg.lu_solve). */
export function luSolve(LU: Tensor, pivots: Tensor, B: Tensor, options: LuSolveOptions = {}): Tensor {
  const call = new Call("linalg.lu_solve").tensor("", LU).tensor("", pivots).tensor("", B);
  if (options.left !== undefined) call.boolean("left", options.left);
  if (options.adjoint !== undefined) call.boolean("adjoint", options.adjoint);
  return call.one();
}

/** Matrix exponential of square matrices (torch.linalg.matrix_exp). A: (..., n, n). Raises EngineError: SHAPE. */
export function matrixExp(A: Tensor): Tensor {
  return new Call("linalg.matrix_exp").tensor("", A).one();
}

/** Norm of the matrices along two dims (torch.linalg.matrix_norm). */
export function matrixNorm(A: Tensor, options: MatrixNormOptions = {}): Tensor {
  const call = new Call("linalg.matrix_norm").tensor("", A);
  if (options.ord !== undefined) call.number("ord", options.ord);
  if (options.dim !== undefined) call.integers("dim", options.dim);
  if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
  if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
  return call.one();
}

/** Integer powers of square matrices; negative powers by the inverse (torch.linalg.matrix_power). */
export function matrixPower(A: Tensor, n: number): Tensor {
  return new Call("linalg.matrix_power").tensor("", A).integer("", n).one();
}

/** Rank: the number of singular values above max(atol, rtol * the largest) (torch.linalg.matrix_rank). */
export function matrixRank(A: Tensor, options: MatrixRankOptions = {}): Tensor {
  const call = new Call("linalg.matrix_rank").tensor("", A);
  if (options.atol !== undefined) call.operand("atol", options.atol);
  if (options.rtol !== undefined) call.operand("rtol", options.rtol);
  if (options.hermitian !== undefined) call.boolean("hermitian", options.hermitian);
  return call.one();
}

/** Product of several matrices in the cheapest order (torch.linalg.multi_dot). */
export function multiDot(tensors: readonly Tensor[]): Tensor {
  return new Call("linalg.multi_dot").tensors("", tensors).one();
}

/** Norm of vectors or matrices (torch.linalg.norm). */
export function norm(A: Tensor, options: NormOptions = {}): Tensor {
  const call = new Call("linalg.norm").tensor("", A);
  if (options.ord !== undefined) call.number("ord", options.ord);
  if (options.dim !== undefined) call.integers("dim", options.dim);
  if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
  if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
  return call.one();
}

/** Moore-Penrose pseudo-inverses (torch.linalg.pinv). */
export function pinv(A: Tensor, options: PinvOptions = {}): Tensor {
  const call = new Call("linalg.pinv").tensor("", A);
  if (options.atol !== undefined) call.operand("atol", options.atol);
  if (options.rtol !== undefined) call.operand("rtol", options.rtol);
  if (options.hermitian !== undefined) call.boolean("hermitian", options.hermitian);
  return call.one();
}

/** QR decomposition: Q with orthonormal columns and upper triangular R, Q @ R = A (torch.linalg.qr). */
export function qr(A: Tensor, options: QrOptions = {}): [Q: Tensor, R: Tensor] {
  const call = new Call("linalg.qr").tensor("", A);
  if (options.mode !== undefined) call.string("mode", options.mode);
  return call.several(2) as [Q: Tensor, R: Tensor];
}

/** Signs (or phases) of determinants, and the logarithms of their absolute values (torch.linalg.slogdet). */
export function slogdet(A: Tensor): [sign: Tensor, logabsdet: Tensor] {
  return new Call("linalg.slogdet").tensor("", A).several(2) as [sign: Tensor, logabsdet: Tensor];
}

/** Solve A @ X = B, or X @ A = B if not `left` (torch.linalg.solve). */
export function solve(A: Tensor, B: Tensor, options: SolveOptions = {}): Tensor {
  const call = new Call("linalg.solve").tensor("", A).tensor("", B);
  if (options.left !== undefined) call.boolean("left", options.left);
  return call.one();
}

/** Solve A @ X = B, or X @ A = B if not `left`, for triangular A (torch.linalg.solve_triangular). */
export function solveTriangular(A: Tensor, B: Tensor, options: SolveTriangularOptions = {}): Tensor {
  const call = new Call("linalg.solve_triangular").tensor("", A).tensor("", B);
  if (options.upper !== undefined) call.boolean("upper", options.upper);
  if (options.left !== undefined) call.boolean("left", options.left);
  if (options.unitriangular !== undefined) call.boolean("unitriangular", options.unitriangular);
  return call.one();
}

/** Singular value decomposition: U @ diag(S) @ Vh = A, S in descending order (torch.linalg.svd). */
export function svd(A: Tensor, options: SvdOptions = {}): [U: Tensor, S: Tensor, Vh: Tensor] {
  const call = new Call("linalg.svd").tensor("", A);
  if (options.fullMatrices !== undefined) call.boolean("full_matrices", options.fullMatrices);
  return call.several(3) as [U: Tensor, S: Tensor, Vh: Tensor];
}

/** Singular values in descending order (torch.linalg.svdvals). A: (..., m, n). Raises EngineError: SHAPE. */
export function svdvals(A: Tensor): Tensor {
  return new Call("linalg.svdvals").tensor("", A).one();
}

/** Inverse of A as a matrix: rows are its first `ind` dims, columns the others (torch.linalg.tensorinv). */
export function tensorinv(A: Tensor, options: TensorinvOptions = {}): Tensor {
  const call = new Call("linalg.tensorinv").tensor("", A);
  if (options.ind !== undefined) call.integer("ind", options.ind);
  return call.one();
}

/** Solve tensordot(A, X, X.ndim) = B for X (torch.linalg.tensorsolve). */
export function tensorsolve(A: Tensor, B: Tensor, options: TensorsolveOptions = {}): Tensor {
  const call = new Call("linalg.tensorsolve").tensor("", A).tensor("", B);
  if (options.dims !== undefined) call.integers("dims", options.dims);
  return call.one();
}

/** Vandermonde matrices: the powers 0 to N - 1 of each element, along a new last dim (torch.linalg.vander). */
export function vander(x: Tensor, options: VanderOptions = {}): Tensor {
  const call = new Call("linalg.vander").tensor("", x);
  if (options.N !== undefined) call.integer("N", options.N);
  return call.one();
}

/** Sum of conj(x) * y along `dim` (torch.linalg.vecdot). */
export function vecdot(x: Tensor, y: Tensor, options: VecdotOptions = {}): Tensor {
  const call = new Call("linalg.vecdot").tensor("", x).tensor("", y);
  if (options.dim !== undefined) call.integer("dim", options.dim);
  return call.one();
}

/** (sum |x|**ord)**(1/ord) over `dim`, or all dimensions; inf, -inf and 0 as limits (torch.linalg.vector_norm). */
export function vectorNorm(x: Tensor, options: VectorNormOptions = {}): Tensor {
  const call = new Call("linalg.vector_norm").tensor("", x);
  if (options.ord !== undefined) call.number("ord", options.ord);
  if (options.dim !== undefined) call.integers("dim", options.dim);
  if (options.keepdim !== undefined) call.boolean("keepdim", options.keepdim);
  if (options.dtype !== undefined) call.dtype("dtype", options.dtype);
  return call.one();
}

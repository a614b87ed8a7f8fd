"""Sparse tensors (torch.sparse): for adjacency matrices and the like, with gradients.

The COO form has most ops, the compressed forms of matrices (CSR, CSC, BSR, BSC) have few. Others raise
NotImplementedError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire._base import dtypes
from gradwire._base.wiring import names_of_paths
from gradwire._tensor.tensor import Tensor
from gradwire.sparse import _diagonals, _rules
from gradwire.sparse._compressed import CompressedTensor, product, reduced_mm, sampled_addmm
from gradwire.sparse._compressed import sparse_bsc_tensor as sparse_bsc_tensor
from gradwire.sparse._compressed import sparse_bsr_tensor as sparse_bsr_tensor
from gradwire.sparse._compressed import sparse_compressed_tensor as sparse_compressed_tensor
from gradwire.sparse._compressed import sparse_csc_tensor as sparse_csc_tensor
from gradwire.sparse._compressed import sparse_csr_tensor as sparse_csr_tensor
from gradwire.sparse._coo import SparseTensor
from gradwire.sparse._coo import sparse_coo_tensor as sparse_coo_tensor

__all__ = [
    "CompressedTensor",
    "SparseTensor",
    "addmm",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "spdiags",
    "sum",
]


def mm(mat1: Any, mat2: Any, reduce: str | None = None) -> Any:
    """The product of two matrices, at least one sparse (torch.sparse.mm). Dense if one of them is dense.

    Gradients flow to the values of sparse matrices and to dense ones. The product of two sparse matrices needs the
    memory of two dense results. `reduce`, of a CSR matrix and a dense one: "sum", "mean", "amax" or "amin".
    """
    if reduce is not None:
        return reduced_mm(mat1, mat2, reduce)
    return product(mat1, mat2) if CompressedTensor in (type(mat1), type(mat2)) else _rules.mm(mat1, mat2)


def addmm(mat: Tensor, mat1: Any, mat2: Any, *, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    """`beta * mat + alpha * (mat1 @ mat2)`, dense, of a sparse `mat1` (torch.sparse.addmm)."""
    made: Tensor = _rules.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)
    return made


def sum(input: SparseTensor, dim: int | Sequence[int] | None = None, dtype: dtypes.dtype | None = None) -> Any:
    """The sum of all elements, or along dimensions, then sparse while a sparse dimension is left (torch.sparse.sum)."""
    return _rules.total(input, dim, dtype=dtype)


def softmax(input: SparseTensor, dim: int, *, dtype: dtypes.dtype | None = None) -> SparseTensor:
    """Softmax along a dimension; elements that are not stored count as -inf (torch.sparse.softmax)."""
    return _rules.normalized(input, dim, False, dtype)


def log_softmax(input: SparseTensor, dim: int, *, dtype: dtypes.dtype | None = None) -> SparseTensor:
    """Logarithm of `softmax` (torch.sparse.log_softmax)."""
    return _rules.normalized(input, dim, True, dtype)


def spmm(input: Any, mat2: Any) -> Any:
    """The matrix product `mm` (torch.spmm)."""
    return mm(input, mat2)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Any = None) -> Any:
    """A sparse matrix with the given diagonals (torch.sparse.spdiags), in COO form, or as `layout` CSR or CSC.

    diagonals: (k, n). offsets: (k,), integers; 0 is the main diagonal, negative ones are below it. A diagonal's number
    in column j is its j-th one. Waits for the offsets. Raises RuntimeError.
    """
    return _diagonals.spdiags(diagonals, offsets, shape, layout)


class _SparseType(type):
    """A class that names a dtype: sparse tensors of that dtype are its instances."""

    dtype: dtypes.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, SparseTensor) and instance.dtype is cls.dtype

    def __call__(cls, *args: Any) -> SparseTensor:
        """A sparse tensor of this dtype, from indices, values and sizes."""
        if len(args) < 2:
            return sparse_coo_tensor(*(args or ((0,),)), dtype=cls.dtype)
        return sparse_coo_tensor(*args, dtype=cls.dtype)


FloatTensor = _SparseType("FloatTensor", (), {"dtype": dtypes.float32})
DoubleTensor = _SparseType("DoubleTensor", (), {"dtype": dtypes.float64})
HalfTensor = _SparseType("HalfTensor", (), {"dtype": dtypes.float16})
LongTensor = _SparseType("LongTensor", (), {"dtype": dtypes.int64})

__getattr__ = names_of_paths(__name__)

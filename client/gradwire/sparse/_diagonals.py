"""Sparse matrices of diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradwire._base import dtypes
from gradwire._base.errors import refuse
from gradwire._functions.create import tensor
from gradwire._functions.legacy import sparse_coo, sparse_csc, sparse_csr
from gradwire._tensor.tensor import Tensor
from gradwire.sparse._coo import SparseTensor


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Any = None) -> Any:
    """The matrix with these diagonals; see `gradwire.sparse.spdiags`."""
    if layout not in (None, sparse_coo, sparse_csr, sparse_csc):
        raise refuse(f"Only output layouts (Sparse, SparseCsr, SparseCsc) are supported, got {layout}")
    rows = diagonals if diagonals.ndim == 2 else diagonals.reshape(1, -1)
    _check(diagonals, rows, offsets, shape)
    indices, places = _places(rows.shape[1], offsets.reshape(-1).tolist(), (shape[0], shape[1]))
    made = SparseTensor(tensor(indices, device=rows.device), rows[tuple(map(tensor, places))], shape)
    return made if layout in (None, sparse_coo) else made.to_sparse(layout=layout)


def _check(diagonals: Tensor, rows: Tensor, offsets: Tensor, shape: Sequence[int]) -> None:
    if diagonals.ndim not in (1, 2):
        raise refuse("Diagonals must be vector or matrix")
    if offsets.ndim > 1:
        raise refuse("Offsets must be scalar or vector")
    if len(shape) != 2:
        raise refuse(f"Output shape must be 2d, got {list(shape)}")
    if offsets.dtype.is_floating_point or offsets.dtype.is_complex or offsets.dtype is dtypes.bool_:
        raise refuse(f"Offset Tensor must have integers, got {offsets.dtype}")
    if rows.shape[0] != offsets.numel():
        raise refuse(f"Number of diagonals ({rows.shape[0]}) does not match the number of offsets ({offsets.numel()})")


def _places(length: int, offsets: Sequence[int], shape: tuple[int, int]) -> tuple[Any, tuple[Any, Any]]:
    """Indices in the matrix, (2, stored), and where their numbers are: which diagonal, and which of its numbers."""
    if len(set(offsets)) < len(offsets):
        raise refuse("Offset tensor contains duplicate values")
    height, width = shape
    found = []
    for number, offset in enumerate(offsets):
        column = np.arange(max(0, offset), max(0, offset, min(length, width, height + offset)))
        found.append(np.stack([column - offset, column, np.full_like(column, number)]))
    row, column, diagonal = np.concatenate(found, 1) if found else np.zeros((3, 0), np.int64)
    return np.stack([row, column]), (diagonal, column)

"""Sparse inputs of gradcheck: which elements of the whole tensor their stored values are, and forms that store all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradwire._base import dtypes
from gradwire._functions.stored_values import StoredValues
from gradwire._tensor import ops


def densified(given: Any) -> Any:
    """A sparse tensor that stores all elements, as a leaf; what is no sparse tensor itself."""
    if not isinstance(given, StoredValues):
        return given
    sparse: Any = given
    count = given.numel()
    # Every element's number plus 1 in the same layout tells which element each stored value is.
    numbers = ops.arange(1.0, count + 1, dtype=dtypes.float64, device=given.device).reshape(tuple(given.shape))
    if sparse.is_sparse:
        whole: Any = numbers.to_sparse(sparse.sparse_dim())
    else:
        blocks = sparse._v.shape[1:3] if len(sparse._v.shape) - sparse.dense_dim() == 3 else None
        whole = numbers.to_sparse(layout=sparse.layout, blocksize=blocks, dense_dim=sparse.dense_dim())
    values = sparse.detach().to_dense().reshape(-1)[whole._v.long() - 1]
    made: Any = whole.like(values.detach())
    return made.requires_grad_(sparse.requires_grad)


def rows_of_elements(given: Any, rows: Sequence[np.ndarray[Any, Any]], columns: int) -> np.ndarray[Any, Any]:
    """A Jacobian with a row per real of all elements, from one with a row per real of the stored values."""
    places = _places(given)
    reals = 2 if given.is_complex() else 1
    made = np.zeros((given.numel() * reals, columns))
    for place, row in enumerate(rows):
        made[places[place // reals] * reals + place % reals] = row
    return made


def _places(given: Any) -> np.ndarray[Any, Any]:
    """The number of the element that each stored value is, in their order."""
    coo = given.detach() if given.is_sparse else given.detach().coo()
    inner = math.prod(coo._v.shape[1:])
    flat: np.ndarray[Any, Any] = coo.flat_indices().cpu().numpy()
    places: np.ndarray[Any, Any] = (flat[:, None] * inner + np.arange(inner)).reshape(-1)
    return places

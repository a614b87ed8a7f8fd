"""Embedding lookup and one_hot. The lookup's adjoint sums rows: on the CPU by a sparse matrix product."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, module_of
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.index_bounds import are_within, learn, range_of
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import LONG, Cost, counted
from gradwire_engine.op.op import op
from gradwire_engine.op.value_access import mark_changed, read_array
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.base.index_accumulation import add_weighted_rows, combine_at
from gradwire_engine.ops.base.loops import ON_GPU, Loops, with_loop
from gradwire_engine.ops.index.embedding_on_gpu import lookup, lookup_grad

Ints = tuple[int, ...]


def _check_indices(xp: Any, indices: Array, rows: int) -> None:
    """Refuse an index out of range, which CuPy would wrap. Raises EngineError: INDEX_OUT_OF_RANGE."""
    if not indices.size or are_within(indices, 0, rows):
        return
    if bool((indices < 0).any() | (indices >= rows).any()):
        raise EngineError(Reason.INDEX_OUT_OF_RANGE, f"index out of range in self: the table has {rows} rows")
    learn(indices, 0, rows - 1)


def _looked_up_cost(weight: float, table: int) -> Cost:
    """Cost of a lookup, by the rows read from the table."""

    def works(*arrays: Any) -> float:
        return weight * float(arrays[1 - table].size * arrays[table].shape[-1])

    return counted(works, lambda *arrays: 15.0 * works(*arrays) + 8.0 * arrays[table].size, int(LONG / weight))


def _lookup_on_gpu(loops: Loops, xp: Any, input: Array, weight: Array, *rest: Any) -> Array | None:
    return lookup(input, weight)


def _lookup_grad_on_gpu(
    loops: Loops, xp: Any, grad: Array, input: Array, rows: int, padding_idx: int, scale_grad_by_freq: bool
) -> Array | None:
    return None if scale_grad_by_freq else lookup_grad(xp.ascontiguousarray(grad), input, rows, padding_idx)


@op(name="_embedding", node="EmbeddingBackward0", cost=_looked_up_cost(4, 1))
@with_loop(_lookup_on_gpu, least=ON_GPU)
def _embedding(xp: Any, input: Array, weight: Array, padding_idx: int, scale_grad_by_freq: bool) -> Array:
    _check_indices(xp, input, weight.shape[0])
    admit((*input.shape, weight.shape[1]), weight.dtype)
    return weight.take(input, axis=0)


@op(
    name="_embedding_backward",
    cost=counted(lambda grad, input, rows, *rest: 60.0 * grad.size + 2.0 * rows * (grad.shape[-1] if grad.ndim else 1)),
)
@with_loop(_lookup_grad_on_gpu, least=ON_GPU)
def _embedding_backward(
    xp: Any, grad: Array, input: Array, rows: int, padding_idx: int, scale_grad_by_freq: bool
) -> Array:
    """Sum of the gradients of each row; zeros for the padding row."""
    flat = input.reshape(-1)
    weights = (flat != padding_idx).astype(dtypes.float32 if grad.dtype.itemsize == 2 else grad.dtype)
    if scale_grad_by_freq:
        weights /= xp.bincount(flat, minlength=rows)[flat]
    values = grad.reshape(flat.size, grad.shape[-1]).astype(weights.dtype, copy=False)
    if xp is np:
        _check_indices(xp, flat, rows)
        added = add_weighted_rows(values, flat, weights, rows)
    else:
        added = xp.zeros((rows, values.shape[1]), values.dtype)
        combine_at(xp, "add", added, flat, values * weights[:, None])
    if padding_idx >= 0:
        added[padding_idx] = 0  # also where a gradient is not finite, so its product with 0 is nan
    return added.astype(grad.dtype, copy=False)


_embedding_backward.sized_by(lambda grad, input, rows, *rest: rows * grad.shape[-1] * grad.itemsize)


@op(name="_embedding_forward", cost=_looked_up_cost(4, 0))
def _embedding_forward(xp: Any, weight: Array, input: Array, padding_idx: int, scale_grad_by_freq: bool) -> Array:
    """Adjoint of `_embedding_backward`: look rows up; zeros for the padding row."""
    taken = weight.take(input, axis=0)
    if scale_grad_by_freq:
        flat = input.reshape(-1)
        taken = taken / xp.bincount(flat)[flat].reshape(*input.shape, 1).astype(weight.dtype)
    return xp.where((input != padding_idx)[..., None], taken, taken.dtype.type(0))


for _lookup in (_embedding, _embedding_forward):
    _lookup.grad(
        weight=lambda g, input, weight_meta, padding_idx, scale_grad_by_freq: _embedding_backward(
            g, input, weight_meta.shape[0], padding_idx, scale_grad_by_freq
        )
    ).tangent("linear")
_embedding_backward.grad(
    grad=lambda g, input, padding_idx, scale_grad_by_freq: _embedding_forward(g, input, padding_idx, scale_grad_by_freq)
).tangent("linear")


@composite(complex_grad=False, updates={"weight": "max_norm"})
def embedding(
    input: Array,
    weight: Array,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Look up rows of a table (torch.nn.functional.embedding).

    input: int32 or int64 of any shape. weight: (rows, width). The row padding_idx gets no gradient. Rows whose norm
    exceeds max_norm are first scaled down in place.
    Raises EngineError: INDEX_OUT_OF_RANGE, ARGUMENT_VALUE, RUNTIME, NOT_SUPPORTED for sparse.
    """
    if sparse:
        raise EngineError(Reason.NOT_SUPPORTED, "embedding: sparse gradients are not implemented; use sparse=False")
    if weight.ndim != 2:
        raise EngineError(Reason.RUNTIME, "'weight' must be 2-D")
    if input.dtype not in (dtypes.int64, dtypes.int32):
        raise EngineError(
            Reason.RUNTIME,
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
            f"{dtypes.TITLES[input.dtype]} instead (while checking arguments for embedding)",
        )
    rows = weight.shape[0]
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise EngineError(Reason.ARGUMENT_VALUE, "Padding_idx must be within num_embeddings")
    if max_norm is not None:
        renorm_rows(weight, input, max_norm, norm_type)
    padding = -1 if padding_idx is None else padding_idx % rows
    return _embedding(input, weight, padding, scale_grad_by_freq)


def renorm_rows(weight: Any, indices: Any, max_norm: float, norm_type: float) -> None:
    """Scale the looked-up rows down to a norm of at most max_norm, in place and without a graph node."""
    table, wanted = read_array(weight), read_array(indices)
    xp = module_of(table)
    _check_indices(xp, wanted, table.shape[0])
    rows = xp.unique(wanted)
    norms = (xp.abs(table[rows]) ** norm_type).sum(1) ** (1 / norm_type)
    table[rows] *= xp.where(norms > max_norm, max_norm / (norms + 1e-7), 1).astype(table.dtype)[:, None]
    mark_changed(weight)


@op(
    data_dependent=lambda tensor, num_classes: num_classes == -1,
    cost=counted(lambda tensor, classes: 2.0 * tensor.size * max(1, classes) + 30.0 * tensor.size),
)
def one_hot(xp: Any, tensor: Array, num_classes: int = -1) -> Array:
    """One-hot encoding in a new last dimension, int64 (torch.nn.functional.one_hot).

    num_classes: -1 means the largest class plus 1. Raises EngineError: RUNTIME for values that are no classes.
    """
    if tensor.dtype != dtypes.int64:
        raise EngineError(Reason.RUNTIME, "one_hot is only applicable to index tensor of type LongTensor.")
    least, most = _classes(tensor, num_classes)
    if least < 0:
        raise EngineError(Reason.RUNTIME, "Class values must be non-negative.")
    if num_classes == -1:
        if not tensor.size:
            raise EngineError(Reason.RUNTIME, "Can not infer total number of classes from empty tensor.")
        num_classes = most + 1
    elif num_classes < 1 and tensor.size:
        raise EngineError(Reason.RUNTIME, "num_classes should be positive")
    if tensor.size and most >= num_classes:
        raise EngineError(Reason.RUNTIME, "Class values must be smaller than num_classes.")
    admit((*tensor.shape, num_classes), dtypes.int64)
    result = xp.zeros((math.prod(tensor.shape), num_classes), dtypes.int64)
    result[xp.arange(result.shape[0]), tensor.reshape(-1)] = 1
    return result.reshape(*tensor.shape, num_classes)


def _classes(tensor: Array, num_classes: int) -> tuple[int, int]:
    """The least and the largest class. On a GPU these may be bounds, where all of them are classes."""
    if not tensor.size:
        return 0, 0
    found = range_of(tensor) if num_classes > 0 else None
    if found is None or found[0] < 0 or found[1] >= num_classes:
        found = int(tensor.min()), int(tensor.max())
        learn(tensor, *found)
    return found

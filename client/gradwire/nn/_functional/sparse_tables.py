"""Lookups whose gradient is sparse on demand: it stores only the rows or elements that were looked up."""

from __future__ import annotations

import warnings
from typing import Any

from gradwire._base import dtypes
from gradwire._base.errors import GradwireValueError, refuse
from gradwire._base.modes import is_grad_enabled, no_grad
from gradwire._base.wiring import wired
from gradwire._graph.sparse_gradients import not_a_leaf
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.autograd.function import Function

_OLD_ORDER = (
    "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is "
    "deprecated, and should now be `embedding_bag(input, weight, ...)`."
)


class _Lookup(Function):
    """Rows of a table, which gets a sparse gradient."""

    @classmethod
    def _node_name(cls) -> str:
        return "EmbeddingBackward0"

    @staticmethod
    def forward(ctx: Any, weight: Tensor, indices: Tensor, padding: int | None, options: tuple[Any, ...]) -> Tensor:
        """`options`: max_norm, norm_type and scale_grad_by_freq."""
        max_norm, norm_type, ctx.scales = options
        ctx.save_for_backward(indices)
        ctx.padding, ctx.size = padding, tuple(weight.shape)
        return ops.embedding(indices, weight, padding, max_norm, norm_type)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradient's rows, without those of the padding."""
        if ctx.scales:
            raise refuse("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
        indices = ctx.saved_tensors[0].reshape(-1)
        rows = grad_outputs[0].reshape(indices.shape[0], ctx.size[1])
        if ctx.padding is not None:
            with no_grad():
                kept = (indices != ctx.padding % ctx.size[0]).nonzero().squeeze(1)
                indices = indices[kept]
            rows = rows.index_select(0, kept)
        return wired("sparse_coo_tensor")(indices.unsqueeze(0), rows, ctx.size), None, None, None


class _Gather(Function):
    """Elements of a tensor, which gets a sparse gradient."""

    @classmethod
    def _node_name(cls) -> str:
        return "GatherBackward0"

    @staticmethod
    def forward(ctx: Any, input: Tensor, dim: int, index: Tensor) -> Tensor:
        """`dim` counts from the first."""
        ctx.save_for_backward(index)
        ctx.dim, ctx.size = dim, tuple(input.shape)
        return ops.gather(input, dim, index)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """An element for each of the index."""
        (index,) = ctx.saved_tensors
        if not ctx.size:
            nowhere = index.new_empty((0, index.numel()))
            return wired("sparse_coo_tensor")(nowhere, grad_outputs[0].reshape(-1), ()), None, None
        index = index if index.ndim else index.reshape(1)
        rows = [
            index if dim == ctx.dim else ops.arange(size, device=index.device).view(-1, *[1] * (index.ndim - dim - 1))
            for dim, size in enumerate(index.shape)
        ]
        places = ops.stack([each.expand(index.shape).reshape(-1) for each in rows])
        return wired("sparse_coo_tensor")(places, grad_outputs[0].reshape(-1), ctx.size), None, None


def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """result[i, j, ...] = input[i, index[i, j, ...], ...] for dim 1, and so on (torch.gather).

    With `sparse_grad`, the gradient of `input`, which must be a leaf, is sparse.
    """
    if not sparse_grad or out is not None or not _records(input, "gather(sparse_grad=True) of a computed tensor"):
        return ops.gather(input, dim, index, out=out)
    made: Tensor = _Gather.apply(input, dim % input.ndim if -input.ndim <= dim < input.ndim else dim, index)
    return made


def _records(table: Tensor, what: str) -> bool:
    """Whether a table gets a gradient. Raises NotImplementedError for one that is no leaf."""
    if not (table.requires_grad and is_grad_enabled()):
        return False
    if not table.is_leaf:
        raise not_a_leaf(what)
    return True


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of `weight` (n, d) at the indices (*): (*, d) (torch.nn.functional.embedding).

    The row `padding_idx` gets no gradient. With `max_norm`, longer rows that are looked up are shortened in place. With
    `sparse`, the gradient of `weight`, which must be a leaf, is sparse.
    """
    if not sparse or not _records(weight, "embedding(sparse=True) of a computed table"):
        return ops.embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    made: Tensor = _Lookup.apply(weight, input, padding_idx, (max_norm, norm_type, scale_grad_by_freq))
    return made


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sum, mean or maximum of a table's rows over bags of indices (torch.nn.functional.embedding_bag).

    input: (bags, n), or (n,) with `offsets`, the start of each bag. weight: (rows, d). With `sparse`, the gradient of
    `weight`, which must be a leaf, is sparse.
    """
    if weight.dtype is dtypes.int64 and input.is_floating_point():
        warnings.warn(_OLD_ORDER, stacklevel=2)
        input, weight = weight, input
    if sparse and mode == "max":
        raise GradwireValueError("max mode does not support sparse weights")
    how = (mode, False, per_sample_weights, include_last_offset, padding_idx)
    if not sparse or not _records(weight, "embedding_bag(sparse=True) of a computed table"):
        return ops.embedding_bag(input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, *how)
    with no_grad():
        # Checks the arguments, and shortens the rows.
        ops.embedding_bag(input, weight.detach(), offsets, max_norm, norm_type, False, *how)
        flat = input.reshape(-1)
        if offsets is None:
            offsets = ops.arange(input.shape[0], device=input.device) * input.shape[1]
            include_last_offset = False
        if padding_idx is not None:
            is_kept = flat != padding_idx % weight.shape[0]
            kept = is_kept.nonzero().squeeze(1)
            offsets = ops.pad(is_kept.long().cumsum(0), (1, 0))[offsets.long()]
            flat = flat[kept]
    factors = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    if factors is not None and padding_idx is not None:
        factors = factors[kept]
    rows = _Lookup.apply(weight, flat, None, (None, norm_type, scale_grad_by_freq))
    places = ops.arange(flat.shape[0], device=flat.device)
    return ops.embedding_bag(places, rows, offsets.long(), None, 2.0, False, mode, False, factors, include_last_offset)


__all__ = ["embedding", "embedding_bag", "gather"]

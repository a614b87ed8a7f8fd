"""ATen's forms of layers that torch exports: norms with statistics, dropout with its mask, segments, cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from gradwire._base import dtypes
from gradwire._base.errors import refuse
from gradwire._base.refused import refusal
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.nn._functional.of_torch import grid_sampler

__all__ = [
    "grid_sampler_2d",
    "grid_sampler_3d",
    "gru_cell",
    "lstm_cell",
    "native_batch_norm",
    "native_channel_shuffle",
    "native_dropout",
    "native_group_norm",
    "rnn_relu_cell",
    "rnn_tanh_cell",
    "segment_reduce",
]

grid_sampler_2d = grid_sampler
grid_sampler_3d = grid_sampler
native_channel_shuffle = ops.channel_shuffle
_SEGMENTS = {"max": "amax", "min": "amin", "sum": "sum", "mean": "mean", "prod": "prod"}
# What an empty segment gives.
_EMPTY = {"max": -float("inf"), "min": float("inf"), "sum": 0.0, "mean": float("nan"), "prod": 1.0}


def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """batch_norm, and without gradient means and reciprocal standard deviations (torch.native_batch_norm).

    input: (n, c, *); the statistics: (c,) in training, else empty. They have the dtype of the other tensors, if any.
    """
    made = ops.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        none = input.new_empty((0,)).detach()
        return made, none, none.clone()
    dims = [dim for dim in range(input.ndim) if dim != 1]
    kept = next((each for each in (weight, bias, running_mean, running_var) if each is not None), input)
    given = input.detach().to(kept.dtype)
    return made, given.mean(dims), (given.var(dims, correction=0) + eps).rsqrt()


def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """group_norm; and means and reciprocal standard deviations, (n, groups) (torch.native_group_norm)."""
    made = ops.group_norm(input, group, weight, bias, eps)
    rows = input.reshape(N, group, C * HxW // group if group else 0)
    return made, rows.mean(-1), (rows.var(-1, correction=0) + eps).rsqrt()


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """dropout and its mask: the kept elements (torch.native_dropout)."""
    if train is False or not input.numel():
        return input.clone(), ops.ones_like(input, dtype=dtypes.bool_)
    if p == 1:
        return input * 0, ops.zeros_like(input, dtype=dtypes.bool_)
    kept = ops.dropout(ops.ones_like(input.detach()), p, True)
    return input * kept, kept != 0


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Reduce segments of a dimension: "max", "min", "sum", "mean" or "prod" (torch.segment_reduce).

    lengths: of the segments, (*, segments), with the sizes of the dimensions before `axis`; or offsets, with one more
    element, which may leave out the ends of the dimension. Reads them from the server. An empty segment gives
    `initial`. Raises RuntimeError for neither, for an unknown reduction, for lengths that do not add up to the size,
    and for offsets that fall or leave the dimension.
    """
    if reduce not in _SEGMENTS:
        raise refuse(f"unsupported reduction given! {reduce}")
    if indices is not None:
        raise refuse("segment_reduce(): indices based reduction is not supported yet.")
    given = lengths if offsets is None else offsets
    if given is None:
        raise refuse("segment_reduce(): Either lengths or offsets must be defined.")
    if not data.is_floating_point():
        raise refusal(f"segment_reduce of {data.dtype}", "it reduces floating-point numbers")
    axis = axis % max(data.ndim, 1)
    if axis != given.ndim - 1:
        raise refuse("segment_reduce(): Expected axis to be the last dimension of lengths.")
    segments = given.shape[-1] - (offsets is not None)
    shape = (*data.shape[:axis], segments, *data.shape[axis + 1 :])
    batches = math.prod(data.shape[:axis])
    if not segments or not batches:
        return data.narrow(axis, 0, 0).reshape(shape)
    numbers = given.reshape(-1, given.shape[-1]).tolist()
    plans = [_of_offsets(each) if offsets is not None else (0, each) for each in numbers]
    _check_plans(plans, data.shape[axis], unsafe or offsets is not None)
    rows = data.reshape(batches, *data.shape[axis:])
    made = [
        ops.stack(_segments(row[begin : begin + sum(counts)], counts, reduce, initial))
        for row, (begin, counts) in zip(rows, plans, strict=True)
    ]
    return ops.stack(made).reshape(shape)


def _of_offsets(offsets: Sequence[int]) -> tuple[int, list[int]]:
    """The place of the first segment, and the lengths of all."""
    return offsets[0], [stop - start for start, stop in pairwise(offsets)]


def _check_plans(plans: Sequence[tuple[int, Sequence[int]]], size: int, partly: bool) -> None:
    for begin, lengths in plans:
        end = begin + sum(lengths)
        if begin < 0 or min(lengths) < 0 or end > size or (end != size and not partly):
            raise refuse("segment_reduce(): Expected all rows of lengths along axis to sum to data.size(axis).")


def _segments(row: Tensor, lengths: Sequence[int], reduce: str, initial: float | None) -> list[Tensor]:
    empty = _EMPTY[reduce] if initial is None else initial
    parts = ops.split_with_sizes(row, lengths)
    return [_reduced(part, reduce, initial) if len(part) else part.sum(0) + empty for part in parts]


def _reduced(part: Tensor, reduce: str, initial: float | None) -> Tensor:
    """One segment that is not empty. An element that equals `initial` takes the whole gradient, as in PyTorch."""
    if reduce == "mean":
        return part.mean(0) if initial is None else (part.sum(0) + initial) / len(part)
    made = getattr(ops, _SEGMENTS[reduce])(part, 0)
    if initial is not None and reduce in ("sum", "prod"):
        made = made + initial if reduce == "sum" else made * initial
    elif initial is not None:
        made = ops.where(made < initial if reduce == "max" else made > initial, initial, made)
    found: Tensor = made
    return found


def _gates(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any) -> tuple[Tensor, Tensor]:
    return ops.linear(input, w_ih, b_ih), ops.linear(hx, w_hh, b_hh)


def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """The next state (n, h) of a recurrent cell: tanh of its gate (torch.rnn_tanh_cell)."""
    return ops.tanh(ops.add(*_gates(input, hx, w_ih, w_hh, b_ih, b_hh)))


def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """The next state (n, h) of a recurrent cell: relu of its gate (torch.rnn_relu_cell)."""
    return ops.relu(ops.add(*_gates(input, hx, w_ih, w_hh, b_ih, b_hh)))


def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The next state and memory, (n, h) each, of an LSTM cell whose present ones are `hx` (torch.lstm_cell)."""
    gates = ops.add(*_gates(input, hx[0], w_ih, w_hh, b_ih, b_hh))
    taken, kept, new, shown = ops.chunk(gates, 4, 1)
    memory = kept.sigmoid() * hx[1] + taken.sigmoid() * new.tanh()
    return shown.sigmoid() * memory.tanh(), memory


def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """The next state (n, h) of a GRU cell (torch.gru_cell)."""
    given, held = _gates(input, hx, w_ih, w_hh, b_ih, b_hh)
    (reset_in, update_in, new_in), (reset, update, new) = ops.chunk(given, 3, 1), ops.chunk(held, 3, 1)
    candidate = (new_in + (reset_in + reset).sigmoid() * new).tanh()
    made: Tensor = (hx - candidate) * (update_in + update).sigmoid() + candidate
    return made

"""ATen's forms of layers that torch exports: norms with statistics, dropout with its mask, segments, cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire._base import dtypes
from gradwire._base.errors import refuse
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
_SEGMENTS = {"max": "amax", "min": "amin", "sum": "sum", "mean": "mean", "prod": "prod"}
_STARTS = {"max": -float("inf"), "min": float("inf"), "sum": 0.0, "mean": float("nan"), "prod": 1.0}


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

    input: (n, c, *); the statistics: (c,) in training, else empty.
    """
    made = ops.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        none = input.new_empty((0,)).detach()
        return made, none, none.clone()
    dims = [dim for dim in range(input.ndim) if dim != 1]
    given = input.detach()
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


def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """nn.functional.channel_shuffle (torch.native_channel_shuffle)."""
    return ops.channel_shuffle(input, groups)


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
    element. Reads them from the server. An empty segment gives `initial`. Raises RuntimeError for neither, for an
    unknown reduction, and for lengths that do not add up to the size.
    """
    if reduce not in _SEGMENTS:
        raise refuse(f"unsupported reduction given! {reduce}")
    if indices is not None:
        raise refuse("segment_reduce(): indices based reduction is not supported yet.")
    if offsets is not None:
        lengths = offsets.diff(dim=-1)
    if lengths is None:
        raise refuse("segment_reduce(): Either lengths or offsets must be defined.")
    axis = axis % max(data.ndim, 1)
    if axis != lengths.ndim - 1:
        raise refuse("segment_reduce(): Expected axis to be the last dimension of lengths.")
    if initial is None:
        initial = _STARTS[reduce]
    rows = data.reshape(-1, *data.shape[axis:])
    counts = lengths.reshape(-1, lengths.shape[-1]).tolist()
    if not unsafe and any(min(each, default=0) < 0 or sum(each) != rows.shape[1] for each in counts):
        raise refuse("segment_reduce(): Expected all rows of lengths along axis to sum to data.size(axis).")
    made = ops.stack([ops.stack(_segments(row, each, reduce, initial)) for row, each in zip(rows, counts, strict=True)])
    return made.reshape(*data.shape[:axis], *made.shape[1:])


def _segments(row: Tensor, counts: Sequence[int], reduce: str, initial: float) -> list[Tensor]:
    found = []
    for part in ops.split_with_sizes(row[: sum(counts)], counts):
        begin: Any = row.new_full(row.shape[1:], initial)
        if not len(part):
            found.append(begin)
        elif reduce == "mean":
            found.append(part.mean(0) if initial != initial else (part.sum(0) + begin) / len(part))
        else:
            whole = ops.cat([part, begin.unsqueeze(0)])
            found.append(getattr(ops, _SEGMENTS[reduce])(whole, 0))
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

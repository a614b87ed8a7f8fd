"""embedding_bag: sum, mean or maximum of a table's rows over bags of indices."""

from __future__ import annotations

from typing import Any, Literal

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, module_of
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.ops.base.fill import where, zeros
from gradwire_engine.ops.base.index_accumulation import combine_at
from gradwire_engine.ops.index.embedding import embedding, renorm_rows
from gradwire_engine.ops.index.gather import gather, index_add, index_select
from gradwire_engine.ops.shape.shape import reshape, unsqueeze

_MODES = ("sum", "mean", "max")


def _check(input: Any, weight: Any, offsets: Any, mode: str, per_sample_weights: Any) -> None:
    message = None
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        message = (
            f"embedding_bag: If per_sample_weights ({list(per_sample_weights.shape)}) is not None, then it must have "
            f"the same shape as the input ({list(input.shape)})"
        )
    elif weight.ndim != 2:
        message = f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}"
    elif input.ndim == 2 and offsets is not None:
        message = "if input is 2D, then offsets has to be None: each row is a bag"
    elif input.ndim == 1 and (offsets is None or offsets.ndim != 1):
        message = "offsets has to be a 1D Tensor" + (" but got None" if offsets is None else "")
    elif input.ndim not in (1, 2):
        message = f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}"
    elif mode not in _MODES:
        message = "mode has to be one of sum, mean or max"
    if message is not None:
        raise EngineError(Reason.ARGUMENT_VALUE, message)
    if per_sample_weights is not None and mode != "sum":
        raise EngineError(
            Reason.NOT_SUPPORTED,
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
            f"(got mode='{mode}').",
        )


def _bags(xp: Any, input: Array, offsets: Array | None, include_last: bool) -> tuple[Array, int]:
    """Bag of each index, and the number of bags. Raises EngineError: RUNTIME for wrong offsets."""
    if input.ndim == 2:
        return xp.repeat(xp.arange(input.shape[0]), input.shape[1]), input.shape[0]
    starts = offsets.astype(dtypes.int64)  # type: ignore[union-attr]
    if starts.size and int(starts[0]):
        raise EngineError(
            Reason.RUNTIME,
            f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
            f"However, got {int(starts[0])}",
        )
    if starts.size and int(starts[-1]) > input.size:
        raise EngineError(
            Reason.RUNTIME,
            f"offsets[-1] can not be greater than input's length {input.size} but got offsets[-1] of {int(starts[-1])}",
        )
    count = starts.size - int(include_last)
    bag = xp.searchsorted(starts[:count], xp.arange(input.size), side="right") - 1
    return bag, count


@composite(reads_values=True, updates={"weight": "max_norm"})
def embedding_bag(
    input: Array,
    weight: Array,
    offsets: Array | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: Literal["sum", "mean", "max"] = "mean",
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Sum, mean or maximum of a table's rows over bags of indices (torch.nn.functional.embedding_bag).

    input: (bags, n), or (n,) with `offsets`, the start of each bag. weight: (rows, width).
    An empty bag gives zeros; the index padding_idx is skipped.
    Raises EngineError: ARGUMENT_VALUE, NOT_SUPPORTED, INDEX_OUT_OF_RANGE, RUNTIME.
    """
    _check(input, weight, offsets, mode, per_sample_weights)
    rows_of_weight = weight.shape[0]
    if padding_idx is not None and not -rows_of_weight <= padding_idx < rows_of_weight:
        raise EngineError(
            Reason.RUNTIME,
            f"padding_idx must be within the number of embeddings, {-rows_of_weight} through {rows_of_weight - 1}, but "
            f"got {padding_idx}",
        )
    if per_sample_weights is not None and per_sample_weights.dtype != weight.dtype:
        raise EngineError(
            Reason.RUNTIME,
            "embedding_bag: Expected tensor 'weight' to have the same type as tensor 'per_sample_weights', but "
            f"{dtypes.TITLES[weight.dtype]} does not equal {dtypes.TITLES[per_sample_weights.dtype]}",
        )
    if scale_grad_by_freq and mode == "max":
        raise EngineError(Reason.ARGUMENT_VALUE, "max mode does not support scaling the gradient by the frequency")
    indices, starts = _array(input), None if offsets is None else _array(offsets)
    xp = module_of(indices)
    bag, count = _bags(xp, indices, starts, include_last_offset)
    flat = every = indices.reshape(-1)
    factors = None if per_sample_weights is None else reshape(per_sample_weights, (-1,))
    if padding_idx is not None:
        kept = xp.flatnonzero(flat != padding_idx % weight.shape[0])
        flat, bag = flat[kept], bag[kept]
        factors = None if factors is None else index_select(factors, 0, _like(weight, kept))
    wrong = (flat < 0) | (flat >= weight.shape[0])
    if bool(wrong.any()):
        raise EngineError(
            Reason.RUNTIME,
            "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be "
            f"{int(flat[wrong][0])}, of {weight.shape[0]}",
        )
    if max_norm is not None:
        renorm_rows(weight, every, max_norm, norm_type)  # the padding's, too
    rows = embedding(_like(weight, flat), weight, None, None, norm_type, scale_grad_by_freq, sparse)
    if factors is not None:
        rows = rows * unsqueeze(factors, -1)
    whole = zeros(weight, (count, weight.shape[1]))
    if mode == "max":
        return _largest(xp, rows, bag, count, whole)
    added = index_add(whole, 0, _like(weight, bag), rows)
    if mode == "sum":
        return added
    sizes = xp.maximum(xp.bincount(bag, minlength=count), 1).astype(whole.dtype)
    return added / _like(weight, sizes[:, None])


embedding_bag.unsupported(
    "bic",
    message="Expected tensor for argument #1 'weight' to have one of the following scalar types: Half, BFloat16, "
    "Float, Double; but got another instead",
    of=("weight",),
)


def _largest(xp: Any, rows: Any, bag: Array, count: int, whole: Any) -> Any:
    """Elementwise maximum of each bag's rows; gradients go to the first of equal rows. Zeros for an empty bag."""
    values = _array(rows)
    nowhere = len(values)
    best = xp.full((count, values.shape[1]), nowhere, dtypes.int64)
    peaks = xp.full(best.shape, -xp.inf, dtypes.float64)
    combine_at(xp, "maximum", peaks, bag, values.astype(dtypes.float64))
    places = xp.where(values == peaks[bag], xp.arange(nowhere)[:, None], nowhere)
    combine_at(xp, "minimum", best, bag, places)
    filled = best < nowhere
    if not nowhere:
        return index_add(whole, 0, _like(rows, bag), rows)  # adds nothing; its history does not depend on the indices
    taken = gather(rows, 0, _like(rows, xp.where(filled, best, 0)))
    return where(_like(rows, filled), taken, 0)


def _like(source: Any, array: Any) -> Any:
    """Wrap an array as a constant Tensor if `source` is a Tensor."""
    return Tensor(array) if type(source) is Tensor else array


def _array(value: Any) -> Any:
    return value.array if type(value) is Tensor else value

"""Quantiles: interpolated order statistics."""

from __future__ import annotations

from typing import Any, Literal

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, module_of
from gradwire_engine.core.dtypes import Number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.ops.base.checks import normalize_dim
from gradwire_engine.ops.base.fill import where
from gradwire_engine.ops.elementwise.binary import lerp
from gradwire_engine.ops.elementwise.unary import isnan
from gradwire_engine.ops.index.gather import gather
from gradwire_engine.ops.index.sort import sort
from gradwire_engine.ops.reduce.reduce import any as any_of
from gradwire_engine.ops.shape.shape import movedim, reshape

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _check(input: Any, q: Any, interpolation: str) -> None:
    if not input.size:
        raise EngineError(Reason.RUNTIME, "quantile() input tensor must be non-empty")
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise EngineError(Reason.RUNTIME, "quantile() input tensor must be either float or double dtype")
    if hasattr(q, "dtype"):
        if q.ndim > 1:
            raise EngineError(Reason.RUNTIME, "quantile() q must be a scalar or 1D tensor")
        if q.dtype != input.dtype:
            raise EngineError(Reason.RUNTIME, "quantile() q tensor must be same dtype as the input tensor")
        given = q.array if type(q) is Tensor else q
        if given.size and not bool(((given >= 0) & (given <= 1)).all()):
            raise EngineError(Reason.RUNTIME, "quantile() q values must be in the range [0, 1]")
    elif not 0 <= q <= 1:
        raise EngineError(Reason.RUNTIME, f"quantile() q must be in the range [0, 1] but got {q}")
    if interpolation not in _INTERPOLATIONS:
        raise EngineError(
            Reason.RUNTIME,
            "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got "
            f"{interpolation}",
        )


@composite(reads_values=True)
def quantile(
    input: Array,
    q: Array | Number,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: Literal["linear", "lower", "higher", "midpoint", "nearest"] = "linear",
) -> Any:
    """q-th quantiles along `dim`, or of all elements; nan if a value is nan (torch.quantile).

    input: float32 or float64. q: a number, or a tensor of at most one dimension, which becomes the result's first.
    interpolation: "linear", "lower", "higher", "midpoint" or "nearest". Raises EngineError: RUNTIME.
    """
    return _quantile(input, q, dim, keepdim, interpolation, False)


@composite(reads_values=True)
def nanquantile(
    input: Array,
    q: Array | Number,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: Literal["linear", "lower", "higher", "midpoint", "nearest"] = "linear",
) -> Any:
    """q-th quantiles without nan (torch.nanquantile); arguments as of `quantile`."""
    return _quantile(input, q, dim, keepdim, interpolation, True)


def _quantile(input: Any, q: Any, dim: int | None, keepdim: bool, interpolation: str, ignore_nan: bool) -> Any:
    _check(input, q, interpolation)
    ndim, place = input.ndim, 0 if dim is None else normalize_dim(dim, input.ndim)
    flat = reshape(input, (-1,)) if dim is None else movedim(input, place, -1) if ndim else reshape(input, (1,))
    ordered = sort(flat, -1)[0]
    missing = isnan(flat)
    last = _last_rank(missing, flat, ignore_nan)
    ranks = reshape(q, (-1,)) * last if hasattr(q, "dtype") else last * q
    if not ignore_nan:
        ranks = where(any_of(missing, -1, True), last, ranks)  # a line with nan gives its last value, which is nan
    found = _interpolated(ordered, ranks, interpolation)
    found = movedim(found, -1, 0)
    kept = _kept_shape(input.shape, None if dim is None else place)
    shape = kept if keepdim else flat.shape[:-1]
    return reshape(found, (found.shape[0], *shape) if hasattr(q, "ndim") and q.ndim else shape)


def _kept_shape(shape: tuple[int, ...], place: int | None) -> tuple[int, ...]:
    return tuple(1 if place in (None, axis) else size for axis, size in enumerate(shape))


def _last_rank(missing: Any, flat: Any, ignore_nan: bool) -> Any:
    """Largest rank of each line: of its last value, or of the last that is not nan; a constant."""
    array = missing.array if type(missing) is Tensor else missing
    xp = module_of(array)
    last = xp.full((*array.shape[:-1], 1), array.shape[-1] - 1, flat.dtype)
    if ignore_nan:
        last = xp.maximum(last - array.sum(-1, keepdims=True), 0).astype(flat.dtype)
    return _like(flat, last)


def _interpolated(ordered: Any, ranks: Any, way: str) -> Any:
    """Interpolate the last dimension at fractional ranks."""
    at = ranks.array if type(ranks) is Tensor else ranks
    xp = module_of(at)
    if way in ("lower", "higher", "nearest"):
        rounded = {"lower": xp.floor, "higher": xp.ceil, "nearest": xp.rint}[way](at)
        return gather(ordered, -1, _like(ordered, rounded.astype(dtypes.int64)))
    below, above = xp.floor(at), xp.ceil(at)
    low, high = (gather(ordered, -1, _like(ordered, rank.astype(dtypes.int64))) for rank in (below, above))
    if way == "midpoint":
        return lerp(low, high, 0.5)
    return lerp(low, high, ranks - _like(ordered, below))


def _like(source: Any, array: Any) -> Any:
    """Wrap an array as a constant Tensor if `source` is a Tensor."""
    return Tensor(array) if type(source) is Tensor else array

"""Reductions and normalizations of the elements that a mask selects (torch.masked), as functions of tensor and mask.

Elements that are not selected count as the operation's identity. A row without selected elements gives that identity,
and nan for means, medians and softmax. There are no masked tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import gradwire.nn.functional as F
from gradwire._base import dtypes
from gradwire._base.wiring import names_of_paths
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor

__all__ = [
    "amax",
    "amin",
    "argmax",
    "argmin",
    "cumprod",
    "cumsum",
    "log_softmax",
    "logaddexp",
    "logsumexp",
    "mean",
    "median",
    "norm",
    "normalize",
    "prod",
    "softmax",
    "softmin",
    "std",
    "sum",
    "var",
]

Dims = int | Sequence[int] | None


def _dims(dim: Dims, ndim: int) -> tuple[int, ...]:
    """Dimensions in order; all of them for None and (). Raises IndexError out of range, RuntimeError for one twice."""
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return tuple(range(ndim))
    most, found = max(ndim, 1), []
    for each in (dim,) if isinstance(dim, int) else dim:
        if each in found:
            raise RuntimeError(f"dim={each} appears multiple times in the list of dims")
        if not -most <= each < most:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-most}, {most - 1}], but got {each})"
            )
        found.append(each % most)
    return tuple(sorted(found))


def _spread(input: Tensor, mask: Tensor) -> Tensor:
    """The mask as bools of the input's shape. Raises IndexError for a mask of more dimensions."""
    if mask.ndim > input.ndim:
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    made: Tensor = mask.expand(input.shape).to(dtypes.bool)
    return made


def _selected(input: Tensor, mask: Tensor | None, identity: float) -> Tensor:
    if mask is None:
        return input
    made: Tensor = ops.where(_spread(input, mask), input, input.new_full((), identity))
    return made


def _least(name: str, input: Tensor) -> float:
    """What no element is below. Raises NotImplementedError for other dtypes."""
    if input.is_floating_point():
        return -math.inf
    if input.is_complex() or input.dtype == dtypes.bool:
        raise NotImplementedError(f"identity of {name} on {input.dtype} input")
    return dtypes.iinfo(input.dtype).min


def _most(name: str, input: Tensor) -> float:
    """What no element is above. Raises NotImplementedError for other dtypes."""
    return math.inf if _least(name, input) == -math.inf else dtypes.iinfo(input.dtype).max


def _summed_dtype(input: Tensor, dtype: Any) -> Any:
    if dtype is not None:
        return dtype
    return input.dtype if input.is_floating_point() or input.is_complex() else dtypes.int64


def sum(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The sum (torch.masked.sum)."""
    held, dtype = _selected(input, mask, 0), _summed_dtype(input, dtype)
    made: Tensor = held.sum(_dims(dim, input.ndim), bool(keepdim), dtype=dtype) if input.ndim else held.to(dtype)
    return made


def prod(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The product (torch.masked.prod)."""
    made: Tensor = _selected(input, mask, 1).to(_summed_dtype(input, dtype))
    for each in reversed(_dims(dim, input.ndim)):
        made = made.prod(each, bool(keepdim))
    return made


def cumsum(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The running sum (torch.masked.cumsum)."""
    made: Tensor = _selected(input, mask, 0).cumsum(_dims(dim, input.ndim)[0], dtype=dtype or input.dtype)
    return made


def cumprod(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The running product (torch.masked.cumprod)."""
    made: Tensor = _selected(input, mask, 1).cumprod(_dims(dim, input.ndim)[0], dtype=dtype or input.dtype)
    return made


def amax(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The largest element (torch.masked.amax)."""
    held = input if mask is None else _selected(input, mask, _least("amax", input))
    made: Tensor = held.amax(_dims(dim, input.ndim), bool(keepdim)).to(dtype or input.dtype)
    return made


def amin(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The smallest element (torch.masked.amin)."""
    held = input if mask is None else _selected(input, mask, _most("amin", input))
    made: Tensor = held.amin(_dims(dim, input.ndim), bool(keepdim)).to(dtype or input.dtype)
    return made


def argmax(
    input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The index of the largest element, in the input's dtype as in PyTorch (torch.masked.argmax)."""
    held = input if mask is None else _selected(input, mask, _least("argmax", input))
    made: Tensor = held.argmax(dim, bool(keepdim)).to(dtype or input.dtype)
    return made


def argmin(
    input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The index of the smallest element, in the input's dtype as in PyTorch (torch.masked.argmin)."""
    held = input if mask is None else _selected(input, mask, _most("argmin", input))
    made: Tensor = held.argmin(dim, bool(keepdim)).to(dtype or input.dtype)
    return made


def _counted(input: Tensor, dims: tuple[int, ...], keepdim: bool, mask: Tensor | None) -> Tensor:
    chosen = input.new_ones((), dtype=dtypes.bool).expand(input.shape) if mask is None else _spread(input, mask)
    made: Tensor = chosen.sum(dims, keepdim) if input.ndim else chosen.to(dtypes.int64)
    return made


def mean(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The mean (torch.masked.mean). Raises ValueError for integers without a dtype."""
    wanted, source = (input.dtype, "Input") if dtype is None else (dtype, "Optional")
    if not (wanted.is_floating_point or wanted.is_complex):
        raise ValueError(
            f"mean(): Could not infer output dtype. {source} dtype must be either a floating point or complex dtype. "
            f"Got: {wanted}"
        )
    count = _counted(input, _dims(dim, input.ndim), bool(keepdim), mask)
    made: Tensor = sum(input, dim, keepdim=keepdim, dtype=wanted, mask=mask) / count
    return made


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The median (torch.masked.median). Raises ValueError for integers without a selected element in a row."""
    held = input if input.is_floating_point() else input.to(dtypes.float32)
    made: Tensor = ops.nanmedian(_selected(held, mask, math.nan), _dims(dim, input.ndim)[0], keepdim)[0]
    if input.is_floating_point():
        return made
    if bool(made.isnan().any()):
        raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
    whole: Tensor = made.to(dtype or input.dtype)
    return whole


def logsumexp(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The logarithm of the sum of exponentials (torch.masked.logsumexp)."""
    least = -math.inf if input.is_complex() else _least("logsumexp", input)
    held = input if mask is None else _selected(input, mask, least)
    made: Tensor = held.logsumexp(_dims(dim, input.ndim), keepdim).to(dtype or input.dtype)
    return made


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: Any = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    """The logarithm of the sum of two exponentials, with a mask for each (torch.masked.logaddexp)."""
    one = input if input_mask is None else _selected(input, input_mask, _least("logaddexp", input))
    two = other if other_mask is None else _selected(other, other_mask, _least("logaddexp", other))
    made: Tensor = ops.logaddexp(one, two).to(dtype or input.dtype)
    return made


def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The vector norm (torch.masked.norm)."""
    held = _selected(input, mask, math.inf if ord == -math.inf else 0)
    order = 2.0 if ord is None else ord
    made: Tensor = ops.linalg_vector_norm(
        held, order, _dims(dim, input.ndim), bool(keepdim), dtype=dtype or input.dtype
    )
    return made


def var(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The variance (torch.masked.var). Raises AssertionError for both `unbiased` and `correction`."""
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of unbiased and correction may be given")
    less = (0.0 if unbiased is False else 1.0) if correction is None else float(correction)
    wanted = dtype or (input.dtype if input.is_floating_point() or input.is_complex() else dtypes.float32)
    dims = _dims(dim, input.ndim)
    count = _counted(input, dims, True, mask)
    away = input - sum(input, dim, keepdim=True, dtype=wanted, mask=mask) / count
    total = sum(away * away.conj(), dim, keepdim=keepdim, dtype=wanted, mask=mask)
    count = count.reshape(total.shape)
    if less:
        count = (count.to(total.real.dtype) - less).clamp(min=0)
    made: Tensor = (total / count).to(wanted)
    return made


def std(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The standard deviation (torch.masked.std). Raises as `var` does."""
    made: Tensor = var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask).sqrt()
    return made


def _normalized(
    function: Callable[..., Tensor], name: str, identity: Callable[[str, Tensor], float]
) -> Callable[..., Tensor]:
    def normalized(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
        held = input if mask is None else _selected(input, mask, identity(name, input))
        return function(held, _dims(dim, input.ndim)[0], dtype=dtype or input.dtype)

    normalized.__name__ = name
    normalized.__qualname__ = name
    normalized.__doc__ = f"{name} of the selected elements; the others are the function's limit (torch.masked.{name})."
    return normalized


softmax = _normalized(F.softmax, "softmax", _least)
log_softmax = _normalized(F.log_softmax, "log_softmax", _least)
softmin = _normalized(F.softmin, "softmin", _most)


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The selected elements over their norm, which is at least eps (torch.masked.normalize)."""
    length = norm(input, ord, dim, keepdim=True, dtype=dtype or input.dtype, mask=mask)
    made: Tensor = _selected(input, mask, 0) / length.clamp(min=eps)
    return made


__getattr__ = names_of_paths(__name__)

"""interpolate with antialias: each dimension is multiplied by a matrix of the filter's weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradwire._base import dtypes
from gradwire._functions.create import tensor
from gradwire._tensor import ops
from gradwire._tensor.batching import restored
from gradwire._tensor.tensor import Tensor

_CUBIC = -0.5


def _triangle(x: float) -> float:
    return max(0.0, 1.0 - abs(x))


def _cubic(x: float) -> float:
    """Keys' cubic filter with a = -0.5, as PyTorch takes for antialiasing."""
    x = abs(x)
    if x < 1.0:
        return ((_CUBIC + 2.0) * x - (_CUBIC + 3.0)) * x * x + 1
    if x < 2.0:
        return (((x - 5.0) * x + 8.0) * x - 4.0) * _CUBIC
    return 0.0


_FILTERS: dict[str, tuple[Callable[[float], float], float]] = {"bilinear": (_triangle, 1.0), "bicubic": (_cubic, 2.0)}


def _weights(count: int, wanted: int, scale: float, mode: str) -> np.ndarray[Any, Any]:
    """The matrix (wanted, count) of the weights of a dimension's elements."""
    filtered, width = _FILTERS[mode]
    support = width * scale if scale >= 1.0 else width
    shrink = 1.0 / scale if scale >= 1.0 else 1.0
    made = np.zeros((wanted, count))
    for place in range(wanted):
        center = scale * (place + 0.5)
        first = max(int(center - support + 0.5), 0)
        end = min(int(center + support + 0.5), count)
        row = np.array([filtered((at - center + 0.5) * shrink) for at in range(first, end)])
        made[place, first:end] = row / row.sum() if row.sum() else row
    return made


def _scale(count: int, wanted: int, given: float | None, align_corners: bool) -> float:
    if align_corners:
        return (count - 1) / (wanted - 1) if wanted > 1 else 0.0
    return 1.0 / given if given else count / wanted


def interpolate_antialias(
    input: Tensor,
    size: int | Sequence[int] | None,
    scale_factor: Sequence[float] | None,
    mode: str,
    align_corners: bool | None,
    recompute_scale_factor: bool | None,
    scales: Sequence[float | None] = (None, None),
) -> Tensor:
    """Images (N, C, H, W) at another size; torch.nn.functional.interpolate with antialias.

    scales: factors for the positions beside `size`; without them the quotients of the sizes. Raises ValueError for
    modes other than bilinear and bicubic, for other shapes, and for both or none of `size` and `scale_factor`.
    """
    if mode not in _FILTERS or input.ndim != 4:
        raise ValueError(
            "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input"
        )
    if (size is None) == (scale_factor is None):
        raise ValueError("either size or scale_factor should be defined, and not both")
    sides = [int(side) for side in input.shape[2:]]
    factors = scales
    if size is not None:
        wanted = [size, size] if isinstance(size, int) else [int(side) for side in size]
    else:
        assert scale_factor is not None
        wanted = [math.floor(side * factor) for side, factor in zip(sides, scale_factor, strict=True)]
        factors = (None, None) if recompute_scale_factor else scale_factor
    dtype = input.dtype if input.is_floating_point() else dtypes.float32
    rows, columns = (
        tensor(
            _weights(side, want, _scale(side, want, factor, bool(align_corners)), mode),
            dtype=dtype,
            device=input.device,
        )
        for side, want, factor in zip(sides, wanted, factors, strict=True)
    )
    with restored(None):  # to autocast it is no product
        made: Tensor = ops.matmul(rows, ops.matmul(input.to(dtype), columns.mT))
    if input.dtype is dtypes.uint8:
        made = made.round().clamp(0, 255).to(dtypes.uint8)
    return made

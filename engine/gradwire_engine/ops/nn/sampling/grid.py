"""grid_sample: samples an image at real-valued positions.

Along each dimension a position has a few neighbours with weights. The result is the sum of the gathered elements,
each times the product of its weights. All steps are ops, so derivatives of any order follow.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from gradwire_engine.core.device import Array, module_of
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import indexing
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import cast, expand, neg
from gradwire_engine.ops.base.fill import where, zeros
from gradwire_engine.ops.elementwise.binary import clamp
from gradwire_engine.ops.elementwise.unary import abs as absolute
from gradwire_engine.ops.index.gather import gather
from gradwire_engine.ops.nn.sampling.resize import cubic
from gradwire_engine.ops.shape.shape import reshape, select

# A neighbour: its index along one dimension, and its weight (None means 1).
Tap = tuple[Any, Any]


@op(name="_beside", cost=indexing(4))
def _beside(xp: Any, input: Array, grid: Array) -> Array:
    """The input unchanged. The grid is a formal argument, so that it gets a gradient of zeros."""
    return xp.array(input)


_beside.grad(input=lambda g: g, grid=lambda g, grid_meta: zeros(g, grid_meta.shape)).tangent("linear")


def _array(value: Any) -> Any:
    return value.array if type(value) is Tensor else value


def _like(source: Any, array: Any) -> Any:
    """Convert an array to the type of `source`: a Tensor without grad, or an array."""
    return Tensor(array) if type(source) is Tensor else array


def _unnormalized(place: Any, size: int, align: bool) -> Any:
    """Map positions from [-1, 1] to element indices; -1 and 1 are the outer elements' centres, or their outer edges."""
    return (place + 1) * ((size - 1) / 2) if align else ((place + 1) * size - 1) / 2


def _inside(place: Any, size: int, padding: str, align: bool) -> Any:
    """Move positions into the image: "zeros" keeps them, "border" clamps, "reflection" reflects at the edges."""
    if padding == "zeros":
        return place
    if padding == "reflection":
        low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
        place = _reflected(place, low, span) if span else place * 0
    return clamp(place, 0, size - 1)


def _reflected(place: Any, low: float, span: float) -> Any:
    away = absolute(place - low)
    xp = module_of(_array(away))
    periods = xp.floor(_array(away) / span)
    rest = away - _like(away, periods * span)
    odd = _like(away, periods % 2 == 1)
    return where(odd, neg(rest) + span, rest) + low


def _taps(place: Any, size: int, mode: str, padding: str, align: bool) -> list[Tap]:
    """Neighbours of each position along one dimension."""
    real = _unnormalized(place, size, align)
    xp = module_of(_array(real))
    if mode == "nearest":
        return [(xp.rint(_array(_inside(real, size, padding, align))), None)]
    if mode == "bilinear":
        real = _inside(real, size, padding, align)
        first = xp.floor(_array(real))
        share = real - _like(real, first)
        return [(first, 1 - share), (first + 1, share)]
    first = xp.floor(_array(real))
    weights = cubic(real - _like(real, first))
    return [
        (_inside(first + step, size, padding, align), weight)
        for step, weight in zip(range(-1, 3), weights, strict=True)
    ]


def _gathered(input: Any, positions: list[Any], sizes: tuple[int, ...]) -> Any:
    """Gather the elements at indices (n, points) per dimension, zeros outside: (n, c, points)."""
    xp = module_of(_array(input))
    inside: Any = True
    flat: Any = 0
    for position, size in zip(positions, sizes, strict=True):
        held = (position >= 0) & (position <= size - 1)
        inside = inside & held
        flat = flat * size + xp.where(held, position, 0).astype(np.int64)
    shape = (input.shape[0], input.shape[1], flat.shape[-1])
    index = expand(_like(input, flat[:, None]), shape)
    found = gather(reshape(input, (*input.shape[:2], math.prod(sizes))), 2, index)
    return where(_like(input, inside[:, None]), found, 0)


def _check(input: Any, grid: Any, mode: str, padding: str) -> None:
    refuse: Callable[[Reason, str], None] = _raise
    if mode not in ("bilinear", "nearest", "bicubic"):
        refuse(
            Reason.ARGUMENT_VALUE,
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'",
        )
    if padding not in ("zeros", "border", "reflection"):
        refuse(
            Reason.ARGUMENT_VALUE,
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding}'",
        )
    if input.ndim not in (4, 5) or input.ndim != grid.ndim:
        refuse(
            Reason.RUNTIME,
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got input with sizes "
            f"{list(input.shape)} and grid with sizes {list(grid.shape)}",
        )
    if input.shape[0] != grid.shape[0]:
        refuse(
            Reason.RUNTIME,
            "grid_sampler(): expected grid and input to have same batch size, but got input with sizes "
            f"{list(input.shape)} and grid with sizes {list(grid.shape)}",
        )
    if grid.shape[-1] != input.ndim - 2:
        refuse(
            Reason.RUNTIME,
            f"grid_sampler(): expected grid to have size {input.ndim - 2} in last dimension, but got grid with sizes "
            f"{list(grid.shape)}",
        )
    if 0 in input.shape[2:]:
        refuse(
            Reason.RUNTIME,
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes "
            f"{list(input.shape)}",
        )
    if input.dtype != grid.dtype:
        refuse(Reason.RUNTIME, "grid_sampler(): expected input and grid to have same dtype")
    if mode == "bicubic" and input.ndim == 5:
        refuse(Reason.RUNTIME, "grid_sampler(): bicubic interpolation only supports 4D input")


def _raise(reason: Reason, message: str) -> None:
    raise EngineError(reason, message)


@composite(reads_values=True)
def grid_sample(
    input: Array,
    grid: Array,
    mode: Literal["bilinear", "nearest", "bicubic"] = "bilinear",
    padding_mode: Literal["zeros", "border", "reflection"] = "zeros",
    align_corners: bool | None = None,
) -> Any:
    """Sample the image at the grid's positions (torch.nn.functional.grid_sample).

    input: (n, c, h, w) or (n, c, d, h, w); grid: (n, ..., 2 or 3), x first, from -1 to 1. mode: "bilinear", "nearest"
    or "bicubic"; padding_mode: "zeros", "border" or "reflection". Raises EngineError: ARGUMENT_VALUE, RUNTIME.
    """
    _check(input, grid, mode, padding_mode)
    align, sizes = bool(align_corners), tuple(input.shape[2:])
    samples, made = grid.shape[0], grid.shape[1:-1]
    points = math.prod(made)
    rows = reshape(grid, (samples, points, len(sizes)))
    axes = [
        _taps(select(rows, 2, len(sizes) - 1 - axis), size, mode, padding_mode, align)
        for axis, size in enumerate(sizes)
    ]
    result: Any = None
    for chosen in itertools.product(*axes):
        part = _gathered(input, [position for position, _ in chosen], sizes)
        for _, weight in chosen:
            if weight is not None:
                part = part * reshape(weight, (samples, 1, points))
        result = part if result is None else result + part
    if mode == "nearest":
        result = _beside(result, grid)
    if result.dtype != input.dtype:  # bfloat16 positions are computed in float32
        result = cast(result, input.dtype)
    return reshape(result, (samples, input.shape[1], *made))


grid_sample.unsupported("bic", "grid_sampler_2d_cpu_kernel_impl")

"""interpolate: resizing of images.

Every mode works on one dimension after another. The nearest modes select elements (`take_positions`); the others
multiply each dimension by a matrix of weights, whose transpose is the adjoint.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import counted
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.base.precision import through_float32
from gradwire_engine.ops.nn.pooling.pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
)
from gradwire_engine.ops.nn.pooling.primitives import apply_weights, resized_cost
from gradwire_engine.ops.shape.axis_gather import build_positions, take_positions

Ints = Any
_RANKS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
_NODES = {"linear": "Linear1D", "bilinear": "Bilinear2D", "bicubic": "Bicubic2D", "trilinear": "Trilinear3D"}
_SHARPNESS = -0.75  # parameter of the cubic kernel


def cubic(t: Any) -> list[Any]:
    """Weights of the four neighbours of a point at fraction t between the second and the third."""
    a = _SHARPNESS

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _weights(size: int, made: int, mode: str, align: bool, scale: float | None) -> Any:
    """Weight of each of `size` input positions for each of the `made` output positions."""
    place = np.arange(made, dtype=np.float64)
    if align:
        source = place * ((size - 1) / (made - 1) if made > 1 else 0.0)
    else:
        source = (place + 0.5) * (1 / scale if scale else size / made) - 0.5
    weights = np.zeros((made, size))
    if mode == "bicubic":
        first = np.floor(source)
        taps = list(zip(range(-1, 3), cubic(source - first), strict=True))
    else:
        source = np.maximum(source, 0)
        first = np.minimum(np.floor(source), size - 1)
        taps = [(0, 1 - (source - first)), (1, source - first)]
    for step, share in taps:
        np.add.at(weights, (np.arange(made), np.clip(first + step, 0, size - 1).astype(np.int64)), share)
    return weights


def _matrices(xp: Any, dtype: Any, sizes: Ints, made: Ints, mode: str, align: bool, scales: Ints) -> list[Array]:
    return [
        xp.asarray(_weights(size, count, mode, align, scale), dtype)
        for size, count, scale in zip(sizes, made, scales, strict=True)
    ]


def _resampled_bytes(xp: Any, input: Array, size: Ints, mode: str, align: bool, scales: Ints) -> Array:
    """Resize uint8 images as PyTorch does: with fixed-point weights, rounded after each dimension."""
    spatial = len(size)
    for axis in range(spatial - 1, -1, -1):
        place = input.ndim - spatial + axis
        weights = _weights(input.shape[place], size[axis], mode, align, scales[axis])
        bits = 0
        while bits < 22 and int(0.5 + weights.max() * (1 << (bits + 1))) < 1 << 15:
            bits += 1
        whole = np.trunc(weights * (1 << bits) + np.copysign(0.5, weights)).astype(np.int64)
        lines = xp.moveaxis(input, place, -1).astype(np.int64) @ xp.asarray(whole.T)
        rounded = xp.clip((lines + ((1 << bits) >> 1)) >> bits, 0, 255).astype(dtypes.uint8)
        input = xp.moveaxis(rounded, -1, place)
    return xp.ascontiguousarray(input)


@op(
    name="_resample",
    node=lambda input, size, mode, align, scales: f"Upsample{_NODES[mode]}Backward0",
    cost=counted(resized_cost, 2.0),
)
@through_float32
def _resample(xp: Any, input: Array, size: Ints, mode: str, align: bool, scales: Ints) -> Array:
    admit((*input.shape[: -len(size)], *size), input.dtype)
    if input.dtype == dtypes.uint8:
        return _resampled_bytes(xp, input, size, mode, align, scales)
    matrices = _matrices(xp, input.dtype, input.shape[-len(size) :], size, mode, align, scales)
    return apply_weights(xp, xp.ascontiguousarray(input), matrices)


_resample.works_in(forward=0.7, backward=5)


@op(name="_resample_adjoint", cost=counted(resized_cost, 2.0))
@through_float32
def _resample_adjoint(xp: Any, g: Array, size: Ints, mode: str, align: bool, scales: Ints) -> Array:
    """Gradient of an input of spatial sizes `size`."""
    matrices = _matrices(xp, g.dtype, size, g.shape[-len(size) :], mode, align, scales)
    return apply_weights(xp, xp.ascontiguousarray(g), [matrix.T for matrix in matrices])


_resample.sized_by(lambda input, size, *rest: math.prod(input.shape[: -len(size)]) * math.prod(size) * input.itemsize)
_resample_adjoint.sized_by(lambda g, size, *rest: math.prod(g.shape[: -len(size)]) * math.prod(size) * g.itemsize)
_resample.grad(
    input=lambda g, input_meta, size, mode, align, scales: _resample_adjoint(
        g, input_meta.shape[-len(size) :], mode, align, scales
    )
).tangent("linear")
_resample_adjoint.grad(
    g=lambda g, g_meta, size, mode, align, scales: _resample(g, g_meta.shape[-len(size) :], mode, align, scales)
).tangent("linear")


def _nearest(size: int, made: int, scale: float | None, exact: bool) -> tuple[int, ...]:
    """Input position of each output position, computed in float32 as in PyTorch."""
    step = np.float32(1 / scale) if scale else np.float32(size) / np.float32(made)
    place = np.arange(made, dtype=np.float32) + np.float32(0.5 if exact else 0)
    return tuple(np.minimum(np.floor(place * step), size - 1).astype(np.int64).tolist())


def _targets(input: Any, size: Any, scale_factor: Any, recompute: bool | None) -> tuple[Any, Any]:
    """Output sizes, and the given scale per dimension or None. Raises EngineError: ARGUMENT_VALUE."""
    spatial = input.ndim - 2
    if size is not None and scale_factor is not None:
        raise EngineError(Reason.ARGUMENT_VALUE, "only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise EngineError(Reason.ARGUMENT_VALUE, "either size or scale_factor should be defined")
    given = size if scale_factor is None else scale_factor
    given = tuple(given) if isinstance(given, list | tuple) else (given,) * spatial
    if len(given) != spatial:
        raise EngineError(
            Reason.ARGUMENT_VALUE,
            f"Input and {'output' if scale_factor is None else 'scale_factor'} must have the same number of spatial "
            f"dimensions, but got input with spatial dimensions of {list(input.shape[2:])} and {list(given)}.",
        )
    if scale_factor is None:
        if recompute:
            raise EngineError(
                Reason.ARGUMENT_VALUE,
                "recompute_scale_factor is not meaningful with an explicit size.",
            )
        return given, (None,) * spatial
    sizes = tuple(math.floor(n * factor) for n, factor in zip(input.shape[2:], given, strict=True))
    return sizes, (None,) * spatial if recompute else tuple(map(float, given))


@composite
def interpolate(
    input: Array,
    size: Ints | None = None,
    scale_factor: list[float] | None = None,
    mode: Literal["nearest", "linear", "bilinear", "bicubic", "trilinear", "area", "nearest-exact"] = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """Resize the last one to three dimensions (torch.nn.functional.interpolate).

    input: (n, c, ...). size, scale_factor: one for all dimensions, or one each. mode: "nearest", "nearest-exact",
    "linear", "bilinear", "bicubic", "trilinear" or "area".
    Raises EngineError: ARGUMENT_VALUE, RUNTIME, NOT_SUPPORTED for antialias.
    """
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise EngineError(
            Reason.ARGUMENT_VALUE,
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | "
            "trilinear",
        )
    spatial = input.ndim - 2
    sizes, scales = _targets(input, size, scale_factor, recompute_scale_factor)
    if antialias:
        raise EngineError(Reason.NOT_SUPPORTED, "interpolate: antialias is not implemented; use antialias=False")
    if spatial not in (1, 2, 3) or mode not in (*_RANKS, "nearest", "nearest-exact", "area"):
        raise EngineError(
            Reason.NOT_SUPPORTED,
            "Input Error: Only 3D, 4D and 5D input Tensors supported (got "
            f"{input.ndim}D) for the modes: nearest | linear | bilinear | bicubic | trilinear | area | nearest-exact "
            f"(got {mode})",
        )
    if min(sizes) < 1 or 0 in input.shape[1:]:
        raise EngineError(
            Reason.RUNTIME,
            "Input and output sizes should be greater than 0, but got input "
            f"{list(input.shape[2:])} output {list(sizes)}",
        )
    if mode == "area":
        pool = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[spatial - 1]
        return pool(input, sizes)
    if mode.startswith("nearest"):
        exact = mode == "nearest-exact"
        each = zip(input.shape[2:], sizes, scales, strict=True)
        lines = build_positions("interpolate", sizes, lambda: tuple(_nearest(*one, exact) for one in each))
        return take_positions(input, lines, f"UpsampleNearest{'Exact' if exact else ''}{spatial}DBackward0")
    if _RANKS[mode] != spatial:
        raise EngineError(
            Reason.NOT_SUPPORTED, f"Got {input.ndim}D input, but {mode} mode needs {_RANKS[mode] + 2}D input"
        )
    return _resample(input, sizes, mode, bool(align_corners), scales)


for _mode, _kernel, _taken in (
    ("nearest", "compute_indices_weights_nearest", ("uint8",)),
    ("nearest-exact", "compute_indices_weights_nearest", ("uint8",)),
    ("linear", "compute_indices_weights_linear", ()),
    ("bilinear", "compute_indices_weights_linear", ("uint8",)),
    ("bicubic", "compute_indices_weights_cubic", ("uint8",)),
    ("trilinear", "compute_indices_weights_linear", ()),
):
    interpolate.unsupported("bic", _kernel, except_for=_taken, when=interpolate.given("mode", _mode))

"""Statistics of samples: histograms, covariance and correlation; distances, renorm, the trapezoidal rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import Number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import counted
from gradwire_engine.op.op import op
from gradwire_engine.op.value_access import read_array
from gradwire_engine.ops.base.basic import cast, conj, div, real
from gradwire_engine.ops.base.checks import admit, normalize_dim
from gradwire_engine.ops.base.fill import where, zeros
from gradwire_engine.ops.elementwise.binary import clamp
from gradwire_engine.ops.elementwise.convert import complex_, imag
from gradwire_engine.ops.elementwise.unary import sqrt
from gradwire_engine.ops.linalg.matrix import matmul, matrix_t
from gradwire_engine.ops.reduce.reduce import mean, vector_norm
from gradwire_engine.ops.reduce.reduce import sum as total
from gradwire_engine.ops.reduce.scan import cumsum
from gradwire_engine.ops.shape.shape import diagonal, reshape, slice_, squeeze, unsqueeze


def _bounds(xp: Any, input: Array, low: float, high: float) -> tuple[float, float]:
    """Range of a histogram: the data's range if low equals high, and at least 2 wide. Raises EngineError: RUNTIME."""
    if low > high:
        raise EngineError(Reason.RUNTIME, "torch.histc: max must be larger than min")
    if low == high and input.size:
        low, high = float(input.min()), float(input.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise EngineError(Reason.RUNTIME, f"torch.histc: range of [{low}, {high}] is not finite")
    return (low - 1, high + 1) if low == high else (low, high)


@op(cost=counted(lambda input, bins, *rest: 60.0 * input.size + 10.0 * bins))
def histc(xp: Any, input: Array, bins: int = 100, min: float = 0.0, max: float = 0.0) -> Array:
    """Histogram: count the elements in each of `bins` equal bins from min to max (torch.histc).

    min == max means the range of the elements. Elements outside the range, and nan, are not counted.
    Raises EngineError: RUNTIME, NOT_SUPPORTED for dtypes other than float.
    """
    if dtypes.category(input.dtype) != dtypes.FLOAT:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"histogram_cpu\" not implemented for '{dtypes.TITLES[input.dtype]}'")
    if bins <= 0:
        raise EngineError(Reason.RUNTIME, f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    admit((bins,), input.dtype)
    low, high = _bounds(xp, input, min, max)
    kind = input.dtype.type
    values = input.reshape(-1)
    values = values[(values >= kind(low)) & (values <= kind(high))]
    places = ((values - kind(low)) * kind(bins) / (kind(high) - kind(low))).astype(np.int64)
    places = xp.minimum(places, bins - 1)
    return xp.bincount(places, minlength=bins).astype(input.dtype)


histc.works_in(forward=1.6)


def _check_weights(name: str, weights: Any, count: int, whole: bool) -> None:
    if weights is None:
        return
    kind = dtypes.category(weights.dtype)
    if weights.ndim > 1:
        raise EngineError(
            Reason.RUNTIME, f"cov(): expected {name} to have one or fewer dimensions but got {weights.ndim} dimensions"
        )
    if (kind != dtypes.INT) if whole else (kind != dtypes.FLOAT):
        raise EngineError(
            Reason.RUNTIME,
            f"cov(): expected {name} to have {'integral' if whole else 'floating point'} dtype but got "
            f"{name} with {dtypes.TITLES[weights.dtype]} dtype",
        )
    if (weights.shape[0] if weights.ndim else 1) != count:
        raise EngineError(
            Reason.RUNTIME,
            f"cov(): expected {name} to have the same numel as there are observations in the input but got "
            f"{weights.shape[0] if weights.ndim else 1} numel and {count} observations",
        )
    if not bool((read_array(weights) >= 0).all()):  # nan counts as negative
        raise EngineError(Reason.RUNTIME, f"cov(): {name} cannot be negative")


@composite
def cov(input: Array, *, correction: int = 1, fweights: Array | None = None, aweights: Array | None = None) -> Any:
    """Covariance matrix of variables, one per row (torch.cov).

    fweights: integer frequency of each column. aweights: float weight of each column.
    Raises EngineError: RUNTIME for more than two dimensions, for weights of another shape or dtype, and for weights
    that are negative or sum to zero.
    """
    if input.ndim > 2:
        raise EngineError(
            Reason.RUNTIME,
            f"cov(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions",
        )
    if input.dtype == dtypes.bool_:
        raise EngineError(Reason.RUNTIME, "cov(): bool dtype is not supported for input")
    rows = reshape(input, (1, -1)) if input.ndim < 2 else input
    count = rows.shape[1]
    _check_weights("fweights", fweights, count, whole=True)
    _check_weights("aweights", aweights, count, whole=False)
    if dtypes.category(rows.dtype) < dtypes.FLOAT:
        rows = cast(rows, dtypes.default())
    weights = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    if weights is None:
        normal: Any = count - correction
        centred = rows - mean(rows, 1, keepdim=True)
        spread = centred
    else:
        weights = reshape(weights, (-1,))
        weight_sum = total(weights)
        if not bool(read_array(weight_sum)):
            raise EngineError(Reason.RUNTIME, "cov(): weights sum to zero, can't be normalized")
        centred = rows - unsqueeze(div(total(rows * weights, 1), weight_sum), 1)
        spread = centred * weights
        if aweights is None or not correction:
            normal = weight_sum - correction
        else:
            normal = weight_sum - div(total(weights * aweights), weight_sum) * correction
    bottom = max(normal, 0) if isinstance(normal, int) else clamp(normal, 0)
    made = matmul(spread, conj(matrix_t(centred)))
    by = bottom if hasattr(bottom, "dtype") else float(bottom)
    return squeeze(made / by)


@composite
def corrcoef(input: Array) -> Any:
    """Correlation coefficients of variables, one per row, in [-1, 1] (torch.corrcoef).

    Raises EngineError: RUNTIME for more than two dimensions.
    """
    if input.ndim > 2:
        raise EngineError(
            Reason.RUNTIME,
            f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions",
        )
    shared = cov(input)
    if not shared.ndim:
        return shared / shared
    deviations = sqrt(real(diagonal(shared)) if dtypes.category(shared.dtype) == dtypes.COMPLEX else diagonal(shared))
    made = shared / unsqueeze(deviations, 1) / unsqueeze(deviations, 0)
    if dtypes.category(made.dtype) == dtypes.COMPLEX:
        return complex_(clamp(real(made), -1, 1), clamp(imag(made), -1, 1))
    return clamp(made, -1, 1)


@composite
def dist(input: Array, other: Array, p: float = 2) -> Any:
    """p-norm of input - other; shapes broadcast (torch.dist)."""
    return vector_norm(input - other, float(p))


@composite(in_place=True)
def renorm(input: Array, p: float, dim: int, maxnorm: float) -> Any:
    """Scale each slice along `dim` down to a p-norm of at most maxnorm (torch.renorm).

    Raises EngineError: RUNTIME for fewer than two dimensions, p <= 0 or maxnorm < 0.
    """
    if p <= 0:
        raise EngineError(Reason.RUNTIME, "renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise EngineError(Reason.RUNTIME, f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    if input.ndim < 2:
        raise EngineError(Reason.RUNTIME, f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    dim = normalize_dim(dim, input.ndim)
    others = [axis for axis in range(input.ndim) if axis != dim]
    lengths = vector_norm(input, float(p), others, True)
    return input * where(lengths > maxnorm, maxnorm / (lengths + 1e-7), 1)


# The trapezoidal rule.


def _sides(y: Any, dim: int) -> tuple[Any, Any]:
    return slice_(y, dim, 0, -1, 1), slice_(y, dim, 1, None, 1)


def _widths(name: str, y: Any, x: Any, dim: int) -> Any:
    """Width of each trapezoid, in a shape that broadcasts with y's differences. Raises EngineError: RUNTIME."""
    if x.ndim == 1:
        if x.shape[0] != y.shape[dim]:
            raise EngineError(
                Reason.RUNTIME,
                f"{name}: There must be one `x` value for each sample point, got {x.shape[0]} and {y.shape[dim]}",
            )
        before, after = _sides(x, 0)
        return reshape(after - before, (-1, *[1] * (y.ndim - dim - 1)))
    if x.ndim < y.ndim:
        x = reshape(x, (*[1] * (y.ndim - x.ndim), *x.shape))
    before, after = _sides(x, dim)
    return after - before


def _trapezoids(name: str, y: Any, x: Any, dx: Any, dim: int) -> Any:
    """Twice the area of each trapezoid."""
    before, after = _sides(y, dim)
    if x is None:
        return (before + after) * (1 if dx is None else dx)
    return (before + after) * _widths(name, y, x, dim)


def _curve(name: str, y: Any, x: Any, dx: Any, dim: int) -> int:
    if x is not None and dx is not None:
        raise EngineError(Reason.ARGUMENT_TYPE, f"{name}() takes `x` or `dx`, not both")
    if y.dtype == dtypes.bool_ or (x is not None and x.dtype == dtypes.bool_):
        raise EngineError(Reason.RUNTIME, f"{name}: received a bool input for `x` or `y`, but bool is not supported")
    return normalize_dim(dim, y.ndim)


@composite
def trapezoid(y: Array, x: Array | None = None, *, dx: Number | None = None, dim: int = -1) -> Any:
    """Integrate y along `dim` by the trapezoidal rule, with points at x or dx apart (torch.trapezoid).

    Raises EngineError: RUNTIME for bool, or for an x of another size; ARGUMENT_TYPE for both x and dx.
    """
    dim = _curve("trapezoid", y, x, dx, dim)
    if not y.shape[dim]:
        return zeros(y, (*y.shape[:dim], *y.shape[dim + 1 :]))
    if x is None:  # every point has weight 1, the first and the last 1/2
        ends = slice_(y, dim, 0, 1, 1) + slice_(y, dim, -1, None, 1)
        return (total(y, dim) - squeeze(ends, dim) * 0.5) * (1.0 if dx is None else dx)
    return total(_trapezoids("trapezoid", y, x, dx, dim), dim) / 2.0


@composite
def cumulative_trapezoid(y: Array, x: Array | None = None, *, dx: Number | None = None, dim: int = -1) -> Any:
    """Cumulative integral of y along `dim` by the trapezoidal rule (torch.cumulative_trapezoid); see trapezoid."""
    dim = _curve("cumulative_trapezoid", y, x, dx, dim)
    return cumsum(_trapezoids("cumulative_trapezoid", y, x, dx, dim) / 2.0, dim)

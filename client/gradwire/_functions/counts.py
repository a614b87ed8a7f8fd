"""Counts and differences: histograms of one or several dimensions, numerical gradients, indices of elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradwire._base import dtypes
from gradwire._base.errors import GradwireIndexError, GradwireNotImplementedError, GradwireTypeError, refuse
from gradwire._base.modes import no_grad
from gradwire._functions.create import full, linspace, zeros
from gradwire._proxy.results import return_type
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor

__all__ = ["gradient", "histogram", "histogramdd", "nonzero_static", "unravel_index"]


def histogram(
    input: Tensor,
    bins: int | Tensor,
    *,
    range: tuple[float, float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
    out: Any = None,
) -> Any:
    """How many elements are in each bin, and the bins' edges (torch.histogram). Reads two values without a range.

    bins: a number of equal bins between the bounds of `range` (the least and the greatest element), or the edges. The
    last bin includes its end. weight: what each element adds. density: divides by the sum and by the bins' widths.
    """
    if isinstance(bins, Tensor):
        if bins.dtype is not input.dtype:
            raise refuse(
                "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype "
                f"{input.dtype} and bins for dimension 0 with dtype {bins.dtype}"
            )
        _refuse_whole(input)
        edges = bins.detach()
    else:
        edges = _edges(input.detach().reshape(-1, 1), [bins], range)[0]
    counts = _counted(input.detach().reshape(-1, 1), [edges], weight, density)
    if out is not None:
        counts, edges = out[0].copy_(counts), out[1].copy_(edges)
    return return_type("histogram", ("hist", "bin_edges"))(counts, edges)


def histogramdd(
    input: Tensor,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    """How many points are in each bin of a grid, and the edges per dimension (torch.histogramdd).

    input: (..., n) points of n dimensions. bins: a number for all dimensions, one for each, or edges for each. range:
    the bounds of each dimension, one after the other.
    """
    if input.ndim < 2:
        raise refuse("torch.histogramdd: input tensor should have at least 2 dimensions")
    count = input.shape[-1]
    points = input.detach().reshape(-1, count)
    given: list[Any] = [bins] * count if isinstance(bins, int) else list(bins)
    if len(given) != count:
        raise refuse(
            f"torch.histogramdd: expected {count} bin counts or sequences of edges for input with {count} dimensions, "
            f"but got {len(given)}"
        )
    edges: list[Tensor] = given if isinstance(given[0], Tensor) else _edges(points, given, range)
    counts = _counted(points, edges, None if weight is None else weight.detach().flatten(), density)
    return return_type("histogramdd", ("hist", "bin_edges"))(counts, tuple(edges))


def _refuse_whole(input: Tensor) -> None:
    if not input.is_floating_point() or input.itemsize == 2:
        raise GradwireNotImplementedError(f"\"histogramdd\" not implemented for '{input.dtype.title}'")


def _edges(points: Tensor, bins: Sequence[int], bounds: Sequence[float] | None) -> list[Tensor]:
    """Edges of equal bins for each dimension of (n, count) points."""
    _refuse_whole(points)
    if bounds is not None and len(bounds) != 2 * len(bins):
        raise refuse(
            f"torch.histogramdd: for a {len(bins)}-dimensional histogram range should have {2 * len(bins)} elements, "
            f"but got {len(bounds)}"
        )
    if bounds is None:
        if len(points):
            pairs = ops.stack([points.amin(0), points.amax(0)], 1).tolist()
        else:
            pairs = [[0.0, 1.0]] * len(bins)
    else:
        pairs = [[float(low), float(high)] for low, high in zip(bounds[::2], bounds[1::2], strict=True)]
    made = []
    for dim, (number, (low, high)) in enumerate(zip(bins, pairs, strict=True)):
        if number < 1:
            raise refuse(f"torch.histogramdd: bins must be > 0, but got {number} for dimension {dim}")
        if not (math.isfinite(low) and math.isfinite(high)):
            raise refuse(f"torch.histogramdd: dimension {dim}'s range [{low:g}, {high:g}] is not finite")
        if low > high:
            raise refuse(
                f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} for dimension {dim}"
            )
        if low == high:
            low, high = low - 0.5, high + 0.5
        made.append(linspace(low, high, number + 1, dtype=points.dtype, device=points.device))
    return made


def _counted(points: Tensor, edges: Sequence[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """Histogram over a grid. Points beyond the edges, and nan, are not counted."""
    with no_grad():
        sizes = [len(each) - 1 for each in edges]
        place = zeros((len(points),), dtype=dtypes.int64, device=points.device)
        inside = ops.ones_like(place, dtype=dtypes.bool_)
        for dim, (each, size) in enumerate(zip(edges, sizes, strict=True)):
            column = points[:, dim].contiguous()
            found = ops.searchsorted(each.contiguous(), column, right=True) - 1
            found = ops.where(column == each[-1], ops.full_like(found, size - 1), found)
            inside = inside & (column >= each[0]) & (column <= each[-1])
            place = place * size + found.clamp(0, size - 1)
        amount = inside.to(points.dtype)
        if weight is not None:
            if weight.numel() != len(points):
                raise refuse(
                    "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor "
                    "excluding its innermost dimension"
                )
            amount = ops.where(inside, weight.detach().flatten().to(points.dtype), ops.zeros_like(amount))
        made = zeros((math.prod(sizes),), dtype=points.dtype, device=points.device).index_add(0, place, amount)
        made = made.reshape(sizes)
        if density:
            made = made / made.sum()
            for dim, each in enumerate(edges):
                made = made / each.diff().reshape([-1 if at == dim else 1 for at in range(len(edges))])
        return made


def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Derivatives along dimensions by second-order differences, one tensor per dimension (torch.gradient).

    spacing: the distance of neighbours, one for each dimension, or the coordinates along each, a tensor. edge_order: 1
    or 2, the order at the ends. Raises RuntimeError for a dimension with fewer than edge_order + 1 elements.
    """
    dims = dims_of(dim, input.ndim)
    spacing = 1 if spacing is None else spacing
    steps = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    if len(steps) != len(dims):
        raise refuse(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() = "
            f"{len(dims)}' if dim argument is not specified, but got a list of length {len(steps)}"
        )
    if edge_order not in (1, 2):
        raise refuse("torch.gradient only supports edge_order=1 and edge_order=2.")
    for each in dims:
        if input.shape[each] < edge_order + 1:
            raise refuse("torch.gradient expected each dimension size to be at least edge_order+1")
    if not (input.is_floating_point() or input.is_complex()):
        if input.dtype is dtypes.uint8:
            raise refuse("torch.gradient does not support uint8 input.")
        input = input.to(dtypes.get_default_dtype())
    return tuple(
        [
            _along(input, each, step, edge_order)
            if isinstance(step, Tensor) and step.ndim
            else _evenly(input, each, step, edge_order)
            for each, step in zip(dims, steps, strict=True)
        ]
    )


def dims_of(dim: int | Sequence[int] | None, ndim: int) -> list[int]:
    """Dimensions counted from 0; all for None. Raises IndexError for one out of range, RuntimeError for one twice."""
    if dim is None:
        return list(range(ndim))
    most = max(ndim, 1)
    dims = [dim] if isinstance(dim, int) else list(dim)
    made = []
    for each in dims:
        if not -most <= each < most:
            raise GradwireIndexError(
                f"Dimension out of range (expected to be in range of [{-most}, {most - 1}], but got {each})"
            )
        made.append(each % most)
    if len(set(made)) < len(made):
        raise refuse(f"dim {made[-1]} appears multiple times in the list of dims")
    return made


def _evenly(input: Tensor, dim: int, step: Any, edge_order: int) -> Tensor:
    size = input.shape[dim]

    def at(place: int) -> Tensor:
        return input.narrow(dim, place % size, 1)

    if edge_order == 1:
        first, last = at(1) - at(0), at(-1) - at(-2)
    else:
        first = -1.5 * at(0) + 2 * at(1) - 0.5 * at(2)
        last = 1.5 * at(-1) - 2 * at(-2) + 0.5 * at(-3)
    middle = (input.narrow(dim, 2, size - 2) - input.narrow(dim, 0, size - 2)) / 2 if size > 2 else None
    parts = [part for part in (first, middle, last) if part is not None]
    made: Tensor = ops.cat(parts, dim) / step
    return made


def _along(input: Tensor, dim: int, places: Tensor, edge_order: int) -> Tensor:
    size = input.shape[dim]
    if places.ndim != 1 or len(places) != size:
        raise refuse(
            "torch.gradient expected each tensor to have size equal to the corresponding dimension of the input"
        )
    shape = [-1 if each == dim else 1 for each in range(input.ndim)]
    width = places.diff()

    def between(values: Tensor) -> Tensor:
        return values.reshape(shape)

    slopes = input.diff(dim=dim) / between(width)
    first, last = slopes.narrow(dim, 0, 1), slopes.narrow(dim, size - 2, 1)
    middle = None
    if size > 2:
        left, right = between(width[:-1]), between(width[1:])
        total = left + right
        below, above = slopes.narrow(dim, 0, size - 2), slopes.narrow(dim, 1, size - 2)
        middle = (below * right + above * left) / total
        if edge_order == 2:
            # The parabola through three points, at the outer one.
            bend = (above - below) / total
            first = first - bend.narrow(dim, 0, 1) * width[0]
            last = last + bend.narrow(dim, size - 3, 1) * width[-1]
    parts = [part for part in (first, middle, last) if part is not None]
    made: Tensor = ops.cat(parts, dim)
    return made


def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1, out: Tensor | None = None) -> Tensor:
    """Indices of the first `size` nonzero elements, (size, dims), filled up with `fill_value` (torch.nonzero_static).

    Raises RuntimeError for a negative `size`.
    """
    if size < 0:
        raise refuse(f"nonzero_static: 'size' must be an non-negative integer, but got: {size}")
    found: Any = input.nonzero()
    missing = full((max(size - len(found), 0), found.shape[1]), fill_value, dtype=dtypes.int64, device=input.device)
    made: Tensor = ops.cat([found[:size], missing])
    return made if out is None else out.copy_(made)


def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Coordinates in an array of a shape, a tensor per dimension, of indices into its elements (torch.unravel_index).

    Raises TypeError for indices that are no whole numbers, ValueError for a negative size.
    """
    if indices.is_floating_point() or indices.is_complex() or indices.dtype is dtypes.bool_:
        raise GradwireTypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if not isinstance(shape, (int, list, tuple)):
        raise GradwireTypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    sizes = [shape] if isinstance(shape, int) else list(shape)
    for each in sizes:
        if not isinstance(each, int):
            raise GradwireTypeError(f"expected 'shape' sequence to only contain ints, but got {type(each)}")
    if any(each < 0 for each in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(sizes)}")
    made = []
    for each in reversed(sizes):
        made.append(indices % each)
        indices = indices.div(each, rounding_mode="floor")
    return tuple(reversed(made))


def _unique(input: Tensor, sorted: bool = True, return_inverse: bool = False) -> tuple[Tensor, Tensor]:
    """Distinct elements, and each element's index among them, empty unless it is asked for (torch._unique)."""
    return _unique2(input, sorted, return_inverse)[:2]


def _unique2(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """As `_unique`, and the elements' counts (torch._unique2)."""
    found, inverse, counts = ops.unique(input, sorted, True, True)
    nothing = zeros(0, dtype=dtypes.int64, device=input.device)
    return found, inverse if return_inverse else nothing, counts if return_counts else nothing


def unique_dim(
    input: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct slices along a dimension, each slice's index among them, and their counts (torch._VF.unique_dim)."""
    found, inverse, counts = ops.unique(input, sorted, True, True, dim)
    return found, inverse, counts

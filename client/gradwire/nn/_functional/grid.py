"""Grids of sampling points in images: those of an affine map, and the older names of interpolate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire._base.errors import refuse
from gradwire._functions.create import linspace, ones
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor


def _line(count: int, align_corners: bool, theta: Tensor) -> Tensor:
    """The coordinates of a dimension's elements, in [-1, 1], rounded as PyTorch's.

    Under the identity they are those of pixels, where the slope of grid_sample depends on the last digit.
    """
    if count <= 1:
        return theta.new_zeros(count)
    line: Tensor = linspace(-1.0, 1.0, count, dtype=theta.dtype, device=theta.device)
    return line if align_corners else line * (count - 1) / count


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The points that grid_sample reads for affine maps: (N, 2, 3) to (N, H, W, 2), (N, 3, 4) to (N, D, H, W, 3).

    `size` is the output's, (N, C, H, W) or (N, C, D, H, W). Raises ValueError for a theta that is not floating,
    RuntimeError for other shapes. Like torch.nn.functional.affine_grid.
    """
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    sides = list(size[2:])
    rank = len(sides)
    if rank not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. "
            f"Got size {size}."
        )
    if any(side <= 0 for side in size):
        raise refuse(f"Expected non-zero, positive output size. Got {tuple(size)}")
    if tuple(theta.shape) != (size[0], rank, rank + 1):
        raise refuse(
            f"Expected a batch of {rank}D affine matrices of shape {(size[0], rank, rank + 1)} for size {tuple(size)}. "
            f"Got {tuple(theta.shape)}."
        )
    # The last dimension is x.
    lines: list[Any] = []
    for place, side in enumerate(sides):
        shape = [1] * rank
        shape[place] = side
        lines.append(_line(side, bool(align_corners), theta).reshape(shape).expand(sides))
    points = ops.stack([*reversed(lines), ones(sides, dtype=theta.dtype, device=theta.device)], -1)
    made = points.reshape(1, -1, rank + 1) @ theta.transpose(1, 2)
    grid: Tensor = made.reshape(size[0], *sides, rank)
    return grid

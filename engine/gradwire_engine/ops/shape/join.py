"""Joining, flipping, repeating, triangles and diagonals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import CALL, alike, counted
from gradwire_engine.op.integer_bounds import elements_and, joined, like_input
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import expand, sum_to_size
from gradwire_engine.ops.base.checks import admit, broadcast_shape, ints, normalize_dim, normalize_dims
from gradwire_engine.ops.base.fill import zeros
from gradwire_engine.ops.base.loops import ON_GPU, Loops, with_loop
from gradwire_engine.ops.base.memory_format import memory_in_order, order_of, order_of_strides, row_major
from gradwire_engine.ops.shape.join_on_gpu import join
from gradwire_engine.ops.shape.shape import (
    diagonal,
    diagonal_backward,
    permute,
    reshape,
    split,
    transpose,
    unbind,
    unsafe_split,
    unsqueeze,
)

Ints = Any


def _is_skipped(shape: tuple[int, ...]) -> bool:
    """Whether `cat` skips the tensor: PyTorch skips tensors of shape [0], whatever the other shapes."""
    return shape == (0,)


def _check_cat(shapes: list[tuple[int, ...]], dim: int) -> int:
    """Check the shapes of `cat`; return the dimension counted from the front. Raises EngineError: RUNTIME."""
    real = [(place, shape) for place, shape in enumerate(shapes) if not _is_skipped(shape)]
    if not real:  # all tensors are empty, so any dimension is allowed
        return 0
    first = real[0][1]
    for place, shape in enumerate(shapes):
        if not shape:
            raise EngineError(Reason.RUNTIME, f"zero-dimensional tensor (at position {place}) cannot be concatenated")
    axis = normalize_dim(dim, len(first))
    for place, shape in real[1:]:
        if len(shape) != len(first):
            raise EngineError(
                Reason.RUNTIME, f"Tensors must have same number of dimensions: got {len(first)} and {len(shape)}"
            )
        for other, (n, m) in enumerate(zip(first, shape, strict=True)):
            if n != m and other != axis:
                raise EngineError(
                    Reason.RUNTIME,
                    f"Sizes of tensors must match except in dimension {axis}. Expected size {n} but got size {m} for "
                    f"tensor number {place} in the list.",
                )
    return axis


def _cat_on_gpu(loops: Loops, xp: Any, tensors: list[Array], dim: int = 0) -> Array | None:
    axis = _check_cat([tensor.shape for tensor in tensors], dim)
    if any(_is_skipped(tensor.shape) for tensor in tensors):
        return None
    shape = list(tensors[0].shape)
    shape[axis] = sum(tensor.shape[axis] for tensor in tensors)
    admit(shape, tensors[0].dtype)
    return join(tensors, tuple(shape), axis)


@op(promote="same", in_place=False, cost=8)
@with_loop(_cat_on_gpu, least=ON_GPU)
def cat(xp: Any, tensors: list[Array], dim: int = 0) -> Array:
    """Concatenate tensors along `dim` (torch.cat)."""
    if not tensors:
        raise EngineError(Reason.ARGUMENT_VALUE, "torch.cat(): expected a non-empty list of Tensors")
    axis = _check_cat([tensor.shape for tensor in tensors], dim)
    real = [tensor for tensor in tensors if not _is_skipped(tensor.shape)] or tensors[:1]
    shape = list(real[0].shape)
    shape[axis] = sum(tensor.shape[axis] for tensor in real)
    admit(shape, real[0].dtype)
    if all(tensor.flags.c_contiguous for tensor in real):
        return xp.concatenate(real, axis)
    # NumPy would keep any order of dimensions that all have.
    order = _common([order_of(tensor) for tensor in tensors])
    return xp.concatenate(real, axis, out=memory_in_order(xp, shape, real[0].dtype, order))


def _common(orders: Sequence[Ints | None]) -> Ints | None:
    """The order of dimensions that all have; None, for row-major, if there is none."""
    return orders[0] if all(each == orders[0] for each in orders) else None


def _cat_parts(g: Any, tensors_meta: Sequence[Any], dim: int) -> list[Any]:
    if all(_is_skipped(meta.shape) for meta in tensors_meta):
        return [g] * len(tensors_meta)
    axis = normalize_dim(dim, g.ndim)
    lengths = [0 if _is_skipped(meta.shape) and g.ndim > 1 else meta.shape[axis] for meta in tensors_meta]
    parts = split(g, lengths, axis)
    return [
        reshape(part, (0,)) if _is_skipped(meta.shape) and g.ndim > 1 else part
        for part, meta in zip(parts, tensors_meta, strict=True)
    ]


cat.bounds_results(joined)
cat.grad(tensors=_cat_parts).tangent("linear")
split.grad(tensor=lambda gs, dim: cat(list(gs), dim)).tangent("linear")
unsafe_split.grad(tensor=lambda gs, dim: cat(list(gs), dim)).tangent("linear")


def _stack_on_gpu(loops: Loops, xp: Any, tensors: list[Array], dim: int = 0) -> Array | None:
    shape = list(tensors[0].shape)
    if any(list(tensor.shape) != shape for tensor in tensors):
        return None
    axis = normalize_dim(dim, len(shape) + 1)
    shape.insert(axis, len(tensors))
    admit(shape, tensors[0].dtype)
    return join(tensors, tuple(shape), axis)


@op(promote="same", in_place=False, cost=4)
@with_loop(_stack_on_gpu, least=ON_GPU)
def stack(xp: Any, tensors: list[Array], dim: int = 0) -> Array:
    """Stack tensors of one shape along a new dimension (torch.stack)."""
    if not tensors:
        raise EngineError(Reason.RUNTIME, "stack expects a non-empty TensorList")
    first = tensors[0].shape
    for place, tensor in enumerate(tensors):
        if tensor.shape != first:
            raise EngineError(
                Reason.RUNTIME,
                f"stack expects each tensor to be equal size, but got {list(first)} at entry 0 and "
                f"{list(tensor.shape)} at entry {place}",
            )
    admit((len(tensors), *first), tensors[0].dtype)
    if dim == 0 and first and alike(tensors) is not None and all(one.flags.c_contiguous for one in tensors):
        made = xp.empty((len(tensors), *first), tensors[0].dtype)
        xp.concatenate(tensors, 0, out=made.reshape(len(tensors) * first[0], *first[1:]))  # half of `stack`'s time
        return made
    axis = normalize_dim(dim, len(first) + 1)
    shape = (*first[:axis], len(tensors), *first[axis:])
    if axis < len(first) and (order := _common([order_of(tensor) for tensor in tensors])):
        # PyTorch takes the new dimension and the next for one, so each part keeps its channels last.
        whole = (*first[:axis], len(tensors) * first[axis], *first[axis + 1 :])
        made = memory_in_order(xp, whole, tensors[0].dtype, order)
        return xp.concatenate(tensors, axis, out=made).reshape(shape)
    order = None if axis < len(first) else _common([_order_with_one(tensor) for tensor in tensors])
    return xp.stack(tensors, axis, out=memory_in_order(xp, shape, tensors[0].dtype, order))


def _order_with_one(array: Array) -> Ints | None:
    """The order of dimensions of a tensor with one more of size 1 behind the others."""
    return order_of_strides((*array.shape, 1), (*array.strides, array.itemsize))


stack.bounds_results(joined)
stack.grad(tensors=lambda g, dim: list(unbind(g, dim))).tangent("linear")
unbind.grad(input=lambda gs, dim: stack(list(gs), dim)).tangent("linear")

# Flip, roll, rotate and repeat.


@op(cost=4)
def flip(xp: Any, input: Array, dims: Ints) -> Array:
    """Reverse the order of elements along `dims`; a copy (torch.flip)."""
    given = ints(dims)
    return xp.flip(input, normalize_dims(given, input.ndim)).copy() if given and input.ndim else input.copy()


flip.bounds_results(like_input)
flip.grad(input=lambda g, dims: flip(g, dims)).tangent("linear")


@composite
def fliplr(input: Array) -> Array:
    """Reverse the second dimension (torch.fliplr)."""
    if input.ndim < 2:
        raise EngineError(Reason.RUNTIME, "Input must be >= 2-d.")
    return flip(input, (1,))


@composite
def flipud(input: Array) -> Array:
    """Reverse the first dimension (torch.flipud)."""
    if not input.ndim:
        raise EngineError(Reason.RUNTIME, "Input must be >= 1-d.")
    return flip(input, (0,))


@op(cost=8)
def roll(xp: Any, input: Array, shifts: Ints, dims: Ints | None = ()) -> Array:
    """Shift elements cyclically along `dims`; along the flattened tensor if `dims` is empty or None (torch.roll)."""
    steps, axes = ints(shifts), () if dims is None else ints(dims)
    if not axes and len(steps) == 1:
        return xp.roll(input, steps[0])
    if not steps:
        raise EngineError(Reason.RUNTIME, "`shifts` required")
    if len(steps) != len(axes):
        raise EngineError(Reason.RUNTIME, f"shifts and dimensions must align. shifts: {len(steps)}, dims:{len(axes)}")
    return xp.roll(input, steps, tuple(normalize_dim(axis, input.ndim) for axis in axes))


roll.bounds_results(like_input)
roll.grad(input=lambda g, shifts, dims: roll(g, tuple(-step for step in ints(shifts)), dims)).tangent("linear")


@composite
def rot90(input: Array, k: int = 1, dims: Ints = (0, 1)) -> Array:
    """Rotate by 90 degrees `k` times in the plane of two dimensions, from the first to the second (torch.rot90)."""
    given = ints(dims)
    if len(given) != 2:
        raise EngineError(Reason.RUNTIME, f"expected total rotation dims == 2, but got dims = {len(given)}")
    a, b = (normalize_dim(dim, input.ndim) for dim in given)
    if a == b:
        raise EngineError(Reason.RUNTIME, "expected rotation dims to be different")
    quarter_turns = k % 4
    if quarter_turns == 2:
        return flip(input, (a, b))
    if quarter_turns == 0:
        return flip(input, ())
    return transpose(flip(input, (b,)), a, b) if quarter_turns == 1 else flip(transpose(input, a, b), (b,))


def _repeated_cost(input: Any, repeats: Ints) -> Any:
    return 4.0 * input.size * math.prod(repeats) + len(repeats) * CALL


@op(cost=counted(_repeated_cost))
def repeat(xp: Any, input: Array, repeats: Ints) -> Array:
    """Repeat the tensor along each dimension; leading dimensions are added as needed (torch.Tensor.repeat)."""
    counts = ints(repeats)
    lead = len(counts) - input.ndim
    if lead < 0:
        raise EngineError(
            Reason.RUNTIME,
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor",
        )
    shape = (1,) * lead + input.shape
    admit(tuple(count * size for count, size in zip(counts, shape, strict=True)), input.dtype)
    if any(count < 0 for count in counts):
        raise EngineError(Reason.RUNTIME, f"Trying to create tensor with negative dimension: repeats {list(counts)}")
    return xp.tile(input.reshape(shape), counts)


def _repeat_input(g: Any, input_meta: Any, repeats: Any) -> Any:
    counts = ints(repeats)
    shape = (1,) * (len(counts) - len(input_meta.shape)) + input_meta.shape
    if 0 in counts:
        return zeros(g, input_meta.shape)
    interleaved = [size for pair in zip(counts, shape, strict=True) for size in pair]
    once = [size for length in shape for size in (1, length)]
    return reshape(sum_to_size(reshape(g, interleaved), once), input_meta.shape)


repeat.bounds_results(like_input)
repeat.grad(input=_repeat_input).tangent("linear")


@composite
def tile(input: Array, dims: Ints) -> Array:
    """Repeat the tensor along its last dimensions; leading dimensions are added as needed (torch.tile)."""
    counts = ints(dims)
    return repeat(input, (1,) * (input.ndim - len(counts)) + counts)


# Triangles and diagonals.


def _needs_matrix(name: str, input: Any) -> None:
    if input.ndim < 2:
        raise EngineError(Reason.RUNTIME, f"{name}: input tensor must have at least 2 dimensions")


@op(in_place=True, cost=8)
@row_major
def tril(xp: Any, input: Array, diagonal: int = 0) -> Array:
    """Lower triangle: zeros above a diagonal (torch.tril)."""
    _needs_matrix("tril", input)
    return xp.tril(input, diagonal)


@op(in_place=True, cost=8)
@row_major
def triu(xp: Any, input: Array, diagonal: int = 0) -> Array:
    """Upper triangle: zeros below a diagonal (torch.triu)."""
    _needs_matrix("triu", input)
    return xp.triu(input, diagonal)


for _triangle in (tril, triu):
    _triangle.bounds_results(elements_and(0))
tril.grad(input=lambda g, diagonal: tril(g, diagonal)).tangent("linear")
triu.grad(input=lambda g, diagonal: triu(g, diagonal)).tangent("linear")


@op(
    cost=counted(
        lambda input, offset, *rest: 8.0 * input.size * (1 + abs(offset) + (input.shape[-1] if input.ndim else 1))
    )
)
def diag_embed(xp: Any, input: Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    """Put the last dimension on the diagonal of two new dimensions, zeros elsewhere (torch.diag_embed)."""
    a, b = normalize_dim(dim1, input.ndim + 1), normalize_dim(dim2, input.ndim + 1)
    if a == b:
        raise EngineError(Reason.RUNTIME, f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    side = input.shape[-1] + (offset if offset > 0 else -offset)
    shape = list(input.shape[:-1])
    for axis in sorted((a, b)):
        shape.insert(axis, side)
    admit(shape, input.dtype)
    whole = xp.zeros(shape, input.dtype)
    diagonal(whole, offset, a, b)[...] = input
    return whole


diag_embed.grad(input=lambda g, offset, dim1, dim2: diagonal(g, offset, dim1, dim2)).tangent("linear")


@op(name="_diagonal_copy", node="DiagonalBackward0_copy", cost=4)
def _diagonal_copy(xp: Any, input: Array, offset: int) -> Array:
    return diagonal(input, offset, 0, 1).copy()


_diagonal_copy.grad(input=lambda g, input_meta, offset: diagonal_backward(g, input_meta.shape, offset, 0, 1))
_diagonal_copy.tangent("linear")


@composite
def diag(input: Array, diagonal: int = 0) -> Array:
    """Diagonal matrix of a vector, or diagonal of a matrix (torch.diag)."""
    if input.ndim not in (1, 2):
        raise EngineError(Reason.RUNTIME, f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
    return diag_embed(input, diagonal) if input.ndim == 1 else _diagonal_copy(input, diagonal)


# Several tensors.


@composite(outputs=("...",), views="always")
def broadcast_tensors(tensors: list[Array]) -> Array:
    """Expand tensors to their common shape; views (torch.broadcast_tensors)."""
    shape = broadcast_shape(*(tensor.shape for tensor in tensors)) if tensors else ()
    return tuple(tensor if tensor.shape == shape else expand(tensor, shape) for tensor in tensors)


@composite(outputs=("...",), views="always")
def meshgrid(tensors: list[Array], *, indexing: Literal["ij", "xy"] | None = None) -> Array:
    """Coordinate grids of vectors; "xy" swaps the first two dimensions (torch.meshgrid)."""
    if indexing not in (None, "ij", "xy"):
        raise EngineError(
            Reason.RUNTIME, f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}'
        )
    if not tensors:
        raise EngineError(Reason.RUNTIME, "meshgrid expects a non-empty TensorList")
    if any(tensor.ndim > 1 for tensor in tensors):
        raise EngineError(Reason.RUNTIME, "torch.meshgrid: Expected 0D or 1D tensor in the tensor list")
    if any(tensor.dtype != tensors[0].dtype for tensor in tensors):
        raise EngineError(Reason.RUNTIME, "torch.meshgrid expects all tensors to have the same dtype")
    count = len(tensors)
    shape = tuple(tensor.shape[0] if tensor.ndim else 1 for tensor in tensors)
    grids = []
    for place, tensor in enumerate(tensors):
        line = reshape(tensor, tuple(-1 if axis == place else 1 for axis in range(count)))
        grid = expand(line, shape)
        swap = indexing == "xy" and count > 1
        grids.append(permute(grid, (1, 0, *range(2, count))) if swap else grid)
    return tuple(grids)


def _at_least(input: Any, ndim: int) -> Any:
    """Add missing dimensions as PyTorch does: in front, the third one behind, and to a number all at once."""
    if not input.ndim:
        return reshape(input, (1,) * ndim)
    while input.ndim < ndim:
        input = unsqueeze(input, 0 if input.ndim < 2 else input.ndim)
    return input


@composite(views="always")
def atleast_1d(input: Array) -> Array:
    """Add dimensions of size 1 up to one dimension (torch.atleast_1d)."""
    return _at_least(input, 1)


@composite(views="always")
def atleast_2d(input: Array) -> Array:
    """Add dimensions of size 1 up to two dimensions (torch.atleast_2d)."""
    return _at_least(input, 2)


@composite(views="always")
def atleast_3d(input: Array) -> Array:
    """Add dimensions of size 1 up to three dimensions (torch.atleast_3d)."""
    return _at_least(input, 3)


def _needs_some(name: str, tensors: list[Any]) -> None:
    if not tensors:
        raise EngineError(Reason.RUNTIME, f"{name} expects a non-empty TensorList", op=name)


@composite
def hstack(tensors: list[Array]) -> Array:
    """Concatenate along the second dimension, vectors along the first (torch.hstack)."""
    _needs_some("hstack", tensors)
    return cat([_at_least(tensor, 1) for tensor in tensors], 0 if tensors and tensors[0].ndim <= 1 else 1)


@composite
def vstack(tensors: list[Array]) -> Array:
    """Concatenate along the first dimension, vectors as rows (torch.vstack)."""
    _needs_some("vstack", tensors)
    return cat([_at_least(tensor, 2) for tensor in tensors], 0)


@composite
def dstack(tensors: list[Array]) -> Array:
    """Concatenate along the third dimension (torch.dstack)."""
    _needs_some("dstack", tensors)
    return cat([_at_least(tensor, 3) for tensor in tensors], 2)


@composite
def column_stack(tensors: list[Array]) -> Array:
    """Concatenate along the second dimension, vectors as columns (torch.column_stack)."""
    _needs_some("column_stack", tensors)
    columns = [reshape(tensor, (-1, 1)) if tensor.ndim <= 1 else tensor for tensor in tensors]
    return cat(columns, 1)

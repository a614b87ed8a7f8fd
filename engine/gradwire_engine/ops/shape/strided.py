"""Views by strides: sliding windows along a dimension (unfold), and any geometry on the same memory (as_strided)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor, edge_of
from gradwire_engine.op.composite import Composite, composite
from gradwire_engine.op.cost import CALL, counted
from gradwire_engine.op.op import op
from gradwire_engine.op.rebase import AS_STRIDED, take_geometry
from gradwire_engine.op.refusals import check_in_place, check_inference
from gradwire_engine.op.strides import geometry_of, owner_of
from gradwire_engine.ops.base.checks import normalize_dim
from gradwire_engine.ops.base.index_accumulation import add_flat
from gradwire_engine.ops.base.precision import through_float32
from gradwire_engine.ops.shape.shape import at

Ints = Any


@op(view=True, cost=4)
def unfold(xp: Any, input: Array, dimension: int, size: int, step: int) -> Array:
    """Windows of `size` elements, `step` apart, along a dimension (torch.Tensor.unfold).

    The result is a view; the windows' elements are its last dimension.
    """
    if size < 0:
        raise EngineError(Reason.RUNTIME, f"size is {size} but must be >= 0")
    if step <= 0:
        raise EngineError(Reason.RUNTIME, f"step is {step} but must be > 0")
    dim = normalize_dim(dimension, input.ndim)
    length = input.shape[dim] if input.ndim else 1
    if size > length:
        raise EngineError(Reason.RUNTIME, f"maximum size for tensor at dimension {dim} is {length} but size is {size}")
    if not input.ndim:
        return xp.lib.stride_tricks.as_strided(input, (size,), (input.itemsize,))
    count = (length - size) // step + 1
    shape = (*input.shape[:dim], count, *input.shape[dim + 1 :], size)
    strides = (*input.strides[:dim], input.strides[dim] * step, *input.strides[dim + 1 :], input.strides[dim])
    return xp.lib.stride_tricks.as_strided(input, shape, strides)


@op(
    name="_unfold_backward",
    cost=counted(lambda g, shape, dimension, size, step: 5.0 * g.size + size * CALL + 2.0 * math.prod(shape)),
)
def unfold_backward(xp: Any, g: Array, shape: Ints, dimension: int, size: int, step: int) -> Array:
    """Add the gradients of all windows into zeros of the input's shape."""
    if not shape:
        return g.sum().reshape(()) if size else xp.zeros((), g.dtype)
    whole = xp.zeros(shape, g.dtype)
    dim = normalize_dim(dimension, len(shape))
    count = g.shape[dim]
    for place in range(size if count else 0):
        at(whole, dim, slice(place, place + step * (count - 1) + 1, step))[...] += g[..., place]
    return whole


unfold.grad(
    input=lambda g, input_meta, dimension, size, step: unfold_backward(g, input_meta.shape, dimension, size, step)
).tangent("linear")
unfold_backward.grad(g=lambda g, dimension, size, step: unfold(g, dimension, size, step)).tangent("linear")


def _element_offsets(geometry: Any) -> Any:
    """Offset of each element in memory."""
    sizes, strides, offset = geometry
    places = np.full(sizes, offset, np.int64)
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        places += (np.arange(size) * stride).reshape((-1,) + (1,) * (len(sizes) - axis - 1))
    return places


def _restrided_cost(input: Any, source: Any, target: Any, shared: Any) -> Any:
    return 30.0 * (math.prod(source[0]) + math.prod(target[0]) + input.size)


@op(name="_restride", node="AsStridedBackward0_copy", cost=counted(_restrided_cost))
@through_float32
def _restride(xp: Any, input: Array, source: Ints, target: Ints, shared: Ints | None = None) -> Array:
    """Scatter the input's elements into memory by one geometry, summed where they overlap; gather by another.

    shared: a geometry in which elements may overlap. A place in memory is divided by the number of its elements there.
    Scatter and gather are adjoint, so the gradient is the same op with the geometries exchanged.
    """
    laid, read = _element_offsets(source), _element_offsets(target)
    line = xp.zeros(1 + max(laid.max(initial=0), read.max(initial=0)), input.dtype)
    add_flat(xp, line, xp.asarray(laid.reshape(-1)), xp.ascontiguousarray(input).reshape(-1))
    if shared is not None:
        line /= xp.asarray(_overlaps(shared, line.size))
    return line[xp.asarray(read)]


def _overlaps(geometry: Any, length: int) -> Any:
    """The number of elements at each place in memory, at least 1."""
    return np.maximum(np.bincount(_element_offsets(geometry).reshape(-1), minlength=length), 1)


def _may_overlap(geometry: Any) -> bool:
    """Whether two elements may lie at one place: not if each stride steps over all smaller dimensions."""
    sizes, strides, _ = geometry
    reach = 0
    for stride, size in sorted((stride, size) for size, stride in zip(sizes, strides, strict=True) if size > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


_restride.sized_by(
    lambda input, source, target, shared: math.prod(target[0]) * (input.itemsize + 8) + math.prod(source[0]) * 16
)
_restride.grad(input=lambda g, source, target, shared: _restride(g, target, source, shared)).tangent("linear")


@op(name=AS_STRIDED, view=True, node="AsStridedBackward0", cost=4)
def as_strided_view(xp: Any, input: Array, source: Ints, target: Ints, whole: Ints) -> Array:
    """View of the input's memory by another geometry. whole: number of elements in that memory."""
    sizes, strides, offset = target
    steps = tuple(stride * input.itemsize for stride in strides)
    flat = _storage_vector(xp, input, whole)
    return xp.lib.stride_tricks.as_strided(flat[offset:] if flat.size > offset else flat[:0], sizes, steps)


as_strided_view.works_in(backward=5.2)
# Elements of the input that lie at one place share its gradient equally, so it reaches what they show once.
as_strided_view.grad(
    input=lambda g, source, target: _restride(g, target, source, source if _may_overlap(source) else None)
)


def _tangent(t_input: Tensor, source: Ints, target: Ints, whole: Ints) -> Tensor:
    """The tangent's elements that the view shows of the input: a view, unless the tangent is laid out differently.

    Raises EngineError: NOT_SUPPORTED if it is, and elements of the input overlap.
    """
    (sizes, strides, offset), room = geometry_of(t_input.array)
    if _plain((sizes, strides, offset)) == _plain(source) and room == whole[0]:
        shown: Tensor = as_strided_view(t_input, source, target, whole)
        return shown
    if _may_overlap(source):
        raise EngineError(
            Reason.NOT_SUPPORTED,
            "as_strided of a tensor whose elements share memory, with a tangent whose elements do not; clone it first",
        )
    read: Tensor = _restride(t_input, source, target)
    return read


def _plain(geometry: Any) -> Any:
    sizes, strides, offset = geometry
    return tuple(sizes), tuple(strides), offset


as_strided_view.tangent(_tangent)


def _span(array: Array) -> int:
    """Bytes from the array's first element to the end of its last; its strides are not negative."""
    if not array.size:
        return 0
    return int(array.itemsize + sum((size - 1) * step for size, step in zip(array.shape, array.strides, strict=True)))


def _storage_vector(xp: Any, input: Array, whole: Ints) -> Array:
    """The memory that the input lies in, as a vector of the input's dtype."""
    if isinstance(input, np.ndarray):
        owner = owner_of(input)
        if owner.dtype == input.dtype:
            return np.lib.stride_tricks.as_strided(owner, whole, (input.itemsize,))
        # A view of another dtype: the parts of complex numbers, for example.
        memory = np.lib.stride_tricks.as_strided(owner, (owner.size,), (owner.itemsize,))
        return memory.view(input.dtype)[: whole[0]]
    memory = input.data.mem
    return xp.ndarray(whole, input.dtype, xp.cuda.MemoryPointer(memory, 0))


class _TakeGeometry(Composite):
    def in_place(self, args: tuple[Any, ...]) -> Tensor:
        target, view = args
        context = CURRENT.get()
        if context.grad_enabled and edge_of(target) is not None:
            check_in_place(target)
        if target.storage.inference:
            check_inference(context)
        take_geometry(target, view)
        return target  # type: ignore[no-any-return]


def _take_geometry(input: Array, view: Array) -> Array:
    """Return the view. In place: give the input the view's sizes, strides and node."""
    return view


_TakeGeometry(_take_geometry, name="take_geometry", in_place=True, differentiable=False, views="always")


@composite(reads_values=True, views="always")
def as_strided(input: Array, size: Ints, stride: Ints, storage_offset: int | None = None) -> Any:
    """View of the input's memory with the given sizes and strides, in elements (torch.as_strided).

    storage_offset: first element; None means the input's own offset. Raises EngineError: RUNTIME outside the memory.
    """
    sizes, strides = ((value,) if isinstance(value, int) else tuple(value) for value in (size, stride))
    if len(sizes) != len(strides):
        raise EngineError(Reason.RUNTIME, "mismatch in length of strides and shape")
    if min(strides, default=0) < 0:
        raise EngineError(
            Reason.RUNTIME,
            f"as_strided: Negative strides are not supported at the moment, got strides: {list(strides)}",
        )
    array = input.array if type(input) is Tensor else input
    source, whole = geometry_of(array)
    own = source[2]
    if type(input) is Tensor and not isinstance(array, np.ndarray):
        # CuPy rounds allocations up and uses them again: the bytes at the end may hold another session's values.
        shown = own + _span(array) // array.itemsize
        whole = min(whole, max(shown, input.storage.nbytes // array.itemsize))
    offset = own if storage_offset is None else storage_offset
    reach = offset + 1 + sum((length - 1) * step for length, step in zip(sizes, strides, strict=True))
    if min(sizes, default=1) < 0 or offset < 0 or (0 not in sizes and reach > whole):
        raise EngineError(
            Reason.RUNTIME,
            f"setStorage: sizes {list(sizes)}, strides {list(strides)}, storage offset {offset}, and itemsize "
            f"{array.itemsize} requiring a storage size of {reach * array.itemsize} are out of bounds for storage of "
            f"size {whole * array.itemsize}",
        )
    return as_strided_view(input, source, (sizes, strides, offset), (whole,))

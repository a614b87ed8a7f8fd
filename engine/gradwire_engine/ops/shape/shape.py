"""Views and reshaping: the same elements with other sizes, and parts of a tensor.

A view shares its input's memory, and its gradient is the inverse view. For a view of a part, a private
`_..._backward` op writes the gradient into zeros; its own gradient is the view again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor, leave_graph
from gradwire_engine.graph.tensor import detach as detached
from gradwire_engine.op.composite import Composite, composite
from gradwire_engine.op.cost import CALL, counted, of_shape
from gradwire_engine.op.integer_bounds import like_input
from gradwire_engine.op.op import op
from gradwire_engine.op.refusals import is_dense
from gradwire_engine.op.strides import geometry_of
from gradwire_engine.op.value_access import is_row_major, lies_in
from gradwire_engine.ops.base.basic import conj, expand
from gradwire_engine.ops.base.checks import (
    admit,
    check_count,
    check_index,
    ints,
    normalize_dim,
    normalize_dims,
    reshaped,
    viewed,
)
from gradwire_engine.ops.base.memory_format import in_order, order_of_format

Ints = Any

# Sizes.


def infer_size(size: Any, count: int) -> tuple[int, ...]:
    """Resolve a size of -1. Raises EngineError: SHAPE if the sizes do not hold `count` elements."""
    sizes = ints(size)
    unknown = [place for place, length in enumerate(sizes) if length == -1]
    if len(unknown) > 1:
        raise EngineError(Reason.SHAPE, "only one dimension can be inferred", size=list(sizes))
    known = math.prod(length for length in sizes if length != -1)
    if any(length < -1 for length in sizes):
        raise EngineError(Reason.SHAPE, f"invalid shape dimension {min(sizes)}", size=list(sizes))
    if unknown and known == 0:
        if count == 0:
            raise EngineError(
                Reason.SHAPE,
                f"cannot reshape tensor of 0 elements into shape {list(sizes)} because the unspecified dimension size "
                "-1 can be any value and is ambiguous",
            )
        known = -1
    if (count % known if unknown and known > 0 else known != count) or known < 0:
        raise EngineError(Reason.SHAPE, f"shape '{list(sizes)}' is invalid for input of size {count}")
    return tuple(count // known if length == -1 else length for length in sizes)


def _can_view(array: Array, shape: tuple[int, ...]) -> bool:
    return array.flags.c_contiguous or array.size == 0 or viewed(array, shape) is not None


def _reshape_node(input: Any, shape: Any) -> str:
    array = input.array
    if array.flags.c_contiguous:
        return "ViewBackward0"
    return "ReshapeAliasBackward0" if _can_view(array, infer_size(shape, array.size)) else "UnsafeViewBackward0"


@op(view="maybe", node=_reshape_node, cost=4)
def reshape(xp: Any, input: Array, shape: Ints) -> Array:
    """Reshape in row-major order; a view if the strides allow it, else a copy (torch.reshape)."""
    return reshaped(input, infer_size(shape, input.size))


reshape.works_in(backward=0, grows=False).bounds_results(like_input)


def _direct_view(forward: Callable[..., Array]) -> Callable[..., Any]:
    """What chooses, for a forward that only reshapes row-major arrays, a reshape to the shape that it gives."""

    def choose(input: Array, *rest: Any) -> Any:
        if not input.flags.c_contiguous:
            return None
        try:
            shape = forward(np, input, *rest).shape
        except EngineError:
            return None
        return lambda xp, input, *rest: input.reshape(shape)

    return choose


reshape.directly(_direct_view(reshape.forward))


@op(view=True, cost=4)
def view(xp: Any, input: Array, size: Ints) -> Array:
    """Reshape in row-major order, always a view (torch.Tensor.view).

    Raises EngineError: RUNTIME if the strides do not allow a view.
    """
    sizes = infer_size(size, input.size)
    if not _can_view(input, sizes):
        raise EngineError(
            Reason.RUNTIME,
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            "contiguous subspaces). Use .reshape(...) instead.",
        )
    return input.reshape(sizes)


view.works_in(backward=0, grows=False)
view.directly(_direct_view(view.forward))


@op(view=True, drops_grad=True, cost=4)
def view_dtype(xp: Any, input: Array, dtype: DType) -> Array:
    """Reinterpret the bytes as another dtype (torch.Tensor.view).

    The last dimension scales with the ratio of the element sizes.
    Raises EngineError: RUNTIME if sizes or strides do not allow it.
    """
    if dtype == input.dtype:
        return input.view()
    old, new = input.dtype.itemsize, dtype.itemsize
    if old != new:
        kinds = f"to view {dtypes.TITLES[input.dtype]} as {dtypes.TITLES[dtype]} (different element sizes)"
        if not input.ndim:
            raise EngineError(Reason.RUNTIME, f"self.dim() cannot be 0 {kinds}")
        if input.strides[-1] != old and input.size:
            raise EngineError(Reason.RUNTIME, f"self.stride(-1) must be 1 {kinds}, but got {input.strides[-1] // old}")
        if new > old:
            _check_widened(input, new // old, kinds)
    return input.view(dtype)


def _check_widened(input: Array, ratio: int, kinds: str) -> None:
    """Raise EngineError unless groups of `ratio` elements are elements of the wider dtype (torch.Tensor.view)."""
    (sizes, strides, offset), _ = geometry_of(input)
    if sizes[-1] % ratio:
        raise EngineError(Reason.RUNTIME, f"self.size(-1) must be divisible by {ratio} {kinds}, but got {sizes[-1]}")
    if offset % ratio:
        raise EngineError(
            Reason.RUNTIME, f"self.storage_offset() must be divisible by {ratio} {kinds}, but got {offset}"
        )
    for dim, stride in enumerate(strides[:-1]):
        if stride % ratio and input.size:
            raise EngineError(
                Reason.RUNTIME, f"self.stride({dim}) must be divisible by {ratio} {kinds}, but got {stride}"
            )


view_dtype.works_in(backward=0, grows=False)


reshape.grad(input=lambda g, input_meta: reshape(g, input_meta.shape)).tangent("linear")
view.grad(input=lambda g, input_meta: reshape(g, input_meta.shape)).tangent("linear")


@composite(views="always")
def view_as(input: Array, other: Array) -> Array:
    """View with the shape of `other` (torch.Tensor.view_as)."""
    return view(input, other.shape)


@composite(views="maybe")
def reshape_as(input: Array, other: Array) -> Array:
    """Reshape to the shape of `other` (torch.Tensor.reshape_as)."""
    return reshape(input, other.shape)


@composite(views="maybe")
def flatten(input: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    """Merge the dimensions start_dim to end_dim, inclusive, into one (torch.flatten)."""
    start, end = normalize_dim(start_dim, input.ndim), normalize_dim(end_dim, input.ndim)
    if not input.ndim:
        return reshape(input, (1,))
    if start > end:
        raise EngineError(Reason.RUNTIME, "flatten() has invalid args: start_dim cannot come after end_dim")
    if start == end:
        return input
    middle = math.prod(input.shape[start : end + 1])
    return reshape(input, (*input.shape[:start], middle, *input.shape[end + 1 :]))


@composite(views="maybe")
def ravel(input: Array) -> Array:
    """Flatten to one dimension (torch.ravel)."""
    return reshape(contiguous(input), (-1,))


@composite(views="always")
def unflatten(input: Array, dim: int, sizes: Ints) -> Array:
    """Split a dimension into several (torch.unflatten)."""
    dim = normalize_dim(dim, input.ndim)
    given = ints(sizes)
    if not given:
        raise EngineError(Reason.RUNTIME, "unflatten: sizes must be non-empty")
    if not input.ndim:
        raise EngineError(
            Reason.RUNTIME, "unflatten got an unexpected error:\nDimension specified as 0 but tensor has no dimensions"
        )
    try:
        parts = infer_size(given, input.shape[dim])
    except EngineError as error:
        raise EngineError(
            Reason.RUNTIME,
            f"unflatten: Provided sizes {list(given)} don't multiply up to the size of dim {dim} ({input.shape[dim]}) "
            "in the input tensor",
        ) from error
    return view(input, (*input.shape[:dim], *parts, *input.shape[dim + 1 :]))


@composite(views="always")
def broadcast_to(input: Array, size: Ints) -> Array:
    """Expand dimensions of size 1 to `size`; a view (torch.broadcast_to)."""
    return expand(input, ints(size))


@composite(views="always")
def expand_as(input: Array, other: Array) -> Array:
    """Expand to the shape of `other`; a view (torch.Tensor.expand_as)."""
    return expand(input, other.shape)


@op(
    view=True,
    node=lambda input, dim: f"SqueezeBackward{0 if dim is None else 1 if isinstance(dim, int) else 2}",
    cost=4,
)
def squeeze(xp: Any, input: Array, dim: Ints | None = None) -> Array:
    """Remove dimensions of size 1: all of them, or those in `dim` (torch.squeeze)."""
    given = range(input.ndim) if dim is None else ints(dim)
    dims = normalize_dims(given, input.ndim) if given else ()
    return input.reshape(tuple(size for axis, size in enumerate(input.shape) if size != 1 or axis not in dims))


squeeze.works_in(backward=0, grows=False)
squeeze.directly(_direct_view(squeeze.forward))


@op(view=True, cost=4)
def unsqueeze(xp: Any, input: Array, dim: int) -> Array:
    """Insert a dimension of size 1 at `dim` (torch.unsqueeze)."""
    return xp.expand_dims(input, normalize_dim(dim, input.ndim + 1))


unsqueeze.works_in(backward=0, grows=False)
unsqueeze.directly(_direct_view(unsqueeze.forward))


squeeze.grad(input=lambda g, input_meta: reshape(g, input_meta.shape)).tangent("linear")
unsqueeze.grad(input=lambda g, dim: squeeze(g, dim)).tangent("linear")

# Order of dimensions.


@op(view=True, cost=4)
def permute(xp: Any, input: Array, dims: Ints) -> Array:
    """Reorder the dimensions (torch.permute)."""
    given = ints(dims)
    if len(given) != input.ndim:
        raise EngineError(
            Reason.RUNTIME,
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            f"ordering of dimensions i.e. input.dim() = {input.ndim} is not equal to len(dims) = {len(given)}",
        )
    order = tuple(normalize_dim(dim, input.ndim) for dim in given)
    if len(set(order)) != len(order):
        raise EngineError(Reason.RUNTIME, "permute(): duplicate dims are not allowed.")
    return input.transpose(order)


permute.works_in(backward=0, grows=False)


def _inverse(dims: Any) -> tuple[int, ...]:
    order = ints(dims)
    return tuple(sorted(range(len(order)), key=lambda place: order[place] % len(order)))


permute.grad(input=lambda g, dims: permute(g, _inverse(dims))).tangent("linear")


@op(view=True, cost=4)
def transpose(xp: Any, input: Array, dim0: int, dim1: int) -> Array:
    """Swap two dimensions (torch.transpose)."""
    a, b = normalize_dim(dim0, input.ndim), normalize_dim(dim1, input.ndim)
    return input.swapaxes(a, b) if input.ndim else input.view()


transpose.works_in(backward=0, grows=False)


@op(view=True, node="TBackward0", cost=4)
def t(xp: Any, input: Array) -> Array:
    """Transpose a matrix; vectors and scalars are returned unchanged (torch.t)."""
    if input.ndim > 2:
        raise EngineError(Reason.RUNTIME, f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return input.T


t.works_in(backward=0, grows=False)


transpose.grad(input=lambda g, dim0, dim1: transpose(g, dim0, dim1)).tangent("linear")
t.grad(input=lambda g: t(g)).tangent("linear")


@composite(views="always")
def swapaxes(input: Array, axis0: int, axis1: int) -> Array:
    """Swap two dimensions (torch.swapaxes)."""
    return transpose(input, axis0, axis1)


@composite(views="always")
def swapdims(input: Array, dim0: int, dim1: int) -> Array:
    """Swap two dimensions (torch.swapdims)."""
    return transpose(input, dim0, dim1)


@composite(views="always")
def T(input: Array) -> Array:
    """Reverse the order of all dimensions (torch.Tensor.T)."""
    return permute(input, tuple(reversed(range(input.ndim))))


@composite(views="always")
def mT(input: Array) -> Array:
    """Transpose the matrices in the last two dimensions (torch.Tensor.mT)."""
    if not input.ndim:
        return input
    _needs_matrix("mT", input)
    return transpose(input, -2, -1)


@composite(views="maybe")
def mH(input: Array) -> Array:
    """Transpose and conjugate the matrices in the last two dimensions (torch.Tensor.mH)."""
    if not input.ndim:
        return conj(input)
    _needs_matrix("mH", input)
    return conj(transpose(input, -2, -1))


@composite(views="maybe")
def H(input: Array) -> Array:
    """Transpose and conjugate a matrix (torch.Tensor.H)."""
    if input.ndim not in (0, 2):
        raise EngineError(
            Reason.RUNTIME, f"tensor.H is only supported on matrices (2-D tensors). Got {input.ndim}-D tensor."
        )
    return conj(transpose(input, 0, 1)) if input.ndim else conj(input)


def _needs_matrix(name: str, input: Any) -> None:
    if input.ndim < 2:
        raise EngineError(
            Reason.RUNTIME,
            f"tensor.{name} is only supported on matrices or batches of matrices. Got {input.ndim}-D tensor.",
        )


@composite(views="always")
def movedim(input: Array, source: Ints, destination: Ints) -> Array:
    """Move dimensions to other positions; the others keep their order (torch.movedim)."""
    sources, places = ints(source), ints(destination)
    if len(sources) != len(places):
        raise EngineError(
            Reason.RUNTIME,
            f"movedim: Invalid source or destination dims: source ({list(sources)} dims) should contain the same "
            f"number of dims as destination ({list(places)} dims)",
        )
    sources = tuple(normalize_dim(dim, input.ndim) for dim in sources)
    places = tuple(normalize_dim(dim, input.ndim) for dim in places)
    for name, dims in (("source", sources), ("destination", places)):
        if len(set(dims)) != len(dims):
            raise EngineError(Reason.RUNTIME, f"movedim: repeated dim in `{name}` ({list(dims)})")
    if not input.ndim:
        return alias(input)
    order = [dim for dim in range(input.ndim) if dim not in sources]
    for place, dim in sorted(zip(places, sources, strict=True)):
        order.insert(place, dim)
    return permute(input, tuple(order))


moveaxis = composite(name="moveaxis", views="always")(movedim.function)

# Parts.


def at(array: Array, dim: int, key: Any) -> Array:
    """array[..., key, ...] with `key` at dimension `dim`; a view if the key is an int or a slice."""
    return array[(slice(None),) * dim + (key, ...)]


@op(view=True, cost=4)
def select(xp: Any, input: Array, dim: int, index: int) -> Array:
    """Select one index along a dimension and remove the dimension (torch.select)."""
    if not input.ndim:
        raise EngineError(Reason.INDEX_OUT_OF_RANGE, "select() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim(dim, input.ndim)
    return at(input, dim, check_index(index, dim, input.shape[dim]))


@op(name="_select_backward", cost=of_shape(2, 1))
def _select_backward(xp: Any, g: Array, shape: Ints, dim: int, index: int) -> Array:
    whole = xp.zeros(shape, g.dtype)
    at(whole, normalize_dim(dim, whole.ndim), index)[...] = g
    return whole


select.grad(input=lambda g, input_meta, dim, index: _select_backward(g, input_meta.shape, dim, index)).tangent("linear")
_select_backward.grad(g=lambda g, dim, index: select(g, dim, index)).tangent("linear")


@op(name="_slice", view=True, node="SliceBackward0", cost=4)
def slice_(
    xp: Any, input: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    """Slice a dimension: start to end, by step. Raises EngineError: ARGUMENT_VALUE for a step of 0 or less."""
    if not input.ndim:
        raise EngineError(Reason.INDEX_OUT_OF_RANGE, "slice() cannot be applied to a 0-dim tensor.")
    check_step(step)
    return at(input, normalize_dim(dim, input.ndim), slice(start, end, step))


def check_step(step: int) -> None:
    """Check the step of a slice. Raises EngineError: ARGUMENT_VALUE for 0 or less."""
    if step <= 0:
        raise EngineError(
            Reason.ARGUMENT_VALUE, "slice step cannot be zero" if step == 0 else "step must be greater than zero"
        )


@op(name="_slice_backward", cost=of_shape(2, 1))
def _slice_backward(xp: Any, g: Array, shape: Ints, dim: int, start: int | None, end: int | None, step: int) -> Array:
    whole = xp.zeros(shape, g.dtype)
    at(whole, normalize_dim(dim, whole.ndim), slice(start, end, step))[...] = g
    return whole


slice_.grad(
    input=lambda g, input_meta, dim, start, end, step: _slice_backward(g, input_meta.shape, dim, start, end, step)
).tangent("linear")
_slice_backward.grad(g=lambda g, dim, start, end, step: slice_(g, dim, start, end, step)).tangent("linear")


@composite(views="always")
def narrow(input: Array, dim: int, start: int, length: int) -> Array:
    """`length` elements from `start` along a dimension (torch.narrow)."""
    if not input.ndim:
        raise EngineError(Reason.RUNTIME, "narrow() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim(dim, input.ndim)
    size = input.shape[dim]
    if length < 0:
        raise EngineError(Reason.RUNTIME, "narrow(): length must be non-negative.")
    if not -size <= start <= size:
        raise EngineError(
            Reason.INDEX_OUT_OF_RANGE,
            f"start out of range (expected to be in range of [{-size}, {size}], but got {start})",
        )
    start += size if start < 0 else 0
    if start + length > size:
        raise EngineError(Reason.RUNTIME, f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return slice_(input, dim, start, start + length, 1)


def _check_lengths(lengths: Any, size: int, dim: int) -> None:
    """Check the lengths of a split. Raises EngineError: ARGUMENT_TYPE, RUNTIME."""
    if not isinstance(lengths, list | tuple):
        kind = type(lengths).__name__
        raise EngineError(
            Reason.ARGUMENT_TYPE,
            f"split_with_sizes(): argument 'split_sizes' (position 2) must be tuple of ints, not {kind}",
        )
    for position, length in enumerate(lengths, 1):
        if isinstance(length, float | complex | str):
            raise EngineError(
                Reason.ARGUMENT_TYPE,
                f"split_with_sizes(): argument 'split_sizes' failed to unpack the object at pos {position} with error "
                f'"type must be tuple of ints,but got {type(length).__name__}"',
            )
    if any(length < 0 for length in lengths):
        raise EngineError(
            Reason.RUNTIME,
            f"split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={list(lengths)}",
        )
    if sum(lengths) != size:
        raise EngineError(
            Reason.RUNTIME,
            f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at dimension {dim}), "
            f"but got split_sizes={list(lengths)}",
        )


def _bounds(split: Any, size: int, dim: int) -> list[int]:
    """Start of each part, and the end of the last."""
    if isinstance(split, int):
        if split < 0 or (split == 0 and size):
            raise EngineError(
                Reason.RUNTIME,
                f"split expects split_size be non-negative, but got split_size={split}"
                if split < 0
                else f"split_size can only be 0 if dimension size is 0, but got dimension size of {size}",
            )
        check_count("split", -(-size // max(split, 1)))
        return [*range(0, size, split), size] if size else [0, 0]
    _check_lengths(split, size, dim)
    lengths = ints(split)
    bounds = [0]
    for length in lengths:
        bounds.append(bounds[-1] + length)
    return bounds


def _split_cost(input: Any, by: Any, dim: int = 0) -> Any:
    """Cost of a split: each view is created in Python."""
    many = len(by) if hasattr(by, "__len__") else input.shape[dim] / max(1, by)
    return 4.0 * input.size + CALL * many


def _unbound_cost(input: Any, dim: int) -> Any:
    return _split_cost(input, 1, dim)


@op(
    view="multiple",
    node=lambda tensor, split, dim: "SplitBackward0" if isinstance(split, int) else "SplitWithSizesBackward0",
    cost=counted(_split_cost, 3.0, 1 << 14),
)
def split(xp: Any, tensor: Array, split_size_or_sections: Ints, dim: int = 0) -> Array:
    """Split into parts of one size, the last maybe smaller, or of given sizes (torch.split); a tuple of views."""
    if not tensor.ndim:
        raise EngineError(Reason.RUNTIME, "split expects at least a 1-dimensional tensor")
    dim = normalize_dim(dim, tensor.ndim)
    bounds = _bounds(split_size_or_sections, tensor.shape[dim], dim)
    return tuple(at(tensor, dim, slice(a, b)) for a, b in itertools.pairwise(bounds))


@split.overload("int", outputs=("...",))
def _(tensor: Array, split_size_or_sections: int, dim: int = 0) -> Any: ...


@split.overload("sections", outputs=("...",))
def _(tensor: Array, split_size_or_sections: Ints, dim: int = 0) -> Any: ...


@op(
    view="unsafe",
    outputs=("...",),
    node=lambda tensor, by, dim: "UnsafeSplitBackward0" if isinstance(by, int) else "UnsafeSplitWithSizesBackward0",
    cost=counted(_split_cost, 3.0, 1 << 14),
)
def unsafe_split(xp: Any, tensor: Array, split_size: Ints, dim: int = 0) -> Array:
    """Like split, but the parts may be changed in place, each with its own version (torch.unsafe_split).

    They share memory with the tensor, and are no views for backward: it takes neither the tensor nor another part for
    changed.
    """
    parts: Array = split.function(xp, tensor, split_size, dim)
    return parts


@composite(outputs=("...",))
def unsafe_split_with_sizes(input: Array, split_sizes: Ints, dim: int = 0) -> Any:
    """Like split_with_sizes, as unsafe_split does (torch.unsafe_split_with_sizes)."""
    return unsafe_split(input, list(ints(split_sizes)), dim)


@composite(outputs=("...",))
def unsafe_chunk(input: Array, chunks: int, dim: int = 0) -> Any:
    """Like chunk, as unsafe_split does (torch.unsafe_chunk)."""
    return unsafe_split(input, _chunk_size(input, chunks, dim), dim)


@composite(outputs=("...",), views="always")
def chunk(input: Array, chunks: int, dim: int = 0) -> Array:
    """Split into at most `chunks` parts of equal size, the last maybe smaller (torch.chunk)."""
    return split(input, _chunk_size(input, chunks, dim), dim)


def _chunk_size(input: Array, chunks: int, dim: int) -> Any:
    """Size of each chunk but the last; all sizes if they are 0. Raises EngineError: RUNTIME."""
    if not input.ndim:
        raise EngineError(Reason.RUNTIME, "chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise EngineError(Reason.RUNTIME, f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    dim = normalize_dim(dim, input.ndim)
    check_count("chunk", 0 if input.shape[dim] else chunks)
    return -(-input.shape[dim] // chunks) or [0] * chunks


@op(view="multiple", cost=counted(_unbound_cost, 3.0, 1 << 14))
def unbind(xp: Any, input: Array, dim: int = 0) -> Array:
    """Split a dimension into its slices, without the dimension (torch.unbind); a tuple of views."""
    if not input.ndim:
        raise EngineError(Reason.INDEX_OUT_OF_RANGE, "Dimension specified as 0 but tensor has no dimensions")
    dim = normalize_dim(dim, input.ndim)
    check_count("unbind", input.shape[dim])
    return tuple(at(input, dim, index) for index in range(input.shape[dim]))


@op(view=True, cost=4)
def diagonal(xp: Any, input: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """Diagonal of two dimensions, as a new last dimension (torch.diagonal)."""
    a, b = normalize_dim(dim1, input.ndim), normalize_dim(dim2, input.ndim)
    if a == b:
        raise EngineError(Reason.RUNTIME, f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    # Offsets beyond the corners all give an empty diagonal; NumPy overflows when it computes their addresses.
    offset = max(-input.shape[a], min(offset, input.shape[b]))
    shown = input.diagonal(offset, a, b)
    if isinstance(shown, np.ndarray) and input.flags.writeable:
        shown.flags.writeable = True  # NumPy returns a read-only diagonal, though its elements do not overlap
    return shown


@op(name="_diagonal_backward", cost=of_shape(2, 1))
def diagonal_backward(xp: Any, g: Array, shape: Ints, offset: int, dim1: int, dim2: int) -> Array:
    whole = xp.zeros(shape, g.dtype)
    diagonal(whole, offset, dim1, dim2)[...] = g
    return whole


diagonal.grad(
    input=lambda g, input_meta, offset, dim1, dim2: diagonal_backward(g, input_meta.shape, offset, dim1, dim2)
).tangent("linear")
diagonal_backward.grad(g=lambda g, offset, dim1, dim2: diagonal(g, offset, dim1, dim2)).tangent("linear")

# Aliases and copies.


@op(name="_alias", view=True, cost=4)
def alias(xp: Any, input: Array) -> Array:
    """The same elements as another tensor with a new node."""
    return input.view()


alias.works_in(backward=0, grows=False)
alias.grad(input=lambda g: g).tangent("linear")


class _Detach(Composite):
    """detach, and its in-place form, which takes the tensor itself out of the graph."""

    def in_place(self, args: tuple[Any, ...]) -> Tensor:
        return leave_graph(args[0])


def _detach(input: Array) -> Array:
    """Return a leaf with the same storage, outside the graph (torch.Tensor.detach)."""
    return detached(input)


detach = _Detach(_detach, name="detach", in_place=True, differentiable=False, views="always")


@op(cost=4)
def clone(xp: Any, input: Array) -> Array:
    """Copy with the input's strides if it has no gaps, else row-major; with a node in the graph (torch.clone)."""
    if input.flags.c_contiguous:
        return input.copy(order="C")
    admit(input.shape, input.dtype)
    return input.copy(order="K" if is_dense(input) else "C")


clone.works_in(backward=0, grows=False).bounds_results(like_input)
clone.grad(input=lambda g: g).tangent("linear")


@op(name="_row_major", node="CloneBackward0", cost=4)
def _row_major(xp: Any, input: Array) -> Array:
    """Row-major copy."""
    admit(input.shape, input.dtype)
    return xp.array(input, order="C")


@op(name="_channels_last", node="CloneBackward0", cost=4)
def _channels_last(xp: Any, input: Array, order: Ints) -> Array:
    """Copy with the dimensions in this order in memory."""
    admit(input.shape, input.dtype)
    return in_order(xp, input, order)


for _copy in (_row_major, _channels_last):
    _copy.works_in(backward=0, grows=False).bounds_results(like_input)
    _copy.grad(input=lambda g: g).tangent("linear")


@composite(views="maybe")
def contiguous(
    input: Array, memory_format: Literal["contiguous_format", "channels_last", "channels_last_3d"] = "contiguous_format"
) -> Array:
    """Return the tensor itself if it lies in the memory format without gaps, else a copy (torch.Tensor.contiguous).

    Raises EngineError: RUNTIME for a format of another rank.
    """
    order = order_of_format(memory_format, input.ndim)
    if order is None:
        return input if is_row_major(input) else _row_major(input)
    return input if lies_in(input, order) else _channels_last(input, order)


# Complex numbers as pairs.


@op(view=True, cost=4)
def view_as_real(xp: Any, input: Array) -> Array:
    """View complex numbers as a last dimension of size 2: real and imaginary part (torch.view_as_real)."""
    if dtypes.category(input.dtype) != dtypes.COMPLEX:
        raise EngineError(Reason.RUNTIME, "view_as_real is only supported for complex tensors")
    return input[..., None].view(dtypes.real_part(input.dtype))


view_as_real.works_in(backward=0, grows=False)


@op(view=True, cost=4)
def view_as_complex(xp: Any, input: Array) -> Array:
    """View a last dimension of size 2 as complex numbers (torch.view_as_complex)."""
    if dtypes.category(input.dtype) != dtypes.FLOAT:
        raise EngineError(
            Reason.RUNTIME,
            "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: "
            f"{dtypes.TITLES[input.dtype]}",
        )
    if not input.ndim:
        raise EngineError(Reason.RUNTIME, "Input tensor must have one or more dimensions")
    if input.shape[-1] != 2:
        raise EngineError(Reason.RUNTIME, "Tensor must have a last dimension of size 2")
    (_, strides, offset), _ = geometry_of(input)
    if strides[-1] != 1:
        raise EngineError(Reason.RUNTIME, "Tensor must have a last dimension with stride 1")
    if any(stride % 2 for stride in strides[:-1]) and input.size:
        raise EngineError(Reason.RUNTIME, "Tensor must have a stride divisible by 2 for all but last dimension")
    if offset % 2:
        raise EngineError(Reason.RUNTIME, "Tensor must have a storage_offset divisible by 2")
    return input.view(dtypes.to_complex(input.dtype))[..., 0]


view_as_complex.works_in(backward=0, grows=False)


view_as_real.grad(input=lambda g: view_as_complex(contiguous(g))).tangent("linear")
view_as_complex.grad(input=lambda g: view_as_real(contiguous(g))).tangent("linear")

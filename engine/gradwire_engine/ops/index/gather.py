"""Indexing along one dimension: index_select, gather, scatter and their adjoints; also masked_select and nonzero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, host, module_of
from gradwire_engine.core.dtypes import Number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.index_bounds import are_within, learn
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import gathering, indexing, of_shape
from gradwire_engine.op.integer_bounds import Range, elements_of, like_input
from gradwire_engine.op.op import cast_array, op
from gradwire_engine.ops.base.basic import expand, sum_to_size
from gradwire_engine.ops.base.checks import admit, broadcast_shape, normalize_dim
from gradwire_engine.ops.base.compare import eq
from gradwire_engine.ops.base.fill import where, zeros
from gradwire_engine.ops.base.index_accumulation import add_flat, add_rows
from gradwire_engine.ops.base.loops import Loops, with_loop
from gradwire_engine.ops.base.precision import is_half
from gradwire_engine.ops.elementwise.binary import remainder
from gradwire_engine.ops.index.index import checked, getitem
from gradwire_engine.ops.index.scatter_loops import fits, scattered
from gradwire_engine.ops.shape.shape import flatten, narrow, reshape

Ints = Any
# PyTorch's messages name the in-place forms of these ops, and the index's dtype.
_IN_PLACE_NAMES = ("index_add_", "index_reduce_")


def _to_int64(name: str, index: Array) -> Array:
    if index.dtype not in (dtypes.int64, dtypes.int32):
        kinds = "int32 or int64" if name == "index_select" else "int32/int64"
        given = f" but got: {dtypes.TITLES[index.dtype]}" if name in _IN_PLACE_NAMES else ""
        raise EngineError(Reason.RUNTIME, f"{name}(): Expected dtype {kinds} for index{given}", op=name)
    return index.astype(dtypes.int64, copy=False)


# Whole slices along a dimension.


def _index_vector(name: str, index: Array) -> Array:
    """Convert a vector of indices to int64. Raises EngineError: INDEX_OUT_OF_RANGE, RUNTIME."""
    if index.ndim > 1:
        given = ""
        if name in _IN_PLACE_NAMES:
            kind, size = dtypes.TITLES[index.dtype], list(index.shape)
            given = f", but got dim: {index.ndim} with type: {kind} and size: {size}"
        said = f"{name}(): Index is supposed to be a vector{given}"
        raise EngineError(Reason.INDEX_OUT_OF_RANGE, said, op=name)
    return _to_int64(name, index).reshape(-1)


def _check_vector(name: str, index: Array, dim: int, size: int) -> Array:
    """Check a vector of indices along `dim`; convert it to int64. Raises EngineError: INDEX_OUT_OF_RANGE, RUNTIME."""
    given, index = index, _index_vector(name, index)
    if not index.size or are_within(given, 0, size):
        return index
    low, high = int(index.min()), int(index.max())
    if low < 0:
        raise EngineError(Reason.INDEX_OUT_OF_RANGE, f"{name}(): index out of range in self", op=name)
    if high >= size:
        raise EngineError(
            Reason.INDEX_OUT_OF_RANGE,
            f"{name}(): index out of range in self: index {high} is out of bounds for dimension {dim} with size {size}",
            op=name,
        )
    learn(given, low, high)
    return index


@op(cost=indexing(30))
def index_select(xp: Any, input: Array, dim: int, index: Array) -> Array:
    """Slices at the indices `index` along `dim` (torch.index_select)."""
    dim = normalize_dim(dim, input.ndim)
    places = _check_vector("index_select", index, dim, input.shape[dim] if input.ndim else 1)
    if not input.ndim and places.size != 1:
        raise EngineError(
            Reason.RUNTIME, f"index_select(): Index to scalar can have only 1 value, got {places.size} value(s)"
        )
    return xp.take(input, places, dim) if input.ndim else input.copy()


index_select.works_in(backward=4).bounds_results(like_input)
index_select.sized_by(lambda input, dim, index: input.nbytes // max(input.shape[dim], 1) * index.size, bounded=True)


@op(name="_index_select_backward", cost=of_shape(60, 3))
def _index_select_backward(xp: Any, g: Array, dim: int, index: Array, shape: Ints) -> Array:
    """Adjoint of index_select: add the slices of g into zeros at their indices."""
    if not shape:
        return g.reshape(shape).copy()
    dim = normalize_dim(dim, len(shape))
    first = xp.moveaxis(g, dim, 0)
    rest = first.shape[1:]
    added = add_rows(
        xp, first.reshape(len(first), -1) if g.size else xp.zeros((0, 0), g.dtype), index.reshape(-1), shape[dim]
    )
    return xp.moveaxis(added.reshape(shape[dim], *rest), 0, dim) if g.size else xp.zeros(shape, g.dtype)


index_select.grad(
    input=lambda g, dim, index, input_meta: _index_select_backward(g, dim, index, input_meta.shape)
).tangent("linear")
_index_select_backward.grad(g=lambda g, dim, index: index_select(g, dim, index)).tangent("linear")


@op(in_place=True, no_overlap=True, cost=indexing(60))
def index_add(xp: Any, input: Array, dim: int, index: Array, source: Array, *, alpha: Number = 1) -> Array:
    """Copy of the input with the slices of `source` added at the indices `index` along `dim` (torch.index_add)."""
    dim = normalize_dim(dim, input.ndim)
    _index_vector("index_add_", index)
    _check_source(input, dim, index, source, "index_add")
    places = _check_vector("index_add_", index, dim, input.shape[dim] if input.ndim else 1)
    if alpha != 1:
        source = source * alpha
    return input + _index_select_backward(source.astype(input.dtype, copy=False), dim, places, input.shape)


index_add.casts_numbers("alpha")


def _check_source(input: Array, dim: int, index: Array, source: Array, name: str) -> None:
    copies = name == "index_copy"
    if source.dtype != input.dtype:
        a, b = dtypes.TITLES[input.dtype], dtypes.TITLES[source.dtype]
        says = (
            f"index_copy_(): self and source expected to have the same dtype, but got (self) {a} and (source) {b}"
            if copies
            else f"{name}_(): self ({a}) and source ({b}) must have the same scalar type"
        )
        raise EngineError(Reason.RUNTIME, says, op=name)
    size = source.shape[dim] if source.ndim else 1
    if index.size != size:
        says = f"{name}_(): Number of indices ({index.size}) should be equal to source.size(dim)"
        raise EngineError(
            Reason.INDEX_OUT_OF_RANGE if copies else Reason.RUNTIME,
            f"{says} ({size})" if copies else f"{says}: ({size}), for dim: {dim}",
            op=name,
        )
    slices, parts = (shape[:dim] + shape[dim + 1 :] for shape in (tuple(input.shape), tuple(source.shape)))
    if slices != parts:
        says = (
            f"index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: "
            f"{' '.join(map(str, slices))} at dimension {dim} and source slice shape: {' '.join(map(str, parts))} at "
            f"dimension {dim}."
            if copies
            else "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape "
            f"= {list(input.shape)} source.shape = {list(source.shape)}"
        )
        raise EngineError(Reason.RUNTIME, says, op=name)


def positions_along(input: Any, dim: int, index: Any, source: Any, name: str) -> Any:
    """Check a composite's vector of indices along `dim`, one per slice of `source`, and convert it to int64."""
    arrays = [getattr(value, "array", value) for value in (input, index, source)]
    _index_vector(f"{name}_", arrays[1])
    _check_source(arrays[0], dim, arrays[1], arrays[2], name)
    places = _check_vector(f"{name}_", arrays[1], dim, arrays[0].shape[dim] if arrays[0].ndim else 1)
    return Tensor(places) if type(index) is Tensor else places


index_add.grad(
    input=lambda g: g,
    source=lambda g, dim, index, alpha: index_select(g, dim, index) * alpha,
).tangent("linear")


def _check_copied(input: Array, index: Array, source: Array) -> None:
    """Check the index of index_copy. Raises EngineError: INDEX_OUT_OF_RANGE, RUNTIME."""
    said, reason = "", Reason.INDEX_OUT_OF_RANGE
    if index.ndim > 1:
        said = f"Index should have dimension 1 or 0 (got {index.ndim})"
    elif not source.ndim and index.size != 1:
        said = f"When source is scalar, index should have one element (got {index.size})"
    elif source.ndim != input.ndim and source.ndim and input.ndim:
        said = (
            "When source and destination are not scalars, their dimensionality must match. Source dimensionality "
            f"({source.ndim}), destination dimensionality ({input.ndim})"
        )
    elif index.dtype != dtypes.int64:
        said, reason = f"Expected a long tensor for index, but got {dtypes.TITLES[index.dtype]}", Reason.RUNTIME
    if said:
        raise EngineError(reason, f"index_copy_(): {said}", op="index_copy")


@op(in_place=True, no_overlap=True, cost=indexing(30))
def index_copy(xp: Any, input: Array, dim: int, index: Array, source: Array) -> Array:
    """Copy of the input with the slices of `source` written at the indices `index` along `dim` (torch.index_copy)."""
    dim = normalize_dim(dim, input.ndim)
    _check_copied(input, index, source)
    _check_source(input, dim, index, source, "index_copy")
    places = index.reshape(-1)
    size = input.shape[dim] if input.ndim else 1
    known = are_within(index, 0, size)
    outside = places[:0] if known else places[(places < 0) | (places >= size)]
    if outside.size:
        raise EngineError(
            Reason.INDEX_OUT_OF_RANGE,
            f"index_copy_(): index {int(outside[0])} is out of bounds for dimension {dim} with size {size}",
            op="index_copy",
        )
    if size:
        learn(index, 0, size - 1)
    result = input.copy()
    result.reshape(result.shape or (1,))[(slice(None),) * dim + (places,)] = source.reshape(source.shape or (1,))
    return result


@op(
    in_place=True,
    node=lambda input, dim, index, value: f"IndexFillBackward{int(type(value) is Tensor)}",
    cost=indexing(30),
)
def index_fill(xp: Any, input: Array, dim: int, index: Array, value: Array | Number) -> Array:
    """Copy of the input with `value` in the slices at the indices `index` along `dim` (torch.index_fill)."""
    if index.ndim > 1:
        raise EngineError(Reason.RUNTIME, "index_fill_(): Index has to be a vector/scalar", op="index_fill")
    extent = getattr(value, "ndim", 0)
    if extent:
        raise EngineError(
            Reason.RUNTIME,
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {extent} dimension(s).",
            op="index_fill",
        )
    dim = normalize_dim(dim, input.ndim)
    size = input.shape[dim] if input.ndim else 1
    if index.dtype != dtypes.int64:
        raise EngineError(Reason.INDEX_OUT_OF_RANGE, "index_fill_(): Expected dtype int64 for index.", op="index_fill")
    places = checked(xp, index.reshape(-1), size, dim)
    result = input.copy()
    result.reshape(result.shape or (1,))[(slice(None),) * dim + (places,)] = cast_array(value, input.dtype)
    return result


index_fill.casts_numbers("value")
index_fill.bounds_results(elements_of(0, 3))


index_copy.bounds_results(elements_of(0, 3))
index_copy.grad(
    input=lambda g, dim, index: index_fill(g, dim, index, 0),
    source=lambda g, dim, index: index_select(g, dim, index),
).tangent("linear")
index_fill.grad(
    input=lambda g, dim, index: index_fill(g, dim, index, 0),
    value=lambda g, dim, index: sum_to_size(where(eq(index_fill(zeros(g), dim, index, 1), 0), 0, g), ()),
).tangent("linear")


# Elements along a dimension.


def flat_places(xp: Any, name: str, shape: tuple[int, ...], dim: int, index: Array) -> Array:
    """Flat positions of the elements at the indices `index` along `dim`. Raises EngineError: RUNTIME."""
    if name == "gather" and not index.size:  # as in PyTorch, of any dtype and any number of dimensions
        return xp.zeros(index.shape, dtypes.int64)
    given, index = index, _to_int64(name, index)
    if index.ndim != len(shape) and index.size and not (index.ndim <= 1 and len(shape) <= 1):
        raise EngineError(
            Reason.RUNTIME, "Index tensor must have the same number of dimensions as input tensor", op=name
        )
    if not shape:
        if index.size:
            _check_along(name, given, index, 0, 1)
        return xp.zeros(index.shape, dtypes.int64)
    for axis, size in enumerate(index.shape):
        if axis != dim and size > shape[axis]:
            raise EngineError(
                Reason.RUNTIME,
                f"Size does not match at dimension {axis} expected index {list(index.shape)} to be no larger than self "
                f"{list(shape)} apart from dimension {dim}",
                op=name,
            )
    if index.size and not are_within(given, 0, shape[dim]):
        _check_along(name, given, index, dim, shape[dim])
    steps = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        steps[axis] = steps[axis + 1] * shape[axis + 1]
    # Flat offsets without `dim`'s part do not vary along `dim`, so they need less memory than the index.
    starts = xp.zeros((1,) * index.ndim, dtypes.int64)
    for axis, size in enumerate(index.shape):
        if axis != dim:
            line = xp.arange(size, dtype=dtypes.int64) * steps[axis]
            starts = starts + line.reshape((-1,) + (1,) * (index.ndim - axis - 1))
    return starts + (index if steps[dim] == 1 else index * steps[dim])


def _check_along(name: str, given: Array, index: Array, dim: int, size: int) -> None:
    # Viewed as unsigned integers, negative indices are out of range too.
    if int(index.view(np.uint64).max()) < size:
        learn(given, 0, size - 1)
        return
    low, high = int(index.min()), int(index.max())
    raise EngineError(
        Reason.RUNTIME,
        f"index {low if low < 0 else high} is out of bounds for dimension {dim} with size {size}",
        op=name,
    )


@op(cost=gathering(30))
def gather(xp: Any, input: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    """result[i, j, ...] = input[i, index[i, j, ...], ...] for dim 1, and so on (torch.gather)."""
    dim = normalize_dim(dim, input.ndim)
    places = flat_places(xp, "gather", input.shape, dim, index)
    return input.reshape(-1).take(places)


gather.works_in(forward=0.3, backward=3.1).bounds_results(like_input)
gather.sized_by(
    lambda input, dim, index, sparse_grad: index.size * (input.itemsize + 8),
    bounded=True,  # the result, and the flat positions
)


def _by_loop(loops: Loops, name: str, called: str, g: Array, dim: int, index: Array, shape: Ints) -> Array | None:
    """`g` scattered by a loop of this name; None if no loop fits. `called`: the op that refuses an index."""
    if not fits(g, dim, index, shape):
        return None
    if not are_within(index, 0, shape[-1]):
        _check_along(called, index, index, len(shape) - 1, shape[-1])
    return scattered(loops, name, g, index, shape)


def _gather_backward_loop(loops: Loops, xp: Any, g: Array, dim: int, index: Array, shape: Ints) -> Array | None:
    return _by_loop(loops, "gather_backward", "gather", g, dim, index, shape)


@op(name="_gather_backward", node="ScatterAddBackward0", cost=gathering(60))
@with_loop(_gather_backward_loop)
def gather_backward(xp: Any, g: Array, dim: int, index: Array, shape: Ints) -> Array:
    """Adjoint of gather: add g into zeros at the indices."""
    whole = xp.zeros(shape, dtypes.float32 if is_half(g.dtype) else g.dtype)
    places = flat_places(xp, "gather", whole.shape, normalize_dim(dim, whole.ndim), index)
    add_flat(xp, whole, places.reshape(-1), g.reshape(-1))
    return whole.astype(g.dtype, copy=False)


gather.grad(input=lambda g, dim, index, input_meta: gather_backward(g, dim, index, input_meta.shape)).tangent("linear")
gather_backward.grad(g=lambda g, dim, index: gather(g, dim, index)).tangent("linear")
gather.by_loops("gather_backward")
gather_backward.by_loops("gather_backward")


def _put_along_loop(loops: Loops, xp: Any, g: Array, dim: int, index: Array, shape: Ints) -> Array | None:
    return _by_loop(loops, "put_along", "scatter", g, dim, index, shape)


@op(name="_put_along", node="ScatterBackward0", cost=gathering(30))
@with_loop(_put_along_loop)
def put_along(xp: Any, g: Array, dim: int, index: Array, shape: Ints) -> Array:
    """Write g into zeros at the indices, none of which repeats."""
    whole = xp.zeros(shape, g.dtype)
    whole.reshape(-1)[flat_places(xp, "scatter", whole.shape, normalize_dim(dim, whole.ndim), index)] = g
    return whole


put_along.grad(g=lambda g, dim, index: gather(g, dim, index)).tangent("linear")
put_along.by_loops("put_along", "gather_backward")


def source_part(src: Any, index: Any) -> Any:
    """The part of a scatter's source that the index covers, usually all of it. Raises EngineError: RUNTIME."""
    if not hasattr(src, "shape") or src.shape == index.shape or 0 in index.shape:
        return src
    if (src.ndim or 1) != (index.ndim or 1):
        raise EngineError(Reason.RUNTIME, "Index tensor must have the same number of dimensions as src tensor")
    if not (src.ndim and index.ndim):
        if math.prod(index.shape) > math.prod(src.shape):
            raise EngineError(
                Reason.RUNTIME,
                f"Expected index {list(index.shape)} to be no larger size than src {list(src.shape)}",
            )
        return reshape(narrow(src, 0, 0, 1), ()) if src.ndim else src
    if any(n > m for n, m in zip(index.shape, src.shape, strict=True)):
        raise EngineError(
            Reason.RUNTIME,
            f"Expected index {list(index.shape)} to be no larger than src {list(src.shape)}",
        )
    return getitem(src, tuple(slice(0, size) for size in index.shape))


@op(
    name="_scatter",
    in_place=True,
    node=lambda input, dim, index, src: f"ScatterBackward{int(type(src) is not Tensor)}",
    cost=gathering(30),
)
def _scatter(xp: Any, input: Array, dim: int, index: Array, src: Array | Number) -> Array:
    if hasattr(src, "dtype") and src.dtype != input.dtype:
        raise EngineError(Reason.RUNTIME, "scatter(): Expected self.dtype to be equal to src.dtype", op="scatter")
    places = flat_places(xp, "scatter", input.shape, normalize_dim(dim, input.ndim), index)
    result = input.copy(order="C")
    result.reshape(-1)[places] = src
    return result


_scatter.casts_numbers("src")
_scatter.bounds_results(elements_of(0, 3))


@op(name="_scatter_add", in_place=True, node="ScatterAddBackward0", cost=gathering(60))
def _scatter_add(xp: Any, input: Array, dim: int, index: Array, src: Array) -> Array:
    if src.dtype != input.dtype:
        raise EngineError(Reason.RUNTIME, "scatter(): Expected self.dtype to be equal to src.dtype", op="scatter_add")
    places = flat_places(xp, "scatter_add", input.shape, normalize_dim(dim, input.ndim), index)
    result = input.astype(dtypes.float32, order="C") if is_half(input.dtype) else input.copy(order="C")
    add_flat(xp, result, places.reshape(-1), src.astype(result.dtype, copy=False).reshape(-1))
    return result.astype(input.dtype, copy=False)


_scatter.grad(
    input=lambda g, dim, index: _scatter(g, dim, index, 0),
    src=lambda g, dim, index: gather(g, dim, index),
).tangent("linear")
_scatter_add.grad(input=lambda g: g, src=lambda g, dim, index: gather(g, dim, index)).tangent("linear")


@composite(in_place=True, no_overlap=True)
def scatter(
    input: Array, dim: int, index: Array, src: Array | Number | None = None, *, value: Number | None = None
) -> Array:
    """Copy of the input with `src`, or a value, written at the indices along `dim` (torch.scatter)."""
    given = src if value is None else value
    if given is None:
        raise EngineError(Reason.ARGUMENT_TYPE, "scatter() missing 1 required argument: 'src'", op="scatter")
    return _scatter(input, dim, index, source_part(given, index))


@scatter.overload("src")
def _(input: Array, dim: int, index: Array, src: Array | Number) -> Any: ...


@scatter.overload("value")
def _(input: Array, dim: int, index: Array, *, value: Number) -> Any: ...


@composite(in_place=True, no_overlap=True)
def scatter_add(input: Array, dim: int, index: Array, src: Array) -> Array:
    """Copy of the input with `src` added at the indices along `dim` (torch.scatter_add)."""
    return _scatter_add(input, dim, index, source_part(src, index))


@composite
def take_along_dim(input: Array, indices: Array, dim: int | None = None) -> Array:
    """gather with broadcasting except along `dim`; without `dim`, of the flattened tensors (torch.take_along_dim)."""
    if indices.dtype != dtypes.int64:
        title = dtypes.TITLES[indices.dtype]
        raise EngineError(
            Reason.RUNTIME,
            f"torch.take_along_dim(): dtype of indices should be Long but got {title}",
            op="take_along_dim",
        )
    if dim is None:
        return gather(flatten(input), 0, flatten(indices))
    if input.ndim != indices.ndim:
        raise EngineError(
            Reason.RUNTIME,
            "torch.take_along_dim(): input and indices should have the same number of dimensions, but got "
            f"{input.ndim} dimensions for input, and {indices.ndim} dimensions for indices",
        )
    dim = normalize_dim(dim, input.ndim)
    common = np.broadcast_shapes(_without(input.shape, dim), _without(indices.shape, dim))
    spread = (*common[:dim], -1, *common[dim + 1 :])
    if input.shape[dim]:
        indices = remainder(indices, input.shape[dim])  # PyTorch wraps indices around, also those beyond the size
    return gather(expand(input, spread), dim, expand(indices, spread))


def _without(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return (*shape[:dim], 1, *shape[dim + 1 :])


@composite
def take(input: Array, index: Array) -> Array:
    """Elements of the flattened tensor at `index` (torch.take)."""
    if index.dtype != dtypes.int64:
        title = dtypes.TITLES[index.dtype]
        raise EngineError(Reason.RUNTIME, f"take(): Expected a long tensor for index, but got {title}", op="take")
    # A 0-d index in brackets gives a view; a vector of one index gives a copy.
    return reshape(getitem(reshape(input, (-1,)), (reshape(index, (-1,)),)), index.shape)


# Masks: the number of elements depends on values.


@op(data_dependent=True, cost=30)
def masked_select(xp: Any, input: Array, mask: Array) -> Array:
    """Vector of the elements where the mask is True (torch.masked_select)."""
    if mask.dtype != dtypes.bool_:
        raise EngineError(Reason.RUNTIME, "masked_select: expected BoolTensor for mask")
    broadcast_shape(input.shape, mask.shape)
    input, mask = xp.broadcast_arrays(input, mask)
    return input[mask]


@op(name="_masked_select_backward", node="MaskedScatterBackward0", cost=of_shape(10, 2))
def _masked_select_backward(xp: Any, g: Array, mask: Array, shape: Ints) -> Array:
    wide = np.broadcast_shapes(shape, mask.shape)
    whole = xp.zeros(wide, g.dtype)
    whole[xp.broadcast_to(mask, wide)] = g
    return whole


_masked_select_backward.sized_by(lambda g, mask, shape: math.prod(np.broadcast_shapes(shape, mask.shape)) * g.itemsize)
masked_select.grad(input=lambda g, mask, input_meta: _masked_select_backward(g, mask, input_meta.shape))
masked_select.tangent("linear")
_masked_select_backward.grad(g=lambda g, mask: masked_select(g, mask)).tangent("linear")


@op(name="_nonzero", data_dependent=True, cost=30)
def _nonzero(xp: Any, input: Array) -> Array:
    if not input.ndim:
        return xp.zeros((int(bool(input)), 0), dtypes.int64)
    found = xp.nonzero(input)
    if input.ndim == 1:
        return found[0].reshape(-1, 1).astype(dtypes.int64, copy=False)
    together = getattr(found[0], "base", None)  # NumPy's index vectors are columns of one array
    if xp is np and together is not None and together.shape == (found[0].size, input.ndim):
        return together.astype(dtypes.int64, copy=False)
    return xp.stack(found, axis=1).astype(dtypes.int64, copy=False)


_nonzero.bounds_results(lambda args, operands: [Range(0, max(args[0].shape, default=1) - 1)], of_integers=False)
_nonzero.sized_by(lambda input: input.size * max(1, input.ndim) * 8)


@composite(data_dependent=True, differentiable=False, outputs=("...",))
def nonzero(input: Array, *, as_tuple: bool = False) -> Array:
    """Indices of nonzero elements, one per row; or a tuple of one vector per dimension (torch.nonzero)."""
    places = _nonzero(input if input.ndim or not as_tuple else reshape(input, (1,)))
    if not as_tuple:
        return places
    return tuple(getitem(places, (slice(None), dim)) for dim in range(places.shape[1]))


nonzero.variant("", as_tuple=False)
nonzero.variant("as_tuple", ("...",), as_tuple=True)


@composite(data_dependent=True, differentiable=False)
def argwhere(input: Array) -> Array:
    """Indices of nonzero elements, one per row (torch.argwhere)."""
    return _nonzero(input)


@composite(
    data_dependent=lambda input, repeats, *rest: hasattr(repeats, "dtype") and rest[-1] is None, reads_values=True
)
def repeat_interleave(
    input: Array, repeats: Array | Number, dim: int | None = None, *, output_size: int | None = None
) -> Array:
    """Repeat each element, or each slice along `dim`, next to itself (torch.repeat_interleave)."""
    if dim is None:
        input, dim = reshape(input, (-1,)), 0
    dim = normalize_dim(dim, input.ndim)
    size = input.shape[dim]
    array = input.array if type(input) is Tensor else input
    counts: Any = np.asarray(repeats) if not hasattr(repeats, "dtype") else getattr(repeats, "array", repeats)
    if counts.ndim > 1:
        raise EngineError(Reason.RUNTIME, "repeats must be 0-dim or 1-dim tensor")
    if counts.ndim and counts.size not in (1, size):
        raise EngineError(Reason.RUNTIME, "repeats must have the same size as input along dim")
    if counts.size and int(counts.min()) < 0:
        raise EngineError(Reason.RUNTIME, "repeats can not be negative")
    total = int(counts.sum()) * (size if counts.size == 1 else 1)
    if output_size is not None and output_size != total:
        whole = f"repeat_interleave: Invalid output_size, expected {total} but got {output_size}"
        tensor = "allocated size does not match required size"
        raise EngineError(Reason.RUNTIME, tensor if hasattr(repeats, "dtype") else whole)
    admit((*input.shape[:dim], total, *input.shape[dim + 1 :]), array.dtype)
    places = module_of(array).asarray(np.repeat(np.arange(size), host(counts)))
    return index_select(input, dim, Tensor(places) if type(input) is Tensor else places)

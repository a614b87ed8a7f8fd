"""Indexing: x[key] and x[key] = value, index_put, and the adjoints, which sum gradients at repeated indices.

As in PyTorch, `x[key]` is a chain of views (select, slice, unsqueeze) and, for tensors in the key, one `_index`.
Every index is checked before the array module uses it, because CuPy silently wraps an index out of range.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import Number, cast_number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.index_bounds import learn, range_of
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import Composite, composite
from gradwire_engine.op.cost import indexing
from gradwire_engine.op.integer_bounds import elements_of, like_input
from gradwire_engine.op.op import cast_array, op
from gradwire_engine.op.refusals import check_no_overlap, check_overlap, check_writable, shares_elements
from gradwire_engine.op.value_access import module_behind, read_array
from gradwire_engine.ops.base.basic import expand
from gradwire_engine.ops.base.checks import check_index
from gradwire_engine.ops.base.fill import brought, check_mask, copy, fill, on_device
from gradwire_engine.ops.base.index_accumulation import add_rows, combine_at
from gradwire_engine.ops.shape.shape import alias, check_step, reshape, select, slice_, unsqueeze

Index = Any
Ints = Any


def checked(xp: Any, index: Array, size: int, dim: int, reason: Reason = Reason.INDEX_OUT_OF_RANGE) -> Array:
    """Check an index array and make negative indices positive. Raises EngineError if an index is out of bounds."""
    if not index.size:
        return index
    found = range_of(index)
    if found is None or found[0] < -size or found[1] >= size:
        found = int(index.min()), int(index.max())
        learn(index, *found)
    low, high = found
    if not size:
        raise EngineError(reason, "index is out of bounds for dimension with size 0", dim=dim, size=size)
    if low < -size or high >= size:
        raise EngineError(
            reason,
            f"index {high if high >= size else low} is out of bounds for dimension {dim} with size {size}",
            dim=dim,
            size=size,
        )
    return xp.where(index < 0, index + size, index) if low < 0 else index


# Index arrays: one per leading dimension; None takes the whole dimension.


def _positions(xp: Any, shape: tuple[int, ...], indices: list[Any]) -> list[Any]:
    """Check the index arrays and convert masks to integer arrays, on the input's device; None stays None."""
    found: list[Any] = []
    for place, index in enumerate(indices):
        if index is None:
            found.append(None)
            continue
        index = xp.asarray(index)
        if index.dtype not in (dtypes.bool_, dtypes.uint8):
            _refuse_kind(index)
            _refuse_too_many(len(found) + 1, shape)
            found.append(checked(xp, index.astype(dtypes.int64, copy=False), shape[len(found)], len(found)))
            continue
        _check_mask(index, shape, place, len(found))
        found.extend(xp.nonzero(index))
    return found


def _check_mask(mask: Array, shape: tuple[int, ...], place: int, start: int) -> None:
    """Refuse a mask that does not have the sizes of the dimensions from `start` on."""
    _refuse_too_many(start + mask.ndim, shape)
    if mask.shape != shape[start : start + mask.ndim]:
        raise EngineError(
            Reason.INDEX_OUT_OF_RANGE,
            f"The shape of the mask {list(mask.shape)} at index {place} does not match the shape of the indexed "
            f"tensor {list(shape)} at index {start}",
        )


def _refuse_kind(index: Array) -> None:
    if index.dtype not in (dtypes.int64, dtypes.int32):
        raise EngineError(Reason.INDEX_OUT_OF_RANGE, "tensors used as indices must be long, int, byte or bool tensors")


def _refuse_too_many(count: int, shape: tuple[int, ...]) -> None:
    if count > len(shape):
        raise EngineError(Reason.INDEX_OUT_OF_RANGE, f"too many indices for tensor of dimension {len(shape)}")


def _broadcast_indices(xp: Any, positions: list[Any]) -> list[Any]:
    given = [index for index in positions if index is not None]
    if len(given) == 1:
        return given
    try:
        return list(xp.broadcast_arrays(*given))
    except ValueError as error:
        shapes = ", ".join(str(list(index.shape)) for index in given)
        raise EngineError(
            Reason.INDEX_OUT_OF_RANGE,
            f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}",
        ) from error


def _key(xp: Any, shape: tuple[int, ...], indices: list[Any]) -> tuple[Any, ...]:
    positions = _positions(xp, shape, indices)
    _broadcast_indices(xp, positions)
    return tuple(slice(None) if index is None else index for index in positions)


def _is_mask(index: Any) -> bool:
    return getattr(index, "dtype", None) in (dtypes.bool_, dtypes.uint8)


@op(
    name="_index",
    node="IndexBackward0",
    data_dependent=lambda input, indices: any(map(_is_mask, indices)),
    cost=indexing(30),
    moves_list=True,
)
def index_(xp: Any, input: Array, indices: list[Array]) -> Array:
    """Elements selected by index arrays and masks; None takes the whole dimension."""
    return input[_key(xp, input.shape, indices)]


index_.works_in(forward=0.8).bounds_results(like_input)


def _chosen_bytes(input: Array, indices: list[Array]) -> int:
    """Upper bound of the result's bytes: exact for integer arrays, the input's bytes with masks."""
    whole = [index for index in indices if index is not None]
    if any(index.dtype == dtypes.bool_ for index in whole):
        return int(input.nbytes)
    rest = [size for index, size in zip(indices, input.shape, strict=False) if index is None]
    rest += input.shape[len(indices) :]
    shape = whole[0].shape if len(whole) == 1 else np.broadcast_shapes(*(index.shape for index in whole))
    return int(math.prod(shape) * math.prod(rest) * input.itemsize)


index_.sized_by(_chosen_bytes)


@op(name="_index_backward", node="IndexPutBackward0", cost=indexing(60))
def _index_backward(xp: Any, g: Array, indices: list[Array], shape: Ints) -> Array:
    """Adjoint of `index_`: add g into zeros at the indices."""
    given = [place for place in indices if place is not None]
    if len(given) == 1 and given[0].dtype == dtypes.bool_:  # a mask selects each element once
        whole = xp.zeros(shape, g.dtype)
        whole[_key(xp, shape, indices)] = g
        return whole
    positions = _positions(xp, shape, indices)
    chosen = [dim for dim, place in enumerate(positions) if place is not None]
    arrays = _broadcast_indices(xp, positions)
    rest = [dim for dim in range(len(shape)) if dim not in chosen]
    # NumPy puts the indexed dimensions at their position if they are adjacent, else first.
    beside = chosen[-1] - chosen[0] == len(chosen) - 1
    first = chosen[0] if beside else 0
    wide = arrays[0].ndim
    rows = xp.moveaxis(g, range(first, first + wide), range(wide)).reshape(arrays[0].size, -1) if g.size else None
    sizes = [shape[dim] for dim in chosen]
    others = [shape[dim] for dim in rest]
    if rows is None:
        return xp.zeros(shape, g.dtype)
    places = xp.ravel_multi_index(tuple(arrays), tuple(sizes)) if len(sizes) > 1 else arrays[0]
    added = add_rows(xp, rows, places.reshape(-1), int(np.prod(sizes)))
    order = [*chosen, *rest]
    return added.reshape(*sizes, *others).transpose([order.index(dim) for dim in range(len(shape))])


index_.grad(input=lambda g, input_meta, indices: _index_backward(g, indices, input_meta.shape)).tangent("linear")
_index_backward.grad(g=lambda g, indices: index_(g, indices)).tangent("linear")


def _mask_alone(indices: list[Any], values: Any) -> Any:
    """The mask of a call that is a masked_fill: one mask and one value, which may have any dtype and share memory."""
    given = [place for place in indices if place is not None]
    alone = len(given) == 1 and _is_mask(given[0]) and getattr(values, "size", 1) == 1
    return given[0] if alone else None


@op(
    in_place=True,
    no_overlap=lambda input, indices, values, accumulate: accumulate or _mask_alone(indices, values) is None,
    cost=indexing(30),
    moves_list=True,
)
def index_put(xp: Any, input: Array, indices: list[Array], values: Array | Number, accumulate: bool = False) -> Array:
    """Copy of the input with `values` written, or added, at the selected elements (torch.index_put)."""
    result = input.copy()
    _put(xp, result, indices, values, accumulate)
    return result


def _put(xp: Any, input: Array, indices: list[Any], values: Any, accumulate: bool) -> None:
    # PyTorch checks masks and the number of indices before dtypes.
    if not indices:
        raise EngineError(Reason.RUNTIME, "index_put: at least one index is needed; fill_ and copy_ write all elements")
    mask = _mask_alone(indices, values)
    fills = mask is not None and not accumulate
    if fills and xp is not np and len(indices) == 1:
        _fill_masked(xp, input, mask, values)
        return
    early = len(indices) > input.ndim or any(map(_is_mask, indices))
    key = _key(xp, input.shape, indices) if early else None
    if fills:
        check_mask(mask)
    elif hasattr(values, "dtype") and values.dtype != input.dtype:
        _check_values(input, key or _key(xp, input.shape, indices), values)
        raise EngineError(
            Reason.RUNTIME,
            "Index put requires the source and destination dtypes match, got "
            f"{dtypes.TITLES[input.dtype]} for the destination and {dtypes.TITLES[values.dtype]} for the source.",
        )
    check_writable(input)
    key = key or _key(xp, input.shape, indices)
    if getattr(values, "ndim", 0) and _may_misread(key, values, mask, accumulate):
        _check_values(input, key, values)
    values = cast_array(values if hasattr(values, "dtype") else cast_number(values, input.dtype), input.dtype)
    try:
        if not accumulate:
            input[key] = values
        else:
            combine_at(xp, "add", input, key, values)
    except ValueError as error:
        raise _mismatch(input[key], values) from error


def _may_misread(key: tuple[Any, ...], values: Array, mask: Any, accumulate: bool) -> bool:
    """Whether NumPy may not refuse values that do not fit.

    It drops leading dimensions that the selection does not have. Its `add.at` at a key with slices reads memory behind
    the values' sizes.
    """
    if accumulate and any(type(each) is slice for each in key):
        return True
    return mask is None and values.ndim > 1 and values.shape[0] == 1


def _fill_masked(xp: Any, input: Array, mask: Array, value: Any) -> None:
    """Write one value where a mask is True. Nothing waits for the GPU, as the mask's positions would."""
    mask = xp.asarray(mask)
    _check_mask(mask, input.shape, 0, 0)
    check_mask(mask)
    check_writable(input)
    value = cast_array(value if hasattr(value, "dtype") else cast_number(value, input.dtype), input.dtype)
    wide = mask.reshape(mask.shape + (1,) * (input.ndim - mask.ndim))
    xp.copyto(input, value.reshape(()) if hasattr(value, "reshape") else value, where=wide)


def _check_values(input: Array, key: Any, values: Array) -> None:
    """Raise EngineError unless the values broadcast to the selected elements, which PyTorch checks before dtypes."""
    chosen = input[key]
    try:
        fits = np.broadcast_shapes(chosen.shape, values.shape) == chosen.shape
    except ValueError:
        fits = False
    if not fits:
        raise _mismatch(chosen, values)


def _mismatch(chosen: Array, values: Array) -> EngineError:
    return EngineError(
        Reason.RUNTIME,
        f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of shape "
        f"{list(chosen.shape)}",
    )


index_put.into(_put, always=True).bounds_results(elements_of(0, 2, unless=3))
index_put.grad(
    input=lambda g, indices, accumulate: g if accumulate else index_put(g, indices, 0, False),
    values=lambda g, indices: index_(g, indices),
).tangent("linear")

# x[key] and x[key] = value.


def _parse(shape: tuple[int, ...], key: Any) -> tuple[tuple[Any, ...], list[Any]]:
    """Split a key: the ints, slices and Nones of a view, and for each of its dimensions an index array or None."""
    items = [_normalize_item(item) for item in (key if isinstance(key, tuple) else (key,))]
    taken = sum(_indexed_dims(item) for item in items)
    if taken > len(shape):
        raise EngineError(
            Reason.INDEX_OUT_OF_RANGE,
            f"too many indices for tensor of dimension {len(shape)}"
            if shape
            else "invalid index of a 0-dim tensor. Use `tensor.item()` in Python to convert a 0-dim tensor to a number",
        )
    basic: list[Any] = []
    indices: list[Any] = []
    dim = covered = 0  # dim: dimensions of the input so far; covered: dimensions of the view in `indices`
    rest = len(shape) - taken
    for item in items:
        if item is Ellipsis:
            basic += [slice(None)] * rest
            dim, rest = dim + rest, 0
        elif item is None or isinstance(item, slice):
            basic.append(item)
        elif type(item) is int:
            basic.append(check_index(item, dim, shape[dim]))
        else:  # an index array, or a bool, which acts as a mask of a new dimension
            shown = sum(type(one) is not int for one in basic)
            wide = max(_indexed_dims(item), 1)
            basic += [None] if _is_single_bool(item) else [slice(None)] * wide
            indices += [None] * (shown - covered) + [item]
            covered = shown + wide
        dim += _indexed_dims(item)
    return tuple(basic), indices


def _normalize_item(item: Any) -> Any:
    """Normalize one item of a key: integers and 0-dim integer tensors become ints, lists become arrays.

    Raises EngineError: INDEX_OUT_OF_RANGE for another type, ARGUMENT_VALUE for a slice whose step is below 1.
    """
    if isinstance(item, slice) and item.step is not None:
        check_step(int(item.step))
    if item is None or item is Ellipsis or isinstance(item, slice | bool):
        return item
    if isinstance(item, list):
        item = np.asarray(item, None if item else dtypes.int64)
    if not hasattr(item, "dtype"):
        if hasattr(item, "__index__"):
            return item.__index__()
        raise EngineError(
            Reason.INDEX_OUT_OF_RANGE,
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices "
            f"(got {type(item).__name__})",
        )
    if not item.ndim and item.dtype.kind in "iu":
        return int(read_array(item))
    return item


def _is_single_bool(item: Any) -> bool:
    """Whether the item is a single bool, which acts as a mask of a new dimension of size 1."""
    return isinstance(item, bool) or (getattr(item, "ndim", 1) == 0 and item.dtype == dtypes.bool_)


def _indexed_dims(item: Any) -> int:
    """Number of dimensions that an item indexes."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.ndim if hasattr(item, "dtype") and item.dtype in (dtypes.bool_, dtypes.uint8) else 1


def _has_mask(input: Any, index: Any, *rest: Any) -> bool:
    items = index if isinstance(index, tuple) else (index,)
    return any(getattr(item, "dtype", None) in (dtypes.bool_, dtypes.uint8) or isinstance(item, bool) for item in items)


def _is_full_slice(item: Any, size: int) -> bool:
    """Whether the item is a slice of the whole dimension."""
    if not isinstance(item, slice) or item.step not in (None, 1):
        return False
    return item.start in (None, 0) and (item.stop is None or item.stop >= size)


def _basic_view(input: Any, basic: tuple[Any, ...]) -> Any:
    """View of ints, slices and Nones; the input itself if they select all of it."""
    dim = 0
    for item in basic:
        if type(item) is int:
            input = select(input, dim, item)
            continue
        if item is None:
            input = unsqueeze(input, dim)
        elif not _is_full_slice(item, input.shape[dim]):
            input = _sliced(input, dim, item)
        dim += 1
    return input


def _sliced(input: Any, dim: int, item: slice) -> Any:
    step = 1 if item.step is None else int(item.step)
    return slice_(input, dim, item.start, item.stop, step)


def _resolve_bools(input: Any, indices: list[Any]) -> list[Any]:
    """Replace each single bool as PyTorch does: True by the index 0, False by no index."""
    xp = module_behind(input)
    return [xp.zeros(1 if read_array(item) else 0, dtypes.int64) if _is_single_bool(item) else item for item in indices]


@composite(data_dependent=_has_mask, views="maybe")
def getitem(input: Array, index: Index) -> Array:
    """x[index] with ints, slices, None, Ellipsis, masks and integer tensors (torch.Tensor.__getitem__)."""
    if type(index) is int:  # fast paths
        if not input.ndim:
            _parse((), index)
        return select(input, 0, index)
    if type(index) is tuple and len(index) == 1:
        index = index[0]
    if isinstance(index, slice) and input.ndim:
        return _sliced(input, 0, index)
    basic, indices = _parse(input.shape, index)
    shown = _basic_view(input, basic)
    if indices:
        return index_(shown, _resolve_bools(input, indices))
    return alias(shown) if shown is input else shown


@op(name="_set_index", node="CopySlices", in_place=True, drops_grad=True, cost=indexing(30), moves_list=True)
def _set_index(xp: Any, input: Array, index: Index, indices: list[Array], value: Array | Number) -> Array:
    """Copy of the input with `value` written at a key, in `_parse`'s form."""
    result = input.copy()
    _write_index(xp, result, index, indices, value)
    return result


def _write_index(xp: Any, input: Array, basic: Any, indices: list[Any], value: Any) -> None:
    key = (*basic, Ellipsis)  # with the Ellipsis NumPy returns a writable 0-d array for a single element
    part = input[key]
    if indices:
        _put(xp, part, indices, value, False)
        return
    shape = getattr(value, "shape", ())
    if len(shape) > part.ndim or any(
        n not in (1, m) for n, m in zip(reversed(shape), reversed(part.shape), strict=False)
    ):
        raise EngineError(
            Reason.SHAPE,
            f"The expanded size of the tensor must match the existing size at non-singleton dimension: shape mismatch: "
            f"value tensor of shape {list(shape)} cannot be broadcast to indexing result of shape {list(part.shape)}",
        )
    check_writable(part)
    part[...] = cast_array(brought(value, part), input.dtype)


_set_index.into(_write_index, always=True).bounds_results(elements_of(0, 3))
_set_index.takes_from_devices(lambda input, index, indices, value: not indices)
_set_index.grad(
    input=lambda g, index, indices: _set_index(g, index, indices, 0),
    value=lambda g, index, indices, value_meta: (
        index_(_basic_view(g, index), indices) if indices else on_device(_basic_view(g, index), value_meta.device)
    ),
).tangent("linear")


def _strip_leading_ones(value: Any) -> Any:
    """Remove leading dimensions of size 1; a value may have more of them than the target."""
    shape: tuple[int, ...] = getattr(value, "shape", ())
    if not shape or shape[0] != 1:
        return value
    ones = next((axis for axis, size in enumerate(shape) if size != 1), len(shape))
    return reshape(value, shape[ones:])


class _SetItem(Composite):
    """x[index] = value: in place as in PyTorch, and out of place on a copy."""

    writes_by_parts = True

    def in_place(self, args: tuple[Any, ...]) -> Tensor:
        target: Tensor = args[0]
        _, index, value = args
        basic, indices = _parse(target.shape, index)
        indices, given = _resolve_bools(target, indices), value
        value = _strip_leading_ones(value)
        value = value if hasattr(value, "dtype") else cast_number(value, target.dtype)
        if len(basic) <= len(target.shape) and all(map(_is_full_slice, basic, target.shape)):
            if not indices:
                _check_source(target, target.array, given)
            _put_in_place(target, indices, value)
        elif shares_elements(target.array):
            # The target's elements share memory, so a write changes others too: write through a recorded view.
            _put_in_place(_basic_view(target, basic), indices, value)
        else:
            key = (*basic, Ellipsis)
            part = target.array[key]
            if indices and _mask_alone(indices, value) is None:
                check_no_overlap(part, (indices, value))
            elif not indices:
                _check_source(target, part, given)
            _set_index.in_place((target, basic, indices, value))
            if target.view is not None:
                target.view.written = True
                target.storage.history += 1  # makes the view refresh
        return target


def _check_source(target: Tensor, part: Array, given: Any) -> None:
    """Refuse a value that partly overlaps the written memory, with PyTorch's rule for dense tensors.

    A value with another shape is expanded first. An expanded single element has strides of 0, unlike the written part.
    """
    if type(given) is not Tensor or given.storage is not target.storage:
        return
    if given.shape == part.shape:
        check_overlap(part, given.array)
    elif given.ndim and given.size == part.size == 1:
        if part.ndim:
            check_no_overlap(part, (given,))
    elif given.ndim and given.shape[-part.ndim :] == part.shape[-given.ndim :] and given.size == part.size:
        check_overlap(part.squeeze(), given.array.squeeze())


def _put_in_place(target: Tensor, indices: list[Any], value: Any) -> None:
    if indices:
        index_put.in_place((target, indices, value, False))
    elif getattr(value, "ndim", 0):
        copy.in_place((target, value if value.shape == target.shape else expand(value, target.shape), False))
    else:
        check_writable(target.array)  # fill_ alone would accept elements that share memory
        fill.in_place((target, value))


def _setitem(input: Array, index: Index, value: Array | Number) -> Array:
    """Copy of x after x[index] = value; in place as `setitem_` (torch.Tensor.__setitem__)."""
    basic, indices = _parse(input.shape, index)
    return _set_index(input, basic, _resolve_bools(input, indices), _strip_leading_ones(value))


setitem = _SetItem(_setitem, name="setitem", in_place=True)

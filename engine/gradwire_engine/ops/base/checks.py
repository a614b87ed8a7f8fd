"""Checks of arguments before an op computes, with PyTorch's messages: dims, sizes, memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.dtypes import TITLES, DType
from gradwire_engine.core.errors import EngineError, Reason

# NumPy counts bytes in a signed 64-bit integer, so no array can be larger.
MOST_ELEMENTS = 1 << 62
MOST_RESULTS = 1 << 17


def ints(value: int | Sequence[int] | None) -> tuple[int, ...]:
    """Convert an argument of one int or several to a tuple; None gives the empty tuple."""
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)


def refuse_derivative(name: str) -> Any:
    """Gradient of an op that has none, or "op: argument". Raises EngineError: NOT_SUPPORTED."""
    raise EngineError(
        Reason.NOT_SUPPORTED, f"the derivative for '{name}' is not implemented.", op=name.partition(":")[0]
    )


def normalize_dim(dim: int, ndim: int) -> int:
    """Count a dimension from the front; a 0-d tensor accepts 0 and -1. Raises EngineError: DIM_OUT_OF_RANGE."""
    span = ndim or 1
    if not -span <= dim < span:
        raise EngineError(
            Reason.DIM_OUT_OF_RANGE,
            f"Dimension out of range (expected to be in range of [{-span}, {span - 1}], but got {dim})",
            dim=dim,
            ndim=ndim,
        )
    return dim + span if dim < 0 else dim


def normalize_dims(dims: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Dimensions of a reduction, counted from the front, each once; None or an empty list means all."""
    given = ints(dims)
    if not given:
        return tuple(range(ndim))
    normal = tuple(normalize_dim(dim, ndim) for dim in given)
    if len(set(normal)) != len(normal):
        twice = next(dim for dim in normal if normal.count(dim) > 1)
        raise EngineError(Reason.RUNTIME, f"dim {twice} appears multiple times in the list of dims", dims=dims)
    return normal if ndim else ()


def check_index(index: int, dim: int, size: int) -> int:
    """Count an index from the front. Raises EngineError: INDEX_OUT_OF_RANGE."""
    if not -size <= index < size:
        raise EngineError(
            Reason.INDEX_OUT_OF_RANGE,
            f"index {index} is out of bounds for dimension {dim} with size {size}",
            index=index,
            dim=dim,
            size=size,
        )
    return index + size if index < 0 else index


def needs_tensor(name: str, *values: Any) -> None:
    """Refuse a call whose arguments are all numbers. Raises EngineError: ARGUMENT_TYPE."""
    if not any(hasattr(value, "dtype") for value in values):
        raise EngineError(
            Reason.ARGUMENT_TYPE,
            f"{name}() received an invalid combination of arguments: one of them must be a tensor, not all numbers",
            op=name,
        )


def needs_order(kernel: str, dtype: DType) -> None:
    """Refuse complex numbers, which NumPy would order lexicographically. Raises EngineError: NOT_SUPPORTED."""
    if dtype.kind == "c":
        raise EngineError(Reason.NOT_SUPPORTED, f"\"{kernel}\" not implemented for '{TITLES[dtype]}'", op=kernel)


def needs_norm_dtype(name: str, given: DType, dtype: DType | None) -> None:
    """Refuse a dtype that a norm cannot be computed in: another kind than the input's, or a narrower one.

    Raises EngineError: RUNTIME, also for an input that is neither floating point nor complex.
    """
    if dtypes.category(given) < dtypes.FLOAT:
        title = dtypes.TITLES[given]
        raise EngineError(Reason.RUNTIME, f"{name}: Expected a floating point or complex tensor as input. Got {title}")
    if dtype is None:
        return
    title = dtypes.TITLES[dtype]
    if dtypes.category(dtype) < dtypes.FLOAT:
        raise EngineError(Reason.RUNTIME, f"{name}: dtype should be floating point or complex, but got {title}")
    if (dtype.kind == "c") != (given.kind == "c"):
        kind = "complex" if given.kind == "c" else "real"
        raise EngineError(Reason.RUNTIME, f"{name}: dtype should be {kind} for {kind} inputs, but got {title}")
    if dtypes.promote_types(given, dtype) != dtype:
        raise EngineError(
            Reason.RUNTIME,
            f"{name}: the dtype of the input ({dtypes.TITLES[given]}) should be convertible without narrowing to the "
            f"specified dtype ({title})",
        )


def as_sortable(array: Any) -> Any:
    """Convert bfloat16 to float32 for sorting, because NumPy sorts nan last only for float32."""
    return array.astype(dtypes.float32) if array.dtype == dtypes.bfloat16 else array


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Broadcast shape of the given shapes. Raises EngineError: SHAPE, which names the two sizes that do not match."""
    result = shapes[0]
    for shape in shapes[1:]:
        if shape == result or not shape:
            continue
        ndim = max(len(result), len(shape))
        a, b = (1,) * (ndim - len(result)) + result, (1,) * (ndim - len(shape)) + shape
        for dim, (m, n) in enumerate(zip(a, b, strict=True)):
            if m != n and 1 not in (m, n):
                raise EngineError(
                    Reason.SHAPE,
                    f"The size of tensor a ({m}) must match the size of tensor b ({n}) at non-singleton dimension "
                    f"{dim}: shapes are {', '.join(str(list(one)) for one in shapes)}",
                )
        result = tuple(n if m == 1 else m for m, n in zip(a, b, strict=True))
    return result


def check_count(name: str, count: int) -> None:
    """Refuse more than MOST_RESULTS results before they are computed. Raises EngineError: MEMORY_LIMIT."""
    if count > MOST_RESULTS:
        raise EngineError(
            Reason.MEMORY_LIMIT, f"{name}() would return {count} results; the maximum is {MOST_RESULTS}", op=name
        )


def viewed(array: Any, shape: tuple[int, ...]) -> Any:
    """View with another shape; None if the strides do not allow it."""
    view = array.view()
    try:
        view.shape = shape
    except AttributeError:
        return None
    return view


def reshaped(array: Any, shape: tuple[int, ...]) -> Any:
    """Reshape: a view if the strides allow it, else a copy, whose memory is admitted first.

    Raises EngineError: MEMORY_LIMIT.
    """
    if array.flags.c_contiguous:
        return array.reshape(shape)
    view = viewed(array, shape)
    if view is None:
        admit(array.shape, array.dtype)  # not `shape`, which may contain -1
        return array.reshape(shape)
    return view


def admit(shape: Sequence[int], dtype: DType, temporary: int = 0) -> None:
    """Check that the account has room for an array before it is allocated.

    temporary: temporary bytes per element during the computation.
    Sizes of 0 count as 1, because the work along the other dimensions is the same.
    Raises EngineError: MEMORY_LIMIT, and RUNTIME for a negative size.
    """
    for size in shape:
        if size < 0:
            raise EngineError(
                Reason.RUNTIME,
                f"Trying to create tensor with negative dimension {size}: {list(shape)}. Dimension size must be "
                "non-negative.",
                shape=list(shape),
            )
    count = math.prod(size or 1 for size in shape)
    if count * dtype.itemsize >= MOST_ELEMENTS:
        raise EngineError(Reason.MEMORY_LIMIT, f"Storage size calculation overflowed with sizes={list(shape)}")
    CURRENT.get().account.admit(count * (dtype.itemsize + temporary))

"""Making arrays: of values, of a rule, like another."""

from __future__ import annotations

import operator
from builtins import bool as Bool
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

import gradwire.array_api._array as _array
from gradwire._base import dtypes
from gradwire._base.dtypes import dtype
from gradwire._base.errors import GradwireTypeError, GradwireValueError
from gradwire._functions import exchange
from gradwire._functions.create import create, make_tensor
from gradwire._tensor.tensor import Tensor
from gradwire.array_api._array import Array, as_array, call, cast
from gradwire.array_api._dtypes import Scalar

Shape: TypeAlias = "int | tuple[int, ...]"
Device: TypeAlias = "dtypes.device | str | None"


def asarray(obj: Any, /, *, dtype: dtype | None = None, device: Device = None, copy: Bool | None = None) -> Array:
    """An array of a number, nested sequences, a buffer, a DLPack object, or a tensor (in the same graph).

    `copy`: True for new memory, None for such where it is needed. Raises ValueError if it is False
    and a copy is needed, as for all values that are not on the server yet.
    """
    if isinstance(obj, Tensor):
        return _of_tensor(obj, dtype, device, copy)
    if copy is False:
        raise GradwireValueError("asarray(copy=False): the values are sent to a server, so a copy is needed")
    if isinstance(obj, (Bool, int, float, complex)):
        return _array.full((), obj, dtype, device)
    if isinstance(obj, (list, tuple)) and _holds_tensors(obj):
        return _of_tensor(_stacked(obj), dtype, device, None)
    if not isinstance(obj, (list, tuple, range, np.ndarray, np.generic)):
        obj = _as_numpy(obj)
    elif isinstance(obj, (list, tuple, range)) and dtype is not None and dtype.numpy is not None:
        obj = np.asarray(obj, dtype=dtype.numpy)
    return as_array(make_tensor(obj, dtype, dtypes.device_name(device)))


def _of_tensor(x: Tensor, of: dtype | None, device: Device, copy: Bool | None) -> Array:
    wanted = x.dtype if of is None else of
    target_device = x.device if device is None else dtypes.device(device)
    if wanted is x.dtype and target_device == x.device:
        return call("clone", x) if copy else as_array(x, (x,))
    if copy is False:
        raise GradwireValueError(
            f"asarray(copy=False): {wanted} on {target_device} is not what the array has, a copy is needed"
        )
    return as_array(x.to(device=target_device, dtype=wanted), (x,))


def _holds_tensors(items: Sequence[Any]) -> Bool:
    return any(isinstance(one, Tensor) or (isinstance(one, (list, tuple)) and _holds_tensors(one)) for one in items)


def _stacked(items: Sequence[Any]) -> Array:
    """Nested sequences of numbers and arrays of one shape, joined along new axes, in the graph of their elements."""
    parts = [one if isinstance(one, Tensor) else asarray(one) for one in items]
    from gradwire.array_api._manipulation import stack

    return stack(parts)


def _as_numpy(obj: Any) -> Any:
    if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__") and not hasattr(obj, "__array__"):
        return np.from_dlpack(obj)
    if hasattr(obj, "__array__"):
        return np.asarray(obj)
    try:
        return np.asarray(memoryview(obj))
    except TypeError:
        raise GradwireTypeError(f"asarray() cannot make an array of {type(obj).__name__}") from None


def from_dlpack(x: object, /, *, device: Device = None, copy: Bool | None = None) -> Array:
    """An array of the values of what speaks DLPack, outside of any graph; of a tensor on the same memory.

    Raises ValueError if `copy` is False and a copy is needed, as for values outside the server.
    """
    if isinstance(x, Tensor) and not copy:
        return asarray(x.detach(), device=device, copy=copy)
    return as_array(exchange.from_dlpack(x, device=device, copy=copy))


def _made(op: str, args: tuple[Any, ...], of: dtype | None, device: Device) -> Array:
    wanted = dtypes.get_default_dtype() if of is None else of
    return as_array(create(op, args, {"dtype": wanted, "device": device}))


def zeros(shape: Shape, *, dtype: dtype | None = None, device: Device = None) -> Array:
    """Zeros, of the default floating dtype."""
    return _made("zeros", (_sizes(shape),), dtype, device)


def ones(shape: Shape, *, dtype: dtype | None = None, device: Device = None) -> Array:
    """Ones, of the default floating dtype."""
    return _made("ones", (_sizes(shape),), dtype, device)


def empty(shape: Shape, *, dtype: dtype | None = None, device: Device = None) -> Array:
    """Values that are not promised, of the default floating dtype."""
    return _made("empty", (_sizes(shape),), dtype, device)


def full(shape: Shape, fill_value: Scalar | Tensor, *, dtype: dtype | None = None, device: Device = None) -> Array:
    """One value everywhere (a number, or an array of one element); its kind determines the dtype.

    Raises OverflowError for a whole number that the dtype does not hold.
    """
    return _array.full(_sizes(shape), fill_value, dtype, device)


def _sizes(shape: Shape) -> tuple[int, ...]:
    return tuple(operator.index(size) for size in (shape if isinstance(shape, Iterable) else (shape,)))


def zeros_like(x: Tensor, /, *, dtype: dtype | None = None, device: Device = None) -> Array:
    """Zeros of an array's shape, dtype and device."""
    return _like("zeros", x, dtype, device)


def ones_like(x: Tensor, /, *, dtype: dtype | None = None, device: Device = None) -> Array:
    """Ones of an array's shape, dtype and device."""
    return _like("ones", x, dtype, device)


def empty_like(x: Tensor, /, *, dtype: dtype | None = None, device: Device = None) -> Array:
    """Values that are not promised, of an array's shape, dtype and device."""
    return _like("empty", x, dtype, device)


def full_like(x: Tensor, /, fill_value: Scalar | Tensor, *, dtype: dtype | None = None, device: Device = None) -> Array:
    """One value in an array's shape, dtype and device. Raises OverflowError for a whole number it does not hold."""
    target_device = x.device if device is None else device
    return _array.full(tuple(x.shape), fill_value, x.dtype if dtype is None else dtype, target_device, x._session)


def _like(op: str, x: Tensor, of: dtype | None, device: Device) -> Array:
    options = {"dtype": x.dtype if of is None else of, "device": x.device if device is None else device}
    return as_array(create(op, (tuple(x.shape),), options, x._session))


def arange(
    start: int | float,
    /,
    stop: int | float | None = None,
    step: int | float = 1,
    *,
    dtype: dtype | None = None,
    device: Device = None,
) -> Array:
    """Numbers from start (0 without a stop) up to, not including, stop, by step. Integers give int64."""
    # Arrays of one value are waited for: how many numbers there are follows from them.
    bounds: list[Any] = [one.item() if isinstance(one, (Tensor, np.generic)) else one for one in (start, stop, step)]
    low, high, step = bounds
    first, last = (0, low) if high is None else (low, high)
    if step == 0:
        raise GradwireValueError("arange(): step must not be zero")
    options: dict[str, Any] = {"dtype": dtype, "device": device}
    if dtype is None and any(isinstance(one, float) for one in (first, last, step)):
        options["dtype"] = dtypes.get_default_dtype()
    if (last - first) / step <= 0:
        last = first  # PyTorch refuses bounds that the step leads away from
    return as_array(create("arange", (first, last, step), options))


def linspace(
    start: Scalar,
    stop: Scalar,
    /,
    num: int,
    *,
    dtype: dtype | None = None,
    device: Device = None,
    endpoint: Bool = True,
) -> Array:
    """So many numbers evenly from start to stop, which is the last of them or, without `endpoint`, the next."""
    if num < 0:
        raise GradwireValueError(f"linspace(): num must not be negative, not {num}")
    of = dtype
    if of is None:
        default = dtypes.get_default_dtype()
        of = default.to_complex() if isinstance(start, complex) or isinstance(stop, complex) else default
    steps = num if endpoint or not num else num + 1
    if of.is_complex:
        low, high = complex(start), complex(stop)
        parts = [
            create("linspace", (a, b, steps), {"dtype": of.to_real(), "device": device})
            for a, b in ((low.real, high.real), (low.imag, high.imag))
        ]
        made = call("complex", *parts)
    else:
        made = as_array(create("linspace", (start, stop, steps), {"dtype": of, "device": device}))
    return made[:num] if steps > num else made


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: dtype | None = None, device: Device = None
) -> Array:
    """Ones on the k-th diagonal, zeros elsewhere."""
    columns = n_rows if n_cols is None else n_cols
    of = dtypes.get_default_dtype() if dtype is None else dtype
    k = max(-n_rows, min(k, columns))  # further away there is nothing either
    if k == 0:
        return as_array(create("eye", (n_rows, columns), {"dtype": of, "device": device}))
    row = arange(n_rows, device=device)[:, None]
    return as_array(cast(row + k == arange(columns, device=device), of))


def tril(x: Tensor, /, *, k: int = 0) -> Array:
    """The elements on the k-th diagonal and below, zeros above."""
    return call("tril", x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Array:
    """The elements on the k-th diagonal and above, zeros below."""
    return call("triu", x, k)


def meshgrid(*arrays: Tensor, indexing: Literal["xy", "ij"] = "xy") -> tuple[Array, ...]:
    """The coordinates of a grid, of vectors; "xy" has the second vector along the first axis.

    Raises ValueError for arrays that are no vectors, or another `indexing`.
    """
    if indexing not in ("xy", "ij"):
        raise GradwireValueError(f'meshgrid(): indexing must be "xy" or "ij", not {indexing!r}')
    if any(one.ndim != 1 for one in arrays):
        raise GradwireValueError("meshgrid() takes arrays of one axis")
    if not arrays:
        return ()
    axes = list(range(len(arrays)))  # the axis of each array
    if indexing == "xy" and len(arrays) > 1:
        axes[:2] = 1, 0
    sizes = [one.shape[0] for one in arrays]
    shape = [sizes[axes.index(axis)] for axis in range(len(arrays))]
    rows = [
        one.reshape([-1 if axis == own else 1 for axis in range(len(arrays))])
        for one, own in zip(arrays, axes, strict=True)
    ]
    return tuple(as_array(one.expand(shape), arrays) for one in rows)

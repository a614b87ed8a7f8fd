"""Creation of tensors: filled, counted, or like another tensor. Sizes are checked before any allocation.

These functions record no nodes: they return leaves, which require grad on request.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from gradwire_engine.core import device as devices
from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType, Number, cast_number, is_half
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.declaration import WIDEST
from gradwire_engine.op.integer_bounds import note_positions, note_value
from gradwire_engine.op.refusals import memory_axes
from gradwire_engine.op.workload import offload_work, pause
from gradwire_engine.ops.base.checks import admit, ints
from gradwire_engine.ops.base.stepped import stepped

Ints = Any
Device = str

_MANY = 1 << 16  # elements from which the cost is checked
factory = composite(differentiable=False)


def place(device: str | None, shape: tuple[int, ...], dtype: DType, more: int = 0) -> Any:
    """Admit the size and return the device's array module. more: `temporary` of `admit`."""
    admit(shape, dtype, more)
    return devices.module_for(devices.canonical(device))


def made(device: str | None, build: Any, requires_grad: bool, shape: tuple[int, ...] = (), each: float = 1.0) -> Any:
    """Call `build` on the device and make a leaf of its array. each: operations per element of the shape.

    Raises EngineError: CANCELLED, OP_LIMIT.
    """
    pause()
    count = math.prod(shape)
    with devices.selected(devices.canonical(device)):
        array = build() if count < _MANY else offload_work("creation", count * each, build, count * WIDEST)
        return tensor(array, requires_grad)


def _filled(created: Any, value: Any) -> Any:
    """A new tensor of one value, whose bounds are noted."""
    note_value(created, value)
    return created


@factory
def zeros(
    size: Ints, *, dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False
) -> Array:
    """Tensor of zeros (torch.zeros)."""
    shape, dtype = ints(size), dtype or dtypes.default()
    xp = place(device, shape, dtype)
    return _filled(made(device, lambda: xp.zeros(shape, dtype), requires_grad), 0)


@factory
def ones(size: Ints, *, dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False) -> Array:
    """Tensor of ones (torch.ones)."""
    shape, dtype = ints(size), dtype or dtypes.default()
    xp = place(device, shape, dtype)
    return _filled(made(device, lambda: xp.ones(shape, dtype), requires_grad, shape), 1)


@factory
def empty(
    size: Ints, *, dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False
) -> Array:
    """Tensor to be overwritten; zeros here, so that it cannot expose other sessions' memory (torch.empty)."""
    return zeros(size, dtype=dtype, device=device, requires_grad=requires_grad)


@factory
def full(
    size: Ints,
    fill_value: Number,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Array:
    """Tensor filled with one value; the dtype is the value's by default (torch.full)."""
    shape, dtype = ints(size), dtype or dtypes.of_number(fill_value)
    value = cast_number(fill_value, dtype)
    xp = place(device, shape, dtype)
    return _filled(made(device, lambda: xp.full(shape, value, dtype), requires_grad, shape), value)


@factory
def scalar_tensor(
    s: Number, *, dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False
) -> Array:
    """0-d tensor of a number, float32 by default (torch.scalar_tensor)."""
    return full((), s, dtype=dtype or dtypes.default(), device=device, requires_grad=requires_grad)


@factory
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Array:
    """Identity matrix of n rows and m columns (torch.eye)."""
    columns, dtype = n if m is None else m, dtype or dtypes.default()
    if n < 0 or columns < 0:
        raise EngineError(Reason.RUNTIME, f"n must be greater or equal to 0, got {min(n, columns)}")
    xp = place(device, (n, columns), dtype)
    return made(device, lambda: xp.eye(n, columns, dtype=dtype), requires_grad, (n, columns))


@factory
def arange(
    start: Number,
    end: Number | None = None,
    step: Number = 1,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Array:
    """Range from start to end, end excluded, by step; a single number is the end (torch.arange)."""
    first, last, by = (0, start, step) if end is None else (start, end, step)
    for value in (first, last, by):
        cast_number(value, dtypes.float64)
    if dtype is not None and (dtype == dtypes.bool_ or dtype.kind == "c"):
        raise EngineError(
            Reason.NOT_SUPPORTED, f"\"arange_cpu\" not implemented for '{dtypes.TITLES[dtype]}'", op="arange"
        )
    whole = all(isinstance(value, int) for value in (first, last, by))
    dtype = dtype or (dtypes.int64 if whole else dtypes.default())
    if not whole and dtypes.category(dtype) < dtypes.FLOAT:
        # PyTorch cuts the fractions off; only int64 also counts the values without them.
        cut: Any = [int(each) for each in cast("tuple[float, ...]", (first, last, by))]
        count, (first, last, by), whole = _steps(*(cut if dtype == dtypes.int64 else (first, last, by))), cut, True
    else:
        count = _steps(first, last, by)
    xp = place(device, (count,), dtype, 8)
    exact = dtypes.int64 if whole else dtypes.float64
    begin, every = cast("float", first), cast("float", by)
    fractional = xp is np and not (whole or (float(begin).is_integer() and float(every).is_integer()))
    numbers = made(
        device,
        lambda: (
            stepped(float(begin), float(every), count, dtype)
            if fractional
            else (first + xp.arange(count, dtype=exact) * by).astype(dtype, copy=False)
        ),
        requires_grad,
        (count,),
        5.0,
    )
    if whole and count:
        ends = int(cast("int", first)), int(cast("int", first + (count - 1) * by))
        note_positions(numbers, min(ends), max(ends))
    return numbers


def _steps(first: Any, last: Any, by: Any) -> Any:
    """Number of values of a range: `first`, step `by`, excluding `last`. Raises EngineError: RUNTIME."""
    if by == 0:
        raise EngineError(Reason.RUNTIME, "step must be nonzero")
    if not (math.isfinite(first) and math.isfinite(last)):
        raise EngineError(Reason.RUNTIME, f"unsupported range: {first} -> {last}")
    if (last - first > 0) != (by > 0) and last != first:
        raise EngineError(Reason.RUNTIME, "upper bound and lower bound inconsistent with step sign")
    if all(isinstance(value, int) for value in (first, last, by)):
        return int(-((first - last) // by))
    return math.ceil((last - first) / by)


@factory
def linspace(
    start: Number,
    end: Number,
    steps: int,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Array:
    """`steps` evenly spaced numbers from start to end, both included (torch.linspace)."""
    if steps < 0:
        raise EngineError(Reason.RUNTIME, "number of steps must be non-negative", steps=steps)
    if dtype is None:
        of_numbers = isinstance(start, complex) or isinstance(end, complex)
        dtype = dtypes.promote_types(dtypes.default(), dtypes.complex64) if of_numbers else dtypes.default()
    start, end = _ends("linspace", start, end, steps, dtype)
    xp = place(device, (steps,), dtype, 10 * max(dtype.itemsize, 8))
    return made(device, lambda: _spaced(xp, start, end, steps, dtype), requires_grad, (steps,), 10.0)


#: Splits a float64 into two parts of at most 27 bits, and the largest step for which it does.
_SPLITS, _MOST_SPLIT = 2.0**27 + 1, 1e290


def _ends(name: str, start: Any, end: Any, steps: int, dtype: DType) -> tuple[Any, Any]:
    """Both ends as values of the result's dtype. PyTorch does not look at an end that it does not use.

    Raises EngineError: RUNTIME for an end out of the dtype's range, NOT_SUPPORTED for truth values.
    """
    if steps < 2:
        return start, start
    if dtype == dtypes.bool_:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"{name}_cpu\" not implemented for 'Bool'", op=name)
    return cast_number(start, dtype), cast_number(end, dtype)


def _spaced(xp: Any, start: Any, end: Any, steps: int, dtype: DType) -> Array:
    """Evenly spaced values, counted from both ends to the middle, so that both ends are exact.

    Those of float32, float64 and integers are rounded once, as by PyTorch's multiplication with addition. The step of
    float32 is of float32.
    """
    if steps == 1:
        return _single(xp, start, dtype)
    if is_half(dtype):
        return _spaced_halves(xp, start, end, steps, dtype)
    wide = dtypes.promote_types(dtype, dtypes.float32)
    if dtypes.category(dtype) < dtypes.FLOAT:  # integers are spaced in double precision
        wide = dtypes.float64
    if dtype == dtypes.float32:
        start, end, wide = xp.float32(start), xp.float32(end), dtypes.float64
        step = wide.type((end - start) / xp.float32(steps - 1)) if steps else 0
    else:
        step = wide.type((end - start) / (steps - 1)) if steps else 0
    if wide == dtypes.float64 and dtype != dtypes.float32 and abs(step) < _MOST_SPLIT:
        count = xp.arange(steps, dtype=wide)
        lower = count < steps // 2
        count = xp.where(lower, count, count - (steps - 1))
        return _rounded_once(xp.where(lower, wide.type(start), wide.type(end)), step, count).astype(dtype)
    return _from_both_ends(xp, wide.type(start), wide.type(end), step, steps, wide).astype(dtype)


def _rounded_once(base: Any, step: Any, count: Any) -> Any:
    """base + step * count, by parts of the product and of the sum that float64 holds exactly."""
    wide = _SPLITS * step
    high = wide - (wide - step)
    product = step * count
    rest = (high * count - product) + (step - high) * count
    total = base + product
    added = total - base
    return total + ((base - (total - added)) + (product - added) + rest)


def _from_both_ends(xp: Any, start: Any, end: Any, step: Any, steps: int, wide: DType) -> Array:
    count = xp.arange(steps, dtype=wide)
    return xp.where(count < steps // 2, start + step * count, end - step * (steps - 1 - count))


def _spaced_halves(xp: Any, start: Any, end: Any, steps: int, dtype: DType) -> Array:
    """The same of a half type. PyTorch rounds the step, each multiple of it and each sum."""

    def rounded(value: Any) -> Any:
        return value.astype(dtype).astype(xp.float32)

    first, last, intervals = [rounded(xp.asarray(each, xp.float32)) for each in (start, end, max(steps - 1, 1))]
    step = rounded(rounded(last - first) / intervals)
    count = xp.arange(steps)
    upwards = first + rounded(step * rounded(count))
    downwards = last - rounded(step * rounded(steps - 1 - count))
    return xp.where(count < steps // 2, upwards, downwards).astype(dtype)


def _spaced_exponents(xp: Any, start: Any, end: Any, steps: int, dtype: DType) -> Array:
    """Exponents in double precision. For half types in float32, between ends and with a range that PyTorch rounds."""
    if steps < 2:
        return _spaced(xp, start, end, steps, dtypes.float64)
    if not is_half(dtype):
        step = xp.float64((end - start) / (steps - 1))
        return _from_both_ends(xp, xp.float64(start), xp.float64(end), step, steps, dtypes.float64)
    first, last = (xp.asarray(each, dtype).astype(xp.float32) for each in (start, end))
    step = (last - first).astype(dtype).astype(xp.float32) / xp.float32(steps - 1)
    return _from_both_ends(xp, first, last, step, steps, dtypes.float32)


def _single(xp: Any, value: Any, dtype: DType) -> Array:
    """One value, of which only half types may be out of range, as in PyTorch's fill_."""
    return xp.full(1, value if is_half(dtype) else cast_number(value, dtype)).astype(dtype)


@factory
def logspace(
    start: Number,
    end: Number,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Array:
    """base raised to the numbers of linspace (torch.logspace)."""
    if steps < 0:
        raise EngineError(Reason.RUNTIME, "number of steps must be non-negative", steps=steps)
    dtype = dtype or dtypes.default()
    xp = place(device, (steps,), dtype, 32)
    start, end = _ends("logspace", start, end, steps, dtype)

    def build() -> Array:
        exponents = _spaced_exponents(xp, start, end, steps, dtype)
        powers = xp.power(base, exponents.astype(dtypes.float64))
        return _single(xp, powers[0].item(), dtype) if steps == 1 else powers.astype(dtype)

    return made(device, build, requires_grad, (steps,), 40.0)


# Like another tensor: its shape, and its dtype and device unless given.


def _like(input: Any, value: Any, dtype: DType | None, device: str | None, requires_grad: bool) -> Any:
    dtype, device = dtype or input.dtype, device or input.device
    value = cast_number(value, dtype)
    xp = place(device, input.shape, dtype)
    axes = memory_axes(input)

    def build() -> Array:
        if axes is None:
            return xp.full(input.shape, value, dtype)
        filled = xp.full([input.shape[axis] for axis in axes], value, dtype)
        return filled.transpose(sorted(range(len(axes)), key=axes.__getitem__))

    return _filled(made(device, build, requires_grad, input.shape), value)


@factory
def zeros_like(
    input: Array, *, dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False
) -> Array:
    """Zeros with the input's shape (torch.zeros_like)."""
    return _like(input, 0, dtype, device, requires_grad)


@factory
def ones_like(
    input: Array, *, dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False
) -> Array:
    """Ones with the input's shape (torch.ones_like)."""
    return _like(input, 1, dtype, device, requires_grad)


@factory
def empty_like(
    input: Array, *, dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False
) -> Array:
    """Tensor with the input's shape, to be overwritten; zeros here (torch.empty_like)."""
    return _like(input, 0, dtype, device, requires_grad)


@factory
def full_like(
    input: Array,
    fill_value: Number,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Array:
    """Tensor filled with one value, with the input's shape (torch.full_like)."""
    return _like(input, fill_value, dtype, device, requires_grad)


@factory
def new_zeros(
    input: Array, size: Ints, *, dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False
) -> Array:
    """Zeros with the input's dtype and device (torch.Tensor.new_zeros)."""
    return zeros(size, dtype=dtype or input.dtype, device=device or input.device, requires_grad=requires_grad)


@factory
def new_ones(
    input: Array, size: Ints, *, dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False
) -> Array:
    """Ones with the input's dtype and device (torch.Tensor.new_ones)."""
    return ones(size, dtype=dtype or input.dtype, device=device or input.device, requires_grad=requires_grad)


@factory
def new_empty(
    input: Array, size: Ints, *, dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False
) -> Array:
    """Tensor with the input's dtype and device, to be overwritten; zeros here (torch.Tensor.new_empty)."""
    return zeros(size, dtype=dtype or input.dtype, device=device or input.device, requires_grad=requires_grad)


@factory
def new_full(
    input: Array,
    size: Ints,
    fill_value: Number,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Array:
    """Tensor filled with one value, with the input's dtype and device (torch.Tensor.new_full)."""
    return full(
        size, fill_value, dtype=dtype or input.dtype, device=device or input.device, requires_grad=requires_grad
    )


def _triangle_indices(
    row: int, col: int, offset: int, dtype: DType | None, device: Device | None, below: bool
) -> Array:
    """The positions of a triangle: on and below diagonal `offset`, or all others."""
    rows, columns, dtype = max(row, 0), max(col, 0), dtype or dtypes.int64
    xp = place(device, (2, rows, columns), dtype, 9)
    if not rows * columns:  # one of them may have any size
        return made(device, lambda: xp.zeros((2, 0), dtype), False)

    def positions() -> Any:
        inside = xp.tri(rows, columns, offset, dtype=bool)
        return xp.stack(xp.nonzero(inside if below else ~inside)).astype(dtype)

    return made(device, positions, False, (rows, columns), 12.0)


@factory
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType | None = None, device: Device | None = None
) -> Array:
    """Indices of a matrix's elements on and below a diagonal: (2, count), rows first (torch.tril_indices)."""
    return _triangle_indices(row, col, offset, dtype, device, below=True)


@factory
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType | None = None, device: Device | None = None
) -> Array:
    """Indices of a matrix's elements on and above a diagonal: (2, count), rows first (torch.triu_indices)."""
    return _triangle_indices(row, col, offset - 1, dtype, device, below=False)

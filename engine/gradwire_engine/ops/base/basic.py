"""Basic ops used in gradient formulas: arithmetic, casts, and the pair sum_to_size and expand."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from gradwire_engine.core import device as devices
from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType, Number, cast_number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.index_bounds import range_of
from gradwire_engine.graph.graph import Fit
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.integer_bounds import (
    added,
    converted,
    like_input,
    multiplied,
    negated,
    of_ranges,
    quotient,
    subtracted,
)
from gradwire_engine.op.op import op
from gradwire_engine.op.refusals import is_dense
from gradwire_engine.ops.base.updates import update_on_gpu

Ints = tuple[int, ...]
Device = str


def conj(value: Any) -> Any:
    """Complex conjugate; a real value is returned unchanged and without a node, so it costs real formulas nothing."""
    if type(value) is float:
        return value
    if hasattr(value, "dtype"):
        return _conj(value) if value.dtype.kind == "c" else value
    return value.conjugate() if isinstance(value, complex) else value


@op(node="ConjBackward0", cost=4)
def _conj(xp: Any, input: Array) -> Array:
    return xp.conj(input)


_conj.grad(input=lambda g: conj(g)).tangent("linear")


def _times(g: Any, other: Any) -> Any:
    """g * other by the op's rule for numbers, as NumPy would round the number to float16."""
    return mul.compute((g, other)) if type(other) is float and _is_float16(g) else g * other


def _over(g: Any, other: Any) -> Any:
    return div.compute((g, other, None)) if type(other) is float and _is_float16(g) else g / other


def _is_float16(g: Any) -> bool:
    return type(g) is not Tensor and bool(g.dtype == dtypes.float16)


def _check_alpha(input: Array, alpha: Number) -> Number:
    if isinstance(alpha, bool) and input.dtype != dtypes.bool_:
        raise EngineError(Reason.RUNTIME, "Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, int) and hasattr(input, "dtype"):
        cast_number(alpha, input.dtype)
    if isinstance(alpha, float | complex) and dtypes.category(input.dtype) < dtypes.FLOAT:
        raise EngineError(
            Reason.RUNTIME, "For integral input tensors, argument alpha must not be a floating point number."
        )
    if isinstance(alpha, complex) and dtypes.category(input.dtype) < dtypes.COMPLEX:
        raise EngineError(Reason.RUNTIME, "For non-complex input tensors, argument alpha must not be a complex number.")
    if isinstance(alpha, int) and input.dtype == dtypes.bool_:
        return bool(alpha)
    return cast_number(alpha, input.dtype) if hasattr(input, "dtype") else alpha


@op(promote="same", of_numbers=True, cost=4)
def add(xp: Any, input: Array | Number, other: Array | Number, *, alpha: Number = 1) -> Array:
    """input + alpha * other (torch.add)."""
    if type(alpha) is not int or alpha != 1:
        alpha = _check_alpha(input if hasattr(input, "dtype") else other, alpha)
        other = other if alpha == 1 else other * alpha
    return xp.add(input, other)


def _add_into(xp: Any, input: Array, other: Array | Number, alpha: Number) -> None:
    if type(alpha) is not int:
        alpha = _check_alpha(input, alpha)
    if alpha == 1:
        xp.add(input, other, out=input)
    elif xp is np:
        np.add(input, other * alpha, out=input)
    else:
        update_on_gpu(
            "add_scaled_", input, other, numbers=(alpha,),
            plainly=lambda target: xp.add(target, other * alpha, out=target),
        )  # fmt: skip


add.into(_add_into)
add.works_in(widens=True).bounds_results(of_ranges(added))
add.grad(input=lambda g: g, other=lambda g, alpha: g if alpha == 1 else _times(g, conj(alpha))).tangent("holomorphic")


def _refuse_bools(*operands: Any) -> None:
    bools = [getattr(value, "dtype", None) == dtypes.bool_ or isinstance(value, bool) for value in operands]
    if all(bools):
        raise EngineError(
            Reason.DTYPE,
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` "
            "operator instead.",
        )
    if any(bools):
        raise EngineError(
            Reason.DTYPE,
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, "
            "use the `~` or `logical_not()` operator instead.",
        )


@op(in_place=True, cost=4)
def neg(xp: Any, input: Array) -> Array:
    """-input (torch.neg)."""
    if input.dtype == dtypes.bool_:
        raise EngineError(
            Reason.DTYPE,
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use "
            "the `~` or `logical_not()` operator instead.",
        )
    return xp.negative(input)


neg.bounds_results(of_ranges(negated))
neg.grad(input=lambda g: neg(g)).tangent("holomorphic")


@op(promote="same", of_numbers=True, cost=4)
def sub(xp: Any, input: Array | Number, other: Array | Number, *, alpha: Number = 1) -> Array:
    """input - alpha * other (torch.sub)."""
    if bool in (type(input), type(other)) or dtypes.bool_ in (
        getattr(input, "dtype", None),
        getattr(other, "dtype", None),
    ):
        _refuse_bools(input, other)
    if type(alpha) is not int or alpha != 1:
        alpha = _check_alpha(input if hasattr(input, "dtype") else other, alpha)
        other = other if alpha == 1 else other * alpha
    return xp.subtract(input, other)


sub.checked_by(_refuse_bools)
sub.works_in(widens=True).bounds_results(of_ranges(subtracted))


def _subtract_into(xp: Any, input: Array, other: Array | Number, alpha: Number) -> None:
    if type(alpha) is bool:
        alpha = _check_alpha(input, alpha)
    xp.subtract(input, other if alpha == 1 else other * alpha, out=input)


sub.into(_subtract_into)
sub.grad(input=lambda g: g, other=lambda g, alpha: neg(g) if alpha == 1 else _times(g, -conj(alpha))).tangent(
    "holomorphic"
)


@op(promote="same", of_numbers=True, cost=4)
def mul(xp: Any, input: Array | Number, other: Array | Number) -> Array:
    """input * other (torch.mul)."""
    return xp.multiply(input, other)


mul.into(lambda xp, input, other: xp.multiply(input, other, out=input)).bounds_results(of_ranges(multiplied))
mul.grad(input=lambda g, other: _times(g, conj(other)), other=lambda g, input: _times(g, conj(input))).tangent(
    "holomorphic"
)
mul.opmath("other")


@op(name="_cast", node="ToCopyBackward0", drops_grad=True, cost=8)
def cast(xp: Any, input: Array, dtype: DType) -> Array:
    """Cast to another dtype, always a copy; complex to real drops the imaginary part."""
    if input.dtype.kind == "c" and dtype.kind != "c" and dtype != dtypes.bool_:
        input = input.real
    # As in PyTorch, the copy keeps the strides of an array without gaps or overlaps, in any order of dimensions.
    return input.astype(dtype, order="K" if input.flags.c_contiguous or is_dense(input) else "C")


cast.sized_by(lambda input, dtype: input.size * dtype.itemsize, bounded=True)
cast.bounds_results(converted)
cast.grad(input=lambda g: g).tangent("linear")  # fit() casts the gradient back


@op(name="_copied", node="CopyBackwards", cost=4)
def copied(xp: Any, into: Array | None, input: Array) -> Array:
    """Row-major copy: the first gradient of a leaf in a backward with create_graph.

    into: None, the new memory. It gives the node PyTorch's edges, the second of which leads on.
    """
    return xp.array(input, order="C")


copied.grad(input=lambda g: g).tangent(lambda t_input: t_input)


@op(name="_to_device", node="ToCopyBackward0", cost=4)
def to_device(xp: Any, input: Array, device: Device) -> Array:
    """Copy to another device."""
    return devices.to_device(input, device)


to_device.bounds_results(like_input)
to_device.grad(input=lambda g, input_meta: to_device(g, input_meta.device)).tangent("linear")


@op(name="_real", view=True, node="SelectBackward0", cost=4)
def real_view(xp: Any, input: Array) -> Array:
    """Real part of complex numbers, a view."""
    return input.real


real_view.works_in(backward=3.1)


@op(name="_real_copy", node="RealBackward0", cost=4)
def real(xp: Any, input: Array) -> Array:
    """Copy of the real part; `fit` applies it to a complex gradient of a real input."""
    return input.real.copy()


def _as_complex(value: Any) -> Any:
    return cast(value, dtypes.to_complex(value.dtype))


real_view.grad(input=lambda g: _as_complex(g)).tangent("linear")
real.grad(input=lambda g: _as_complex(g)).tangent("linear")


def _not_expandable(size: tuple[int, ...], shape: tuple[int, ...]) -> EngineError:
    """The refusal of an expansion, which names the first size from the back that does not fit."""
    lead = len(size) - len(shape)
    if lead < 0:
        text = (
            f"expand({list(shape)}, size={list(size)}): the number of sizes provided ({len(size)}) must be greater or "
            f"equal to the number of dimensions in the tensor ({len(shape)})"
        )
        return EngineError(Reason.SHAPE, text)
    for axis in reversed(range(len(size))):
        wanted, found = size[axis], shape[axis - lead] if axis >= lead else None
        if found is None and wanted < 0:
            text = (
                f"The expanded size of the tensor ({wanted}) isn't allowed in a leading, non-existing dimension {axis}"
            )
            return EngineError(Reason.SHAPE, text)
        if wanted != -1 and (wanted < 0 or found not in (None, 1, wanted)):
            break
    text = f"The expanded size of the tensor ({wanted}) must match the existing size ({found}) at non-singleton"
    return EngineError(
        Reason.SHAPE, f"{text} dimension {axis}. Target sizes: {list(size)}. Tensor sizes: {list(shape)}"
    )


@op(name="expand", view=True, cost=4)
def expand(xp: Any, input: Array, size: Ints) -> Array:
    """Expand dimensions of size 1 and add leading ones; -1 keeps a size; a view (torch.Tensor.expand)."""
    size = (size,) if isinstance(size, int) else tuple(size)
    lead = len(size) - input.ndim
    target = tuple(
        input.shape[axis - lead] if length == -1 and axis >= lead else length for axis, length in enumerate(size)
    )
    fits = lead >= 0 and all(
        length >= 0 and (axis < lead or input.shape[axis - lead] in (1, length)) for axis, length in enumerate(target)
    )
    if not fits:
        raise _not_expandable(size, input.shape)
    if input.ndim == 0 and not target:
        return input.view()
    shown = xp.broadcast_to(input, target)
    if isinstance(shown, np.ndarray) and isinstance(input, np.ndarray) and input.flags.writeable:
        # broadcast_to returns a read-only view; check_writable decides by the strides whether a write is allowed.
        shown = np.lib.stride_tricks.as_strided(input, shown.shape, _expanded_strides(input, target))
    return shown


expand.works_in(backward=0, grows=False)


def _direct_expand(input: Array, size: Ints) -> Any:
    """The view of a row-major array, without checks; None if it does not fit."""
    if not isinstance(size, tuple) or not input.flags.c_contiguous or not input.size or input.dtype.isbuiltin != 1:
        return None
    try:
        shape = expand.forward(np, input, size).shape
    except EngineError:
        return None
    strides = _expanded_strides(input, shape)

    def run(xp: Any, input: Array, size: Ints) -> Array:
        if not shape or not input.flags.writeable:
            return expand.forward(np, input, size)
        return np.ndarray(shape, input.dtype, input, 0, strides)

    return run


expand.directly(_direct_expand)


def _expanded_strides(input: Array, target: Ints) -> Ints:
    """PyTorch's strides of an expanded array: 0 only for expanded dimensions."""
    lead = len(target) - input.ndim
    strides: list[int] = []
    after = input.itemsize
    for axis in reversed(range(len(target))):
        size, stride = (input.shape[axis - lead], input.strides[axis - lead]) if axis >= lead else (1, after)
        strides.append(stride if size == target[axis] else 0)
        after = target[axis] * strides[-1]
    return tuple(reversed(strides))


expand.grad(input=lambda g: g).tangent("linear")  # fit() sums the gradient


@op(name="sum_to_size", node="SumBackward1", cost=4)
def sum_to_size(xp: Any, input: Array, size: Ints) -> Array:
    """Sum over the dimensions that broadcasting from `size` adds or expands (torch.Tensor.sum_to_size)."""
    size = (size,) if isinstance(size, int) else tuple(size)
    lead = input.ndim - len(size)
    stretched = tuple(lead + axis for axis, length in enumerate(size) if length == 1 and input.shape[lead + axis] != 1)
    axes = tuple(range(lead)) + stretched
    if lead < 0 or any(n not in (1, input.shape[lead + axis]) for axis, n in enumerate(size)):
        raise EngineError(Reason.SHAPE, f"size {list(size)} is not expandable to size {list(input.shape)}.")
    if not axes:
        return input.copy()
    if dtypes.category(input.dtype) < dtypes.FLOAT:
        input = input.astype(dtypes.int64)
    return sum_axes(xp, input, axes, keepdims=True).reshape(size)


def _direct_sum(input: Array, size: Ints | int) -> Callable[..., Array] | None:
    """The sum over leading dimensions of many floats, as `sum_axes` computes it."""
    if type(size) is not tuple or input.size < _LARGE or input.dtype not in (dtypes.float32, dtypes.float64):
        return None
    lead = input.ndim - len(size)
    if lead < 1 or input.shape[lead:] != size or math.prod(size) < 2 or math.prod(input.shape[:lead]) > _MOST_KEPT:
        return None
    rows, dtype, rest = math.prod(input.shape[:lead]), input.dtype, math.prod(size)

    def run(xp: Any, input: Array, size: Ints) -> Array:
        if not input.flags.c_contiguous:
            return sum_to_size.forward(np, input, size)
        return np.matmul(_kept_ones(rows, dtype), input.reshape(1, -1, rest)).reshape(size)

    return run


@lru_cache(maxsize=32)
def _kept_ones(count: int, dtype: DType) -> Array:
    """Ones of which few are kept: repeated calls, of which a process may have thousands, hold none."""
    made = np.ones(count, dtype)
    made.flags.writeable = False
    return made


sum_to_size.directly(_direct_sum)
sum_to_size.sized_by(
    lambda input, size: math.prod((size,) if isinstance(size, int) else size) * input.itemsize, bounded=True
)
sum_to_size.grad(input=lambda g, input_meta: expand(g, input_meta.shape)).tangent("linear")


def fit(gradient: Any, wanted: Fit) -> Any:
    """Fit a gradient to an input's shape and dtype: undo broadcasting and promotion, and drop imaginary parts of real
    inputs' gradients.
    """
    shape, dtype = wanted
    if gradient.shape != shape:
        gradient = sum_to_size(gradient, shape)
    if gradient.dtype is not dtype and gradient.dtype != dtype:
        if dtypes.category(gradient.dtype) == dtypes.COMPLEX != dtypes.category(dtype):
            gradient = real(gradient)
        gradient = cast(gradient, dtype)
    return gradient


def sum_axes(xp: Any, array: Array, axes: Ints, keepdims: bool) -> Array:
    """Sum over axes, in the array's dtype.

    A product with ones takes a third of the time of NumPy's sum. That adds row by row, or pairwise without SIMD. Half
    types are summed in float32.
    """
    if dtypes.is_half(array.dtype):
        return array.sum(axes, keepdims=keepdims, dtype=dtypes.float32).astype(array.dtype)
    if xp is not np or array.size < _LARGE or array.dtype.char not in "fd" or not array.flags.c_contiguous or not axes:
        return array.sum(axes, keepdims=keepdims, dtype=array.dtype)
    summed = array
    for first, last in _runs(sorted(axes)):
        lead, length = math.prod(summed.shape[:first]), math.prod(summed.shape[first : last + 1])
        rest = math.prod(summed.shape[last + 1 :])
        if rest == 1:
            made = _row_sums(summed.reshape(lead, length))
        else:
            made = np.matmul(np.ones(length, array.dtype), summed.reshape(lead, length, rest))
        summed = made.reshape(*summed.shape[:first], *(1,) * (last + 1 - first), *summed.shape[last + 1 :])
    if keepdims:
        return summed
    return summed.reshape(tuple(size for axis, size in enumerate(array.shape) if axis not in axes))


def _runs(axes: list[int]) -> list[tuple[int, int]]:
    """First and last axis of each run of adjacent axes, last run first, because that shrinks the array soonest."""
    found: list[tuple[int, int]] = []
    for axis in reversed(axes):
        if found and found[-1][0] == axis + 1:
            found[-1] = (axis, found[-1][1])
        else:
            found.append((axis, axis))
    return found


# Elements from which a product with ones is faster; _BLOCK elements are added at a time, to keep precision.
_LARGE = 4096
_BLOCK = 1024
_MOST_KEPT = 1 << 14  # ones of `_kept_ones`, which are beside the account


def _row_sums(rows: Array) -> Array:
    """Sums of a matrix's rows: blocks are summed, and the block sums are added pairwise."""
    height, width = rows.shape
    if width <= 2 * _BLOCK:
        return rows @ np.ones(width, rows.dtype)
    whole = width // _BLOCK * _BLOCK
    if height > 1 and whole < width:
        return rows.sum(1)
    blocks = rows[:, :whole].reshape(height, -1, _BLOCK) @ np.ones(_BLOCK, rows.dtype)
    return blocks.sum(1) + rows[:, whole:].sum(1)


@op(
    of_numbers=True,
    promote=lambda input, other, rounding_mode: "same" if rounding_mode else "float",
    node=lambda input, other, rounding_mode: "DivBackward2" if rounding_mode else "DivBackward0",
    cost=8,
)
def div(
    xp: Any, input: Array | Number, other: Array | Number, *, rounding_mode: Literal["trunc", "floor"] | None = None
) -> Array:
    """input / other; with rounding_mode rounded down ("floor") or towards zero ("trunc") (torch.div)."""
    if rounding_mode is None:
        return xp.true_divide(input, other)
    if rounding_mode not in ("floor", "trunc"):
        raise EngineError(
            Reason.RUNTIME,
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'",
        )
    dtype = dtypes.result_type(input, other)
    whole = dtypes.category(dtype) < dtypes.FLOAT
    if dtype == dtypes.bool_:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"div_{rounding_mode}_cpu\" not implemented for 'Bool'")
    some = not hasattr(input, "size") or input.size > 0
    if whole and some:
        refuse_zeros(other)
    if rounding_mode == "floor":
        return xp.floor_divide(input, other)
    if whole:
        quotient = xp.floor_divide(input, other)
        return quotient + ((quotient < 0) & (xp.multiply(quotient, other) != input))
    return xp.trunc(xp.true_divide(input, other))


def refuse_zeros(divisor: Any) -> None:
    """Refuse integer divisors of which one is zero. Waits for a GPU where their bounds are not known."""
    xp = devices.module_of(divisor)
    found = None if xp is np else range_of(divisor)
    if (found is None or found[0] <= 0 <= found[1]) and bool(xp.any(divisor == 0)):
        raise EngineError(Reason.RUNTIME, "ZeroDivisionError")


div.opmath("other")
div.bounds_results(quotient)
div.works_in(backward=3.1)
div.grad(
    input=lambda g, other, rounding_mode: g * 0 if rounding_mode else _over(g, conj(other)),
    other=lambda g, input, other, rounding_mode: g * 0 if rounding_mode else neg(g) * conj(input / other / other),
).tangent("holomorphic")

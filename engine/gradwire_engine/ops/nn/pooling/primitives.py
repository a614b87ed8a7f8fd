"""The ops that public pooling calls: maxima, means and adaptive means of windows, with their adjoints.

Each consists of two ops that are each other's derivatives. Max pooling's forward saves which element of each window
is the maximum. Its backward adds gradients at these elements (`_max_unpool`), whose derivative selects them again
(`_max_pick`). Loops run over kernel positions, so the work is in long vector operations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.cost import CALL, LOOP, counted, flop, indexing
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import expand
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.base.loops import Loops, with_loop
from gradwire_engine.ops.base.memory_format import keeps_format, order_of, order_of_volume
from gradwire_engine.ops.base.precision import through_float32
from gradwire_engine.ops.elementwise.activation import keep
from gradwire_engine.ops.nn.pooling.max_loops import maxima, picked, scattered
from gradwire_engine.ops.nn.pooling.wide_pool import gather_maxima, scatter_to_maxima, wide_max
from gradwire_engine.ops.nn.windows import Window, count_outputs, padded_size
from gradwire_engine.ops.nn.windows_on_gpu import max_pool as max_pool_on_gpu
from gradwire_engine.ops.nn.windows_on_gpu import max_unpool as max_unpool_on_gpu
from gradwire_engine.ops.shape.shape import at

Ints = Any  # an int or a sequence of ints
_PLACES = 8  # bytes of an index


def order_of_images(input: Array, size: Ints, *_: Any) -> Ints | None:
    """Order of the results' dimensions in memory, if PyTorch's kernel keeps that of batches of images only."""
    return order_of(input) if input.ndim == len(size) + 2 == 4 else None


def _order_of_any(input: Array, size: Ints, *_: Any) -> Ints | None:
    """The same, if it keeps that of batches of volumes and of single volumes too."""
    if input.ndim == len(size) + 2:
        return order_of(input)
    return order_of_volume(input) if len(size) == 3 else None


def _order_of_means(input: Array, size: Ints) -> Ints | None:
    """The same of adaptive means: a mean of everything keeps that of batches of volumes, too."""
    return order_of(input) if input.ndim == len(size) + 2 and (len(size) == 2 or max(size) == 1) else None


def _result_bytes(input: Array, size: Ints) -> int:
    """Bytes of a result with other spatial sizes."""
    return int(math.prod(length or 1 for length in (*input.shape[: -len(size)], *size)) * input.itemsize)


def _padding_value(dtype: DType) -> Any:
    """Padding value of a maximum: no value of the dtype is below it."""
    return -math.inf if dtypes.category(dtype) >= dtypes.FLOAT else np.iinfo(dtype).min


def _max_node(input: Any, kernel: Ints, *_: Any) -> str:
    return f"MaxPool{len(kernel)}DWithIndicesBackward0"


def _max_pool_cost(input: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> Any:
    lead = math.prod(input.shape[: -len(kernel)])
    size = input.shape[-len(kernel) :]
    outputs = count_outputs(size, kernel, stride, padding, dilation, ceil_mode)
    return _gone_through_cost(lead, size, kernel, outputs, stride, padding, dilation, 6.0)


_TAPS, _DOUBLING = 64, 4


def doubles(kernel: Ints, padded: Ints, outputs: Ints) -> bool:
    """Whether to reduce large windows by doubling (wide_pool.py), because it takes far fewer operations."""
    taps = math.prod(kernel)
    return taps > _TAPS and _DOUBLING * math.prod(padded) * _rounds(kernel) < math.prod(outputs) * taps


def _rounds(kernel: Ints) -> int:
    return sum((k - 1).bit_length() for k in kernel)


def _gone_through_cost(
    lead: int, size: Ints, kernel: Ints, outputs: int, stride: Ints, padding: Ints, dilation: Ints, per: float
) -> Any:
    taps = math.prod(kernel)
    reach = padded_size(size, kernel, stride, padding, dilation)
    if doubles(kernel, (reach,), (outputs,)):
        return lead * (20.0 * reach * (1 + _rounds(kernel)) + 60.0 * outputs) + _rounds(kernel) * LOOP
    return per * lead * outputs * taps + taps * LOOP + 4.0 * lead * reach


def _picked_cost(input: Any, which: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, *size: Ints) -> Any:
    spatial = size[0] if size else input.shape[-len(kernel) :]
    lead = math.prod(which.shape[: -len(kernel)])
    outputs = math.prod(which.shape[-len(kernel) :])
    return _gone_through_cost(lead, spatial, kernel, outputs, stride, padding, dilation, 6.0)


def _averaged_cost(input: Any, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool, *rest: Any) -> Any:
    ones = (1,) * len(kernel)
    size = rest[2] if len(rest) > 2 else input.shape[-len(kernel) :]
    lead = math.prod(input.shape[: -len(kernel)])
    reach = padded_size(size, kernel, stride, padding, ones)
    return (
        3.0 * lead * reach * sum(min(k, k / max(1, s) + 1) for k, s in zip(kernel, stride, strict=True))
        + sum(kernel) * CALL
    )


def resized_cost(input: Any, size: Ints, *rest: Any) -> Any:
    """Cost of a product of each dimension with a matrix (made, given), first dimension first."""
    given, work = list(input.shape), 0.0
    lead = len(given) - len(size)
    for axis, made in enumerate(size):
        length = given[lead + axis]
        work += length * made * (20.0 + math.prod(given[: lead + axis] + given[lead + axis + 1 :]) * flop(input.dtype))
        work += made * CALL
        given[lead + axis] = made
        work += 4.0 * math.prod(given)
    return work


def _max_loop(
    loops: Loops, xp: Any, input: Array, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> Any:
    window = _window(input, kernel, stride, padding, dilation, ceil_mode)
    return maxima(loops, window, input) if type(input) is np.ndarray else max_pool_on_gpu(window, input)


@op(
    name="_max_pool",
    node=_max_node,
    outputs=("values", "which"),
    differentiable_outputs=(0,),
    cost=counted(_max_pool_cost, 2.0),
)
@keeps_format(_order_of_any)
@with_loop(_max_loop)
def max_pool(
    xp: Any, input: Array, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[Array, Array]:
    """Maximum of each window, and its kernel position; nan counts as the largest."""
    window = _window(input, kernel, stride, padding, dilation, ceil_mode)
    admit((*input.shape[: -len(kernel)], *window.output), input.dtype)
    padded = window.pad(xp, input, _padding_value(input.dtype))
    # A -inf of the input must win over the padding's, so track which elements are not padding.
    real = None if padded is input else window.pad(xp, xp.ones(window.size, bool), False)
    if _is_wide(xp, window):
        admit(padded.shape, padded.dtype, 2 * padded.itemsize + _PLACES)
        return wide_max(xp, padded, real, window)
    values: Any = None
    which: Any = None
    seen: Any = None
    for number, (_, index) in enumerate(window.offsets()):
        part = padded[index]
        if number == 0:
            values, which = part.copy(), xp.zeros(part.shape, _small_int(window.taps))
            seen = None if real is None else real[index]
            continue
        better = part > values
        if real is not None:
            better |= real[index] & ~seen & ~(part < values)
            seen = seen | real[index]
        xp.maximum(values, part, out=values)
        xp.copyto(which, which.dtype.type(number), where=better)
    if dtypes.category(input.dtype) == dtypes.FLOAT and bool(xp.isnan(values).any()):
        _mark_nan(xp, padded, window, which)
    return values, which


max_pool.works_in(backward=2.3)


def _is_wide(xp: Any, window: Window) -> bool:
    """Whether to reduce large windows by doubling; never with CuPy."""
    return xp is np and doubles(window.kernel, window.padded, window.output)


def _small_int(count: int) -> DType:
    return np.dtype(np.uint8 if count <= 256 else np.int32)


def _mark_nan(xp: Any, padded: Array, window: Window, which: Array) -> None:
    """Set the kernel position of a window with nan to its last nan, as in PyTorch."""
    for number, (_, index) in enumerate(window.offsets()):
        xp.copyto(which, which.dtype.type(number), where=xp.isnan(padded[index]))


def _unpool_loop(
    loops: Loops, xp: Any, grad: Array, which: Array, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints,
    size: Ints,
) -> Any:  # fmt: skip
    window = _window_of(size, kernel, stride, padding, dilation, grad.shape[-len(kernel) :])
    if type(grad) is not np.ndarray:
        return max_unpool_on_gpu(window, grad, which)
    return scattered(loops, window, grad, which)


@op(name="_max_unpool", cost=counted(_picked_cost, 2.0))
@with_loop(_unpool_loop)
def _max_unpool(
    xp: Any, grad: Array, which: Array, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, size: Ints
) -> Array:
    """Add each window's gradient at its maximum, into zeros of the input's size."""
    window = _window_of(size, kernel, stride, padding, dilation, grad.shape[-len(kernel) :])
    shape = (*grad.shape[: -len(kernel)], *window.padded)
    admit(shape, grad.dtype)
    if _is_wide(xp, window):
        admit(grad.shape, grad.dtype, 4 * _PLACES)
        return scatter_to_maxima(xp, grad, which, window)[window.inner]
    target = xp.zeros(shape, grad.dtype)
    for number, (_, index) in enumerate(window.offsets()):
        share = keep(xp, grad, which == number)
        if window.overlaps:
            target[index] += share
        else:
            target[index] = share
    return target[window.inner]


def _pick_loop(
    loops: Loops, xp: Any, input: Array, which: Array, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> Any:
    window = _window_of(input.shape[-len(kernel) :], kernel, stride, padding, dilation, which.shape[-len(kernel) :])
    return picked(loops, window, input, which)


@op(name="_max_pick", cost=counted(_picked_cost, 2.0))
@with_loop(_pick_loop)
def _max_pick(xp: Any, input: Array, which: Array, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Array:
    """The element of each window at the maximum's position."""
    window = _window_of(input.shape[-len(kernel) :], kernel, stride, padding, dilation, which.shape[-len(kernel) :])
    padded = window.pad(xp, input)
    if _is_wide(xp, window):
        admit(which.shape, input.dtype, 4 * _PLACES)
        return gather_maxima(xp, padded, which, window)
    found = xp.zeros(which.shape, input.dtype)
    for number, (_, index) in enumerate(window.offsets()):
        xp.copyto(found, padded[index], where=which == number)
    return found


max_pool.grad(
    input=lambda g, out1, input_meta, kernel, stride, padding, dilation: _max_unpool(
        g, out1, kernel, stride, padding, dilation, input_meta.shape[-len(kernel) :]
    )
)
max_pool.by_loops("max_pool", "max_unpool")
_max_unpool.by_loops("max_unpool", "max_pick")
_max_pick.by_loops("max_pick", "max_unpool")
_max_unpool.grad(
    grad=lambda g, which, kernel, stride, padding, dilation: _max_pick(g, which, kernel, stride, padding, dilation)
).tangent("linear")
_max_pick.grad(
    input=lambda g, which, input_meta, kernel, stride, padding, dilation: _max_unpool(
        g, which, kernel, stride, padding, dilation, input_meta.shape[-len(kernel) :]
    )
).tangent("linear")


@op(name="_max_indices", cost=indexing(30))
@keeps_format(_order_of_any)
def max_indices(xp: Any, which: Array, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, size: Ints) -> Array:
    """Flat indices of the maxima in the input."""
    spatial = len(kernel)
    output = which.shape[-spatial:]
    flat = xp.zeros(which.shape, dtypes.int64)
    rest = which.astype(dtypes.int64)
    for axis in range(spatial):
        below = math.prod(kernel[axis + 1 :])
        starts = xp.arange(output[axis]).reshape(-1, *[1] * (spatial - 1 - axis)) * stride[axis] - padding[axis]
        flat = flat * size[axis] + starts + rest // below * dilation[axis]
        rest = rest % below
    return flat


@op(
    name="_max_pool_with_indices",
    node=_max_node,
    outputs=("values", "indices", "which"),
    differentiable_outputs=(0,),
    cost=counted(_max_pool_cost, 3.0),
)
def max_pool_with_indices(
    xp: Any, input: Array, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[Array, Array, Array]:
    """max_pool, and the flat indices of the maxima. As in PyTorch, backward refuses indices that were changed."""
    values, which = max_pool.forward(xp, input, kernel, stride, padding, dilation, ceil_mode)
    admit(which.shape, dtypes.int64, 2 * _PLACES)
    return values, max_indices.forward(xp, which, kernel, stride, padding, dilation, input.shape[-len(kernel) :]), which


# The formula saves the indices, `out1`, only so that a change of theirs is noticed.
max_pool_with_indices.grad(
    input=lambda g, out1, out2, input_meta, kernel, stride, padding, dilation: _max_unpool(
        g, out2, kernel, stride, padding, dilation, input_meta.shape[-len(kernel) :]
    )
)
max_pool_with_indices.by_loops("max_pool", "max_unpool")
max_pool_with_indices.works_in(forward=2.3, backward=2.3)


def _window(input: Array, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> Window:
    return Window(input.shape[-len(kernel) :], kernel, stride, padding, dilation, ceil_mode)


def _window_of(size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, output: Ints) -> Window:
    """The `Window` for a known number of outputs."""
    plain = Window(tuple(size), kernel, stride, padding, dilation)
    return plain if plain.output == tuple(output) else Window(tuple(size), kernel, stride, padding, dilation, True)


# Means.


def _divisor(xp: Any, window: Window, include_pad: bool, override: int | None, dtype: DType) -> Any:
    """Divisor of each window's sum: a number, or an array of the output's size."""
    if override is not None:
        return override
    if window.padded == window.size:
        return window.taps
    counts: Any = 1
    spatial = len(window.size)
    for axis in range(spatial):
        start = np.arange(window.output[axis]) * window.stride[axis] - window.padding[axis]
        end = np.minimum(start + window.kernel[axis], window.size[axis] + window.padding[axis])
        if not include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, window.size[axis])
        counts = counts * (end - start).reshape(-1, *[1] * (spatial - 1 - axis))
    return xp.asarray(counts.astype(dtype))


@op(
    name="_avg_pool",
    node=lambda input, kernel, *_: f"AvgPool{len(kernel)}DBackward0",
    cost=counted(_averaged_cost, 2.0),
)
@keeps_format(order_of_images)
@through_float32
def avg_pool(
    xp: Any, input: Array, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool, include_pad: bool,
    divisor: int | None,
) -> Array:  # fmt: skip
    """Mean of each window; sums are taken along one dimension after another."""
    window = _window(input, kernel, stride, padding, (1,) * len(kernel), ceil_mode)
    admit((*input.shape[: -len(kernel)], *window.output), input.dtype)
    summed = window.pad(xp, input)
    for axis in range(len(kernel)):
        rest = (slice(None),) * (len(kernel) - 1 - axis)
        total = None
        for place in range(kernel[axis]):
            index = (..., window.along(axis, place), *rest)
            part = summed[index]
            total = part.copy() if total is None else xp.add(total, part, out=total)
        summed = total
    by = _divisor(xp, window, include_pad, divisor, input.dtype)
    if dtypes.category(input.dtype) < dtypes.FLOAT:
        return _divided_towards_zero(xp, summed, by)
    summed /= by
    return summed


def _divided_towards_zero(xp: Any, summed: Array, by: Any) -> Array:
    return xp.trunc(summed / by).astype(summed.dtype)


@op(name="_avg_unpool", cost=counted(_averaged_cost, 2.0))
@through_float32
def _avg_unpool(
    xp: Any, grad: Array, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool, include_pad: bool,
    divisor: int | None, size: Ints,
) -> Array:  # fmt: skip
    """Adjoint of `_avg_pool`: spread each window's gradient over its elements."""
    window = Window(tuple(size), kernel, stride, padding, (1,) * len(kernel), ceil_mode)
    admit((*grad.shape[: -len(kernel)], *window.padded), grad.dtype)
    spread = grad / xp.asarray(_divisor(xp, window, include_pad, divisor, grad.dtype), grad.dtype)
    for axis in reversed(range(len(kernel))):
        rest = (slice(None),) * (len(kernel) - 1 - axis)
        shape = list(spread.shape)
        shape[spread.ndim - 1 - len(rest)] = window.padded[axis]
        target = xp.zeros(shape, grad.dtype)
        for place in range(kernel[axis]):
            index = (..., window.along(axis, place), *rest)
            target[index] += spread
        spread = target
    return spread[window.inner]


avg_pool.grad(
    input=lambda g, input_meta, kernel, stride, padding, ceil_mode, include_pad, divisor: _avg_unpool(
        g, kernel, stride, padding, ceil_mode, include_pad, divisor, input_meta.shape[-len(kernel) :]
    )
).tangent("linear")
_avg_unpool.grad(
    grad=lambda g, kernel, stride, padding, ceil_mode, include_pad, divisor: avg_pool(
        g, kernel, stride, padding, ceil_mode, include_pad, divisor
    )
).tangent("linear")

# Adaptive average pooling multiplies each dimension by a matrix of weights; the transpose is the adjoint.


def _adaptive_weights(xp: Any, size: int, output: int, dtype: DType) -> Array:
    """(output, size): row i averages elements floor(i size / output) to ceil((i + 1) size / output)."""
    weights = np.zeros((output, size), dtype)
    for place in range(output):
        start, end = place * size // output, -(-(place + 1) * size // output)
        weights[place, start:end] = 1 / (end - start)
    return xp.asarray(weights)


def apply_weights(xp: Any, input: Array, weights: list[Array]) -> Array:
    """Apply each matrix to its dimension, the last matrix to the last dimension."""
    for axis, matrix in enumerate(weights):
        dim = input.ndim - len(weights) + axis
        if dim == input.ndim - 1:
            input = xp.matmul(input, matrix.T)
        else:
            moved = input.reshape(*input.shape[: dim + 1], math.prod(input.shape[dim + 1 :]))
            shape = (*input.shape[:dim], matrix.shape[0], *input.shape[dim + 1 :])
            input = xp.matmul(matrix, moved).reshape(shape)
    return input


def _adaptive_node(input: Any, output_size: Ints) -> str:
    several = len(output_size) > 1 and all(size == 1 for size in output_size)
    return "MeanBackward1" if several else f"AdaptiveAvgPool{max(2, len(output_size))}DBackward0"


@op(name="_adaptive_avg_pool", node=_adaptive_node, cost=counted(resized_cost, 2.0))
@keeps_format(_order_of_means)
@through_float32
def adaptive_avg_pool(xp: Any, input: Array, output_size: Ints) -> Array:
    sizes = input.shape[-len(output_size) :]
    if all(size == 1 for size in output_size) and math.prod(sizes):
        lead = input.shape[: -len(output_size)]
        rows = input.reshape(*lead, math.prod(sizes))
        means = rows @ xp.full(rows.shape[-1], 1 / rows.shape[-1], input.dtype)
        return means.reshape(*lead, *output_size)
    if dtypes.category(input.dtype) == dtypes.FLOAT and not bool(xp.isfinite(input.sum())):  # 0 * inf would be nan
        return _adaptive_means(xp, input, sizes, output_size)
    return apply_weights(
        xp, input, [_adaptive_weights(xp, *pair, input.dtype) for pair in zip(sizes, output_size, strict=True)]
    )


adaptive_avg_pool.works_in(forward=1.1, widens=True)
adaptive_avg_pool.sized_by(lambda input, output_size: _result_bytes(input, output_size))


def _adaptive_means(xp: Any, input: Array, sizes: Ints, output_size: Ints) -> Array:
    """Adaptive means without matrices: window by window along one dimension after another."""
    for axis, (size, count) in enumerate(zip(sizes, output_size, strict=True)):
        dim = input.ndim - len(sizes) + axis
        ends = [(place * size // count, -(-(place + 1) * size // count)) for place in range(count)]
        parts = [at(input, dim, slice(start, end)).mean(dim, keepdims=True) for start, end in ends]
        input = xp.concatenate(parts, dim) if parts else at(input, dim, slice(0, 0))
    return input


@op(name="_adaptive_avg_unpool", cost=counted(resized_cost, 2.0))
@through_float32
def _adaptive_avg_unpool(xp: Any, grad: Array, size: Ints) -> Array:
    sizes = grad.shape[-len(size) :]
    weights = [_adaptive_weights(xp, *pair, grad.dtype).T for pair in zip(size, sizes, strict=True)]
    return apply_weights(xp, grad, weights)


_adaptive_avg_unpool.sized_by(lambda grad, size: _result_bytes(grad, size))


def check_filled_gradient(name: str, shape: tuple[int, ...]) -> None:
    """Refuse a gradient without elements in a sample, as PyTorch does. Raises EngineError: RUNTIME."""
    if 0 in shape[1:]:
        text = "Expected grad_output to have non-zero size for non-batch dimensions"
        raise EngineError(Reason.RUNTIME, f"{name}(): {text}, but grad_output has sizes {list(shape)}", op=name)


def _adaptive_avg_input(g: Any, input_meta: Any, output_size: Ints) -> Any:
    size = input_meta.shape[-len(output_size) :]
    if all(one == 1 for one in output_size):
        return expand(g / math.prod(size), input_meta.shape)
    check_filled_gradient(f"adaptive_avg_pool{len(output_size)}d_backward", g.shape)
    return _adaptive_avg_unpool(g, size)


adaptive_avg_pool.grad(input=_adaptive_avg_input).tangent("linear")
_adaptive_avg_unpool.grad(grad=lambda g, grad_meta, size: adaptive_avg_pool(g, grad_meta.shape[-len(size) :]))
_adaptive_avg_unpool.tangent("linear")

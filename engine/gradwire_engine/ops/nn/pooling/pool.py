"""Max, average and adaptive average pooling over 1, 2 or 3 spatial dimensions.

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
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import CALL, LOOP, counted, flop, indexing
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import expand
from gradwire_engine.ops.base.checks import admit, ints
from gradwire_engine.ops.base.precision import through_float32
from gradwire_engine.ops.elementwise.activation import keep
from gradwire_engine.ops.nn.pooling.wide_pool import gather_maxima, scatter_to_maxima, wide_max
from gradwire_engine.ops.nn.windows import Window, count_outputs, padded_size, per_dim
from gradwire_engine.ops.shape.shape import at, squeeze, unsqueeze

Ints = Any  # an int or a sequence of ints
_PLACES = 8  # bytes of an index


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


@op(
    name="_max_pool",
    node=_max_node,
    outputs=("values", "which"),
    differentiable_outputs=(0,),
    cost=counted(_max_pool_cost, 2.0),
)
def _max_pool(
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


_max_pool.works_in(backward=2.3)


def _is_wide(xp: Any, window: Window) -> bool:
    """Whether to reduce large windows by doubling; never with CuPy."""
    return xp is np and doubles(window.kernel, window.padded, window.output)


def _small_int(count: int) -> DType:
    return np.dtype(np.uint8 if count <= 256 else np.int32)


def _mark_nan(xp: Any, padded: Array, window: Window, which: Array) -> None:
    """Set the kernel position of a window with nan to its last nan, as in PyTorch."""
    for number, (_, index) in enumerate(window.offsets()):
        xp.copyto(which, which.dtype.type(number), where=xp.isnan(padded[index]))


@op(name="_max_unpool", cost=counted(_picked_cost, 2.0))
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


@op(name="_max_pick", cost=counted(_picked_cost, 2.0))
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


_max_pool.grad(
    input=lambda g, out1, input_meta, kernel, stride, padding, dilation: _max_unpool(
        g, out1, kernel, stride, padding, dilation, input_meta.shape[-len(kernel) :]
    )
)
_max_unpool.grad(
    grad=lambda g, which, kernel, stride, padding, dilation: _max_pick(g, which, kernel, stride, padding, dilation)
)
_max_pick.grad(
    input=lambda g, which, input_meta, kernel, stride, padding, dilation: _max_unpool(
        g, which, kernel, stride, padding, dilation, input_meta.shape[-len(kernel) :]
    )
)


@op(name="_max_indices", cost=indexing(30))
def _max_indices(xp: Any, which: Array, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, size: Ints) -> Array:
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
@through_float32
def _avg_pool(
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


_avg_pool.grad(
    input=lambda g, input_meta, kernel, stride, padding, ceil_mode, include_pad, divisor: _avg_unpool(
        g, kernel, stride, padding, ceil_mode, include_pad, divisor, input_meta.shape[-len(kernel) :]
    )
)
_avg_unpool.grad(
    grad=lambda g, kernel, stride, padding, ceil_mode, include_pad, divisor: _avg_pool(
        g, kernel, stride, padding, ceil_mode, include_pad, divisor
    )
)

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
@through_float32
def _adaptive_avg_pool(xp: Any, input: Array, output_size: Ints) -> Array:
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


_adaptive_avg_pool.works_in(forward=1.1, widens=True)
_adaptive_avg_pool.sized_by(lambda input, output_size: _result_bytes(input, output_size))


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
_adaptive_avg_pool.grad(
    input=lambda g, input_meta, output_size: (
        expand(g / math.prod(input_meta.shape[-len(output_size) :]), input_meta.shape)
        if all(size == 1 for size in output_size)
        else _adaptive_avg_unpool(g, input_meta.shape[-len(output_size) :])
    )
)
_adaptive_avg_unpool.grad(grad=lambda g, grad_meta, size: _adaptive_avg_pool(g, grad_meta.shape[-len(size) :]))

# The public ops.


def _refuse(message: str, reason: Reason = Reason.RUNTIME) -> None:
    raise EngineError(reason, message)


def _check_max_pool1d(kernel: int, stride: int, padding: int, dilation: int) -> None:
    """Check the arguments of max_pool1d, for which PyTorch has its own messages. Raises EngineError: RUNTIME."""
    for key, value in (("kernel_size", kernel), ("stride", stride)):
        if value <= 0:
            _refuse(f"max_pool1d() {key} must be greater than zero, but got {value}")
    if padding < 0:
        _refuse(f"max_pool1d() padding must be non-negative, but got {padding}")
    if padding > kernel // 2:
        _refuse(
            f"max_pool1d() padding should be at most half of kernel size, but got padding={padding} and "
            f"kernel_size={kernel}"
        )
    if dilation <= 0:
        _refuse(f"max_pool1d() dilation must be greater than zero, but got {dilation}")


def _arguments(name: str, spatial: int, **given: Any) -> list[Ints]:
    """Check kernel, stride, padding and dilation and convert them to tuples. Raises EngineError: RUNTIME."""
    words = ("", "int", "two ints", "three ints")[spatial]
    kernel = per_dim(
        given["kernel_size"], spatial, f"{name}: kernel_size must either be a single int, or a tuple of {words}"
    )
    stride = given["stride"]
    steps = (
        kernel
        if stride is None or stride in ((), [])
        else per_dim(stride, spatial, f"{name}: stride must either be omitted, a single int, or a tuple of {words}")
    )
    pads, dilations = (
        per_dim(given[key], spatial, f"{name}: {key} must {be} a single int, or a tuple of {words}")
        for key, be in (("padding", "either be"), ("dilation", "be either"))
    )
    if name == "max_pool1d":
        _check_max_pool1d(kernel[0], steps[0], pads[0], dilations[0])
    if min(steps) == 0:
        _refuse("stride should not be zero")
    if min(steps) < 0 or min(kernel) <= 0:
        _refuse(f"{name}: kernel size and stride should be greater than zero, but got {list(kernel)} and {list(steps)}")
    if min(dilations) <= 0:
        given_steps = " ".join(
            f"dilation{axis}: {step}" for axis, step in zip("THW"[-spatial:], dilations, strict=True)
        )
        _refuse(f"dilation should be greater than zero, but got {given_steps}")
    if min(pads) < 0:
        _refuse(f"pad must be non-negative, but got pad: {min(pads)}")
    for pad, k, step in zip(pads, kernel, dilations, strict=True):
        if pad > (step * (k - 1) + 1) // 2:
            _refuse(
                "pad should be at most half of effective kernel size, but got "
                f"pad={pad}, kernel_size={k} and dilation={step}"
            )
    return [kernel, steps, pads, dilations]


def _check_input(name: str, input: Any, spatial: int) -> None:
    ranks = (spatial + 1, spatial + 2)
    if input.ndim not in ranks or 0 in input.shape[-spatial - 1 :]:
        if spatial == 1:
            _refuse(
                f"{name}: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, but got:"
                f"{list(input.shape)}"
            )
        if input.ndim in ranks:
            _refuse(
                f"{name}: Expected {ranks[0]}D or {ranks[1]}D (batch mode) tensor with optional 0 dim batch size for "
                f"input, but got:{list(input.shape)}"
            )
        _refuse(f"{name}: non-empty {ranks[0]}D or {ranks[1]}D (batch mode) tensor expected for input")


def _check_output(input: Any, window: Window) -> None:
    if min(window.output) >= 1:
        return
    spatial = len(window.size)
    if spatial == 1:
        _refuse(f"max_pool1d() Invalid computed output size: {window.output[0]}")
    shape = "x".join(map(str, input.shape[-spatial - 1 :]))
    made = "x".join(map(str, (input.shape[-spatial - 1], *window.output)))
    _refuse(f"Given input size: ({shape}). Calculated output size: ({made}). Output size is too small")


def _max(
    spatial: int, input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
    return_indices: bool,
) -> Any:  # fmt: skip
    name = f"max_pool{spatial}d"
    kernel, steps, pads, dilations = _arguments(
        name, spatial, kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation
    )
    _check_input(name, input, spatial)
    if input.dtype == dtypes.bool_ or dtypes.category(input.dtype) == dtypes.COMPLEX:
        _refuse(f"\"{name}\" not implemented for '{dtypes.TITLES[input.dtype]}'", Reason.NOT_SUPPORTED)
    size = tuple(input.shape[-spatial:])
    _check_output(input, Window(size, kernel, steps, pads, dilations, ceil_mode))
    if spatial == 1:  # computed in two dimensions, as in PyTorch
        made, which = _max_pool(unsqueeze(input, -2), (1, *kernel), (1, *steps), (0, *pads), (1, *dilations), ceil_mode)
        made, which = squeeze(made, -2), squeeze(which, -2)
    else:
        made, which = _max_pool(input, kernel, steps, pads, dilations, ceil_mode)
    return (made, _max_indices(which, kernel, steps, pads, dilations, size)) if return_indices else made


@composite(outputs=("values", "indices"))
def max_pool1d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of each window (torch.nn.functional.max_pool1d).

    input: (n, c, l) or (c, l). return_indices: also return each maximum's index. Raises EngineError: RUNTIME,
    NOT_SUPPORTED.
    """
    return _max(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


max_pool1d.unsupported("bi", "max_pool1d_impl")


@composite(outputs=("values", "indices"))
def max_pool2d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of each window (torch.nn.functional.max_pool2d).

    input: (n, c, h, w) or (c, h, w). return_indices: also return each maximum's index in the flattened (h, w).
    Raises EngineError: RUNTIME, NOT_SUPPORTED.
    """
    return _max(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@composite(outputs=("values", "indices"))
def max_pool3d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of each window (torch.nn.functional.max_pool3d).

    input: (n, c, d, h, w) or (c, d, h, w). return_indices: also return each maximum's index in the flattened (d, h, w).
    Raises EngineError: RUNTIME, NOT_SUPPORTED.
    """
    return _max(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _avg(
    spatial: int, input: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, include_pad: bool,
    divisor: int | None,
) -> Any:  # fmt: skip
    name = f"avg_pool{spatial}d"
    kernel, steps, pads, _ = _arguments(
        name, spatial, kernel_size=kernel_size, stride=stride, padding=padding, dilation=1
    )
    _check_input(name, input, spatial)
    if divisor == 0:
        _refuse("divisor must be not zero")
    if spatial == 1:
        flat = unsqueeze(input, -2)
        kernel, steps, pads = (1, *kernel), (1, *steps), (0, *pads)
        _check_output(flat, Window(tuple(flat.shape[-2:]), kernel, steps, pads, (1, 1), ceil_mode))
        return squeeze(_avg_pool(flat, kernel, steps, pads, ceil_mode, include_pad, divisor), -2)
    if spatial == 3 and any(n + 2 * pad < k for n, pad, k in zip(input.shape[-3:], pads, kernel, strict=True)):
        _refuse(f"input image {list(input.shape[-3:])} smaller than kernel size {list(kernel)}")
    _check_output(input, Window(tuple(input.shape[-spatial:]), kernel, steps, pads, (1,) * spatial, ceil_mode))
    return _avg_pool(input, kernel, steps, pads, ceil_mode, include_pad, divisor)


@composite
def avg_pool1d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """Mean of each window (torch.nn.functional.avg_pool1d). input: (n, c, l) or (c, l)."""
    return _avg(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


avg_pool1d.unsupported("bic", "avg_pool2d", except_for=("int64",))


@composite
def avg_pool2d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Mean of each window (torch.nn.functional.avg_pool2d). input: (n, c, h, w) or (c, h, w)."""
    return _avg(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


avg_pool2d.unsupported("bic", "avg_pool2d", except_for=("int64",))


@composite
def avg_pool3d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Mean of each window (torch.nn.functional.avg_pool3d). input: (n, c, d, h, w) or (c, d, h, w)."""
    return _avg(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


avg_pool3d.unsupported("bic", "avg_pool3d_out_frame", except_for=("int64",))


def _adaptive(spatial: int, input: Any, output_size: Any) -> Any:
    name = f"adaptive_avg_pool{spatial}d"
    if input.ndim <= spatial:
        _refuse(f"Input dimension should be at least {spatial + 1}", Reason.ARGUMENT_VALUE)
    given = (output_size,) * spatial if output_size is None or isinstance(output_size, int) else tuple(output_size)
    if len(given) != spatial:
        _refuse(f"{name}: output_size must be {spatial}")
    sizes = tuple(
        size if wanted is None else wanted for wanted, size in zip(given, input.shape[-spatial:], strict=True)
    )
    if min(sizes) < 0:
        _refuse(f"{name}: elements of output_size must be greater than or equal to 0 but received {list(sizes)}")
    if max(sizes) != 1 or min(sizes) != 1:  # a single output element is a mean, which accepts any shape
        if input.ndim > spatial + 2:
            _refuse(f"{name}(): Expected {spatial + 1}D or {spatial + 2}D tensor, but got {list(input.shape)}")
        if 0 in input.shape[-spatial if spatial < 3 else 1 :]:
            _refuse(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes "
                f"{list(input.shape)}"
            )
    return _adaptive_avg_pool(input, sizes)


def _to_several(input: Any, size: Any) -> bool:
    """Whether the output has several elements per channel; for one, pooling is a mean."""
    return {1} != set(ints(size))


@composite
def adaptive_avg_pool1d(input: Array, output_size: Ints) -> Any:
    """Mean of each window, with as many windows as output elements (torch.nn.functional.adaptive_avg_pool1d)."""
    if input.ndim > 3:
        _refuse(f"Expected 2 to 3 dimensions, but got {input.ndim}-dimensional tensor for argument #1 'self'")
    pooled = _adaptive(2, unsqueeze(input, -2), (1, *(per_dim(output_size, 1, "output_size must be one int"))))
    return squeeze(pooled, -2)


adaptive_avg_pool1d.unsupported("bi", "adaptive_avg_pool2d")
adaptive_avg_pool1d.unsupported("c", "adaptive_avg_pool2d", when=_to_several)


@composite
def adaptive_avg_pool2d(input: Array, output_size: Ints) -> Any:
    """Mean of each window, with as many windows as output elements (torch.nn.functional.adaptive_avg_pool2d).

    output_size: an int, or (h, w) where None keeps a size. Raises EngineError: RUNTIME, ARGUMENT_VALUE.
    """
    return _adaptive(2, input, output_size)


adaptive_avg_pool2d.unsupported("bi", "adaptive_avg_pool2d")
adaptive_avg_pool2d.unsupported("c", "adaptive_avg_pool2d", when=_to_several)


@composite
def adaptive_avg_pool3d(input: Array, output_size: Ints) -> Any:
    """Mean of each window, with as many windows as output elements (torch.nn.functional.adaptive_avg_pool3d).

    output_size: an int, or (d, h, w) where None keeps a size. Raises EngineError: RUNTIME, ARGUMENT_VALUE.
    """
    return _adaptive(3, input, output_size)


adaptive_avg_pool3d.unsupported("bi", "adaptive_avg_pool3d_cpu")
adaptive_avg_pool3d.unsupported("c", "adaptive_avg_pool3d", when=_to_several)

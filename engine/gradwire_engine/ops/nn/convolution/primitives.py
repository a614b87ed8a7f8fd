"""The primitives of convolution over 1, 2 or 3 spatial dimensions.

Three primitives are each other's derivatives, so derivatives of any order follow. `_convolution` maps an input and a
weight to the output; `_convolution_transpose` maps the output's gradient to the input's; `_convolution_weight` maps
input and output gradient to the weight's. Each is a matrix product with the input's windows as columns, for a few
images at a time. Columns for the whole batch would exceed the cache: they have as many elements as the input, times
the kernel's elements. Where they are installed, oneDNN computes most convolutions of float32 instead (onednn.py), and
cuDNN those on GPUs (cudnn.py).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.matrix_product import matrix_product
from gradwire_engine.op.cost import CALL, LOOP, counted, flop
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import add, conj, expand
from gradwire_engine.ops.base.checks import admit, ints
from gradwire_engine.ops.base.loops import ON_GPU, Loops, fits, with_loop
from gradwire_engine.ops.base.precision import is_half, through_float32
from gradwire_engine.ops.linalg.matrix import fold
from gradwire_engine.ops.nn.convolution import cudnn, onednn
from gradwire_engine.ops.nn.windows import Window, count_outputs, padded_size
from gradwire_engine.ops.nn.windows_on_gpu import columns as write_columns
from gradwire_engine.ops.nn.windows_on_gpu import fits as fits_kernel
from gradwire_engine.ops.nn.windows_on_gpu import sum_columns

Ints = Any  # an int or a sequence of ints
# Elements of a column buffer: about the size of an L2 cache; on a GPU enough to occupy it.
_BUFFER = 1 << 18
_GPU_BUFFER = 1 << 26
# Channels per group up to which the input's gradient is a correlation, and the input's elements per gradient's element:
# matrices of few rows are no faster than adding their products to the image.
_NARROW, _MOST_ZEROS = 8, 2
# Operations of a row that is copied into the columns.
_ROW = 12
# Size from which adding a vector takes longer than its call overhead.
_LONG = 1 << 11


def _channel_loop(loops: Loops, xp: Any, input: Array) -> Array | None:
    """The sums by a loop of a GPU."""
    loop: Any = loops.find("row_sum", input.dtype.char) if fits(input) else None
    if loop is None:
        return None
    channels = input.shape[1]
    made = np.empty_like(input, shape=channels)
    loop.launch(channels, input.size // channels, (input, made), None, math.prod(input.shape[2:]))
    return made


@op(name="_channel_sum", cost=8)
@with_loop(_channel_loop, least=ON_GPU)
def channel_sum(xp: Any, input: Array) -> Array:
    """Sum over all dimensions except dimension 1."""
    if is_half(input.dtype):
        return channel_sum(input.astype(dtypes.float32)).astype(input.dtype)
    if input.ndim == 2:
        return xp.ones(input.shape[0], input.dtype) @ input
    rows = input.reshape(*input.shape[:2], math.prod(input.shape[2:]))
    return (rows @ xp.ones(rows.shape[2], input.dtype)).sum(0, dtype=input.dtype)


def spread_channels(value: Any, ndim: int) -> Any:
    """Reshape one value per channel so that it broadcasts along dimension 1."""
    return fold(value, (1, -1, *[1] * (ndim - 2)))


channel_sum.grad(input=lambda g, input_meta: expand(spread_channels(g, input_meta.ndim), input_meta.shape))
channel_sum.tangent("linear")


def _blocks(xp: Any, images: int, per_image: int) -> Iterator[slice]:
    """Slices of the batch whose columns fit the buffer."""
    step = max(1, (_BUFFER if xp is np else _GPU_BUFFER) // max(1, per_image))
    for start in range(0, images, step):
        yield slice(start, min(start + step, images))


def _library(xp: Any) -> Any:
    """The module of the library that computes convolutions of this array module, where it can."""
    return onednn if xp is np else cudnn


def _window(size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Window:
    return Window(tuple(size), tuple(kernel), tuple(stride), tuple(padding), tuple(dilation))


def _is_pointwise(window: Window) -> bool:
    return window.taps == 1 and window.padded == window.size == window.output


def _convolution_cost(
    input: Any, weight: Any, bias: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    kernel = weight.shape[2:]
    outputs = count_outputs(input.shape[2:], kernel, stride, padding, dilation)
    reach = padded_size(input.shape[2:], kernel, stride, padding, dilation)
    length = input.shape[-1] // max(1, ints(stride)[-1])
    return _correlated_cost(input, weight.shape[0], weight.shape[1], math.prod(kernel), outputs, length, reach, groups)


def _correlated_cost(
    input: Any, out: int, per_group: int, taps: int, outputs: int, length: int, reach: int, groups: int
) -> Any:
    images = input.shape[0]
    columns = images * groups * per_group * taps * outputs
    flops = images * out * per_group * taps * outputs * flop(input.dtype)
    # A column's element is copied in rows of the output; short rows cost their loop.
    each = 0.3 * input.itemsize + _ROW / max(1, length)
    return flops + each * columns + 8.0 * images * groups * per_group * reach + taps * CALL + images * groups * 500


def _transposed_cost(
    input: Any, weight: Any, bias: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int, size: Ints
) -> Any:
    kernel, outputs = weight.shape[2:], math.prod(input.shape[2:])
    reach = padded_size(size, kernel, stride, padding, dilation)
    images, taps = input.shape[0], math.prod(kernel)
    columns = images * groups * weight.shape[1] * taps * max(outputs, reach if all(s == 1 for s in stride) else 0)
    flops = columns * weight.shape[0] / max(1, groups) * flop(input.dtype)
    return flops + 3.0 * columns + 4.0 * images * groups * weight.shape[1] * reach + taps * groups * CALL


def _weighed_cost(input: Any, grad: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int, kernel: Ints) -> Any:
    outputs = math.prod(grad.shape[2:])
    reach = padded_size(input.shape[2:], kernel, stride, padding, dilation)
    per_group = input.shape[1] // max(1, groups)
    taps = math.prod(kernel)
    work = _correlated_cost(input, grad.shape[1], per_group, taps, outputs, grad.shape[-1], reach, groups)
    return work + input.shape[0] * LOOP


@op(name="_convolution", node="ConvolutionBackward0", cost=counted(_convolution_cost, 3.0))
@through_float32
def convolution(
    xp: Any, input: Array, weight: Array, bias: Array | None, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    """Cross-correlation of (n, c, *size) with (o, c / groups, *kernel): (n, o, *output)."""
    images, out_channels = input.shape[0], weight.shape[0]
    window = _window(input.shape[2:], weight.shape[2:], stride, padding, dilation)
    shape = (images, out_channels, *window.output)
    admit(shape, input.dtype)
    quick = _library(xp).forward(input, weight, bias, window.output, stride, padding, dilation, groups)
    if quick is not None:
        return quick
    matrix = weight.reshape(groups, out_channels // groups, math.prod(weight.shape[1:]))
    if _is_pointwise(window):
        made = _products(xp, matrix, input.reshape(images, groups, matrix.shape[2], math.prod(window.size)))
    else:
        made = _correlate(xp, input, matrix, window)
    if bias is not None:
        made += bias.reshape(groups, out_channels // groups, 1)
    return made.reshape(shape)


convolution.works_in(widens=True)


def _correlate(xp: Any, input: Array, matrix: Array, window: Window) -> Array:
    """Products of the weight's matrix (per group) with the columns, a few images at a time."""
    images, (groups, rows, taps), positions = input.shape[0], matrix.shape, math.prod(window.output)
    by_kernel = fits_kernel(window, input)
    columns = input if by_kernel else _grouped_columns(xp, input, window, groups)
    result = xp.empty((images, groups, rows, positions), input.dtype)
    buffer = None
    for block in _blocks(xp, images, groups * taps * positions):
        view = columns[block]
        if buffer is None:
            shape = (len(view), groups, taps, positions) if by_kernel else view.shape
            admit(shape, input.dtype)
            buffer = xp.empty(shape, input.dtype)
        part = buffer[: view.shape[0]]
        if by_kernel:
            write_columns(window, view, part)
        else:
            part[...] = view
        _products(xp, matrix, part.reshape(len(part), groups, taps, positions), result[block])
    return result


def _products(xp: Any, matrix: Array, columns: Array, out: Array | None = None) -> Array:
    """The matrix of each group times its columns, for each image: (groups, ...) and (n, groups, ...)."""
    return matrix_product(
        xp, np.broadcast_to(matrix, (len(columns), *matrix.shape)) if xp is np else matrix, columns, out
    )


def _grouped_columns(xp: Any, input: Array, window: Window, groups: int) -> Array:
    """A view (n, groups, c / groups, *kernel, *output) of the padded input."""
    padded = window.pad(xp, input)
    images, channels = input.shape[:2]
    return window.columns(xp, padded.reshape(images, groups, channels // groups, *padded.shape[2:]))


@op(name="_convolution_transpose", node="ConvolutionBackward0", cost=counted(_transposed_cost, 3.0))
@through_float32
def convolution_transpose(
    xp: Any,
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    size: Ints,
) -> Array:
    """Transpose of `convolution`: (n, o, *output) with (o, c / groups, *kernel) to (n, c, *size)."""
    images, out_channels = input.shape[:2]
    window = _window(size, weight.shape[2:], stride, padding, dilation)
    per_group, positions = weight.shape[1], math.prod(input.shape[2:])
    shape = (images, groups * per_group, *window.size)
    admit((*shape[:2], *window.padded), input.dtype)
    quick = _library(xp).source_gradient(input, weight, size, stride, padding, dilation, groups)
    if quick is not None:
        return quick if bias is None else xp.add(quick, bias.reshape(-1, *[1] * len(size)), quick)
    rows = out_channels // groups
    mirror = _mirrored(input.shape[2:], window)
    if xp is np and groups > 1 and per_group <= _NARROW and mirror is not None and np.isfinite(weight).all():
        made = _correlate(xp, input, _turned(weight, groups), mirror).reshape(shape)
        return made if bias is None else made + bias.reshape(-1, *[1] * len(size))
    matrix = weight.reshape(groups, rows, math.prod(weight.shape[1:])).swapaxes(1, 2)
    grads = input.reshape(images, groups, rows, positions)
    if _is_pointwise(window):
        made = _products(xp, matrix, grads).reshape(shape)
    elif fits_kernel(window, input):
        made = _sum_columns_on_gpu(xp, matrix, grads, window, shape)
    else:
        made = _scatter_columns(xp, matrix, grads, window, per_group).reshape(*shape[:2], *window.padded)
        made = made[window.inner]
        if bias is None:
            made = xp.array(made, order="C")  # as PyTorch's result, which can be viewed with other sizes
    return made if bias is None else made + bias.reshape(-1, *[1] * len(size))


convolution_transpose.works_in(forward=0.6)


def _sum_columns_on_gpu(xp: Any, matrix: Array, grads: Array, window: Window, shape: Ints) -> Array:
    """`_scatter_columns` without the padding, by a kernel: (n, c, *size)."""
    (groups, taps, _), (images, _, _, positions) = matrix.shape, grads.shape
    made, buffer = xp.empty(shape, grads.dtype), None
    for block in _blocks(xp, images, groups * taps * positions):
        if buffer is None:
            admit((block.stop - block.start, groups, taps, positions), grads.dtype)
            buffer = xp.empty((block.stop - block.start, groups, taps, positions), grads.dtype)
        part = _products(xp, matrix, grads[block], buffer[: block.stop - block.start])
        sum_columns(window, part, made[block])
    return made


def _mirrored(given: Ints, window: Window) -> Window | None:
    """Windows over the output's gradient whose correlation with the turned weight is the transpose, if that is faster.

    None with a stride, since the gradient would need zeros between; and where the padded gradient is much larger than
    the input's, since most products would be with zeros.
    """
    reach = [gap * (k - 1) for gap, k in zip(window.dilation, window.kernel, strict=True)]
    padding = tuple(far - pad for far, pad in zip(reach, window.padding, strict=True))
    if window.taps == 1 or any(step != 1 for step in window.stride) or min(padding) < 0:
        return None
    made = Window(tuple(given), window.kernel, window.stride, padding, window.dilation)
    if made.output != window.size or math.prod(window.size) > _MOST_ZEROS * math.prod(given):
        return None
    return made


def _turned(weight: Array, groups: int) -> Array:
    """The weight with its channels exchanged and its kernel reversed, as a matrix per group."""
    rows, per_group = weight.shape[0] // groups, weight.shape[1]
    parted = weight.reshape(groups, rows, per_group, *weight.shape[2:]).swapaxes(1, 2)
    reverse: Any = (..., *[slice(None, None, -1)] * (weight.ndim - 2))
    turned = parted[reverse]
    return np.ascontiguousarray(turned).reshape(groups, per_group, -1)


def _scatter_columns(xp: Any, matrix: Array, grads: Array, window: Window, per_group: int) -> Array:
    """Add the columns' gradients at the positions the columns were read from: (n, groups, c / groups, *padded)."""
    (groups, taps, _), (images, _, _, positions) = matrix.shape, grads.shape
    plain = all(step == 1 for step in window.stride) and (groups == 1 or per_group * math.prod(window.padded) >= _LONG)
    if xp is np and plain and np.isfinite(matrix).all():
        return _scatter_flat(matrix, grads, window, per_group)
    target = xp.zeros((images, groups, per_group, *window.padded), grads.dtype)
    buffer = None
    for block in _blocks(xp, images, groups * taps * positions):
        count = block.stop - block.start
        if buffer is None:
            admit((count, groups, taps, positions), grads.dtype)
            buffer = xp.empty((count, groups, taps, positions), grads.dtype)
        part = _products(xp, matrix, grads[block], buffer[:count])
        part = part.reshape(count, groups, per_group, *window.kernel, *window.output)
        place = target[block]
        for position, index in window.offsets():
            taken = (slice(None), slice(None), slice(None), *position)
            place[index] += part[taken]
    return target


def _scatter_flat(matrix: Array, grads: Array, window: Window, per_group: int) -> Array:
    """`_scatter_columns` for a stride of 1, in long vectors instead of an image's rows.

    The gradient's rows are zero-padded to the padded input's row length. Then a kernel element's product is added to
    the whole image at one offset. Values that run past the end of a row or channel are zero.
    """
    (groups, _, rows), images, padded = matrix.shape, len(grads), window.padded
    size, taps, channels = math.prod(padded), window.taps, groups * per_group
    steps = [math.prod(padded[axis + 1 :]) for axis in range(len(padded))]
    offsets = [
        sum(place * dilation * step for place, dilation, step in zip(position, window.dilation, steps, strict=True))
        for position, _ in window.offsets()
    ]
    # Kernel elements come first, so that each element's products for all channels form one vector.
    by_tap = matrix.reshape(groups, per_group, taps, rows).transpose(0, 2, 1, 3).reshape(groups, -1, rows)
    by_tap = np.ascontiguousarray(by_tap)
    admit((images, channels * size + offsets[-1]), grads.dtype)
    target = np.zeros((images, channels * size + offsets[-1]), grads.dtype)
    step = max(1, min(images, _BUFFER // (taps * channels * size)))
    admit((step, taps, channels, size), grads.dtype)
    wide = np.zeros((step, groups, rows, *padded), grads.dtype)
    buffer = np.empty((step, groups, taps * per_group, size), grads.dtype)
    inner: Any = (..., *(slice(0, length) for length in window.output))
    for start in range(0, images, step):
        part = grads[start : start + step]
        count = len(part)
        wide[:count][inner] = part.reshape(count, groups, rows, *window.output)
        shares = _products(np, by_tap, wide[:count].reshape(count, groups, rows, size), buffer[:count])
        shares = shares.reshape(count, groups, taps, per_group * size)
        place = target[start : start + step]
        for tap, offset in enumerate(offsets):
            for group in range(groups):
                first = group * per_group * size + offset
                place[:, first : first + per_group * size] += shares[:, group, tap]
    return target[:, : channels * size].reshape(images, groups, per_group, *padded)


@op(name="_convolution_weight", cost=counted(_weighed_cost, 3.0))
@through_float32
def convolution_weight(
    xp: Any, input: Array, grad: Array, stride: Ints, padding: Ints, dilation: Ints, groups: int, kernel: Ints
) -> Array:
    """Gradient of `convolution`'s weight: (n, c, *size) with (n, o, *output) to (o, c / groups, *kernel)."""
    quick = _library(xp).weight_gradient(input, grad, kernel, stride, padding, dilation, groups)
    if quick is not None:
        return quick
    images, channels, out_channels = input.shape[0], input.shape[1], grad.shape[1]
    window = _window(input.shape[2:], kernel, stride, padding, dilation)
    rows, taps, positions = out_channels // groups, channels // groups * window.taps, math.prod(window.output)
    grads = grad.reshape(images, groups, rows, positions)
    by_kernel = fits_kernel(window, input)
    columns = input if by_kernel else _grouped_columns(xp, input, window, groups)
    result = xp.zeros((groups, rows, taps), input.dtype)
    for block in _blocks(xp, images, groups * taps * positions):
        count = block.stop - block.start
        if xp is np and positions >= taps:
            _add_products(result, grads[block], columns[block], taps)
            continue
        # The images are adjacent in the columns, so one product sums over them.
        if by_kernel:
            admit((groups, taps, count * positions), input.dtype)
            wide = xp.empty((groups, taps, count * positions), input.dtype)
            write_columns(window, columns[block], wide, wide=True)
        else:
            view = xp.moveaxis(columns[block], 0, len(window.kernel) + 2)
            admit(view.shape, input.dtype)
            wide = xp.ascontiguousarray(view).reshape(groups, taps, count * positions)
        high = xp.moveaxis(grads[block], 0, 2).reshape(groups, rows, count * positions)
        share = matrix_product(xp, high, wide.swapaxes(1, 2))
        if by_kernel and not block.start:
            result = share
        else:
            result += share
    return result.reshape(out_channels, channels // groups, *window.kernel)


convolution_weight.sized_by(
    lambda input, grad, stride, padding, dilation, groups, kernel: (
        grad.shape[1] * (input.shape[1] // groups) * math.prod(kernel) * input.itemsize
    )
)


def _add_products(result: Array, grads: Array, columns: Array, taps: int) -> None:
    """Add products of gradients (groups, rows, positions) and columns, summed over positions, image by image."""
    groups, _, positions = grads.shape[1:]
    buffer = np.empty(columns.shape[1:], columns.dtype)
    for high, view in zip(grads, columns, strict=True):
        buffer[...] = view
        # In this order BLAS reads both operands without a copy.
        share = matrix_product(np, buffer.reshape(groups, taps, positions), high.swapaxes(1, 2))
        result += share.swapaxes(1, 2)


def _input_grad(g: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int, size: Ints) -> Any:
    return convolution_transpose(g, conj(weight), None, stride, padding, dilation, groups, size)


convolution.grad(
    input=lambda g, input_meta, weight, stride, padding, dilation, groups: _input_grad(
        g, weight, stride, padding, dilation, groups, input_meta.shape[2:]
    ),
    weight=lambda g, input, weight_meta, stride, padding, dilation, groups: convolution_weight(
        conj(input), g, stride, padding, dilation, groups, weight_meta.shape[2:]
    ),
    bias=lambda g: channel_sum(g),
)
convolution_transpose.grad(
    input=lambda g, weight, stride, padding, dilation, groups: convolution(
        g, conj(weight), None, stride, padding, dilation, groups
    ),
    weight=lambda g, input, weight_meta, stride, padding, dilation, groups: convolution_weight(
        g, conj(input), stride, padding, dilation, groups, weight_meta.shape[2:]
    ),
    bias=lambda g: channel_sum(g),
)


def _convolved_tangent(convolved: Any, t_input: Any, t_weight: Any, t_bias: Any, input: Any, weight: Any) -> Any:
    """Tangent of a convolution: `convolved` is the convolution without a bias."""
    parts = [
        None if t_input is None else convolved(t_input, weight),
        None if t_weight is None else convolved(input, t_weight),
        None if t_bias is None else spread_channels(t_bias, input.ndim),
    ]
    given = [part for part in parts if part is not None]
    return functools.reduce(add, given)


convolution.tangent(
    lambda t_input, t_weight, t_bias, input, weight, stride, padding, dilation, groups: _convolved_tangent(
        lambda one, two: convolution(one, two, None, stride, padding, dilation, groups),
        t_input,
        t_weight,
        t_bias,
        input,
        weight,
    )
)
convolution_transpose.tangent(
    lambda t_input, t_weight, t_bias, input, weight, stride, padding, dilation, groups, size: _convolved_tangent(
        lambda one, two: convolution_transpose(one, two, None, stride, padding, dilation, groups, size),
        t_input,
        t_weight,
        t_bias,
        input,
        weight,
    )
)
convolution_weight.grad(
    input=lambda g, grad, input_meta, stride, padding, dilation, groups: convolution_transpose(
        conj(grad), g, None, stride, padding, dilation, groups, input_meta.shape[2:]
    ),
    grad=lambda g, input, stride, padding, dilation, groups: convolution(
        conj(input), g, None, stride, padding, dilation, groups
    ),
).tangent("multilinear")

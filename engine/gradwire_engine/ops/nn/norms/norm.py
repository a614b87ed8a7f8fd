"""Normalization: batch_norm, layer_norm, group_norm, rms_norm.

The statistics depend on the input, so the gradient has three terms (`_centred`). At first order the formula runs on
arrays, with the statistics that forward saved. With create_graph the same formula runs on Tensors. It recomputes the
statistics with graph nodes, so derivatives of any order are correct. Half types are computed in float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array, module_of
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import gathering
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import add, cast
from gradwire_engine.ops.base.blocked import BLOCK
from gradwire_engine.ops.base.loops import ON_GPU, Loops, are_plain, each, find, fits, run, with_loop
from gradwire_engine.ops.base.precision import is_half
from gradwire_engine.ops.elementwise.unary import rsqrt
from gradwire_engine.ops.linalg.matrix import fold
from gradwire_engine.ops.nn.convolution.primitives import channel_sum, spread_channels
from gradwire_engine.ops.nn.losses.loss import constant
from gradwire_engine.ops.nn.norms.on_gpu import batch_norm as batch_norm_on_gpu
from gradwire_engine.ops.nn.norms.on_gpu import batch_norm_input as batch_norm_input_on_gpu
from gradwire_engine.ops.nn.norms.on_gpu import batch_norm_weight as batch_norm_weight_on_gpu
from gradwire_engine.ops.nn.norms.on_gpu import layer_norm_weight as layer_norm_weight_on_gpu
from gradwire_engine.ops.nn.softmax import dot_along, sum_along
from gradwire_engine.ops.reduce.reduce import mean
from gradwire_engine.ops.reduce.reduce import sum as total
from gradwire_engine.ops.shape.shape import clone, select

Ints = tuple[int, ...]
_BLOCK = 1 << 16  # elements of a block of rows, which stays in the cache
_PART, _MOST_PARTS = 64, 32  # rows of a part whose sums a loop computes, at least; parts


def _wide(array: Any) -> Any:
    """Convert a half array to float32."""
    return array.astype(dtypes.float32) if array is not None and is_half(array.dtype) else array


def _wide_tensor(value: Any) -> Any:
    return cast(value, dtypes.float32) if is_half(value.dtype) else value


def _centred(slope: Any, normal: Any, scale: Any, average: Callable[[Any], Any]) -> Any:
    """Gradient of f(normal) by x, for normal = (x - mean(x)) * scale. slope: f's gradient by `normal`."""
    return (slope - average(slope) - normal * average(slope * normal)) * scale


def _recorded_statistics(input: Any, average: Callable[[Any], Any], eps: float) -> tuple[Any, Any]:
    """The normalized input and its scale, recomputed with graph nodes."""
    centred = input - average(input)
    scale = rsqrt(average(centred * centred) + eps)
    return centred * scale, scale


# Over the batch: statistics per channel.


_SHORTEST = 16  # elements of a channel of an image, so that a loop over these is quick


class _ChannelLoops:
    """Loops over the channels of all images, each a row. Sums of rows are added over the images in double precision."""

    def __init__(self, loops: Loops, input: Array) -> None:
        self.loops, self.dtype = loops, input.dtype
        self.images, self.channels = input.shape[:2]
        self.length = input.size // (self.images * self.channels)

    def run(self, name: str, *operands: Array) -> bool:
        """Run a loop on arrays of the input's shape, of a value per row, or per channel; whether there is one."""
        loop = self.loops.find(f"batch_norm_{name}", self.dtype.char)
        if loop is None:
            return False
        repeats = {place: self.channels for place, each in enumerate(operands) if each.ndim == 1}
        run(loop, self.images * self.channels, self.length, *operands, repeats=repeats)
        return True

    def sums(self, name: str, count: int, *operands: Array) -> list[Array] | None:
        """So many sums per channel, in double precision."""
        made = [np.empty((self.images, self.channels), self.dtype) for _ in range(count)]
        return [each.sum(0, dtype=np.float64) for each in made] if self.run(name, *operands, *made) else None


def _channel_loops(loops: Loops, input: Any, *others: Any) -> _ChannelLoops | None:
    """The loops for a batch of images, and arrays of its shape or of a value per channel; None if they do not fit."""
    if not fits(input) or input.ndim < 3 or input.size < _SHORTEST * input.shape[0] * input.shape[1]:
        return None
    if not _are_plain(input, *others) or any(each.ndim != 1 and each.shape != input.shape for each in others):
        return None
    return _ChannelLoops(loops, input)


def _batch_loop(loops: Loops, xp: Any, input: Any, weight: Any, bias: Any, eps: float) -> Any:
    if type(input) is not np.ndarray:
        return batch_norm_on_gpu(loops, input, weight, bias, eps)
    per_channel = [each for each in (weight, bias) if each is not None]
    by = _channel_loops(loops, input, *per_channel)
    if by is None:
        return None
    dtype, count = input.dtype, input.size // input.shape[1]
    totals = by.sums("total", 1, input)
    if totals is None:
        return None
    centre = (totals[0] / count).astype(dtype)
    squares = by.sums("squares", 1, input, centre)
    if squares is None:
        return None
    variance = (squares[0] / count).astype(dtype)
    scale = 1 / np.sqrt(variance + dtype.type(eps))
    factor = scale if weight is None else scale * weight
    output = np.empty_like(input)
    added = [] if bias is None else [bias]
    done = by.run("apply" if bias is None else "apply_bias", input, centre, factor, *added, output)
    return (output, centre, scale, variance) if done else None


@op(
    name="_batch_norm",
    node="NativeBatchNormBackward0",
    outputs=("output", "mean", "scale", "variance"),
    differentiable_outputs=(0,),
    cost=gathering(8),
)
@with_loop(_batch_loop)
def _batch_norm(xp: Any, input: Array, weight: Array | None, bias: Array | None, eps: float) -> Any:
    """The output; per channel the mean, 1 / sqrt(variance + eps) and the variance of the batch."""
    values = _wide(input)
    count = values.size // values.shape[1]
    centre = channel_sum(values) / count
    centred = values - spread_channels(centre, values.ndim)
    variance = channel_sum(centred * centred) / count
    scale = 1 / xp.sqrt(variance + values.dtype.type(eps))
    factor = scale if weight is None else scale * _wide(weight)
    centred *= spread_channels(factor, values.ndim)
    if bias is not None:
        centred += spread_channels(_wide(bias), values.ndim)
    return centred.astype(input.dtype, copy=False), centre, scale, variance


def _batch_input_loop(loops: Loops, g: Any, input: Any, weight: Any, out1: Any, out2: Any, eps: float) -> Any:
    if type(g) is not np.ndarray:
        return batch_norm_input_on_gpu(loops, g, input, weight, out1, out2)
    by = _channel_loops(loops, input, g, *(each for each in (weight, out1, out2) if each is not None))
    sums = None if by is None else by.sums("dots", 2, input, out1, g)
    if by is None or sums is None:
        return None
    dtype, count = input.dtype, input.size // input.shape[1]
    bent = (sums[1] * (out2 * out2 / -count)).astype(dtype)
    made = np.empty_like(input)
    factor = out2 if weight is None else out2 * weight
    return made if by.run("slope", input, out1, bent, g, (sums[0] / count).astype(dtype), factor, made) else None


@with_loop(_batch_input_loop, 0)
def _batch_input(g: Any, input: Any, weight: Any, out1: Any, out2: Any, eps: float) -> Any:
    ndim = g.ndim
    count = math.prod(input.shape) // input.shape[1]
    if type(g) is Tensor:
        input, g = _wide_tensor(input), _wide_tensor(g)
        normal, scale = _recorded_statistics(input, lambda value: _channel_mean(value, count), eps)
        slope = g if weight is None else g * spread_channels(weight, ndim)
        return _centred(slope, normal, scale, lambda value: _channel_mean(value, count))
    g = _wide(g)
    result = _wide(input) - spread_channels(out1, ndim)
    by = spread_channels(_channel_dots(g, result) * (out2 * out2 / -count), ndim)
    added = spread_channels(channel_sum(g) / count, ndim)
    factor = spread_channels(out2 if weight is None else out2 * _wide(weight), ndim)
    for part, slope in zip(_image_blocks(result), _image_blocks(g), strict=True):
        part *= by
        part += slope
        part -= added
        part *= factor
    return result


def _image_blocks(array: Array) -> list[Array]:
    """Split a batch into views whose size fits a block; one view on a GPU."""
    if type(array) is not np.ndarray or array.size <= 2 * BLOCK:
        return [array]
    step = max(1, BLOCK * len(array) // array.size)
    return [array[start : start + step] for start in range(0, len(array), step)]


def _channel_dots(one: Array, other: Array) -> Array:
    """Sum of products over all dimensions except dimension 1."""
    if type(one) is not np.ndarray or one.ndim < 3 or one.dtype != other.dtype:
        return channel_sum(one * other)
    shape = (*one.shape[:2], math.prod(one.shape[2:]))
    return np.vecdot(one.reshape(shape), other.reshape(shape)).sum(0)


def _channel_mean(value: Any, count: int) -> Any:
    return spread_channels(channel_sum(value) / count, value.ndim)


def _batch_weight_loop(loops: Loops, g: Any, input: Any, out1: Any, out2: Any, eps: float) -> Any:
    if type(g) is not np.ndarray:
        return batch_norm_weight_on_gpu(loops, g, input, out1, out2)
    by = _channel_loops(loops, input, g, out1, out2)
    sums = None if by is None else by.sums("dots", 2, input, out1, g)
    return None if sums is None else (sums[1] * out2).astype(input.dtype)


@with_loop(_batch_weight_loop, 0)
def _batch_weight(g: Any, input: Any, out1: Any, out2: Any, eps: float) -> Any:
    if type(g) is Tensor:
        count = math.prod(input.shape) // input.shape[1]
        normal, _ = _recorded_statistics(_wide_tensor(input), lambda value: _channel_mean(value, count), eps)
        return channel_sum(_wide_tensor(g) * normal)
    return _channel_dots(_wide(g), _wide(input) - spread_channels(out1, g.ndim)) * out2


_BATCH_LOOPS = ("total", "squares", "apply", "apply_bias", "dots", "slope")
_batch_norm.by_loops(*(f"batch_norm_{name}" for name in _BATCH_LOOPS))
_batch_norm.grad(
    input=_batch_input,
    weight=_batch_weight,
    bias=lambda g: channel_sum(g),
)


def _affine_tangent(normal: Any, t_normal: Any, weight: Any, t_weight: Any, t_bias: Any) -> Any:
    """Tangent of normal() * weight + bias. t_normal: that of the normalized input, None if it has none."""
    parts = [
        t_normal if t_normal is None or weight is None else t_normal * weight,
        None if t_weight is None else normal() * t_weight,
        t_bias,
    ]
    return functools.reduce(add, [part for part in parts if part is not None])


def _spread(value: Any, ndim: int) -> Any:
    return None if value is None else spread_channels(value, ndim)


def _batch_tangent(
    t_input: Any, t_weight: Any, t_bias: Any, input: Any, weight: Any, out1: Any, out2: Any, eps: float
) -> Any:
    ndim, count = input.ndim, math.prod(input.shape) // input.shape[1]
    made = _affine_tangent(
        lambda: _recorded_statistics(_wide_tensor(input), lambda value: _channel_mean(value, count), eps)[0],
        # The normalization's Jacobian is symmetric: its formula, of the tangent.
        None if t_input is None else _batch_input(t_input, input, None, out1, out2, eps),
        *(_spread(value, ndim) for value in (weight, t_weight, t_bias)),
    )
    return made, None, None, None


_batch_norm.tangent(_batch_tangent)


@op(
    name="_batch_norm_eval",
    node="NativeBatchNormBackward0",
    outputs=("output", "mean", "scale"),
    differentiable_outputs=(0,),
    cost=gathering(8),
)
def _batch_norm_eval(
    xp: Any, input: Array, weight: Array | None, bias: Array | None, mean: Array, var: Array, eps: float
) -> Any:
    """The output for given statistics, and copies of them, because running statistics may change before backward."""
    values, ndim = _wide(input), input.ndim
    scale = 1 / xp.sqrt(_wide(var) + var.dtype.type(eps))
    centre = xp.array(_wide(mean))
    result = values - spread_channels(centre, ndim)
    result *= spread_channels(scale if weight is None else scale * _wide(weight), ndim)
    if bias is not None:
        result += spread_channels(_wide(bias), ndim)
    return result.astype(input.dtype, copy=False), centre, scale


_batch_norm_eval.grad(
    input=lambda g, weight, out2: g * spread_channels(out2 if weight is None else out2 * weight, g.ndim),
    weight=lambda g, input, out1, out2: channel_sum(g * (input - spread_channels(out1, g.ndim))) * out2,
    bias=lambda g: channel_sum(g),
)


def _batch_eval_tangent(t_input: Any, t_weight: Any, t_bias: Any, input: Any, weight: Any, out1: Any, out2: Any) -> Any:
    ndim = input.ndim
    scale = spread_channels(out2, ndim)
    made = _affine_tangent(
        lambda: (input - spread_channels(out1, ndim)) * scale,
        None if t_input is None else t_input * scale,
        *(_spread(value, ndim) for value in (weight, t_weight, t_bias)),
    )
    return made, None, None


_batch_norm_eval.tangent(_batch_eval_tangent)


def _check_batch(input: Any, training: bool, eps: float, **parameters: Any) -> None:
    if training and input.ndim > 1:
        count = math.prod(input.shape) // max(1, input.shape[1])
        if count == 1:
            raise EngineError(
                Reason.ARGUMENT_VALUE,
                f"Expected more than 1 value per channel when training, got input size torch.Size({list(input.shape)})",
            )
    if eps < 0 or (training and not eps):
        needed = "positive during training" if training else "non-negative"
        raise EngineError(Reason.ARGUMENT_VALUE, f"batch_norm eps must be {needed}, but got {eps}")
    if training and (parameters["running_mean"] is None) is not (parameters["running_var"] is None):
        raise EngineError(
            Reason.ARGUMENT_VALUE, "running_mean and running_var must either both be None or neither be None"
        )
    channels = input.shape[1] if input.ndim > 1 else 0
    for name, value in parameters.items():
        if value is None:
            if name.startswith("running") and not training:
                raise EngineError(Reason.RUNTIME, f"{name} must be defined in evaluation mode")
            continue
        if value.size != channels:
            raise EngineError(Reason.RUNTIME, f"{name} should contain {channels} elements not {value.size}")
        if value.dtype != input.dtype and not (is_half(input.dtype) and value.dtype == dtypes.float32):
            raise EngineError(
                Reason.DTYPE, f"mixed dtype (CPU): expect parameter to have scalar type of {dtypes.TITLES[input.dtype]}"
            )


@composite(updates={"running_mean": "training", "running_var": "training"})
def batch_norm(
    input: Array,
    running_mean: Array | None,
    running_var: Array | None,
    weight: Array | None = None,
    bias: Array | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Normalize each channel to mean 0 and variance 1, then scale and shift (torch.nn.functional.batch_norm).

    input: (n, c, ...); the others: (c,). training: use the batch's statistics and update the running ones in place;
    else use the running statistics. Raises EngineError: ARGUMENT_VALUE, RUNTIME, DTYPE.
    """
    _check_batch(input, training, eps, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    constant("native_batch_norm", running_mean=running_mean, running_var=running_var)
    if not input.size:
        scaled = clone(input) if weight is None else clone(input) * select(weight, 0, 0)
        return scaled if bias is None else scaled + select(bias, 0, 0)
    if not training:
        return _batch_norm_eval(input, weight, bias, running_mean, running_var, eps)[0]
    output, centre, _, variance = _batch_norm(input, weight, bias, eps)
    count = math.prod(input.shape) // input.shape[1]
    _mix(running_mean, centre, momentum)
    _mix(running_var, variance, momentum, count / (count - 1))
    return output


batch_norm.unsupported("bic", "batch_norm", of=("input",))


def _running_loop(loops: Loops, xp: Any, input: Any, fresh: Any, momentum: float, factor: float) -> Any:
    return each(loops, "running", input, fresh, numbers=(1 - momentum, momentum * factor))


@op(name="_running", in_place=True, cost=gathering(4))
@with_loop(_running_loop, least=ON_GPU)
def _running(xp: Any, input: Array, fresh: Array, momentum: float, factor: float) -> Array:
    """A running statistic, updated by the batch's."""
    mixed = (1 - momentum) * _wide(input) + (momentum * factor) * fresh
    return mixed.astype(input.dtype, copy=False)


def _mix(running: Any, fresh: Any, momentum: float, factor: float = 1.0) -> None:
    """running = (1 - momentum) * running + momentum * factor * fresh, in place, without a gradient."""
    if running is not None:
        _running.in_place((running, fresh, momentum, factor))


# Over the last dimensions, or groups of channels: statistics per row.


def _normalized_rows(xp: Any, rows: Array, eps: float) -> tuple[Array, Array, Array]:
    """Normalize the rows of a matrix to mean 0 and variance 1; also return their means and scales, both (rows, 1)."""
    count = rows.dtype.type(rows.shape[1] or 1)
    centre = sum_along(xp, rows, 1) / count
    normal = rows - centre
    scale = 1 / xp.sqrt(dot_along(xp, normal, normal, 1) / count + rows.dtype.type(eps))
    normal *= scale
    return normal, centre, scale


def _rows_gradient(slope: Array, rows: Array, centre: Array, scale: Array) -> Array:
    """Gradient of a row normalization. slope: the gradient of the normalized rows.

    It is `_centred`, with all terms that are constant along a row computed once: (rows * by + slope - rest) * scale.
    """
    xp, count = module_of(rows), rows.dtype.type(rows.shape[1] or 1)
    added = sum_along(xp, slope, 1) / count
    by = (added * centre - dot_along(xp, slope, rows, 1) / count) * (scale * scale)
    made = rows * by
    made += slope
    made -= by * centre + added
    made *= scale
    return made


def _normalize_rows(value: Any, eps: float) -> Any:
    """Normalize the rows of a matrix, with graph nodes."""
    count = value.shape[1]
    return _recorded_statistics(_wide_tensor(value), lambda part: total(part, 1, True) / count, eps)


def _recorded_rows_gradient(g: Any, input: Any, shape: Ints, eps: float) -> Any:
    """Gradient of a normalization of rows of `shape`, with graph nodes. g: the gradient of the normalized rows."""
    normal, scale = _normalize_rows(fold(input, shape), eps)
    slope = fold(_wide_tensor(g), shape)
    return fold(_centred(slope, normal, scale, lambda part: total(part, 1, True) / shape[1]), input.shape)


def _by_rows(g: Any, input: Any, shape: Ints, eps: float) -> Any:
    """`_recorded_rows_gradient` for Tensors and arrays; the statistics are recomputed."""
    if type(g) is Tensor:
        return _recorded_rows_gradient(g, input, shape, eps)
    rows = _wide(input).reshape(shape)
    _, centre, scale = _normalized_rows(module_of(rows), rows, eps)
    return _rows_gradient(_wide(g).reshape(shape), rows, centre, scale).reshape(input.shape)


def _normal(input: Any, shape: Ints, eps: float) -> Any:
    """The input, normalized again by rows of `shape`; a factor of the weight's gradient."""
    if type(input) is Tensor:
        return fold(_normalize_rows(fold(input, shape), eps)[0], input.shape)
    rows = _wide(input).reshape(shape)
    return _normalized_rows(module_of(rows), rows, eps)[0].reshape(input.shape)


def _split(shape: Ints, last: int) -> Ints:
    """Number and length of the rows if the last dimensions are normalized together."""
    return math.prod(shape[: len(shape) - last]), math.prod(shape[len(shape) - last :])


def _affine(xp: Any, normal: Array, weight: Array | None, bias: Array | None, dtype: Any) -> Array:
    if weight is not None:
        normal = xp.multiply(normal, _wide(weight), out=normal)
    if bias is not None:
        normal = xp.add(normal, _wide(bias), out=normal)
    return normal.astype(dtype, copy=False)


def _layer_loop(
    loops: Loops, xp: Any, input: Array, weight: Array | None, bias: Array | None, last: int, eps: float
) -> Any:
    """The results by one loop over the rows, of row-major float arrays."""
    rows, length = _split(input.shape, last)
    given = [each for each in (weight, bias) if each is not None]
    if not input.size or not _are_plain(input, *given):
        return None
    name = f"layer_norm{'' if weight is None else '_weight'}{'' if bias is None else '_bias'}"
    loop = find(loops, name, input.dtype.char, length)
    if loop is None:
        return None
    input = module_of(input).ascontiguousarray(input)
    output = np.empty_like(input)
    centre, scale = (np.empty_like(input, shape=(rows, 1)) for _ in range(2))
    limit = np.asarray(eps, input.dtype)
    run(loop, rows, length, input, *given, np.asarray(float(length)), limit, output, centre, scale)
    return output, centre, scale


def _are_plain(input: Any, *others: Any) -> bool:
    """Whether these are arrays of one module and float dtype, the others row-major."""
    return input.dtype.char in "fd" and (
        not others or (are_plain(*others) and others[0].dtype == input.dtype and type(others[0]) is type(input))
    )


@op(
    name="_layer_norm",
    node="NativeLayerNormBackward0",
    outputs=("output", "mean", "scale"),
    differentiable_outputs=(0,),
    cost=gathering(8),
)
@with_loop(_layer_loop)
def _layer_norm(xp: Any, input: Array, weight: Array | None, bias: Array | None, last: int, eps: float) -> Any:
    """The output; per row the mean and 1 / sqrt(variance + eps), both (rows, 1)."""
    rows = _wide(xp.ascontiguousarray(input)).reshape(_split(input.shape, last))
    normal, centre, scale = _normalized_rows(xp, rows, eps)
    return _affine(xp, normal.reshape(input.shape), weight, bias, input.dtype), centre, scale


def _layer_input_loop(
    loops: Loops, g: Any, input: Any, weight: Any, out1: Any, out2: Any, last: int, eps: float
) -> Any:
    xp = module_of(g)
    g, input = xp.ascontiguousarray(g), xp.ascontiguousarray(input)
    given = [] if weight is None else [weight]
    if not fits(g, input) or not _are_plain(g, out1, out2, *given):
        return None
    rows, length = _split(input.shape, last)
    name = "layer_norm_backward" if weight is None else "layer_norm_backward_weight"
    loop = find(loops, name, g.dtype.char, length)
    if loop is None:
        return None
    made = np.empty_like(input)
    run(loop, rows, length, g, input, *given, out1, out2, np.asarray(float(length)), made)
    return made


@with_loop(_layer_input_loop, 0)
def _layer_input(g: Any, input: Any, weight: Any, out1: Any, out2: Any, last: int, eps: float) -> Any:
    shape = _split(input.shape, last)
    if type(g) is Tensor:
        return _recorded_rows_gradient(g if weight is None else g * weight, input, shape, eps)
    slope = _wide(g) if weight is None else _wide(g) * _wide(weight)
    return _rows_gradient(slope.reshape(shape), _wide(input).reshape(shape), out1, out2).reshape(input.shape)


def _layer_weight_loop(
    loops: Loops, g: Any, input: Any, weight_meta: Any, out1: Any, out2: Any, last: int, eps: float
) -> Any:
    rows, length = _split(input.shape, last)
    if type(g) is np.ndarray:
        made = _dots_by_parts(loops, g, input, out1, out2, rows, length)
    else:
        made = layer_norm_weight_on_gpu(loops, g, input, out1, out2, length)
    return None if made is None else made.reshape(weight_meta.shape)


def _dots_by_parts(
    loops: Loops, g: Array, input: Array, centre: Array, scale: Array, rows: int, length: int
) -> Array | None:
    """`_dots` by a loop over parts of the rows, whose sums are added in double precision. None if it does not fit."""
    if not fits(g, input) or not are_plain(g, centre, scale):
        return None
    loop = loops.find("layer_norm_dots", g.dtype.char)
    if loop is None:
        return None
    step = max(_PART, -(-rows // _MOST_PARTS))
    parts = -(-rows // step)
    sums = np.empty((parts, length), g.dtype)
    run(loop, parts, length, np.asarray([rows, step], np.int64), g, input, centre, scale, sums, work=rows * length)
    return sums[0] if parts == 1 else sums.sum(0, dtype=np.float64).astype(g.dtype)


@with_loop(_layer_weight_loop, 0)
def _layer_weight(g: Any, input: Any, weight_meta: Any, out1: Any, out2: Any, last: int, eps: float) -> Any:
    shape = _split(input.shape, last)
    if type(g) is Tensor:
        return g * fold(_normalize_rows(fold(input, shape), eps)[0], input.shape)
    return _dots(_wide(g).reshape(shape), _wide(input).reshape(shape), out1, out2).reshape(weight_meta.shape)


def _dots(slope: Array, rows: Array, centre: Array, scale: Array) -> Array:
    """Sum over the rows of slope * (rows - centre) * scale, without an array of normalized rows.

    In host memory it is computed in blocks of rows, which are read once from memory.
    """
    count, length = slope.shape
    if type(slope) is not np.ndarray or slope.size <= _BLOCK:
        return scale.T @ (slope * (rows - centre))
    step = max(1, _BLOCK // length)
    held, made = np.empty((step, length), slope.dtype), np.zeros((1, length), slope.dtype)
    for first in range(0, count, step):
        part = slice(first, first + step)
        given = np.subtract(rows[part], centre[part], out=held[: len(slope[part])])
        given *= slope[part]
        made += scale[part].T @ given
    return made


_LAYER_LOOPS = ("", "_weight", "_bias", "_weight_bias", "_backward", "_backward_weight", "_dots")
_layer_norm.by_loops(*(f"layer_norm{name}" for name in _LAYER_LOOPS))
_layer_norm.grad(input=_layer_input, weight=_layer_weight, bias=lambda g: g)


def _layer_tangent(
    t_input: Any, t_weight: Any, t_bias: Any, input: Any, weight: Any, out1: Any, out2: Any, last: int, eps: float
) -> Any:
    made = _affine_tangent(
        lambda: _normal(input, _split(input.shape, last), eps),
        None if t_input is None else _layer_input(t_input, input, None, out1, out2, last, eps),
        weight,
        t_weight,
        t_bias,
    )
    return made, None, None


_layer_norm.tangent(_layer_tangent)


@composite
def layer_norm(
    input: Array, normalized_shape: Ints, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> Any:
    """Normalize the last dimensions to mean 0 and variance 1, then scale and shift (torch.nn.functional.layer_norm).

    normalized_shape: sizes of these dimensions. weight, bias: of that shape. Raises EngineError: RUNTIME.
    """
    shape = _checked_shape(input, normalized_shape, weight=weight, bias=bias)
    return _layer_norm(input, weight, bias, len(shape), eps)[0]


layer_norm.unsupported("bic", "LayerNormKernelImpl", of=("input",))


def _checked_shape(input: Any, normalized_shape: Any, **parameters: Any) -> Ints:
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape:
        raise EngineError(
            Reason.RUNTIME,
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
            "normalized_shape = []",
        )
    for name, value in parameters.items():
        if value is not None and value.shape != shape:
            raise EngineError(
                Reason.RUNTIME,
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                f"{list(value.shape)} and normalized_shape = {list(shape)}",
            )
    if tuple(input.shape[max(0, input.ndim - len(shape)) :]) != shape:
        wanted = ", ".join(["*", *map(str, shape)])
        raise EngineError(
            Reason.RUNTIME,
            f"Given normalized_shape={list(shape)}, expected input with shape [{wanted}], but got input of "
            f"size{list(input.shape)}",
        )
    return shape


def _groups(shape: Ints, groups: int) -> Ints:
    return shape[0] * groups, math.prod(shape[1:]) // groups


@op(name="_group_norm", node="NativeGroupNormBackward0", cost=gathering(8))
def _group_norm(xp: Any, input: Array, weight: Array | None, bias: Array | None, groups: int, eps: float) -> Array:
    rows = _wide(xp.ascontiguousarray(input)).reshape(_groups(input.shape, groups))
    normal, _, _ = _normalized_rows(xp, rows, eps)
    weight, bias = (None if value is None else spread_channels(value, input.ndim) for value in (weight, bias))
    return _affine(xp, normal.reshape(input.shape), weight, bias, input.dtype)


_group_norm.works_in(backward=1.5)
_group_norm.grad(
    input=lambda g, input, weight, groups, eps: _by_rows(
        g if weight is None else g * spread_channels(weight, g.ndim), input, _groups(input.shape, groups), eps
    ),
    weight=lambda g, input, groups, eps: channel_sum(g * _normal(input, _groups(input.shape, groups), eps)),
    bias=lambda g: channel_sum(g),
)


def _group_tangent(t_input: Any, t_weight: Any, t_bias: Any, input: Any, weight: Any, groups: int, eps: float) -> Any:
    shape = _groups(input.shape, groups)
    return _affine_tangent(
        lambda: _normal(input, shape, eps),
        None if t_input is None else _by_rows(t_input, input, shape, eps),
        *(_spread(value, input.ndim) for value in (weight, t_weight, t_bias)),
    )


_group_norm.tangent(_group_tangent)


@composite
def group_norm(
    input: Array, num_groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> Any:
    """Normalize groups of channels of each sample to mean 0 and variance 1 (torch.nn.functional.group_norm).

    input: (n, c, ...); weight, bias: (c,). Raises EngineError: RUNTIME, ARGUMENT_VALUE.
    """
    shape = list(input.shape)
    if input.ndim < 2:
        raise EngineError(Reason.RUNTIME, f"Expected at least 2 dimensions for input tensor but received {input.ndim}")
    if num_groups <= 0 or shape[1] % num_groups:
        raise EngineError(
            Reason.RUNTIME,
            "Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{shape} and num_groups={num_groups}",
        )
    if math.prod(shape[1:]) == num_groups and shape[0] == 1:
        raise EngineError(
            Reason.ARGUMENT_VALUE, f"Expected more than 1 value per channel when training, got input size {shape}"
        )
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and value.shape != (shape[1],):
            raise EngineError(
                Reason.RUNTIME,
                f"Expected {name} to be a vector of size equal to the number of channels in input, but got {name} of "
                f"shape {list(value.shape)} and input of shape {shape}",
            )
    return _group_norm(input, weight, bias, num_groups, eps)


group_norm.unsupported("bic", "GroupNormKernelImpl", of=("input",))


@composite
def rms_norm(input: Array, normalized_shape: Ints, weight: Array | None = None, eps: float | None = None) -> Any:
    """Divide the last dimensions by the root of their mean square (torch.nn.functional.rms_norm).

    eps: by default the machine epsilon; float32's for half types. Raises EngineError: RUNTIME.
    """
    shape = _checked_shape(input, normalized_shape, weight=weight)
    wide = _wide_tensor(input)
    limits: Any = ml_dtypes.finfo
    added = float(limits(wide.dtype).eps) if eps is None else eps
    scaled = wide * rsqrt(mean(wide * wide, tuple(range(-len(shape), 0)), True) + added)
    made = scaled if weight is None else scaled * weight
    return made if made.dtype == input.dtype else cast(made, input.dtype)

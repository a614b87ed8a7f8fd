"""max_unpool writes values back at the indices from max_pool; lp_pool is a power mean without the division."""

from __future__ import annotations

import math
from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import Number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import of_shape
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.base.memory_format import keeps_format
from gradwire_engine.ops.elementwise.activation import relu
from gradwire_engine.ops.elementwise.binary import pow
from gradwire_engine.ops.elementwise.unary import abs as absolute
from gradwire_engine.ops.elementwise.unary import sign
from gradwire_engine.ops.index.gather import gather
from gradwire_engine.ops.nn.pooling.pool import avg_pool1d, avg_pool2d, avg_pool3d
from gradwire_engine.ops.nn.pooling.primitives import order_of_images
from gradwire_engine.ops.nn.windows import per_dim
from gradwire_engine.ops.shape.shape import flatten, reshape, squeeze, unsqueeze

Ints = Any  # an int or a sequence of ints


@op(name="_max_unpool_to", node=lambda input, indices, size: f"MaxUnpool{len(size)}DBackward0", cost=of_shape(30, 2))
@keeps_format(lambda input, indices, size: order_of_images(input, size))
def _max_unpool_to(xp: Any, input: Array, indices: Array, size: Ints) -> Array:
    """Write the input into zeros at flat indices of the last dimensions; at a repeated index the last value stays."""
    lead = input.shape[: -len(size)]
    admit((*lead, *size), input.dtype)
    count = math.prod(size)
    wrong = (indices < 0) | (indices >= count)
    if bool(wrong.any()):
        worst = int(indices[wrong][0])
        raise EngineError(
            Reason.RUNTIME,
            f"Found an invalid max index: {worst} (output volumes are of size {'x'.join(map(str, size))})",
        )
    lines = math.prod(lead)
    whole = xp.zeros((lines, count), input.dtype)
    if lines:
        whole[xp.arange(lines)[:, None], indices.reshape(lines, -1)] = input.reshape(lines, -1)
    return whole.reshape(*lead, *size)


def _picked(g: Any, indices: Any, size: Ints) -> Any:
    dims = len(size)
    taken = gather(flatten(g, -dims), g.ndim - dims, flatten(indices, -dims))
    return reshape(taken, indices.shape)


_max_unpool_to.grad(input=_picked).tangent("linear")


def _unpooled_size(name: str, input: Any, dims: int, kernel: Ints, steps: Ints, pads: Ints, wanted: Any) -> Ints:
    usual = tuple(
        (n - 1) * step + k - 2 * pad for n, k, step, pad in zip(input.shape[-dims:], kernel, steps, pads, strict=True)
    )
    if wanted is None:
        return usual
    size = tuple(wanted)[-dims:]
    if len(tuple(wanted)) not in (dims, dims + 2):
        raise EngineError(
            Reason.ARGUMENT_VALUE,
            f"output_size should be a sequence containing {dims} or {dims + 2} elements, but it has a length of "
            f"'{len(tuple(wanted))}'",
        )
    for dim, (given, n, step) in enumerate(zip(size, usual, steps, strict=True)):
        if not n - step < given < n + step:
            raise EngineError(
                Reason.ARGUMENT_VALUE,
                f'invalid output_size "{list(size)}" (dim {dim} must be between {n - step} and {n + step})',
            )
    return size


def _unpool(dims: int, input: Any, indices: Any, kernel_size: Any, stride: Any, padding: Any, wanted: Any) -> Any:
    name = f"max_unpool{dims}d"
    message = f"{name}: expected one int or {dims} of them"
    kernel = per_dim(kernel_size, dims, message)
    steps = kernel if stride is None else per_dim(stride, dims, message)
    size = _unpooled_size(name, input, dims, kernel, steps, per_dim(padding, dims, message), wanted)
    if indices.dtype != dtypes.int64:
        raise EngineError(
            Reason.RUNTIME, f"elements in indices should be type int64 but got: {dtypes.TITLES[indices.dtype]}"
        )
    if input.ndim not in (dims + 1, dims + 2):
        raise EngineError(
            Reason.RUNTIME,
            f"Input to {name} should be a {dims + 1}d or {dims + 2}d Tensor, but got {input.ndim} dimensions",
        )
    if indices.shape != input.shape:
        raise EngineError(
            Reason.RUNTIME,
            f"Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) but got indices "
            f"tensor with shape: {list(indices.shape)}",
        )
    if dims == 1:  # computed in two dimensions, as in PyTorch
        return squeeze(_max_unpool_to(unsqueeze(input, -1), unsqueeze(indices, -1), (*size, 1)), -1)
    return _max_unpool_to(input, indices, size)


@composite
def max_unpool1d(
    input: Array, indices: Array, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    output_size: Ints | None = None,
) -> Any:  # fmt: skip
    """Invert max_pool1d: values at their indices, zeros elsewhere (torch.nn.functional.max_unpool1d).

    input, indices: (n, c, l) or (c, l), from max_pool1d. Raises EngineError: RUNTIME, ARGUMENT_VALUE.
    """
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


max_unpool1d.unsupported("bic", "max_unpool2d", of=("input",))


@composite
def max_unpool2d(
    input: Array, indices: Array, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    output_size: Ints | None = None,
) -> Any:  # fmt: skip
    """Invert max_pool2d: values at their indices, zeros elsewhere (torch.nn.functional.max_unpool2d).

    input, indices: (n, c, h, w) or (c, h, w), from max_pool2d. Raises EngineError: RUNTIME, ARGUMENT_VALUE.
    """
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


max_unpool2d.unsupported("bic", "max_unpool2d", of=("input",))


@composite
def max_unpool3d(
    input: Array, indices: Array, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
    output_size: Ints | None = None,
) -> Any:  # fmt: skip
    """Invert max_pool3d: values at their indices, zeros elsewhere (torch.nn.functional.max_unpool3d).

    input, indices: (n, c, d, h, w) or (c, d, h, w), from max_pool3d. Raises EngineError: RUNTIME, ARGUMENT_VALUE.
    """
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)


max_unpool3d.unsupported("bic", "max_unpool3d", of=("input",))


def _power_pool(pool: Any, dims: int, input: Any, p: Any, kernel_size: Any, stride: Any, ceil_mode: bool) -> Any:
    kernel = per_dim(kernel_size, dims, f"lp_pool{dims}d: kernel_size must be one int or {dims} of them")
    means = pool(pow(input, p), kernel, stride, 0, ceil_mode)
    return pow(sign(means) * relu(absolute(means)) * math.prod(kernel), 1.0 / p)


def _of_whole_power(input: Any, power: Any, *rest: Any) -> bool:
    """Whether the powers to average are integers: an integer input and an integer exponent."""
    return isinstance(power, int)


@composite
def lp_pool1d(
    input: Array, norm_type: Number, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False
) -> Any:
    """p-th root of the sum of p-th powers of each window (torch.nn.functional.lp_pool1d)."""
    return _power_pool(avg_pool1d, 1, input, norm_type, kernel_size, stride, ceil_mode)


lp_pool1d.unsupported("i", "avg_pool2d", except_for=("int64",), when=_of_whole_power)


@composite
def lp_pool2d(
    input: Array, norm_type: Number, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False
) -> Any:
    """p-th root of the sum of p-th powers of each window (torch.nn.functional.lp_pool2d)."""
    return _power_pool(avg_pool2d, 2, input, norm_type, kernel_size, stride, ceil_mode)


lp_pool2d.unsupported("i", "avg_pool2d", except_for=("int64",), when=_of_whole_power)


@composite
def lp_pool3d(
    input: Array, norm_type: Number, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False
) -> Any:
    """p-th root of the sum of p-th powers of each window (torch.nn.functional.lp_pool3d)."""
    return _power_pool(avg_pool3d, 3, input, norm_type, kernel_size, stride, ceil_mode)


lp_pool3d.unsupported("i", "avg_pool3d_out_frame", except_for=("int64",), when=_of_whole_power)

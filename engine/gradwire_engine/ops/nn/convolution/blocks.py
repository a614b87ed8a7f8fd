"""nn.functional.unfold and fold: sliding blocks as columns, and the adjoint."""

from __future__ import annotations

import math
from typing import Any

from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import CALL, counted
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.base.precision import through_float32
from gradwire_engine.ops.nn.windows import Window, count_outputs, padded_size, per_dim
from gradwire_engine.ops.shape.shape import squeeze, unsqueeze

Ints = Any  # an int or a sequence of ints


def _window(size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Window:
    return Window(tuple(size), kernel, stride, padding, dilation)


def _columned_cost(input: Any, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Any:
    outputs = count_outputs(input.shape[2:], kernel, stride, padding, dilation)
    lead = math.prod(input.shape[:2])
    return 4.0 * lead * (outputs * math.prod(kernel) + padded_size(input.shape[2:], kernel, stride, padding, dilation))


def _laid_cost(input: Any, size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Any:
    taps = math.prod(kernel)
    lead = input.shape[0] * input.shape[1] / max(1, taps)
    return 5.0 * input.size + taps * CALL + 4.0 * lead * padded_size(size, kernel, stride, padding, dilation)


@op(name="_im2col", node="Im2ColBackward0", cost=counted(_columned_cost))
def _im2col(xp: Any, input: Array, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Array:
    """Blocks to columns: (n, c, h, w) to (n, c * taps, windows)."""
    window = _window(input.shape[2:], kernel, dilation, padding, stride)
    shape = (input.shape[0], input.shape[1] * window.taps, math.prod(window.output))
    admit(shape, input.dtype)
    return xp.ascontiguousarray(window.columns(xp, window.pad(xp, input))).reshape(shape)


@op(name="_col2im", node="Col2ImBackward0", cost=counted(_laid_cost))
@through_float32
def _col2im(xp: Any, input: Array, size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Array:
    """Columns to blocks, summed where they overlap: (n, c * taps, windows) to (n, c, *size)."""
    window = _window(size, kernel, dilation, padding, stride)
    channels = input.shape[1] // window.taps
    columns = input.reshape(input.shape[0], channels, window.taps, *window.output)
    admit((input.shape[0], channels, *window.padded), input.dtype)
    whole = xp.zeros((input.shape[0], channels, *window.padded), input.dtype)
    for number, (_, index) in enumerate(window.offsets()):
        whole[index] += columns[:, :, number]
    return xp.ascontiguousarray(whole[window.inner])


_im2col.grad(
    input=lambda g, input_meta, kernel, dilation, padding, stride: _col2im(
        g, input_meta.shape[2:], kernel, dilation, padding, stride
    )
).tangent("linear")
_col2im.grad(
    input=lambda g, kernel, dilation, padding, stride: _im2col(g, kernel, dilation, padding, stride),
).tangent("linear")


def _arguments(kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> list[Any]:
    given = {"kernel_size": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
    made = [per_dim(value, 2, f"It is expected {name} equals to 2") for name, value in given.items()]
    for (name, _), values in zip(given.items(), made, strict=True):
        if min(values) < (0 if name == "padding" else 1):
            raise EngineError(
                Reason.RUNTIME,
                f"{name.removesuffix('_size')} should be greater than zero, but got {name}={list(values)}"
                if name != "padding"
                else f"padding should be non-negative, but got {list(values)}",
            )
    return made


@composite(name="nn.functional.unfold")
def unfold_blocks(input: Array, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> Any:
    """Extract sliding blocks of the last two dimensions as columns (torch.nn.functional.unfold).

    input: (n, c, h, w) or (c, h, w); result: (n, c * taps, blocks). Raises EngineError: RUNTIME.
    """
    kernel, dilations, pads, steps = _arguments(kernel_size, dilation, padding, stride)
    if input.ndim not in (3, 4):
        raise EngineError(
            Reason.RUNTIME, f"Expected 3D or 4D (batch mode) tensor for input, but got {list(input.shape)}"
        )
    if 0 in input.shape[-3:]:
        raise EngineError(
            Reason.RUNTIME,
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, "
            f"but got: {list(input.shape)}",
        )
    counts = _window(input.shape[-2:], kernel, dilations, pads, steps).output
    if min(counts) < 1:
        raise EngineError(
            Reason.RUNTIME,
            f"Given input with spatial size {tuple(input.shape[-2:])}, kernel_size={kernel}, dilation={dilations}, "
            f"padding={pads}, calculated shape of the array of sliding blocks as {counts}, but its components must be "
            "at least one.",
        )
    if input.ndim == 3:
        return squeeze(_im2col(unsqueeze(input, 0), kernel, dilations, pads, steps), 0)
    return _im2col(input, kernel, dilations, pads, steps)


unfold_blocks.unsupported("i", "im2col_out_cpu")


@composite(name="fold")
def fold_blocks(
    input: Array,
    output_size: Ints,
    kernel_size: Ints,
    dilation: Ints = 1,
    padding: Ints = 0,
    stride: Ints = 1,
) -> Any:
    """Sum columns into the sliding blocks of an image (torch.nn.functional.fold).

    input: (n, c * taps, blocks) or (c * taps, blocks); result: (n, c, *output_size). Raises EngineError: RUNTIME.
    """
    kernel, dilations, pads, steps = _arguments(kernel_size, dilation, padding, stride)
    size = per_dim(output_size, 2, "It is expected output_size equals to 2")
    if input.ndim not in (2, 3):
        raise EngineError(
            Reason.RUNTIME, f"Expected 2D or 3D (batch mode) tensor for input, but got {list(input.shape)}"
        )
    channels, blocks = input.shape[-2:]
    if channels % math.prod(kernel):
        raise EngineError(
            Reason.RUNTIME,
            f"Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
            f"input.size(1)={channels} and kernel_size={kernel}.",
        )
    counts = _window(size, kernel, dilations, pads, steps).output
    if min(counts) < 1 or math.prod(counts) != blocks:
        raise EngineError(
            Reason.RUNTIME,
            f"Given output_size={size}, kernel_size={kernel}, dilation={dilations}, padding={pads}, stride={steps}, "
            "expected size of input's dimension 2 to match the calculated number of sliding blocks "
            f"{counts[0]} * {counts[1]} = {math.prod(counts)}, but got input.size(2)={blocks}.",
        )
    if input.ndim == 2:
        return squeeze(_col2im(unsqueeze(input, 0), size, kernel, dilations, pads, steps), 0)
    return _col2im(input, size, kernel, dilations, pads, steps)


fold_blocks.unsupported("i", "col2im_out_cpu")

"""Convolutions of float32 and float64 arrays of a GPU by cuDNN (backends/cudnn.py): which ones, and in what memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire_engine.backends.cudnn import Kind, Sizes, library
from gradwire_engine.core import device
from gradwire_engine.core.device import Array
from gradwire_engine.ops.base.checks import admit, ints

Ints = Any  # an int or a sequence of ints


def forward(
    input: Array, weight: Array, bias: Array | None, output: Sequence[int], stride: Ints, padding: Ints,
    dilation: Ints, groups: int,
) -> Array | None:  # fmt: skip
    """The convolution of (n, c, *size) with (o, c / groups, *kernel), of spatial size `output`; None: without cuDNN."""
    shape = input.shape[0], weight.shape[0], *output
    sizes = _sizes(input.shape, weight.shape, shape, stride, padding, dilation, groups)
    made = _convolved("forward", sizes, input, weight, shape)
    if made is not None and bias is not None:
        made += bias.reshape(-1, *[1] * len(output))
    return made


def source_gradient(
    grad: Array, weight: Array, size: Sequence[int], stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array | None:
    """The transpose of `forward`: (n, o, *output) to (n, c, *size); None: without cuDNN."""
    shape = grad.shape[0], groups * weight.shape[1], *size
    sizes = _sizes(shape, weight.shape, grad.shape, stride, padding, dilation, groups)
    return _convolved("source", sizes, weight, grad, shape)


def weight_gradient(
    input: Array, grad: Array, kernel: Sequence[int], stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array | None:
    """Gradient of `forward`'s weight: (o, c / groups, *kernel); None: without cuDNN."""
    shape = grad.shape[1], input.shape[1] // groups, *kernel
    sizes = _sizes(input.shape, shape, grad.shape, stride, padding, dilation, groups)
    return _convolved("weights", sizes, input, grad, shape)


def _sizes(
    input: Sequence[int], weight: Sequence[int], output: Sequence[int], stride: Ints, padding: Ints, dilation: Ints,
    groups: int,
) -> Sizes:  # fmt: skip
    """The sizes as cuDNN takes them: with two spatial dimensions at least."""
    shapes = [tuple(map(int, each)) for each in (input, weight, output)]
    moves = [tuple(map(int, ints(each))) for each in (stride, padding, dilation)]
    if len(shapes[0]) == 3:
        shapes = [(*each[:2], 1, *each[2:]) for each in shapes]
        moves = [(neutral, *each) for neutral, each in zip((1, 0, 1), moves, strict=True)]
    return Sizes(*shapes, *moves, int(groups))


def _convolved(kind: Kind, sizes: Sizes, first: Array, second: Array, shape: Sequence[int]) -> Array | None:
    cudnn = library(device.cupy())
    if cudnn is None or not (first.size and second.size and 0 not in shape) or first.dtype != second.dtype:
        return None
    xp = device.module_of(first)
    admit(tuple(shape), first.dtype)
    made = xp.empty(shape, first.dtype)
    given = [xp.ascontiguousarray(each) for each in (first, second)]
    return made if cudnn.convolve(kind, sizes, *given, made) else None

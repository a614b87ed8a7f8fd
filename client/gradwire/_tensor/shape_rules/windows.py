"""Shape rules of convolutions and pooling: sizes by windows that move over a batch of images."""

from __future__ import annotations

from typing import Any

from gradwire._proxy.handle import Handle
from gradwire._tensor.shape_rules.sizes import Shapes, dense, has_parameters


def convolution(
    op: str,
    input: Any,
    weight: Any = None,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    *args: Any,
    **named: Any,
) -> Shapes:
    """conv1d, conv2d and conv3d of a batch."""
    if args or named or not _are_convolved(op, input, weight):
        return None
    images, kernels = input._spec.shape, weight._spec.shape
    if type(groups) is not int or groups < 1 or kernels[0] % groups or images[1] != kernels[1] * groups:
        return None
    if not has_parameters((bias,), kernels[:1]):
        return None
    steps, pads, gaps = (_per_dimension(each, len(images) - 2) for each in (stride, padding, dilation))
    if not (steps and pads and gaps) or min(steps) < 1 or min(pads) < 0 or min(gaps) < 1:
        return None
    free = [
        size + 2 * pad - gap * (kernel - 1) - 1
        for size, pad, gap, kernel in zip(images[2:], pads, gaps, kernels[2:], strict=True)
    ]
    if min(free) < 0:
        return None
    return dense((images[0], kernels[0], *[room // step + 1 for room, step in zip(free, steps, strict=True)]))


def transposed_convolution(
    op: str,
    input: Any,
    weight: Any = None,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: Any = 1,
    dilation: Any = 1,
    *args: Any,
    **named: Any,
) -> Shapes:
    """conv_transpose1d, conv_transpose2d and conv_transpose3d of a batch, padded by less than a stride."""
    if args or named or not _are_convolved(op, input, weight):
        return None
    images, kernels = input._spec.shape, weight._spec.shape
    if type(groups) is not int or groups < 1 or kernels[0] % groups or images[1] != kernels[0]:
        return None
    channels = kernels[1] * groups
    if not has_parameters((bias,), (channels,)):
        return None
    rank = len(images) - 2
    steps, pads, gaps, extra = (_per_dimension(each, rank) for each in (stride, padding, dilation, output_padding))
    if not (steps and pads and gaps and extra) or min(steps) < 1 or min(*pads, *extra) < 0 or min(gaps) < 1:
        return None
    if any(more >= step for more, step in zip(extra, steps, strict=True)):
        return None
    sizes = [
        (size - 1) * step - 2 * pad + gap * (kernel - 1) + 1 + more
        for size, step, pad, gap, kernel, more in zip(images[2:], steps, pads, gaps, kernels[2:], extra, strict=True)
    ]
    return dense((images[0], channels, *sizes)) if min(sizes) > 0 else None


def pooling(
    op: str,
    input: Any,
    kernel_size: Any = None,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: Any = False,
    last: Any = False,
    *args: Any,
    **named: Any,
) -> Shapes:
    """max_pool2d, max_pool3d, avg_pool2d and avg_pool3d of contiguous batches, without the places of maxima."""
    if not isinstance(input, Handle) or named:
        return None
    if op.startswith("avg"):
        if any(each is not None for each in args) or type(ceil_mode) is not bool or last is not None:
            return None
        dilation, ceil_mode = 1, dilation  # these have no dilation
    elif last is not False or args:
        return None
    shape, rank = tuple(input._spec.shape), int(op[-2])
    if len(shape) != rank + 2 or 0 in shape or input._spec.strides or ceil_mode is not False:
        return None
    kernel = _per_dimension(kernel_size, rank)
    steps = kernel if stride is None else _per_dimension(stride, rank)
    pads, gaps = _per_dimension(padding, rank), _per_dimension(dilation, rank)
    if not (kernel and steps and pads and gaps) or min(*kernel, *steps, *gaps) < 1 or min(pads) < 0:
        return None
    reach = [gap * (size - 1) + 1 for gap, size in zip(gaps, kernel, strict=True)]
    free = [size + 2 * pad - one for size, pad, one in zip(shape[2:], pads, reach, strict=True)]
    if min(free) < 0 or any(pad > size // 2 for pad, size in zip(pads, kernel, strict=True)):
        return None
    if op == "avg_pool3d" and any(size < one for size, one in zip(shape[2:], kernel, strict=True)):
        return None
    return dense((*shape[:2], *[room // step + 1 for room, step in zip(free, steps, strict=True)]))


def adaptive_pooling(op: str, input: Any, output_size: Any = None, *args: Any, **named: Any) -> Shapes:
    """adaptive_avg_pool2d of a contiguous batch to one mean per channel. Others have another node."""
    if not isinstance(input, Handle) or args or named:
        return None
    shape, sizes = tuple(input._spec.shape), _per_dimension(output_size, 2)
    if len(shape) != 4 or 0 in shape or input._spec.strides or sizes != (1, 1):
        return None
    return dense((*shape[:2], *sizes))


def _are_convolved(op: str, input: Any, weight: Any) -> bool:
    """Whether conv2d and its like take a contiguous batch and kernels, of the op's rank and without size 0."""
    if not isinstance(input, Handle) or not isinstance(weight, Handle):
        return False
    images, kernels = input._spec, weight._spec
    if images.strides or kernels.strides or not images.dtype.is_floating_point:
        return False
    return len(images.shape) == len(kernels.shape) == int(op[-2]) + 2 and 0 not in (*images.shape, *kernels.shape)


def _per_dimension(value: Any, count: int) -> tuple[int, ...]:
    """An int, or one for each dimension; empty for another value."""
    if type(value) is int:
        return (value,) * count
    if isinstance(value, (list, tuple)) and len(value) == count and all(type(each) is int for each in value):
        return tuple(value)
    return ()

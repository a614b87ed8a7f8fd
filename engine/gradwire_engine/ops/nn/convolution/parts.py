"""Parts of a convolution that oneDNN computes one by one or in several threads. The shapes alone decide them.

A batch is divided into parts of a few images. Their reordered arrays fit a cache, and all parts use the same reordered
weight. A batch of too few images is divided by channels, if reordering the other operand for each part costs little.
So is the gradient of a large weight, since parts of images would each need memory for all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Shape = tuple[int, ...]
Kind = Literal["forward", "source", "weights"]
# Nanoseconds of a core per multiply-add, and per element for its reorder.
_PRODUCT, _ELEMENT = 0.03, 0.35
# A part takes about so long, and there are at most so many: each part costs about 15 µs. Parts of channels take longer,
# since an operand is reordered for each: for a share of the duration at most.
_PART, _PART_OF_CHANNELS, _MOST_PARTS, _REPEATED = 400_000, 1_500_000, 16, 0.05
# Channels or groups of a part, at least: with fewer, oneDNN computes fewer blocks of eight channels at once.
_CHANNELS, _GROUPS = 32, 8
# Bytes of a weight gradient's parts.
_MOST_PARTIAL = 16 << 20


@dataclass(frozen=True)
class Cut:
    """How a convolution is divided.

    by: what the parts have different ones of. shapes: source, weight and result of each part but the last, which may
    have fewer images. steps: elements from a part's source, weight, result and bias to those of the next part.
    """

    by: Literal["images", "channels"]
    count: int
    shapes: tuple[Shape, Shape, Shape]
    steps: tuple[int, int, int, int]


def cut(kind: Kind, source: Shape, weight: Shape, result: Shape, groups: int) -> Cut:
    """Divide the convolution of these shapes: (n, c, *size), (o, c / groups, *kernel) and (n, o, *output)."""
    products = math.prod(result) * math.prod(weight[1:])
    duration = products * _PRODUCT + (math.prod(source) + math.prod(result)) * _ELEMENT
    most = min(source[0], _MOST_PARTS, round(duration / _PART))
    if kind == "weights":
        most = min(most, _MOST_PARTIAL // (4 * math.prod(weight)))
    by_images = _power_of_two(most)
    by_channels = _parts_of_channels(kind, source, weight, result, groups, duration)
    if by_channels > by_images:
        return _by_channels(kind, source, weight, result, groups, by_channels)
    images = -(-source[0] // by_images)
    shapes = (images, *source[1:]), weight, (images, *result[1:])
    steps = math.prod(shapes[0]), 0, math.prod(shapes[2]), 0
    return Cut("images", -(-source[0] // images), shapes, steps)


def _power_of_two(most: int) -> int:
    """The largest power of two up to a number, at least 1: most numbers of threads share such parts evenly."""
    return 1 << max(1, most).bit_length() - 1


def _parts_of_channels(kind: Kind, source: Shape, weight: Shape, result: Shape, groups: int, duration: float) -> int:
    """The number of parts, each of whole blocks of channels or of groups."""
    count = _power_of_two(min(_MOST_PARTS, round(duration / _PART_OF_CHANNELS)))
    if groups > 1:
        while count > 1 and groups % (count * _GROUPS):
            count //= 2
        return count
    channels, shared = (source[1], result) if kind == "source" else (result[1], source)
    while count > 1 and (
        channels % (count * _CHANNELS) or count * math.prod(shared) * _ELEMENT / 2 > _REPEATED * duration
    ):
        count //= 2
    return count


def _by_channels(kind: Kind, source: Shape, weight: Shape, result: Shape, groups: int, count: int) -> Cut:
    shapes, axes = [source, weight, result], [1, 0, 1]  # the dimension that is divided
    if groups == 1:
        axes = [1, 1, -1] if kind == "source" else [-1, 0, 1]
    parts, steps = [], []
    for shape, axis in zip(shapes, axes, strict=True):
        length = 1 if axis < 0 else shape[axis] // count
        parts.append(shape if axis < 0 else (*shape[:axis], length, *shape[axis + 1 :]))
        steps.append(0 if axis < 0 else length * math.prod(shape[axis + 1 :]))
    bias = 0 if axes[2] < 0 else parts[2][1]
    return Cut("channels", count, (parts[0], parts[1], parts[2]), (steps[0], steps[1], steps[2], bias))

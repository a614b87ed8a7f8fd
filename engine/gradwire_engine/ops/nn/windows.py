"""Sliding windows over any number of spatial dimensions, for convolution and pooling.

A `Window` holds kernel, stride, padding and dilation. `offsets` indexes one kernel position of all windows at once;
`columns` is a strided view of all windows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason

Ints = tuple[int, ...]


def per_dim(value: int | Sequence[int], ndim: int, message: str) -> Ints:
    """Convert an argument, given once or per spatial dimension, to a tuple. Raises EngineError: RUNTIME, `message`."""
    if isinstance(value, int):
        return (value,) * ndim
    given = tuple(value)
    if len(given) == 1:
        return given * ndim
    if len(given) != ndim:
        raise EngineError(Reason.RUNTIME, message)
    return given


@dataclass(frozen=True)
class Window:
    """Windows of size `kernel`, `stride` apart, over sizes `size` with `padding` on both sides."""

    size: Ints
    kernel: Ints
    stride: Ints
    padding: Ints
    dilation: Ints
    ceil_mode: bool = False

    @cached_property
    def output(self) -> Ints:
        """Number of windows along each dimension."""
        return tuple(self._count(axis) for axis in range(len(self.size)))

    def _count(self, axis: int) -> int:
        size, stride, padding = self.size[axis], self.stride[axis], self.padding[axis]
        room = size + 2 * padding - self.dilation[axis] * (self.kernel[axis] - 1) - 1
        if not self.ceil_mode:
            return room // stride + 1
        count = -(-room // stride) + 1
        # The last window must start inside the input or its left padding.
        return count - 1 if (count - 1) * stride >= size + padding else count

    @cached_property
    def padded(self) -> Ints:
        """Sizes with the padding; on the right it extends to the end of the last window."""
        return tuple(
            max(size + 2 * padding, (count - 1) * stride + dilation * (kernel - 1) + 1)
            for size, padding, count, stride, dilation, kernel in zip(
                self.size, self.padding, self.output, self.stride, self.dilation, self.kernel, strict=True
            )
        )

    @cached_property
    def inner(self) -> tuple[Any, ...]:
        """Index of the input within the padded array."""
        return (..., *(slice(pad, pad + size) for pad, size in zip(self.padding, self.size, strict=True)))

    @property
    def overlaps(self) -> bool:
        """Whether an element can lie in several windows."""
        return any(
            k > 1 and s < d * (k - 1) + 1 for k, s, d in zip(self.kernel, self.stride, self.dilation, strict=True)
        )

    def offsets(self) -> Iterator[tuple[Ints, tuple[Any, ...]]]:
        """Each kernel position, with the index of that element of all windows in the padded array."""
        for position in itertools.product(*map(range, self.kernel)):
            yield position, (..., *(self.along(axis, place) for axis, place in enumerate(position)))

    def along(self, axis: int, place: int) -> slice:
        """Slice of a spatial dimension that selects element `place` of all windows."""
        start = place * self.dilation[axis]
        return slice(start, start + self.stride[axis] * (self.output[axis] - 1) + 1, self.stride[axis])

    def pad(self, xp: Any, input: Array, value: float = 0) -> Array:
        """Pad the input with `value`; return the input itself if there is no padding."""
        if self.padded == self.size:
            return input
        padded = xp.full((*input.shape[: -len(self.size)], *self.padded), value, input.dtype)
        padded[self.inner] = input
        return padded

    def columns(self, xp: Any, padded: Array) -> Array:
        """View of the windows, (..., *kernel, *output), of an array (..., *padded)."""
        lead = padded.ndim - len(self.size)
        spatial = padded.strides[lead:]
        shape = (*padded.shape[:lead], *self.kernel, *self.output)
        kernel = (step * dilation for step, dilation in zip(spatial, self.dilation, strict=True))
        output = (step * stride for step, stride in zip(spatial, self.stride, strict=True))
        strides = (*padded.strides[:lead], *kernel, *output)
        return xp.lib.stride_tricks.as_strided(padded, shape, strides)

    @property
    def taps(self) -> int:
        """Number of kernel elements."""
        return math.prod(self.kernel)


def count_outputs(size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, extra: int = 0) -> int:
    """Number of windows, as in `Window.output`; for cost models."""
    made = 1
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        made *= max(0, (n + 2 * p - d * (k - 1) - 1) // max(1, s) + 1 + extra)
    return made


def padded_size(size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> int:
    """Number of elements with the padding; for cost models."""
    return math.prod(
        max(n + 2 * p, d * (k - 1) + 1) for n, k, p, d in zip(size, kernel, padding, dilation, strict=True)
    )

"""Fractional max pooling: windows of one size at random places, so that the sizes shrink by any factor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradwire._base.errors import refuse
from gradwire._functions.create import arange, rand
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor


def fractional_max_pool(
    dims: int,
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Maxima (N, C, *output sizes) of windows, and their flat indices (Graham, 2014).

    input: (N, C, *sizes) or (C, *sizes). samples: (N or more, C, dims) uniform numbers that place the windows; drawn
    without them. Raises ValueError without output sizes and ratio, RuntimeError for a window that does not fit and for
    samples of other sizes.
    """
    name = f"fractional_max_pool{dims}d"
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    single = input.ndim == dims + 1
    if not single and input.ndim != dims + 2:
        raise refuse(f"{name}: Expected {dims + 1}D or {dims + 2}D tensor, but got: {list(input.shape)}")
    empty = next((axis for axis in range(1, input.ndim) if input.shape[axis] == 0), None)
    if empty is not None:
        raise refuse(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but got {list(input.shape)} "
            f"with dimension {empty} being empty."
        )
    given = input.unsqueeze(0) if single else input
    sizes, windows = list(given.shape[2:]), _each(kernel_size, dims, name, "kernel_size")
    if output_size is None:
        output_size = [int(size * ratio) for size, ratio in zip(sizes, _ratios(output_ratio, dims), strict=True)]
    counts = _each(output_size, dims, name, "output_size")
    words = ("time", "height", "width")[-dims:]
    for word, size, window, count in zip(words, sizes, windows, counts, strict=True):
        if count < 0:
            raise refuse(f"{name}: output_size has a negative dimension {count}: {counts}")
        if count + window - 1 > size - (dims == 3):  # PyTorch's limit for three dimensions is lower by one
            raise refuse(f"{name}(): pool {word} {window} too large relative to input {word} {size}")
    if samples is None:
        samples = rand(given.shape[0], given.shape[1], dims, dtype=input.dtype, device=input.device)
    _check_samples(samples, given, dims)
    samples = samples[: given.shape[0]]
    order = range(dims) if dims == 3 else (1, 0)  # PyTorch's first sample of an image places along its width
    starts = [
        _starts(samples[..., at], size, count, window)
        for at, size, count, window in zip(order, sizes, counts, windows, strict=True)
    ]
    values, places = _pooled(given, starts, counts, windows)
    return (values.squeeze(0), places.squeeze(0)) if single else (values, places)


def _check_samples(samples: Tensor, given: Tensor, dims: int) -> None:
    if samples.dtype != given.dtype:
        raise refuse("Expect _random_samples to have the same dtype as input")
    if samples.ndim != 3:
        raise refuse(f"Expect _random_samples to have 3 dimensions, got {samples.ndim}")
    batch, channels, width = samples.shape
    if batch < given.shape[0]:
        raise refuse("Expect _random_samples.size(0) no less then input batch size.")
    if channels != given.shape[1]:
        raise refuse("Expect _random_samples.size(1) equals to input channel size.")
    if width != dims:
        raise refuse(f"Expect _random_samples.size(2) equals to {dims}; got {width}.")


def _each(value: Any, dims: int, function: str, argument: str) -> list[Any]:
    made = _ratios(value, dims)
    if len(made) != dims:
        words = "Ints" if dims == 2 else "three Ints"
        raise refuse(f"{function}: {argument} must either be a single Int or tuple of {words}")
    return made


def _ratios(value: Any, dims: int) -> list[Any]:
    return list(value) if isinstance(value, Sequence) else [value] * dims


def _starts(sample: Tensor, size: int, count: int, window: int) -> Tensor:
    """Where the windows of each channel begin along a dimension: (N, C, count)."""
    last: Tensor = sample.new_full((*sample.shape, 1), size - window).long()
    if count <= 1:
        return last[..., :count]
    step = (size - window) / (count - 1)
    along = arange(count - 1, dtype=sample.dtype, device=sample.device)
    moved = sample.unsqueeze(-1)
    made: Tensor = ops.cat([((along + moved) * step).long() - (moved * step).long(), last], -1)
    return made


def _pooled(
    input: Tensor, starts: Sequence[Tensor], counts: Sequence[int], windows: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """The maxima of the windows, and their places among the elements of a channel."""
    dims, sizes = len(starts), list(input.shape[2:])
    flat = 0
    for at, (begin, window) in enumerate(zip(starts, windows, strict=True)):
        inside = begin.unsqueeze(-1) + arange(window, device=input.device)
        shape = [1] * (2 * dims)
        shape[at], shape[dims + at] = counts[at], window
        flat = flat * sizes[at] + inside.reshape(*begin.shape[:2], *shape)
    index: Any = flat
    batch = input.shape[:2]
    index = index.expand(*batch, *counts, *windows).reshape(*batch, *counts, math.prod(windows))
    found = input.flatten(2).gather(2, index.flatten(2)).reshape(index.shape)
    values, which = found.max(-1)
    return values, index.gather(-1, which.unsqueeze(-1)).squeeze(-1)

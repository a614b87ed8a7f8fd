"""Rearrangement of channels and pixels: pixel_shuffle and its inverse, channel_shuffle."""

from __future__ import annotations

import math
from typing import Any

from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.op import op


def _refuse(message: str) -> None:
    raise EngineError(Reason.RUNTIME, message)


def _check(name: str, factor_name: str, input: Any, factor: int) -> None:
    if input.ndim < 3:
        _refuse(f"{name} expects input to have at least 3 dimensions, but got input with {input.ndim} dimension(s)")
    if factor <= 0:
        _refuse(f"{name} expects a positive {factor_name}, but got {factor}")


@op(cost=4)
def pixel_shuffle(xp: Any, input: Array, upscale_factor: int) -> Array:
    """Rearrange (..., c * r * r, h, w) to (..., c, h * r, w * r) (torch.nn.functional.pixel_shuffle)."""
    _check("pixel_shuffle", "upscale_factor", input, upscale_factor)
    *lead, channels, height, width = input.shape
    r = upscale_factor
    if channels % (r * r):
        _refuse(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
            f"but input.size(-3)={channels} is not divisible by {r * r}"
        )
    parts = input.reshape(math.prod(lead), channels // (r * r), r, r, height, width)
    return parts.transpose(0, 1, 4, 2, 5, 3).copy().reshape(*lead, channels // (r * r), height * r, width * r)


@op(cost=4)
def pixel_unshuffle(xp: Any, input: Array, downscale_factor: int) -> Array:
    """Rearrange (..., c, h * r, w * r) to (..., c * r * r, h, w) (torch.nn.functional.pixel_unshuffle)."""
    _check("pixel_unshuffle", "downscale_factor", input, downscale_factor)
    *lead, channels, height, width = input.shape
    r = downscale_factor
    for word, place, size in (("height", -2, height), ("width", -1, width)):
        if size % r:
            _refuse(
                f"pixel_unshuffle expects {word} to be divisible by downscale_factor, but input.size({place})={size} "
                f"is not divisible by {r}"
            )
    parts = input.reshape(math.prod(lead), channels, height // r, r, width // r, r)
    return parts.transpose(0, 1, 3, 5, 2, 4).copy().reshape(*lead, channels * r * r, height // r, width // r)


pixel_shuffle.grad(input=lambda g, upscale_factor: pixel_unshuffle(g, upscale_factor)).tangent("linear")
pixel_unshuffle.grad(input=lambda g, downscale_factor: pixel_shuffle(g, downscale_factor)).tangent("linear")


@op(cost=4)
def channel_shuffle(xp: Any, input: Array, groups: int) -> Array:
    """Interleave the channels of the groups (torch.nn.functional.channel_shuffle). input: (n, c, ...)."""
    if input.ndim < 3:
        _refuse(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}")
    if groups <= 0:
        _refuse(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    batch, channels, *rest = input.shape
    if channels % groups:
        _refuse(f"Number of channels must be divisible by groups. Got {channels} channels and {groups} groups.")
    parts = input.reshape(batch, groups, channels // groups, *rest)
    return xp.array(parts.swapaxes(1, 2), order="C").reshape(input.shape)


channel_shuffle.grad(input=lambda g, groups: channel_shuffle(g, max(g.shape[1] // groups, 1))).tangent("linear")

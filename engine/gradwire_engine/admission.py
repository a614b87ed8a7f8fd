"""Asking a session's account for an op's bytes before they are allocated."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradwire_engine.context import Account

# Products of sizes up to this are not worth a closer look.
SMALL = 1 << 20


def admit(account: Account, sizes: Callable[..., int], arrays: list[Any]) -> None:
    """Ask for the bytes that an op foretells, if it can; what it cannot read it refuses, in its own words."""
    try:
        size = sizes(*arrays)
    except (IndexError, TypeError, AttributeError, ValueError, ZeroDivisionError):
        return
    account.admit(size)


def admit_broadcast(account: Account, arrays: list[Any], places: tuple[int, ...]) -> None:
    """Ask for the bytes of an elementwise result, where they are worth it."""
    shapes = {arrays[place].shape for place in places if hasattr(arrays[place], "shape")}
    if math.prod(map(math.prod, shapes)) > SMALL:
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError:
            return  # the op refuses it, in its own words
        account.admit(math.prod(shape) * max(getattr(arrays[place], "itemsize", 1) for place in places))

"""Whose array a gradient is: a leaf takes over one that nobody else holds, by its references, and copies any other."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from gradwire_engine.core.device import module_of
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.ops.base.checks import admit


def _references(gradient: Any) -> int:
    return sys.getrefcount(gradient)


def own(gradient: Any) -> Tensor:
    """A tensor of this very array if nobody else holds it, else of a copy."""
    flags = gradient.flags
    if gradient.ndim > 0 and flags.c_contiguous and flags.writeable and _references(gradient) <= _SOLE_REFERENCES:
        base = getattr(gradient, "base", gradient)
        if base is None or _is_reshaped(gradient, base):
            return Tensor(gradient)
    admit(gradient.shape, gradient.dtype, _behind(gradient))
    return Tensor(module_of(gradient).array(gradient, order="C"))


def _behind(gradient: Any) -> int:
    """Bytes for each element of the gradient that is copied, which nobody counts: none of one shown many times."""
    return 0 if 0 in gradient.strides else int(gradient.itemsize)


def _is_reshaped(gradient: Any, base: Any) -> bool:
    """Whether it is another shape of a whole array that nothing else looks at."""
    return type(base) is np.ndarray and base.nbytes == gradient.nbytes and sys.getrefcount(base) <= _SOLE_BASE


def _count_base_references() -> int:
    """How many references `_is_reshaped` sees to the array that one view was made of."""
    counts: list[int] = []
    view = np.zeros(2).reshape(1, 2)

    def is_reshaped(gradient: Any, base: Any) -> None:
        counts.append(sys.getrefcount(base))

    def owned(gradient: Any) -> None:
        base = getattr(gradient, "base", gradient)
        is_reshaped(gradient, base)

    owned(view)
    return counts[0]


def _count_sole_references() -> int:
    """How many references `own` sees to an array popped from the list that held it: this differs between Pythons."""
    counts: list[int] = []
    pending = [(None, np.zeros(1))]

    def owned(gradient: Any) -> None:
        counts.append(_references(gradient))

    while pending:
        _, gradient = pending.pop()
        owned(gradient)
    return counts[0]


_SOLE_BASE = _count_base_references()
_SOLE_REFERENCES = _count_sole_references()

"""Looking: how what is made of ops comes at the arrays of what it is given, Tensors or arrays.

A tracer (tracing.py) is told where values are looked at: what is decided by them may be another thing in the next run.
Module and layout are the same each time.
"""

from __future__ import annotations

from typing import Any

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.device import module_of
from gradwire_engine.graph.tensor import Tensor


def look(value: Any) -> Any:
    """The array, for its values."""
    if type(value) is not Tensor:
        return value
    tracer = CURRENT.get().tracer
    if tracer is not None:
        tracer.fail("values are looked at")
    return value.array


def module_behind(value: Any) -> Any:
    """The array module that it is computed with."""
    return module_of(value.array if type(value) is Tensor else value)


def is_row_major(value: Any) -> bool:
    """Whether its elements lie in row order without gaps."""
    return bool((value.array if type(value) is Tensor else value).flags.c_contiguous)


def written(value: Any) -> None:
    """Note that what `look` answered was changed in place."""
    if type(value) is Tensor:
        value.storage.changed()

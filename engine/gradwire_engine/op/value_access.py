"""Value access: how composites read the arrays of their arguments, Tensors or arrays.

Reading values ends a trace (tracing.py), because a decision by values may differ in the next run. Array module and
layout are the same in each run.
"""

from __future__ import annotations

from typing import Any

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.device import module_of
from gradwire_engine.graph.tensor import Tensor


def read_array(value: Any) -> Any:
    """The array, to read its values; ends a trace."""
    if type(value) is not Tensor:
        return value
    tracer = CURRENT.get().tracer
    if tracer is not None:
        tracer.fail("values are read")
    return value.array


def module_behind(value: Any) -> Any:
    """The array module of a Tensor or array."""
    return module_of(value.array if type(value) is Tensor else value)


def is_row_major(value: Any) -> bool:
    """Whether a Tensor or array is row-major without gaps."""
    return bool((value.array if type(value) is Tensor else value).flags.c_contiguous)


def lies_in(value: Any, order: tuple[int, ...]) -> bool:
    """Whether a Tensor or array has its dimensions in this order in memory, without gaps."""
    return bool((value.array if type(value) is Tensor else value).transpose(order).flags.c_contiguous)


def mark_changed(value: Any) -> None:
    """Record an in-place change of the array that `read_array` returned."""
    if type(value) is Tensor:
        value.storage.changed()

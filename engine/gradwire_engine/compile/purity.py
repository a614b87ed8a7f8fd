"""Purity: whether a composite or formula may read arrays directly, and so decide by their values.

A trace of such a function is not valid for the next run. The names in its code tell whether it reads arrays.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from functools import cache
from typing import Any

from gradwire_engine.op.composite import Composite
from gradwire_engine.op.op import Op

# Names with which a function reads arrays, or draws random numbers outside of an op.
_REVEALING = frozenset(("array", "storage", "host", "generator_for", "uniform_array", "normal_array"))


def peeks(op: Any) -> bool:
    """Whether a composite, or a function that it calls, may read arrays directly. False for an Op."""
    return type(op) is not Op and (not isinstance(op, Composite) or peeks_function(op.function))


@cache
def peeks_function(function: Any) -> bool:
    """Whether a function, or a function of gradwire_engine.ops that it calls, may read arrays directly."""
    seen: set[Any] = set()
    waiting = [function]
    while waiting:
        one = waiting.pop()
        code = getattr(one, "__code__", None)
        if code is None:
            return True
        if code in seen:
            continue
        seen.add(code)
        names = set(_names(code))
        if names & _REVEALING:
            return True
        for found in (*map(one.__globals__.get, names), *(cell.cell_contents for cell in one.__closure__ or ())):
            called = found.function if isinstance(found, Composite) else found
            if isinstance(called, types.FunctionType) and called.__module__.startswith("gradwire_engine.ops"):
                waiting.append(called)
    return False


def _names(code: types.CodeType) -> Iterable[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)

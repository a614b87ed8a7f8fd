"""What a recording depends on besides its tensors' values: a function's surroundings as a tuple to compare.

Walks what a function closes over and the globals it names: numbers and texts by value; tensors by which one it is and
its description; containers, modules, optimizers and plain objects by what they hold. What cannot be looked into counts
by identity.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from gradwire._handle import Handle
from gradwire._place import INTERNAL

_PLAIN = frozenset((int, float, complex, bool, str, bytes, type(None), type(...)))
_OPAQUE = (types.ModuleType, type, types.BuiltinFunctionType, np.dtype, np.ufunc)
_MOST_DEPTH = 16
# What a module holds that does not change what it computes.
_UNSEEN = frozenset(("_owner",))


class Same:
    """Stands in a tuple for an object that counts by identity, and keeps it alive so that its id is not used again."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class Walk:
    """One look at what there is. `parts` is what to compare, `handles` the tensors found by id.

    `rates` are the optimizers' learning rates, which may vary between calls but not within one.
    """

    __slots__ = ("_depth", "_seen", "handles", "parts", "rates")

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.handles: dict[int, Handle] = {}
        self.rates: list[Any] = []
        self._seen: dict[int, int] = {}
        self._depth = 0

    def add(self, value: Any) -> None:
        """Look at one value."""
        kind = type(value)
        if kind in _PLAIN:
            self.parts.append(kind)
            self.parts.append(value)
        elif isinstance(value, Handle):
            value._fresh()  # type: ignore[attr-defined]
            self.parts.append(value._id)
            self.parts.append(value._spec)
            self.handles[value._id] = value
        elif isinstance(value, _OPAQUE):
            self.parts.append(Same(value))
        else:
            self._add_structured(kind, value)

    def _add_structured(self, kind: type[Any], value: Any) -> None:
        known = self._seen.get(id(value))
        if known is not None or self._depth >= _MOST_DEPTH:
            self.parts.append(("again", known))
            return
        self._seen[id(value)] = len(self._seen)
        self._depth += 1
        self.parts.append(kind)
        if isinstance(value, (list, tuple)):
            self.parts.append(len(value))
            for item in value:
                self.add(item)
        elif isinstance(value, dict):
            self._add_dict(value)
        elif isinstance(value, types.FunctionType):
            self._add_function(value)
        elif isinstance(value, types.MethodType):
            self.add(value.__func__)
            self.add(value.__self__)
        elif isinstance(value, functools.partial):
            self.add(value.func)
            self.add(value.args)
            self.add(value.keywords)
        elif isinstance(value, (set, frozenset)):
            self.parts.append(frozenset(Same(item) if isinstance(item, Handle) else item for item in value))
        elif isinstance(value, np.ndarray):
            self.parts.append((value.dtype.str, value.shape, value.tobytes()))
        else:
            self._add_object(value)
        self._depth -= 1

    def _add_dict(self, value: dict[Any, Any]) -> None:
        self.parts.append(len(value))
        for name, item in value.items():
            if name in _UNSEEN:
                continue
            self.add(name)
            self.add(item)

    def _add_function(self, value: types.FunctionType) -> None:
        code = value.__code__
        if INTERNAL[code.co_filename]:
            self.parts.append(Same(value))
            return
        self.parts.append(code)
        if value.__defaults__:
            self.add(value.__defaults__)
        if value.__kwdefaults__:
            self.add(value.__kwdefaults__)
        for cell in value.__closure__ or ():
            try:
                contents = cell.cell_contents
            except ValueError:  # a name that is bound later
                self.parts.append(None)
            else:
                self.add(contents)
        names = value.__globals__
        for name in _names(code):
            if name in names:
                self.parts.append(name)
                self.add(names[name])

    def _add_object(self, value: Any) -> None:
        from gradwire.optim._optimizer import Optimizer

        if isinstance(value, Optimizer):
            self._add_optimizer(value)
        elif hasattr(value, "__guard__"):
            self.add(value.__guard__())
        elif type(value).__module__.partition(".")[0] in ("gradwire", "builtins") and not hasattr(value, "_modules"):
            self.parts.append(Same(value))
        elif hasattr(value, "__dict__"):
            self._add_dict(value.__dict__)
        else:
            self.parts.append(Same(value))

    def _add_optimizer(self, value: Any) -> None:
        """Its options but for the rates, and its state but for what counts steps, of which only differences matter."""
        for group in value.param_groups:
            for name, item in group.items():
                if name == "lr":
                    self.rates.append(item)
                else:
                    self.parts.append(name)
                    self.add(item)
        first: Any = None
        for param, state in value.state.items():
            self.add(param)
            for name, item in state.items():
                self.parts.append(name)
                if name == "step" and isinstance(item, (int, float)):
                    first = item if first is None else first
                    self.parts.append(item - first)
                else:
                    self.add(item)

    def key(self) -> tuple[Any, ...]:
        """What to compare."""
        return tuple(self.parts)


@cache
def _names(code: types.CodeType) -> tuple[str, ...]:
    """The names that a function's code and the functions inside of it look up."""
    return tuple(dict.fromkeys(_all_names(code)))


def _all_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _all_names(constant)

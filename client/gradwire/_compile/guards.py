"""Guards: check that everything a recorded call read is unchanged.

A guard is checked before each replay. It therefore arranges the looks of reach.py for comparing identities in a few
passes in C. An object that was replaced by an equal one fails that check. The guard then walks everything again and
compares by value.
"""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Any

from gradwire._compile import looks as _looks
from gradwire._compile.looks import MISSING, Look, same_items
from gradwire._compile.reach import Reach
from gradwire._compile.watching import Used
from gradwire._proxy.handle import Handle

_get = dict.get
_get_of_class = types.MappingProxyType.get
_spec = attrgetter("_spec")
_family = attrgetter("_family")
_retained = attrgetter("_retained")
_attributes = attrgetter("__dict__")
_bases = attrgetter("__mro__")
_code = attrgetter("__code__")
_function = attrgetter("__code__", "__defaults__", "__kwdefaults__")
_contents = attrgetter("cell_contents")
# Fetches whose items never change.
_CONSTANT = (_looks.of_tuple, _looks.of_method, _looks.of_wrapped, _looks.of_property, _looks.of_text,
             _looks.of_builtin)  # fmt: skip


class Guard:
    """Everything a recorded call depended on, reached from `roots` through the names that it used."""

    def __init__(self, roots: Sequence[Any], used: Used, reach: Reach, captures: Sequence[Handle]) -> None:
        self._used = used
        self._captures = list(captures)
        self._take(roots, reach)

    def _take(self, roots: Sequence[Any], reach: Reach) -> None:
        self._roots = list(roots)
        self._key = reach.key()
        self.handles = dict(reach.handles)
        self._quick = _Quick(reach.looks, [*reach.handles.values(), *self._captures])

    def holds_at_a_glance(self, roots: Sequence[Any]) -> bool:
        """Whether everything is identical to the recorded state. If not, `holds` tells whether it is equal."""
        mine = self._roots
        return [*map(id, mine)] == [*map(id, roots)] and self._quick.same()

    def holds(self, roots: Sequence[Any]) -> bool:
        """Whether everything the call read has the same value; the objects may be different ones."""
        if any(capture._spec is not spec for capture, spec in self._quick.captured(self._captures)):
            return False
        reach = Reach(self._used).walk(roots)
        if reach.opaque is not None or reach.key() != self._key:
            return False
        self._take(roots, reach)
        return True


class _Quick:
    """Looks arranged by kind, for comparison in C."""

    def __init__(self, looks: Sequence[Look], handles: Sequence[Handle]) -> None:
        self._looks = looks  # keeps the objects alive that are compared by id
        self._handles = handles
        self._sequences: list[Any] = []
        self._kinds: list[Any] = []
        self._classes: list[Any] = []
        self._functions: list[Any] = []
        self._codes: list[Any] = []
        self._cells: list[Any] = []
        self._dicts: list[Any] = []
        self._names: list[str] = []
        self._proxies: list[Any] = []
        self._class_names: list[str] = []
        self._ours: list[Any] = []
        self._owners: list[Any] = []
        self._owned: list[str] = []
        self._odd: list[Look] = []
        for look in looks:
            self._add(look)
        self._specs = [*map(_spec, handles)]
        self._seen = self._see()

    def captured(self, captures: Sequence[Handle]) -> list[tuple[Handle, Any]]:
        """Captures with their specs. The captures are the last of the handles."""
        start = len(self._specs) - len(captures)
        return list(zip(captures, self._specs[start:], strict=True))

    def _add(self, look: Look) -> None:
        fetch, value, labels = look.fetch, look.value, look.labels
        if fetch in _CONSTANT or type(value) is frozenset:
            return
        if fetch is _looks.of_names and type(value) is dict:
            self._dicts.extend([value] * len(labels))
            self._names.extend(labels)
        elif fetch is _looks.of_class:
            self._proxies.extend([value.__dict__] * len(labels))
            self._class_names.extend(labels)
        elif fetch is _looks.of_attributes:
            self._owners.extend([value] * len(labels))
            self._owned.extend(labels)
        elif fetch is _looks.of_dict and type(value) in (dict, OrderedDict, defaultdict):
            self._sequences.extend((value, value.values()))
        elif fetch in (_looks.of_list, _looks.of_set) and type(value) in (list, set):
            self._sequences.append(value)
        elif fetch is _looks.of_class_names:
            self._sequences.append(value.__dict__)
        elif fetch is _looks.of_cells:
            free, closed = value.__code__.co_freevars, value.__closure__ or ()
            cells = [cell for name, cell in zip(free, closed, strict=False) if name in labels]
            if any(item is MISSING for item in look.items):
                self._odd.append(look)
            else:
                self._cells.extend(cells)
        elif fetch is _looks.of_tensor and all(item is MISSING for item in look.items[4:]):
            return  # compared as one of the handles
        else:
            simple = _SIMPLE.get(fetch)
            (self._odd if simple is None else getattr(self, simple)).append(look if simple is None else value)

    def _see(self) -> list[Any]:
        """Lengths and ids of everything to compare."""
        handles, sequences = self._handles, self._sequences
        for handle in filter(_family, handles):
            handle._fresh()  # type: ignore[attr-defined]
        return [
            [*map(_spec, handles)],
            [*map(id, map(_retained, handles))],
            [*map(len, map(_attributes, handles))],
            [*map(len, sequences)],
            [*map(id, chain.from_iterable(sequences))],
            [*map(id, map(_get, self._dicts, self._names, repeat(MISSING)))],
            [*map(id, map(_get_of_class, self._proxies, self._class_names, repeat(MISSING)))],
            [*map(id, map(getattr, self._owners, self._owned, repeat(MISSING)))],
            [*map(id, map(_contents, self._cells))],
            [*map(type, self._kinds)],
            [*map(id, map(_bases, self._classes))],
            [*map(id, chain.from_iterable(map(_function, self._functions)))],
            [*map(id, map(_code, self._codes))],
        ]

    def same(self) -> bool:
        """Whether everything is identical."""
        try:
            if self._see() != self._seen:
                return False
        except (RuntimeError, ValueError):  # changed by another thread, or an unbound cell
            return False
        return not any(not same_items(look.fetch(look.value, look.labels), look.items) for look in self._odd)


_SIMPLE: dict[Callable[..., Any], str] = {
    _looks.of_kind: "_kinds",
    _looks.of_bases: "_classes",
    _looks.of_function: "_functions",
    _looks.of_code: "_codes",
}

"""Guards: check that everything a recorded call read is unchanged.

A guard is checked before each replay. So it arranges the snapshots of `ReachableState` for a comparison of identities
in a few passes in C. An object that was replaced by an equal one fails that check. The guard then walks everything
again and compares by value.
"""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Any

from gradwire._compile import value_snapshots as _snapshots
from gradwire._compile.reachable_state import ReachableState
from gradwire._compile.usage_tracker import CallUsage
from gradwire._compile.value_snapshots import MISSING, ValueSnapshot, same_items
from gradwire._proxy.handle import Handle

_get = dict.get
_get_of_class = types.MappingProxyType.get
_spec = attrgetter("_spec")
_storage = attrgetter("_storage")
_retained = attrgetter("_retained")
_attributes = attrgetter("__dict__")
_bases = attrgetter("__mro__")
_code = attrgetter("__code__")
_function = attrgetter("__code__", "__defaults__", "__kwdefaults__")
_contents = attrgetter("cell_contents")
# Fetches whose items never change.
_CONSTANT = (_snapshots.of_tuple, _snapshots.of_method, _snapshots.of_wrapped, _snapshots.of_property,
             _snapshots.of_text, _snapshots.of_builtin)  # fmt: skip


class Guard:
    """Everything a recorded call depended on, reached from `roots` through the names that it used."""

    def __init__(
        self, roots: Sequence[Any], usage: CallUsage, reachable: ReachableState, captures: Sequence[Handle]
    ) -> None:
        self._used = usage
        self._captures = list(captures)
        self._take(roots, reachable)

    def _take(self, roots: Sequence[Any], reachable: ReachableState) -> None:
        self._roots = list(roots)
        self._reachable = reachable  # whose key takes time, and is needed only where an identity has changed
        self.handles = dict(reachable.handles)
        self._quick = _Quick(reachable.snapshots, [*reachable.handles.values(), *self._captures])

    def holds_quickly(self, roots: Sequence[Any]) -> bool:
        """Whether everything is identical to the recorded state. If not, `holds` tells whether it is equal."""
        mine = self._roots
        return [*map(id, mine)] == [*map(id, roots)] and self._quick.same()

    def holds(self, roots: Sequence[Any]) -> bool:
        """Whether everything the call read has the same value; the objects may be different ones."""
        if any(capture._spec is not spec for capture, spec in self._quick.captured(self._captures)):
            return False
        reachable = ReachableState(self._used).walk(roots)
        if reachable.opaque is not None or reachable.key() != self._reachable.key():
            return False
        self._take(roots, reachable)
        return True


class _Quick:
    """Snapshots arranged by kind, for comparison in C."""

    def __init__(self, snapshots: Sequence[ValueSnapshot], handles: Sequence[Handle]) -> None:
        self._snapshots = snapshots  # keeps the objects alive that are compared by id
        self._handles = handles
        self._sequences: list[Any] = []
        self._kinds: list[Any] = []
        self._classes: list[Any] = []
        self._functions: list[Any] = []
        self._codes: list[Any] = []
        self._cells: list[Any] = []
        self._dicts: list[Any] = []
        self._names: list[str] = []
        self._counted: list[Any] = []
        self._proxies: list[Any] = []
        self._class_names: list[str] = []
        self._ours: list[Any] = []
        self._owners: list[Any] = []
        self._owned: list[str] = []
        self._odd: list[ValueSnapshot] = []
        for snapshot in snapshots:
            self._add(snapshot)
        self._specs = [*map(_spec, handles)]
        self._seen = self._see()

    def captured(self, captures: Sequence[Handle]) -> list[tuple[Handle, Any]]:
        """Captures with their specs. The captures are the last of the handles."""
        start = len(self._specs) - len(captures)
        return list(zip(captures, self._specs[start:], strict=True))

    def _add(self, snapshot: ValueSnapshot) -> None:
        fetch, value, labels = snapshot.fetch, snapshot.value, snapshot.labels
        if fetch in _CONSTANT or type(value) is frozenset:
            return
        if fetch is _snapshots.of_names and type(value) is dict:
            self._dicts.extend([value] * len(labels))
            self._names.extend(labels)
        elif fetch is _snapshots.of_count:
            self._counted.append(value)
        elif fetch is _snapshots.of_class_count:
            self._counted.append(value.__dict__)
        elif fetch is _snapshots.of_class:
            self._proxies.extend([value.__dict__] * len(labels))
            self._class_names.extend(labels)
        elif fetch is _snapshots.of_attributes:
            self._owners.extend([value] * len(labels))
            self._owned.extend(labels)
        elif fetch is _snapshots.of_dict and type(value) in (dict, OrderedDict, defaultdict):
            self._sequences.extend((value, value.values()))
        elif fetch in (_snapshots.of_list, _snapshots.of_set) and type(value) in (list, set):
            self._sequences.append(value)
        elif fetch is _snapshots.of_class_names:
            self._sequences.append(value.__dict__)
        elif fetch is _snapshots.of_cells:
            free, closed = value.__code__.co_freevars, value.__closure__ or ()
            cells = [cell for name, cell in zip(free, closed, strict=False) if name in labels]
            if any(item is MISSING for item in snapshot.items):
                self._odd.append(snapshot)
            else:
                self._cells.extend(cells)
        elif fetch is _snapshots.of_tensor and all(item is MISSING for item in snapshot.items[4:]):
            return  # compared as one of the handles
        else:
            simple = _SIMPLE.get(fetch)
            (self._odd if simple is None else getattr(self, simple)).append(snapshot if simple is None else value)

    def _see(self) -> list[Any]:
        """Lengths and ids of everything to compare."""
        handles, sequences = self._handles, self._sequences
        for handle in filter(_storage, handles):
            handle._fresh()  # type: ignore[attr-defined]
        return [
            [*map(_spec, handles)],
            [*map(id, map(_retained, handles))],
            [*map(len, map(_attributes, handles))],
            [*map(len, sequences)],
            [*map(len, self._counted)],
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
        return not any(
            not same_items(snapshot.fetch(snapshot.value, snapshot.labels), snapshot.items) for snapshot in self._odd
        )


_SIMPLE: dict[Callable[..., Any], str] = {
    _snapshots.of_kind: "_kinds",
    _snapshots.of_bases: "_classes",
    _snapshots.of_function: "_functions",
    _snapshots.of_code: "_codes",
}

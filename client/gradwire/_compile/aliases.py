"""Aliases: records which tensors of a recorded call share bytes, so the tensors of a replay share them alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gradwire._proxy.handle import Handle, ViewOf
from gradwire._proxy.results import share_storage
from gradwire._proxy.storage_state import StorageState

if TYPE_CHECKING:
    from gradwire._compile.recorder import RecordedProgram


class TensorAliases:
    """Aliasing among a call's tensors.

    Construct it before the call with the outside tensors; call `finish` after the call with the results.
    """

    def __init__(self, outside: Iterable[Handle]) -> None:
        outside = list(outside)
        for handle in outside:
            if handle._spec.dtype.is_complex and handle._storage is None:
                share_storage(handle, handle)  # counts its changes, of which a conjugate made later is to know
        self._before = {handle._id: _count(handle._storage) for handle in outside}
        self._inputs = 0
        #: Inputs that the call changed in place: input index, increase of the storage's version and of its changes.
        self._moved: list[tuple[int, int, int]] = []
        #: Per storage with results in it: index of an input on it or None, a copy of its state, its results.
        self._storages: list[tuple[int | None, StorageState, list[tuple[int, Any]]]] = []
        self._captures: list[Handle] = []

    def finish(self, trace: RecordedProgram, results: Sequence[Handle]) -> TensorAliases:
        """Record the aliasing that replays repeat. `results` are the handles of the trace's results."""
        self._captures, self._inputs = trace.captures, len(trace.feeds)
        inputs = [*trace.feeds, *trace.captures]
        seen: set[int] = set()
        for place, handle in enumerate(inputs):
            storage = handle._storage
            if storage is None or id(storage) in seen:
                continue
            seen.add(id(storage))
            version, changes = self._before.get(handle._id, (storage.version, storage.changes))
            if storage.changes != changes:
                self._moved.append((place, storage.version - version, storage.changes - changes))
        self._group(inputs, results, trace.results)
        return self

    def _group(self, inputs: Sequence[Handle], results: Sequence[Handle], numbers: Sequence[int | Handle]) -> None:
        held: dict[int, tuple[int | None, StorageState, list[tuple[int, Any]]]] = {}
        outputs = {id(handle): number for handle, number in zip(results, numbers, strict=True)}
        places = {id(handle): place for place, handle in reversed(list(enumerate(inputs)))}
        for handle, number in zip(results, numbers, strict=True):
            storage = handle._storage
            if storage is None or not isinstance(number, int):
                continue
            if id(storage) not in held:
                at = next((place for place, each in enumerate(inputs) if each._storage is storage), None)
                copy = StorageState()
                copy.version, copy.changes, copy.left = storage.version, storage.changes, storage.left
                held[id(storage)] = (at, copy, [])
            view = handle.__dict__.get("_view")
            if view is None:
                held[id(storage)][2].append((number, None))
                continue
            base = outputs.get(id(view.base))
            of = ("made", base) if isinstance(base, int) else ("input", places.get(id(view.base)))
            held[id(storage)][2].append((number, (of, storage.version - view.version, view.written)))
        self._storages = list(held.values())

    def _input(self, feeds: Sequence[Handle], place: int) -> Handle:
        return feeds[place] if place < self._inputs else self._captures[place - self._inputs]

    def moved(self, feeds: Sequence[Handle], repeat: int) -> None:
        """Count the in-place changes of a run with `repeat` repetitions."""
        for place, versions, changes in self._moved:
            handle = self._input(feeds, place)
            storage = handle._storage
            if storage is not None:
                storage.written(versions * repeat, changes * repeat)
                handle._changes_seen = storage.changes

    def changed_captures(self) -> list[Handle]:
        """The captures that the call changed in place, among those whose storage counted changes before it."""
        return [self._captures[place - self._inputs] for place, _, _ in self._moved if place >= self._inputs]

    def forget_results(self) -> None:
        """Let results share storage with nothing."""
        self._storages = []

    def share_storage(self, feeds: Sequence[Handle], made: Sequence[Handle]) -> None:
        """Let the results of a run share storage as the results of the recorded call did."""
        for place, was, members in self._storages:
            storage: StorageState
            if place is not None:
                source = self._input(feeds, place)
                storage = share_storage(made[members[0][0]], source)
            else:
                storage = StorageState()
                storage.version, storage.changes, storage.left = was.version, was.changes, was.left
            for number, view in members:
                handle = made[number]
                handle._storage, handle._changes_seen = storage, storage.changes
                if view is None:
                    continue
                (kind, at), behind, written = view
                base = made[at] if kind == "made" else None if at is None else self._input(feeds, at)
                if base is not None:
                    handle.__dict__["_view"] = ViewOf(base, storage.version - behind)
                    handle.__dict__["_view"].written = written


def _count(storage: StorageState | None) -> tuple[int, int]:
    return (0, 0) if storage is None else (storage.version, storage.changes)

"""Aliases: records which tensors of a recorded call share bytes, so the tensors of a replay share them alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gradwire._proxy.handle import Family, Handle, ViewOf
from gradwire._proxy.results import join

if TYPE_CHECKING:
    from gradwire._compile.recorder import Trace


class TensorAliases:
    """Aliasing among a call's tensors.

    Construct it before the call with the outside tensors; settle it after the call with the results.
    """

    def __init__(self, outside: Iterable[Handle]) -> None:
        self._before = {handle._id: _count(handle._family) for handle in outside}
        self._feeds = 0
        #: Inputs whose bytes the call changed in place: input index, increase of the family's version and of its epoch.
        self._moved: list[tuple[int, int, int]] = []
        #: Per family with results in it: index of an input of the family or None, a copy of the family, its results.
        self._families: list[tuple[int | None, Family, list[tuple[int, Any]]]] = []
        self._captures: list[Handle] = []

    def settle(self, trace: Trace, results: Sequence[Handle]) -> TensorAliases:
        """Record the aliasing that replays repeat. `results` are the handles of the trace's results."""
        self._captures, self._feeds = trace.captures, len(trace.feeds)
        inputs = [*trace.feeds, *trace.captures]
        seen: set[int] = set()
        for place, handle in enumerate(inputs):
            family = handle._family
            if family is None or id(family) in seen:
                continue
            seen.add(id(family))
            version, epoch = self._before.get(handle._id, (family.version, family.epoch))
            if family.epoch != epoch:
                self._moved.append((place, family.version - version, family.epoch - epoch))
        self._group(inputs, results, trace.results)
        return self

    def _group(self, inputs: Sequence[Handle], results: Sequence[Handle], numbers: Sequence[int | Handle]) -> None:
        held: dict[int, tuple[int | None, Family, list[tuple[int, Any]]]] = {}
        outputs = {id(handle): number for handle, number in zip(results, numbers, strict=True)}
        places = {id(handle): place for place, handle in reversed(list(enumerate(inputs)))}
        for handle, number in zip(results, numbers, strict=True):
            family = handle._family
            if family is None or not isinstance(number, int):
                continue
            if id(family) not in held:
                at = next((place for place, each in enumerate(inputs) if each._family is family), None)
                copy = Family()
                copy.version, copy.epoch, copy.left = family.version, family.epoch, family.left
                held[id(family)] = (at, copy, [])
            view = handle.__dict__.get("_view")
            if view is None:
                held[id(family)][2].append((number, None))
                continue
            base = outputs.get(id(view.base))
            of = ("made", base) if isinstance(base, int) else ("input", places.get(id(view.base)))
            held[id(family)][2].append((number, (of, family.version - view.version, view.written)))
        self._families = list(held.values())

    def _input(self, feeds: Sequence[Handle], place: int) -> Handle:
        return feeds[place] if place < self._feeds else self._captures[place - self._feeds]

    def moved(self, feeds: Sequence[Handle], repeat: int) -> None:
        """Count the in-place changes of a run with `repeat` repetitions."""
        for place, versions, epochs in self._moved:
            handle = self._input(feeds, place)
            family = handle._family
            if family is not None:
                family.version += versions * repeat
                family.epoch += epochs * repeat
                handle._epoch = family.epoch

    def join(self, feeds: Sequence[Handle], made: Sequence[Handle]) -> None:
        """Let the results of a run share families as the results of the recorded call did."""
        for place, was, members in self._families:
            family: Family
            if place is not None:
                source = self._input(feeds, place)
                family = join(made[members[0][0]], source)
            else:
                family = Family()
                family.version, family.epoch, family.left = was.version, was.epoch, was.left
            for number, view in members:
                handle = made[number]
                handle._family, handle._epoch = family, family.epoch
                if view is None:
                    continue
                (kind, at), behind, written = view
                base = made[at] if kind == "made" else None if at is None else self._input(feeds, at)
                if base is not None:
                    handle.__dict__["_view"] = ViewOf(base, family.version - behind)
                    handle.__dict__["_view"].written = written


def _count(family: Family | None) -> tuple[int, int]:
    return (0, 0) if family is None else (family.version, family.epoch)

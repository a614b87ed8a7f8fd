"""Storage state: what tensors of one storage share, their changes above all, and which other storages hold copies.

PyTorch's conjugates and negatives are views, and copies here. They are mirrors of their source: after a change of one
the others are stale, unless the change was outside of the item that they copy.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradwire._proxy.memo import Spec

#: An item x[index]: the id of x, and the index's items.
Item = tuple[int, tuple[object, ...]]
# A number for each memory that has copies.
_MEMORIES = count(1)


class StorageState:
    """State shared by tensors with the same storage.

    `version` counts in-place changes, and `changes` counts all changes. A tensor that has not seen all of them is
    refreshed before use. `owner` describes the tensor that the memory was made for, if known. `left` says whether the
    base left the graph. Then only the server knows its views' history.
    `dual` says that a tensor of the storage has or had a tangent. After an in-place change only the server knows whose.
    `mirrors` are this storage and those that hold copies of its values, conjugated or negated, where PyTorch has views.
    A change of one makes the others `stale`, except those of the same number: they share its memory (x.data = y).
    `conjugate` says that this one's values are conjugates. `part` is x's storage and the item, if this is a copy of an
    item x[index] alone. `writing` is the item that is being written. `moved` says that items have changed their place.
    `parted` is set after one of its tensors was given other memory, which goes on sharing the version: what to add to
    `version` for the tensors' own.
    """

    __slots__ = (
        "__weakref__",
        "changes",
        "conjugate",
        "dual",
        "left",
        "mirrors",
        "moved",
        "owner",
        "part",
        "parted",
        "stale",
        "version",
        "writing",
    )

    def __init__(self, owner: Spec | None = None) -> None:
        self.changes = 0
        self.owner = owner
        self.dual = False
        self.left = False
        self.version = 0
        self.conjugate = self.stale = self.moved = False
        self.parted: int | None = None
        self.mirrors: weakref.WeakKeyDictionary[StorageState, int] | None = None
        self.part: tuple[weakref.ref[StorageState], Item] | None = None
        self.writing: Item | None = None

    def written(self, versions: int = 1, changes: int = 1, item: Item | None = None) -> None:
        """Note in-place changes of values, or of flags: then `versions` is 0. item: all that was written, if known."""
        self.version += versions
        self.changes += changes
        if versions and self.mirrors is not None:
            self.outdate_mirrors(item)

    def outdate_mirrors(self, item: Item | None = None) -> None:
        """Note that values changed of which other storages hold copies."""
        mirrors = self.mirrors
        if mirrors is None or len(mirrors) < 2:
            return
        memory = mirrors.get(self)
        written = () if self.moved else (item, self.writing)
        for other, its in list(mirrors.items()):
            if its != memory and not other.stale and not any(other.is_apart(self, each) for each in written):
                other.stale = True
                other.changes += 1

    def is_apart(self, source: StorageState, written: Item | None) -> bool:
        """Whether this holds a copy of an item of a storage, and what was written there is outside of the item."""
        if written is None or self.part is None or self.part[0]() is not source:
            return False
        mine = self.part[1]
        return mine[0] == written[0] and _are_apart(mine[1], written[1])

    def mirrored(self, other: StorageState, same_memory: bool = False) -> None:
        """Note that another storage holds the same values: of this memory or, conjugated or negated, a copy."""
        mine = self.mirrors if self.mirrors is not None else weakref.WeakKeyDictionary({self: next(_MEMORIES)})
        self.mirrors = mine
        its = other.mirrors
        if its is None:
            mine[other] = mine[self] if same_memory else next(_MEMORIES)
            other.mirrors = mine
            return
        number = its[other]
        for each, memory in list(its.items()):
            mine[each] = mine[self] if same_memory and memory == number else memory
            each.mirrors = mine


def _are_apart(one: Sequence[object], other: Sequence[object]) -> bool:
    """Whether x[one] and x[other] have no element in common, as far as the first numbers and slices tell."""
    for mine, its in zip(one, other, strict=False):
        if not (type(mine) in (int, slice) and type(its) in (int, slice)):
            return False  # what comes later may be of another dimension
        if type(mine) is int and type(its) is int:
            if mine != its and (mine < 0) == (its < 0):
                return True
        elif type(mine) is int and isinstance(its, slice):
            if _is_outside(mine, its):
                return True
        elif type(its) is int and isinstance(mine, slice) and _is_outside(its, mine):
            return True
    return False


def _is_outside(place: int, within: slice) -> bool:
    start, stop = 0 if within.start is None else within.start, within.stop
    if type(start) is not int or place < 0 or start < 0:
        return False
    return place < start or (type(stop) is int and 0 <= stop <= place)

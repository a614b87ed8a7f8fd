"""Handle: the client's state of one tensor, with its id, session, spec, history and gradient state."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradwire._proxy.memo import Spec
    from gradwire._proxy.protocols import SessionProtocol
    from gradwire._proxy.shadow_graph import Edge, Leaf


#: An item x[index]: the id of x, and the index's items.
Item = tuple[int, tuple[object, ...]]


class GradientState:
    """A state of `.grad` other than None or a tensor."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


# A number for each memory that has copies.
_MEMORIES = count(1)
#: A backward has set the gradient, and the gradient has no id yet.
PRESENT = GradientState("PRESENT")
#: Only the server knows whether there is a gradient, and its value.
UNKNOWN = GradientState("UNKNOWN")


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


class ViewOf:
    """The base of a view, and the version of the storage at which the view's node was made.

    `written` says that an item of the view was written, and its `grad_fn` has not been read since. `item` is of a view
    x[index]: the id of x, and the index's items. `steps` are the calls that lead from the base to the view, if views
    are tracked. `tracked`: whether they were when the view was made, or one that it is a view of.
    """

    __slots__ = ("base", "item", "steps", "tracked", "version", "written")

    def __init__(self, base: Handle, version: int) -> None:
        self.base = base
        self.item: Item | None = None
        self.steps: tuple[object, ...] = ()
        self.tracked = False
        self.version = version
        self.written = False


class Items:
    """The items of a small tensor that a program iterates over: the first that is read brings the values of all.

    They hold while the tensor's storage is unchanged.
    """

    __slots__ = ("changes", "source", "storage", "values", "writes")

    def __init__(self, source: Handle, storage: StorageState) -> None:
        self.source = source
        self.storage = storage
        self.changes = storage.changes
        self.writes = self._other_writes()
        self.values: list[object] | None = None

    @property
    def unchanged(self) -> bool:
        """Whether no value was written since the iteration began."""
        return self.storage.changes == self.changes and self._other_writes() == self.writes

    def _other_writes(self) -> int:
        session = self.source._session
        return session.untracked_writes + session.hidden_writes


class Handle:
    """The base class of Tensor. When the last reference is dropped, the next batch releases the id.

    `_item` is set for the items of an iteration only, and for sums of these: the items, the index, and what is added.
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_changes_seen",
        "_edge",
        "_grad",
        "_id",
        "_item",
        "_retained",
        "_session",
        "_spec",
        "_storage",
    )

    _session: SessionProtocol
    _id: int
    _item: tuple[Items, int, int]
    _spec: Spec
    _edge: Edge | None
    _grad: Any
    _retained: Leaf | None
    _storage: StorageState | None
    _changes_seen: int

    def __del__(self) -> None:
        try:
            self._session.released.append(self._id)
        except AttributeError:
            # A subclass's constructor failed before the tensor existed.
            return

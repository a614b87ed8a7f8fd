"""Handle: the client's state of one tensor, with its id, session, spec, history and gradient state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gradwire._proxy.storage_state import Item, StorageState

if TYPE_CHECKING:
    from gradwire._proxy.memo import Spec
    from gradwire._proxy.protocols import SessionProtocol
    from gradwire._proxy.shadow_graph import Edge, Leaf


class GradientState:
    """A state of `.grad` other than None or a tensor."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


#: A backward has set the gradient, and the gradient has no id yet.
PRESENT = GradientState("PRESENT")
#: Only the server knows whether there is a gradient, and its value.
UNKNOWN = GradientState("UNKNOWN")


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


def handles_in(value: Any) -> Iterator[Handle]:
    """The tensors in a value, also those in tuples, lists and dictionaries, in order."""
    if isinstance(value, Handle):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from handles_in(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from handles_in(each)

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


class Handle:
    """The base class of Tensor. When the last reference is dropped, the next batch releases the id.

    `_known` is not None where the client may find out the tensor's values, and `_item_values` is set where items of the
    tensor were taken. `_bounds` has the bounds of values that the program gave (`_tensor/known_values/`). `_received`
    tells whether an answer told of the tensor: its memory may be another's.
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_bounds",
        "_changes_seen",
        "_edge",
        "_grad",
        "_id",
        "_item_values",
        "_known",
        "_received",
        "_retained",
        "_session",
        "_spec",
        "_storage",
    )

    _session: SessionProtocol
    _id: int
    _bounds: Any
    _item_values: Any
    _known: Any
    _received: bool
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

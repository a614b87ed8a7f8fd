"""The state of a tensor proxy: an id in a session, what is known of the tensor, and where its gradient stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradwire._proxy.memo import Spec
    from gradwire._proxy.protocols import Session
    from gradwire._proxy.shadow_graph import Edge, Leaf


class Mark:
    """A state of `.grad` other than None or a tensor."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


#: A backward has set the gradient, and nobody has asked for it by name yet.
PRESENT = Mark("PRESENT")
#: Only the server knows what the gradient is, if there is one.
UNKNOWN = Mark("UNKNOWN")


class Family:
    """What tensors on the same bytes share: how often those were changed in place, and how often anything changed.

    `left`: whether their base has left the graph; where its views come from only the server knows then.
    """

    __slots__ = ("epoch", "left", "version")

    def __init__(self) -> None:
        self.epoch = 0
        self.left = False
        self.version = 0


class ViewOf:
    """What a view is a part of, and which version of its bytes the view's node was made at.

    `written`: an item of it was written, and its `grad_fn` not looked at since.
    """

    __slots__ = ("base", "version", "written")

    def __init__(self, base: Handle, version: int) -> None:
        self.base = base
        self.version = version
        self.written = False


class Handle:
    """What the modules below Tensor know of it. Dropping the last reference releases the id with the next batch."""

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_edge",
        "_epoch",
        "_family",
        "_grad",
        "_id",
        "_retained",
        "_session",
        "_spec",
    )

    _session: Session
    _id: int
    _spec: Spec
    _edge: Edge | None
    _grad: Any
    _retained: Leaf | None
    _family: Family | None
    _epoch: int

    def __del__(self) -> None:
        try:
            self._session.released.append(self._id)
        except AttributeError:
            # A subclass's constructor failed before there was a tensor.
            return

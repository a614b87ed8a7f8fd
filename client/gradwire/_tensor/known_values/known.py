"""Known: the base of what the client knows of one tensor's values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradwire._proxy.results import share_storage

if TYPE_CHECKING:
    from gradwire._proxy.handle import Handle


class Known:
    """The value of a tensor of one element, until its memory is written. `drawn`: it depends on random numbers."""

    __slots__ = ("_changes", "_spec", "_storage", "_writes", "drawn")

    #: Whether another tensor, with another count of changes, may have the same memory.
    may_be_shared = False

    def __init__(self, tensor: Handle, drawn: bool = False) -> None:
        storage = tensor._storage
        # Which counts the tensor's changes.
        self._storage = share_storage(tensor, tensor) if storage is None else storage
        self._changes = self._storage.changes
        self._spec = tensor._spec  # which a change of sizes changes
        self._writes = self.uncounted(tensor)
        self.drawn = drawn

    def holds(self, tensor: Handle) -> bool:
        """Whether the tensor has not been written since."""
        storage = self._storage
        return (
            tensor._storage is storage
            and tensor._spec is self._spec
            and storage.changes == self._changes
            and self.uncounted(tensor) == self._writes
        )

    def uncounted(self, tensor: Handle) -> int:
        """How many commands may have written to the tensor without a count of its storage."""
        return uncounted_writes(tensor, self.may_be_shared)

    def value(self) -> Any:
        """The value at the time of the call that made the tensor; None if only the server knows it."""
        raise NotImplementedError

    def find(self, tensor: Handle) -> Any:
        """The tensor's value as a Python number; None if only the server knows it."""
        session = tensor._session
        if session.recorder is not None or session.others_may_write or not self.holds(tensor):
            return None
        value = self.value()
        if value is not None:
            session.raise_if_unusable()
        return value


class Seen(Known):
    """A value that is read: made before the read, since another thread may write before the answer is here.

    Where the tensor comes from is unknown. So it holds until an in-place change of any tensor.
    """

    __slots__ = ("seen",)

    may_be_shared = True

    def __init__(self, tensor: Handle) -> None:
        super().__init__(tensor)
        self.seen: Any = None

    def value(self) -> Any:
        """The value."""
        return self.seen


def uncounted_writes(tensor: Handle, may_be_shared: bool = False) -> int:
    """How many commands may have written to a tensor like this one without a count of its storage.

    may_be_shared: whether the memory may be another tensor's, too, that has another count.
    """
    session = tensor._session
    number = session.untracked_writes + session.hidden_writes
    # Views are not told from others in inference mode.
    shares = session.shares_memory or tensor._spec.inference or _was_received(tensor)
    if may_be_shared or shares:
        number += session.in_place_writes
    return number + session.float_writes if shares or _may_show_floats(tensor) else number


def _was_received(tensor: Handle) -> bool:
    """Whether an answer told of the tensor, or of its base: saved values, gradients, results of programs."""
    view = tensor.__dict__.get("_view")
    return getattr(tensor if view is None else view.base, "_received", False)


def _may_show_floats(tensor: Handle) -> bool:
    """Whether the memory may hold floating numbers, which x.view(dtype) shows as whole ones."""
    if tensor._spec.dtype.is_floating_point:
        return True
    view = tensor.__dict__.get("_view")
    memory = tensor._storage and tensor._storage.owner
    kinds = [each.dtype for each in (tensor._spec, view and view.base._spec, memory) if each]
    return any(kind.is_floating_point or kind.is_complex for kind in kinds)

"""Known: the base of what the client knows of one tensor's values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradwire._proxy.results import share_storage

if TYPE_CHECKING:
    from gradwire._proxy.handle import Handle


class Known:
    """The value of a tensor of one element, until its memory is written. `drawn`: it depends on random numbers."""

    __slots__ = ("_changes", "_spec", "_storage", "_writes", "drawn")

    def __init__(self, tensor: Handle, drawn: bool = False) -> None:
        storage = tensor._storage
        # Which counts the tensor's changes.
        self._storage = share_storage(tensor, tensor) if storage is None else storage
        self._changes = self._storage.changes
        self._spec = tensor._spec  # which a change of sizes changes
        self._writes = uncounted_writes(tensor)
        self.drawn = drawn

    def holds(self, tensor: Handle) -> bool:
        """Whether the tensor has not been written since."""
        storage = self._storage
        return (
            tensor._storage is storage
            and tensor._spec is self._spec
            and storage.changes == self._changes
            and uncounted_writes(tensor) == self._writes
        )

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
    """A value that was read before."""

    __slots__ = ("_value",)

    def __init__(self, tensor: Handle, value: Any) -> None:
        super().__init__(tensor)
        self._value = value

    def value(self) -> Any:
        """The value."""
        return self._value


def uncounted_writes(tensor: Handle) -> int:
    """How many commands may have written to a tensor like this one without a count of its storage."""
    session, kind = tensor._session, tensor._spec.dtype
    number = session.untracked_writes + session.hidden_writes
    return number + session.float_writes if kind.is_floating_point or kind.is_complex else number

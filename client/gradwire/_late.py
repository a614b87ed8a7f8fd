"""Refusals of commands that nobody waited for: kept until someone waits, then raised once, the root cause only."""

from __future__ import annotations

import threading

from gradwire._errors import GradwireError, from_message
from gradwire._memo import Entry
from gradwire._place import describe_place
from gradwire.v1 import errors_pb2 as pb

_MOST_ROOTS = 4096


class LateErrors:
    """The refusals of one session. `_roots` remembers those told, for commands that still depend on them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: list[GradwireError] = []
        self._roots: dict[int, tuple[pb.Error, str]] = {}

    def add(self, seq: int, entry: Entry, error: pb.Error) -> None:
        """Keep the refusal of a command. One that only lacked another's result says nothing new."""
        where = describe_place(entry.code, entry.offset)
        with self._lock:
            if error.root_seq and error.root_seq in self._roots:
                return
            if len(self._roots) >= _MOST_ROOTS:
                self._roots.clear()
            self._roots[seq] = (error, where)
            self._pending.append(_placed(error, where, "issued without waiting; GRADWIRE_SYNC=1 makes every call wait"))

    def raise_first(self) -> None:
        """Raise the oldest refusal not told yet; the others go with it."""
        if not self._pending:
            return
        with self._lock:
            pending, self._pending = self._pending, []
        if pending:
            if len(pending) > 1:
                pending[0].metadata = {**pending[0].metadata, "more": str(len(pending) - 1)}
            raise pending[0]

    def explain(self, error: pb.Error) -> GradwireError:
        """The exception for a refusal; where it only lacked another's result, that one's."""
        root = self._roots.get(error.root_seq) if error.root_seq else None
        if root is None:
            return from_message(error)
        return _placed(*root, "an earlier command, whose result this one needs")


def _placed(error: pb.Error, where: str, why: str) -> GradwireError:
    shown = pb.Error()
    shown.CopyFrom(error)
    shown.message = f"{error.message}\n  {where}\n  ({why})"
    return from_message(shown)

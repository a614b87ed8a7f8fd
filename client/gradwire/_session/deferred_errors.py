"""Deferred errors: keeps refusals of deferred commands until the next wait, and raises each root cause once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from types import CodeType

from gradwire._base.call_site import describe_call_site
from gradwire._base.errors import GradwireError, from_message
from gradwire._proxy.memo import MemoEntry
from gradwire.v1 import errors_pb2 as pb

_MOST_ROOTS = 4096
# Maximum commands with a stored call site. A training step has thousands, a deep graph some hundred thousand.
_MOST_SENT = 1 << 18
# A command's number on the server is writer << 40 | seq.
WRITER_SHIFT = 40


class CallSite:
    """The call site of a command: code object and instruction offset."""

    __slots__ = ("code", "offset")

    def __init__(self, code: CodeType, offset: int) -> None:
        self.code = code
        self.offset = offset


class DeferredErrors:
    """The deferred errors of one session.

    `_roots` stores the root causes, for later commands that depend on them. `_sent` stores the call sites of the newest
    commands. A refused backward names the call sites that made its nodes.
    """

    def __init__(self, writer: int) -> None:
        self._writer = writer
        self._sent: deque[tuple[int, Sequence[CallSite | MemoEntry | None]]] = deque()
        self._sent_count = 0
        self._lock = threading.Lock()
        self._pending: list[GradwireError] = []
        self._roots: dict[int, tuple[pb.Error, str]] = {}

    def add_call_sites(self, first: int, records: Sequence[CallSite | MemoEntry | None]) -> None:
        """Store a batch's call sites, from the seq of its first command."""
        with self._lock:
            self._sent.append((first, records))
            self._sent_count += len(records)
            while self._sent_count > _MOST_SENT:
                self._sent_count -= len(self._sent.popleft()[1])

    def _with_node_lines(self, error: pb.Error) -> pb.Error:
        """The refusal, with the program's lines that made the nodes in its metadata."""
        lines = []
        metadata = error.metadata
        made, needed = (int(metadata[name]) if name in metadata else 0 for name in ("made_by_command", "command"))
        for number, name, what in (
            (made, "made_by", "was made"),
            (needed if needed != made else 0, "node", "needs it"),
        ):
            where = self.find(number)
            if where is not None:
                lines.append(f"\n  {metadata[name]} {what} here:\n  {where}")
        if not lines:
            return error
        shown = pb.Error()
        shown.CopyFrom(error)
        shown.message += "".join(lines)
        return shown

    def find(self, number: int) -> str | None:
        """The call site of a command as text; None for another writer's command or an old one."""
        if not number or number >> WRITER_SHIFT != self._writer:
            return None
        seq = number & ((1 << WRITER_SHIFT) - 1)
        with self._lock:
            for first, records in reversed(self._sent):
                if first <= seq:
                    record = records[seq - first] if seq - first < len(records) else None
                    return None if record is None else describe_call_site(record.code, record.offset)
        return None

    def add(self, seq: int, entry: MemoEntry, error: pb.Error) -> None:
        """Store the refusal of a command, unless its root cause is stored."""
        where = describe_call_site(entry.code, entry.offset)
        error = self._with_node_lines(error)
        with self._lock:
            if error.root_seq and error.root_seq in self._roots:
                return
            if len(self._roots) >= _MOST_ROOTS:
                self._roots.clear()
            self._roots[seq] = (error, where)
            self._pending.append(
                _with_line(error, where, "issued without waiting; GRADWIRE_SYNC=1 makes every call wait")
            )

    def raise_first(self) -> None:
        """Raise the oldest unreported refusal, and drop the others; their count is in its metadata ("more")."""
        if not self._pending:
            return
        with self._lock:
            pending, self._pending = self._pending, []
        if pending:
            if len(pending) > 1:
                pending[0].metadata = {**pending[0].metadata, "more": str(len(pending) - 1)}
            raise pending[0]

    def explain(self, error: pb.Error) -> GradwireError:
        """The exception for a refusal, or for its root cause if it depends on a refused command."""
        root = self._roots.get(error.root_seq) if error.root_seq else None
        if root is None:
            return from_message(self._with_node_lines(error))
        return _with_line(*root, "an earlier command, whose result this one needs")


def _with_line(error: pb.Error, where: str, why: str) -> GradwireError:
    shown = pb.Error()
    shown.CopyFrom(error)
    shown.message = f"{error.message}\n  {where}\n  ({why})"
    made = from_message(shown)
    made.late = True
    return made

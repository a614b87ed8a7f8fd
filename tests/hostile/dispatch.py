"""Fuzzing of decoding and dispatch in this process, with random messages; in guided.py atheris chooses the bytes.

Every call is answered, or refused for a reason other than INTERNAL, and the session stays usable.
"""

from __future__ import annotations

from typing import Any

from gradwire.v1 import errors_pb2, service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import MIB, Limits
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.session.batch import OutOfOrder
from gradwire_server.session.commands import BY_METHOD
from gradwire_server.storage.instructions import StorageInstruction
from gradwire_server.worker.runtime import Runtime
from tests.hostile.messages import Messages

METHODS = ("Run", *sorted(BY_METHOD))
LIMITS = Limits(max_session_bytes=8 * MIB, max_bytes=64 * MIB, max_session_tensors=1000, max_tensor_bytes=MIB)
_RENEWED = 1_000  # calls of a session before it is dropped for another


class Wrong(AssertionError):
    """What must never be: the call and what came of it."""


def check_answer(method: str, raw: bytes, answer: bytes) -> None:
    """No command of a batch was refused because of a mistake of the server's. Raises Wrong."""
    if method == "Run":
        for result in service_pb2.RunResponse.FromString(answer).results:
            if result.error.reason == errors_pb2.REASON_INTERNAL:
                raise Wrong(f"{method} {raw.hex()}: command {result.seq}: {result.error.message}")


class Dispatch:
    """A host whose one session takes calls; from time to time another one."""

    def __init__(self) -> None:
        self.runtime = Runtime(LIMITS.resolved(), SharedCounters(1))
        self.number = 0
        self.calls = 0
        self.reasons: dict[str, int] = {}
        self._renew()

    def _renew(self) -> None:
        if self.number:
            self._run("Drop", b"")
            if self.runtime.counters.total():
                raise Wrong(f"a dropped session left {self.runtime.counters.total()} bytes")
        self.number += 1
        self._run("Open", StorageInstruction().pack())
        for request in Messages(self.number).first():
            if reason := self._run("Create", request.SerializeToString()):
                raise Wrong(f"a tensor was refused: {reason}")

    def take(self, method: str, raw: bytes) -> str:
        """Carry out a call; the reason of its refusal, or "". Raises Wrong."""
        self.calls += 1
        if self.calls % _RENEWED == 0:
            self._renew()
        reason = self._run(method, raw)
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        return reason

    @property
    def next_seq(self) -> int:
        """The number of the session's next command."""
        return self.runtime.sessions[self.number].writers[1].applied + 1

    def _run(self, method: str, raw: bytes) -> str:
        call = self.runtime.make_call(method, self.number, raw, 1 << 40, None)
        steps = self.runtime.execute(call)
        try:
            while True:
                next(steps)
        except StopIteration as done:
            check_answer(method, raw, done.value)
            return ""
        except OutOfOrder:
            return "SEQUENCE_GAP"
        except Refusal as refusal:
            if refusal.reason == "INTERNAL":
                raise Wrong(f"{method} {raw.hex()}: {refusal.message}") from refusal
            return refusal.reason


def drawn(seed: int, count: int) -> dict[str, int]:
    """Carry out so many messages; how many were refused for which reason. Raises Wrong."""
    dispatch, messages = Dispatch(), Messages(seed)
    while count > 0:
        messages.seq = dispatch.next_seq
        method, raw = messages.draw()
        if method in METHODS:
            dispatch.take(method, raw)
            count -= 1
    dispatch._renew()
    return dispatch.reasons


def corpus(seed: int, count: int) -> list[bytes]:
    """Inputs for atheris to begin with."""
    messages = Messages(seed)
    found: list[Any] = []
    while len(found) < count:
        method, raw = messages.draw()
        if method in METHODS:
            found.append(bytes((METHODS.index(method),)) + raw)
    return found

"""Durability: a session's files are told before a call changes it, and a broken session refuses with the cause."""

import pytest

from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.session.session import Session
from gradwire_server.session.state.durability import Durability
from gradwire_server.storage.instructions import StorageInstruction
from gradwire_server.worker.runtime import Runtime
from tests.server.harness import op


class Opened:
    """A session in a runtime; `told` has the tensors that the session had each time its files were told of a use."""

    def __init__(self) -> None:
        self.runtime = Runtime(Limits().resolved(), SharedCounters(1))
        self.do("Open", StorageInstruction().pack())
        self.session: Session = self.runtime.sessions[1]
        self.told: list[int] = []

    def use(self) -> None:
        self.told.append(len(self.session.store))

    def do(self, method: str, raw: bytes) -> None:
        call = self.runtime.make_call(method, 1, raw, 1, None)
        for _ in self.runtime.execute(call):
            pass


def ones(tensor_id: int) -> bytes:
    return op("ones", [2], outputs=[tensor_id]).SerializeToString()


def test_a_new_session_is_whole_and_not_stored() -> None:
    fresh = Durability()
    assert (fresh.files, fresh.log_notes, fresh.uncommitted, fresh.broken) == (None, None, False, None)


def test_files_are_told_before_a_call_changes_the_session() -> None:
    opened = Opened()
    opened.session.durability.files = opened
    opened.do("Op", ones(1))
    opened.do("Op", ones(2))
    assert opened.told == [0, 1]
    assert not opened.session.durability.uncommitted


def test_a_broken_session_refuses_all_calls_with_the_cause() -> None:
    opened = Opened()
    cause = Refusal("STORAGE", "its file was cut short")
    opened.session.durability.broken, opened.session.cancel_token.closed = cause, True
    with pytest.raises(Refusal, match="cut short") as refusal:
        opened.do("Op", ones(1))
    assert refusal.value.reason == "STORAGE"
    assert not opened.session.store

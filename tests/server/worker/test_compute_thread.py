"""The compute thread: calls in order, answers from the thread, an end after the last call, and garbage collected."""

import gc
import queue
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from gradwire.v1 import commands_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.worker import compute_thread
from gradwire_server.worker.compute_thread import Collector, ComputeThread
from gradwire_server.worker.runtime import Runtime
from tests.server.harness import payload


class Started:
    """A compute thread, and the answers it gave with the thread that gave them."""

    def __init__(self) -> None:
        self.answers: queue.SimpleQueue = queue.SimpleQueue()
        self.runtime = Runtime(Limits().resolved(), SharedCounters(1))
        self.thread = ComputeThread(self.runtime, self._answer, lambda call: None)
        self.ticket = 0

    def _answer(self, call, result: bytes, failure: Exception | None) -> None:
        self.answers.put((call.ticket, result, failure, threading.current_thread()))

    def submit(self, method: str, raw: bytes, number: int = 1) -> int:
        self.ticket += 1
        self.thread.submit(method, number, raw, self.ticket, None)
        return self.ticket


@pytest.fixture
def started() -> Iterator[Started]:
    made = Started()
    yield made
    assert made.thread.stop(30)


def _create(number: int) -> bytes:
    return commands_pb2.CreateRequest(id=number, payload=payload(np.ones(2))).SerializeToString()


def test_calls_without_a_session_are_refused(started: Started) -> None:
    ticket = started.submit("Create", _create(1))
    found, _, failure, _ = started.answers.get(timeout=30)
    assert found == ticket
    assert isinstance(failure, Refusal)
    assert failure.reason == "SESSION_NOT_FOUND"


def test_answers_come_from_the_thread_and_it_ends_after_the_submitted_calls() -> None:
    started = Started()
    tickets = [started.submit("Create", _create(number)) for number in range(1, 20)]
    assert started.thread.stop(30)
    answers = [started.answers.get(timeout=0) for _ in tickets]
    assert [ticket for ticket, *_ in answers] == tickets
    assert {thread.name for *_, thread in answers} == {"gradwire-compute"}
    assert not started.thread.has_calls()


def test_take_returns_all_queued_calls_and_none_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_thread, "run_scheduler", lambda *args: None)
    started = Started()
    assert started.thread.take(0) == []
    begun = time.monotonic()
    assert started.thread.take(0.05) == []
    assert time.monotonic() - begun > 0.04
    tickets = [started.submit("Create", b"") for _ in range(3)]
    assert started.thread.has_calls()
    assert [call.ticket for call in started.thread.take(None)] == tickets
    last = started.submit("Create", b"")
    started.thread.stop(1)
    assert [call.ticket for call in started.thread.take(None)] == [last]
    assert started.thread.take(None) is None


def test_a_thread_that_still_computes_is_told_as_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(compute_thread, "run_scheduler", lambda *args: release.wait(30))
    started = Started()
    assert not started.thread.stop(0.01)
    release.set()
    assert started.thread.stop(30)


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    was = gc.isenabled()
    seen: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda generation=2: seen.append(generation) or 0)
    yield seen
    if was:
        gc.enable()


def test_the_collector_takes_over_and_collects_only_after_many_allocations(
    collections: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector()
    assert not gc.isenabled()
    monkeypatch.setattr(gc, "get_count", lambda: (compute_thread._YOUNG_LIMIT, 0, 0))
    collector()
    assert collections == []
    monkeypatch.setattr(gc, "get_count", lambda: (compute_thread._YOUNG_LIMIT + 1, 0, 0))
    for _ in range(2 * compute_thread._YOUNG_PER_FULL):
        collector()
    assert collections.count(2) == 2
    assert collections.count(0) == 2 * compute_thread._YOUNG_PER_FULL - 2

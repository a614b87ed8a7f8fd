"""Flow control between front and worker: a worker has few calls of one session at a time, in order."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import MIB
from gradwire_server.registry.thread_backend import InProcessBackend
from gradwire_server.worker_pool.session_entry import SessionEntry
from gradwire_server.worker_pool.worker import MAX_SENT_BYTES, MAX_SENT_CALLS
from tests.server.harness import LIMITS, Remote, command, op

BACKENDS = [0, 1]


class Handed:
    """A worker that is handed calls of two sessions and answers when a test says so; `sent` has session and ticket."""

    def __init__(self) -> None:
        self.backend = InProcessBackend(LIMITS)
        (self.worker,) = self.backend.workers
        self.sent: list[tuple[int, int]] = []
        self.worker.send = self._send  # type: ignore[method-assign]
        open_session = self.backend.registry.open
        self.one, self.other = (open_session(service_pb2.OpenSessionRequest(), lambda: self.worker) for _ in range(2))

    def _send(self, method: str, number: int, raw: bytes, ticket: int, deadline: float | None) -> None:
        self.sent.append((number, ticket))

    def call(self, entry: SessionEntry[Any], size: int = 10) -> "asyncio.Future[bytes]":
        return self.worker.call(entry, "Describe", bytes(size))

    def of(self, entry: SessionEntry[Any]) -> list[int]:
        return [ticket for number, ticket in self.sent if number == entry.number]


def in_loop(test: Callable[[Handed], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that is played in an event loop."""

    def run() -> None:
        async def play() -> None:
            await test(Handed())

        asyncio.run(play())

    run.__name__ = test.__name__
    return run


@in_loop
async def test_a_call_stands_behind_few_of_another_session_that_sent_thousands(sent_calls: Handed) -> None:
    answers = [sent_calls.call(sent_calls.one) for _ in range(5000)]
    sent_calls.call(sent_calls.other)
    assert sent_calls.sent[-1][0] == sent_calls.other.number
    assert len(sent_calls.of(sent_calls.one)) == MAX_SENT_CALLS
    for answered in range(100):
        sent_calls.worker.answered(sent_calls.of(sent_calls.one)[answered], b"done", None)
    assert len(sent_calls.of(sent_calls.one)) == MAX_SENT_CALLS + 100
    await asyncio.sleep(0)
    assert sum(answer.done() for answer in answers) == 100
    while len(sent_calls.of(sent_calls.one)) < 5000 or sent_calls.one.sent_calls:
        sent_calls.worker.answered(sent_calls.of(sent_calls.one)[answered := answered + 1], b"done", None)
    tickets = sent_calls.of(sent_calls.one)
    assert tickets == sorted(tickets)
    assert sent_calls.one.queued_calls is None
    assert sent_calls.one.sent_bytes == sent_calls.one.inflight == 0


@in_loop
async def test_a_call_stands_behind_few_bytes_of_another_session(sent_calls: Handed) -> None:
    for _ in range(20):
        sent_calls.call(sent_calls.one, MIB)
    assert len(sent_calls.of(sent_calls.one)) == MAX_SENT_BYTES // MIB
    sent_calls.call(sent_calls.one, 10)  # it is not put before those
    assert len(sent_calls.of(sent_calls.one)) == MAX_SENT_BYTES // MIB
    sent_calls.call(sent_calls.other, 3 * MAX_SENT_BYTES)  # one is handed over whatever its size
    sent_calls.call(sent_calls.other)
    assert len(sent_calls.of(sent_calls.other)) == 1
    sent_calls.worker.answered(sent_calls.of(sent_calls.other)[0], b"", None)
    assert len(sent_calls.of(sent_calls.other)) == 2


@in_loop
async def test_what_is_parked_makes_room_for_what_it_waits_for(sent_calls: Handed) -> None:
    for _ in range(MAX_SENT_CALLS + 1):
        sent_calls.call(sent_calls.one)
    parked = sent_calls.of(sent_calls.one)[:3]
    for ticket in (*parked, *parked):  # told twice, counted once
        sent_calls.worker.parked(ticket)
    assert len(sent_calls.of(sent_calls.one)) == MAX_SENT_CALLS + 1
    assert sent_calls.one.sent_calls == MAX_SENT_CALLS + 1 - 3
    for ticket in sent_calls.of(sent_calls.one):
        sent_calls.worker.answered(ticket, b"", None)
    assert sent_calls.one.sent_calls == sent_calls.one.sent_bytes == 0


@in_loop
async def test_a_worker_that_ends_is_the_end_of_what_is_kept_back_too(sent_calls: Handed) -> None:
    answers = [sent_calls.call(sent_calls.one) for _ in range(100)]
    sent_calls.worker.lost(Refusal("SESSION_NOT_FOUND", "gone"))
    assert all(isinstance(answer.exception(), Refusal) for answer in answers)
    assert not sent_calls.one.pending
    assert sent_calls.one.sent_calls == 0


@in_loop
async def test_what_is_kept_back_is_handed_over_before_the_end(sent_calls: Handed) -> None:
    for _ in range(100):
        sent_calls.call(sent_calls.one)
    sent_calls.worker.flush()
    assert len(sent_calls.of(sent_calls.one)) == 100
    assert sent_calls.one.queued_calls is None


def test_batches_in_any_order_are_applied_in_theirs(session: Remote) -> None:
    """Many more than a worker has at once, the first of them last."""
    runs = []
    for seq in reversed(range(1, 4 * MAX_SENT_CALLS)):
        zeros = command(op("zeros", [1], outputs=[seq]))
        request = service_pb2.RunRequest(session_id=session.id, writer=1, first_seq=seq, commands=[zeros])
        runs.append(session.stub.Run.future(request, timeout=60))
    for run in runs:
        assert not run.result().results[0].HasField("error")

"""What the front hands to a worker: of one session a few calls at a time, in order, whatever it sends."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import MIB
from gradwire_server.registry.thread_backend import InProcessBackend
from gradwire_server.worker_pool.worker import MOST_HANDED, MOST_HANDED_BYTES, Entry
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

    def call(self, entry: Entry, size: int = 10) -> "asyncio.Future[bytes]":
        return self.worker.call(entry, "Describe", bytes(size))

    def of(self, entry: Entry) -> list[int]:
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
async def test_a_call_stands_behind_few_of_another_session_that_sent_thousands(handed: Handed) -> None:
    answers = [handed.call(handed.one) for _ in range(5000)]
    handed.call(handed.other)
    assert handed.sent[-1][0] == handed.other.number
    assert len(handed.of(handed.one)) == MOST_HANDED
    for answered in range(100):
        handed.worker.answered(handed.of(handed.one)[answered], b"done", None)
    assert len(handed.of(handed.one)) == MOST_HANDED + 100
    await asyncio.sleep(0)
    assert sum(answer.done() for answer in answers) == 100
    while len(handed.of(handed.one)) < 5000 or handed.one.handed:
        handed.worker.answered(handed.of(handed.one)[answered := answered + 1], b"done", None)
    tickets = handed.of(handed.one)
    assert tickets == sorted(tickets)
    assert handed.one.kept_back is None
    assert handed.one.handed_bytes == handed.one.inflight == 0


@in_loop
async def test_a_call_stands_behind_few_bytes_of_another_session(handed: Handed) -> None:
    for _ in range(20):
        handed.call(handed.one, MIB)
    assert len(handed.of(handed.one)) == MOST_HANDED_BYTES // MIB
    handed.call(handed.one, 10)  # it is not put before those
    assert len(handed.of(handed.one)) == MOST_HANDED_BYTES // MIB
    handed.call(handed.other, 3 * MOST_HANDED_BYTES)  # one is handed over whatever its size
    handed.call(handed.other)
    assert len(handed.of(handed.other)) == 1
    handed.worker.answered(handed.of(handed.other)[0], b"", None)
    assert len(handed.of(handed.other)) == 2


@in_loop
async def test_what_is_parked_makes_room_for_what_it_waits_for(handed: Handed) -> None:
    for _ in range(MOST_HANDED + 1):
        handed.call(handed.one)
    parked = handed.of(handed.one)[:3]
    for ticket in (*parked, *parked):  # told twice, counted once
        handed.worker.parked(ticket)
    assert len(handed.of(handed.one)) == MOST_HANDED + 1
    assert handed.one.handed == MOST_HANDED + 1 - 3
    for ticket in handed.of(handed.one):
        handed.worker.answered(ticket, b"", None)
    assert handed.one.handed == handed.one.handed_bytes == 0


@in_loop
async def test_a_worker_that_ends_is_the_end_of_what_is_kept_back_too(handed: Handed) -> None:
    answers = [handed.call(handed.one) for _ in range(100)]
    handed.worker.lost(Refusal("SESSION_NOT_FOUND", "gone"))
    assert all(isinstance(answer.exception(), Refusal) for answer in answers)
    assert not handed.one.pending
    assert handed.one.handed == 0


@in_loop
async def test_what_is_kept_back_is_handed_over_before_the_end(handed: Handed) -> None:
    for _ in range(100):
        handed.call(handed.one)
    handed.worker.flush()
    assert len(handed.of(handed.one)) == 100
    assert handed.one.kept_back is None


def test_batches_in_any_order_are_applied_in_theirs(session: Remote) -> None:
    """Many more than a worker has at once, the first of them last."""
    runs = []
    for seq in reversed(range(1, 4 * MOST_HANDED)):
        zeros = command(op("zeros", [1], outputs=[seq]))
        request = service_pb2.RunRequest(session_id=session.id, writer=1, first_seq=seq, commands=[zeros])
        runs.append(session.stub.Run.future(request, timeout=60))
    for run in runs:
        assert not run.result().results[0].HasField("error")

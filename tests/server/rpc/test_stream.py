"""A stream answers its batches once each and in order, however answers, batches and its tasks meet."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from gradwire.v1 import service_pb2
from gradwire_server.common.limits import Limits
from gradwire_server.rpc.stream import ImmediateTransport, Stream

LIMITS = Limits(max_message_bytes=1 << 20).resolved()


class Wire(ImmediateTransport):
    """A local wire that has room for every message."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    def try_write(self, message: bytes) -> bool:
        self.sent.append(service_pb2.StreamResponse.FromString(message).batch.applied_seq)
        return True

    async def write(self, message: bytes) -> None:
        self.try_write(message)


def answer(number: int) -> bytes:
    return service_pb2.RunResponse(applied_seq=number).SerializeToString()


def test_an_answer_that_the_writing_task_has_sent_is_not_sent_for_the_batch_that_came_since() -> None:
    async def sent() -> list[int]:
        loop = asyncio.get_running_loop()
        answers = [loop.create_future() for _ in range(3)]
        given = iter(answers)
        backend = SimpleNamespace(limits=LIMITS, call=lambda *_: next(given))
        front: Any = SimpleNamespace(
            backend=backend, parent_of=lambda context: "", traced=lambda *_: None, begin=lambda size: None,
            end=lambda size: None,
        )  # fmt: skip
        wire = Wire()
        stream = Stream(front, wire)  # type: ignore[arg-type]
        writing = asyncio.create_task(stream._write())
        await asyncio.sleep(0)
        stream._start(b"1", True, "")  # alone: its answer is to be sent by a callback
        stream._start(b"2", True, "")  # so the writing task is woken
        loop.call_soon(stream._start, b"3", True, "")  # when that has sent both answers
        answers[0].set_result(answer(1))
        answers[1].set_result(answer(2))
        for _ in range(3):
            await asyncio.sleep(0)
        assert wire.sent == [1, 2]
        answers[2].set_result(answer(3))
        for _ in range(3):
            await asyncio.sleep(0)
        writing.cancel()
        return wire.sent

    assert asyncio.run(sent()) == [1, 2, 3]


class Thread(Wire):
    """A wire on which the thread that computes an answer sends it itself."""

    def __init__(self, takes: bool = True) -> None:
        super().__init__()
        self.takes = takes
        self.writers: list[int] = []

    def has_sent_all(self) -> bool:
        return True

    def write_from_thread(self, message: bytes) -> bool:
        self.writers.append(threading.get_ident())
        return self.takes and self.try_write(message)


class Computing:
    """A backend whose answers a test computes in another thread."""

    limits = LIMITS

    def __init__(self) -> None:
        self.calls: list[tuple[asyncio.Future[bytes], Callable[[bytes], object] | None]] = []

    def call(self, *call: Any) -> "asyncio.Future[bytes]":
        self.calls.append((asyncio.get_running_loop().create_future(), call[-1]))
        return self.calls[-1][0]

    async def computed(self, number: int) -> None:
        """Compute an answer in a thread, without the event loop's knowledge."""
        at_once = self.calls[number - 1][1]
        if at_once is not None:
            await asyncio.get_running_loop().run_in_executor(None, at_once, answer(number))

    async def known(self, number: int) -> None:
        """Let the event loop know the answer."""
        self.calls[number - 1][0].set_result(answer(number))
        for _ in range(3):
            await asyncio.sleep(0)


def on_thread(use: Callable[[Stream, Computing], Any], wire: Wire) -> list[int]:
    """What a stream has sent on a wire after its use."""

    async def whole() -> list[int]:
        backend = Computing()
        front: Any = SimpleNamespace(
            backend=backend, parent_of=lambda context: "", traced=lambda *_: None, begin=lambda size: None,
            end=lambda size: None,
        )  # fmt: skip
        stream = Stream(front, wire)  # type: ignore[arg-type]
        writing = asyncio.create_task(stream._write())
        await asyncio.sleep(0)
        await use(stream, backend)
        assert not stream._batches
        writing.cancel()
        return wire.sent

    return asyncio.run(whole())


def test_the_thread_that_computes_an_answer_writes_it() -> None:
    async def use(stream: Stream, backend: Computing) -> None:
        for number in (1, 2):
            stream._start(b"1", True, "")
            await backend.computed(number)
            assert stream._immediate.sent[-1] == number  # type: ignore[union-attr]
            await backend.known(number)

    wire = Thread()
    assert on_thread(use, wire) == [1, 2]
    assert threading.get_ident() not in wire.writers


def test_a_batch_that_comes_before_the_event_loop_knows_of_the_last_answer_is_alone_too() -> None:
    async def use(stream: Stream, backend: Computing) -> None:
        stream._start(b"1", True, "")
        await backend.computed(1)
        stream._start(b"2", True, "")
        await backend.computed(2)
        await backend.known(1)
        await backend.known(2)

    wire = Thread()
    assert on_thread(use, wire) == [1, 2]
    assert len(wire.writers) == 2


def test_an_answer_that_a_thread_has_written_is_not_written_by_the_task_that_a_later_batch_woke() -> None:
    async def use(stream: Stream, backend: Computing) -> None:
        stream._start(b"1", True, "")
        stream._start(b"2", True, "")  # not alone: it wakes the writing task
        stream._start(b"3", True, "")
        await asyncio.sleep(0)
        await backend.computed(1)
        await backend.computed(2)
        for number in (1, 2, 3):
            await backend.known(number)

    wire = Thread()
    assert on_thread(use, wire) == [1, 2, 3]
    assert len(wire.writers) == 1


def test_the_event_loop_writes_what_a_thread_could_not() -> None:
    async def use(stream: Stream, backend: Computing) -> None:
        stream._start(b"1", True, "")
        await backend.computed(1)
        await backend.known(1)

    wire = Thread(takes=False)
    assert on_thread(use, wire) == [1]
    assert len(wire.writers) == 1


def test_without_an_answer_in_a_thread_the_event_loop_writes_it() -> None:
    async def use(stream: Stream, backend: Computing) -> None:
        stream._start(b"1", True, "")
        await backend.known(1)

    assert on_thread(use, Thread()) == [1]

"""A stream answers its batches once each and in order, however answers, batches and its tasks meet."""

import asyncio
import random
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.rpc.stream import ImmediateTransport, Stream

LIMITS = Limits(max_message_bytes=1 << 20).resolved()


class Wire(ImmediateTransport):
    """A local wire that has room for every message."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.joined: list[tuple[int, int]] = []  # batches that each message answers, and their bytes

    def try_write(self, message: bytes) -> bool:
        response = service_pb2.StreamResponse.FromString(message)
        self.sent.append(response.batch.applied_seq)
        self.joined.append((response.batches or 1, response.credit_bytes))
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
        told: list[Callable[[asyncio.Future[bytes]], None]] = []  # of each batch that no task answers

        def call(*call: Any) -> "asyncio.Future[bytes]":
            told.append(call[-1])
            return next(given)

        def known(number: int) -> None:
            answers[number].set_result(answer(number + 1))
            if told[number] is not None:
                told[number](answers[number])

        backend = SimpleNamespace(limits=LIMITS, call=call)
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
        known(0)
        known(1)
        for _ in range(3):
            await asyncio.sleep(0)
        assert wire.sent == [1, 2]
        known(2)
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
        self.calls: list[tuple[asyncio.Future[bytes], Any, Any]] = []  # with what is called in the thread, and then

    def call(self, *call: Any) -> "asyncio.Future[bytes]":
        self.calls.append((asyncio.get_running_loop().create_future(), *call[-2:]))
        return self.calls[-1][0]

    async def computed(self, number: int) -> None:
        """Compute an answer in a thread, without the event loop's knowledge."""
        at_once = self.calls[number - 1][1]
        if at_once is not None:
            await asyncio.get_running_loop().run_in_executor(None, at_once, answer(number))

    async def known(self, number: int) -> None:
        """Let the event loop know the answer."""
        future, _, then = self.calls[number - 1]
        future.set_result(answer(number))
        if then is not None:
            then(future)
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


def test_a_batch_is_finished_with_its_answer_without_a_further_pass_of_the_event_loop() -> None:
    async def use(stream: Stream, backend: Computing) -> None:
        for number in (1, 2):
            stream._start(b"1", True, "")
            if number == 1:
                await backend.computed(number)  # else the event loop writes the answer
            future, _, then = backend.calls[number - 1]
            future.set_result(answer(number))
            then(future)
            assert not stream._batches

    assert on_thread(use, Thread()) == [1, 2]


def test_a_server_whose_new_batch_settles_an_earlier_one_is_not_idle_in_between() -> None:
    active = ends = 0

    async def use(stream: Stream, backend: Computing) -> None:
        def begin(size: int) -> None:
            nonlocal active
            active += 1

        def end(size: int) -> None:
            nonlocal active, ends
            active, ends = active - 1, ends + 1
            assert active or ends == 2

        def call(*call: Any) -> "asyncio.Future[bytes]":
            made = Computing.call(backend, *call)
            if len(backend.calls) == 2:  # as the worker, that takes the answers a thread has written
                future, _, then = backend.calls[0]
                future.set_result(answer(1))
                then(future)
            return made

        front: Any = stream.front
        front.begin, front.end, front.backend.call = begin, end, call
        stream._start(b"1", True, "")
        await backend.computed(1)
        stream._start(b"2", True, "")
        assert ends == 1
        await backend.known(2)

    assert on_thread(use, Thread()) == [1, 2]
    assert (active, ends) == (0, 2)


def test_a_batch_of_a_session_that_is_gone_is_not_counted_as_being_answered() -> None:
    counts: list[int] = []

    async def use(stream: Stream, backend: Computing) -> None:
        def call(*call: Any) -> "asyncio.Future[bytes]":
            raise Refusal("SESSION_NOT_FOUND", "the session was closed")

        front: Any = stream.front
        front.begin, front.end, front.backend.call = counts.append, lambda size: counts.append(-size), call
        with pytest.raises(Refusal):
            stream._start(b"12", True, "")

    assert on_thread(use, Thread()) == []
    assert sum(counts) == 0


def test_after_its_stream_has_ended_a_thread_writes_no_answer_without_the_earlier_ones() -> None:
    async def use(stream: Stream, backend: Computing) -> None:
        for body in (b"1", b"2"):
            stream._start(body, True, "")
        while stream._batches:  # as the stream does at its end
            stream._batches[0].answer.cancel()
            stream._finish()
        await backend.computed(2)

    wire = Thread()
    assert on_thread(use, wire) == []
    assert not wire.writers


def test_an_answer_that_a_thread_has_written_is_not_written_by_the_task_that_a_later_batch_woke() -> None:
    async def use(stream: Stream, backend: Computing) -> None:
        stream._start(b"1", True, "")
        stream._start(b"2", False, "")  # an acknowledgement: it wakes the writing task
        stream._start(b"3", True, "")
        await asyncio.sleep(0)
        for number in (1, 3):
            await backend.computed(number)
        for number in (1, 2, 3):
            await backend.known(number)

    wire = Thread()
    assert on_thread(use, wire) == [1, 3]
    assert len(wire.writers) == 1


def test_a_thread_writes_no_answer_before_an_earlier_one_that_the_event_loop_writes() -> None:
    async def use(stream: Stream, backend: Computing) -> None:
        stream._start(b"1", True, "")
        stream._start(b"2", True, "")
        await backend.computed(2)
        await backend.known(2)
        await backend.known(1)

    wire = Thread()
    assert on_thread(use, wire) == [1, 2]
    assert not wire.writers


def test_an_answer_without_results_is_joined_to_that_of_the_batch_that_has_come() -> None:
    async def use(stream: Stream, backend: Computing) -> None:
        stream.joins_answers = True
        for _ in range(6):
            stream._start(b"12", True, "")
        for number in range(1, 7):
            await backend.computed(number)
        for number in range(1, 7):
            await backend.known(number)

    wire = Thread()
    assert on_thread(use, wire) == [4, 6]
    assert wire.joined == [(4, 8), (2, 4)]
    assert len(wire.writers) == 2


@pytest.mark.parametrize("seed", range(60))
def test_every_batch_is_answered_once_and_in_order_however_answers_and_batches_meet(seed: int) -> None:
    """Batches of all kinds; answers that a thread writes, cannot write or never gets; the event loop late or early."""
    draw = random.Random(seed)
    kinds = [draw.random() < 0.85 for _ in range(30)]

    async def use(stream: Stream, backend: Computing) -> None:
        stream.joins_answers = draw.random() < 0.7
        threads = 1.0 if draw.random() < 0.4 else 0.6
        known = computed = started = 0
        while known < len(kinds):
            step = draw.random()
            wire.takes = draw.random() < 0.9
            if step < 0.4 and started < len(kinds):
                stream._start(b"12", kinds[started], "")
                started += 1
            elif step < 0.7 and computed < started:
                computed += 1
                if draw.random() < threads:
                    await backend.computed(computed)
            elif known < computed:
                known += 1
                await backend.known(known)

    wire = Thread()
    on_thread(use, wire)
    answered = [number for number, kind in enumerate(kinds, 1) if kind]
    assert sum(batches for batches, _ in wire.joined) == len(answered)
    assert sum(size for _, size in wire.joined) == 2 * len(answered)
    ends = [sum(batches for batches, _ in wire.joined[: place + 1]) for place in range(len(wire.joined))]
    assert wire.sent == [answered[end - 1] for end in ends]


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

"""A stream answers its batches once each and in order, however answers, batches and its tasks meet."""

import asyncio
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

"""The control pipe of a worker process: its frames find what they answer."""

import asyncio
import socket
from typing import Any

import pytest

from gradwire_server.common.errors import Refusal
from gradwire_server.worker.frames import BUFFER_FREE, QUERY, REFUSAL, RESULT, packed
from gradwire_server.worker.pipe import HEAD, head
from gradwire_server.worker_pool.bulk_transfer import OpenUpload
from gradwire_server.worker_pool.control_pipe import ControlPipe


class Process:
    """The other end of a control pipe."""

    def __init__(self) -> None:
        self.pipe = ControlPipe()
        ours, self.sock = socket.socketpair()
        self.slots_freed: list[int] = []
        self.lost = asyncio.Event()
        self.pipe.connect(ours, self.slots_freed.append, self.lost.set)

    def request(self, body: bytes) -> "asyncio.Task[Any]":
        return asyncio.create_task(self.pipe.request(QUERY, 3, self.pipe.ticket(), body))

    async def read(self) -> tuple[int, int, int, bytes]:
        """Kind, number, ticket and body of the next frame."""
        await asyncio.sleep(0)
        size, kind, number, ticket, *_ = HEAD.unpack(self.sock.recv(HEAD.size))
        return kind, number, ticket, self.sock.recv(size) if size else b""

    def send(self, kind: int, number: int, ticket: int, body: bytes = b"") -> None:
        self.sock.sendall(head(len(body), kind, number, ticket) + body)


def test_answers_find_their_questions_in_any_order() -> None:
    async def play() -> list[bytes]:
        process = Process()
        questions = [process.request(body) for body in (b"one", b"two")]
        frames = [await process.read() for _ in questions]
        assert [(kind, number, body) for kind, number, _, body in frames] == [(QUERY, 3, b"one"), (QUERY, 3, b"two")]
        for _, _, ticket, body in reversed(frames):
            process.send(RESULT, 0, ticket, body + b"!")
        answers = [frame.body for frame in await asyncio.gather(*questions)]
        assert not process.pipe.pending
        process.pipe.close()
        return answers

    assert asyncio.run(play()) == [b"one!", b"two!"]


def test_refusals_reach_questions_and_uploads() -> None:
    async def play() -> None:
        process = Process()
        entry: Any = None
        upload: OpenUpload[Any] = OpenUpload(3, "t", 1, 0, entry, 0)
        ticket = process.pipe.ticket()
        process.pipe.pending[ticket] = upload
        question = process.request(b"")
        _, _, asked, _ = await process.read()
        process.send(BUFFER_FREE, 5, 0)
        process.send(REFUSAL, 0, ticket, packed(Refusal("PAYLOAD_SIZE", "too long")))
        process.send(REFUSAL, 0, asked, packed(Refusal("TRANSFER_NOT_FOUND", "gone")))
        with pytest.raises(Refusal, match="gone"):
            await question
        assert upload.failure is not None
        assert (upload.failure.reason, process.slots_freed) == ("PAYLOAD_SIZE", [5])
        process.pipe.close()

    asyncio.run(play())


def test_what_is_asked_fails_with_the_process() -> None:
    async def play() -> None:
        process = Process()
        entry: Any = None
        upload: OpenUpload[Any] = OpenUpload(3, "t", 1, 0, entry, 0, ticket=process.pipe.ticket())
        process.pipe.pending[upload.ticket] = upload
        question = process.request(b"")
        await process.read()
        process.sock.close()
        await asyncio.wait_for(process.lost.wait(), 10)
        process.pipe.fail(Refusal("SESSION_NOT_FOUND", "it ended"))
        with pytest.raises(Refusal, match="it ended"):
            await question
        assert upload.failure is not None
        assert upload.ticket == 0  # the next process does not know it
        assert not process.pipe.pending

    asyncio.run(play())


def test_a_question_on_a_closed_pipe_is_refused() -> None:
    async def play() -> str:
        process = Process()
        process.pipe.close()
        with pytest.raises(Refusal) as refusal:
            await asyncio.wait_for(process.request(b""), 10)
        return refusal.value.reason

    assert asyncio.run(play()) == "UNAVAILABLE"

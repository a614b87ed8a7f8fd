"""The control pipe: a worker process's socket for all that must not wait for its computations."""

import asyncio
import itertools
import json
import socket
from collections.abc import Callable
from typing import Any

from gradwire_server.common.errors import Refusal
from gradwire_server.worker.frames import BUFFER_FREE, REFUSAL, unpacked
from gradwire_server.worker.pipe import Frame, head
from gradwire_server.worker_pool.bulk_transfer import OpenUpload
from gradwire_server.worker_pool.front_pipe import FrontPipe


class ControlPipe:
    """The front's end of the pipe. A ticket finds the question, or the upload, that a frame answers."""

    def __init__(self) -> None:
        self.pending: dict[int, asyncio.Future[Frame] | OpenUpload[Any]] = {}  # by ticket
        self._tickets = itertools.count(1)
        self._pipe: FrontPipe
        self._buffer_freed: Callable[[int], None]

    def connect(self, sock: socket.socket, buffer_freed: Callable[[int], None], lost: Callable[[], None]) -> None:
        """Use a new process's pipe. Calls `buffer_freed` with each buffer that was read, `lost` at the pipe's end."""
        self._buffer_freed = buffer_freed
        self._pipe = FrontPipe(sock, self._received, lost)

    def drain(self) -> None:
        """Handle the frames that have arrived."""
        self._pipe.drain()

    def close(self) -> None:
        """Close the pipe."""
        self._pipe.close()

    def ticket(self) -> int:
        """A ticket that no frame has had."""
        return next(self._tickets)

    def send(self, kind: int, number: int, ticket: int = 0, body: bytes = b"") -> None:
        """Send a frame that is not answered, about session `number`."""
        self._pipe.send(head(len(body), kind, number, ticket), body)

    async def request(self, kind: int, number: int, ticket: int, body: bytes = b"") -> Frame:
        """Send a frame and wait for the answer. Raises Refusal: UNAVAILABLE if the pipe is closed, and the answer."""
        if self._pipe.closed:
            raise Refusal("UNAVAILABLE", "the worker process has ended; try again")
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self.pending[ticket] = future
        try:
            self.send(kind, number, ticket, body)
            return await future
        finally:
            self.pending.pop(ticket, None)

    async def request_json(self, kind: int, number: int, **fields: Any) -> Frame:
        """Ask with a JSON object. Raises Refusal."""
        return await self.request(kind, number, self.ticket(), json.dumps(fields).encode())

    def fail(self, failure: Refusal) -> None:
        """Fail all that was asked, and all uploads: the process has ended. The next one does not know their tickets."""
        for pending in self.pending.values():
            if isinstance(pending, OpenUpload):
                pending.failure, pending.ticket = failure, 0
            elif not pending.done():
                pending.set_exception(failure)
        self.pending.clear()

    def _received(self, frame: Frame) -> None:
        if frame.kind == BUFFER_FREE:
            self._buffer_freed(frame.number)
            return
        pending = self.pending.get(frame.ticket)
        if pending is None:
            return
        if isinstance(pending, OpenUpload):
            pending.failure = unpacked(frame.body)
        elif not pending.done():
            if frame.kind == REFUSAL:
                pending.set_exception(unpacked(frame.body))
            else:
                pending.set_result(frame)

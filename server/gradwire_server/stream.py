"""A stream: one writer's batches in, their answers out in the same order, on one long call.

Reading, computing and writing overlap: a batch goes to the backend as soon as it is read, and its answer waits only
for the answers before it. What a stream holds is bounded twice. Its client sends no more than the credit it was
granted, and one that does waits in its own transport, since nothing is read beyond that; and nothing more is handed
to the backend while a slow reader has not taken the answers that are ready.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from gradwire.v1 import service_pb2
from gradwire_server.errors import Refusal, refusal_of
from gradwire_server.limits import MIB, RESPONSE_BYTES
from gradwire_server.wire import bytes_field, peek_field, varint_field

if TYPE_CHECKING:
    from gradwire_server.service import Front

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
# Batches with the backend at once: enough that it never waits for the front.
_MOST_AT_ONCE = 16
_LEAST_WINDOW = 16 * MIB
_BATCH_IN = service_pb2.StreamRequest.BATCH_FIELD_NUMBER
_BATCH_OUT = service_pb2.StreamResponse.BATCH_FIELD_NUMBER
_CREDIT = service_pb2.StreamResponse.CREDIT_BYTES_FIELD_NUMBER
_WRITER = service_pb2.RunRequest.WRITER_FIELD_NUMBER
_SMALL = 1 << 16  # bytes of a message that is parsed on the event loop


class Stream:
    """An open stream. `serve` returns when the client is done and raises why it ended otherwise."""

    def __init__(self, front: "Front", context: Context) -> None:
        self.front = front
        self.backend = front.backend
        self.context = context
        self.window = max(_LEAST_WINDOW, self.backend.limits.max_message_bytes)
        self.session_id = ""
        self.writer = 0
        self.attempt = 0
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room = asyncio.Event()
        self._last: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._held = 0  # bytes of batches that are not answered
        self._unread = 0  # bytes of answers that the client has not taken

    async def serve(self) -> None:
        """Attach, then run batches until the client half-closes or the stream is ended. Raises Refusal."""
        await self._attach()
        reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait((reading, self._ended), return_when=asyncio.FIRST_COMPLETED)
            while not self._ended.done():
                await reading
                if not self._tasks:
                    return
                await asyncio.wait((self._ended, *self._tasks), return_when=asyncio.FIRST_COMPLETED)
            self._ended.result()
        finally:
            self.front.streams.remove(self)
            for task in (reading, *self._tasks):
                task.cancel()
            if not self._ended.cancel():
                self._ended.exception()  # looked at, whoever was told

    def end(self, error: Exception) -> None:
        """End it from outside or from one of its batches; the client is told why."""
        if not self._ended.done():
            self._ended.set_exception(error)

    async def _attach(self) -> None:
        raw = await self.context.read()
        message = None
        if raw is not grpc.aio.EOF and len(raw) <= _SMALL:
            with suppress(DecodeError):
                message = service_pb2.StreamRequest.FromString(raw)
        if message is None or message.WhichOneof("request") != "attach":
            raise Refusal("MALFORMED", "a stream begins with a message that has attach")
        attach = message.attach
        self.session_id, self.writer, self.attempt = attach.session_id, attach.writer, attach.attempt
        # An empty batch has its place in the session's order: what it answers is true of all that was sent before.
        run = service_pb2.RunRequest(writer=attach.writer, epoch=attach.epoch, acknowledged_seq=attach.acknowledged_seq)
        self.front.streams.add(self)
        try:
            answer = service_pb2.RunResponse.FromString(
                await self.backend.call("Run", self.session_id, run.SerializeToString(), None)
            )
            attached = service_pb2.StreamAttached(
                applied_seq=answer.applied_seq, durable_seq=answer.durable_seq, epoch=answer.epoch
            )
            response = service_pb2.StreamResponse(attached=attached, credit_bytes=self.window)
            await self.context.write(response.SerializeToString())
        except BaseException:
            self.front.streams.remove(self)
            raise

    async def _read(self) -> None:
        """Hand batches over as they come, while there is room for them and their answers."""
        read = self.context.read
        while (raw := await read()) is not grpc.aio.EOF:
            body = peek_field(raw, _BATCH_IN)
            answered = True
            if body is None:
                body, answered = await self._parsed(raw)
            self._start(body, answered)
            while (
                self._held > self.window
                or len(self._tasks) >= _MOST_AT_ONCE
                or self._unread > RESPONSE_BYTES
                or self.front.crowded
            ):
                self._room.clear()
                await self._room.wait()

    async def _parsed(self, raw: bytes) -> tuple[bytes, bool]:
        """The RunRequest of a message whose bytes do not show it at once, and whether it is to be answered."""
        try:
            if len(raw) <= _SMALL:
                message = service_pb2.StreamRequest.FromString(raw)
            else:
                parse = service_pb2.StreamRequest.FromString
                message = await asyncio.get_running_loop().run_in_executor(None, parse, raw)
        except DecodeError:
            raise Refusal("MALFORMED", "the message is no StreamRequest") from None
        which = message.WhichOneof("request")
        if which == "batch":
            return message.batch.SerializeToString(), True
        if which == "acknowledge":
            run = service_pb2.RunRequest(acknowledged_seq=message.acknowledge.acknowledged_seq)
            return run.SerializeToString(), False
        raise Refusal("MALFORMED", "after attach, a stream's messages have batch or acknowledge")

    def _start(self, body: bytes, answered: bool) -> None:
        size = len(body)
        cap = self.backend.limits.max_message_bytes
        if size > cap:
            raise Refusal("MESSAGE_TOO_LARGE", f"a batch has at most {cap} bytes, not {size}", limit=cap)
        self.front.begin(size)
        self._held += size
        task = asyncio.create_task(self._answer(body, self._last, answered))
        self._last = task
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._finished(done, size))

    def _finished(self, task: "asyncio.Task[None]", size: int) -> None:
        self.front.end(size)
        self._tasks.discard(task)
        self._held -= size
        self._room.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self.end(error if isinstance(error, Exception) else refusal_of(error, "Stream"))

    async def _answer(self, body: bytes, before: "asyncio.Task[None] | None", answered: bool) -> None:
        """Let the backend run a batch and write its answer after the one before."""
        try:
            self.front.admit("Stream")
        except Refusal:
            if before is not None:
                await asyncio.wait((before,))
            raise
        run = varint_field(_WRITER, self.writer) + body
        answer = await self.backend.call("Run", self.session_id, run, None)
        if not answered:
            return
        size = len(answer)
        self._unread += size
        try:
            if before is not None and not before.done():
                await asyncio.wait((before,))
            if not self._ended.done():
                credit = varint_field(_CREDIT, len(body))
                await self.context.write(b"".join((bytes_field(_BATCH_OUT, size), answer, credit)))
        finally:
            self._unread -= size


class Streams:
    """The streams that are open: one per writer, since a new one takes over."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], Stream] = {}

    def add(self, stream: Stream) -> None:
        """Let a stream be its writer's; the one before ends. Raises Refusal if that is the newer one."""
        key = (stream.session_id, stream.writer)
        before = self._open.get(key)
        taken = Refusal("STREAM_TAKEN", f"another stream of writer {stream.writer} has taken over")
        if before is not None:
            if before.attempt > stream.attempt:
                raise taken
            before.end(taken)
        self._open[key] = stream

    def remove(self, stream: Stream) -> None:
        """A stream has ended."""
        key = (stream.session_id, stream.writer)
        if self._open.get(key) is stream:
            del self._open[key]

    def end(self, error: Exception) -> None:
        """End them all."""
        for stream in list(self._open.values()):
            stream.end(error)

    def wake(self) -> None:
        """There is room again for what waited."""
        for stream in self._open.values():
            stream._room.set()

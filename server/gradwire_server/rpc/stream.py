"""Stream: receives one writer's batches and sends their answers in the same order, on one long call.

Reading, computing and writing overlap. One task reads batches and submits them to the backend. Another task writes
their answers. Two bounds limit what a stream holds. The client sends no more than its credit; the server does not read
beyond it, so excess bytes wait in the client's transport. No batch is submitted while more than RESPONSE_BYTES of
ready answers wait for a slow reader.

Waking a task costs about as much as a small batch. So an `ImmediateTransport` bypasses both tasks if they have nothing
under way. It submits a batch on arrival and writes its answer as soon as that is ready. A computing thread of this
process writes the answers itself, since waking the event loop costs that much again. It joins an answer without results
to that of the next batch, if that has come.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import grpc
from google.protobuf.message import DecodeError

from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import MIB, RESPONSE_BYTES
from gradwire_server.common.pipelined_writer import abandon
from gradwire_server.common.protobuf_peek import bytes_field, peek_field, peek_parent, varint_field
from gradwire_server.common.timings import REQUEST_TIMINGS
from gradwire_server.registry.interface import SessionBackend

if TYPE_CHECKING:
    from gradwire_server.rpc.traces import TracedCall


class StreamTransport(Protocol):
    """Transport of a stream's messages: gRPC's context, or a local connection (local_streams.py)."""

    async def read(self) -> Any:
        """Read the next message; grpc.aio.EOF after the last."""

    async def write(self, message: bytes) -> None:
        """Send a message, once there is room."""

    def invocation_metadata(self) -> Any:
        """The call's metadata: pairs of key and value."""


class StreamHost(Protocol):
    """What streams need of the service (service.py): admission, counts of unanswered bytes, traces."""

    backend: SessionBackend
    streams: "Streams"
    draining: bool

    @property
    def overloaded(self) -> bool:
        """Whether unanswered requests exceed their bytes, so streams are not read."""

    def admit(self, method: str, session_id: str | None = None) -> None:
        """Check that a call may begin. Raises Refusal: UNAVAILABLE."""

    def begin(self, size: int = 0) -> None:
        """Count a batch of `size` bytes as being answered."""

    def end(self, size: int = 0) -> None:
        """Count a batch of `size` bytes as answered."""

    def parent_of(self, context: StreamTransport, /) -> str:
        """The call's traceparent; empty without one."""

    def traced(self, parent: str, method: str, session_id: str) -> "TracedCall | None":
        """Begin a traced call; None without a traceparent."""

    async def tracing(self, traced: "TracedCall", answer: Awaitable[bytes]) -> bytes:
        """Await a call's answer, and record the spans."""


class ImmediateTransport:
    """A wire that can deliver and send messages without waking a task."""

    #: Called with each message that arrives while the stream awaits `read`; whether it took the message.
    take: Callable[[bytes], bool] | None = None

    def try_write(self, message: bytes) -> bool:
        """Send a message if there is room; whether there was."""
        raise NotImplementedError

    def has_sent_all(self) -> bool:
        """Whether `write_from_thread` may be called before the next message is written."""
        return False

    def write_from_thread(self, message: bytes) -> bool:
        """Send a message from any thread; whether it was sent. The event loop writes none meanwhile."""
        raise NotImplementedError


# Most batches submitted at once; enough that the backend never waits for the front.
_MOST_AT_ONCE = 16
_LEAST_WINDOW = 16 * MIB
# Deadline for the attach message.
_ATTACH_SECONDS = 30.0
_BATCH_IN = service_pb2.StreamRequest.BATCH_FIELD_NUMBER
_BATCH_OUT = service_pb2.StreamResponse.BATCH_FIELD_NUMBER
_BATCHES = service_pb2.StreamResponse.BATCHES_FIELD_NUMBER
_CREDIT = service_pb2.StreamResponse.CREDIT_BYTES_FIELD_NUMBER
_PARENT = service_pb2.StreamRequest.TRACEPARENT_FIELD_NUMBER
_PARENT_KEY = bytes_field(_PARENT, 0)[:-1]
_WRITER = service_pb2.RunRequest.WRITER_FIELD_NUMBER
# Most batches that one message answers; few enough that the client never waits for a finished batch.
_MOST_JOINED = 4
_NO_RESULTS = 40  # most bytes of an answer without results
_SMALL = 1 << 16  # most bytes of a message that is parsed on the event loop


@dataclass(slots=True)
class Batch:
    """A submitted batch: its answer, its bytes, whether the client gets the answer, and whether that was written.

    A computing thread may write the answers of `direct` batches, in their order: none whose `previous` is not written.
    An answer that is `joined` to that of the `following` batch counts as written.
    """

    answer: "asyncio.Future[bytes]" = field(init=False)
    size: int
    answered: bool
    traced: "TracedCall | None" = None
    written: bool = False
    direct: bool = False
    previous: "Batch | None" = None  # if it was unfinished
    following: "Batch | None" = None  # if that is direct
    joined: int = 0  # earlier batches that its answer answers too
    joined_size: int = 0  # their bytes
    finished: bool = False

    def message(self, answer: bytes) -> bytes:
        """The message of its answer."""
        return _message(answer, self.size + self.joined_size, 1 + self.joined)

    def join(self, answer: bytes) -> bool:
        """Let the following batch's answer answer this one, too, if this one has no results; whether it does."""
        following = self.following if 1 + self.joined < _MOST_JOINED else None
        if following is None or len(answer) > _NO_RESULTS or not _is_empty(answer):
            return False
        following.joined, following.joined_size = 1 + self.joined, self.size + self.joined_size
        return True

    def ready(self) -> int:
        """Bytes of the answer, if it is ready to be written."""
        answer = self.answer
        return len(answer.result()) if answer.done() and not answer.cancelled() and not answer.exception() else 0


class Stream:
    """An open stream. `serve` returns when the client is done, and raises if the stream ends otherwise."""

    def __init__(self, front: StreamHost, context: StreamTransport) -> None:
        self.front = front
        self.backend = front.backend
        self.context = context
        self.window = max(_LEAST_WINDOW, self.backend.limits.max_message_bytes)
        self.session_id = ""
        self.writer = 0
        self._writer_field = b""  # which precedes each of its batches
        self.attempt = 0
        self.joins_answers = False  # whether one message may answer several batches
        self._parent = front.parent_of(context)
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._batches: deque[Batch] = deque()  # unanswered, oldest first
        self._unanswered_bytes = 0  # their bytes
        self._room = asyncio.Event()  # set when an answer was written
        self._work = asyncio.Event()  # set while the writing task handles the batches
        self._work.set()
        self._sending = False  # gRPC is sending a message
        self._over = False
        self._immediate = context if isinstance(context, ImmediateTransport) else None

    async def serve(self) -> None:
        """Attach, then run batches until the client half-closes or `end` is called. Raises Refusal."""
        await self._attach()
        reading, writing = asyncio.create_task(self._read()), asyncio.create_task(self._write())
        if self._immediate is not None:
            self._immediate.take = self._take
        try:
            await asyncio.wait((reading, writing, self._ended), return_when=asyncio.FIRST_COMPLETED)
            for each in (self._ended, writing, reading):
                if each.done():
                    each.result()
        finally:
            if self._immediate is not None:
                self._immediate.take = None
            self._remove()
            self._over = True
            reading.cancel()
            while self._batches:
                self._batches[0].answer.cancel()
                self._finish()
            left = [self._ended, reading]
            if self._sending:
                abandon(writing)
            else:
                left.append(writing)
            for each in left:
                if not each.cancel() and not each.cancelled():
                    each.exception()  # retrieved, so asyncio logs nothing

    def _remove(self) -> None:
        self.front.streams.remove(self)
        self.backend.stream_closed(self.session_id)

    def end(self, error: Exception) -> None:
        """End the stream with an error, which the client gets as the status."""
        if not self._ended.done():
            self._ended.set_exception(error)
            self._ended.exception()  # retrieved, so asyncio logs nothing if the stream is still attaching

    async def _attach(self) -> None:
        try:
            raw = await asyncio.wait_for(self.context.read(), _ATTACH_SECONDS)
        except asyncio.TimeoutError:
            raise Refusal("DEADLINE_EXCEEDED", f"a stream must attach within {_ATTACH_SECONDS} s") from None
        message = None
        if raw is not grpc.aio.EOF and len(raw) <= _SMALL:
            with suppress(DecodeError):
                message = service_pb2.StreamRequest.FromString(raw)
        if message is None or message.WhichOneof("request") != "attach":
            raise Refusal("MALFORMED", "a stream begins with a message that has attach")
        attach = message.attach
        self.session_id, self.writer, self.attempt = attach.session_id, attach.writer, attach.attempt
        self._writer_field = varint_field(_WRITER, attach.writer)
        self.joins_answers = attach.joined_answers
        self.front.admit("Stream", self.session_id)
        # An empty batch takes its place in the session's order, so its answer covers all that was sent before.
        run = service_pb2.RunRequest(writer=attach.writer, epoch=attach.epoch, acknowledged_seq=attach.acknowledged_seq)
        await self.backend.keep_alive(self.session_id)  # checks the owner, before another stream is ended
        self.front.streams.add(self)
        self.backend.stream_opened(self.session_id)
        try:
            answer = service_pb2.RunResponse.FromString(
                await self.backend.call("Run", self.session_id, run.SerializeToString(), None)
            )
            attached = service_pb2.StreamAttached(
                applied_seq=answer.applied_seq,
                durable_seq=answer.durable_seq,
                epoch=answer.epoch,
                local_stream=self.backend.local_stream,
            )
            response = service_pb2.StreamResponse(attached=attached, credit_bytes=self.window)
            await self._send(response.SerializeToString())
        except BaseException:
            self._remove()
            raise

    async def _read(self) -> None:
        """Submit batches as they arrive, while there is room for them and their answers."""
        read = self.context.read
        while (raw := await read()) is not grpc.aio.EOF:
            while self._full():
                await self._wait_for_room()
            while self.backend.is_full(self.session_id):
                self.front.streams.paused_streams.add(self)
                await self._wait_for_room()
            parent, answered = self._parent, True
            if raw.startswith(_PARENT_KEY):
                parent, raw = peek_parent(raw, _PARENT)
            body = peek_field(raw, _BATCH_IN)
            if body is None:
                body, answered, batch_parent = await self._parsed(raw)
                parent = batch_parent or parent
            if self.front.draining:
                await self._drained()
                self.front.admit("Stream", self.session_id)
            self._start(body, answered, parent)
        await self._drained()

    def _take(self, raw: bytes) -> bool:
        """Submit a batch on arrival, if it needs neither waiting nor parsing; whether the message was taken."""
        if self._ended.done():
            return True  # the stream has ended: drop the message
        body = None if raw.startswith(_PARENT_KEY) else peek_field(raw, _BATCH_IN)
        if body is None or self.front.draining or self._full() or self.backend.is_full(self.session_id):
            return False
        try:
            self._start(body, True, self._parent)
        except Exception as error:  # noqa: BLE001 - what the stream ends with
            self.end(error)
        return True

    def _full(self) -> bool:
        batches = self._batches
        return (
            self._unanswered_bytes > self.window
            or len(batches) >= _MOST_AT_ONCE
            or self.front.overloaded
            or (bool(batches) and sum([batch.ready() for batch in batches if not batch.written]) > RESPONSE_BYTES)
        )

    async def _wait_for_room(self) -> None:
        self._room.clear()
        await self._room.wait()

    async def _drained(self) -> None:
        """Wait until all answers are written."""
        while self._batches:
            await self._wait_for_room()

    async def _parsed(self, raw: bytes) -> tuple[bytes, bool, str]:
        """Parse a message: the RunRequest, whether to answer it, and its traceparent. Raises Refusal: MALFORMED."""
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
            return message.batch.SerializeToString(), True, message.traceparent
        if which == "acknowledge":
            run = service_pb2.RunRequest(acknowledged_seq=message.acknowledge.acknowledged_seq)
            return run.SerializeToString(), False, ""
        raise Refusal("MALFORMED", "after attach, a stream's messages have batch or acknowledge")

    def _start(self, body: bytes, answered: bool, parent: str) -> None:
        size = len(body)
        cap = self.backend.limits.max_message_bytes
        if size > cap:
            raise Refusal("MESSAGE_TOO_LARGE", f"a batch has at most {cap} bytes, not {size}", limit=cap)
        traced = self.front.traced(parent, "Run", self.session_id)
        if traced is not None:
            body += REQUEST_TIMINGS
        batch = Batch(size, answered, traced)
        immediate = self._immediate if answered and traced is None and not self._work.is_set() else None
        at_once = None
        if immediate is not None:
            # Of earlier batches, the event loop may not know yet that their answers were written.
            batch.previous = self._batches[-1] if self._batches else None
            batch.direct = immediate.has_sent_all() if batch.previous is None else batch.previous.direct
        if immediate is not None and batch.direct:
            at_once = partial(_write_from_thread, immediate, batch)
            if batch.previous is not None and self.joins_answers:
                batch.previous.following = batch
        then = None if immediate is None else partial(self._answered, batch)
        self.front.begin(size)  # before the call, which may end others: meanwhile the front is not idle
        try:
            batch.answer = self.backend.call("Run", self.session_id, self._writer_field + body, None, at_once, then)
        except BaseException:  # a Refusal if the session is gone
            self.front.end(size)
            raise
        self._unanswered_bytes += size
        self._batches.append(batch)
        if immediate is None:
            self._work.set()

    def _answered(self, batch: Batch, answer: "asyncio.Future[bytes]") -> None:
        """Write the answer of a batch that came while the writing task had nothing to do, or leave it to that task.

        That task may have written it before this is called, and another batch may have come since.
        """
        if self._work.is_set() or batch.finished:
            return
        is_next = bool(self._batches) and self._batches[0] is batch
        succeeded = is_next and not answer.cancelled() and answer.exception() is None
        if succeeded and (batch.written or batch.join(answer.result()) or self._write_at_once(batch)):
            self._finish()
        else:
            self._work.set()

    def _write_at_once(self, batch: Batch) -> bool:
        assert self._immediate is not None
        return self._immediate.try_write(batch.message(batch.answer.result()))

    async def _write(self) -> None:
        """Write answers in the order of their batches, and join those that may share a message."""
        batches, send = self._batches, self._send
        joined = size = 0
        while True:
            while not batches:
                self._work.clear()
                await self._work.wait()
            batch = batches[0]
            answer = (
                await batch.answer if batch.traced is None else await self.front.tracing(batch.traced, batch.answer)
            )
            if batch.answered and not batch.written:
                joined, size = joined + 1 + batch.joined, size + batch.size + batch.joined_size
                if joined >= _MOST_JOINED or not self._can_wait(answer):
                    await send(_message(answer, size, joined))
                    if self._over:
                        return
                    joined = size = 0
            self._finish()

    async def _send(self, message: bytes) -> None:
        self._sending = True
        await self.context.write(message)
        self._sending = False

    def _can_wait(self, answer: bytes) -> bool:
        """Whether the next batch's answer implies all that the oldest batch's answer says."""
        return (
            self.joins_answers
            and len(answer) <= _NO_RESULTS
            and any(batch.answered for batch in islice(self._batches, 1, None))
            and _is_empty(answer)
        )

    def _finish(self) -> None:
        """Remove the oldest batch: it is answered, or the stream has ended."""
        batch = self._batches.popleft()
        size = batch.size
        batch.finished, batch.previous = True, None
        self._unanswered_bytes -= size
        self.front.end(size)
        self._room.set()


def _message(answer: bytes, size: int, joined: int = 1) -> bytes:
    """A StreamResponse: the answer to `joined` batches, which returns their `size` bytes as credit."""
    more = varint_field(_CREDIT, size) + (varint_field(_BATCHES, joined) if joined > 1 else b"")
    return b"".join((bytes_field(_BATCH_OUT, len(answer)), answer, more))


def _write_from_thread(immediate: ImmediateTransport, batch: Batch, answer: bytes) -> bool:
    """Write the answer of a direct batch, in the thread that has computed it; whether it was written or joined."""
    previous, batch.previous = batch.previous, None
    if previous is not None and not previous.written:
        return False  # the event loop writes that answer, and then this one
    if batch.finished:
        return False  # the stream has ended, perhaps without the answers before
    batch.written = batch.join(answer) or immediate.write_from_thread(batch.message(answer))
    return batch.written


def _is_empty(answer: bytes) -> bool:
    """Whether the answer to a batch has no results."""
    response = service_pb2.RunResponse.FromString(answer)
    return not response.results and not response.op_times and not response.HasField("timings")


class Streams:
    """The open streams, one per writer: a new one takes over."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], Stream] = {}
        self.paused_streams: set[Stream] = set()  # not read: their sessions have too many unanswered bytes

    def add(self, stream: Stream) -> None:
        """Make a stream its writer's, and end the previous one. Raises Refusal: STREAM_TAKEN, if that is newer."""
        key = (stream.session_id, stream.writer)
        before = self._open.get(key)
        taken = Refusal("STREAM_TAKEN", f"another stream of writer {stream.writer} has taken over")
        if before is not None:
            if before.attempt > stream.attempt:
                raise taken
            before.end(taken)
        self._open[key] = stream

    def remove(self, stream: Stream) -> None:
        """Remove a stream that has ended."""
        self.paused_streams.discard(stream)
        key = (stream.session_id, stream.writer)
        if self._open.get(key) is stream:
            del self._open[key]

    def __len__(self) -> int:
        return len(self._open)

    def end(self, error: Exception) -> None:
        """End all streams with an error."""
        for stream in list(self._open.values()):
            stream.end(error)

    def wake_paused(self) -> None:
        """Let the paused streams check for room: a request was answered."""
        if not self.paused_streams:
            return
        paused_streams, self.paused_streams = self.paused_streams, set()
        for stream in paused_streams:
            stream._room.set()

    def wake(self) -> None:
        """Let all streams check for room."""
        for stream in self._open.values():
            stream._room.set()

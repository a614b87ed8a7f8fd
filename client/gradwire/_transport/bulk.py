"""Bulk: transfers large tensors in chunks; a broken transfer resumes where the connection ended.

Chunks are serialized by hand, because protobuf would copy each chunk twice. An upload reads from the array itself, and
a download writes into the result's memory. The client never holds a tensor twice.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeAlias

import grpc
import numpy as np

from gradwire._base.errors import GradwireError, make_error
from gradwire._base.signals import deliver
from gradwire._transport.shared import SHARED_FROM, NotShared, SharedTransfer, may_share
from gradwire._transport.transport import SIGNAL_CHECK_SECONDS, StreamInterrupted, Transport, result_of, stream_messages
from gradwire._transport.wire import varint
from gradwire.v1 import errors_pb2, service_pb2

#: Called with "upload" or "download", the bytes transferred, and the total bytes.
Callback: TypeAlias = Callable[[str, int, int], object]

_CHUNK_BYTES = 1 << 20
_LEAST_CHUNK_BYTES = 4 << 10  # chunks shrink to this size while calls break before one has arrived
_WAITS = (0.05, 0.1, 0.2, 0.4, 0.8)  # seconds between attempts without progress
_LONGEST_WAIT = 1.6
_KEPT_BYTES = 4 << 20
_DATA_TAG = b"\x7a"  # UploadRequest.data and DownloadResponse.data = 15
_OFFSET_TAG = b"\x08"  # DownloadResponse.offset = 1
_CALLBACK: ContextVar[Callback | None] = ContextVar("gradwire_progress", default=None)


@contextlib.contextmanager
def progress(callback: Callback | None = None) -> Iterator[None]:
    """Report the progress of large transfers inside the block: call `callback`, or draw a bar without one.

    Bars need tqdm. Raises ImportError without it.

    `callback("upload" or "download", bytes transferred, total bytes)` is called in the thread that waits for the
    transfer, about once per chunk. At the last call both counts are equal. An exception in it ends the transfer:

        with gradwire.progress(lambda kind, done, total: print(kind, done, total)):
            x = gradwire.tensor(array)
            y = x.numpy()
    """
    bars = None
    if callback is None:
        from gradwire._transport.progress_bars import Bars

        bars = Bars()
        callback = bars.show
    token = _CALLBACK.set(callback)
    try:
        yield
    finally:
        _CALLBACK.reset(token)
        if bars is not None:
            bars.close()


class Retries:
    """Retries of a broken transfer: until the transport's patience passes without progress."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.renew()

    def renew(self) -> None:
        """Restart the waits and the deadline after progress."""
        self._address = self._transport.address
        self._waits = iter((*_WAITS, _LONGEST_WAIT))
        self._until = time.monotonic() + self._transport.patience

    def wait(self, error: Exception) -> None:
        """Wait after a broken call. Raises GradwireError if the call cannot be repeated or failed too often."""
        if isinstance(error, StreamInterrupted):
            return
        found = self._transport.explain(error)
        wait = next(self._waits, None)
        if wait is None and time.monotonic() < self._until:
            wait = _LONGEST_WAIT
        if wait is None or found.reason not in ("UNAVAILABLE", "SESSION_MOVED"):
            raise found from None
        self._transport.leave(self._address, found)
        self._address = self._transport.address
        self._transport.sleep_handling_signals(wait * random.uniform(0.7, 1.3))


# Raised by gRPC for a broken call, or after another thread closed the channel.
BROKEN = (grpc.RpcError, grpc.FutureCancelledError)


class Bulk:
    """A session's large transfers."""

    def __init__(self, transport: Transport, opened: service_pb2.OpenSessionResponse) -> None:
        self._transport = transport
        self._session_id = opened.session_id
        self._chunk = opened.limits.chunk_bytes or _CHUNK_BYTES
        self._opened = opened
        self._rings: dict[str, Any] = {}
        # Freeing a large block raises glibc's mmap threshold. Chunks are then reused from the heap instead of being
        # unmapped and faulted in again. No page of this block is touched.
        np.empty(_KEPT_BYTES, np.uint8)

    @functools.cached_property
    def _shares(self) -> bool:
        """Whether transfers go through shared memory. Most sessions never ask."""
        return may_share(self._opened)

    def upload(self, data: memoryview) -> str:
        """Upload bytes and return the transfer's id. Raises GradwireError."""
        start = service_pb2.UploadStart(
            session_id=self._session_id, total_bytes=data.nbytes, request_id=secrets.token_urlsafe(12)
        )
        retries = Retries(self._transport)
        call, received, chunk = self._send, 0, self._chunk
        if data.nbytes >= SHARED_FROM and self._shares:
            with self._fallback_to_chunks():
                return self._upload_shared(start, data)
            call = self._query_received
        sent = False  # whether a call that sent bytes broke
        while True:
            try:
                answer = call(start, data, received, chunk)
            except BROKEN as error:
                retries.wait(error)
                sent = sent or call == self._send
                call = self._query_received
                continue
            if answer.received_bytes == data.nbytes:
                return answer.transfer_id
            if call == self._send:
                raise _disagreement(f"the server received {answer.received_bytes} of {data.nbytes} bytes")
            if answer.received_bytes > received:
                retries.renew()
                chunk = min(2 * chunk, self._chunk)
            elif sent:  # a chunk arrives as a whole or not at all
                chunk = max(chunk // 2, min(_LEAST_CHUNK_BYTES, self._chunk))
            call, received, sent = self._send, answer.received_bytes, False

    def _query_received(
        self, start: service_pb2.UploadStart, data: memoryview, received: int, chunk: int
    ) -> service_pb2.UploadResponse:
        """Ask how many bytes of a broken upload arrived. The server then ignores the broken call."""
        return _answer(self._transport.start_stream("stream_unary", "Upload", iter([_first(start, 0)])))

    def _send(
        self, start: service_pb2.UploadStart, data: memoryview, received: int, chunk: int
    ) -> service_pb2.UploadResponse:
        """Send the bytes from `received` on, in messages of `chunk` bytes."""
        callback = _CALLBACK.get()
        sent: queue.SimpleQueue[int | None] = queue.SimpleQueue()

        def parts() -> Iterator[bytes]:
            yield _first(start, received)
            for begin in range(received, data.nbytes, chunk):
                part = data[begin : begin + chunk]
                yield b"".join((_DATA_TAG, varint(part.nbytes), part))
                if callback is not None:
                    sent.put(begin + part.nbytes)

        future = self._transport.start_stream("stream_unary", "Upload", parts())
        if callback is not None:
            future.add_done_callback(lambda _: sent.put(None))
            try:
                for done in _items_until_none(sent):
                    callback("upload", done, data.nbytes)
            except BaseException:
                future.cancel()
                raise
        return _answer(future)

    def download(self, transfer_id: str, into: memoryview) -> None:
        """Fetch a transfer's bytes. Raises GradwireError."""
        retries = Retries(self._transport)
        destination = Destination(into)
        if destination.total >= SHARED_FROM and self._shares:
            with self._fallback_to_chunks():
                self._download_shared(transfer_id, destination)
        while destination.received < destination.total:
            begun = destination.received
            try:
                self._receive(transfer_id, destination)
            except BROKEN as error:
                if destination.received > begun:
                    retries.renew()
                if destination.received < destination.total:
                    retries.wait(error)
            else:
                if destination.received != destination.total:
                    raise _disagreement(f"the server sent {destination.received} of {destination.total} bytes")

    def _receive(self, transfer_id: str, destination: Destination) -> None:
        """Fetch the missing bytes."""
        callback = _CALLBACK.get()
        request = service_pb2.DownloadRequest(
            session_id=self._session_id, transfer_id=transfer_id, offset=destination.received
        )
        call = self._transport.start_stream("unary_stream", "Download", request.SerializeToString())
        try:
            for raw in stream_messages(call):
                destination.take(raw)
                if callback is not None:
                    callback("download", destination.received, destination.total)
        finally:
            call.cancel()  # no effect after the end

    @contextlib.contextmanager
    def _fallback_to_chunks(self) -> Iterator[None]:
        """Catch failures of shared memory, so the transfer continues as a stream of chunks."""
        try:
            yield
        except NotShared:
            self._shares = False
        except StreamInterrupted:
            return
        except BROKEN as error:
            found = self._transport.explain(error)
            if found.reason not in ("UNAVAILABLE", "SESSION_MOVED", "NOT_SUPPORTED"):
                raise found from None

    def _upload_shared(self, start: service_pb2.UploadStart, data: memoryview) -> str:
        callback = _CALLBACK.get()
        source = np.frombuffer(data, np.uint8)
        transfer = SharedTransfer(self._transport, self._share_request(upload=start), self._rings)
        try:
            ring, piece, total = transfer.ring, transfer.piece, source.nbytes
            put = taken = 0
            while taken < total:
                while put < total and put - taken <= ring.nbytes - piece:
                    part = source[put : put + piece]
                    offset = put % ring.nbytes
                    ring[offset : offset + part.nbytes] = part
                    put += part.nbytes
                    transfer.send_position(put)
                taken = transfer.receive_position(taken, put)
                if callback is not None:
                    callback("upload", taken, total)
            transfer.finish()
        finally:
            transfer.cancel()  # no effect after the end
        return transfer.transfer_id

    def _download_shared(self, transfer_id: str, destination: Destination) -> None:
        callback = _CALLBACK.get()
        request = service_pb2.DownloadRequest(transfer_id=transfer_id)
        transfer = SharedTransfer(self._transport, self._share_request(download=request), self._rings)
        try:
            ring, put = transfer.ring, 0
            while destination.received < destination.total:
                if put == destination.received:
                    put = transfer.receive_position(put, destination.total)
                offset = destination.received % ring.nbytes
                destination.put(ring[offset : offset + min(put - destination.received, transfer.piece)])
                transfer.send_position(destination.received)
                if callback is not None:
                    callback("download", destination.received, destination.total)
            transfer.finish()
        finally:
            transfer.cancel()

    def _share_request(self, **transfer: Any) -> service_pb2.ShareRequest:
        return service_pb2.ShareRequest(session_id=self._session_id, **transfer)


class Destination:
    """The memory that a download fills in order."""

    def __init__(self, into: memoryview) -> None:
        self._target = np.frombuffer(into, np.uint8)
        self.total = into.nbytes
        self.received = 0

    def take(self, raw: bytes) -> None:
        """Write the bytes of a serialized DownloadResponse. Raises GradwireError if they are out of order."""
        begin, data = _part(raw)
        end = begin + data.nbytes
        if begin != self.received or end > self.total:
            raise _disagreement(f"the server sent bytes {begin} to {end}, not those from {self.received} on")
        self.put(np.frombuffer(data, np.uint8))

    def put(self, data: Any) -> None:
        """Write the next bytes. The copy releases the GIL."""
        end = self.received + data.nbytes
        self._target[self.received : end] = data
        self.received = end


def _items_until_none(sent: queue.SimpleQueue[int | None]) -> Iterator[int]:
    """Items of a queue until None, with signals handled between them."""
    while True:
        deliver()
        try:
            done = sent.get(timeout=SIGNAL_CHECK_SECONDS)
        except queue.Empty:
            continue
        if done is None:
            return
        yield done


def _answer(future: Any) -> service_pb2.UploadResponse:
    try:
        return service_pb2.UploadResponse.FromString(result_of(future))
    except BaseException:
        future.cancel()
        raise


def _first(start: service_pb2.UploadStart, offset: int) -> bytes:
    begin = service_pb2.UploadStart()
    begin.CopyFrom(start)
    begin.offset = offset
    return service_pb2.UploadRequest(start=begin).SerializeToString()


def _part(raw: bytes) -> tuple[int, memoryview]:
    """The offset and the bytes of a serialized DownloadResponse, without a copy."""
    offset = position = 0
    if raw[:1] == _OFFSET_TAG:
        offset, position = _varint(raw, 1)
    if raw[position : position + 1] == _DATA_TAG:
        size, position = _varint(raw, position + 1)
        if position + size == len(raw):
            return offset, memoryview(raw)[position:]
    part = service_pb2.DownloadResponse.FromString(raw)
    return part.offset, memoryview(part.data)


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    for byte in raw[position : position + 10]:
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            break
    return value, position


def _disagreement(message: str) -> GradwireError:
    return make_error(errors_pb2.REASON_INTERNAL, message, 13)

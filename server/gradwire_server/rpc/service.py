"""The front: serves AutogradService over grpc.aio, and passes sessions' requests to a backend as bytes.

Handlers are registered without serializers. The front reads only a request's session_id, so the event loop neither
parses large messages nor computes.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from gradwire.v1 import files_pb2, service_pb2, snapshots_pb2
from gradwire_server.auth.owner import Owner
from gradwire_server.auth.principals import ADMIN, CALLER
from gradwire_server.common.abort import abort
from gradwire_server.common.errors import Refusal, refusal_of
from gradwire_server.common.methods import COMMANDS
from gradwire_server.common.pipelined_writer import PipelinedWriter
from gradwire_server.common.protobuf_peek import peek_data, peek_session
from gradwire_server.common.timings import REQUEST_TIMINGS
from gradwire_server.registry.interface import SessionBackend
from gradwire_server.rpc.download_parts import DownloadParts, split
from gradwire_server.rpc.rate_limiter import RateLimiter
from gradwire_server.rpc.shared_memory import share
from gradwire_server.rpc.stream import Stream, Streams, StreamTransport
from gradwire_server.worker_pool.session_entry import SHORT_ID_LENGTH

if TYPE_CHECKING:
    from gradwire_server.rpc.traces import TracedCall, Traces

SERVICE = service_pb2.DESCRIPTOR.services_by_name["AutogradService"].full_name
UPLOAD_ID_HEADER = "gradwire-transfer-id"
_MAX_CONTROL = 1 << 16  # most bytes of a request that is parsed on the event loop
_MOST_WAITING = 64  # limit on the bytes of unanswered requests, in largest messages
_DATA_FIELD = service_pb2.UploadRequest.DATA_FIELD_NUMBER
_ALLOWED_IN_DRAIN = frozenset(
    ("KeepAlive", "CloseSession", "Cancel", "ServerInfo", "ListOps", "ListSessions", "EndSession")
)

log = logging.getLogger("gradwire.server")
M = TypeVar("M", bound=Message)
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Answer: TypeAlias = Callable[[bytes, Context], Awaitable[bytes]]


class Front:
    """The RPCs. `draining` refuses new work; `active` counts calls being answered, `waiting` their bytes."""

    def __init__(self, backend: SessionBackend, traces: "Traces | None" = None) -> None:
        self.backend = backend
        self.traces = traces
        #: May administer a server without authentication.
        self.owner: Owner | None = None
        self.draining = False
        #: While draining: sessions whose backward waits for its client; their calls are still admitted.
        self.finishing: frozenset[str] = frozenset()
        self.active = 0
        self.refusals: Counter[tuple[str, str]] = Counter()  # by method and reason
        self.waiting = 0  # bytes of requests being answered
        self.idle = asyncio.Event()
        self.idle.set()
        self.streams = Streams()
        self.rate_limiter = RateLimiter()
        #: Methods that clients of this machine may call without gRPC: short ones, for every caller.
        self.local_methods: dict[str, Callable[[bytes], Awaitable[bytes]]] = {
            "OpenSession": self._open_session,
            "CloseSession": self._close_session,
            "KeepAlive": self._keep_alive,
            "ServerInfo": self._server_info,
            "ListOps": self._list_ops,
        }
        self._download_parts = DownloadParts(backend.limits.chunk_bytes)
        backend.when_answered(self.streams.wake_paused)
        self._most_waiting = _MOST_WAITING * backend.limits.max_message_bytes

    def handlers(self) -> grpc.GenericRpcHandler:
        """All methods of the service, bytes in and bytes out."""
        unary: dict[str, Answer] = {
            "OpenSession": self._open_session,
            "CloseSession": self._close_session,
            "KeepAlive": self._keep_alive,
            "Cancel": self._cancel,
            "ServerInfo": self._server_info,
            "ListOps": self._list_ops,
            "ListSessions": self._list_sessions,
            "EndSession": self._end_session,
            "SaveSession": self._save_session,
            "RestoreSession": self._restore_session,
            "ListSnapshots": self._list_snapshots,
            "DeleteSnapshot": self._delete_snapshot,
            "SaveFile": self._save_file,
            "LoadFile": self._load_file,
            "ListFiles": self._list_files,
            "DeleteFile": self._delete_file,
        }
        for method in (*COMMANDS, "Run"):
            unary[method] = self._forward(method)
        table: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            method: grpc.unary_unary_rpc_method_handler(self._answering(method, answer))
            for method, answer in unary.items()
        }
        table["Upload"] = grpc.stream_unary_rpc_method_handler(self._upload)
        table["Download"] = grpc.unary_stream_rpc_method_handler(self._download)
        table["Stream"] = grpc.stream_stream_rpc_method_handler(self._stream)
        table["Share"] = grpc.stream_stream_rpc_method_handler(self._share)
        return grpc.method_handlers_generic_handler(SERVICE, table)

    def _answering(self, method: str, answer: Answer) -> Answer:
        """Count the call, check the message's size, and turn refusals into statuses."""
        rate_limiter = self.rate_limiter

        async def handle(raw: bytes, context: Context) -> bytes:
            size = len(raw)
            self.begin(size)
            turn = rate_limiter.enter(CALLER.get().name or context.peer())
            try:
                if turn is not None:
                    await turn
                self._check(method, raw)
                return await answer(raw, context)
            except Exception as error:  # noqa: BLE001 - becomes a status; the unforeseen is logged
                await self._abort(context, error, method)
            finally:
                self.end(size)

        return handle

    async def answer_locally(self, method: str, raw: bytes) -> bytes:
        """Answer a call without gRPC, and so past the queue that `rate_limiter` keeps short. Raises Refusal."""
        answer = self.local_methods.get(method)
        if answer is None:
            raise Refusal("MALFORMED", "no method of this name can be called here")
        self.begin(len(raw))
        try:
            self._check(method, raw)
            return await answer(raw)
        finally:
            self.end(len(raw))

    def _check(self, method: str, raw: bytes) -> None:
        """Check that a call may begin. Raises Refusal: UNAVAILABLE, SESSION_MOVED, MESSAGE_TOO_LARGE."""
        self.admit(method, peek_session(raw) if self.draining else None)
        size, cap = len(raw), self.backend.limits.max_message_bytes
        if size > cap:
            raise _over_cap(size, cap)
        if size > _MAX_CONTROL and self.overloaded:
            raise Refusal("UNAVAILABLE", "too many large requests wait to be answered; try again")

    def begin(self, size: int = 0) -> None:
        """Count a call or a batch of `size` bytes as being answered."""
        self.active += 1
        self.waiting += size
        self.idle.clear()

    def end(self, size: int = 0) -> None:
        """Count a call or a batch of `size` bytes as answered."""
        self.active -= 1
        if not self.active:
            self.idle.set()
        if size:
            full = self.overloaded
            self.waiting -= size
            if full and not self.overloaded:
                self.streams.wake()

    @property
    def overloaded(self) -> bool:
        """Whether unanswered requests exceed their bytes: large requests are refused, streams are not read."""
        return self.waiting > self._most_waiting

    def admit(self, method: str, session_id: str | None = None) -> None:
        """Check that a call may begin. While draining, only those of sessions that are finishing.

        Raises Refusal: UNAVAILABLE; SESSION_MOVED, if the session is at another server already.
        """
        if not self.draining or method in _ALLOWED_IN_DRAIN or session_id in self.finishing:
            return
        if not self.backend.admits_in_drain(method):
            raise self.backend.refusal_in_drain(session_id)

    def _forward(self, method: str) -> Answer:
        request_type = service_pb2.RunRequest if method == "Run" else COMMANDS[method]
        call = self.backend.call

        async def forward(raw: bytes, context: Context) -> bytes:
            session_id = peek_session(raw)
            if session_id is None:
                session_id = await _parsed_session(request_type, raw)
            self.backend.check_traffic(session_id, len(raw))
            remaining = context.time_remaining()
            deadline = None if remaining is None else time.monotonic() + remaining
            traced = None if self.traces is None else self.traced(self.parent_of(context), method, session_id)
            if traced is None:
                return await call(method, session_id, raw, deadline)
            asked = raw + REQUEST_TIMINGS if method == "Run" else raw
            return await self.tracing(traced, call(method, session_id, asked, deadline))

        return forward

    def parent_of(self, context: StreamTransport) -> str:
        """The call's traceparent from its metadata; empty if there is none or the server keeps no traces."""
        if self.traces is None:
            return ""
        found = (value for key, value in context.invocation_metadata() or () if key == "traceparent")
        return str(next(found, ""))

    def traced(self, parent: str, method: str, session_id: str) -> "TracedCall | None":
        """Begin a traced call; None if the call has no traceparent or the server keeps no traces."""
        if not parent or self.traces is None:
            return None
        return self.traces.begin(parent, method, session_id[:SHORT_ID_LENGTH], CALLER.get().name)

    async def tracing(self, traced: "TracedCall", answer: Awaitable[bytes]) -> bytes:
        """Await a call's answer, and record the spans."""
        assert self.traces is not None
        try:
            given = await answer
        except Exception as error:
            self.traces.record(traced, b"", refusal_of(error, traced.method))
            raise
        self.traces.record(traced, given)
        return given

    async def _open_session(self, raw: bytes, context: "Context | None" = None) -> bytes:
        response = await self.backend.open_session(_small(service_pb2.OpenSessionRequest, raw))
        return response.SerializeToString()

    async def _close_session(self, raw: bytes, context: "Context | None" = None) -> bytes:
        request = _small(service_pb2.CloseSessionRequest, raw)
        freed = await self.backend.close_session(request.session_id)
        return service_pb2.CloseSessionResponse(freed_bytes=freed).SerializeToString()

    async def _keep_alive(self, raw: bytes, context: "Context | None" = None) -> bytes:
        response = await self.backend.keep_alive(_small(service_pb2.KeepAliveRequest, raw).session_id)
        return response.SerializeToString()

    async def _cancel(self, raw: bytes, context: Context) -> bytes:
        response = await self.backend.cancel(_small(service_pb2.CancelRequest, raw))
        return response.SerializeToString()

    async def _server_info(self, raw: bytes, context: "Context | None" = None) -> bytes:
        _small(service_pb2.ServerInfoRequest, raw)
        return (await self.backend.server_info()).SerializeToString()

    async def _list_ops(self, raw: bytes, context: "Context | None" = None) -> bytes:
        request = _small(service_pb2.ListOpsRequest, raw)
        return await self.backend.list_ops(request.prefix, request.known_hash)

    def _require_administrator(self, context: Context) -> None:
        """Check that the caller may administer the server. Raises Refusal: PERMISSION_DENIED."""
        if self.owner is None or not self.owner.calls(context):
            CALLER.get().require(ADMIN)

    async def _list_sessions(self, raw: bytes, context: Context) -> bytes:
        self._require_administrator(context)
        return (await self.backend.list_sessions(_small(service_pb2.ListSessionsRequest, raw))).SerializeToString()

    async def _end_session(self, raw: bytes, context: Context) -> bytes:
        self._require_administrator(context)
        request = _small(service_pb2.EndSessionRequest, raw)
        freed = await self.backend.end_session(request.number, request.stored)
        return service_pb2.EndSessionResponse(freed_bytes=freed).SerializeToString()

    async def _save_session(self, raw: bytes, context: Context) -> bytes:
        request = await _parsed(snapshots_pb2.SaveSessionRequest, raw)
        return await self.backend.save_session(request, raw)

    async def _restore_session(self, raw: bytes, context: Context) -> bytes:
        request = _small(snapshots_pb2.RestoreSessionRequest, raw)
        return (await self.backend.restore_session(request, raw)).SerializeToString()

    async def _list_snapshots(self, raw: bytes, context: Context) -> bytes:
        _small(snapshots_pb2.ListSnapshotsRequest, raw)
        return (await self.backend.list_snapshots()).SerializeToString()

    async def _delete_snapshot(self, raw: bytes, context: Context) -> bytes:
        name = _small(snapshots_pb2.DeleteSnapshotRequest, raw).name
        freed = await self.backend.delete_snapshot(name)
        return snapshots_pb2.DeleteSnapshotResponse(freed_bytes=freed).SerializeToString()

    async def _save_file(self, raw: bytes, context: Context) -> bytes:
        request = await _parsed(files_pb2.SaveFileRequest, raw)
        return await self.backend.files.save(request.session_id, request.name, raw)

    async def _load_file(self, raw: bytes, context: Context) -> bytes:
        request = await _parsed(files_pb2.LoadFileRequest, raw)
        return await self.backend.files.load(request.session_id, request.name, raw)

    async def _list_files(self, raw: bytes, context: Context) -> bytes:
        _small(files_pb2.ListFilesRequest, raw)
        return (await self.backend.files.listed()).SerializeToString()

    async def _delete_file(self, raw: bytes, context: Context) -> bytes:
        freed = await self.backend.files.delete(_small(files_pb2.DeleteFileRequest, raw).name)
        return files_pb2.DeleteFileResponse(freed_bytes=freed).SerializeToString()

    async def _stream(self, requests: AsyncIterator[bytes], context: Context) -> None:
        try:
            await Stream(self, context).serve()
        except Exception as error:  # noqa: BLE001 - becomes a status; the unforeseen is logged
            await self._abort(context, error, "Stream")

    async def _upload(self, requests: AsyncIterator[bytes], context: Context) -> bytes:
        """Receive chunks. The transfer's id is sent with the headers, so a broken call can be resumed."""
        self.begin()
        upload: Any = None
        try:
            async for raw in requests:
                if upload is None:
                    upload = await self._begin_upload(raw)
                    await context.send_initial_metadata(((UPLOAD_ID_HEADER, upload.transfer_id),))
                    continue
                await self.backend.append(upload, await self._part(raw))
            if upload is None:
                raise Refusal("MALFORMED", "an upload begins with a message that has start")
            received = await self.backend.end_upload(upload)
            return service_pb2.UploadResponse(
                transfer_id=upload.transfer_id, received_bytes=received
            ).SerializeToString()
        except Exception as error:  # noqa: BLE001 - becomes a status; the unforeseen is logged
            await self._abort(context, error, "Upload")
        finally:
            if upload is not None:
                self.backend.leave_upload(upload)
            self.end()

    async def _begin_upload(self, raw: bytes) -> Any:
        first = _small(service_pb2.UploadRequest, raw)
        if first.WhichOneof("part") != "start":
            raise Refusal("MALFORMED", "an upload begins with a message that has start")
        self.admit("Upload", first.start.session_id)
        return await self.backend.begin_upload(first.start.session_id, first.start)

    async def _part(self, raw: bytes) -> memoryview:
        cap = self.backend.limits.max_message_bytes
        if len(raw) > cap:
            raise _over_cap(len(raw), cap)
        data = peek_data(raw, _DATA_FIELD)
        if data is not None:
            return data
        message = await _parsed(service_pb2.UploadRequest, raw)
        if message.WhichOneof("part") != "data":
            raise Refusal("MALFORMED", "after start, an upload's messages have data")
        return memoryview(message.data)

    async def _download(self, raw: bytes, context: Context) -> None:
        self.begin()
        try:
            request = _small(service_pb2.DownloadRequest, raw)
            self.admit("Download", request.session_id)
            chunks = self.backend.chunks(request.session_id, request.transfer_id, request.offset)
            most = 0
            async with aclosing(chunks), PipelinedWriter(context.write) as parts:
                async for message in chunks:
                    # The first chunk shows that the transfer exists.
                    most = most or self._download_parts.begin(request.session_id, request.transfer_id, request.offset)
                    if most == self.backend.limits.chunk_bytes:
                        await parts.send(message)
                        continue
                    for part in split(message, most):
                        await parts.send(part)
            await self.backend.finish_download(request.session_id, request.transfer_id)
        except Exception as error:  # noqa: BLE001 - becomes a status; the unforeseen is logged
            await self._abort(context, error, "Download")
        finally:
            self.end()

    async def _share(self, requests: AsyncIterator[bytes], context: Context) -> None:
        self.begin()
        try:
            parts = (_small(service_pb2.ShareRequest, raw) async for raw in requests)
            async with PipelinedWriter[bytes](context.write) as answers:
                await share(
                    self.backend,
                    parts,
                    lambda response: answers.send(response.SerializeToString()),
                    lambda session_id: self.admit("Share", session_id),
                )
        except Exception as error:  # noqa: BLE001 - becomes a status; the unforeseen is logged
            await self._abort(context, error, "Share")
        finally:
            self.end()

    async def _abort(self, context: Context, error: Exception, method: str) -> NoReturn:
        """End the call with the refusal as its status. Always raises, as gRPC's abort does."""
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if isinstance(error, grpc.aio.InternalError):  # gRPC took no message: the call has ended
            raise asyncio.CancelledError from None
        await abort(context, self.refused(error, method))

    def refused(self, error: Exception, method: str) -> Refusal:
        """The refusal for an error that ended a call; counts it."""
        refusal = refusal_of(error, method, {"principal": CALLER.get().name})
        self.refusals[method, refusal.reason] += 1
        return refusal


def _small(kind: type[M], raw: bytes) -> M:
    if len(raw) > _MAX_CONTROL:
        raise _over_cap(len(raw), _MAX_CONTROL)
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise Refusal("MALFORMED", f"the message is no {kind.DESCRIPTOR.name}") from None


async def _parsed(kind: type[M], raw: bytes) -> M:
    """Parse a message that may be large, off the event loop. Raises Refusal: MALFORMED."""
    try:
        return await asyncio.get_running_loop().run_in_executor(None, kind.FromString, raw)
    except DecodeError:
        raise Refusal("MALFORMED", f"the message is no {kind.DESCRIPTOR.name}") from None


async def _parsed_session(kind: type[Message], raw: bytes) -> str:
    message: Any = await _parsed(kind, raw)
    return str(message.session_id)


def _over_cap(size: int, cap: int) -> Refusal:
    return Refusal(
        "MESSAGE_TOO_LARGE", f"a message has at most {cap} bytes, not {size}; use Upload or a smaller batch", limit=cap
    )

"""The front's handlers, called without a socket: what is admitted, counted, traced, refused, and passed on as bytes."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from gradwire.v1 import commands_pb2, service_pb2
from gradwire_server.auth.principals import CALLER, Principal
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.rpc import service
from gradwire_server.rpc.service import Front

LIMITS = Limits(max_message_bytes=1 << 20).resolved()


class Backend:
    """A backend that notes the calls it gets and answers each with what the test says."""

    limits = LIMITS
    local_stream = ""

    def __init__(self, answer: Any = b"answer") -> None:
        self.answer = answer
        self.did: list[tuple] = []

    def when_answered(self, then: Any) -> None:
        self.then = then

    def admits_in_drain(self, method: str) -> bool:
        return method == "OpenSession"

    def refusal_in_drain(self, session_id: str | None = None) -> Refusal:
        return Refusal("SESSION_MOVED" if session_id == "s3" else "UNAVAILABLE", "")

    def check_traffic(self, session_id: str, size: int) -> None:
        self.did.append(("traffic", session_id))

    async def call(self, method: str, session_id: str, raw: bytes, deadline: float | None) -> bytes:
        self.did.append((method, session_id, raw, deadline is not None))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def close_session(self, session_id: str) -> int:
        return len(session_id)

    async def list_ops(self, prefix: str, known_hash: str = "") -> bytes:
        return prefix.encode()

    async def list_sessions(self, request: Any) -> service_pb2.ListSessionsResponse:
        return service_pb2.ListSessionsResponse()

    async def begin_upload(self, session_id: str, start: Any) -> Any:
        self.did.append(("begin", session_id))
        return SimpleNamespace(transfer_id="t1", received=0)

    async def append(self, arrival: Any, data: memoryview) -> None:
        arrival.received += data.nbytes
        self.did.append(("append", bytes(data)))

    async def end_upload(self, arrival: Any) -> int:
        return int(arrival.received)

    def leave_upload(self, arrival: Any) -> None:
        self.did.append(("leave",))

    async def chunks(self, session_id: str, transfer_id: str, offset: int) -> AsyncIterator[bytes]:
        for number in range(offset, 3):
            yield bytes([number])

    async def finish_download(self, session_id: str, transfer_id: str, received: bool = False) -> None:
        self.did.append(("finish", transfer_id))


class Aborted(grpc.aio.AbortError):
    """What gRPC's abort raises."""


class Context:
    """A call's context."""

    def __init__(self, remaining: float | None = None) -> None:
        self.remaining = remaining
        self.metadata: tuple = ()
        self.written: list[bytes] = []
        self.status: tuple[grpc.StatusCode, str] | None = None

    def time_remaining(self) -> float | None:
        return self.remaining

    def peer(self) -> str:
        return "ipv4:10.0.0.1:5"

    def invocation_metadata(self) -> tuple:
        return ()

    async def send_initial_metadata(self, metadata: tuple) -> None:
        self.metadata = metadata

    async def write(self, message: bytes) -> None:
        self.written.append(message)

    async def abort(self, code: grpc.StatusCode, details: str, trailing: tuple) -> None:
        status = status_pb2.Status.FromString(dict(trailing)["grpc-status-details-bin"])
        info = error_details_pb2.ErrorInfo()
        assert any(each.Unpack(info) for each in status.details)
        self.status = (code, info.reason.removeprefix("REASON_"))
        raise Aborted


def handler(front: Front, method: str) -> Any:
    details = SimpleNamespace(method=f"/{service.SERVICE}/{method}", invocation_metadata=())
    return front.handlers().service(details)


def unary(front: Front, method: str, message: Any, context: Context | None = None) -> bytes:
    raw = message if isinstance(message, bytes) else message.SerializeToString()

    async def run() -> bytes:
        found = handler(front, method)
        answer: bytes = await found.unary_unary(raw, context or Context())
        return answer

    return asyncio.run(run())


def refused(front: Front, method: str, message: Any) -> tuple[grpc.StatusCode, str]:
    context = Context()
    with pytest.raises(Aborted):
        unary(front, method, message, context)
    assert context.status is not None
    return context.status


NEG = commands_pb2.OpRequest(session_id="s1", op="neg")


def test_every_method_of_the_contract_has_a_handler_of_its_kind() -> None:
    front = Front(Backend())
    for method in service_pb2.DESCRIPTOR.services_by_name["AutogradService"].methods:
        found = handler(front, method.name)
        assert (found.request_streaming, found.response_streaming) == (method.client_streaming, method.server_streaming)
        assert (found.request_deserializer, found.response_serializer) == (None, None)


def test_a_command_is_passed_on_as_its_bytes_and_so_is_its_answer() -> None:
    backend = Backend(b"\x01\x02")
    assert unary(Front(backend), "Op", NEG, Context(remaining=5.0)) == b"\x01\x02"
    assert backend.did == [("traffic", "s1"), ("Op", "s1", NEG.SerializeToString(), True)]


def test_a_session_id_that_is_not_the_first_field_is_found() -> None:
    raw = (
        commands_pb2.OpRequest(op="neg").SerializeToString()
        + commands_pb2.OpRequest(session_id="s2").SerializeToString()
    )
    backend = Backend()
    unary(Front(backend), "Op", raw)
    assert backend.did[0] == ("traffic", "s2")


def test_a_refusal_is_the_calls_status_and_is_counted() -> None:
    front = Front(Backend(Refusal("SHAPE", "no")))
    assert refused(front, "Op", NEG) == (grpc.StatusCode.INVALID_ARGUMENT, "SHAPE")
    assert front.refusals == {("Op", "SHAPE"): 1}
    assert (front.active, front.waiting, front.idle.is_set()) == (0, 0, True)


def test_an_unforeseen_error_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    front = Front(Backend(KeyError("secret")))
    assert refused(front, "Op", NEG) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert "secret" in caplog.text


def test_messages_beyond_the_cap_and_broken_ones_are_refused() -> None:
    front = Front(Backend())
    assert refused(front, "Op", bytes(LIMITS.max_message_bytes + 1))[1] == "MESSAGE_TOO_LARGE"
    assert refused(front, "CloseSession", b"\xff\xff")[1] == "MALFORMED"
    assert refused(front, "CloseSession", bytes(service._MAX_CONTROL + 1))[1] == "MESSAGE_TOO_LARGE"
    assert front.backend.did == []


def test_while_many_bytes_wait_large_requests_are_refused_and_small_ones_not() -> None:
    front = Front(Backend())
    front.begin(service._MOST_WAITING * LIMITS.max_message_bytes + 1)
    assert front.overloaded
    assert unary(front, "Op", NEG) == b"answer"
    assert refused(front, "Op", NEG.SerializeToString() + bytes(service._MAX_CONTROL))[1] == "UNAVAILABLE"
    front.end(service._MOST_WAITING * LIMITS.max_message_bytes + 1)
    assert not front.overloaded


def test_a_draining_server_admits_only_what_ends_and_sessions_that_finish() -> None:
    front = Front(Backend())
    front.draining = True
    assert refused(front, "Op", NEG) == (grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE")
    closed = unary(front, "CloseSession", service_pb2.CloseSessionRequest(session_id="four"))
    assert service_pb2.CloseSessionResponse.FromString(closed).freed_bytes == 4
    front.finishing = frozenset(["s1"])
    assert unary(front, "Op", NEG) == b"answer"
    assert refused(front, "Op", commands_pb2.OpRequest(session_id="s2"))[1] == "UNAVAILABLE"
    assert refused(front, "Op", commands_pb2.OpRequest(session_id="s3"))[1] == "SESSION_MOVED"
    front.admit("OpenSession")  # it is sent to another server


def test_calls_count_as_active_until_they_are_answered() -> None:
    front = Front(Backend())
    front.begin(10)
    front.begin()
    front.end()
    assert (front.active, front.waiting, front.idle.is_set()) == (1, 10, False)
    front.end(10)
    assert (front.active, front.waiting, front.idle.is_set()) == (0, 0, True)


@pytest.mark.parametrize(("scopes", "allowed"), [(frozenset(), False), (frozenset(["admin"]), True)])
def test_sessions_of_others_are_listed_for_administrators_only(scopes: frozenset, allowed: bool) -> None:
    token = CALLER.set(Principal("alice", scopes))
    try:
        front = Front(Backend())
        if allowed:
            assert unary(front, "ListSessions", service_pb2.ListSessionsRequest()) == b""
        else:
            assert refused(front, "ListSessions", service_pb2.ListSessionsRequest())[1] == "PERMISSION_DENIED"
    finally:
        CALLER.reset(token)


async def _requests(*messages: Any) -> AsyncIterator[bytes]:
    for message in messages:
        yield message if isinstance(message, bytes) else message.SerializeToString()


def upload(front: Front, context: Context, *messages: Any) -> service_pb2.UploadResponse:
    async def run() -> bytes:
        answer: bytes = await handler(front, "Upload").stream_unary(_requests(*messages), context)
        return answer

    return service_pb2.UploadResponse.FromString(asyncio.run(run()))


START = service_pb2.UploadRequest(start=service_pb2.UploadStart(session_id="s1", total_bytes=5))


def _data(data: bytes) -> service_pb2.UploadRequest:
    return service_pb2.UploadRequest(data=data)


def test_an_upload_tells_its_id_first_and_takes_its_parts_in_order() -> None:
    backend, context = Backend(), Context()
    answer = upload(Front(backend), context, START, _data(b"abc"), _data(b"de"))
    assert (answer.transfer_id, answer.received_bytes) == ("t1", 5)
    assert dict(context.metadata) == {service.UPLOAD_ID_HEADER: "t1"}
    assert backend.did == [("begin", "s1"), ("append", b"abc"), ("append", b"de"), ("leave",)]


@pytest.mark.parametrize("messages", [[], [_data(b"abc")], [START, START]])
def test_an_upload_out_of_order_is_malformed_and_let_go(messages: list) -> None:
    backend, context = Backend(), Context()
    with pytest.raises(Aborted):
        upload(Front(backend), context, *messages)
    assert context.status == (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED")
    assert backend.did.count(("leave",)) == len([each for each in backend.did if each[0] == "begin"])


def test_a_download_writes_all_parts_and_is_finished() -> None:
    backend, context = Backend(), Context()
    request = service_pb2.DownloadRequest(session_id="s1", transfer_id="t1", offset=1)

    async def run() -> None:
        await handler(Front(backend), "Download").unary_stream(request.SerializeToString(), context)

    asyncio.run(run())
    assert context.written == [b"\x01", b"\x02"]
    assert backend.did == [("finish", "t1")]


def test_ops_are_listed_by_prefix() -> None:
    assert unary(Front(Backend()), "ListOps", service_pb2.ListOpsRequest(prefix="lin")) == b"lin"

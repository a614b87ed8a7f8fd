"""The stream: batches in, answers out in their order, credit, and who a writer's stream belongs to."""

import asyncio
import gc
import queue
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2
from gradwire_server.rpc import stream as stream_module
from gradwire_server.rpc.stream import Stream, Streams
from gradwire_server.session import commands
from tests.server.by_socket import SocketCall
from tests.server.harness import (
    WAIT,
    Id,
    Remote,
    Running,
    array_of,
    command,
    op,
    payload,
    refusal,
    refused,
    running,
    until,
)

BACKENDS = [0, 2]


@pytest.fixture(params=["grpc", "socket"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What streams go by."""
    monkeypatch.setattr(Streaming, "by_socket", request.param == "socket")
    return str(request.param)


class Streaming:
    """A stream of a session, as a plain client has it."""

    by_socket = False

    def __init__(self, session: Remote, writer: int = 1, **attach: Any) -> None:
        self.session = session
        self.out: Any = queue.SimpleQueue()
        if self.by_socket:
            self.call: Any = SocketCall(session.opened.local_stream)
            self.out = Putting(self.call)
        else:
            self.call = session.stub.Stream(iter(self.out.get, None))
        fields = {"session_id": session.id, "writer": writer, **attach}
        self.send(attach=service_pb2.StreamAttach(**fields))

    def send(self, **fields: Any) -> None:
        self.out.put(service_pb2.StreamRequest(**fields))

    def attached(self) -> service_pb2.StreamResponse:
        response = next(self.call)
        assert response.HasField("attached")
        return response

    def run(self, first: int, *given: service_pb2.Command, **fields: Any) -> None:
        self.send(batch=service_pb2.RunRequest(first_seq=first, commands=given, **fields))

    def answer(self) -> service_pb2.RunResponse:
        response = next(self.call)
        assert response.HasField("batch")
        return response.batch

    def close(self) -> None:
        self.out.put(None)
        self.call.cancel()


class Putting:
    """A queue that a socket is behind, which takes no more than the server reads."""

    def __init__(self, call: SocketCall) -> None:
        self._queue: queue.SimpleQueue[service_pb2.StreamRequest | None] = queue.SimpleQueue()
        self.put = self._queue.put
        threading.Thread(target=self._send, args=(call,), daemon=True).start()

    def _send(self, call: SocketCall) -> None:
        while (request := self._queue.get()) is not None:
            call.send(request)
        call.half_close()


@pytest.fixture
def stream(session: Remote) -> Iterator[Streaming]:
    opened = Streaming(session)
    opened.attached()
    yield opened
    opened.close()


def create(tensor_id: int, *values: float) -> service_pb2.Command:
    array = np.array(values, np.float32)
    return command(c.CreateRequest(id=tensor_id, payload=payload(array)))


def add(tensor_id: int, amount: float = 1.0) -> service_pb2.Command:
    return command(op("add_", Id(tensor_id), amount))


def read(tensor_id: int) -> service_pb2.Command:
    return command(c.ReadRequest(tensor=tensor_id))


def values(result: service_pb2.Result) -> list[float]:
    return array_of(result.read.payload, result.read.payload.data).tolist()


def test_batches_are_answered_in_their_order_though_sent_at_once(stream: Streaming) -> None:
    stream.run(1, create(1, 0.0))
    for seq in range(2, 102, 2):
        stream.run(seq, add(1), read(1))
    assert [result.seq for result in stream.answer().results] == [1]
    for turn in range(50):
        answer = stream.answer()
        assert answer.applied_seq == 2 * turn + 3
        assert values(answer.results[1]) == [turn + 1.0]


def test_a_stream_that_never_attaches_is_ended(session: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "_ATTACH_SECONDS", 0.05)
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    told = refused(session.stub.Stream, iter(requests.get, None))
    requests.put(None)
    assert told[:2] == ("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED")


@pytest.mark.parametrize("joined", [False, True])
def test_answers_are_joined_only_if_asked_and_only_where_they_tell_nothing(session: Remote, joined: bool) -> None:
    stream = Streaming(session, joined_answers=joined)
    stream.attached()
    stream.run(1, create(1, 0.0))
    quiet = command(op("add_", Id(1), 1.0), quiet=True)
    for seq in range(2, 62):
        stream.run(seq, *((read(1),) if seq % 10 == 1 else (quiet,)))
    answered, credit, told = 0, 0, []
    while answered < 61:
        response = next(stream.call)
        answered += response.batches or 1
        credit += response.credit_bytes
        told += [(result.seq, values(result)) for result in response.batch.results if result.HasField("read")]
        assert response.batches <= (4 if joined else 1)
        assert response.batch.applied_seq >= answered
    assert answered == 61
    assert told == [(seq, [seq - 1.0 - seq // 10]) for seq in range(11, 62, 10)]
    stream.close()


def test_a_stream_reports_where_it_resumes(session: Remote, stream: Streaming) -> None:
    stream.run(1, create(1, 5.0), add(1))
    stream.answer()
    again = Streaming(session)
    attached = again.attached().attached
    assert (attached.applied_seq, attached.epoch, attached.durable_seq) == (2, 1, 0)
    again.close()


def test_unary_calls_batches_and_the_stream_share_one_order(session: Remote, stream: Streaming) -> None:
    x = session.create([1.0])
    stream.run(1, add(x))
    stream.answer()
    assert session.read(x).tolist() == [2.0]
    assert session.run(add(x), first=2).applied_seq == 2
    stream.run(3, add(x), read(x))
    assert values(stream.answer().results[1]) == [4.0]


def test_what_was_applied_on_a_broken_stream_is_answered_from_memory(session: Remote, stream: Streaming) -> None:
    stream.run(1, create(1, 0.0))
    stream.run(2, add(1), read(1))
    stream.answer()
    stream.call.cancel()
    again = Streaming(session, acknowledged_seq=1)
    again.attached()
    again.run(2, add(1), read(1))  # whether or not it was applied by then
    again.run(4, add(1), read(1))
    assert values(again.answer().results[1]) == [1.0]
    assert values(again.answer().results[1]) == [2.0]
    again.close()


def test_a_second_stream_of_a_writer_takes_over_and_the_first_is_told(session: Remote, stream: Streaming) -> None:
    taking = Streaming(session)
    taking.attached()
    with pytest.raises(grpc.RpcError) as caught:
        stream.answer()
    assert refusal(caught.value)[:2] == ("ABORTED", "STREAM_TAKEN")
    taking.run(1, create(1, 1.0))
    assert taking.answer().applied_seq == 1
    taking.close()


def test_streams_of_two_writers_do_not_meet(session: Remote, stream: Streaming) -> None:
    second = session.stub.OpenSession(service_pb2.OpenSessionRequest(session_id=session.id)).writer
    other = Streaming(session, writer=second)
    other.attached()
    stream.run(1, create(1, 1.0))
    assert stream.answer().applied_seq == 1
    other.run(1, add(1), read(1))
    assert values(other.answer().results[1]) == [2.0]
    other.close()


def test_an_attach_that_was_delayed_takes_nothing_over(session: Remote) -> None:
    newer = Streaming(session, attempt=3)
    newer.attached()
    late = Streaming(session, attempt=2)
    with pytest.raises(grpc.RpcError) as caught:
        late.attached()
    assert refusal(caught.value)[1] == "STREAM_TAKEN"
    newer.run(1, create(1, 1.0))
    assert newer.answer().applied_seq == 1
    newer.close()
    late.close()


def test_half_closing_lets_what_was_sent_be_answered(session: Remote, stream: Streaming) -> None:
    stream.run(1, create(1, 0.0))
    stream.run(2, add(1))
    stream.out.put(None)
    assert [stream.answer().applied_seq for _ in range(2)] == [1, 2]
    with pytest.raises(StopIteration):
        next(stream.call)
    assert stream.call.code() is grpc.StatusCode.OK


def test_a_refused_command_ends_neither_batch_nor_stream(stream: Streaming) -> None:
    stream.run(1, create(1, 0.0), add(99), add(1))
    results = stream.answer().results
    assert [result.WhichOneof("result") for result in results] == ["create", "error", "op"]
    stream.run(4, read(1))
    assert values(stream.answer().results[0]) == [1.0]


def test_an_acknowledgement_lets_answers_be_forgotten(session: Remote, stream: Streaming) -> None:
    stream.run(1, create(1, 0.0))
    stream.answer()
    stream.send(acknowledge=service_pb2.StreamAcknowledge(acknowledged_seq=1))
    stream.run(1, create(1, 0.0))
    with pytest.raises(grpc.RpcError) as caught:
        stream.answer()
    assert refusal(caught.value)[:2] == ("DATA_LOSS", "RESULT_FORGOTTEN")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"session_id": "none"}, "SESSION_NOT_FOUND"),
        ({"writer": 77}, "ARGUMENT_VALUE"),
        ({"epoch": 9}, "EPOCH_MISMATCH"),
    ],
)
def test_an_attach_to_what_is_not_there_is_refused(
    session: Remote, fields: dict[str, Any], reason: str, server: Running
) -> None:
    opened = Streaming(session, **fields)
    with pytest.raises(grpc.RpcError) as caught:
        next(opened.call)
    assert refusal(caught.value)[1] == reason
    opened.close()


@pytest.mark.parametrize("raw", [b"", b"\x12\x00", b"\xff\xff", b"\x0a\x05ab"])
def test_a_stream_that_does_not_begin_with_attach_is_refused(session: Remote, raw: bytes) -> None:
    method = session.channel.stream_stream("/gradwire.v1.AutogradService/Stream")
    assert refused(lambda: next(method(iter([raw]))))[1] == "MALFORMED"


def test_messages_in_an_unusual_form_are_understood(session: Remote, stream: Streaming) -> None:
    run = service_pb2.RunRequest(first_seq=1, commands=[create(1, 3.0)])
    raw = service_pb2.StreamRequest(batch=run).SerializeToString() + b"\xfa\x07\x02xx"  # and a field nobody knows
    stream.out.put(service_pb2.StreamRequest.FromString(raw))
    assert stream.answer().applied_seq == 1


def test_a_batch_over_the_cap_is_refused_by_name(stream: Streaming) -> None:
    stream.run(1, create(1, *range(300_000)))
    with pytest.raises(grpc.RpcError) as caught:
        stream.answer()
    assert refusal(caught.value)[:2] == ("RESOURCE_EXHAUSTED", "MESSAGE_TOO_LARGE")


def test_credit_is_returned_with_every_answer(stream: Streaming, session: Remote) -> None:
    taking = Streaming(session)
    assert taking.attached().credit_bytes >= session.opened.limits.max_message_bytes
    request = service_pb2.RunRequest(first_seq=1, commands=[create(1, 1.0)])
    taking.send(batch=request)
    assert next(taking.call).credit_bytes == request.ByteSize()
    taking.close()


def test_a_client_that_ignores_its_credit_is_not_buffered(monkeypatch: pytest.MonkeyPatch) -> None:
    reached, opened = threading.Event(), threading.Event()
    real = commands.COMMANDS["describe"].handler

    def hold(*args: Any) -> None:
        reached.set()
        assert opened.wait(WAIT)
        real(*args)

    monkeypatch.setattr(commands.COMMANDS["describe"], "handler", hold)
    with running() as server:
        session = server.open()
        stream = Streaming(session)
        window = stream.attached().credit_bytes
        stream.run(1, command(c.DescribeRequest()))
        assert reached.wait(WAIT)
        size = 500_000
        count = 4 * window // size
        for seq in range(2, count + 2):
            stream.run(seq, command(op("x" * size, Id(1)), quiet=True))
        until(lambda: server.server.front.waiting > 10 * size)
        for _ in range(10):  # and no more than this, however long it is offered
            threading.Event().wait(0.05)
            assert server.server.front.waiting <= window + server.limits.max_message_bytes
        opened.set()
        for seq in range(1, count + 2):
            assert stream.answer().applied_seq == seq
        stream.close()
        session.close()


def test_a_client_that_does_not_read_holds_bounded_answers(in_process: None, session: Remote, server: Running) -> None:
    stream = Streaming(session)
    stream.attached()
    stream.run(1, create(1, *range(16_000)))
    assert stream.answer().applied_seq == 1
    count = 1000
    for seq in range(2, count + 2):
        stream.run(seq, read(1))
    number = server.backend.registry.entries[session.id].number
    writer = server.backend.runtime.sessions[number].writers[1]
    until(lambda: writer.applied > 10)
    for _ in range(10):
        threading.Event().wait(0.05)
        assert writer.applied < count  # it does not compute what nobody takes
    assert [stream.answer().applied_seq for _ in range(count)] == list(range(2, count + 2))
    stream.close()


def test_ending_the_server_ends_its_streams(session: Remote) -> None:
    with running() as server:
        streams = [Streaming(server.open()) for _ in range(3)]
        for stream in streams:
            stream.attached()
    for stream in streams:
        with pytest.raises(grpc.RpcError) as caught:
            next(stream.call)
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        stream.close()


def test_a_stream_that_is_taken_over_while_it_attaches_logs_no_exception() -> None:
    told: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        backend = SimpleNamespace(limits=SimpleNamespace(max_message_bytes=1 << 20))
        front: Any = SimpleNamespace(backend=backend, parent_of=lambda context: None)
        context: Any = SimpleNamespace()
        streams = Streams()
        for _ in range(2):
            streams.add(Stream(front, context))
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(main())
    assert not told

"""The web gateway beside direct gRPC, and what Studio's watching costs a session.

The gateway: a unary round trip, and W2's step as prepared calls on a stream.

Both sides send the same messages to one server. The client of a WebSocket here is Python's, as gRPC's is.
"""

from __future__ import annotations

import queue
import socket
import statistics
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import httpx
import numpy as np
from websockets.sync.client import connect

from benchmarks.measure import Bound, Result, compare, seconds
from benchmarks.processes import served
from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2, service_pb2_grpc, types_pb2

_SERVICE = "/gradwire.v1.AutogradService"
_BATCH, _SIZES, _RATE = 128, (64, 256, 10), 1e-3
# On a busy machine, BLAS threads that wait for each other would be measured instead.
_ALONE = ("--workers=1", "--blas-threads=1")
_WAIT = 60.0
_READY_SECONDS = 60
_WATCHED_STEPS = 150  # of a turn: a watch lasts 10 seconds
_ASK_SECONDS, _LIST_SECONDS = 2.0, 5.0  # between the page's requests


class Steps:
    """W2 (a 64-256-10 network, batch 128, plain SGD) as batches of one writer, a batch for each step."""

    def __init__(self, opened: service_pb2.OpenSessionResponse) -> None:
        self._opened = opened
        self._next = opened.first_id
        self._seq = 1
        self._done = 0
        rng = np.random.default_rng(1)
        rows, hidden, columns = _SIZES
        self.made: list[service_pb2.Command] = []
        self._x = self._create(rng.standard_normal((_BATCH, rows)))
        self._y = self._create(rng.standard_normal((_BATCH, columns)))
        self._w1 = self._create(rng.standard_normal((rows, hidden)) / 8, True)
        self._w2 = self._create(rng.standard_normal((hidden, columns)) / 16, True)
        for number, (name, tensors) in enumerate((("matmul", 2), ("relu", 1), ("sub", 2), ("mul", 2), ("mean", 1))):
            args = [types_pb2.Argument(tensor=1)] * tensors
            self._prepare(number, c.OpRequest(op=name, args=args, outputs=[1]))
        args = [types_pb2.Argument(tensor=1)] * 2 + [types_pb2.Argument(name="alpha", float=1.0)]
        self._prepare(5, c.OpRequest(op="add_", args=args, grad_mode=types_pb2.GRAD_MODE_DISABLED))

    def _id(self) -> int:
        self._next += 1
        return self._next - 1

    def _create(self, values: Any, requires_grad: bool = False) -> int:
        array, made = np.asarray(values, np.float32), self._id()
        payload = types_pb2.Payload(dtype=types_pb2.DTYPE_FLOAT32, shape=array.shape, data=array.tobytes())
        request = c.CreateRequest(id=made, payload=payload, requires_grad=requires_grad)
        self.made.append(service_pb2.Command(create=request, quiet=True))
        return made

    def _prepare(self, number: int, op: c.OpRequest) -> None:
        self.made.append(service_pb2.Command(prepare=c.Prepare(number=number, op=op), quiet=True))

    def attach(self) -> bytes:
        """The stream's first message."""
        attach = service_pb2.StreamAttach(session_id=self._opened.session_id, writer=self._opened.writer, attempt=1)
        return service_pb2.StreamRequest(attach=attach).SerializeToString()

    def batch(self, commands: list[service_pb2.Command], calls: int = 0) -> bytes:
        """The next batch; `calls` is how many more seqs its Calls take than one each."""
        made = service_pb2.RunRequest(first_seq=self._seq, acknowledged_seq=self._done, commands=commands)
        self._seq += len(commands) + calls
        self._done = self._seq - 1  # sent after this batch's answer
        return service_pb2.StreamRequest(batch=made).SerializeToString()

    def step(self) -> bytes:
        """Forward, backward, SGD, and a read of the loss."""
        h, r, o, d, s, loss, g1, g2 = (self._id() for _ in range(8))
        forward = struct.pack(
            "<22Q", 0, self._x, self._w1, h, 1, h, r, 0, r, self._w2, o, 2, o, self._y, d, 3, d, d, s, 4, s, loss
        )
        update = b"".join(struct.pack("<3Qd", 5, w, g, -_RATE) for w, g in ((self._w1, g1), (self._w2, g2)))
        command = service_pb2.Command
        commands = [
            command(calls=c.Calls(count=6, words=forward)),
            command(backward=c.BackwardRequest(tensors=[loss]), quiet=True),
            command(grad=c.GradRequest(tensor=self._w1, id=g1), quiet=True),
            command(grad=c.GradRequest(tensor=self._w2, id=g2), quiet=True),
            command(calls=c.Calls(count=2, words=update)),
            command(set_grad=c.SetGradRequest(tensor=self._w1), quiet=True),
            command(set_grad=c.SetGradRequest(tensor=self._w2), quiet=True),
            command(read=c.ReadRequest(tensor=loss)),
            command(release=c.ReleaseRequest(tensors=[h, r, o, d, s, loss, g1, g2]), quiet=True),
        ]
        return self.batch(commands, calls=6)


Exchange = Callable[[bytes], bytes]


@contextmanager
def by_grpc(stub: Any, first: bytes) -> Iterator[Exchange]:
    """Send a message and receive the next one, on a gRPC stream."""
    sent: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    answers = stub(iter(sent.get, None))

    def exchange(message: bytes) -> bytes:
        sent.put(message)
        return bytes(next(answers))

    exchange(first)
    yield exchange
    sent.put(None)
    answers.cancel()


@contextmanager
def by_websocket(url: str, first: bytes) -> Iterator[Exchange]:
    """The same on a WebSocket."""
    with connect(f"{url.replace('http', 'ws', 1)}{_SERVICE}/Stream", compression=None) as opened:

        def exchange(message: bytes) -> bytes:
            opened.send(message)
            answer = opened.recv(_WAIT)
            assert isinstance(answer, bytes), answer
            return answer

        exchange(first)
        yield exchange


def _trains(steps: Steps, exchange: Exchange) -> Callable[[], float]:
    """A function that takes a step and returns the loss."""
    exchange(steps.batch(steps.made))

    def take() -> float:
        response = service_pb2.StreamResponse.FromString(exchange(steps.step()))
        result = response.batch.results[-1]
        assert result.WhichOneof("result") == "read", result
        return float(np.frombuffer(result.read.payload.data, np.float32)[0])

    return take


class _SmallOps(Steps):
    """Steps of 200 additions of four numbers: each takes the server as little as an op can, about 12 µs."""

    def __init__(self, opened: service_pb2.OpenSessionResponse) -> None:
        super().__init__(opened)
        self._small = self._create(np.ones(4))
        args = [types_pb2.Argument(tensor=1)] * 2
        self._prepare(6, c.OpRequest(op="add", args=args, outputs=[1]))

    def step(self) -> bytes:
        """200 additions, and a read of the last."""
        made = [self._id() for _ in range(200)]
        words = b"".join(struct.pack("<4Q", 6, self._small, self._small, each) for each in made)
        commands = [
            service_pb2.Command(calls=c.Calls(count=len(made), words=words)),
            service_pb2.Command(read=c.ReadRequest(tensor=made[-1])),
            service_pb2.Command(release=c.ReleaseRequest(tensors=made), quiet=True),
        ]
        return self.batch(commands, calls=len(made) - 1)


def _watching(channel: grpc.Channel, kind: type[Steps], name: str, turns: int) -> Result:
    """The step of a session that is watched, beside that of another one.

    Single steps of both alternate, so that other load of the machine meets both alike. The page's requests are rare
    beside steps: their round trips, by the second, are added to the watched session's steps.
    """
    stub = service_pb2_grpc.AutogradServiceStub(channel)
    opened = [stub.OpenSession(service_pb2.OpenSessionRequest()) for _ in range(2)]
    both = [kind(each) for each in opened]
    stream = channel.stream_stream(f"{_SERVICE}/Stream")
    activity = c.DescribeRequest(session_id=opened[1].session_id, activity=True)
    tensors = c.DescribeRequest(session_id=opened[1].session_id, list=True)
    result = Result("web", f"{name}, watched by Studio", "not watched", Bound(must=1.03), unit="µs")
    with by_grpc(stream, both[0].attach()) as one, by_grpc(stream, both[1].attach()) as other:
        plain, watched = _trains(both[0], one), _trains(both[1], other)
        assert [plain() for _ in range(5)] == [watched() for _ in range(5)]
        for _ in range(turns):
            asked = statistics.median(seconds(lambda: stub.Describe(activity)) for _ in range(9))
            listed = statistics.median(seconds(lambda: stub.Describe(tensors)) for _ in range(9))
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(_WATCHED_STEPS):
                times[0].append(seconds(watched))
                times[1].append(seconds(plain))
            share = asked / _ASK_SECONDS + listed / _LIST_SECONDS
            result.add(statistics.median(times[0]) * (1 + share), statistics.median(times[1]))
    return result


def measure_watching(turns: int) -> Iterator[Result]:
    """A row for a step of large ops, and one for a step of the smallest."""
    with served(*_ALONE) as (address, _), grpc.insecure_channel(address) as channel:
        yield _watching(channel, Steps, "W2 step of prepared calls, loss read", turns)
        yield _watching(channel, _SmallOps, "200 additions of four numbers", turns)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


def measure(turns: int) -> Iterator[Result]:
    """A row for the unary round trip by each encoding, and one for the step."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    with (
        served(f"--web={port}", *_ALONE) as (address, _),
        grpc.insecure_channel(address) as channel,
        httpx.Client(base_url=url, transport=httpx.HTTPTransport(retries=_READY_SECONDS), timeout=_WAIT) as client,
    ):
        stub = service_pb2_grpc.AutogradServiceStub(channel)
        session = stub.OpenSession(service_pb2.OpenSessionRequest()).session_id
        request = service_pb2.KeepAliveRequest(session_id=session)
        raw = request.SerializeToString()
        path = f"{_SERVICE}/KeepAlive"

        def direct() -> None:
            stub.KeepAlive(request)

        def binary() -> None:
            client.post(path, content=raw, headers={"content-type": "application/proto"}).raise_for_status()

        def by_json() -> None:
            client.post(path, json={"sessionId": session}).raise_for_status()

        for name, ours in (("binary", binary), ("JSON", by_json)):
            result = Result("web", f"unary call by Connect, {name}", "gRPC", Bound(), unit="µs")
            yield compare(result, ours, direct, turns=turns)
        both = [Steps(stub.OpenSession(service_pb2.OpenSessionRequest())) for _ in range(2)]
        stream = channel.stream_stream(f"{_SERVICE}/Stream")
        with by_grpc(stream, both[0].attach()) as one, by_websocket(url, both[1].attach()) as other:
            theirs, ours = _trains(both[0], one), _trains(both[1], other)
            assert [theirs() for _ in range(5)] == [ours() for _ in range(5)]
            result = Result(
                "web", "W2 step of prepared calls, loss read, by WebSocket", "gRPC stream", Bound(), unit="µs"
            )
            yield compare(result, ours, theirs, turns=turns)

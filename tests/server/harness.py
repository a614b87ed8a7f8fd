"""What the server's tests share: a server in a thread, with a clock the test turns, and a short way to say commands."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from gradwire.v1 import commands_pb2, service_pb2, service_pb2_grpc, types_pb2
from gradwire_engine.core import dtypes
from gradwire_server.common.limits import KIB, MIB, Limits
from gradwire_server.common.payload import FROM_WIRE, TO_WIRE
from gradwire_server.registry import backend as backends
from gradwire_server.registry.process_backend import WorkersBackend
from gradwire_server.registry.thread_backend import InProcessBackend
from gradwire_server.rpc.server import Server

LIMITS = Limits(
    max_message_bytes=MIB,
    max_inline_bytes=64 * KIB,
    max_tensor_bytes=8 * MIB,
    max_session_bytes=32 * MIB,
    max_bytes=256 * MIB,
    max_session_tensors=2000,
    max_sessions=50,
    max_batch_commands=600,
    chunk_bytes=64 * KIB,
    lease_seconds=60.0,
    gap_seconds=30.0,
)


WAIT = 120.0  # seconds after which nothing more is expected, on the slowest machine


def until(condition: Callable[[], Any], what: str = "it") -> None:
    """Wait for a condition."""
    ends = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < ends, f"{what} was not so within {WAIT:.0f} s"
        time.sleep(0.005)


# However busy the machine is, workers are heard.
backends._REPORT_SECONDS = WAIT


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Running:
    """A server that listens, and a stub connected to it."""

    def __init__(
        self,
        limits: Limits,
        workers: int = 0,
        tokens: Any = None,
        tls: Any = None,
        counts: bool = False,
        traces: Any = None,
        address: str = "127.0.0.1:0",
    ) -> None:
        self.guards = (tokens, tls)
        self.given_address = address
        self.counts = counts
        self.traces = traces
        self.limits = limits
        self.workers = workers
        self.clock = Clock()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.backend, self.server, self.address = self.do(self._start())
        self.loop.call_soon_threadsafe(self.backend._sweeper.cancel)  # what it does every second, a test does: `sweep`
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channel = grpc.insecure_channel(self.address, options)
        self.stub = service_pb2_grpc.AutogradServiceStub(self.channel)

    async def _start(self) -> tuple[Any, Server, str]:
        if self.workers:
            backend: Any = WorkersBackend(self.limits, self.workers, self.clock, counts=self.counts)
        else:
            backend = InProcessBackend(self.limits, self.clock, counts=self.counts)
        server = Server(backend, *self.guards, self.traces)
        return backend, server, await server.start(self.given_address)

    def do(self, coroutine: Any) -> Any:
        """Run a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def held(self) -> int:
        """The bytes that all sessions hold."""
        return self.backend.counters.total()

    def sweep(self) -> list[int]:
        """Free what has expired by the clock; bytes per session."""

        async def sweep() -> list[int]:
            return [await freed for freed in self.backend.sweep()]

        return self.do(sweep())

    async def tidy(self) -> None:
        """What else the server does every second."""
        await asyncio.gather(*self.backend.tidy())

    def settle(self) -> None:
        """Wait until all calls that have come are over: a client hears of it a little before."""
        self.do(self.server.front.idle.wait())

    def stop(self) -> None:
        """Drain and end."""
        self.channel.close()
        self.do(self.server.drain(5.0))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def open(self, **fields: Any) -> "Remote":
        """A new session."""
        return Remote(self.channel, self.stub.OpenSession(service_pb2.OpenSessionRequest(**fields)))


@contextmanager
def running(
    workers: int = 0,
    tokens: Any = None,
    tls: Any = None,
    counts: bool = False,
    traces: Any = None,
    address: str = "127.0.0.1:0",
    **changes: Any,
) -> Iterator[Running]:
    """A server with some limits changed, computing in so many worker processes, or for 0 in this one."""
    server = Running(replace(LIMITS, **changes), workers, tokens, tls, counts, traces, address)
    try:
        yield server
    finally:
        server.stop()


class Remote:
    """A session, commanded in the plainest way."""

    def __init__(self, channel: grpc.Channel, opened: service_pb2.OpenSessionResponse) -> None:
        self.channel = channel
        self.stub: Any = service_pb2_grpc.AutogradServiceStub(channel)
        self.opened = opened
        self.id = opened.session_id
        self.ids = itertools.count(1)
        self.seq = itertools.count(1)

    def stub_bytes(self, method: str) -> Any:
        """The RPC with a request that is serialized already, and its response likewise."""
        return self.channel.unary_unary(f"/gradwire.v1.AutogradService/{method}")

    def create(self, values: Any, requires_grad: bool = False, dtype: str = "float32", tensor_id: int = 0) -> int:
        """A leaf; its id."""
        array = np.asarray(values, dtypes.BY_NAME[dtype])
        request = commands_pb2.CreateRequest(
            session_id=self.id, id=tensor_id or next(self.ids), requires_grad=requires_grad, payload=payload(array)
        )
        return self.stub.Create(request).tensor.id

    def op(self, name: str, *args: Any, **fields: Any) -> Any:
        """Apply an op; the description of its result, or a list of them."""
        outputs = self.stub.Op(op(name, *args, session_id=self.id, **fields)).outputs
        return outputs[0] if len(outputs) == 1 else list(outputs)

    def read(self, tensor_id: int) -> np.ndarray:
        """The values, however they come."""
        response = self.stub.Read(commands_pb2.ReadRequest(session_id=self.id, tensor=tensor_id))
        if response.WhichOneof("result") == "payload":
            return array_of(response.payload, response.payload.data)
        transfer = response.transfer
        request = service_pb2.DownloadRequest(session_id=self.id, transfer_id=transfer.transfer_id)
        return array_of(transfer, b"".join(part.data for part in self.stub.Download(request)))

    def backward(self, tensor_id: int, **fields: Any) -> list[int]:
        """Differentiate; the ids that received gradients."""
        request = commands_pb2.BackwardRequest(session_id=self.id, tensors=[tensor_id], **fields)
        return list(self.stub.Backward(request).accumulated)

    def grad(self, tensor_id: int) -> np.ndarray | None:
        """The gradient's values."""
        response = self.stub.Grad(commands_pb2.GradRequest(session_id=self.id, tensor=tensor_id))
        return self.read(response.grad.id) if response.HasField("grad") else None

    def describe(self, *tensor_ids: int) -> commands_pb2.DescribeResponse:
        """Descriptions."""
        return self.stub.Describe(commands_pb2.DescribeRequest(session_id=self.id, tensors=tensor_ids))

    def release(self, *tensor_ids: int) -> int:
        """Forget ids."""
        return self.stub.Release(commands_pb2.ReleaseRequest(session_id=self.id, tensors=tensor_ids)).released

    def batch(self, *commands: service_pb2.Command, first: int = 0, **fields: Any) -> service_pb2.RunRequest:
        """A batch of writer 1; without `first` it follows the one built before."""
        if not first:
            first = next(self.seq)
            self.seq = itertools.count(first + len(commands))
        fields = {"writer": 1, **fields}
        return service_pb2.RunRequest(session_id=self.id, first_seq=first, commands=commands, **fields)

    def run(self, *commands: service_pb2.Command, **fields: Any) -> service_pb2.RunResponse:
        """Run a batch."""
        return self.stub.Run(self.batch(*commands, **fields))

    def upload(self, data: bytes, chunk: int = 64 * KIB, start: int = 0, transfer_id: str = "", total: int = 0) -> str:
        """Send bytes from `start` on; the transfer's id."""
        parts = upload_parts(self.id, data, chunk, start, transfer_id, total)
        return self.stub.Upload(iter(parts)).transfer_id

    def close(self) -> int:
        """End the session; bytes freed."""
        return self.stub.CloseSession(service_pb2.CloseSessionRequest(session_id=self.id)).freed_bytes


def upload_parts(
    session_id: str, data: bytes, chunk: int = 64 * KIB, start: int = 0, transfer_id: str = "", total: int = 0
) -> list[service_pb2.UploadRequest]:
    """The messages of an Upload."""
    begin = service_pb2.UploadStart(
        session_id=session_id, transfer_id=transfer_id, total_bytes=total or len(data), offset=start
    )
    pieces = [data[place : place + chunk] for place in range(start, len(data), chunk)]
    return [service_pb2.UploadRequest(start=begin), *(service_pb2.UploadRequest(data=piece) for piece in pieces)]


def payload(array: np.ndarray) -> types_pb2.Payload:
    """An array as it travels."""
    return types_pb2.Payload(dtype=TO_WIRE[array.dtype], shape=array.shape, data=array.tobytes())


def array_of(described: Any, data: bytes) -> np.ndarray:
    """An array that travelled."""
    return np.frombuffer(data, FROM_WIRE[described.dtype]).reshape(tuple(described.shape))


class Id(int):
    """A number that is a tensor's id."""


def argument(value: Any, name: str = "") -> types_pb2.Argument:
    """An argument; a plain int is a whole number, an Id a tensor."""
    if isinstance(value, types_pb2.Argument):
        return value
    if isinstance(value, Id):
        return types_pb2.Argument(name=name, tensor=value)
    if isinstance(value, bool):
        return types_pb2.Argument(name=name, boolean=value)
    if isinstance(value, int):
        return types_pb2.Argument(name=name, integer=value)
    if isinstance(value, float):
        return types_pb2.Argument(name=name, float=value)
    if isinstance(value, str):
        return types_pb2.Argument(name=name, string=value)
    if isinstance(value, list) and value and isinstance(value[0], Id):
        return types_pb2.Argument(name=name, tensors=types_pb2.TensorList(ids=value))
    return types_pb2.Argument(name=name, integers=types_pb2.IntList(values=value))


def op(name: str, *args: Any, session_id: str = "", named: dict[str, Any] | None = None, **fields: Any) -> Any:
    """An OpRequest."""
    told = [argument(value) for value in args] + [argument(value, key) for key, value in (named or {}).items()]
    return commands_pb2.OpRequest(session_id=session_id, op=name, args=told, **fields)


def with_session(request: Any, session: Remote) -> Any:
    """A copy of a request, for a session."""
    sent = type(request).FromString(request.SerializeToString())
    sent.session_id = session.id
    return sent


def command(request: Any, **fields: Any) -> service_pb2.Command:
    """A command of a batch."""
    which = type(request).__name__.removesuffix("Request")
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in which).lstrip("_")
    return service_pb2.Command(**{name: request}, **fields)


def refusal(error: grpc.RpcError) -> tuple[str, str, dict[str, str]]:
    """The status code's name, the reason, and the metadata of ErrorInfo, which must be there."""
    status = rpc_status.from_call(error)
    assert status is not None, error
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            assert info.domain == "gradwire"
            assert status.message == error.details()
            return error.code().name, info.reason, dict(info.metadata)
    raise AssertionError(f"no ErrorInfo in {status}")


def refused(call: Any, *args: Any, **kwargs: Any) -> tuple[str, str, dict[str, str]]:
    """The refusal that a call meets; it must be refused."""
    try:
        response = call(*args, **kwargs)
        if isinstance(response, grpc.Call):
            list(response)
    except grpc.RpcError as error:
        return refusal(error)
    raise AssertionError("it was not refused")

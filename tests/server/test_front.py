"""The front: health, reflection, draining, and the statuses that refusals become."""

import asyncio
import base64
import concurrent.futures
import os
import subprocess
import sys
import threading
from typing import Any
from urllib.parse import quote

import grpc
import numpy as np
import pytest
from google.rpc import status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import errors_pb2, service_pb2, types_pb2
from gradwire_engine.core.errors import Reason
from gradwire_server.common.abort import status_code
from gradwire_server.common.addresses import address_of, is_loopback
from gradwire_server.common.errors import CODES, Code, Refusal
from gradwire_server.common.methods import COMMANDS
from gradwire_server.common.protobuf_peek import peek_data, peek_run, peek_session
from gradwire_server.session import commands
from tests.server.harness import Id, Remote, Running, command, op, refused, running

SERVICE = "gradwire.v1.AutogradService"


def health(server: Running, name: str = "") -> int:
    stub = health_pb2_grpc.HealthStub(server.channel)
    return stub.Check(health_pb2.HealthCheckRequest(service=name)).status


def test_every_reason_has_its_documented_code() -> None:
    names = {name.removeprefix("REASON_") for name in errors_pb2.Reason.keys()} - {"UNSPECIFIED"}  # noqa: SIM118
    assert set(CODES) == names
    assert {reason.value for reason in Reason} <= names
    for code in Code:
        assert grpc.StatusCode[code.name].value[0] == code
    assert status_code(Refusal("SHAPE", "")) is grpc.StatusCode.INVALID_ARGUMENT


def test_commands_have_a_method_and_a_handler_each() -> None:
    assert {method: spec.request for method, spec in commands.BY_METHOD.items()} == COMMANDS


def test_the_front_of_worker_processes_loads_no_engine() -> None:
    front = (
        "import sys, gradwire_server.app.cli, gradwire_server.app.metrics, gradwire_server.auth.tokens\n"
        "import gradwire_server.registry.process_backend, gradwire_server.rpc.server\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'gradwire_engine'])"
    )
    told = subprocess.run([sys.executable, "-c", front], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"


def test_a_refusals_status_is_cut_to_what_trailers_hold() -> None:
    refusal = Refusal("SHAPE", "é" * 10_000, **{f"key{number}": "x" * 10_000 for number in range(50)})
    status = refusal.status()
    assert status.ByteSize() < 7000
    assert status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]


@pytest.mark.parametrize("character", ["x", "é", "☃", "\n"])
def test_both_trailers_and_the_text_fit_8_kib(character: str) -> None:
    refusal = Refusal("SHAPE", character * 10_000, **{f"key{number}": character * 10_000 for number in range(50)})
    trailers = dict(refusal.trailers())
    text = quote(status_pb2.Status.FromString(trailers["grpc-status-details-bin"]).message)
    assert len(text) + sum(len(base64.b64encode(value)) for value in trailers.values()) < 8 * 1024
    error = errors_pb2.Error.FromString(trailers["gradwire-error-bin"])
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT.value[0], errors_pb2.REASON_SHAPE)
    assert error.message.startswith(character * 5)
    assert error.metadata["key0"].startswith(character)


def test_a_refused_call_has_the_error_in_a_trailer(session: Remote) -> None:
    x, y = session.create(np.zeros((2, 3))), session.create(np.zeros((2, 3)))
    with pytest.raises(grpc.RpcError) as raised:
        session.op("matmul", Id(x), Id(y))
    error = errors_pb2.Error.FromString(dict(raised.value.trailing_metadata())["gradwire-error-bin"])
    assert error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert error.reason == errors_pb2.REASON_SHAPE
    assert error.message == raised.value.details()
    assert error.metadata == {"op": "matmul", "shape": "[2, 3]", "shapes": "[[2, 3], [2, 3]]"}


@pytest.mark.parametrize("name", ["reshape", "getitem", "add_"])
def test_every_refused_op_names_itself_and_its_shapes(session: Remote, name: str) -> None:
    index = types_pb2.Index(items=[types_pb2.IndexItem(integer=7)])
    second = {"reshape": [4], "getitem": types_pb2.Argument(index=index), "add_": Id(session.create([1.0, 2.0]))}[name]
    x = session.create(np.zeros((2, 3)))
    unary = refused_error(session, op(name, Id(x), second))
    (result,) = session.run(command(op(name, Id(x), second))).results
    for error in (unary, result.error):
        assert error.metadata["op"].removesuffix("_") == name.removesuffix("_")
        assert error.metadata["shape"] == "[2, 3]"
        assert error.metadata["shapes"].startswith("[[2, 3]")


def refused_error(session: Remote, request: c.OpRequest) -> errors_pb2.Error:
    request.session_id = session.id
    with pytest.raises(grpc.RpcError) as raised:
        session.stub.Op(request)
    request.session_id = ""
    return errors_pb2.Error.FromString(dict(raised.value.trailing_metadata())["gradwire-error-bin"])


@pytest.mark.parametrize("character", ["☃", "\n", "%", "𝄞", "é"])
def test_a_refusal_of_any_text_reaches_the_client(session: Remote, character: str) -> None:
    x = session.create([1.0])
    named = {character * 10_000: 1}
    assert refused(session.op, "exp", Id(x), named=named)[:2] == ("INVALID_ARGUMENT", "ARGUMENT_TYPE")
    assert refused(session.op, character * 10_000, Id(x))[:2] == ("UNIMPLEMENTED", "OP_UNKNOWN")


def test_requests_that_wait_are_bounded_in_bytes(session: Remote, server: Running) -> None:
    large = session.batch(command(op("exp", Id(1)), quiet=True), first=1)
    raw = large.SerializeToString() + b"\xfa\x07\x80\x80\x08" + bytes(1 << 17)  # field 127, unknown
    server.server.front.waiting += 64 * server.limits.max_message_bytes
    try:
        assert refused(session.stub_bytes("Run"), raw)[:2] == ("UNAVAILABLE", "UNAVAILABLE")
        assert session.read(session.create([1.0])).tolist() == [1.0]
    finally:
        server.server.front.waiting -= 64 * server.limits.max_message_bytes
    assert service_pb2.RunResponse.FromString(session.stub_bytes("Run")(raw)).applied_seq == 1
    assert server.server.front.waiting == 0


def test_a_long_message_reaches_the_client(session: Remote) -> None:
    x = session.create(np.zeros((1,) * 60))
    code, reason, _ = refused(session.op, "reshape", Id(x), list(range(2, 1000)))
    assert (code, reason) == ("INVALID_ARGUMENT", "SHAPE")


@pytest.mark.parametrize("name", ["", SERVICE])
def test_health_says_serving(server: Running, name: str) -> None:
    assert health(server, name) == health_pb2.HealthCheckResponse.SERVING


def test_reflection_lists_the_service(server: Running) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(server.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([request]))
    assert SERVICE in {service.name for service in answer.list_services_response.service}
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE)
    (answer,) = stub.ServerReflectionInfo(iter([request]))
    assert answer.file_descriptor_response.file_descriptor_proto


def test_draining_finishes_what_runs_and_refuses_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    reached, opened = threading.Event(), threading.Event()
    real = commands.COMMANDS["backward"].handler

    def hold(*args: Any) -> Any:
        reached.set()
        assert opened.wait(60)
        return real(*args)

    monkeypatch.setattr(commands.COMMANDS["backward"], "handler", hold)
    with running() as server:
        session = server.open()
        x = session.create([3.0], requires_grad=True)
        y = session.op("mul", Id(x), Id(x)).id
        busy = session.stub.Backward.future(c.BackwardRequest(session_id=session.id, tensors=[y]))
        assert reached.wait(60)
        watch = health_pb2_grpc.HealthStub(server.channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        draining = asyncio.run_coroutine_threadsafe(server.server.drain(60.0), server.loop)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
        for call in (server.open, session.describe, lambda: session.upload(b"1234")):
            assert refused(call)[:2] == ("UNAVAILABLE", "UNAVAILABLE")
        session.stub.KeepAlive(service_pb2.KeepAliveRequest(session_id=session.id))
        assert not busy.done()
        opened.set()
        assert list(busy.result(60).accumulated) == [x]
        draining.result(60)


def test_a_grace_that_is_over_cancels_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    reached = threading.Event()
    real = commands.COMMANDS["backward"].handler

    def hold(session: Any, *rest: Any) -> Any:
        reached.set()
        late = threading.Event()
        while not session.cancel_token.stopping():
            late.wait(0.001)
        return real(session, *rest)

    monkeypatch.setattr(commands.COMMANDS["backward"], "handler", hold)
    with running() as server:
        session = server.open()
        x = session.create([3.0], requires_grad=True)
        y = session.op("mul", Id(x), Id(x)).id
        busy = session.stub.Backward.future(c.BackwardRequest(session_id=session.id, tensors=[y]))
        assert reached.wait(60)
        asyncio.run_coroutine_threadsafe(server.server.drain(0.05), server.loop)
        assert refused(busy.result, 60)[1] == "CANCELLED"


def test_what_the_front_reads_of_a_message() -> None:
    run = service_pb2.RunRequest(session_id="abc", writer=3, first_seq=300, epoch=1, acknowledged_seq=9)
    run.commands.add(quiet=True)
    raw = run.SerializeToString()
    assert peek_session(raw) == "abc"
    header = peek_run(raw)
    assert header is not None
    assert (header.session_id, header.writer, header.first_seq) == ("abc", 3, 300)
    assert peek_session(service_pb2.RunRequest(writer=1).SerializeToString()) is None
    for cut in range(len(raw)):
        peek_session(raw[:cut])
        peek_run(raw[:cut])
    data = service_pb2.UploadRequest(data=b"x" * 300)
    found = peek_data(data.SerializeToString(), 15)
    assert found is not None
    assert bytes(found) == b"x" * 300
    start = service_pb2.UploadRequest(start=service_pb2.UploadStart(session_id="a"))
    assert peek_data(start.SerializeToString(), 15) is None
    assert peek_data(data.SerializeToString()[:-1], 15) is None


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]", "0.0.0.0", "::", "192.168.1.1", "example.org", ""]
)
def test_which_addresses_only_this_machine_reaches(host: str) -> None:
    assert is_loopback(host) == (host in ("127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]"))


def test_addresses_are_written_as_grpc_reads_them() -> None:
    assert address_of("::1", 5) == "[::1]:5"
    assert address_of("127.0.0.1", 5) == "127.0.0.1:5"


def test_a_call_that_ends_while_it_is_written_to_is_no_error_of_the_server(
    session: Remote, server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    class Ended:
        """As gRPC has the context of a call whose client has gone."""

        def invocation_metadata(self) -> tuple[()]:
            return ()

        async def read(self) -> bytes:
            attach = service_pb2.StreamAttach(session_id=session.id, writer=1, attempt=1)
            return service_pb2.StreamRequest(attach=attach).SerializeToString()

        async def write(self, message: bytes) -> None:
            raise grpc.aio.InternalError("Failed execute_batch")

    before = server.server.front.refusals.total()
    with pytest.raises(concurrent.futures.CancelledError):
        server.do(server.server.front._stream(iter(()), Ended()))
    assert not caplog.records
    assert server.server.front.refusals.total() == before
    assert not server.server.front.streams._open


def test_the_front_needs_no_numpy_until_a_transfer() -> None:
    """It takes 8 MiB, and the front computes nothing."""
    modules = "app.cli", "rpc.server", "registry.process_backend", "registry.shared_catalog", "registry.group_nodes"
    code = f"import sys, {', '.join(f'gradwire_server.{each}' for each in modules)}\n"
    code += "from gradwire_server.worker.rings import machine; machine(); assert 'numpy' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=100)

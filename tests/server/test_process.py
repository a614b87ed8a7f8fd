"""The server as a process: how it starts, what it prints, and when it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2, service_pb2_grpc
from gradwire_server.common import blas
from tests.server.harness import WAIT, Id, Remote, command, op, payload, refused, with_session

SERVE = [sys.executable, "-m", "gradwire_server"]
ALONE = ("--port=0", "--workers=0")  # for what workers have no part in: by default each core's takes a second to start


@contextmanager
def process(*arguments: str, line: list[str] | None = None, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A server's process, killed at the end if it still runs."""
    command_line = [*(line or SERVE), *arguments]
    started = subprocess.Popen(
        command_line,
        stdout=subprocess.PIPE,
        text=True,
        **{"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )
    try:
        yield started
    finally:
        started.kill()
        started.wait()
        for stream in (started.stdin, started.stdout, started.stderr):
            if stream is not None:
                stream.close()


def ready(started: subprocess.Popen[str]) -> str:
    """The address it says to listen at."""
    assert started.stdout is not None
    line = started.stdout.readline()
    assert line, started.stderr and started.stderr.read()
    return json.loads(line)["address"] if line.startswith("{") else line.split()[-1]


@contextmanager
def connected(address: str) -> Iterator[Any]:
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(WAIT)
        yield channel


def info(address: str) -> service_pb2.ServerInfoResponse:
    with connected(address) as channel:
        return service_pb2_grpc.AutogradServiceStub(channel).ServerInfo(service_pb2.ServerInfoRequest())


def opened(channel: grpc.Channel) -> Remote:
    stub = service_pb2_grpc.AutogradServiceStub(channel)
    return Remote(channel, stub.OpenSession(service_pb2.OpenSessionRequest()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_says_where_and_ends_well(number: signal.Signals) -> None:
    with process("--port", "0", "--workers=1") as started:
        address = ready(started)
        assert address.startswith("127.0.0.1:")
        with connected(address) as channel:
            session = opened(channel)
            x = session.create([2.0], requires_grad=True)
            session.backward(session.op("mul", Id(x), Id(x)).id)
            assert session.grad(x) == [4.0]
            started.send_signal(number)
            assert started.wait(WAIT) == 0


def test_json_logs_are_json() -> None:
    with process(*ALONE, "--log-format=json") as started:
        assert ready(started).startswith("127.0.0.1:")
        started.terminate()
        _, errors = started.communicate(timeout=WAIT)
        lines = [json.loads(line) for line in errors.splitlines()]
        assert [line["message"] for line in lines] == ["draining", "stopped"]
        assert all({"time", "level"} <= line.keys() for line in lines)


def test_help_shows_options_variables_and_defaults() -> None:
    shown = subprocess.run([*SERVE, "--help"], capture_output=True, text=True, check=True, timeout=WAIT).stdout
    flat = " ".join(shown.split())
    for told in ("--host", "GRADWIRE_CONFIG", "50051", "127.0.0.1", "--insecure-bind", "--config", "8MiB"):
        assert told in flat


def test_flags_win_over_the_environment() -> None:
    environment = {**os.environ, "GRADWIRE_PORT": "0", "GRADWIRE_MAX_SESSIONS": "7", "GRADWIRE_CHUNK_BYTES": "5000"}
    with process("--max-sessions=8", "--workers=0", env=environment) as started:
        limits = info(ready(started)).limits
    assert (limits.max_sessions, limits.chunk_bytes) == (8, 5000)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--host=0.0.0.0", "--port=0"], "--insecure-bind"),
        (["--port=99999"], "port"),
        (["--max-message-bytes=5"], "max-message-bytes"),
        (["--max-message-bytes=1000000000000"], "max-message-bytes"),
        (["--lease-seconds=inf"], "lease-seconds"),
        (["--max-bytes=99999999999999999999"], "max-bytes"),
        (["--log-format=xml"], "log-format"),
        (["--no-such-option"], "no-such-option"),
    ],
)
def test_wrong_settings_are_refused_by_name(arguments: list[str], told: str) -> None:
    ended = subprocess.run([*SERVE, *arguments], capture_output=True, text=True, check=False, timeout=WAIT)
    assert ended.returncode == 2
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_reachable_address_is_served_when_asked_for_and_said_in_the_log() -> None:
    with process("--host=0.0.0.0", *ALONE, env={**os.environ, "GRADWIRE_INSECURE_BIND": "1"}) as started:
        assert ready(started).startswith("0.0.0.0:")
        started.terminate()
        _, errors = started.communicate(timeout=WAIT)
    assert "WARNING" in errors


def test_a_taken_port_is_told() -> None:
    with process(*ALONE) as first:
        port = ready(first).rpartition(":")[2]
        line = [*SERVE, "--port", port, "--workers=0"]
        ended = subprocess.run(line, capture_output=True, text=True, check=False, timeout=WAIT)
    assert ended.returncode == 1
    assert f"cannot listen at 127.0.0.1:{port}" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("name", ["state-dir", "snapshot-dir", "files-dir"])
def test_a_directory_that_cannot_be_written_is_refused_by_its_option_at_the_start(name: str, tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_bytes(b"")
    line = [*SERVE, "--workers=0", f"--state-dir={tmp_path}/state", f"--{name}={taken}"]
    ended = subprocess.run(line, capture_output=True, text=True, check=False, timeout=WAIT)
    assert ended.returncode == 2
    assert f"--{name}: {taken} cannot be written: File exists" in ended.stderr


def test_blas_is_set_up_also_where_numpy_was_loaded_before() -> None:
    arguments = [*ALONE, "--blas-threads=1"]
    code = f"import numpy; from gradwire_server.app.cli import serve; serve({arguments})"
    with process(line=[sys.executable, "-c", code]) as started:
        told = info(ready(started)).build
    assert told["blas_threads"] == "1"
    assert told["numpy"] == np.__version__


def test_blas_kernels_threads_and_waiting_are_chosen_unless_the_user_did(monkeypatch: pytest.MonkeyPatch) -> None:
    assert blas.has_avx512("processor: 0\nflags\t\t: fpu avx2 avx512f avx512vl\n")
    assert not blas.has_avx512("processor: 0\nflags\t\t: fpu avx2\n")
    for name in (*blas._THREADS, blas.CORE_TYPE, blas.WAIT):
        monkeypatch.delenv(name, raising=False)
    assert blas.wanted(0)[blas.WAIT] == "20"
    assert blas.wanted(3)["OPENBLAS_NUM_THREADS"] == "3"
    assert blas.wanted(0)["OPENBLAS_NUM_THREADS"] == str(blas.cores())
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv(blas.CORE_TYPE, "Zen")
    monkeypatch.setenv(blas.WAIT, "26")
    assert blas.wanted(0) == {}
    assert blas.threads() == 1


def test_a_thousand_sessions_leave_the_memory_as_it_was() -> None:
    quiet = ["--port=0", "--workers=1", "--log-level=warning"]
    with process(*quiet) as started, connected(ready(started)) as channel:
        server = psutil.Process(started.pid)
        measured = [server, *server.children()]
        resident = []
        for number in range(1000):
            session = opened(channel)
            session.run(
                command(c.CreateRequest(id=1, requires_grad=True, payload=payload(np.ones(4096, np.float32)))),
                command(op("exp", Id(1), outputs=[2])),
                command(op("mul", Id(2), Id(1), outputs=[3])),
                command(op("sum", Id(3), outputs=[4])),
                command(c.BackwardRequest(tensors=[4], create_graph=number % 2 == 0)),
                command(c.ReadRequest(tensor=3)),
            )
            session.close()
            if number in (99, 999):
                resident.append(sum(each.memory_info().rss for each in measured))
        stub = service_pb2_grpc.AutogradServiceStub(channel)
        assert stub.ServerInfo(service_pb2.ServerInfoRequest()).bytes == 0
        assert resident[1] <= 1.1 * resident[0]


def test_a_result_beyond_the_memory_is_refused_and_harms_nobody() -> None:
    with process("--port=0", "--workers=1", f"--max-bytes={1 << 28}") as started, connected(ready(started)) as channel:
        session = opened(channel)
        x = session.create(np.ones((200_000, 1)))
        y = session.op("reshape", Id(x), [1, 200_000]).id
        for request in (op("mul", Id(x), Id(y)), op("matmul", Id(x), Id(y)), op("ones", [1 << 33])):
            assert refused(session.stub.Op, with_session(request, session))[:2] == (
                "RESOURCE_EXHAUSTED",
                "MEMORY_LIMIT",
            )
        np.testing.assert_array_equal(session.read(session.op("sum", Id(x)).id), 200_000)


EMBEDDED = [*SERVE, "--embedded"]


def gone(address: str) -> bool:
    return not Path(address.removeprefix("unix:")).exists()


def test_the_embedded_server_listens_in_a_private_folder_and_ends_with_its_stdin() -> None:
    with process(line=EMBEDDED) as started:
        address = ready(started)
        folder = Path(address.removeprefix("unix:")).parent
        assert folder.stat().st_mode & 0o077 == 0
        assert info(address).limits.max_session_bytes
        assert started.stdin is not None
        started.stdin.close()
        assert started.wait(WAIT) == 0
        assert not folder.exists()


def test_the_embedded_server_takes_a_socket_and_ignores_ctrl_c(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    with process("--socket", str(socket), line=EMBEDDED) as started:
        assert ready(started) == f"unix:{socket}"
        started.send_signal(signal.SIGINT)
        assert info(f"unix:{socket}").version
        started.terminate()
        assert started.wait(WAIT) == 0
        assert not socket.exists()
        assert tmp_path.exists()


def test_the_embedded_server_dies_with_a_parent_that_is_killed() -> None:
    # The pipe to its stdin is held open here, so that only the change of parent tells.
    reading, writing = os.pipe()
    parent = f"import subprocess, sys; p = subprocess.Popen({EMBEDDED!r}, stdin=0); print(p.pid, flush=True); p.wait()"
    with process(line=[sys.executable, "-c", parent], stdin=reading) as started:
        assert started.stdout is not None
        lines = [started.stdout.readline(), started.stdout.readline()]
        address = json.loads(next(line for line in lines if line.startswith("{")))["address"]
        child = psutil.Process(int(next(line for line in lines if not line.startswith("{"))))
        started.kill()
        started.wait(WAIT)
        assert not psutil.wait_procs([child], timeout=WAIT)[1]
    os.close(reading)
    os.close(writing)
    assert gone(address)


def test_the_embedded_server_dies_while_it_computes() -> None:
    with process(line=EMBEDDED) as started:
        address = ready(started)
        with connected(address) as channel:
            session = opened(channel)
            x = session.create(np.zeros((400, 400)))
            many = [command(op("matmul", Id(x), Id(x), outputs=[100]))]
            many += [command(op("matmul", Id(x), Id(100 + n), outputs=[101 + n]), quiet=True) for n in range(9000)]
            busy = session.stub.Run.future(session.batch(*many))
            assert started.stdin is not None
            started.stdin.close()
            assert started.wait(WAIT) == 0
            busy.cancel()
        assert gone(address)

"""Errors for common connection mistakes contain advice."""

import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

import gradwire
from gradwire._cli import sessions
from gradwire._transport import transport
from gradwire._transport.connection_advice import checked
from gradwire_server.auth.tls import Tls
from gradwire_server.auth.tokens import Tokens, append, make
from tests.certificates import Authority
from tests.client.test_processes import start
from tests.server.harness import running


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_RETRY_WAITS", (0.05, 0.1))
    for name in ("ADDRESS", "TOKEN", "CA", "CERT", "KEY", "TLS"):
        monkeypatch.delenv(f"GRADWIRE_{name}", raising=False)


@contextmanager
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def address_of(made: socket.socket) -> str:
    return f"127.0.0.1:{made.getsockname()[1]}"


def tls_of(authority: Authority) -> Tls:
    return Tls(*authority.issue("localhost"), None)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_a_tls_server_without_an_authority(authority: Authority) -> None:
    with (
        running(tls=tls_of(authority)) as server,
        pytest.raises(gradwire.GradwireConnectionError, match=r"seems to use TLS: .* ca= or GRADWIRE_CA"),
    ):
        gradwire.connect(server.address)


def test_a_tls_server_whose_authority_is_not_trusted(authority: Authority) -> None:
    with (
        running(tls=tls_of(authority)) as server,
        pytest.raises(gradwire.GradwireConnectionError, match=r"certificate is not trusted: .*GRADWIRE_CA"),
    ):
        gradwire.connect(server.address, tls=True)


def test_a_plain_server_by_tls() -> None:
    with (
        running() as server,
        pytest.raises(gradwire.GradwireConnectionError, match=r"seems not to use TLS: remove ca="),
    ):
        gradwire.connect(server.address, tls=True)


@pytest.mark.parametrize("address", ["localhost", "http://localhost:50051", "localhost:", "localhost:99999", "::1"])
def test_an_address_without_a_port(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"give HOST:PORT, as \S+:50051"):
        gradwire.connect(address)
    monkeypatch.setenv("GRADWIRE_ADDRESS", address)
    with pytest.raises(ValueError, match=r"give HOST:PORT"):
        gradwire.connect()


def test_a_token_that_is_missing_or_another(tmp_path: Path) -> None:
    append(tmp_path / "tokens", make("alice")[1])
    other, _ = make("bob")
    with running(tokens=Tokens(tmp_path / "tokens")) as server:
        with pytest.raises(gradwire.GradwirePermissionError, match=r"No token was given: .*GRADWIRE_TOKEN"):
            gradwire.connect(server.address)
        with pytest.raises(gradwire.GradwirePermissionError, match=r"is unknown to this server") as caught:
            gradwire.connect(server.address, token=other)
    assert other not in str(caught.value)


def test_a_host_that_cannot_be_resolved() -> None:
    with pytest.raises(gradwire.GradwireConnectionError, match="name cannot be resolved"):
        gradwire.connect("no.such.host.invalid:50051")


def test_a_port_without_a_server(tmp_path: Path) -> None:
    with listening() as made:
        address = address_of(made)
    for nobody in (address, f"unix:{tmp_path}/none"):
        with pytest.raises(gradwire.GradwireConnectionError, match="No server listens there: start `gradwire serve`"):
            gradwire.connect(nobody)


def test_a_web_server() -> None:
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        try:
            with pytest.raises(gradwire.GradwireConnectionError, match="The server at that port does not speak gRPC"):
                gradwire.connect(f"127.0.0.1:{web.server_port}")
        finally:
            web.shutdown()


def test_a_grpc_server_of_something_else_is_named_and_left_for_the_next_address(server_address: str) -> None:
    other = grpc.server(ThreadPoolExecutor(1))
    address = f"127.0.0.1:{other.add_insecure_port('127.0.0.1:0')}"
    other.start()
    try:
        with pytest.raises(gradwire.GradwireConnectionError, match=f"the server at {address} is no gradwire server"):
            gradwire.connect(address)
        with gradwire.connect(f"{address},{server_address}") as session:
            assert session.address == server_address
            session.close()
    finally:
        other.stop(None)


def test_the_command_for_administrators_tells_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        sessions.main(["localhost"])
    assert ended.value.code == 2
    assert "give HOST:PORT, as localhost:50051" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        sessions.main(["127.0.0.1:1"])
    assert ended.value.code == 1
    assert "No server listens there" in capsys.readouterr().err


def test_a_server_whose_port_is_taken_says_so_in_a_line() -> None:
    with listening() as made:
        command = [sys.executable, "-m", "gradwire_server", f"--port={made.getsockname()[1]}", "--workers=1"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert f"cannot listen at {address_of_port(command)}: Address already in use; --port names another" in done.stderr


def address_of_port(command: "list[str]") -> str:
    return f"127.0.0.1:{command[3].partition('=')[2]}"


def test_ctrl_c_in_the_first_use_ends_it_in_a_second() -> None:
    """The listening socket never answers."""
    with listening() as made:
        child = start(
            """
            import gradwire
            print("begun", flush=True)
            gradwire.ones(2)
            """,
            GRADWIRE_ADDRESS=address_of(made),
        )
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "begun"
        time.sleep(1.0)
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in err
    assert time.monotonic() - began < 30  # a second, on a machine that has nothing else to do


@pytest.mark.parametrize(
    ("address", "advice"),
    [("foo bar:50051", "as localhost:50051"), ("127.0.0.1:99999", "has the port 99999, which is not in 1 to 65535")],
)
def test_an_address_is_not_advised_again(address, advice):
    with pytest.raises(ValueError, match=advice):
        checked(address)

"""TLS: who may connect, who is who by certificate, and certificates that change while the server runs."""

import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from gradwire.v1 import service_pb2 as s
from gradwire.v1 import service_pb2_grpc
from gradwire_server.auth.tls import Tls, TlsError
from gradwire_server.auth.tokens import Tokens, make
from tests.certificates import Authority
from tests.server.harness import Running, op, refused, running, until
from tests.server.test_process import SERVE, WAIT, process, ready


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def mutual(authority: Authority) -> Iterator[Running]:
    """A server that asks for certificates, in which carol is an administrator."""
    path = authority.folder / "tokens"
    path.write_text("carol certificate scopes=admin\n")
    tls = Tls(*authority.issue("localhost"), authority.path)
    with running(tokens=Tokens(path), tls=tls) as started:
        yield started


@contextmanager
def secure(address: str, authority: Authority, name: str | None = None) -> Iterator[Any]:
    """A stub over TLS, with a certificate of a name or none."""
    cert, key = (None, None) if name is None else (path.read_bytes() for path in authority.issue(name))
    credentials = grpc.ssl_channel_credentials(authority.path.read_bytes(), key, cert)
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(f"localhost:{address.rpartition(':')[2]}", credentials, options) as channel:
        yield service_pb2_grpc.AutogradServiceStub(channel)


def served(address: str) -> str:
    """The certificate that a server shows."""
    return ssl.get_server_certificate(("127.0.0.1", int(address.rpartition(":")[2])))


def test_a_certificates_name_is_the_principal(mutual: Running, authority: Authority) -> None:
    with secure(mutual.address, authority, "alice") as alice, secure(mutual.address, authority, "bob") as bob:
        session = alice.OpenSession(s.OpenSessionRequest()).session_id
        assert alice.Op(op("zeros", session_id=session, named={"size": [2]})).outputs
        assert refused(bob.KeepAlive, s.KeepAliveRequest(session_id=session))[1] == "SESSION_NOT_FOUND"
        attach = s.StreamRequest(attach=s.StreamAttach(session_id=session, writer=1))
        assert refused(bob.Stream, iter([attach]))[1] == "SESSION_NOT_FOUND"
        assert next(iter(alice.Stream(iter([attach])))).HasField("attached")
        assert refused(alice.ListSessions, s.ListSessionsRequest())[1] == "PERMISSION_DENIED"
    with secure(mutual.address, authority, "carol") as carol:
        assert [each.principal for each in carol.ListSessions(s.ListSessionsRequest()).sessions] == ["alice"]


def test_a_name_that_cannot_be_a_principal_is_refused(mutual: Running, authority: Authority) -> None:
    with secure(mutual.address, authority, "two words") as stub:
        assert refused(stub.OpenSession, s.OpenSessionRequest())[1] == "UNAUTHENTICATED"


def test_a_wrong_token_is_not_made_good_by_a_certificate(mutual: Running, authority: Authority) -> None:
    with secure(mutual.address, authority, "alice") as stub:
        bearer = (("authorization", f"Bearer {make('carol')[0]}"),)
        assert refused(stub.ServerInfo, s.ServerInfoRequest(), metadata=bearer)[1] == "UNAUTHENTICATED"


def test_without_a_certificate_of_the_authority_there_is_no_connection(mutual: Running, authority: Authority) -> None:
    other = authority.folder / "other"
    other.mkdir()
    stranger = Authority(other)
    cert, key = stranger.issue("alice")
    for shown in ((None, None), (key.read_bytes(), cert.read_bytes())):
        credentials = grpc.ssl_channel_credentials(authority.path.read_bytes(), *shown)
        with grpc.secure_channel(f"localhost:{mutual.address.rpartition(':')[2]}", credentials) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                service_pb2_grpc.AutogradServiceStub(channel).ServerInfo(s.ServerInfoRequest())
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(grpc.RpcError) as plain:
        mutual.stub.ServerInfo(s.ServerInfoRequest())
    assert plain.value.code() is grpc.StatusCode.UNAVAILABLE


def test_new_certificates_serve_without_a_restart_and_damaged_ones_never(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = authority.issue("localhost")
    with running(tls=Tls(cert, key)) as server, secure(server.address, authority) as before:
        before.ServerInfo(s.ServerInfoRequest())
        first = served(server.address)
        assert first.strip() == cert.read_text().strip()
        cert.write_text("no certificate")
        assert served(server.address) == first
        assert caplog.text.count("cannot be used") == 1
        authority.issue("localhost")  # the same files
        assert served(server.address).strip() == cert.read_text().strip() != first.strip()
        before.ServerInfo(s.ServerInfoRequest())  # a connection that is open stays so
        with secure(server.address, authority) as after:
            after.ServerInfo(s.ServerInfoRequest())


def test_a_key_that_is_not_the_certificates_is_refused(authority: Authority) -> None:
    cert, key = authority.issue("localhost")
    _, other = authority.issue("alice")
    with pytest.raises(TlsError, match=r"localhost\.crt"):
        Tls(cert, other)
    with pytest.raises(TlsError, match=r"alice\.key"):
        Tls(cert, key, other)
    with pytest.raises(FileNotFoundError):
        Tls(cert, authority.folder / "none")


def test_serve_takes_tls_by_flags_and_environment_and_may_then_be_reached_by_others(authority: Authority) -> None:
    cert, key = authority.issue("localhost")
    environment = {**os.environ, "GRADWIRE_TLS_CERT": str(cert), "GRADWIRE_TLS_KEY": str(key)}
    line = ("--port=0", "--host=0.0.0.0", "--workers=1", f"--tls-client-ca={authority.path}")
    with process(*line, env=environment) as started:
        address = ready(started)
        with secure(address, authority, "alice") as stub:
            assert stub.OpenSession(s.OpenSessionRequest()).session_id
        probe = [sys.executable, "-m", "gradwire_server.app.healthcheck", f"localhost:{address.rpartition(':')[2]}"]
        shown = {"GRADWIRE_CA": authority.path, "GRADWIRE_CERT": cert, "GRADWIRE_KEY": key}
        asked = {**os.environ, **{name: str(path) for name, path in shown.items()}}
        healthy = subprocess.run(probe, env=asked, capture_output=True, text=True, check=False, timeout=WAIT)
        assert healthy.returncode == 0, healthy.stderr
        started.terminate()
        _, errors = started.communicate(timeout=WAIT)
    assert "WARNING" not in errors


def test_health_is_asked_under_the_name_of_the_certificate(authority: Authority) -> None:
    cert, key = authority.issue("localhost")
    with running(tls=Tls(cert, key)) as server:
        probe = [
            sys.executable,
            "-m",
            "gradwire_server.app.healthcheck",
            server.address.replace("localhost", "127.0.0.1"),
        ]
        for name, status in (("localhost", 0), ("elsewhere", 1)):
            line = [*probe, "--ca", str(authority.path), "--server-name", name]
            assert subprocess.run(line, capture_output=True, check=False, timeout=WAIT).returncode == status


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["--tls-cert=cert"], 2, "tls-key go together"),
        (["--tls-client-ca=ca"], 2, "needs --tls-cert"),
        (["--tls-cert=none", "--tls-key=none"], 1, "none"),
        (["--tls-cert=junk", "--tls-key=junk"], 1, "junk"),
    ],
)
def test_wrong_tls_settings_are_refused_by_name(tmp_path: Path, arguments: list[str], status: int, told: str) -> None:
    (tmp_path / "junk").write_text("junk")
    line = [*SERVE, "--port=0", *arguments]
    ended = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=WAIT)
    assert ended.returncode == status
    assert told in ended.stderr and "Traceback" not in ended.stderr


def test_files_are_followed_when_they_are_replaced_by_a_link(authority: Authority) -> None:
    cert, key = authority.issue("localhost")
    linked = authority.folder / "current"
    linked.mkdir()
    for path in (cert, key):
        (linked / path.suffix[1:]).symlink_to(path)
    with running(tls=Tls(linked / "crt", linked / "key")) as server:
        assert served(server.address).strip() == cert.read_text().strip()
        new = authority.issue("localhost", "new")
        for path in new:
            link = linked / f"next{path.suffix}"
            link.symlink_to(path)
            shutil.move(link, linked / path.suffix[1:])
        assert served(server.address).strip() == new[0].read_text().strip()


def test_handshakes_that_are_begun_and_left_delay_nobody_and_are_ended(authority: Authority) -> None:
    with running(0, tls=Tls(*authority.issue("localhost")), handshake_seconds=2.0) as server:
        host, port = "127.0.0.1", int(server.address.rpartition(":")[2])
        hello = client_hello()
        wrong = b"\x16\x03\x01\xff\xff" + bytes(100), b"GET / HTTP/1.1\r\n\r\n", bytes(50)
        begun = [hello, hello[:5], hello[:-1], b"", *wrong]
        files = len(os.listdir("/proc/self/fd"))
        with ExitStack() as stack:
            sockets = [stack.enter_context(socket.create_connection((host, port), timeout=WAIT)) for _ in range(140)]
            for number, each in enumerate(sockets):
                with suppress(ConnectionError):
                    each.sendall(begun[number % len(begun)])
            for _ in range(3):
                with secure(server.address, authority) as stub:
                    stub.ServerInfo(s.ServerInfoRequest(), timeout=WAIT)
            for each in sockets:
                with suppress(ConnectionError):
                    while each.recv(1 << 16):  # until the server closes it
                        pass
        until(lambda: len(os.listdir("/proc/self/fd")) <= files + 4)
        with secure(server.address, authority) as stub:
            assert stub.ServerInfo(s.ServerInfoRequest(), timeout=WAIT).sessions == 0


def client_hello() -> bytes:
    """What a client says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(came, goes).do_handshake()
    return goes.read()

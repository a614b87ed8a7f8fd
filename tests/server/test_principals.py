"""Who may: calls need a token, sessions are their principal's, administrators see and end them."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2 as s
from gradwire.v1 import service_pb2_grpc
from gradwire_server.auth import interceptor
from gradwire_server.auth.tokens import TokenFileError, Tokens, append, make
from gradwire_server.common.limits import MIB
from tests.rpcs import NEEDS_NO_SESSION
from tests.server.harness import Running, command, op, refusal, refused, running, until, upload_parts
from tests.server.test_process import SERVE, WAIT, connected, process, ready

SERVICE = s.DESCRIPTOR.services_by_name["AutogradService"]
STRANGERS = {
    "nothing": (),
    "another token": (("authorization", f"Bearer {make('alice')[0]}"),),
    "no token at all": (("authorization", "Bearer letmein"),),
    "empty": (("authorization", ""),),
    "another scheme": (("authorization", "Basic YWxpY2U6cGFzcw=="),),
}
Metadata = tuple[tuple[str, str], ...]


def bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


class House:
    """A server with a token file, and a token for each of alice, bob and root."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "tokens"
        self.lines: dict[str, str] = {}
        self.tokens: dict[str, str] = {}
        for name, scopes in (("alice", ()), ("bob", ()), ("root", ("admin",))):
            self.tokens[name], self.lines[name] = make(name, frozenset(scopes))
        self.write()
        self.known = Tokens(self.path)

    def renew(self) -> None:
        """Other tokens for the same principals, and none besides."""
        fresh = House(self.path.parent)
        self.lines, self.tokens = fresh.lines, fresh.tokens
        self.known.reload()

    def write(self) -> None:
        self.path.write_text("# who may\n\n" + "\n".join(self.lines.values()))

    def metadata(self, name: str) -> Metadata:
        return bearer(self.tokens[name])


@pytest.fixture(scope="module", params=[0, 1], ids=["in-process", "1-worker"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[House, Running]]:
    """A token file, and a server that looks at it often. They serve all tests of a module: starting takes a second."""
    found = House(tmp_path_factory.mktemp("house"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(interceptor, "POLL_SECONDS", 0.02)
        with running(request.param, tokens=found.known) as started:
            yield found, started


@pytest.fixture
def guarded(shared: tuple[House, Running]) -> Iterator[Running]:
    """The server, with new tokens and without sessions."""
    found, started = shared
    found.renew()
    yield started
    found.renew()
    root = found.metadata("root")
    for each in started.stub.ListSessions(s.ListSessionsRequest(), metadata=root).sessions:
        started.stub.EndSession(s.EndSessionRequest(number=each.number), metadata=root)


@pytest.fixture
def house(request: pytest.FixtureRequest, tmp_path: Path) -> House:
    """The server's token file; for a test without the server, one of its own."""
    if "guarded" in request.fixturenames:
        found: House = request.getfixturevalue("shared")[0]
        return found
    return House(tmp_path)


def calls(channel: grpc.Channel, method: Any, message: bytes, metadata: Metadata) -> Any:
    """A call of any kind: its answers as a list, messages as bytes."""
    kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    multi = getattr(channel, kind)(f"/{SERVICE.full_name}/{method.name}")
    given = iter([message]) if method.client_streaming else message
    answer = multi(given, metadata=metadata, timeout=WAIT)
    return list(answer) if method.server_streaming else answer


def request_of(name: str, session_id: str) -> bytes:
    """A request of a method, for a session."""
    if name == "Upload":
        return upload_parts(session_id, b"12345678")[0].SerializeToString()
    if name == "Stream":
        return s.StreamRequest(attach=s.StreamAttach(session_id=session_id, writer=1)).SerializeToString()
    if name == "Share":
        download = s.DownloadRequest(session_id=session_id, transfer_id="t")
        return s.ShareRequest(session_id=session_id, nonce="nonce123", download=download).SerializeToString()
    message = message_factory.GetMessageClass(SERVICE.methods_by_name[name].input_type)
    return message(session_id=session_id).SerializeToString()


def opened(server: Running, metadata: Metadata) -> s.OpenSessionResponse:
    return server.stub.OpenSession(s.OpenSessionRequest(), metadata=metadata)


def knows(stub: Any, metadata: Metadata) -> bool:
    try:
        stub.ServerInfo(s.ServerInfoRequest(), metadata=metadata)
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.UNAUTHENTICATED:
            raise
        return False
    return True


@pytest.mark.parametrize("metadata", STRANGERS.values(), ids=STRANGERS.keys())
def test_a_stranger_can_call_nothing_and_is_always_told_the_same(guarded: Running, metadata: Metadata) -> None:
    told = {refused(calls, guarded.channel, method, b"", metadata)[:2] for method in SERVICE.methods}
    told.add(refused(guarded.channel.unary_unary("/gradwire.v1.AutogradService/NoSuch"), b"", metadata=metadata)[:2])
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    reflect = reflection_pb2_grpc.ServerReflectionStub(guarded.channel).ServerReflectionInfo
    told.add(refused(reflect, iter([ask]), metadata=metadata)[:2])
    watch = health_pb2_grpc.HealthStub(guarded.channel).Watch
    told.add(refused(watch, health_pb2.HealthCheckRequest(), metadata=metadata)[:2])
    assert told == {("UNAUTHENTICATED", "UNAUTHENTICATED")}


def test_a_stranger_has_no_message_read(guarded: Running) -> None:
    large = bytes(8 * MIB)  # over the cap, which whoever may call is told
    for method in SERVICE.methods:
        assert refused(calls, guarded.channel, method, large, ())[0] == "UNAUTHENTICATED", method.name
    assert guarded.backend.registry.entries == {}
    assert guarded.server.front.active == 0


def test_health_is_told_to_everybody_and_nothing_else_of_it(guarded: Running, house: House) -> None:
    check = health_pb2_grpc.HealthStub(guarded.channel).Check
    serving = health_pb2.HealthCheckResponse.SERVING
    assert check(health_pb2.HealthCheckRequest()).status == serving
    assert check(health_pb2.HealthCheckRequest(service="guessed")).status == serving
    with pytest.raises(grpc.RpcError) as caught:
        check(health_pb2.HealthCheckRequest(service="guessed"), metadata=house.metadata("alice"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_token_opens_everything(guarded: Running, house: House) -> None:
    alice = house.metadata("alice")
    session = opened(guarded, alice).session_id
    stub = guarded.stub
    made = stub.Op(op("zeros", session_id=session, named={"size": [3]}), metadata=alice)
    assert list(made.outputs[0].shape) == [3]
    run = s.RunRequest(session_id=session, writer=1, first_seq=1, commands=[command(c.ReleaseRequest(tensors=[1]))])
    assert stub.Run(run, metadata=alice).applied_seq == 1
    parts = upload_parts(session, bytes(100))
    assert stub.Upload(iter(parts), metadata=alice).received_bytes == 100
    attach = s.StreamRequest(attach=s.StreamAttach(session_id=session, writer=1))
    (answer,) = stub.Stream(iter([attach]), metadata=alice)
    assert answer.attached.applied_seq == 1
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    reflect = reflection_pb2_grpc.ServerReflectionStub(guarded.channel).ServerReflectionInfo
    (listed,) = reflect(iter([ask]), metadata=alice)
    assert SERVICE.full_name in [each.name for each in listed.list_services_response.service]


def test_anothers_session_is_as_if_it_were_not_there(guarded: Running, house: House) -> None:
    alice, bob = house.metadata("alice"), house.metadata("bob")
    session = opened(guarded, alice).session_id
    missing = "x" * len(session)
    for method in SERVICE.methods:
        if method.name in NEEDS_NO_SESSION:
            continue
        theirs = refused(calls, guarded.channel, method, request_of(method.name, session), bob)
        nobodys = refused(calls, guarded.channel, method, request_of(method.name, missing), bob)
        assert theirs[:2] == ("NOT_FOUND", "SESSION_NOT_FOUND"), method.name
        assert theirs == nobodys, method.name
    attach = s.OpenSessionRequest(session_id=session)
    assert refused(guarded.stub.OpenSession, attach, metadata=bob)[1] == "SESSION_NOT_FOUND"
    assert guarded.stub.CloseSession(s.CloseSessionRequest(session_id=session), metadata=bob).freed_bytes == 0
    guarded.stub.KeepAlive(s.KeepAliveRequest(session_id=session), metadata=alice)


def test_anothers_stream_is_not_taken_over(guarded: Running, house: House) -> None:
    alice, bob = house.metadata("alice"), house.metadata("bob")
    session = opened(guarded, alice).session_id
    attach = s.StreamRequest(attach=s.StreamAttach(session_id=session, writer=1))
    release = c.ReleaseRequest(tensors=[1])
    more: list[s.StreamRequest] = []

    def requests() -> Iterator[s.StreamRequest]:
        yield attach
        while not more:
            time.sleep(0.01)
        yield more[0]

    stream = guarded.stub.Stream(requests(), metadata=alice, timeout=WAIT)
    assert next(stream).attached.applied_seq == 0
    assert refused(guarded.stub.Stream, iter([attach]), metadata=bob)[1] == "SESSION_NOT_FOUND"
    more.append(s.StreamRequest(batch=s.RunRequest(first_seq=1, commands=[command(release)])))
    assert next(stream).batch.applied_seq == 1


def test_anothers_expired_session_is_not_told_of(guarded: Running, house: House) -> None:
    alice, bob = house.metadata("alice"), house.metadata("bob")
    request = s.KeepAliveRequest(session_id=opened(guarded, alice).session_id)
    guarded.clock.now += 61
    guarded.sweep()
    assert refused(guarded.stub.KeepAlive, request, metadata=alice)[1] == "SESSION_EXPIRED"
    assert refused(guarded.stub.KeepAlive, request, metadata=bob)[1] == "SESSION_NOT_FOUND"


def test_only_an_administrator_lists_and_ends_sessions(guarded: Running, house: House) -> None:
    alice, bob, root = (house.metadata(name) for name in ("alice", "bob", "root"))
    ids = [opened(guarded, who).session_id for who in (alice, bob, bob)]
    stub = guarded.stub
    assert refused(stub.ListSessions, s.ListSessionsRequest(), metadata=alice)[1] == "PERMISSION_DENIED"
    assert refused(stub.EndSession, s.EndSessionRequest(number=1), metadata=alice)[1] == "PERMISSION_DENIED"
    first = stub.ListSessions(s.ListSessionsRequest(page_size=2), metadata=root)
    rest = stub.ListSessions(s.ListSessionsRequest(page_size=2, page_token=first.next_page_token), metadata=root)
    found = [*first.sessions, *rest.sessions]
    assert [each.principal for each in found] == ["alice", "bob", "bob"] and not rest.next_page_token
    assert not any(session_id in str(found) for session_id in ids)
    assert refused(stub.ListSessions, s.ListSessionsRequest(page_token="-1"), metadata=root)[1] == "ARGUMENT_VALUE"
    only = stub.ListSessions(s.ListSessionsRequest(principal="alice"), metadata=root)
    assert [each.principal for each in only.sessions] == ["alice"]
    stub.Op(op("zeros", session_id=ids[1], named={"size": [100]}), metadata=bob)
    ended = stub.EndSession(s.EndSessionRequest(number=found[1].number), metadata=root)
    assert ended.freed_bytes == 400
    assert refused(stub.KeepAlive, s.KeepAliveRequest(session_id=ids[1]), metadata=bob)[1] == "SESSION_NOT_FOUND"
    stub.KeepAlive(s.KeepAliveRequest(session_id=ids[2]), metadata=bob)
    assert refused(stub.EndSession, s.EndSessionRequest(number=99), metadata=root)[1] == "SESSION_NOT_FOUND"


def test_without_authentication_nobody_is_an_administrator() -> None:
    with running() as server:
        assert refused(server.stub.ListSessions, s.ListSessionsRequest())[1] == "PERMISSION_DENIED"


def test_an_expired_token_is_refused_and_says_so(guarded: Running, house: House) -> None:
    token, line = make("carol", expires=datetime.now(timezone.utc) - timedelta(seconds=1))
    append(house.path, line)
    house.known.reload()
    with pytest.raises(grpc.RpcError, match="expired") as caught:
        guarded.stub.ServerInfo(s.ServerInfoRequest(), metadata=bearer(token))
    assert refusal(caught.value)[1] == "UNAUTHENTICATED"


def test_a_new_token_of_a_principal_opens_its_sessions(guarded: Running, house: House) -> None:
    session = opened(guarded, house.metadata("alice")).session_id
    token, house.lines["alice"] = make("alice")
    house.write()
    house.known.reload()
    guarded.stub.KeepAlive(s.KeepAliveRequest(session_id=session), metadata=bearer(token))


def test_a_damaged_file_leaves_in_force_what_was(house: House, caplog: pytest.LogCaptureFixture) -> None:
    principal = house.known.find(house.tokens["alice"])
    secret = house.lines["bob"].split()[2]
    house.path.write_text(f"{house.lines['alice']}\nbob {secret} {secret}\n")
    house.known.reload()
    (told,) = caplog.records
    assert "line 2" in told.getMessage()
    assert secret not in f"{told.getMessage()} {told.__dict__}"
    assert house.known.find(house.tokens["alice"]) is principal
    house.path.unlink()
    house.known.reload()
    assert house.known.find(house.tokens["bob"]) is not None


BAD_LINES = {
    "nothing but a name": "alice",
    "no such word": "alice role=admin",
    "no such scope": "alice certificate scopes=root",
    "a token in the clear": f"alice {make('alice')[0]}",
    "short hash": "alice id=0123456789abcdef hash=sha256:00:00",
    "no date": "alice certificate expires=soon",
    "both": f"{make('alice')[1]} certificate",
    "twice": "alice certificate\nalice certificate",
}


@pytest.mark.parametrize("text", BAD_LINES.values(), ids=BAD_LINES.keys())
def test_a_line_that_cannot_be_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(TokenFileError) as caught:
        Tokens(tmp_path / "tokens")
    words = text.split()[1:]
    assert not any(word in str(caught.value) for word in words if len(word) > 20)


def test_no_secret_is_in_a_log_an_error_or_a_repr(
    guarded: Running, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stranger = make("alice")[0]
    told: list[str] = []
    for token in (*house.tokens.values(), stranger):
        for call, request in (
            (guarded.stub.OpenSession, s.OpenSessionRequest()),
            (guarded.stub.Op, op("zeros", session_id="none")),
            (guarded.stub.ListSessions, s.ListSessionsRequest()),
        ):
            try:
                told.append(str(call(request, metadata=bearer(token))))
            except grpc.RpcError as error:
                told += [str(error), str(error.trailing_metadata())]
    house.known.reload()
    principal = house.known.find(house.tokens["alice"])
    told += [repr(house.known), repr(principal), repr(house.known._known)]
    assert caplog.records
    told += [f"{record.getMessage()} {record.__dict__}" for record in caplog.records]
    text = "\n".join(told)
    assert "alice" in text
    for token in (*house.tokens.values(), stranger):
        assert token[-43:] not in text  # the secret, which the token ends with
    for line in house.lines.values():
        assert line.split("sha256:")[1].split()[0] not in text


def test_the_file_keeps_no_token_and_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    line = [sys.executable, "-c", "from gradwire_server.app.cli import token; token()"]
    shown = subprocess.run(
        [*line, "alice", "--scope", "admin", "--days", "1", "--file", str(path)],
        capture_output=True, text=True, check=True, timeout=WAIT,
    )  # fmt: skip
    token = shown.stdout.strip()
    assert token.startswith("gradwire_") and token[-43:] not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    found = Tokens(path).find(token)
    assert found is not None and (found.name, found.scopes) == ("alice", {"admin"}) and found.expires is not None
    again = subprocess.run([*line, "bob"], capture_output=True, text=True, check=True, timeout=WAIT)
    made, told = again.stdout.splitlines()
    path.write_text(told)
    assert Tokens(path).find(made).name == "bob"
    for wrong in (["two words"], ["alice", "--scope", "root"], ["alice", "--file", str(tmp_path)]):
        ended = subprocess.run([*line, *wrong], capture_output=True, text=True, check=False, timeout=WAIT)
        assert ended.returncode != 0 and "Traceback" not in ended.stderr and "gradwire_" not in ended.stdout


def test_a_served_token_file_is_read_again_at_sighup(house: House) -> None:
    with process("--port=0", "--workers=1", f"--token-file={house.path}") as started:
        with connected(ready(started)) as channel:
            stub = service_pb2_grpc.AutogradServiceStub(channel)
            assert refused(stub.ServerInfo, s.ServerInfoRequest())[1] == "UNAUTHENTICATED"
            stub.ServerInfo(s.ServerInfoRequest(), metadata=house.metadata("bob"))
            stamp = house.path.stat()
            del house.lines["bob"]
            house.write()
            os.utime(house.path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
            started.send_signal(signal.SIGHUP)
            until(lambda: not knows(stub, house.metadata("bob")))
            stub.ServerInfo(s.ServerInfoRequest(), metadata=house.metadata("alice"))
        started.terminate()
        out, errors = started.communicate(timeout=WAIT)
    assert not any(token[-43:] in out + errors for token in house.tokens.values())


def test_a_token_file_that_cannot_be_used_keeps_the_server_from_starting(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("alice password=hunter2")
    for path, told in ((tmp_path / "tokens", "line 1"), (tmp_path / "none", "none")):
        line = [*SERVE, "--port=0", f"--token-file={path}"]
        ended = subprocess.run(line, capture_output=True, text=True, check=False, timeout=WAIT)
        assert ended.returncode == 1
        assert told in ended.stderr and "hunter2" not in ended.stderr and "Traceback" not in ended.stderr


def test_authentication_without_encryption_is_not_enough_for_an_address_that_others_reach(house: House) -> None:
    line = [*SERVE, "--port=0", "--host=0.0.0.0", f"--token-file={house.path}"]
    ended = subprocess.run(line, capture_output=True, text=True, check=False, timeout=WAIT)
    assert ended.returncode == 2
    assert "no encryption" in ended.stderr and "no authentication" not in ended.stderr

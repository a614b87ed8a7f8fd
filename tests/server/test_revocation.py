"""A credential that ends: what lasts of its calls ends with it, though nobody calls. And token files with faults."""

import errno
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2 as s
from gradwire.v1 import service_pb2_grpc
from gradwire_server.auth import interceptor
from gradwire_server.auth.tls import Tls
from gradwire_server.auth.tokens import Tokens, append, make
from tests.certificates import Authority
from tests.server.harness import Id, Running, command, op, refusal, refused, running, until, upload_parts
from tests.server.test_principals import House, Metadata, bearer, guarded, house, opened, shared
from tests.server.test_process import WAIT
from tests.server.test_tls import secure

__all__ = ["guarded", "house", "shared"]  # fixtures

BIG = 1_900_000  # floats: more than a message takes, and than a connection takes in unread


@contextmanager
def feeding(*messages: Any) -> Iterator[Iterator[Any]]:
    """Messages of a client that then says nothing more and does not hang up either, until the end of the block."""
    ended: queue.Queue[None] = queue.Queue()

    def feed() -> Iterator[Any]:
        yield from messages
        ended.get()

    try:
        yield feed()
    finally:
        ended.put(None)


@contextmanager
def attached(server: Running, session: str, metadata: Metadata) -> Iterator[Any]:
    """An idle stream."""
    with feeding(s.StreamRequest(attach=s.StreamAttach(session_id=session, writer=1))) as requests:
        stream = server.stub.Stream(requests, metadata=metadata, timeout=WAIT)
        assert next(stream).HasField("attached")
        yield stream


def ended(call: Any, streams: bool = True) -> tuple[str, str]:
    """How a call ended: the code and the reason."""
    with pytest.raises(grpc.RpcError) as caught:
        list(call) if streams else call.result()
    return refusal(caught.value)[:2]


def revoke(house: House, name: str) -> None:
    del house.lines[name]
    house.write()


def test_a_revoked_token_ends_an_idle_stream_though_nobody_calls(guarded: Running, house: House) -> None:
    alice, bob = house.metadata("alice"), house.metadata("bob")
    with (
        attached(guarded, opened(guarded, alice).session_id, alice) as theirs,
        attached(guarded, opened(guarded, bob).session_id, bob) as others,
    ):
        revoke(house, "alice")
        assert ended(theirs) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
        until(lambda: len(guarded.server.front.streams) == 1)
        assert others.is_active()
        guarded.stub.ServerInfo(s.ServerInfoRequest(), metadata=bob)


def transfer(server: Running, session: str, metadata: Metadata) -> str:
    """A download's id."""
    request = op("ones", [BIG], session_id=session, outputs=[7])
    server.stub.Op(request, metadata=metadata)
    read = server.stub.Read(c.ReadRequest(session_id=session, tensor=7), metadata=metadata)
    return str(read.transfer.transfer_id)


@contextmanager
def unread(server: Running) -> Iterator[service_pb2_grpc.AutogradServiceStub]:
    """A connection whose window does not grow: what is not read is not sent, whatever the machine's speed."""
    options = [("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(server.address, options) as channel:
        yield service_pb2_grpc.AutogradServiceStub(channel)


def sharing(session: str, **transfer: Any) -> s.ShareRequest:
    return s.ShareRequest(session_id=session, nonce="nonce123", **transfer)


def uploads(server: Running, session: str, alice: Metadata) -> Iterator[Any]:
    with feeding(*upload_parts(session, bytes(1000), total=2000)) as requests:
        yield server.stub.Upload.future(requests, metadata=alice, timeout=WAIT)


def downloads(server: Running, session: str, alice: Metadata) -> Iterator[Any]:
    request = s.DownloadRequest(session_id=session, transfer_id=transfer(server, session, alice))
    with unread(server) as stub:
        yield stub.Download(request, metadata=alice, timeout=WAIT)


def shares_up(server: Running, session: str, alice: Metadata) -> Iterator[Any]:
    start = s.UploadStart(session_id=session, total_bytes=2000)
    with feeding(sharing(session, upload=start)) as requests:
        call = server.stub.Share(requests, metadata=alice, timeout=WAIT)
        assert next(call).ring.bytes
        yield call


def shares_down(server: Running, session: str, alice: Metadata) -> Iterator[Any]:
    fetch = s.DownloadRequest(session_id=session, transfer_id=transfer(server, session, alice))
    with feeding(sharing(session, download=fetch)) as requests:
        call = server.stub.Share(requests, metadata=alice, timeout=WAIT)
        assert next(call).ring.bytes
        yield call


def watches(server: Running, session: str, alice: Metadata) -> Iterator[Any]:
    call = health_pb2_grpc.HealthStub(server.channel).Watch(
        health_pb2.HealthCheckRequest(), metadata=alice, timeout=WAIT
    )
    next(call)
    yield call


def reflects(server: Running, session: str, alice: Metadata) -> Iterator[Any]:
    reflect = reflection_pb2_grpc.ServerReflectionStub(server.channel).ServerReflectionInfo
    with feeding(reflection_pb2.ServerReflectionRequest(list_services="")) as requests:
        call = reflect(requests, metadata=alice, timeout=WAIT)
        next(call)
        yield call


def waits_for_what_is_missing(server: Running, session: str, alice: Metadata) -> Iterator[Any]:
    run = s.RunRequest(session_id=session, writer=1, first_seq=5, commands=[command(c.ReleaseRequest(tensors=[1]))])
    yield server.stub.Run.future(run, metadata=alice, timeout=WAIT)


LASTING: list[Callable[[Running, str, Metadata], Iterator[Any]]] = [
    uploads, downloads, shares_up, shares_down, watches, reflects, waits_for_what_is_missing,
]  # fmt: skip


@pytest.mark.parametrize("begin", LASTING, ids=lambda each: each.__name__)
def test_a_revoked_token_ends_every_call_that_lasts(guarded: Running, house: House, begin: Any) -> None:
    alice = house.metadata("alice")
    session = opened(guarded, alice).session_id
    with contextmanager(begin)(guarded, session, alice) as call:
        time.sleep(0.1)  # it is under way, and what is to be sent fills what the client takes in
        revoke(house, "alice")
        # Nobody reads until the server has looked: a download that is read meanwhile would be over before.
        until(lambda: house.known.find(house.tokens["alice"]) is None)
        streams = begin not in (uploads, waits_for_what_is_missing)
        assert ended(call, streams) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
    until(lambda: not guarded.server.interceptor._calls and not guarded.server.front.active)  # type: ignore[union-attr]


def busy(server: Running, session: str, metadata: Metadata, products: int) -> Any:
    """A batch that computes for longer than a look takes, and then makes tensor 999."""
    create = s.RunRequest(session_id=session, writer=1, first_seq=1)
    create.commands.append(command(op("ones", [1000, 1000], outputs=[1])))
    server.stub.Run(create, metadata=metadata)
    run = s.RunRequest(session_id=session, writer=1, first_seq=2)
    for number in range(products):
        run.commands.append(command(op("matmul", Id(1), Id(1), outputs=[10 + number])))
        run.commands.append(command(c.ReleaseRequest(tensors=[10 + number])))
    run.commands.append(command(op("ones", [2], outputs=[999])))
    return server.stub.Run.future(run, metadata=metadata, timeout=WAIT)


def test_what_is_computed_for_a_revoked_principal_stops(guarded: Running, house: House) -> None:
    alice = house.metadata("alice")
    session = opened(guarded, alice).session_id
    call = busy(guarded, session, alice, products=280)
    revoke(house, "alice")
    assert ended(call, streams=False) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
    until(lambda: not guarded.backend.registry.entries[session].pending)
    token, house.lines["alice"] = make("alice")
    house.write()
    house.known.reload()
    ask = c.DescribeRequest(session_id=session, tensors=[999])
    told = refused(guarded.stub.Describe, ask, metadata=bearer(token))
    assert told[1] in ("TENSOR_NOT_FOUND", "DEPENDENCY_FAILED")


def test_what_is_computed_for_a_revoked_principal_stops_also_where_no_call_waits_for_it(
    guarded: Running, house: House
) -> None:
    alice = house.metadata("alice")
    session = opened(guarded, alice).session_id
    call = busy(guarded, session, alice, products=280)
    until(lambda: guarded.backend.registry.entries[session].pending)
    call.cancel()
    until(lambda: not guarded.server.front.active)
    revoke(house, "alice")
    until(lambda: not guarded.backend.registry.entries[session].pending)
    token, house.lines["alice"] = make("alice")
    house.write()
    house.known.reload()
    ask = c.DescribeRequest(session_id=session, tensors=[999])
    told = refused(guarded.stub.Describe, ask, metadata=bearer(token))
    assert told[1] in ("TENSOR_NOT_FOUND", "DEPENDENCY_FAILED")


def test_a_token_that_expires_ends_its_calls_also_while_the_disk_hangs(
    guarded: Running, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, hangs, goes_on = house.metadata("alice"), threading.Event(), threading.Event()

    def look() -> None:
        hangs.set()
        goes_on.wait(WAIT)

    with attached(guarded, opened(guarded, alice).session_id, alice) as stream:
        monkeypatch.setattr(house.known, "poll", look)
        try:
            assert hangs.wait(WAIT)
            principal = house.known.find(house.tokens["alice"])
            assert principal is not None
            principal.expires = time.time()
            assert ended(stream) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
            guarded.stub.ServerInfo(s.ServerInfoRequest(), metadata=house.metadata("bob"))
        finally:
            goes_on.set()


def test_one_of_two_tokens_of_a_principal_ends_its_own_calls_alone(guarded: Running, house: House) -> None:
    token, line = make("alice")
    append(house.path, line)
    house.known.reload()
    alice, again = house.metadata("alice"), bearer(token)
    session = opened(guarded, alice).session_id
    with attached(guarded, opened(guarded, alice).session_id, alice) as theirs:
        call = busy(guarded, session, again, products=20)
        house.lines["alice"] = line
        house.write()
        assert ended(theirs) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
        assert call.result().applied_seq == 42


def test_a_token_that_expires_ends_an_idle_stream(guarded: Running, house: House) -> None:
    token, line = make("carol", expires=datetime.now(timezone.utc) + timedelta(hours=1))
    append(house.path, line)
    house.known.reload()
    carol = bearer(token)
    with attached(guarded, opened(guarded, carol).session_id, carol) as stream:
        principal = house.known.find(token)
        assert principal is not None and principal.expires is not None
        principal.expires -= 3600  # the hour is over
        with pytest.raises(grpc.RpcError, match="expired") as caught:
            next(stream)
        assert refusal(caught.value)[1] == "UNAUTHENTICATED"


def test_a_token_whose_line_is_extended_keeps_its_stream(guarded: Running, house: House) -> None:
    alice = house.metadata("alice")
    with attached(guarded, opened(guarded, alice).session_id, alice) as stream:
        house.lines["alice"] += " scopes=admin expires=2100-01-01"
        house.write()
        until(lambda: house.known.find(house.tokens["alice"]).expires is not None)  # type: ignore[union-attr]
        guarded.stub.ListSessions(s.ListSessionsRequest(), metadata=alice)
        time.sleep(0.1)
        assert stream.is_active()


def test_a_client_that_does_not_read_is_let_go_of_all_the_same(guarded: Running, house: House) -> None:
    alice = house.metadata("alice")
    session = opened(guarded, alice).session_id
    release = threading.Event()

    def requests() -> Iterator[s.StreamRequest]:
        yield s.StreamRequest(attach=s.StreamAttach(session_id=session, writer=1))
        for seq in range(1, 200):
            read = command(c.ReadRequest(tensor=1))
            yield s.StreamRequest(batch=s.RunRequest(first_seq=seq, commands=[read]))
        release.wait(WAIT)

    guarded.stub.Op(op("ones", [16_000], session_id=session, outputs=[1]), metadata=alice)
    with unread(guarded) as stub:
        stream = stub.Stream(requests(), metadata=alice, timeout=WAIT)
        next(stream)
        time.sleep(0.3)
        revoke(house, "alice")
        until(lambda: not guarded.server.front.streams)
        until(lambda: not guarded.server.front.active)
        release.set()
        assert ended(stream) == ("UNAUTHENTICATED", "UNAUTHENTICATED")


def test_a_download_that_is_not_read_is_let_go_of_and_its_client_is_told(guarded: Running, house: House) -> None:
    alice = house.metadata("alice")
    session = opened(guarded, alice).session_id
    with contextmanager(downloads)(guarded, session, alice) as call:
        time.sleep(0.1)
        revoke(house, "alice")
        until(lambda: not guarded.server.interceptor._calls and not guarded.server.front.active)  # type: ignore[union-attr]
        assert ended(call) == ("UNAUTHENTICATED", "UNAUTHENTICATED")


def test_a_certificates_line_that_expires_ends_what_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interceptor, "POLL_SECONDS", 0.02)
    authority, path = Authority(tmp_path), tmp_path / "tokens"
    path.write_text("carol certificate scopes=admin\n")
    tls = Tls(*authority.issue("localhost"), authority.path)
    with running(tokens=Tokens(path), tls=tls) as server, secure(server.address, authority, "alice") as alice:
        attach = s.StreamAttach(session_id=alice.OpenSession(s.OpenSessionRequest()).session_id, writer=1)
        with (
            secure(server.address, authority, "carol") as carol,
            feeding(s.StreamRequest(attach=attach)) as requests,
        ):
            stream = alice.Stream(requests, timeout=WAIT)
            next(stream)
            carol.ListSessions(s.ListSessionsRequest())
            path.write_text("alice certificate expires=2020-01-01\n")
            assert ended(stream) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
            assert refused(alice.ServerInfo, s.ServerInfoRequest())[1] == "UNAUTHENTICATED"
            # Who lost a scope is no stranger.
            assert refused(carol.ListSessions, s.ListSessionsRequest())[1] == "PERMISSION_DENIED"
            carol.ServerInfo(s.ServerInfoRequest())


# The file.


def follow(tokens: Tokens, looks: int = 2) -> bool:
    """Whether anything was taken over."""
    taken = False
    for _ in range(looks):
        table = tokens.poll()
        if table is not None:
            tokens.apply(table)
            taken = True
    return taken


def known(house: House) -> set[str]:
    return {name for name, token in house.tokens.items() if house.known.find(token) is not None}


def test_a_file_that_is_being_written_lets_nobody_out_or_in(house: House) -> None:
    text = house.path.read_bytes()
    everybody = known(house)
    house.path.write_bytes(b"")
    assert not follow(house.known, 1) and known(house) == everybody
    for size in range(0, len(text) + 1, 7):  # as a slow editor would, of which a look sees each state once
        house.path.write_bytes(text[:size])
        assert not follow(house.known, 1) and known(house) == everybody
    token, line = make("dave", expires=datetime(2020, 1, 1, tzinfo=timezone.utc))
    whole = f"{text.decode()}\n{line}\n"
    house.path.write_text(whole.partition(" expires=")[0])
    assert not follow(house.known, 1) and house.known.find(token) is None
    house.path.write_text(whole)
    assert follow(house.known)
    found = house.known.find(token)
    assert found is not None and found.over


def test_a_file_that_cannot_be_used_leaves_in_force_what_was_and_is_told_of_until_it_can(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    everybody, text = known(house), house.path.read_text()
    aside = house.path.with_name("aside")

    def is_told_of_once() -> None:
        for _ in range(5):
            assert not follow(house.known)
        assert known(house) == everybody and house.known.error
        assert sum("cannot be used" in record.getMessage() for record in caplog.records) == 1

    house.path.rename(aside)
    is_told_of_once()
    aside.rename(house.path)
    assert follow(house.known) and not house.known.error
    assert "can be used again" in caplog.text
    for damage in ("", "alice password=hunter2", "\0\0\0", f"{text}\n{house.lines['bob']}"):
        caplog.clear()
        house.path.write_text(damage)
        is_told_of_once()
        assert "hunter2" not in caplog.text
    house.path.unlink()
    house.path.mkdir()
    caplog.clear()
    is_told_of_once()
    house.path.rmdir()
    house.path.write_text(house.lines["alice"])
    assert follow(house.known) and not house.known.error
    assert known(house) == {"alice"}


def test_a_look_that_an_other_has_overtaken_lets_nobody_in_again(house: House) -> None:
    house.path.write_text(house.path.read_text() + "\n# before\n")
    assert house.known.poll() is None
    older = house.known.poll()
    assert older is not None
    revoke(house, "alice")
    house.known.reload()
    house.known.apply(older)
    assert "alice" not in known(house)
    assert not follow(house.known, 3)


def test_a_file_that_could_not_be_read_for_once_is_read_again(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    revoke(house, "alice")
    with monkeypatch.context() as failing:
        failing.setattr(Path, "read_text", fail)
        assert not follow(house.known, 5)
    assert "Too many open files" in caplog.text
    assert follow(house.known) and "alice" not in known(house)


def test_a_file_without_lines_lets_nobody_in_if_it_says_something(house: House) -> None:
    house.path.write_text("# closed today\n")
    assert follow(house.known)
    assert not known(house)


def test_a_file_that_vanishes_ends_no_stream(guarded: Running, house: House) -> None:
    alice = house.metadata("alice")
    with attached(guarded, opened(guarded, alice).session_id, alice) as stream:
        house.path.unlink()
        until(lambda: house.known.error)
        time.sleep(0.1)
        assert stream.is_active()
        guarded.stub.ServerInfo(s.ServerInfoRequest(), metadata=alice)
        revoke(house, "alice")
        assert ended(stream) == ("UNAUTHENTICATED", "UNAUTHENTICATED")

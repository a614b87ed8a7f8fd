"""Servers that share a state directory: each session has one owner, and what one answered the next one has."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from gradwire.v1 import commands_pb2, service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.registry import shared_catalog
from gradwire_server.registry.handed_over import HandedOver
from gradwire_server.registry.session_catalog import digest_of
from gradwire_server.registry.shared_catalog import SharedCatalog
from gradwire_server.registry.thread_backend import InProcessBackend
from gradwire_server.rpc.server import Server
from gradwire_server.storage import ownership
from tests.server.harness import WAIT, Id, Remote, Running, op, refusal, refused, until

LIMITS = Limits(lease_seconds=60.0, max_session_bytes=1 << 30, max_bytes=1 << 30)


class Sharing(Running):
    """A server in this process whose directory others use too. `answering` are the servers that it takes to run."""

    def __init__(self, root: Path, endpoint: str, logs: bool = True, grace: float = 1000.0) -> None:
        self.root, self.endpoint, self.logs, self.grace = root, endpoint, logs, grace
        self.answering: set[str] = set()
        super().__init__(LIMITS)

    async def _start(self) -> tuple[Any, Server, str]:
        backend = InProcessBackend(self.limits, self.clock)
        self.catalog = SharedCatalog(
            self.root, self.grace, 3, 0, endpoint=self.endpoint, answers=lambda endpoint: endpoint in self.answering
        )
        await backend.persist_in(self.catalog, self.logs, 0.0)
        server = Server(backend, *self.guards)
        return backend, server, await server.start("127.0.0.1:0")

    def attach(self, session_id: str) -> Remote:
        """Another writer of a session. Repeats the call while the server looks the session up."""
        request = service_pb2.OpenSessionRequest(session_id=session_id)
        return Remote(self.channel, repeated(lambda: self.stub.OpenSession(request)))


def repeated(call: Callable[[], Any], *reasons: str) -> Any:
    """A call's answer; UNAVAILABLE and some other reasons repeat it."""
    answers: list[Any] = []

    def answered() -> bool:
        try:
            answers.append(call())
        except grpc.RpcError as error:
            if refusal(error)[1] not in ("UNAVAILABLE", *reasons):
                raise
            return False
        return True

    until(answered, "an answer")
    return answers[0]


@contextmanager
def sharing(root: Path, count: int = 2, **told: Any) -> Iterator[list[Sharing]]:
    """Servers that share a directory. Each takes the others to be gone."""
    servers = [Sharing(root, f"{name}:1", **told) for name in "abcd"[:count]]
    try:
        yield servers
    finally:
        for each in servers:
            each.stop()


def add(session: Remote, tensor: int, request_id: str) -> None:
    """Add one to a tensor, in place."""
    session.stub.Op(op("add_", Id(tensor), 1.0, session_id=session.id, request_id=request_id))


def test_a_session_continues_at_another_server(tmp_path: Path) -> None:
    with sharing(tmp_path) as (a, b):
        session = a.open()
        x = session.create([1.0, 2.0])
        add(session, x, "1")
        there = b.attach(session.id)
        assert there.opened.writer == 2
        assert there.read(x).tolist() == [2.0, 3.0]
        add(there, x, "1"), add(there, x, "2")
        assert there.read(x).tolist() == [3.0, 4.0], "the repeated command is not applied again"
        assert refused(session.read, x)[1:] == ("SESSION_MOVED", {"endpoint": "b:1"})


def test_a_former_owner_does_not_blame_its_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with sharing(tmp_path) as (a, b):
        session = a.open()
        x = session.create([1.0])
        add(session, x, "1")
        b.attach(session.id)
        assert refused(add, session, x, "2")[1] == "SESSION_MOVED"
    said = [record.message for record in caplog.records]
    assert "another server owns the session" in said
    assert "log cannot be written" not in said


def test_a_session_whose_owner_answers_is_not_taken_over(tmp_path: Path) -> None:
    with sharing(tmp_path) as (a, b):
        b.answering = {"a:1"}
        session = a.open()
        x = session.create([1.0])
        with pytest.raises(grpc.RpcError) as moved:
            b.attach(session.id)
        assert refusal(moved.value) == ("UNAVAILABLE", "SESSION_MOVED", {"endpoint": "a:1"})
        assert session.read(x).tolist() == [1.0]


def test_two_writers_who_each_take_the_session_from_the_other_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """A split brain: each server takes the other to be gone, and each has a client. All additions arrive once."""
    additions = 15
    with sharing(tmp_path) as servers:
        session = servers[0].open()
        x = session.create([0.0])
        reasons: Counter[str] = Counter()
        failures: list[Exception] = []
        both = threading.Barrier(2)

        def write(index: int) -> None:
            try:
                there = Remote(servers[index].channel, session.opened)
                both.wait()
                for number in range(additions):
                    while True:
                        try:
                            add(there, x, f"{index}-{number}")
                            break
                        except grpc.RpcError as error:
                            reasons[refusal(error)[1]] += 1
                            if failures or not reasons.keys() <= {"SESSION_MOVED", "UNAVAILABLE"}:
                                return
                            time.sleep(0.005)
            except Exception as error:
                failures.append(error)
                raise

        writing = [threading.Thread(target=write, args=(index,)) for index in (0, 1)]
        for each in writing:
            each.start()
        for each in writing:
            each.join(WAIT)
        assert not failures
        assert reasons.keys() <= {"SESSION_MOVED", "UNAVAILABLE"}
        assert reasons["SESSION_MOVED"] >= 2, "the session changed hands"
        found = repeated(lambda: Remote(servers[0].channel, session.opened).read(x), "SESSION_MOVED")
        assert found.tolist() == [2.0 * additions]


@pytest.mark.parametrize("logs", [True, False], ids=["log", "snapshots"])
def test_a_server_that_ends_hands_its_sessions_over(tmp_path: Path, logs: bool) -> None:
    """Each is at the other server as soon as it is stored, also while a call of another session keeps the server."""
    with sharing(tmp_path, logs=logs) as (a, b):
        b.answering = {"a:1"}  # it answers until its end; its sessions are taken over before
        sessions = [a.open() for _ in range(3)]
        tensors = [each.create([1.0, 2.0]) for each in sessions]
        for each, tensor in zip(sessions, tensors, strict=True):
            add(each, tensor, "1")
        a.server.front.begin()  # a call that is not answered yet
        draining = asyncio.run_coroutine_threadsafe(a.server.drain(60.0), a.loop)
        for each, tensor in zip(sessions, tensors, strict=True):
            until(lambda each=each, tensor=tensor: refused(each.read, tensor)[1] == "SESSION_MOVED", "the hand-over")
            there = b.attach(each.id)
            assert there.read(tensor).tolist() == [2.0, 3.0]
            add(there, tensor, "1"), add(there, tensor, "2")
            assert there.read(tensor).tolist() == [3.0, 4.0]
        assert not draining.done()
        assert refused(a.stub.OpenSession, service_pb2.OpenSessionRequest())[1] == "UNAVAILABLE"
        assert refused(a.stub.OpenSession, service_pb2.OpenSessionRequest(session_id=sessions[0].id))[1] == (
            "SESSION_MOVED"
        )
        assert refused(a.stub.KeepAlive, service_pb2.KeepAliveRequest(session_id=sessions[0].id))[1] == "SESSION_MOVED"
        a.loop.call_soon_threadsafe(a.server.front.end)
        assert draining.result(WAIT) == 0


def test_a_session_that_is_given_up_is_refused_until_its_new_server_is_known() -> None:
    given = HandedOver()
    given.check("s1")
    given.begin()
    given.leaving("s1")
    for session_id in ("s1", "s2"):
        with pytest.raises(Refusal) as busy:
            given.check(session_id)
        assert busy.value.reason == "UNAVAILABLE"
    given.left("s1", "b:1")
    assert given.refusal("s2").reason == "UNAVAILABLE"
    with pytest.raises(Refusal) as moved:
        given.check("s1")
    assert (moved.value.reason, moved.value.metadata) == ("SESSION_MOVED", {"endpoint": "b:1"})


def test_a_given_up_session_that_was_taken_over_stays_its_new_owner_s(tmp_path: Path) -> None:
    folder = tmp_path / ("ab" * 32)
    ownership.begin(folder, "a:1")
    ownership.release(folder, 1)
    assert ownership.owner_of(folder, 1) == ""
    ownership.claim(folder, 2, "b:1")
    ownership.release(folder, 1)
    ownership.release(folder, 7)  # there is no such term any more
    assert (ownership.owner_of(folder, 2), ownership.terms(folder)) == ("b:1", [1, 2])


def test_a_batch_that_reaches_the_former_owner_is_refused_there_and_applied_once(tmp_path: Path) -> None:
    with sharing(tmp_path) as (a, b):
        session = a.open()
        x = session.create([0.0])
        there = b.attach(session.id)
        run = session.batch(service_pb2.Command(op=op("add_", Id(x), 1.0)))
        assert refused(session.stub.Run, run)[1] == "SESSION_MOVED"
        for _ in range(2):
            there.stub.Run(run)
        assert there.read(x).tolist() == [1.0]
        assert not a.backend.registry.entries, "its memory is free"
        assert a.held() == 0


def test_a_snapshot_of_a_former_owner_does_not_count(tmp_path: Path) -> None:
    from gradwire.v1 import snapshots_pb2

    with sharing(tmp_path, logs=False) as (a, b):
        session = a.open()
        x = session.create([1.0])
        request = snapshots_pb2.SaveSessionRequest(session_id=session.id)
        session.stub.SaveSession(request)
        there = b.attach(session.id)
        assert there.read(x).tolist() == [1.0]
        add(session, x, "1")  # without a log the former owner still answers
        assert refused(session.stub.SaveSession, request)[1:] == ("SESSION_MOVED", {"endpoint": "b:1"})
        assert there.read(x).tolist() == [1.0]
        until(lambda: not a.backend.registry.entries, "the session is dropped at its former owner")


def test_without_a_log_a_former_owner_frees_the_session_within_seconds(tmp_path: Path) -> None:
    from gradwire.v1 import snapshots_pb2

    with sharing(tmp_path, logs=False) as (a, b):
        session = a.open()
        session.stub.SaveSession(snapshots_pb2.SaveSessionRequest(session_id=session.id))
        b.attach(session.id)
        until(lambda: not a.backend.registry.entries, "the session is dropped at its former owner")


def test_a_closed_session_is_gone_at_all_servers(tmp_path: Path) -> None:
    with sharing(tmp_path) as (a, b):
        session = a.open()
        session.create([1.0])
        b.attach(session.id).close()
        until(lambda: not any((tmp_path / "sessions").iterdir()), "the files are deleted")
        for server in (a, b):
            with pytest.raises(grpc.RpcError) as gone:
                server.attach(session.id)
            assert refusal(gone.value)[1] == "SESSION_NOT_FOUND"
            server.stub.CloseSession(service_pb2.CloseSessionRequest(session_id=session.id))


def test_another_server_closes_a_session_whose_owner_is_gone(tmp_path: Path) -> None:
    with sharing(tmp_path) as (a, b):
        session = a.open()
        session.create([1.0])
        b.stub.CloseSession(service_pb2.CloseSessionRequest(session_id=session.id))
        assert not any((tmp_path / "sessions").iterdir())


def test_a_restarted_server_claims_its_sessions_anew(tmp_path: Path) -> None:
    with sharing(tmp_path, count=1) as (a,):
        session = a.open()
        x = session.create([4.0])
    with sharing(tmp_path, count=1) as (a,):
        assert a.attach(session.id).read(x).tolist() == [4.0]
        (folder,) = (tmp_path / "sessions").iterdir()
        assert ownership.terms(folder) == [2]


def test_an_address_has_one_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradwire_server.registry import session_catalog

    monkeypatch.setattr(session_catalog, "_LOCK_SECONDS", 0.1)
    with sharing(tmp_path, count=1):
        second = SharedCatalog(tmp_path, 1.0, 0, 0, endpoint="a:1", answers=lambda _: False)
        with pytest.raises(OSError, match="has the endpoint a:1"):
            second.open()


# The catalog alone.


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, str]:
    """A directory with a session that a server, now gone, has stored without giving it up."""
    with sharing(tmp_path, count=1) as (a,):
        session = a.open()
        session.create([1.0])
    owner = tmp_path / "sessions" / digest_of(session.id).hex() / "t1" / ownership.OWNER
    assert owner.read_text() == "", "it ended in order"
    owner.write_text("a:1")
    return tmp_path, session.id


def opened(root: Path, endpoint: str, answers: Callable[[str], bool] = lambda _: False, **told: Any) -> SharedCatalog:
    catalog = SharedCatalog(root, told.get("grace", 1000.0), 0, 0, endpoint=endpoint, answers=answers)
    catalog.open()
    return catalog


def test_only_the_principal_of_a_session_can_find_it(stored: tuple[Path, str]) -> None:
    root, session_id = stored
    catalog = opened(root, "b:1")
    assert catalog.locate(session_id, "mallory") is None
    assert catalog.locate("another", "") is None
    found = catalog.locate(session_id, "")
    assert found is not None
    assert found.folder.name == "t2"
    assert catalog.find(session_id, "") is found
    assert catalog.find(session_id, "mallory") is None


def test_a_result_of_a_lookup_holds_for_seconds(stored: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    root, session_id = stored
    catalog = opened(root, "b:1")
    catalog.locate(session_id, "")
    monkeypatch.setattr(shared_catalog, "_FRESH_SECONDS", -1.0)
    assert catalog.find(session_id, "") is None
    other = opened(root, "c:1")
    assert other.locate(session_id, "") is not None
    found = catalog.locate(session_id, "")  # it takes the session back
    assert found is not None
    assert found.folder.name == "t4"


def test_the_owner_is_asked_before_a_session_is_taken_over(stored: tuple[Path, str]) -> None:
    root, session_id = stored
    asked: list[str] = []

    def answers(endpoint: str) -> bool:
        asked.append(endpoint)
        return len(asked) == 1

    catalog = opened(root, "b:1", answers)
    with pytest.raises(Refusal) as moved:
        catalog.locate(session_id, "")
    assert (moved.value.reason, moved.value.metadata) == ("SESSION_MOVED", {"endpoint": "a:1"})
    assert catalog.locate(session_id, "") is not None
    assert catalog.locate(session_id, "") is not None, "its own session"
    assert asked == ["a:1", "a:1"]


def test_lookups_of_many_sessions_of_a_silent_server_share_a_check() -> None:
    """A lost machine's sessions are looked up in few threads; each check of it takes a second."""
    asked: list[str] = []
    both = threading.Event()

    def answers(endpoint: str) -> bool:
        asked.append(endpoint)
        assert both.wait(WAIT)
        return False

    checks = shared_catalog._Checks(answers)
    found: list[bool] = []
    asking = [threading.Thread(target=lambda: found.append(checks.answers("a:1"))) for _ in range(8)]
    for each in asking:
        each.start()
    until(lambda: bool(asked), "the check")
    both.set()
    for each in asking:
        each.join(WAIT)
    assert found == [False] * 8
    assert checks.answers("a:1") is False
    # A thread that began after the first check's end found the server silent; no other was made.
    assert asked == ["a:1"]


def test_a_damaged_head_is_refused_and_nothing_is_claimed(stored: tuple[Path, str]) -> None:
    root, session_id = stored
    folder = root / "sessions" / digest_of(session_id).hex()
    (head,) = (folder / "t1").glob("*.session")
    head.write_bytes(b"GWSNAP1\nnothing")
    with pytest.raises(Refusal) as damaged:
        opened(root, "b:1").locate(session_id, "")
    assert damaged.value.reason == "SNAPSHOT_DAMAGED"
    assert ownership.terms(folder) == [1]


def test_what_a_server_left_is_deleted_after_its_grace(stored: tuple[Path, str]) -> None:
    root, _ = stored
    for grace, answers, left in ((1000.0, False, 1), (-1.0, True, 1), (-1.0, False, 0)):
        opened(root, f"b{grace}{answers}:1", lambda _, answers=answers: answers, grace=grace).sweep()
        assert len(list((root / "sessions").iterdir())) == left, (grace, answers)


def test_a_lookup_is_made_once_and_forgotten(stored: tuple[Path, str]) -> None:
    root, session_id = stored
    catalog, made = opened(root, "b:1"), []

    async def look() -> None:
        async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
            made.append(args)
            return await asyncio.get_running_loop().run_in_executor(None, function, *args)

        lookups = shared_catalog.Lookups(catalog, in_thread)
        for wanted in ("absent", session_id):
            for _ in range(3):
                with pytest.raises(Refusal) as busy:
                    lookups.check(wanted, "")
                assert busy.value.reason == "UNAVAILABLE"
            await asyncio.gather(*(task for _, task in lookups._begun.values()))
        lookups.check("absent", "")  # it is not there
        assert catalog.find(session_id, "") is not None
        assert made == [("absent", ""), (session_id, "")]

    asyncio.run(look())


def test_commands_that_need_no_session_are_served_by_all(tmp_path: Path) -> None:
    with sharing(tmp_path) as (a, b):
        first, second = a.open(), b.open()
        assert first.create([1.0]) == second.create([2.0]) == 1
        assert {each.opened.endpoint for each in (first, second)} == {""}
        request = commands_pb2.ReadRequest(session_id=first.id, tensor=1)
        assert first.stub.Read(request).HasField("payload")

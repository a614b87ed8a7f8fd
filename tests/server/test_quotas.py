"""Fair shares: what one principal's sessions hold together is limited, over all workers, and is nobody else's cost."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2 as s
from gradwire_server.auth.tokens import Tokens
from gradwire_server.common.limits import KIB, MIB, Limits
from gradwire_server.common.shared_counters import PrincipalTotals, SharedCounters
from gradwire_server.registry.principal_rows import PrincipalRows
from tests.server.harness import Id, Running, op, refused, running, until, upload_parts
from tests.server.test_principals import House, Metadata

BACKENDS = [0, 2]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.fixture(params=BACKENDS, ids=["in-process", "2-workers"])
def shared(house: House, request: pytest.FixtureRequest) -> Iterator[Running]:
    """A server that gives each principal three sessions, one MiB and ten tensors."""
    with running(
        request.param,
        tokens=Tokens(house.path),
        max_principal_sessions=3,
        max_principal_bytes=MIB,
        max_principal_tensors=10,
    ) as started:
        yield started


def opened(server: Running, metadata: Metadata) -> str:
    return server.stub.OpenSession(s.OpenSessionRequest(), metadata=metadata).session_id


def make(server: Running, session: str, metadata: Metadata, size: int, count: int = 1) -> list[int]:
    """Tensors of so many bytes each."""
    requests = [op("zeros", session_id=session, named={"size": [size // 4]}) for _ in range(count)]
    return [server.stub.Op(request, metadata=metadata).outputs[0].id for request in requests]


def over(server: Running, session: str, metadata: Metadata, size: int) -> tuple[str, str]:
    """How making one more is refused."""
    return refused(server.stub.Op, op("zeros", session_id=session, named={"size": [size // 4]}), metadata=metadata)[:2]


FULL_BYTES = ("RESOURCE_EXHAUSTED", "MEMORY_LIMIT")
FULL_TENSORS = ("RESOURCE_EXHAUSTED", "TENSOR_LIMIT")


def test_sessions_of_a_principal_are_counted_and_given_back(shared: Running, house: House) -> None:
    alice, bob = house.metadata("alice"), house.metadata("bob")
    ids = [opened(shared, alice) for _ in range(3)]
    code, reason, told = refused(shared.stub.OpenSession, s.OpenSessionRequest(), metadata=alice)
    assert (code, reason, told["limit"]) == ("RESOURCE_EXHAUSTED", "SESSION_LIMIT", "3")
    opened(shared, bob)
    shared.stub.CloseSession(s.CloseSessionRequest(session_id=ids[0]), metadata=alice)
    opened(shared, alice)
    shared.clock.now += 61
    shared.sweep()
    assert [opened(shared, alice) for _ in range(3)]


def test_bytes_are_counted_over_a_principals_sessions_and_no_others(shared: Running, house: House) -> None:
    alice, bob = house.metadata("alice"), house.metadata("bob")
    first, second = opened(shared, alice), opened(shared, alice)
    make(shared, first, alice, 512 * KIB)
    (freed,) = make(shared, second, alice, 384 * KIB)
    assert over(shared, first, alice, 256 * KIB) == FULL_BYTES
    assert over(shared, second, alice, 256 * KIB) == FULL_BYTES
    make(shared, opened(shared, bob), bob, 768 * KIB)
    shared.stub.Release(c.ReleaseRequest(session_id=second, tensors=[freed]), metadata=alice)
    make(shared, first, alice, 256 * KIB)


def test_an_upload_counts_when_it_begins(shared: Running, house: House) -> None:
    alice = house.metadata("alice")
    first, second = opened(shared, alice), opened(shared, alice)
    begin = upload_parts(first, bytes(768 * KIB))[:1]
    shared.stub.Upload(iter(begin), metadata=alice)
    assert refused(shared.stub.Upload, iter(upload_parts(second, bytes(512 * KIB))), metadata=alice)[:2] == FULL_BYTES
    assert over(shared, second, alice, 512 * KIB) == FULL_BYTES


def test_tensors_are_counted_over_a_principals_sessions(shared: Running, house: House) -> None:
    alice, bob = house.metadata("alice"), house.metadata("bob")
    first, second = opened(shared, alice), opened(shared, alice)
    ids = make(shared, first, alice, 4, 6)
    make(shared, second, alice, 4, 4)
    another = op("neg", Id(ids[0]), session_id=first)
    assert refused(shared.stub.Op, another, metadata=alice)[:2] == FULL_TENSORS
    assert over(shared, second, alice, 4) == FULL_TENSORS
    make(shared, opened(shared, bob), bob, 4, 10)
    shared.stub.Release(c.ReleaseRequest(session_id=first, tensors=ids[:2]), metadata=alice)
    make(shared, second, alice, 4, 2)
    assert over(shared, first, alice, 4) == FULL_TENSORS


def test_what_a_closed_session_held_may_be_held_again(shared: Running, house: House) -> None:
    alice = house.metadata("alice")
    for _ in range(4):
        session = opened(shared, alice)
        make(shared, session, alice, 100 * KIB, 8)
        shared.stub.CloseSession(s.CloseSessionRequest(session_id=session), metadata=alice)
    place = shared.backend.principal_rows.of("alice", lambda _: True)
    assert shared.backend.counters.share(place).is_empty


def test_what_a_killed_worker_held_may_be_held_again(house: House) -> None:
    alice = house.metadata("alice")
    with running(1, tokens=Tokens(house.path), max_principal_bytes=MIB) as server:
        session = opened(server, alice)
        make(server, session, alice, 768 * KIB)
        os.kill(server.backend.workers[0].pid, signal.SIGKILL)
        until(lambda: not server.backend.registry.entries)
        until(lambda: server.backend.workers[0].alive, "the worker, started again,")
        assert refused(server.stub.KeepAlive, s.KeepAliveRequest(session_id=session), metadata=alice)[0] == "NOT_FOUND"
        make(server, opened(server, alice), alice, 768 * KIB)


def test_limits_are_told(shared: Running, house: House) -> None:
    limits = shared.stub.ServerInfo(s.ServerInfoRequest(), metadata=house.metadata("alice")).limits
    assert (limits.max_principal_sessions, limits.max_principal_bytes, limits.max_principal_tensors) == (3, MIB, 10)


def test_a_row_is_reused_when_its_principal_holds_nothing() -> None:
    counters = SharedCounters(2)
    places = PrincipalRows(Limits(max_principal_bytes=1), counters)
    present: set[str] = set()
    first = places.of("p0", present.__contains__)
    counters.set_share(1, first, PrincipalTotals(5, 1, 0, 7))
    for number in range(1, 3000):  # more than there are places
        assert places.of(f"p{number}", present.__contains__) != first
    assert places.of("p0", present.__contains__) == first
    counters.forget(1)
    assert counters.share(first) == PrincipalTotals(computed=7)  # what was computed stays so
    assert places.of("", present.__contains__) == 0

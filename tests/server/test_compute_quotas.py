"""Quotas of computing, of programs and of bytes under way: who passes one waits or is told when to come back."""

import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from gradwire.v1 import programs_pb2 as p
from gradwire.v1 import service_pb2 as s
from gradwire_server.auth.tokens import Tokens
from gradwire_server.common.budgets import Budget
from gradwire_server.common.limits import KIB, MIB
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.session.session import PendingCall, Session
from gradwire_server.storage.instructions import StorageInstruction
from gradwire_server.worker.runtime import Runtime
from gradwire_server.worker.scheduler import Scheduler
from tests.server.harness import LIMITS, WAIT, Running, command, op, refusal, refused, running, until
from tests.server.test_principals import House
from tests.server.test_programs import descent

BACKENDS = [0, 2]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


class Now:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_budget_fills_up_within_a_minute() -> None:
    now = Now()
    budget = Budget(6.0, used=100.0, clock=now)
    assert budget.delay(103.0) == 0.0
    assert budget.delay(106.0) == 0.0  # empty, but not in debt
    assert budget.delay(107.0) == pytest.approx(10.0)  # a second too much is made up for in a sixth of a minute
    now.seconds = 4.0
    assert budget.delay(107.0) == pytest.approx(6.0)
    now.seconds = 1000.0
    assert budget.delay(107.0) == 0.0
    assert budget.delay(113.5) == pytest.approx(5.0)  # what it held was six seconds, however long it waited


@pytest.fixture(params=BACKENDS, ids=["in-process", "2-workers"])
def frugal(house: House, request: pytest.FixtureRequest) -> Iterator[Running]:
    """A server where a principal computes five milliseconds a minute."""
    with running(request.param, tokens=Tokens(house.path), max_principal_compute_seconds=0.005) as started:
        yield started


def retry_seconds(error: grpc.RpcError) -> float:
    """What RetryInfo says."""
    status = rpc_status.from_call(error)
    assert status is not None
    for detail in status.details:
        info = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            return info.retry_delay.ToTimedelta().total_seconds()
    raise AssertionError("no RetryInfo")


def compute_until_refused(server: Running, session: str, metadata: Any) -> grpc.RpcError:
    """Each op takes more than a minute allows, and is too short to be computed in a process of its own."""
    for _ in range(50):
        try:
            server.stub.Op(op("randn", [1400, 1400], session_id=session), metadata=metadata)
        except grpc.RpcError as error:
            return error
    raise AssertionError("it was never refused")


def test_who_has_computed_enough_is_told_when_to_come_back_and_others_go_on(frugal: Running, house: House) -> None:
    alice, bob = house.metadata("alice"), house.metadata("bob")
    open_session = frugal.stub.OpenSession
    first, second = (open_session(s.OpenSessionRequest(), metadata=alice).session_id for _ in range(2))
    until(lambda: not any(worker._notifications for worker in frugal.backend.workers))  # each worker knows its session
    error = compute_until_refused(frugal, first, alice)
    code, reason, told = refusal(error)
    assert (code, reason) == ("RESOURCE_EXHAUSTED", "COMPUTE_LIMIT")
    assert 30.0 < retry_seconds(error) <= int(told["retry_ms"]) / 1000 + 0.01
    assert refused(frugal.stub.Op, op("zeros", [1], session_id=second), metadata=alice)[1] == "COMPUTE_LIMIT"
    other = open_session(s.OpenSessionRequest(), metadata=bob).session_id
    frugal.stub.Op(op("zeros", [1], session_id=other), metadata=bob)
    for session in (first, second):
        frugal.stub.KeepAlive(s.KeepAliveRequest(session_id=session), metadata=alice)
    frugal.stub.CloseSession(s.CloseSessionRequest(session_id=first), metadata=alice)


def test_a_call_counts_that_came_together_with_the_opening_of_its_session() -> None:
    host, now, failures = (
        Runtime(replace(LIMITS, max_principal_compute_seconds=6.0).resolved(), SharedCounters(1)),
        Now(),
        [],
    )
    scheduler = Scheduler(host, lambda call, result, failure: failures.append(failure), lambda call: None, clock=now)
    scheduler.slice_seconds = 60.0  # both calls in one slice, however busy this machine is
    execute = host.execute

    def slowly(call: PendingCall) -> Any:
        now.seconds += 10.0
        return execute(call)

    host.execute = slowly  # type: ignore[method-assign]
    zeros = op("zeros", [1]).SerializeToString()
    scheduler.add(host.make_call("Open", 1, StorageInstruction(counter_row=1).pack(), 1, None))
    scheduler.add(host.make_call("Op", 1, zeros, 2, None))
    while scheduler.runnable:
        scheduler.slice()
    scheduler.add(host.make_call("Op", 1, zeros, 3, None))
    assert failures[:2] == [None, None]
    assert failures[2].reason == "COMPUTE_LIMIT"


def computed_more(held: Session, seconds: float, since: float) -> None:
    """Let a session have computed longer, once its call since then is counted: that is after it is answered."""
    until(lambda: held.schedule.idle_since > since)
    held.usage.computed += seconds


def test_a_batch_waits_for_the_quota_and_is_applied_then() -> None:
    with running(0, max_session_compute_seconds=6.0) as server:
        session = server.open()
        session.op("zeros", [1])  # OpenSession answers before the compute thread knows of the session
        held, began = server.backend.runtime.sessions[1], time.monotonic()
        session.op("zeros", [1])
        computed_more(held, 6.1, since=began)  # a tenth of a second too much: a second's rest
        response = session.run(command(op("zeros", [1], outputs=[7])))
        assert not response.results[0].HasField("error")
        assert time.monotonic() - began > 0.5
        computed_more(held, 1000.0, since=began + 0.5)
        batch = session.batch(command(op("zeros", [1], outputs=[8])))
        assert refused(session.stub.Run, batch, timeout=WAIT)[:2] == ("RESOURCE_EXHAUSTED", "COMPUTE_LIMIT")
        waiting = session.stub.Run.future(batch)
        entry = server.backend.registry.entries[session.id]
        until(lambda: entry.pending)
        assert session.stub.Cancel(s.CancelRequest(session_id=session.id)).cancelled
        assert waiting.result(WAIT).results[0].error.message.startswith("cancelled")
        waiting = session.stub.Run.future(session.batch(command(op("zeros", [1], outputs=[9]))))
        until(lambda: entry.pending)
        session.close()
        assert refused(waiting.result, WAIT)[1] == "SESSION_NOT_FOUND"


def registration(session: str) -> p.RegisterProgramRequest:
    """A program for a session."""
    program = descent().SerializeToString()
    return p.RegisterProgramRequest(session_id=session, hash=hashlib.sha256(program).digest(), program=program)


def test_programs_of_a_principal_are_counted(house: House) -> None:
    with running(0, tokens=Tokens(house.path), max_principal_programs=2) as server:
        alice = house.metadata("alice")
        sessions = [server.stub.OpenSession(s.OpenSessionRequest(), metadata=alice).session_id for _ in range(2)]
        for session in sessions:
            server.stub.RegisterProgram(registration(session), metadata=alice)
        third = server.stub.OpenSession(s.OpenSessionRequest(), metadata=alice).session_id
        code, reason, told = refused(server.stub.RegisterProgram, registration(third), metadata=alice)
        assert (code, reason, told["limit"]) == ("RESOURCE_EXHAUSTED", "PROGRAM_LIMIT", "2")
        server.stub.CloseSession(s.CloseSessionRequest(session_id=sessions[0]), metadata=alice)
        server.stub.RegisterProgram(registration(third), metadata=alice)


@pytest.mark.parametrize("whose", ["session", "principal"])
def test_bytes_under_way_are_capped_and_given_back(house: House, whose: str) -> None:
    limit = {f"max_{whose}_inflight_bytes": 256 * KIB}
    with running(0, tokens=Tokens(house.path), max_message_bytes=MIB, **limit) as server:
        alice = house.metadata("alice")
        session = server.stub.OpenSession(s.OpenSessionRequest(), metadata=alice).session_id
        late = s.RunRequest(session_id=session, writer=1, first_seq=2)  # waits for the command before it
        late.commands.add(op=op("zeros", [1], outputs=[2], named={"name": "x" * (200 * KIB)}))
        waiting = server.stub.Run.future(late, metadata=alice)
        until(lambda: server.backend.registry.entries[session].pending)
        late.first_seq = 3
        assert refused(server.stub.Run, late, metadata=alice)[:2] == ("RESOURCE_EXHAUSTED", "TRAFFIC_LIMIT")
        first = s.RunRequest(session_id=session, writer=1, first_seq=1)
        first.commands.add(op=op("zeros", [1], outputs=[1]))
        server.stub.Run(first, metadata=alice)
        waiting.result(WAIT)
        server.stub.Run(late, metadata=alice)
        entry = server.backend.registry.entries[session]
        assert (entry.inflight, entry.traffic.bytes) == (0, 0)


def test_a_lease_says_when_it_ends() -> None:
    with running(0) as server:
        before = time.time()
        session = server.open(lease_ms=7000)
        assert 6.0 <= session.opened.expires_unix_ms / 1000 - before <= 12.0
        alive = session.stub.KeepAlive(s.KeepAliveRequest(session_id=session.id))
        assert alive.expires_unix_ms >= session.opened.expires_unix_ms


def test_a_stream_over_its_bytes_under_way_is_read_on_as_it_is_answered() -> None:
    with running(0, max_session_inflight_bytes=64 * KIB) as server:
        session = server.open()
        requests = [s.StreamRequest(attach=s.StreamAttach(session_id=session.id, writer=1, attempt=1))]
        for seq in range(1, 41):
            batch = s.RunRequest(first_seq=seq)
            batch.commands.add(op=op("zeros", [1], outputs=[seq], named={"name": "x" * (40 * KIB)}))
            requests.append(s.StreamRequest(batch=batch))
        answered = 0
        for response in session.stub.Stream(iter(requests), timeout=WAIT):
            answered += len(response.batch.results)
        assert answered == 40
        assert server.backend.registry.entries[session.id].inflight == 0

"""Expensive ops are offloaded: other sessions compute, clients can cancel, results are the same."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2 as s
from gradwire_server.common.limits import MIB
from tests.server.harness import WAIT, Id, Remote, Running, command, op, refused, running, until

SIZE = 1800  # of a matrix whose singular values take seconds


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(workers=1, max_session_bytes=256 * MIB, max_bytes=1024 * MIB) as started:
        yield started


def worker_of(server: Running) -> psutil.Process:
    return psutil.Process(server.backend.workers[0].pid)


def heavy(server: Running) -> tuple[Remote, int]:
    """A session with a matrix whose decomposition takes long."""
    session = server.open()
    return session, session.op("randn", [SIZE, SIZE]).id


def begin(server: Running, session: Remote, x: int, **fields: Any) -> Any:
    """Have its singular values computed; the future, once a process computes them."""
    future = session.stub.Op.future(op("linalg.svdvals", Id(x), session_id=session.id), **fields)
    until(lambda: worker_of(server).children())
    return future


def test_others_compute_while_an_op_takes_long(server: Running) -> None:
    session, x = heavy(server)
    other = server.open()
    one = other.create([1.0])
    going = begin(server, session, x)
    for _ in range(20):
        np.testing.assert_array_equal(other.read(other.op("add", Id(one), Id(one)).id), [2.0])
    assert not going.done()
    session.stub.Cancel(s.CancelRequest(session_id=session.id))
    assert refused(going.result, WAIT)[1] == "CANCELLED"
    np.testing.assert_array_equal(session.read(session.create([3.0])), [3.0])


def test_an_op_that_takes_long_ends_when_it_is_cancelled(server: Running) -> None:
    session, x = heavy(server)
    going = begin(server, session, x)
    session.stub.Cancel(s.CancelRequest(session_id=session.id))
    assert refused(going.result, WAIT)[1] == "CANCELLED"
    until(lambda: not worker_of(server).children())
    assert session.describe().tensor_count == 1


def test_an_op_that_takes_long_ends_at_its_time_limit(server: Running) -> None:
    session, x = heavy(server)
    limited = command(op("linalg.svdvals", Id(x)))
    limited.timeout_ms = 300
    results = session.stub.Run(session.batch(limited, command(op("add", Id(x), Id(x)))), timeout=WAIT).results
    assert results[0].error.code == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
    assert not results[1].HasField("error")
    until(lambda: not worker_of(server).children())


def test_an_op_that_takes_long_ends_with_its_session(server: Running) -> None:
    session, x = heavy(server)
    going = begin(server, session, x)
    session.stub.CloseSession(s.CloseSessionRequest(session_id=session.id), timeout=WAIT)
    assert going.exception(WAIT) is not None
    until(lambda: not worker_of(server).children())


def test_a_fork_that_the_system_ends_refuses_its_op_alone(server: Running) -> None:
    session, x = heavy(server)
    going = begin(server, session, x)
    (child,) = worker_of(server).children()
    until(lambda: Path(f"/proc/{child.pid}/oom_score_adj").read_text().strip() == "1000")
    child.kill()
    code, reason, _ = refused(going.result, WAIT)
    assert (code, reason) == ("RESOURCE_EXHAUSTED", "MEMORY_LIMIT")
    np.testing.assert_array_equal(session.read(session.create([3.0])), [3.0])


def test_a_worker_that_is_killed_leaves_no_fork() -> None:
    with running(workers=1, max_session_bytes=256 * MIB) as server:
        session, x = heavy(server)
        going = begin(server, session, x)
        worker = worker_of(server)
        (child,) = worker.children()
        worker.kill()
        assert going.exception(WAIT) is not None
        until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_an_op_ends_that_computes_longer_than_a_minute_allows() -> None:
    with running(workers=1, max_session_compute_seconds=0.4, max_session_bytes=256 * MIB) as server:
        session = server.open()
        x = session.op("randn", [SIZE, SIZE]).id
        failed = command(op("linalg.svdvals", Id(x)))
        results = session.stub.Run(session.batch(failed), timeout=WAIT).results
        assert results[0].error.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        assert results[0].error.metadata["limit"] == "0.4"
        until(lambda: not worker_of(server).children())


def test_what_is_computed_aside_is_as_ever(server: Running) -> None:
    """Values of a long op, of its backward, and what follows: of a matrix whose singular values are known."""
    session = server.open()
    size = 700
    x = session.op("diag", Id(session.op("linspace", 1.0, float(size), size).id)).id
    session.stub.SetRequiresGrad(c.SetRequiresGradRequest(session_id=session.id, tensor=x, requires_grad=True))
    made = session.stub.Op(op("linalg.svd", Id(x), session_id=session.id)).outputs
    np.testing.assert_allclose(session.read(made[1].id), np.arange(size, 0, -1), rtol=1e-5)
    loss = session.op("sum", Id(made[1].id)).id
    session.stub.Backward(c.BackwardRequest(session_id=session.id, tensors=[loss]))
    grad = session.stub.Grad(c.GradRequest(session_id=session.id, tensor=x)).grad.id
    np.testing.assert_allclose(session.read(session.op("diag", Id(grad)).id), np.ones(size), rtol=1e-4)


def test_an_op_beyond_the_limit_is_refused_before_anything_is_computed() -> None:
    with running(workers=1, max_op_operations=10**8) as server:
        session = server.open()
        assert server.stub.ServerInfo(s.ServerInfoRequest()).limits.max_op_operations == 10**8
        x = session.op("zeros", [700, 700]).id
        held = server.held()
        code, reason, told = refused(session.stub.Op, op("linalg.svdvals", Id(x), session_id=session.id))
        assert (code, reason) == ("RESOURCE_EXHAUSTED", "OP_LIMIT")
        assert (told["op"], told["limit"]) == ("linalg.svdvals", "1e08")
        assert server.held() == held


def test_a_backward_beyond_the_limit_is_refused_and_no_gradient_has_changed() -> None:
    with running(workers=1, max_op_operations=10**8) as server:
        session = server.open()
        x = session.op("zeros", [20_000]).id
        session.stub.SetRequiresGrad(c.SetRequiresGradRequest(session_id=session.id, tensor=x, requires_grad=True))
        loss = session.op("sum", Id(session.op("logcumsumexp", Id(x), 0).id)).id
        code, reason, told = refused(session.stub.Backward, c.BackwardRequest(session_id=session.id, tensors=[loss]))
        assert (code, reason, told["op"]) == ("RESOURCE_EXHAUSTED", "OP_LIMIT", "the backward of logcumsumexp")
        assert not session.stub.Grad(c.GradRequest(session_id=session.id, tensor=x)).HasField("grad")


def test_a_worker_that_one_call_holds_is_started_again() -> None:
    with running(workers=1, hold_seconds=0.5) as server:
        session = server.open()
        session.create([1.0])
        worker = server.backend.workers[0]

        def hold() -> None:  # at once: the worker resets its start when the slice of `create` ends
            server.backend.counters.set_slice_start(0, time.monotonic_ns() - 10**9)
            worker.end_if_held(time.monotonic_ns())

        server.loop.call_soon_threadsafe(hold)
        until(lambda: worker.restarts == 1 and worker.alive)
        with pytest.raises(grpc.RpcError, match=r"one call had blocked all others for 0\.5 seconds"):
            session.describe()
        fresh = server.open()
        np.testing.assert_array_equal(fresh.read(fresh.create([3.0])), [3.0])


_CHILDREN = """
import os, time
import numpy as np
from gradwire_engine import EngineError, Reason
from gradwire_server.worker.forked_op import ForkedOp

def told(compute, check=lambda seconds: None):
    child = ForkedOp(compute, "x")
    pid = child.pid
    try:
        return child.result(check)
    except Exception as error:
        return error
    finally:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            pass
        else:
            raise AssertionError("the child is still there")

def refuse(*_):
    raise EngineError(Reason.SHAPE, "no such shape", given=3)

turned = np.arange(6.0).reshape(2, 3).T
made = told(lambda: (turned, [np.float32(2), None], np.zeros((0, 3))))
assert (made[0] == turned).all() and made[0].strides == turned.strides and made[0].flags.writeable
assert made[1] == [2.0, None] and made[2].shape == (0, 3)
error = told(refuse)
assert (error.reason, error.message, error.metadata) == (Reason.SHAPE, "no such shape", {"given": "3"})
assert type(told(lambda: 1 / 0)) is ZeroDivisionError
assert type(told(lambda: os.kill(os.getpid(), 9))) is MemoryError
gone = told(lambda: os._exit(9))
assert type(gone) is RuntimeError and "with exit status 9" in str(gone)
assert told(lambda: time.sleep(600), refuse).reason is Reason.SHAPE
"""


def test_a_child_tells_what_it_made_or_raised_and_never_stays() -> None:
    """In a process without gRPC, as workers are."""
    subprocess.run([sys.executable, "-c", _CHILDREN], check=True, timeout=WAIT)


def test_a_long_command_of_quick_ops_yields_to_others(server: Running) -> None:
    session, other = server.open(), server.open()
    one = other.create([1.0])
    matrices = [Id(session.op("ones", [2, 2]).id)] * 900
    going = session.stub.Op.future(op("linalg.multi_dot", matrices, session_id=session.id))
    for _ in range(10):
        other.op("add", Id(one), Id(one))
    session.stub.Cancel(s.CancelRequest(session_id=session.id))
    failed = going.exception(WAIT)
    assert failed is None or refused(going.result)[1] == "CANCELLED"

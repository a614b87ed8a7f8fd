"""Failed allocations anywhere: the command is refused, and every session is unchanged."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import errors_pb2
from gradwire.v1 import programs_pb2 as p
from gradwire_engine.core.context import Account
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.op import Op
from gradwire_server.session import interpreter, retry
from tests.server.harness import Id, Remote, Running, command, op
from tests.server.test_programs import descent

X, Y, OUT, TOTAL = 1, 2, 10, 11
STEPS = [
    command(op("matmul", Id(X), Id(Y), outputs=[OUT])),
    command(op("sum", Id(OUT), outputs=[TOTAL])),
    command(c.BackwardRequest(tensors=[TOTAL], retain_graph=True)),
    command(c.GradientsRequest(outputs=[TOTAL], inputs=[X], allow_unused=True, retain_graph=True)),
    command(op("add_", Id(Y), Id(Y))),
    command(op("zeros", [2], outputs=[12])),
    command(op("ones", [2], outputs=[13])),
]
PLACES: list[tuple[Any, str]] = [(Op, "compute"), (Op, "record"), (Tensor, "__init__"), (Account, "admit")]


class Scarce:
    """Lets the n-th call of a function from now on find no memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.left = 0
        self.missed = 0
        function = getattr(owner, name)

        def failing(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self.missed += 1
                raise MemoryError("injected")
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, failing)


def values(session: Remote) -> list[np.ndarray]:
    return [session.read(X), session.read(Y)]


@pytest.mark.parametrize(("owner", "name"), PLACES, ids=[f"{owner.__name__}.{name}" for owner, name in PLACES])
def test_a_batch_that_finds_no_memory_somewhere_leaves_what_it_did_not_do_undone(
    server: Running, in_process: None, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    beside = server.open()
    beside.create([[5.0]], tensor_id=X)
    scarce = Scarce(monkeypatch, owner, name)
    for place in range(1, 40):
        session = server.open()
        session.create([[1.0, 2.0], [3.0, 4.0]], requires_grad=True, tensor_id=X)
        session.create([[1.0, 0.0], [0.0, 1.0]], tensor_id=Y)
        before = values(session)
        scarce.left, scarce.missed = place, 0
        results = session.run(*STEPS).results
        scarce.left = 0
        refused = [result.error for result in results if result.HasField("error")]
        if scarce.missed and refused:
            assert refused[0].reason == errors_pb2.REASON_MEMORY_LIMIT, refused[0]
            assert {each.reason for each in refused[1:]} <= {errors_pb2.REASON_DEPENDENCY_FAILED}
        np.testing.assert_array_equal(session.read(X), before[0])
        added = not results[4].HasField("error")
        np.testing.assert_array_equal(session.read(Y), before[1] * (2 if added else 1))
        if results[2].HasField("error"):
            assert session.grad(X) is None
        else:
            np.testing.assert_array_equal(session.grad(X), np.ones((2, 2), np.float32))
        assert session.op("add", Id(X), Id(Y)).id
        session.close()
        np.testing.assert_array_equal(beside.read(X), [[5.0]])
        if not scarce.missed:
            break
    assert place > 2, "nothing was injected"
    beside.close()
    assert server.held() == 0


@pytest.mark.parametrize(("owner", "name"), PLACES, ids=[f"{owner.__name__}.{name}" for owner, name in PLACES])
def test_a_program_that_finds_no_memory_somewhere_goes_well_the_next_time(
    session: Remote, in_process: None, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    raw = descent().SerializeToString()
    digest = hashlib.sha256(raw).digest()
    session.stub.RegisterProgram(p.RegisterProgramRequest(session_id=session.id, hash=digest, program=raw))
    scarce = Scarce(monkeypatch, owner, name)
    for place in range(1, 12):
        w, x = session.create([1, 2, 3], requires_grad=True), session.create([1, 1, 1])
        run = command(p.RunProgramRequest(hash=digest, inputs=[w, x], numbers=[0.5]))
        scarce.left = place
        session.run(run)
        scarce.left = 0
        fresh = session.create([1, 2, 3], requires_grad=True)
        response = session.run(command(p.RunProgramRequest(hash=digest, inputs=[fresh, x], numbers=[0.5])))
        assert not response.results[0].HasField("error"), response.results[0].error
        np.testing.assert_allclose(session.read(fresh), [0, 0, 0], atol=1e-6)


def test_a_program_that_finds_no_memory_for_its_answer_has_run_once(
    session: Remote, in_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = descent().SerializeToString()
    digest = hashlib.sha256(raw).digest()
    session.stub.RegisterProgram(p.RegisterProgramRequest(session_id=session.id, hash=digest, program=raw))
    w, x = session.create([1, 2, 3], requires_grad=True), session.create([1, 1, 1])
    run = command(p.RunProgramRequest(hash=digest, inputs=[w, x], numbers=[0.25], outputs=[1000]))
    monkeypatch.setattr(retry, "_free_memory", lambda session: True)  # a plan or a graph was freed
    scarce = Scarce(monkeypatch, interpreter, "fill_spec")
    scarce.left = 1
    (result,) = session.run(run).results
    assert scarce.missed == 1
    assert result.error.reason == errors_pb2.REASON_MEMORY_LIMIT
    np.testing.assert_allclose(session.read(w), [0.5, 1, 1.5])
    (result,) = session.run(run).results  # the output's id is free
    assert not result.HasField("error"), result.error
    np.testing.assert_allclose(session.read(w), [0.25, 0.5, 0.75])

"""Node numbers: a session's commands alone decide them, whatever other sessions compute, and a replay repeats them."""

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import commands_pb2, hooks_pb2, programs_pb2, service_pb2, types_pb2
from gradwire.v1 import snapshots_pb2 as pb
from gradwire_engine.core import dtypes
from gradwire_server.common.payload import TO_WIRE
from gradwire_server.session import retry
from gradwire_server.storage.write_ahead_log import beginning, packed, read
from tests.server.failing_ops import fail_after_running
from tests.server.harness import Id, Remote, command, op, refused, running
from tests.server.test_durability import Storing

LEAVES = 1 << 52  # leaves' nodes have ids from here on
Shown = list[tuple[int, str, list[int]]]


def graph_of(session: Remote, *tensors: int) -> Shown:
    """Number, name and edges of each node behind the tensors, except leaves, in the order of numbers."""
    answer = session.stub.Graph(commands_pb2.GraphRequest(session_id=session.id, tensors=tensors))
    return sorted((node.id, node.name, [edge.node for edge in node.edges]) for node in answer.nodes if node.id < LEAVES)


def busy(session: Remote) -> None:
    """Make some nodes."""
    leaf = session.create([1.0], requires_grad=True)
    for _ in range(7):
        session.op("sin", Id(leaf))


def hooked_backward(session: Remote, between: Callable[[], None]) -> Shown:
    """The graph of a gradient whose backward waits for a hook, which makes nodes too. Calls `between` at each step."""
    leaf = session.create([1.0, 2.0], requires_grad=True)
    between()
    square = session.op("mul", Id(leaf), Id(leaf)).id
    between()
    total = session.op("sum", Id(session.op("exp", Id(square)).id)).id
    session.stub.RegisterHook(
        hooks_pb2.RegisterHookRequest(session_id=session.id, hook=77, tensor=square, kind=types_pb2.HOOK_KIND_TENSOR)
    )
    between()
    answer = session.stub.Backward(
        commands_pb2.BackwardRequest(session_id=session.id, tensors=[total], answers_hooks=True, create_graph=True)
    )
    between()
    doubled = session.op("mul", Id(answer.due.gradients[0].id), Id(leaf)).id
    between()
    session.stub.ResumeBackward(
        hooks_pb2.ResumeBackwardRequest(
            session_id=session.id, backward=answer.due.backward, replaces=True, gradients=[doubled]
        )
    )
    between()
    grad = session.stub.Grad(commands_pb2.GradRequest(session_id=session.id, tensor=leaf)).grad.id
    return graph_of(session, session.op("cos", Id(grad)).id)


def test_a_session_beside_another_numbers_its_nodes_as_alone() -> None:
    with running() as server:
        alone = hooked_backward(server.open(), lambda: None)
        session, other = server.open(), server.open()
        beside = hooked_backward(session, lambda: busy(other))
    assert len(alone) > 8
    assert beside == alone
    assert alone[0][0] == 1


def two_backwards(first: Remote, second: Remote, steps: Sequence[int]) -> list[Shown]:
    """Both sessions do the same; `steps` says whose turn it is."""
    sessions = first, second
    leaves = [each.create([0.5, 1.5], requires_grad=True) for each in sessions]
    last = list(leaves)
    for turn in steps:
        last[turn] = sessions[turn].op("mul", Id(last[turn]), Id(leaves[turn])).id
    return [graph_of(each, made) for each, made in zip(sessions, last, strict=True)]


def test_two_interleaved_sessions_have_equal_graphs() -> None:
    with running() as server:
        one, other = two_backwards(server.open(), server.open(), [0, 1] * 5 + [1, 1, 0, 0])
    assert one == other
    assert [number for number, _, _ in one] == list(range(1, 8))


# Programs.


def program() -> bytes:
    """A program of one input with a backward; a plan can run it."""

    def step(request: Any) -> programs_pb2.ProgramStep:
        return programs_pb2.ProgramStep(**{command(request).WhichOneof("command"): request})

    taken = programs_pb2.ProgramInput(dtype=TO_WIRE[dtypes.BY_NAME["float32"]], shape=[2], requires_grad=True)
    steps = [
        step(op("mul", Id(1), Id(1), outputs=[2])),
        step(op("exp", Id(2), outputs=[3])),
        step(op("sum", Id(3), outputs=[4])),
        step(commands_pb2.BackwardRequest(tensors=[4])),
    ]
    made = programs_pb2.Program(inputs=[taken], steps=steps, outputs=[4])
    return made.SerializeToString(deterministic=True)


def run_program(session: Remote, leaf: int, made: int, repeat: int) -> service_pb2.RunResponse:
    """Register the program and run it; the last run's output is `made`."""
    raw = program()
    name = hashlib.sha256(raw).digest()
    answer = session.run(
        command(programs_pb2.RegisterProgramRequest(hash=name, program=raw)),
        command(programs_pb2.RunProgramRequest(hash=name, inputs=[leaf], repeat=repeat, outputs=[made])),
        command(programs_pb2.RegisterProgramRequest(hash=name, program=raw)),
    )
    assert not any(result.HasField("error") for result in answer.results), answer
    return answer


@pytest.mark.parametrize("planned", [True, False])
def test_a_planned_program_takes_as_many_node_numbers_as_one_run_step_by_step(
    planned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not planned:
        monkeypatch.setattr("gradwire_server.session.interpreter.MAX_PLANS", 0)
    with running() as server:
        session = server.open()
        leaf = session.create([0.5, 1.5], requires_grad=True)
        answer = run_program(session, leaf, 1000, 5)
        runs = answer.results[-1].register_program
        assert (runs.planned_runs > 0) is planned
        output = graph_of(session, 1000)[-1]  # step by step, it still leads to the nodes before it
        after = session.op("sin", Id(leaf)).id
        ((number, _, _),) = graph_of(session, after)
    assert output[0] == 4 * 3 + 3  # the fifth run's last of three nodes
    assert number == 5 * 3 + 1


# Logs.


@pytest.fixture
def crashing(tmp_path: Path) -> Iterator[Callable[[], Storing]]:
    """Starts a server with a log, and each time after that one with the previous server's files at that moment."""
    started: list[Storing] = []

    def start() -> Storing:
        root = tmp_path / str(len(started))
        if started:
            shutil.copytree(started[-1].root, root)
        started.append(Storing(root, logs=True))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def with_refusals(session: Remote, other: Remote, monkeypatch: pytest.MonkeyPatch) -> tuple[int, ...]:
    """Make nodes by all that a log treats apart: refused commands that made some, retries, programs; the last ids."""
    leaf = session.create([0.5, 1.5], requires_grad=True)
    with monkeypatch.context() as patch:
        fail_next = fail_after_running(patch)
        fail_next()
        assert refused(session.op, "exp", Id(leaf), outputs=[101])[1] == "MEMORY_LIMIT"
        session.op("exp", Id(leaf), outputs=[102])
        busy(other)
        fail_next()
        answer = session.run(command(op("exp", Id(leaf), outputs=[103])), command(op("exp", Id(leaf), outputs=[104])))
        assert answer.results[0].HasField("error")
        fail_next()
        assert session.run(command(op("exp", Id(leaf), outputs=[105]))).results[0].HasField("error")  # the batch's last
        patch.setattr(retry, "_free_memory", lambda _: True)
        fail_next()
        session.op("exp", Id(leaf), outputs=[106])
        fail_next()
        session.run(command(op("exp", Id(leaf), outputs=[107])))
    run_program(session, leaf, 1000, 3)
    run_program(session, leaf, 1001, 2)
    busy(other)
    session.op("sin", Id(leaf), outputs=[108])
    return 102, 104, 106, 107, 1000, 1001, 108


def test_a_replay_gives_nodes_their_numbers(crashing: Callable[[], Storing], monkeypatch: pytest.MonkeyPatch) -> None:
    server = crashing()
    session, other = server.open(), server.open()
    ids = with_refusals(session, other, monkeypatch)
    before = [graph_of(session, each)[-1][:2] for each in ids]
    with monkeypatch.context() as patch:
        patch.setattr("gradwire_server.session.interpreter.MAX_PLANS", 0)  # the programs ran as plans
        restored = Remote(crashing().channel, session.opened)
        assert [graph_of(restored, each)[-1][:2] for each in ids] == before
    for each in (session, restored):
        each.op("cos", Id(108), outputs=[2000])
    assert graph_of(restored, 2000) == graph_of(session, 2000)


def rewritten(path: Path, change: Callable[[pb.LogRecord], None]) -> None:
    """Change each record of a log."""
    parts: list[Any] = [beginning(0)]
    for record, _ in list(read(path)):
        change(record)
        parts.extend(packed(record))
    path.write_bytes(b"".join(parts))


def test_a_log_of_an_older_server_restores_the_numbers_that_it_notes(crashing: Callable[[], Storing]) -> None:
    """Older servers had one counter for all sessions, so they noted the next number at the begin of each batch."""
    server = crashing()
    session = server.open()
    leaf = session.create([0.5], requires_grad=True)
    for number in (100, 101):
        session.run(
            command(op("exp", Id(leaf), outputs=[number])), command(op("sin", Id(number), outputs=[number + 10]))
        )
    assert [number for number, _, _ in graph_of(session, 110, 111)] == [1, 2, 3, 4]
    server = crashing()
    (path,) = server.root.glob("sessions/*/*.log")
    noted = iter((40, 70))

    def as_before(record: pb.LogRecord) -> None:
        if record.WhichOneof("record") == "batch":
            first = service_pb2.RunRequest.FromString(record.batch).first_seq
            record.resumptions.add(after_seq=first - 1, node_seq=next(noted))

    rewritten(path, as_before)
    restored = Remote(server.channel, session.opened)
    assert [number for number, _, _ in graph_of(restored, 110, 111)] == [41, 42, 71, 72]
    restored.op("cos", Id(leaf), outputs=[200])
    assert graph_of(restored, 200)[0][0] == 73


def test_a_snapshot_keeps_the_next_number(tmp_path: Path) -> None:
    server = Storing(tmp_path)
    try:
        session = server.open()
        leaf = session.create(np.ones(2), requires_grad=True)
        session.op("exp", Id(leaf), outputs=[100])
        session.op("exp", Id(leaf), outputs=[101])
        session.release(101)
        server.put_away()
        session.op("exp", Id(leaf), outputs=[102])
        assert [graph_of(session, each)[0][0] for each in (100, 102)] == [1, 3]
    finally:
        server.stop()

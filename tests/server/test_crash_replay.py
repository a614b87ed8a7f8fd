"""A crash after a retried or refused command: the log restores what the command left behind."""

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from gradwire.v1 import commands_pb2, hooks_pb2, programs_pb2, types_pb2
from gradwire.v1 import snapshots_pb2 as pb
from gradwire_engine import EngineError, Reason
from gradwire_engine.core import dtypes
from gradwire_server.common.payload import TO_WIRE
from gradwire_server.session import interpreter, retry, tensor_commands
from gradwire_server.storage import log_files
from gradwire_server.storage.replay import ReplayCancelToken
from tests.server.harness import Id, Remote, command, op, refused, with_session
from tests.server.session.opened import opened
from tests.server.test_durability import Storing

Crash = Callable[[Remote], Remote]


@pytest.fixture
def storing(tmp_path: Path) -> Iterator[Storing]:
    """A server whose sessions have a log."""
    made = Storing(tmp_path / "0", logs=True)
    yield made
    made.stop()


@pytest.fixture
def crash(storing: Storing, tmp_path: Path) -> Iterator[Crash]:
    """Restores a session on another server, from a copy of the files as they are now."""
    copies: list[Storing] = []

    def restored(session: Remote) -> Remote:
        root = tmp_path / str(len(copies) + 1)
        shutil.copytree(storing.root, root)
        copies.append(Storing(root, logs=True))
        return Remote(copies[-1].channel, session.opened)

    yield restored
    for copy in copies:
        copy.stop()


@contextmanager
def short_once() -> Iterator[None]:
    """Inside the block memory is short after the first op's result has its id; a second try finds some."""
    real, failures = tensor_commands.apply_op, [1]

    def failing(session: Any, *rest: Any) -> None:
        real(session, *rest)
        if failures:
            session.release_all(rest[2])
            raise MemoryError(failures.pop())

    with patch.object(tensor_commands, "apply_op", failing), patch.object(retry, "_free_memory", lambda session: True):
        yield
    assert not failures


def test_a_unary_call_is_retried_in_a_session_without_batches(storing: Storing, crash: Crash) -> None:
    session = storing.open()
    leaf = session.create([0.5, 1.5], requires_grad=True)
    with short_once():
        made = session.op("rand_like", Id(leaf), outputs=[101]).id
    assert made == 101
    restored = crash(session)
    for each in (leaf, made):
        assert np.array_equal(session.read(each), restored.read(each))


def test_a_retry_within_a_batch_and_after_it_draws_the_same_numbers(storing: Storing, crash: Crash) -> None:
    session = storing.open()
    leaf = session.create([0.5, 1.5])
    random = [command(op("rand_like", Id(leaf), outputs=[number])) for number in (201, 202, 203)]
    with short_once():
        session.run(*random)
    with short_once():
        session.op("rand_like", Id(leaf), outputs=[204])
    restored = crash(session)
    for each in (201, 202, 203, 204):
        assert np.array_equal(session.read(each), restored.read(each))


def test_a_refused_end_of_packing_changes_nothing(storing: Storing, crash: Crash) -> None:
    session = storing.open()
    leaf = session.create([0.5, 1.5], requires_grad=True)

    def pack(step: Any, **fields: Any) -> Any:
        return command(hooks_pb2.PackSavedRequest(number=5, step=step, **fields))

    begin, exp = pack(hooks_pb2.PACK_STEP_BEGIN), command(op("exp", Id(leaf), outputs=[20]))
    keep = pack(hooks_pb2.PACK_STEP_KEEP, outputs=[999], hooks=[1])
    assert session.run(begin, exp, keep).results[-1].error.reason
    restored = crash(session)
    shown = pack(hooks_pb2.PACK_STEP_SHOW, outputs=[20])
    for each in (session, restored):
        (result,) = each.run(shown, first=4).results
        assert len(result.pack_saved.values) == 1


def program(*steps: Any) -> tuple[bytes, Any]:
    """A registered program's hash, and the command that registers it. It takes two float32 numbers."""
    taken = programs_pb2.ProgramInput(dtype=TO_WIRE[dtypes.BY_NAME["float32"]], shape=[2])
    told = [programs_pb2.ProgramStep(op=step) for step in steps]
    raw = programs_pb2.Program(inputs=[taken], steps=told, outputs=[1]).SerializeToString()
    name = hashlib.sha256(raw).digest()
    return name, programs_pb2.RegisterProgramRequest(hash=name, program=raw)


@pytest.mark.parametrize("unary", [False, True])
def test_what_a_program_did_before_its_refused_step_remains(storing: Storing, crash: Crash, unary: bool) -> None:
    session = storing.open()
    x = session.create([1.0, 2.0])
    name, register = program(
        op("add_", Id(1), 10.0), op("rand_like", Id(1), outputs=[2]), op("reshape", Id(1), [3], outputs=[3])
    )
    run = programs_pb2.RunProgramRequest(hash=name, inputs=[x], outputs=[50], repeat=3)
    if unary:
        session.stub.RegisterProgram(with_session(register, session))
        assert refused(session.stub.RunProgram, with_session(run, session))[2]["step"] == "2"
    else:
        registered, ran = session.run(command(register), command(run, timeout_ms=60_000)).results
        assert (registered.error.reason, ran.error.metadata["step"]) == (0, "2")
    session.op("rand_like", Id(x), outputs=[60])
    restored = crash(session)
    assert session.read(x).tolist() == restored.read(x).tolist() == [11.0, 12.0]
    assert np.array_equal(session.read(60), restored.read(60))


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_cancelled_program_stops_where_it_stopped(
    storing: Storing, crash: Crash, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = storing.open()
    x = session.create([1.0, 2.0])
    name, register = program(op("add_", Id(1), 10.0), op("mul_", Id(1), 2.0), op("add_", Id(1), 1.0))
    session.stub.RegisterProgram(with_session(register, session))
    real, left = interpreter.RunScope.run, [3 + step]  # the first repetition is complete

    def run(scope: Any, *rest: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise EngineError(Reason.CANCELLED, "the command was cancelled")
        return real(scope, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(interpreter.RunScope, "run", run)
        patched.setattr(interpreter, "MAX_PLANS", 0)
        request = with_session(programs_pb2.RunProgramRequest(hash=name, inputs=[x], repeat=5), session)
        metadata = refused(session.stub.RunProgram, request)[2]
    assert (metadata["repetition"], metadata["step"]) == ("1", str(step))
    assert session.read(x).tolist() == crash(session).read(x).tolist()


@pytest.mark.parametrize("mark", [hooks_pb2.CHECKPOINT_MARK_END, hooks_pb2.CHECKPOINT_MARK_UNSPECIFIED])
def test_a_refused_end_ends_the_checkpoint_also_after_a_crash(storing: Storing, crash: Crash, mark: Any) -> None:
    session = storing.open()

    def checkpoint(each: Remote, mark: Any, **fields: Any) -> Any:
        request = hooks_pb2.CheckpointRequest(session_id=each.id, hook=9, mark=mark, **fields)
        return each.stub.Checkpoint(request)

    checkpoint(session, hooks_pb2.CHECKPOINT_MARK_BEGIN)
    refused(checkpoint, session, mark, outputs=[999])
    restored = crash(session)
    ended = mark == hooks_pb2.CHECKPOINT_MARK_END
    for each in (session, restored):
        if ended:
            checkpoint(each, hooks_pb2.CHECKPOINT_MARK_BEGIN)
        else:
            assert refused(checkpoint, each, hooks_pb2.CHECKPOINT_MARK_BEGIN)[1] == "ARGUMENT_VALUE"


def test_a_refusal_waits_until_its_effects_are_in_the_log(
    storing: Storing, crash: Crash, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = storing.open()

    def checkpoint(each: Remote, mark: Any, **fields: Any) -> Any:
        request = hooks_pb2.CheckpointRequest(session_id=each.id, hook=9, mark=mark, **fields)
        return each.stub.Checkpoint(request)

    checkpoint(session, hooks_pb2.CHECKPOINT_MARK_BEGIN)
    real = log_files._write

    def slow(*arguments: Any) -> None:
        time.sleep(0.5)
        real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(log_files, "_write", slow)
        reason = refused(checkpoint, session, hooks_pb2.CHECKPOINT_MARK_END, outputs=[999])[1]
        restored = crash(session)
    assert reason == "TENSOR_NOT_FOUND"
    checkpoint(restored, hooks_pb2.CHECKPOINT_MARK_BEGIN)  # the refused end had ended the region


@pytest.mark.parametrize("ids", [[4], [999]])
def test_a_refused_resumption_leaves_the_same_backward(storing: Storing, crash: Crash, ids: list[int]) -> None:
    session = storing.open()
    leaf = session.create([1.0, 2.0], requires_grad=True)
    session.create([1.0, 2.0, 3.0], tensor_id=4)
    square = session.op("mul", Id(leaf), Id(leaf)).id
    total = session.op("sum", Id(square)).id
    kind = types_pb2.HOOK_KIND_TENSOR
    hook = hooks_pb2.RegisterHookRequest(session_id=session.id, hook=77, tensor=square, kind=kind)
    session.stub.RegisterHook(hook)
    request = commands_pb2.BackwardRequest(session_id=session.id, tensors=[total], answers_hooks=True)
    number = session.stub.Backward(request).due.backward

    def resume(each: Remote, **fields: Any) -> Any:
        told = hooks_pb2.ResumeBackwardRequest(session_id=each.id, backward=number, **fields)
        return each.stub.ResumeBackward(told)

    refused(resume, session, replaces=True, gradients=ids)
    restored = crash(session)
    for each in (session, restored):
        if ids == [4]:  # the shape was refused when the backward had gone on: it is over
            assert refused(resume, each)[1] == "CANCELLED"
            assert each.grad(leaf) is None
        else:
            resume(each)
            assert each.grad(leaf).tolist() == [2.0, 4.0]


def test_an_old_log_tells_by_its_repetition_that_a_program_had_begun() -> None:
    with opened() as state:
        token = ReplayCancelToken(state)
        told = pb.LogRefusal(seq=2, reason="SHAPE", metadata={"step": "1", "repetition": "0"})
        token.follow(pb.LogRecord(refusals=[told]))
        token.seq = 2
        assert token.stopping()
        assert token.repeats(True)
        assert not token.stopping()
        token.seq = 2
        assert not token.repeats(False)

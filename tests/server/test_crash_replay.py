"""A crash after a retried or refused command: the log restores what the command left behind."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from gradwire.v1 import hooks_pb2
from gradwire_server.session import retry, tensor_commands
from tests.server.harness import Id, Remote, command, op
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

    with patch.object(tensor_commands, "apply_op", failing), patch.object(retry, "_make_room", lambda session: True):
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

"""Steps of many small ops: by a loop of machine code they leave what their commands leave, bit for bit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import types_pb2
from gradwire_engine.autograd.listed_sequences import ListedSequence
from gradwire_engine.compile.eager.library import LIBRARY
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.ops.base.sequences import NAME
from gradwire_server.session.prepared import calls, repeats, steps
from tests.engine.compile.fusing import KERNELS
from tests.server.harness import Id, argument, command, op
from tests.server.session import test_steps
from tests.server.session.test_repeated_steps import Program, disturb
from tests.server.session.test_steps import Pair

pytest.importorskip("llvmlite")


@pytest.fixture(autouse=True)
def sequences(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Steps are joined early, the loop is loaded; whether each sequence so far has run."""
    monkeypatch.setattr(repeats, "_FIRST", 1)
    monkeypatch.setattr(repeats, "_recipes", {})
    monkeypatch.setattr(repeats, "_failures", {})
    monkeypatch.setattr(steps, "_ALWAYS", 16)
    monkeypatch.setattr(steps, "_REPAID", 2)
    monkeypatch.setattr(steps, "_REPAID_LONG", 2)
    monkeypatch.setattr(calls, "LONG", 1 << 10)  # else the answers tell the time of long lists
    monkeypatch.setattr(OPTIONS, "mode", "on")
    monkeypatch.setattr(OPTIONS, "kernels", KERNELS)
    for dtype in "fd":
        assert LIBRARY.find(NAME, dtype) is not None
    found: list[bool] = []
    run = ListedSequence.run

    def noted(sequence: ListedSequence, *args: Any) -> bool:
        found.append(run(sequence, *args))
        return found[-1]

    monkeypatch.setattr(ListedSequence, "run", noted)
    return found


class Chained(Program):
    """A program of many elementwise ops, now and then another, and their sum."""

    def _plan(self) -> list[tuple[int, list[Any]]]:
        pick, plan = self.random, []
        numbers = np.random.default_rng(pick.randrange(1000))
        dtype = self.leaves[1][0].dtype
        self.leaves = {key: (numbers.standard_normal((6, 5)).astype(dtype), key != 1) for key in (1, 2, 3, 4, 6)}
        ops: dict[Any, int] = {}

        def call(name: str, *given: Any) -> Any:
            fixed = [each if isinstance(each, types_pb2.Argument) else None for each in given]
            told = [one or (1.0 if type(each) is float else Id(0)) for one, each in zip(fixed, given, strict=True)]
            kind = name, *map(str, fixed), *map(type, told)
            if kind not in ops:
                ops[kind] = self.prepare(op(name, *told, outputs=[0]))
            plan.append((ops[kind], [each for one, each in zip(fixed, given, strict=True) if one is None]))
            return "made", len(plan) - 1

        made: list[Any] = [1, 2, 3]
        for _ in range(pick.choice([12, 30, 70])):
            one, kind = pick.choice(made[-2:]), pick.randrange(14)
            if kind < 6:
                made.append(call(pick.choice(["mul", "add", "sub", "div"]), one, pick.uniform(0.7, 1.4)))
            elif kind < 11:
                made.append(call(pick.choice(["mul", "add", "sub"]), one, pick.choice([4, 6, *made[-3:]])))
            elif kind == 11:
                made.append(call("neg", one) if pick.random() < 0.5 else call("add", one, argument(2)))
            elif kind == 12:
                made.append(call("tanh", one))
            else:
                made.append(call("sigmoid", one))
        call("sum", call("tanh", made[-1]))
        return plan


@pytest.fixture
def pair_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(test_steps, "Program", Chained)
    return lambda seed: Pair(seed, monkeypatch)


@pytest.mark.parametrize("seed", range(20))
def test_random_chains_leave_the_same_state(seed: int, pair_of: Any, sequences: list[bool]) -> None:
    pick, pair = random.Random(seed), pair_of(seed)
    for number in range(20):
        few = pick.random() < 0.5
        commands = pair.commands(keep=lambda one, few=few: few and pick.random() < 0.05)
        if number > 8 and pick.random() < 0.3:
            *body, last = commands
            disturb(pick, body, list(last.release.tensors), pair.program)
            commands = [*body, last]
        pair.step(commands)
    assert any(pair.ran)
    assert all(sequences)


def test_chains_are_computed_by_the_loop(pair_of: Any, sequences: list[bool]) -> None:
    found = 0
    for seed in range(6):
        pair_of(seed).warm()
        found += len(sequences)
        sequences.clear()
    assert found >= 6


@pytest.mark.parametrize("seed", range(8))
def test_results_that_stay_have_memory_of_their_own(seed: int, pair_of: Any, sequences: list[bool]) -> None:
    pair = pair_of(seed)
    pair.warm()
    for place in range(0, len(pair.program.plan), 5):
        commands = pair.commands()
        kept = commands[-1].release.tensors[place]
        ids = [each for each in commands[-1].release.tensors if each != kept]
        pair.step([*commands[:-1], command(c.ReleaseRequest(tensors=ids), quiet=True)])
        array = pair.joining.session.store[kept].array
        assert array.base is None or array.base.nbytes == array.nbytes
        grads = [pair.joining.session.store[leaf].grad for leaf in pair.program.updated]
        assert all(each is None or each.array.flags.owndata for each in grads)
        pair.step([command(op("mul_", Id(1), 1.0)), command(c.ReleaseRequest(tensors=[kept]), quiet=True)])


@pytest.mark.parametrize("seed", range(3))
def test_many_results_may_stay(seed: int, pair_of: Any) -> None:
    pair = pair_of(seed)
    pair.warm()
    for few in (3, 2, 1):
        commands = pair.commands()
        made = list(commands[-1].release.tensors)
        released = [each for place, each in enumerate(made) if few > 1 and not place % few]
        before = sum(pair.ran)
        pair.step([*commands[:-1], command(c.ReleaseRequest(tensors=released), quiet=True)])
        assert sum(pair.ran) == before + 1
        pair.step([command(c.ReleaseRequest(tensors=made), quiet=True)])

"""The bytes that an account has are those that tensors, gradients and saved values keep: counted another way."""

from __future__ import annotations

import gc
import random
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.autograd.backward_pass import BackwardPass
from gradwire_engine.graph.graph import Node
from gradwire_engine.graph.saved import Saved

UNARY = ("exp", "tanh", "neg", "sigmoid", "square", "clone", "relu", "abs", "softmax", "cumsum", "sort", "_detach")
BINARY = ("add", "mul", "sub", "maximum", "div")


def kept(account: engine.Account) -> int:
    """The bytes of the arrays behind all that lives and counts there, once each."""
    owners: dict[int, int] = {}
    for each in gc.get_objects():
        if isinstance(each, engine.Tensor | Saved) and each.storage.account is account:
            array = each.array
            while array.base is not None:  # as_strided has another kind of object in between
                array = array.base
            owners[id(array)] = array.nbytes
        elif isinstance(each, Node):
            for value in each.saved:
                assert not isinstance(value, np.ndarray), f"{each.name} keeps an array that nobody counts"
    return sum(owners.values())


class Program:
    """Random calls on tensors that come and go."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tensors: list[engine.Tensor] = []

    def one(self) -> engine.Tensor:
        return self.rng.choice(self.tensors)

    def call(self, name: str, *args: Any) -> None:
        made = engine.call(name, args)
        self.tensors.extend(made if isinstance(made, list | tuple) else [made])

    def step(self) -> None:
        """One call, or the end of some tensors. Those that the engine refuses leave everything as it was."""
        rng = self.rng
        if len(self.tensors) < 4:
            self.tensors.append(engine.tensor(np.ones((4, 4), np.float32) * rng.random(), rng.random() < 0.7))
            return
        what = rng.randrange(12)
        if what <= 2:
            name = rng.choice(UNARY)
            self.call(name.strip("_"), self.one(), *((0,) if name in ("softmax", "cumsum") else ()))
        elif what <= 4:
            self.call(rng.choice(BINARY), self.one(), self.one())
        elif what == 5:
            self.call(*rng.choice((("transpose", self.one(), 0, -1), ("select", self.one(), 0, 0), ("t", self.one()))))
        elif what == 6:
            self.call("expand", engine.call("unsqueeze", (self.one(), 0)), (3, 4, 4))
        elif what == 7:
            self.call("reshape", self.one(), (-1,))
        elif what == 8:
            engine.call(rng.choice(("add_", "mul_")), (self.one(), rng.random()))
        elif what == 9:
            loss = engine.call("sum", (self.one(),))
            engine.backward([loss], retain_graph=rng.random() < 0.5, create_graph=rng.random() < 0.3)
        elif what == 10:
            target = self.one()
            if rng.random() < 0.5:
                engine.retain_grad(target)
            else:
                target.grad = None
        else:
            del self.tensors[: rng.randrange(len(self.tensors))]


@pytest.fixture
def few_objects() -> None:
    """What other tests have left, which may be hundreds of thousands of objects, is not looked through each time."""
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_are_counted_to_the_byte(seed: int, few_objects: None) -> None:
    context = engine.Context()
    program = Program(seed)
    with engine.activate(context):
        refused = set()
        for number in range(150):
            try:
                program.step()
            except engine.EngineError as error:
                refused.add(error.reason)
            if number % 10 == 9:
                gc.collect()
                assert context.account.bytes == kept(context.account)
        program.tensors.clear()
        gc.collect()
    assert context.account.bytes == 0
    assert engine.Reason.MEMORY_LIMIT not in refused


class Failing:
    """Lets the formulas of the n-th node from now on find no memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1
        propagate = BackwardPass._propagate

        def failing(passage: BackwardPass, node: Node, gradients: list[Any]) -> None:
            self.left -= 1
            if self.left == 0:
                raise MemoryError("injected")
            propagate(passage, node, gradients)

        monkeypatch.setattr(BackwardPass, "_propagate", failing)


def test_no_memory_in_the_middle_of_a_backward_changes_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(monkeypatch)
    context = engine.Context()
    with engine.activate(context):
        leaf = engine.tensor(np.linspace(0, 1, 6, dtype=np.float64).reshape(2, 3), True)
        other = engine.tensor(np.ones((2, 3)), True)
        first = engine.call("sum", (engine.call("mul", (engine.call("exp", (leaf,)), other)),))
        engine.backward([first], retain_graph=True)
        wanted = (leaf.grad.array.copy(), other.grad.array.copy())
        count = 0
        for place in range(1, 200):
            held = context.account.bytes
            failing.left = place
            try:
                engine.backward([first], retain_graph=True)
            except (MemoryError, engine.EngineError):
                count += 1
                assert context.account.bytes == held
                np.testing.assert_array_equal(leaf.grad.array, wanted[0])
                np.testing.assert_array_equal(other.grad.array, wanted[1])
            else:
                break
        failing.left = -1
        assert count >= 2, "nothing was injected"
        np.testing.assert_allclose(leaf.grad.array, 2 * wanted[0])

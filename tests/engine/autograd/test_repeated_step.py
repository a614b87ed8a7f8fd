"""Repeated steps in the engine: the list gives leaves what calls and backward give, or nothing changes.

tests/server/session/test_steps.py compares whole sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest

from gradwire_engine import REGISTRY, Account, Context, Tensor, activate, backward, tensor
from gradwire_engine.autograd.repeated_backward import PassMemo
from gradwire_engine.autograd.repeated_step import Ran, RepeatedStep
from gradwire_engine.autograd.step_join import Call, make
from gradwire_engine.core.context import CURRENT, Interrupt
from gradwire_engine.graph.callbacks import hook_tensor, hooks_of
from gradwire_engine.graph.hooks import CallbackKind, ExternalCallback
from gradwire_engine.graph.tensor import edge_of
from gradwire_engine.op.repeated import listing_of
from tests.engine.repeating import repeated_call

Made = TypeVar("Made")


@pytest.fixture
def context() -> Iterator[Context]:
    made = Context(account=Account(limit=1 << 30))
    with activate(made):
        yield made


def finished(running: Generator[None, None, Made]) -> Made:
    """What a generator returns; its pauses are empty."""
    while True:
        try:
            next(running)
        except StopIteration as done:
            made: Made = done.value
            return made


def counted(running: Generator[None, None, Made], pauses: list[None]) -> Generator[None, None, Made]:
    """The same generator, which adds its pauses to a list."""
    while True:
        try:
            next(running)
        except StopIteration as done:
            made: Made = done.value
            return made
        pauses.append(None)
        yield


class Steps:
    """relu(a @ b) * scale + c, its sum, and its backward: by calls, and joined."""

    #: Op, arguments and result of each call, by places; a float is the step's number.
    PLAN = (
        ("mm", (0, 1), 3), ("relu", (3,), 4), ("mul", (4, 1.5), 5), ("add", (5, 2), 6), ("sum", (6,), 7),
    )  # fmt: skip

    def __init__(self, context: Context) -> None:
        self.context = context
        numbers = np.random.default_rng(0)
        self.leaves = [tensor(numbers.standard_normal((3, 3)), True) for _ in range(3)]
        self.passes = PassMemo()
        self._calls: list[Any] = [None] * len(self.PLAN)

    def tensors(self, scale: float) -> list[Tensor]:
        """The tensors of all places, after the calls."""
        made = [*self.leaves, *[None] * len(self.PLAN)]
        for number, (name, places, out) in enumerate(self.PLAN):
            args = [scale if type(place) is float else made[place] for place in places]
            bound = REGISTRY[name].bind(args, {})
            known = self._calls[number]
            if known is None:
                _, known = repeated_call(REGISTRY[name], bound, self.context)
                self._calls[number] = known
            made[out] = known(bound, self.context)
        return made  # type: ignore[return-value]

    def calls(self) -> list[Call]:
        found = []
        for (_, places, out), known in zip(self.PLAN, self._calls, strict=True):
            listing = listing_of(known)
            assert listing is not None
            told = [~0 if type(place) is float else place for place in places]
            told += [None] * (len(listing.operands) - len(told))  # type: ignore[list-item]
            found.append(Call(self.context, listing, tuple(told), out))
        return found

    def ordinary(self, scale: float) -> list[bytes]:
        """The gradients by calls and backward, which are then dropped."""
        root = self.tensors(scale)[7]
        if self.passes.run(root) is None:
            backward([root])
        return self.taken()

    def taken(self) -> list[bytes]:
        found = []
        for leaf in self.leaves:
            assert leaf.grad is not None
            found.append(leaf.grad.array.tobytes())
            leaf.grad = None
        return found

    def joined(self) -> RepeatedStep:
        for _ in range(50):  # on a busy machine, a pass or the list may take too long to be noted
            for _ in range(4):
                self.ordinary(1.5)
            made = finished(make(self.calls(), [], self.tensors(1.5), [1.5], 7, self.passes))
            if made is not None:
                return made
        raise AssertionError("no list was made")

    def run(self, step: RepeatedStep, scale: float = 1.5) -> Ran | None:
        given = [self.leaves[place] for place, _, _ in step.given]
        return finished(step.run(given, [scale], self.context, lambda context: None))


@pytest.fixture
def steps(context: Context) -> Steps:
    return Steps(context)


@pytest.fixture
def step(steps: Steps) -> RepeatedStep:
    return steps.joined()


@pytest.mark.parametrize("scale", [1.5, -0.25, 0.0, float("inf")])
def test_the_gradients_have_the_bits_of_calls_and_backward(steps: Steps, step: RepeatedStep, scale: float) -> None:
    expected = steps.ordinary(scale)
    numbers, held = steps.context.nodes.next, steps.context.account.bytes
    ran = steps.run(step, scale)
    assert ran is not None
    assert ran.done == 0
    assert steps.context.nodes.next == numbers + 5
    assert steps.taken() == expected
    assert steps.context.account.bytes == held


def test_other_values_give_their_own_gradients(steps: Steps, step: RepeatedStep) -> None:
    for leaf in steps.leaves:
        leaf.array *= -0.5
    expected = steps.ordinary(1.5)
    assert steps.run(step) is not None
    assert steps.taken() == expected


def _node_hook(leaf: Tensor) -> Any:
    node = edge_of(leaf)[0]  # type: ignore[index]
    hooks_of(node).add(CallbackKind.BEFORE, ExternalCallback(1, []), 0)
    return node  # the node lives as long as this


CHANGES: dict[str, Callable[[Steps], Any]] = {
    "a gradient that is a view": lambda steps: setattr(steps.leaves[0], "grad", tensor(np.ones((3, 3)))[:]),
    "a gradient of another dtype": lambda steps: setattr(steps.leaves[0], "grad", tensor(np.ones((3, 3), np.float32))),
    "a hook on a leaf": lambda steps: hook_tensor(steps.leaves[1], ExternalCallback(1, [])),
    "a hook on a leaf's node": lambda steps: _node_hook(steps.leaves[1]),
    "no gradient wanted": lambda steps: setattr(steps.leaves[2], "requires_grad", False),
    "another layout": lambda steps: setattr(steps.leaves[0], "array", np.asfortranarray(steps.leaves[0].array)),
    "another dtype": lambda steps: setattr(steps.leaves[0], "array", steps.leaves[0].array.astype(np.float32)),
    "another shape": lambda steps: setattr(steps.leaves[0], "array", steps.leaves[0].array[:2]),
    "one leaf twice": lambda steps: steps.leaves.__setitem__(1, steps.leaves[0]),
    "a recorded result": lambda steps: steps.leaves.__setitem__(0, steps.leaves[0] * 1.0),
    "a view": lambda steps: steps.leaves.__setitem__(0, steps.leaves[0][:]),
    "too little memory": lambda steps: setattr(steps.context.account, "limit", steps.context.account.bytes + 100),
    "too few operations": lambda steps: setattr(steps.context.account, "operations", -1.0),
    "a session that waits": lambda steps: setattr(steps.context.account, "pressed", True),
    "an open level": lambda steps: setattr(steps.context.duals, "active", True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_unusual_is_left_to_calls_and_backward(steps: Steps, step: RepeatedStep, change: str) -> None:
    kept = CHANGES[change](steps)
    grads = [leaf.grad for leaf in steps.leaves]
    numbers = steps.context.nodes.next
    assert steps.run(step) is None
    assert [leaf.grad for leaf in steps.leaves] == grads
    assert steps.context.nodes.next == numbers
    del kept


def test_a_forward_that_raises_changes_nothing(steps: Steps, step: RepeatedStep) -> None:
    lists = step._lists(())
    assert lists is not None
    both: list[list[Any]] = [lists.calls[-1][1][0], lists.passed[-1][0]]
    for where in both:
        entry = where[-1]

        def fail(*args: Any) -> Any:
            raise MemoryError

        where[-1] = (fail, *entry[1:])
        numbers = steps.context.nodes.next
        assert steps.run(step) is None
        assert all(leaf.grad is None for leaf in steps.leaves)
        assert steps.context.nodes.next == numbers
        where[-1] = entry
    assert steps.run(step) is not None


def test_a_result_of_another_layout_is_refused(steps: Steps, step: RepeatedStep) -> None:
    lists = step._lists(())
    assert lists is not None
    parts = lists.calls[0][1][0]
    forward, *rest = parts[0]
    parts[0] = (lambda *args: np.asfortranarray(forward(*args)), *rest)  # type: ignore[assignment]
    assert steps.run(step) is None


def test_a_pass_that_is_not_noted_is_noted_with_the_list(steps: Steps) -> None:
    steps.tensors(1.5)
    for _ in range(50):  # on a busy machine, a pass or the list may take too long to be noted
        passes = PassMemo()
        made = finished(make(steps.calls(), [], steps.tensors(1.5), [1.5], 7, passes))
        if made is not None:
            break
    assert made is not None
    assert passes.run(steps.tensors(1.5)[7]) is not None
    found = steps.taken()
    assert steps.run(made) is not None
    assert steps.taken() == found


def test_no_list_is_made_of_calls_that_give_other_bits(steps: Steps) -> None:
    steps.joined()
    tensors = steps.tensors(1.5)
    assert finished(make(steps.calls(), [], tensors, [1.25], 7, steps.passes)) is None


def test_contexts_are_entered_in_the_order_of_the_calls(steps: Steps, step: RepeatedStep) -> None:
    entered: list[Context] = []
    given = [steps.leaves[place] for place, _, _ in step.given]
    assert finished(step.run(given, [1.5], steps.context, entered.append)) is not None
    assert entered == [steps.context, steps.context]
    assert CURRENT.get() is steps.context


class Impatient(Interrupt):
    """Asks for a pause after each forward; stops at the `last` check, if any."""

    def __init__(self, last: int = 0) -> None:
        super().__init__()
        self.at, self.last, self.checks = 0.0, last, 0

    def stopping(self) -> bool:
        self.checks += 1
        return self.checks == self.last


def test_a_step_pauses_between_its_forwards_and_computes_the_same(steps: Steps, step: RepeatedStep) -> None:
    steps.run(step)
    expected = steps.taken()
    steps.context = replace(steps.context, interrupt=Impatient())
    entered: list[Context] = []
    given = [steps.leaves[place] for place, _, _ in step.given]
    running = step.run(given, [1.5], steps.context, entered.append)
    pauses = sum(1 for _ in running)
    assert pauses >= len(Steps.PLAN)
    assert len(entered) >= pauses  # another session may have activated another context
    assert steps.taken() == expected


def test_a_step_that_is_cancelled_in_a_pause_changes_nothing(steps: Steps, step: RepeatedStep) -> None:
    for last in range(1, 6):
        steps.context = replace(steps.context, interrupt=Impatient(last))
        nodes = steps.context.nodes.next
        assert steps.run(step) is None
        assert all(leaf.grad is None for leaf in steps.leaves)
        assert steps.context.nodes.next == nodes


def test_a_pass_is_noted_for_a_step_in_pauses(steps: Steps) -> None:
    for _ in range(4):
        steps.ordinary(1.5)
    with activate(replace(steps.context, interrupt=Impatient())):
        pauses: list[None] = []
        made = finished(counted(make(steps.calls(), [], steps.tensors(1.5), [1.5], 7, steps.passes), pauses))
    assert made is not None
    assert len(pauses) >= len(Steps.PLAN)


@pytest.mark.parametrize("last", range(1, 6))
def test_a_step_that_is_cancelled_while_its_pass_is_noted_is_joined_later(steps: Steps, last: int) -> None:
    for _ in range(4):
        steps.ordinary(1.5)
    with activate(replace(steps.context, interrupt=Impatient(last))):
        assert finished(make(steps.calls(), [], steps.tensors(1.5), [1.5], 7, steps.passes)) is None
    assert steps.joined() is not None

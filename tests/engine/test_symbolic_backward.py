"""A backward of a plan is traced by the traversal that also computes it, so both add gradients in the same order."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gradwire_engine import Context, Tensor, activate, backward, call, gradients, retain_grad, tensor
from gradwire_engine.autograd.backward_pass import BackwardPass
from gradwire_engine.compile.plan import Plan
from gradwire_engine.compile.symbolic_backward import SymbolicBackward
from gradwire_engine.compile.tracing import Tracer
from gradwire_engine.core.context import CURRENT
from gradwire_engine.graph.graph import Node
from tests.steps import through

Program = Callable[[list[Tensor]], list[Tensor]]
LEAVES = 3


def tangled(seed: int, last: Callable[[Tensor, list[Tensor]], list[Tensor]]) -> Program:
    """A program whose leaves and results are used many times, so a sum's value depends on the order of its terms."""

    def run(leaves: list[Tensor]) -> list[Tensor]:
        rng = random.Random(seed)
        made = list(leaves)
        for _ in range(25):
            kind = rng.choice(["mul", "add", "sin", "exp", "stack"])
            one, other = rng.choice(made), rng.choice(made)
            if kind in ("sin", "exp"):
                made.append(call("sin", [call(kind, [call("sin", [one])])]))
            elif kind == "stack":
                made.append(call("sum", [call("stack", [[one, other, one]]), 0]))
            else:
                made.append(call(kind, [one, other]))
        total = made[LEAVES]
        for each in made[LEAVES + 1 :]:
            total = total + each
        return last(call("sum", [total]), leaves)

    return run


def by_backward(total: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    backward([total])
    return []


def by_gradients(total: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    return [found for found in gradients([total], leaves, allow_unused=True)[0] if found is not None]


def fresh(seed: int) -> list[Tensor]:
    """Leaves of very different values."""
    rng = np.random.default_rng(seed)
    return [
        tensor((rng.standard_normal(64) * 10.0 ** rng.integers(-3, 3, 64)).astype(np.float32), True)
        for _ in range(LEAVES)
    ]


def bits(tensors: list[Any]) -> list[bytes]:
    return [b"" if each is None else each.array.tobytes() for each in tensors]


def planned(program: Program) -> Plan:
    given = fresh(0)
    tracer = Tracer(given)
    with activate(replace(CURRENT.get(), tracer=tracer)):
        outputs = program(given)
    assert tracer.failed is None
    return Plan(tracer, outputs, 0, CURRENT.get().account)


@pytest.mark.parametrize("last", [by_backward, by_gradients])
@pytest.mark.parametrize("seed", range(5))
def test_a_plan_adds_gradients_in_the_order_of_a_backward(
    seed: int, last: Callable[[Tensor, list[Tensor]], list[Tensor]]
) -> None:
    program = tangled(seed, last)
    plan = planned(program)
    for values in (1, 2):
        leaves, others = fresh(values), fresh(values)
        found = through(plan.run(leaves, [], CURRENT.get()))
        expected = program(others)
        assert bits(found) == bits(expected)
        assert bits([leaf.grad for leaf in leaves]) == bits([leaf.grad for leaf in others])
        assert any(bits(expected)) or any(bits([leaf.grad for leaf in leaves]))


def test_a_symbolic_pass_visits_nodes_and_delivers_as_the_pass_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes, targets and retained gradients, in the same order."""
    visited: dict[bool, list[Node]] = {False: [], True: []}
    propagate, deliver = BackwardPass._propagate, BackwardPass.deliver
    seen: list[tuple[list[Tensor], list[Tensor]]] = []

    def recorded(run: BackwardPass, node: Node, arrived: list[Any], saved: Any = None) -> None:
        visited[run.symbolic].append(node)
        propagate(run, node, arrived, saved)

    def comparing(run: BackwardPass) -> list[Tensor]:
        assert isinstance(run.observer, SymbolicBackward)
        expected = [target for target, _ in run.observer._arriving]
        run.observer._arriving = iter([])
        seen.append((expected, [target for target, _ in run.deliveries]))
        run.observer = None
        return deliver(run)

    monkeypatch.setattr(BackwardPass, "_propagate", recorded)
    monkeypatch.setattr(BackwardPass, "deliver", comparing)
    leaves = fresh(0)
    with activate(replace(Context(), tracer=Tracer(leaves))):
        inner = call("mul", [leaves[0], leaves[1]])
        retain_grad(inner)
        few, rest = call("split", [call("cat", [[inner, leaves[2]]]), 64])
        backward([call("sum", [call("mul", [few, rest])])])
    assert visited[True] == visited[False]
    assert len(visited[True]) > 4
    ((expected, found),) = seen
    assert expected == found
    assert len(found) == LEAVES + 1

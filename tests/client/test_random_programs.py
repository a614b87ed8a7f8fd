"""Random programs: views, in-place changes, modes and backwards in any order, with torch and with gradwire.

Each step succeeds with both or is refused by both. At the end all tensors and gradients agree. Behaviour that PyTorch
leaves undefined (an operand that overlaps the written tensor) is not drawn. One case differs by intent: a view of a
plain tensor whose base got a history later. It may be changed here; PyTorch treats it as a leaf until its grad_fn is
read. About one seed in a hundred contains the case, but none of these seeds.
"""

import random
from typing import Any

import pytest

import gradwire
from tests.client.oracle import alike, torch

STEPS = 20


class Machine:
    """Runs the steps on a pool of tensors. A step is four numbers from 0 to 1: what, on which two, and a choice."""

    def __init__(self, module: Any) -> None:
        self.module = module
        x = module.tensor([[0.5, 1.0, 1.5], [0.25, -0.5, 2.0]], dtype=module.float64, requires_grad=True)
        w = module.tensor([1.5, 0.5, -0.75], dtype=module.float64, requires_grad=True)
        self.leaves = [x, w]
        self.pool = [x, w, x * 1.5, module.ones(2, 3, dtype=module.float64), module.zeros(3, dtype=module.float64)]
        self.log: list[str] = []
        self.failed_backward = False

    def step(self, what: float, first: float, second: float, choice: float) -> None:
        p, q = (self.pool[int(each * len(self.pool))] for each in (first, second))
        kinds = (self.view, self.view, self.change, self.change, self.change, self.compute, self.quiet, self.differ)
        kept = len(self.pool)
        try:
            kinds[int(what * len(kinds))](p, q, choice)
            self.settle()
            self.log.append("done")
        except (RuntimeError, IndexError) as error:
            self.failed_backward |= "inplace operation:" in str(error) or "second time" in str(error)
            del self.pool[kept:]
            self.log.append("refused")

    def settle(self) -> None:
        """The places below are run with all kinds of tensors, so what was deferred may be refused: now, not later."""
        if self.module is gradwire:
            gradwire.sync()

    def view(self, p: Any, q: Any, choice: float) -> None:
        ways = (
            lambda: p[0],
            lambda: p[1:],
            lambda: p.t(),
            lambda: p.reshape(-1),
            lambda: p.unsqueeze(0),
            lambda: p.unbind(0)[0],
            lambda: p.view(p.shape),
            lambda: p.detach(),
        )
        self.pool.append(ways[int(choice * len(ways))]())

    def change(self, p: Any, q: Any, choice: float) -> None:
        other = q.clone()
        ways = (
            lambda: p.mul_(other),
            lambda: p.add_(other),
            lambda: p.mul_(1.25),
            lambda: p.sin_(),
            lambda: p.copy_(other),
            lambda: p.zero_(),
            lambda: p.__setitem__(0, other[0]),
            lambda: p.__setitem__(p > 0.5, 0.25),
            lambda: p[-1].add_(1.0),
            lambda: p.exp_(),
        )
        ways[int(choice * len(ways))]()

    def compute(self, p: Any, q: Any, choice: float) -> None:
        ways = (lambda: p * q, lambda: p + q, lambda: p.sin(), lambda: p.exp())
        self.pool.append(ways[int(choice * len(ways))]())

    def quiet(self, p: Any, q: Any, choice: float) -> None:
        with self.module.no_grad():
            if choice < 0.4:
                p.mul_(1.5)
            elif choice < 0.6:
                self.pool.append(p[0])
            elif choice < 0.8:
                self.pool.append(p * 2)
        if choice >= 0.8 and p.requires_grad:
            p.retain_grad()

    def differ(self, p: Any, q: Any, choice: float) -> None:
        value = (p * p).sum()
        if choice < 0.6:
            value.backward(retain_graph=choice < 0.5)
        else:
            found = self.module.autograd.grad(value, self.leaves, create_graph=choice < 0.8, allow_unused=True)
            self.pool.extend(each * 1 for each in found if each is not None)

    def finish(self) -> list[Any]:
        total = self.leaves[1].sum()
        for each in self.pool:
            try:
                added = total + (each * each).sum()
                self.settle()
                total = added
            except RuntimeError:
                self.log.append("left behind")
        try:
            total.backward()
            self.settle()
        except RuntimeError:
            self.failed_backward = True
        return [self.state(each) for each in self.pool]

    def state(self, tensor: Any) -> Any:
        try:
            name = None if tensor.grad_fn is None else tensor.grad_fn.name()
        except RuntimeError:
            return tensor.tolist(), "left behind"
        grad = tensor.grad if tensor.is_leaf or tensor.retains_grad else None
        return tensor.tolist(), tensor.requires_grad, name, None if grad is None else grad.tolist()


def run(module: Any, seed: int) -> tuple[list[str], list[Any], bool]:
    drawn = random.Random(seed)
    machine = Machine(module)
    for _ in range(STEPS):
        machine.step(drawn.random(), drawn.random(), drawn.random(), drawn.random())
    states = machine.finish()
    return machine.log, states, machine.failed_backward


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(40))
def test_a_random_program_does_what_it_does_with_pytorch(session: gradwire.Session, seed: int) -> None:
    steps, expected, failed = run(torch, seed)
    found_steps, found, found_failed = run(gradwire, seed)
    assert found_steps == steps
    assert found_failed == failed
    if failed:  # then PyTorch's leaves may hold some of the gradients, ours none
        expected, found = ([each[:3] for each in both] for both in (expected, found))
    assert alike([list(each) for each in found], [list(each) for each in expected])

"""A hook that assigns `.grad` replaces what the backward has brought there, as with PyTorch."""

import random
from typing import Any

import pytest

from tests.client.oracle import agree

pytestmark = pytest.mark.usefixtures("deferring")


def _assigning(torch: Any, kind: str) -> Any:
    """A leaf whose gradient arrived before the hook that assigns it, and the leaf that the hook reads."""
    read, leaf = (torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True) for _ in range(2))
    value = {"none": lambda: None, "number": lambda: torch.full_like(leaf, 7.0), "alias": lambda: read.detach()}[kind]

    def assign(gradient: Any) -> None:
        leaf.grad = value()

    y = read * 3
    y.register_hook(assign)
    (y * leaf).sum().backward()
    return read.detach(), read.grad, leaf.grad


@pytest.mark.parametrize("kind", ["none", "number", "alias"])
def test_the_assigned_gradient_stays_and_no_memory_behind_it_changes(kind: str) -> None:
    agree(lambda torch: _assigning(torch, kind))


def _drawn(torch: Any, seed: int) -> Any:
    """A product of leaves in a drawn order, with hooks at drawn places that assign or clear drawn gradients."""
    draw = random.Random(seed)
    leaves = [
        torch.tensor([draw.gauss(0, 1) for _ in range(3)], dtype=torch.float64, requires_grad=True)
        for _ in range(draw.randint(2, 4))
    ]
    places, y = [*leaves], torch.ones(3, dtype=torch.float64)
    for leaf in draw.sample(leaves, len(leaves)):
        if draw.random() < 0.5:
            leaf.grad = torch.full((3,), draw.random(), dtype=torch.float64)
        y = y * leaf
        places.append(y)
    places[-1].retain_grad()

    def hook(leaf: Any, kind: int) -> Any:
        def assign(gradient: Any) -> None:
            if kind == 0:
                leaf.grad = None
            elif kind == 1:
                leaf.grad = torch.full((3,), 7.0, dtype=torch.float64)
            else:
                torch.optim.SGD(leaves, lr=0.1).zero_grad()

        return assign

    for _ in range(draw.randint(1, 3)):
        draw.choice(places).register_hook(hook(draw.choice(leaves), draw.randrange(3)))
    for _ in range(draw.randint(1, 3)):
        y.sum().backward(retain_graph=True)
    return [leaf.grad for leaf in leaves], y.grad


@pytest.mark.parametrize("seed", range(12))
def test_drawn_hooks_that_assign_and_clear_leave_pytorchs_gradients(seed: int) -> None:
    agree(lambda torch: _drawn(torch, seed))

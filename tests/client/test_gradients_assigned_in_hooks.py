"""Hooks read what the backward has brought to `.grad` so far, and may assign, change or clear it, as with PyTorch."""

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


def _reading(torch: Any, seed: int) -> Any:
    """A drawn graph with drawn hooks. They note all gradients, and assign and change some by others; one may raise."""
    draw, seen = random.Random(seed), []
    leaves = [
        torch.tensor([draw.gauss(0, 1) for _ in range(2)], dtype=torch.float64, requires_grad=True)
        for _ in range(draw.randint(2, 6))
    ]
    places = [*leaves]
    for _ in range(draw.randint(2, 8)):
        one, other = draw.choice(places), draw.choice(places)
        several = [draw.choice(places) for _ in range(draw.randint(2, 6))]
        made = [lambda: one * other, lambda: one + other, lambda: (torch.stack(several) * 1.5).sum(0)]  # noqa: B023
        places.append(draw.choice(made)())
    inner = [each for each in places[len(leaves) :] if draw.random() < 0.3]
    for each in inner:
        each.retain_grad()

    def act(kind: int, one: Any, other: Any) -> None:
        seen.append([None if each.grad is None else each.grad.tolist() for each in (*leaves, *inner)])
        if kind == 0:
            other.grad = None
        elif kind == 9:
            raise KeyError
        elif one.grad is not None:
            if kind == 1:
                one.grad = one.grad * 0.5
            elif kind == 2:
                other.grad = one.grad.clone()
            elif kind == 3:
                one.grad.mul_(3)

    for _ in range(draw.randint(2, 6)):
        what = draw.choice([0, 1, 1, 2, 3, 4, 9]), draw.choice(leaves), draw.choice(leaves)
        place, leaf, kind = draw.choice(places), draw.choice(leaves), draw.randrange(4)
        if kind == 0 or (place.is_leaf and kind > 1):
            place.register_hook(lambda _, what=what: act(*what))
        elif kind == 1:
            leaf.register_post_accumulate_grad_hook(lambda _, what=what: act(*what))
        elif kind == 2:
            place.grad_fn.register_prehook(lambda _, what=what: act(*what))
        else:
            place.grad_fn.register_hook(lambda *_, what=what: act(*what))
    options: dict[str, Any] = {"inputs": draw.sample(leaves, 2)} if draw.random() < 0.2 else {}
    for _ in range(2):
        try:
            places[-1].sum().backward(retain_graph=True, **options)
        except KeyError:
            seen.append("raised")
    return seen, [each.grad for each in (*leaves, *inner)]


@pytest.mark.parametrize("seed", range(30))
def test_drawn_hooks_see_what_pytorchs_see_and_leave_its_gradients(seed: int) -> None:
    agree(lambda torch: _reading(torch, seed))


@pytest.mark.parametrize("seed", range(12))
def test_drawn_hooks_that_assign_and_clear_leave_pytorchs_gradients(seed: int) -> None:
    agree(lambda torch: _drawn(torch, seed))

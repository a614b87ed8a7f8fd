"""A leaf takes over a gradient's array that has no other holder, and copies any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.autograd import buffer_reuse

Array = Any


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of the gradients that were copied."""
    shapes: list[tuple[int, ...]] = []
    admit = buffer_reuse.admit

    def counting(shape: tuple[int, ...], *more: Any) -> None:
        shapes.append(shape)
        admit(shape, *more)

    monkeypatch.setattr(buffer_reuse, "admit", counting)
    return shapes


def leaf(*shape: int) -> engine.Tensor:
    return engine.tensor(np.ones(shape, np.float32), True)


def test_leaves_take_over_what_formulas_return(copied: list[tuple[int, ...]]) -> None:
    x, weight, bias = leaf(4, 3), leaf(3, 2), leaf(4, 2)
    y = engine.call("add", [engine.call("relu", [engine.call("matmul", [x, weight])]), engine.call("exp", [bias])])
    engine.backward([engine.call("sum", [y])])
    assert not copied
    for each in (x, weight, bias):
        assert each.grad is not None
        assert each.grad.array.flags.writeable
    assert not np.may_share_memory(bias.grad.array, bias.array)


def test_a_reshaped_gradient_is_taken_over(copied: list[tuple[int, ...]]) -> None:
    x = leaf(4, 3)
    engine.backward([engine.call("sum", [engine.call("square", [engine.call("reshape", [x, [12]])])])])
    assert not copied


def test_grad_returns_what_a_formula_returned(copied: list[tuple[int, ...]]) -> None:
    x = leaf(4, 3)
    (found,), _ = engine.gradients([engine.call("sum", [engine.call("square", [x])])], [x])
    assert found is not None
    assert not copied


def test_leaves_that_share_a_gradient_copy_it(copied: list[tuple[int, ...]]) -> None:
    one, other = leaf(2), leaf(2)
    total = engine.call("add", [one, other])
    engine.backward([engine.call("sum", [engine.call("square", [total])])])
    assert copied
    assert one.grad is not None
    assert other.grad is not None
    assert not np.may_share_memory(one.grad.array, other.grad.array)


@pytest.mark.parametrize(
    ("name", "more"), [("sum_to_size", [[1, 6]]), ("fold", [[1, 1], [1, 1]])], ids=["sum_to_size", "fold"]
)
def test_what_shows_a_callers_gradient_by_strides_is_copied(name: str, more: list[Any]) -> None:
    x = leaf(6)
    shape = [1, 6] if name == "sum_to_size" else [1, 6, 1]
    start = engine.call("reshape", [engine.call("reshape", [x, [1, *shape]]), shape])
    y = engine.call(name, [start, *more])
    given = engine.tensor(np.ones(y.shape, np.float32))
    engine.backward([y], [given])
    assert x.grad is not None
    assert not np.may_share_memory(x.grad.array, given.array)


def test_a_reshaped_array_that_shows_anothers_memory_is_copied(copied: list[tuple[int, ...]]) -> None:
    alive = np.ones((2, 3), np.float32)
    waiting = [np.lib.stride_tricks.as_strided(alive, (2, 3), alive.strides).reshape(6)]
    taken = buffer_reuse.own(waiting.pop())
    assert copied == [(6,)]
    assert not np.may_share_memory(taken.array, alive)


def test_a_root_gradient_of_the_caller_is_copied() -> None:
    given, x = np.ones(2, np.float32), leaf(2)
    engine.backward([engine.call("add", [x, 1.0])], [engine.tensor(given)])
    assert x.grad is not None
    assert not np.may_share_memory(x.grad.array, given)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.ones(8)[:4],  # a part of a larger array
        lambda: np.ones((2, 3)).T,
        lambda: np.broadcast_to(np.ones(()), (3,)),
        lambda: np.ones(()),
    ],
    ids=["part", "transposed", "stretched", "0-d"],
)
def test_an_array_of_another_layout_is_copied(make: Callable[[], Array], copied: list[tuple[int, ...]]) -> None:
    waiting = [make()]
    taken = buffer_reuse.own(waiting.pop())
    assert copied == [taken.shape]
    assert taken.array.flags.c_contiguous
    assert taken.array.flags.writeable

"""A trick is really off on the side without it, and both sides compute the same."""

import itertools

import numpy as np
import pytest

pytest.importorskip("pytest_benchmark")

import gradwire_engine as engine
from benchmarks.measure import Result
from benchmarks.tricks import alternate, gradients_copied, keywords_in_a_dict
from gradwire_engine.autograd import buffer_reuse
from gradwire_engine.op.declaration import OPS


def test_the_sides_take_turns_and_the_ratio_is_that_of_the_time_without_it() -> None:
    order: list[str] = []
    ticks = itertools.accumulate(itertools.cycle([0, 3, 0, 2]))  # with the trick 2, without it 3, then the reverse
    result = alternate(
        Result("tricks", "row", "without it"),
        lambda: order.append("with"),
        turns=1,
        other=lambda: order.append("without"),
        clock=lambda: float(next(ticks)),
    )
    assert order == ["without"] * 2 + ["with"] * 4 + ["without"] * 2
    assert result.ratios == [2 / 3]


def test_keywords_go_by_a_dict_within_only() -> None:
    x, forward = engine.tensor(np.arange(3.0)), OPS["add"].forward
    with keywords_in_a_dict():
        assert OPS["add"].forward is not forward
        other = engine.call("add", [x, x], {"alpha": 2})
    assert OPS["add"].forward is forward
    np.testing.assert_array_equal(engine.call("add", [x, x], {"alpha": 2}).array, other.array)


def test_gradients_are_copied_within_only() -> None:
    def is_taken_over() -> bool:
        waiting = [np.ones(3)]
        before = id(waiting[0])
        held = [buffer_reuse.own(waiting.pop())]
        return id(held[0].array) == before

    with gradients_copied():
        held = np.ones(3)
        assert buffer_reuse.own(held).array is not held
    assert is_taken_over()

"""A few random programs by all four ways; `make random-plans` runs many."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from tests.engine.compile import drawn_plans

pytest.importorskip("llvmlite")
WITH_PYTORCH = importlib.util.find_spec("torch") is not None


@pytest.mark.parametrize("seed", range(12))
def test_a_random_program_computes_the_same_by_all_ways(seed: int) -> None:
    assert drawn_plans.differences(seed, WITH_PYTORCH) == []


def test_a_wrong_value_is_a_difference() -> None:
    right = [np.arange(4.0), np.array([np.nan, 1.0])]
    wrong = [np.array([0.0, 1.0, 2.0, 3.1]), np.array([0.0, 1.0])]
    found = drawn_plans._compared("plan", wrong, right, 1e-9)
    assert [words.split(":")[0] for words in found] == ["plan, result 0", "plan, result 1"]
    assert drawn_plans._compared("plan", right, right, 1e-9) == []

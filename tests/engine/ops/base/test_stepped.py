"""The digits of ranges with steps that are no whole numbers are those of PyTorch on a CPU with AVX2."""

import random

import numpy as np
import pytest

from gradwire_engine.core import dtypes
from gradwire_engine.ops.base.stepped import stepped

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")

COUNTS = [1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 257, 1000]


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX2", reason="PyTorch's blocks depend on the CPU")
@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_each_digit_is_that_of_pytorch(name: str) -> None:
    draw = random.Random(name)
    for _ in range(150):
        first = draw.choice([draw.uniform(-5, 5), round(draw.uniform(-2, 2), 1), 0.0, 1e-300])
        step = draw.choice([-1, 1]) * draw.choice([draw.uniform(0.001, 2), 0.1, 0.01, 1 / 3])
        count = draw.choice(COUNTS)
        theirs = torch.arange(first, first + step * (count - 0.5), step, dtype=getattr(torch, name))
        ours = stepped(first, step, len(theirs), dtypes.BY_NAME[name])
        assert ours.astype(np.float64).tolist() == theirs.double().tolist(), (first, step, count)


def test_a_first_value_far_below_the_last_digit_decides_between_two_values() -> None:
    step = 0.31587004039544836  # three times it lies between two values
    found = [stepped(first, step, 4, dtypes.float64)[3] for first in (-5e-324, 0.0, 5e-324)]
    assert found[0] < found[2]
    assert found[1] in (found[0], found[2])


def test_a_step_too_large_to_be_split_is_multiplied_plainly() -> None:
    assert stepped(0.5, 1e305, 3, dtypes.float64).tolist() == [0.5, 1e305, 2e305]

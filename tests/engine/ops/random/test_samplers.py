"""The parts of random draws: order of memory, normal pairs, permutations, and both samplers' laws."""

import numpy as np
import pytest

from gradwire_engine.core import dtypes
from gradwire_engine.core.mt19937 import Twister
from gradwire_engine.ops.random import box_muller, layout, shuffle
from gradwire_engine.ops.random.numpy_sampler import NumpySampler
from gradwire_engine.ops.random.pytorch_sampler import PytorchSampler


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_elements_are_drawn_in_the_order_of_memory(order: tuple[int, ...]) -> None:
    like = np.empty((2, 3, 4), np.float32).transpose(order)
    drawn = layout.in_memory_order(layout.dense(like), np.arange)
    assert drawn.shape == like.shape
    assert drawn.ravel(order="K").tolist() == list(range(24))
    if order != (0, 1, 2):
        assert np.argsort(drawn.strides).tolist() == np.argsort(like.strides).tolist()


def test_uniform_pairs_become_normal_pairs_by_the_formula_of_box_and_muller() -> None:
    uniform = np.random.default_rng(1).random((5, 16))
    radius = np.sqrt(-2 * np.log1p(-uniform[:, :8]))
    angle = 2 * np.pi * uniform[:, 8:]
    wanted = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], 1)
    np.testing.assert_allclose(np.asarray(box_muller.doubles(uniform)).reshape(5, 16), wanted, rtol=1e-12, atol=1e-12)
    single = np.asarray(box_muller.singles(uniform.astype(np.float32))).reshape(5, 16)
    np.testing.assert_allclose(single, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 2, 200, 201, 5000])
def test_a_long_permutation_is_that_of_the_loop(n: int) -> None:
    made = shuffle.permutation(Twister(4), n)
    words, looped = Twister(4).words(max(n - 1, 0)), list(range(n))
    for step, word in enumerate(words.tolist()):
        other = step + word % (n - step)
        looped[step], looped[other] = looped[other], looped[step]
    assert made.tolist() == looped


@pytest.mark.parametrize("made", ["numpy", "pytorch"])
def test_both_samplers_draw_from_the_same_distributions(made: str) -> None:
    sampler = NumpySampler(np, np.random.default_rng(2)) if made == "numpy" else PytorchSampler(Twister(2))
    shape = (200_000,)
    uniform = sampler.uniform(shape, dtypes.float32, -1.0, 3.0)
    assert (uniform.min() >= -1, uniform.max() < 3) == (True, True)
    assert uniform.mean() == pytest.approx(1.0, abs=0.02)
    normal = sampler.normal(shape, dtypes.float64, 5.0, 2.0)
    assert (normal.mean(), normal.std()) == pytest.approx((5.0, 2.0), abs=0.03)
    whole = sampler.integers(shape, -3, 4, dtypes.int64)
    assert np.bincount(whole + 3) / len(whole) == pytest.approx(np.full(7, 1 / 7), abs=0.01)
    assert sampler.exponential(shape, dtypes.float64, 4.0).mean() == pytest.approx(0.25, abs=0.01)
    assert sampler.chance(shape, 0.3).mean() == pytest.approx(0.3, abs=0.01)
    assert sorted(sampler.permutation(1000).tolist()) == list(range(1000))

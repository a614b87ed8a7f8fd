"""What is drawn at random: from the session's generator, in range, with the moments promised, and outside the graph."""

from __future__ import annotations

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine import Account, Context, EngineError, Generator, activate
from gradwire_engine.core import dtypes


def _seeded(seed: int = 0) -> Context:
    return Context(generator=Generator(seed))


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("rand", [(3, 4)]),
        ("randn", [(3, 4)]),
        ("randint", [0, 100, (20,)]),
        ("randperm", [20]),
        ("normal", [1.0, 2.0, (20,)]),
    ],
)
def test_same_seed_draws_the_same_numbers(op: str, args: list[object]) -> None:
    """And another seed others."""
    drawn = []
    for seed in (1, 1, 2):
        with activate(_seeded(seed)):
            drawn.append(engine.call(op, args).array)
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_numbers_lie_in_the_half_open_unit_interval(name: str) -> None:
    """In every floating dtype, with the mean and variance of the uniform distribution."""
    with activate(_seeded()):
        drawn = engine.call("rand", [(20000,)], {"dtype": dtypes.BY_NAME[name]})
    values = drawn.array.astype(np.float64)
    assert drawn.dtype == dtypes.BY_NAME[name]
    assert values.min() >= 0
    assert values.max() < 1
    assert abs(values.mean() - 0.5) < 0.02
    assert abs(values.var() - 1 / 12) < 0.01


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_normal_numbers_have_mean_0_and_variance_1(name: str) -> None:
    """In every floating and complex dtype."""
    with activate(_seeded()):
        drawn = engine.call("randn", [(20000,)], {"dtype": dtypes.BY_NAME[name]})
    values = drawn.array.astype(np.complex128)
    assert drawn.dtype == dtypes.BY_NAME[name]
    assert abs(values.mean()) < 0.03
    assert abs(np.mean(np.abs(values) ** 2) - 1) < 0.05


def test_randint_covers_low_to_high_without_high() -> None:
    """As int64."""
    drawn = engine.call("randint", [2, 5, (1000,)])
    assert drawn.dtype == dtypes.int64
    assert set(np.unique(drawn.array)) == {2, 3, 4}


def test_randperm_holds_every_number_once() -> None:
    """In an order that is not the sorted one."""
    with activate(_seeded()):
        drawn = engine.call("randperm", [50]).array
    assert sorted(drawn) == list(range(50))
    assert not np.array_equal(drawn, np.arange(50))


def test_like_forms_take_shape_and_dtype() -> None:
    """rand_like, randn_like, randint_like."""
    like = engine.tensor(np.zeros((2, 3)))
    for op, args in (("rand_like", [like]), ("randn_like", [like]), ("randint_like", [like, 0, 9])):
        drawn = engine.call(op, args)
        assert (drawn.shape, drawn.dtype) == ((2, 3), dtypes.float64)


def test_drawn_leaves_require_grad_when_asked() -> None:
    """And have no grad_fn."""
    drawn = engine.call("rand", [(3,)], {"requires_grad": True})
    assert drawn.requires_grad
    assert drawn.is_leaf


def test_bernoulli_draws_ones_with_the_given_chance() -> None:
    """Zero and one for certain, and about p between."""
    chance = np.concatenate([np.zeros(1000), np.ones(1000), np.full(20000, 0.3)]).astype(np.float32)
    with activate(_seeded()):
        drawn = engine.call("bernoulli", [engine.tensor(chance)]).array
        also = engine.call("bernoulli", [engine.tensor(chance)], {"p": 0.3}).array
    assert drawn[:1000].sum() == 0
    assert drawn[1000:2000].sum() == 1000
    assert abs(drawn[2000:].mean() - 0.3) < 0.02
    assert abs(also.mean() - 0.3) < 0.02


def test_normal_takes_means_and_deviations_as_tensors() -> None:
    """Deviation 0 gives the mean itself."""
    mean = engine.tensor(np.arange(4.0))
    drawn = engine.call("normal", [mean, engine.tensor(np.zeros(4))])
    assert np.array_equal(drawn.array, np.arange(4.0))
    assert engine.call("normal", [mean, 1.0]).shape == (4,)


def test_multinomial_without_replacement_draws_each_position_once() -> None:
    """And never one of weight 0."""
    weights = engine.tensor(np.array([[1.0, 2.0, 0.0, 3.0]] * 50))
    drawn = engine.call("multinomial", [weights, 3]).array
    assert drawn.shape == (50, 3)
    assert all(set(row) == {0, 1, 3} for row in drawn)


def test_multinomial_with_replacement_follows_the_weights() -> None:
    """In proportion."""
    with activate(_seeded()):
        drawn = engine.call("multinomial", [engine.tensor(np.array([1.0, 0.0, 3.0])), 20000, True]).array
    counts = np.bincount(drawn, minlength=3) / 20000
    assert counts[1] == 0
    assert abs(counts[2] - 0.75) < 0.02


@pytest.mark.parametrize(("op", "args"), [("uniform_", [1.0, 2.0]), ("normal_", [5.0, 0.1]), ("exponential_", [2.0])])
def test_drawing_in_place_keeps_the_tensor_and_stops_the_gradient(op: str, args: list[float]) -> None:
    """What is overwritten gets a gradient of zeros, as in PyTorch."""
    leaf = engine.tensor(np.ones(1000), True)
    target = engine.call("clone", [leaf])
    with activate(_seeded()):
        assert engine.call(op, [target, *args]) is target
    means = {"uniform_": 1.5, "normal_": 5.0, "exponential_": 0.5}
    assert abs(target.array.mean() - means[op]) < 0.1
    gradients, _ = engine.gradients([engine.call("sum", [target])], [leaf])
    assert gradients[0] is not None
    assert not gradients[0].array.any()


@pytest.mark.parametrize("op", ["zeros", "ones", "empty", "rand", "randn"])
@pytest.mark.parametrize("size", [(2**31, 2**31), (2**62,), (2**40,)])
def test_absurd_sizes_are_refused_before_allocating(op: str, size: tuple[int, ...]) -> None:
    """By the account's limit, or because nothing could address them."""
    with activate(Context(account=Account(limit=1 << 20))), pytest.raises(EngineError) as refused:
        engine.call(op, [size])
    assert refused.value.reason is engine.Reason.MEMORY_LIMIT


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("repeat", [(1 << 30,)]),
        ("contiguous", []),
        ("one_hot", [1 << 40]),
        ("diag_embed", []),
        ("repeat_interleave", [1 << 30]),
    ],
)
def test_ops_that_grow_are_refused_before_allocating(op: str, args: list[object]) -> None:
    """A small tensor cannot be made to fill the server."""
    with activate(Context(account=Account(limit=1 << 20))):
        small = engine.tensor(np.arange(4096, dtype=np.int64))
        target = engine.call("expand", [small, (1 << 30, 4096)]) if op == "contiguous" else small
        with pytest.raises(EngineError) as refused:
            engine.call(op, [target, *args])
    assert refused.value.reason is engine.Reason.MEMORY_LIMIT


@pytest.mark.parametrize("op", ["empty", "empty_like", "new_empty"])
def test_empty_shows_nothing_of_what_was_in_memory(op: str) -> None:
    """Zeros: another session's values must not be readable."""
    like = engine.tensor(np.ones((2, 3), np.float32))
    args = {"empty": [(2, 3)], "empty_like": [like], "new_empty": [like, (2, 3)]}
    made = engine.call(op, args[op])
    assert (made.shape, made.dtype) == ((2, 3), dtypes.float32)
    assert not made.array.any()


@pytest.mark.parametrize(
    ("op", "args", "low", "high", "median"),
    [
        ("random_", (3, 9), 3, 8, 5.5),
        ("cauchy_", (2.0, 0.5), -np.inf, np.inf, 2.0),
        ("log_normal_", (0.5, 0.25), 0, np.inf, np.exp(0.5)),
        ("geometric_", (0.5,), 1, np.inf, 1.5),
        ("exponential_", (2.0,), 0, np.inf, np.log(2) / 2),
        ("bernoulli_", (0.5,), 0, 1, 0.5),
    ],
)
def test_what_is_drawn_in_place_has_the_range_and_median_promised(
    op: str, args: tuple[float, ...], low: float, high: float, median: float
) -> None:
    """And the tensor is the one given."""
    target = engine.tensor(np.zeros(20001))
    with activate(_seeded()):
        assert engine.call(op, [target, *args]) is target
    assert target.array.min() >= low
    assert target.array.max() <= high
    assert 0.45 < (target.array < median).mean() < 0.55


def test_poisson_and_binomial_numbers_have_their_means() -> None:
    """Per element."""
    with activate(_seeded()):
        counts = engine.call("poisson", [engine.tensor(np.full(20000, 3.5))]).array
        hits = engine.call("binomial", [engine.tensor(np.full(20000, 8.0)), engine.tensor(np.full(20000, 0.25))]).array
    assert abs(counts.mean() - 3.5) < 0.1
    assert abs(counts.var() - 3.5) < 0.2
    assert abs(hits.mean() - 2) < 0.1
    assert set(np.unique(hits)) <= set(range(9))


@pytest.mark.parametrize(
    ("op", "args"),
    [("random_", (3, 3)), ("cauchy_", (0.0, 0.0)), ("log_normal_", (0.0, -1.0)), ("geometric_", (1.5,))],
)
def test_impossible_distributions_are_refused_and_change_nothing(op: str, args: tuple[float, ...]) -> None:
    """As PyTorch refuses them."""
    target = engine.tensor(np.ones(3))
    with pytest.raises(EngineError):
        engine.call(op, [target, *args])
    assert (target.array == 1).all()

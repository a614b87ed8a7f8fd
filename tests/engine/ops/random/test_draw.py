"""Random tensors: reproducible from the seed, of the right distribution, dtype and range; bad parameters refused."""

import numpy as np
import pytest

from gradwire_engine import Account, Context, EngineError, Generator, Reason, activate, gradients, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.ops.random import draw
from tests.engine.oracle import Refused, given, integers, normal, refused, torch

MANY = (20000,)
RUN = Reason.RUNTIME
X = normal(3)
REFUSED = [
    refused(draw.rand, Reason.NOT_SUPPORTED, "'Long'", (2,), dtype=dtypes.int64, theirs=torch.rand),
    refused(draw.randn, Reason.NOT_SUPPORTED, "'Bool'", (2,), dtype=dtypes.bool_, theirs=torch.randn),
    refused(draw.rand, RUN, "negative dimension -2", (-2,), theirs=torch.rand),
    refused(draw.randint, RUN, "from=3 >= to=3", 3, 3, (2,), theirs=torch.randint),
    refused(draw.bernoulli, RUN, "p_in", given([1.5]), theirs=torch.bernoulli),
    refused(draw.normal, Reason.ARGUMENT_TYPE, "'size'", 0.0, 1.0),
    refused(draw.normal, RUN, "std >= 0.0", 0.0, -1.0, (2,), theirs=torch.normal),
    refused(draw.multinomial, RUN, "1 or 2 dim", normal(1, 1, 1), 1, theirs=torch.multinomial),
    refused(draw.multinomial, RUN, "n_sample <= 0", given([1.0]), 0, theirs=torch.multinomial),
    refused(draw.multinomial, RUN, "without replacement", given([1.0, 2.0]), 3, theirs=torch.multinomial),
    refused(draw.multinomial, RUN, "`inf`, `nan` or element < 0", given([1.0, -2.0]), 1, theirs=torch.multinomial),
    refused(draw.multinomial, RUN, "sum of probabilities <= 0", given([0.0, 0.0]), 1, theirs=torch.multinomial),
    refused(draw.uniform, RUN, "from=2.0 > to=1.0", X, 2.0, 1.0, theirs=torch.Tensor.uniform_),
    refused(draw.normal_, RUN, "found std -1.0", X, 0.0, -1.0, theirs=torch.Tensor.normal_),
    refused(draw.exponential, RUN, "lambda=0.0", X, 0.0, theirs=torch.Tensor.exponential_),
    refused(draw.random, RUN, "from=5 >= to=5", integers(0, 3, 2), 5, 5, theirs=lambda x, a, b: x.random_(a, b)),
    refused(
        draw.random,
        RUN,
        "out of bounds for unsigned char",
        given([1], "uint8"),
        0,
        300,
        theirs=lambda x, a, b: x.random_(a, b),
    ),
    refused(draw.cauchy, RUN, "sigma=0.0", X, 0.0, 0.0, theirs=torch.Tensor.cauchy_),
    refused(draw.log_normal, RUN, "std=0.0", X, 0.0, 0.0, theirs=torch.Tensor.log_normal_),
    refused(draw.geometric, RUN, "p=1.0", X, 1.0, theirs=torch.Tensor.geometric_),
    refused(draw.poisson, RUN, "non-negative", given([-1.0]), theirs=torch.poisson),
    refused(draw.binomial, RUN, "probabilities within [0, 1]", given([3.0]), given([1.5])),
    refused(draw.poisson, RUN, "non-negative", given([np.nan]), theirs=torch.poisson),
    refused(draw.binomial, RUN, "probabilities within [0, 1]", given([3.0]), given([np.nan])),
    refused(draw.binomial, RUN, "probabilities within [0, 1]", given([np.nan]), given([0.5])),
]


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.fixture(autouse=True)
def _seeded(context: Context):
    with activate(Context(generator=Generator(11))):
        yield


def _like(value: float = 0.0, shape: tuple = MANY):
    return tensor(np.full(shape, value))


DRAWS = {
    "rand": lambda: draw.rand(MANY),
    "randn": lambda: draw.randn(MANY),
    "randint": lambda: draw.randint(0, 9, MANY),
    "randperm": lambda: draw.randperm(100),
    "bernoulli": lambda: draw.bernoulli(_like(0.3)),
    "multinomial": lambda: draw.multinomial(_like(1.0, (50,)), 20),
    "uniform": lambda: draw.uniform(_like()),
    "poisson": lambda: draw.poisson(_like(3.0)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_same_seed_gives_the_same_numbers_and_another_others(name: str) -> None:
    made = []
    for seed in (5, 5, 6):
        with activate(Context(generator=Generator(seed))):
            made.append(DRAWS[name]().array)
    np.testing.assert_array_equal(made[0], made[1])
    assert (made[0] != made[2]).any()


# name: the draw, its mean, its variance
MOMENTS = {
    "rand": (lambda: draw.rand(MANY), 0.5, 1 / 12),
    "randn": (lambda: draw.randn(MANY, dtype=dtypes.float64), 0, 1),
    "half": (lambda: draw.rand(MANY, dtype=dtypes.bfloat16), 0.5, 1 / 12),
    "randint": (lambda: draw.randint(-2, 3, MANY), 0, 2),
    "bernoulli": (lambda: draw.bernoulli(_like(), 0.3), 0.3, 0.21),
    "bernoulli per element": (lambda: draw.bernoulli(_like(0.8)), 0.8, 0.16),
    "normal": (lambda: draw.normal(2.0, 3.0, MANY), 2, 9),
    "normal of tensors": (lambda: draw.normal(_like(1.0), _like(0.5)), 1, 0.25),
    "uniform": (lambda: draw.uniform(_like(), -1.0, 3.0), 1, 16 / 12),
    "exponential": (lambda: draw.exponential(_like(), 2.0), 0.5, 0.25),
    "log_normal": (lambda: draw.log_normal(_like(), 0.0, 0.25), np.exp(0.03125), 0.0689),
    "geometric": (lambda: draw.geometric(_like(), 0.25), 4, 12),
    "poisson": (lambda: draw.poisson(_like(3.5)), 3.5, 3.5),
    "binomial": (lambda: draw.binomial(_like(10.0), _like(0.3)), 3, 2.1),
    "random": (lambda: draw.random(tensor(np.zeros(MANY, np.int64)), 0, 5), 2, 2),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_mean_and_variance_are_those_of_the_distribution(name: str) -> None:
    make, mean, variance = MOMENTS[name]
    found = make().array.astype(np.float64)
    error = np.sqrt(variance / found.size)
    assert abs(found.mean() - mean) < 5 * error
    assert abs(found.var() / variance - 1) < 0.12


def test_the_median_of_cauchy_numbers_is_the_given_one_and_quartiles_lie_sigma_away() -> None:
    low, middle, high = np.quantile(draw.cauchy(_like(), 2.0, 3.0).array, [0.25, 0.5, 0.75])
    assert (low, middle, high) == (pytest.approx(-1, abs=0.3), pytest.approx(2, abs=0.3), pytest.approx(5, abs=0.3))


def test_complex_numbers_have_half_the_variance_in_each_part() -> None:
    found = draw.randn(MANY, dtype=dtypes.complex128).array
    assert found.real.var() == pytest.approx(0.5, rel=0.1)
    assert found.imag.var() == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_numbers_never_reach_one(dtype: str) -> None:
    for algorithm in ("mt19937", "pcg64"):
        with activate(Context(generator=Generator(3, algorithm))):
            found = draw.rand((200000,), dtype=dtypes.BY_NAME[dtype]).array
        _below_one(found, dtype)


def _below_one(found: np.ndarray, dtype: str) -> None:
    assert found.dtype == dtypes.BY_NAME[dtype]
    assert 0 <= found.min() < found.max() < 1


def test_a_permutation_holds_each_number_once() -> None:
    found = draw.randperm(1000).array
    assert sorted(found.tolist()) == list(range(1000))
    assert found.tolist() != list(range(1000))


def test_positions_drawn_without_replacement_differ_and_weights_of_zero_are_never_drawn() -> None:
    weights = tensor(np.tile([0.0, 1.0, 2.0, 3.0], (500, 1)))
    found = draw.multinomial(weights, 3).array
    assert (np.sort(found, 1) == [1, 2, 3]).all()
    shares = np.bincount(draw.multinomial(tensor(np.array([1.0, 0.0, 3.0])), 8000, True).array) / 8000
    np.testing.assert_allclose(shares, [0.25, 0, 0.75], atol=0.03)


@pytest.mark.parametrize("side", ["left", "right"])
def test_long_rows_are_searched_as_short_ones(monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    rng = np.random.default_rng(1)
    edges = np.sort(rng.random((4, 30)), 1)
    drawn = np.concatenate([rng.random((4, 20)), edges[:, ::7]], 1)  # some are equal to an edge
    short = draw._searched(np, edges, drawn, side)
    monkeypatch.setattr(draw, "_COMPARED", 1)
    np.testing.assert_array_equal(draw._searched(np, edges, drawn, side), short)
    np.testing.assert_array_equal(short, [np.searchsorted(e, d, side=side) for e, d in zip(edges, drawn, strict=True)])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64", "uint32", "uint64", "bool", "float32", "float16"])
def test_random_stays_within_what_the_dtype_holds(dtype: str) -> None:
    target = tensor(np.zeros(1000, dtypes.BY_NAME[dtype]))
    found = draw.random(target).array
    assert found.dtype == dtypes.BY_NAME[dtype]
    assert found.min() >= 0
    assert len(np.unique(found)) > (1 if dtype == "bool" else 50)


def test_drawing_in_place_writes_into_the_tensor_and_cuts_the_gradient() -> None:
    leaf = tensor(np.ones(3), True)
    x = leaf * 1.0
    draw.normal_.apply((x, 5.0, 0.1))
    assert (x.array > 3).all()
    (found,), _ = gradients([x], [leaf], [tensor(np.ones(3))])
    assert found.array.tolist() == [0, 0, 0]


def test_likes_take_shape_and_dtype_of_their_input() -> None:
    x = tensor(np.zeros((2, 3), np.float64))
    for made in (draw.rand_like(x), draw.randn_like(x)):
        assert (made.shape, made.dtype) == ((2, 3), dtypes.float64)
    whole = draw.randint_like(x, 0, 5)
    assert (whole.shape, whole.dtype) == ((2, 3), dtypes.float64)
    assert draw.rand((1,), requires_grad=True).requires_grad


def test_a_size_beyond_the_limit_is_refused_before_it_is_drawn() -> None:
    with activate(Context(account=Account(limit=1000))), pytest.raises(EngineError, match="limit of 1000"):
        draw.randn((1000,))

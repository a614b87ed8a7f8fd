"""Random numbers of a seed on the CPU are PyTorch's: each draw, dtype, shape, order of memory and the state after it.

Shapes, strides and parameters are drawn anew in each round. PyTorch's float32 kernels round differently by the CPU's
instructions; where its kernels are not those of AVX2, float32 normal numbers may differ in the last digit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradwire_engine import Context, EngineError, Generator, Reason, activate, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.ops.nn import dropout
from gradwire_engine.ops.random import counts, draw
from tests.engine.oracle import torch

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "bool")
ROUNDS = 4
pytestmark = pytest.mark.filterwarnings("ignore:.*out of bounds:UserWarning")
Draw = Callable[[], Any]
_EXACT = torch.backends.cpu.get_cpu_capability() == "AVX2"


class Case:
    """One round: random shapes, strides and parameters, and the comparison of two draws."""

    def __init__(self, seed: int, dtype: str) -> None:
        self.rng = np.random.default_rng(seed)
        self.name, self.native, self.theirs = dtype, dtypes.BY_NAME[dtype], getattr(torch, dtype)
        self.seed = int(self.rng.integers(1 << 40))

    def shape(self) -> tuple[int, ...]:
        """A shape of up to three dimensions; a single one may be long."""
        count = int(self.rng.integers(0, 4))
        most = 40000 if count == 1 and self.rng.random() < 0.3 else 30
        return tuple(self.rng.integers(0 if self.rng.random() < 0.1 else 1, most, count).tolist())

    def pair(self, low: float = 0.0, high: float = 1.0) -> tuple[Any, Any]:
        """A tensor of PyTorch and an array of the same values and strides: dense, permuted or with gaps."""
        shape = self.shape()
        axes = self.rng.permutation(len(shape)).tolist() if self.rng.random() < 0.6 else list(range(len(shape)))
        gap = 2 if shape and self.rng.random() < 0.4 else 1
        storage = [shape[axis] for axis in axes] + ([gap] if shape else [])
        values = self.rng.uniform(low, high, storage).astype(self.native)
        back = np.argsort(axes).tolist()
        mine = (values[..., 0] if shape else values).transpose(back)
        theirs = torch.from_numpy(values.astype(np.float64)).to(self.theirs)
        return (theirs[..., 0] if shape else theirs).permute(back), mine

    def same(self, mine: Draw, theirs: Draw) -> None:
        """Check that two draws of each are equal, and the states after them."""
        torch.manual_seed(self.seed)
        generator = Generator(self.seed)
        with activate(Context(generator=generator)):
            for _ in range(2):
                wanted, made = theirs(), mine()
                found = np.asarray(getattr(made, "array", made))
                assert found.shape == tuple(wanted.shape)
                expected = wanted.float().numpy() if wanted.dtype == torch.bfloat16 else wanted.numpy()
                self._equal(found.astype(expected.dtype), expected)
                assert generator.get_state() == torch.get_rng_state().numpy().tobytes()

    def _equal(self, found: Any, expected: Any) -> None:
        if _EXACT:
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, 1e-5, 1e-6)


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    number, name = request.param
    return Case(number * 1000 + len(request.node.originalname) + sum(map(ord, name)), name)


def each_case(*names: str) -> Any:
    """Run a test for each dtype, in several rounds."""
    cases = [pytest.param((number, name), id=f"{name}-{number}") for name in names for number in range(ROUNDS)]
    return pytest.mark.parametrize("case", cases, indirect=True)


@each_case(*FLOATS, "complex64", "complex128")
def test_rand_and_randn(case: Case) -> None:
    shape = case.shape()
    case.same(lambda: draw.rand(shape, dtype=case.native), lambda: torch.rand(shape, dtype=case.theirs))
    case.same(lambda: draw.randn(shape, dtype=case.native), lambda: torch.randn(shape, dtype=case.theirs))


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 31, 32, 33, 32768, 32769, 40001])
@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_numbers_at_the_ends_of_blocks(dtype: str, count: int) -> None:
    case = Case(count, dtype)
    case.same(lambda: draw.randn((count,), dtype=case.native), lambda: torch.randn(count, dtype=case.theirs))


@each_case(*FLOATS)
def test_draws_like_a_tensor_take_the_order_of_its_memory(case: Case) -> None:
    theirs, mine = case.pair()
    case.same(lambda: draw.rand_like(tensor(mine)), lambda: torch.rand_like(theirs))
    case.same(lambda: draw.randn_like(tensor(mine)), lambda: torch.randn_like(theirs))
    case.same(lambda: draw.randint_like(tensor(mine), 2, 90), lambda: torch.randint_like(theirs, 2, 90))


@each_case(*FLOATS)
def test_draws_in_place(case: Case) -> None:
    theirs, mine = case.pair()
    low, width = case.rng.normal(), case.rng.random() * 10.0 ** int(case.rng.integers(-4, 3))
    spread = case.rng.random() * 3 + 0.01
    for name, args in {
        "uniform": (low, low + width),
        "normal_": (low, spread),
        "exponential": (spread,),
        "cauchy": (low, spread),
        "log_normal": (low, spread),
        "geometric": (min(spread / 4, 0.9),),
    }.items():
        op = getattr(draw, name)
        write = op.apply if name.endswith("_") else op.in_place
        case.same(
            lambda write=write, args=args: write((tensor(mine), *args)),
            lambda name=name, args=args: getattr(theirs, name.rstrip("_") + "_")(*args),
        )


@each_case(*FLOATS, *INTEGERS)
def test_bernoulli(case: Case) -> None:
    chance = float(case.rng.random())
    theirs, mine = case.pair()
    if case.name in FLOATS:
        case.same(lambda: draw.bernoulli(tensor(mine)), lambda: torch.bernoulli(theirs))
    case.same(lambda: draw.bernoulli(tensor(mine), chance), lambda: torch.bernoulli(theirs, chance))
    case.same(lambda: draw.bernoulli_(tensor(mine), chance), lambda: theirs.bernoulli_(chance))


@each_case(*FLOATS)
def test_dropout(case: Case) -> None:
    chance = float(case.rng.random())
    theirs, mine = case.pair(-1)
    functional = torch.nn.functional
    case.same(lambda: dropout.dropout(tensor(mine), chance), lambda: functional.dropout(theirs, chance))


@each_case("float32", "float64")
def test_other_dropouts_and_rrelu(case: Case) -> None:
    functional = torch.nn.functional
    theirs, mine = case.pair(-1)
    if theirs.numel():
        case.same(lambda: dropout.rrelu(tensor(mine), 0.1, 0.4, True), lambda: functional.rrelu(theirs, 0.1, 0.4, True))
    channels = torch.rand(4, 5, 3, 2, dtype=case.theirs)
    for name in ("dropout2d", "alpha_dropout", "feature_alpha_dropout"):
        torch.manual_seed(case.seed)
        with activate(Context(generator=Generator(case.seed))):
            found = getattr(dropout, name)(tensor(channels.numpy()), 0.3, True).array
        wanted = getattr(functional, name)(channels, 0.3, True).numpy()
        np.testing.assert_allclose(found, wanted, 1e-6)


@each_case(*FLOATS, *INTEGERS)
def test_integers(case: Case) -> None:
    theirs, mine = case.pair()
    known = {"bool": 1, "float16": 2**11, "bfloat16": 2**8, "float64": 2**53, "float32": 2**30}
    most = known.get(case.name) or int(np.iinfo(case.native).max)
    least = 0 if case.name in ("bool", "uint8") else -most
    low, high = int(case.rng.integers(least, 1)), int(case.rng.integers(0, most)) + 1
    shape = case.shape()
    case.same(lambda: draw.random.in_place((tensor(mine),)), lambda: theirs.random_())
    case.same(lambda: draw.random.in_place((tensor(mine), 0, high)), lambda: theirs.random_(high))
    case.same(lambda: draw.random.in_place((tensor(mine), low, high)), lambda: theirs.random_(low, high))
    case.same(
        lambda: draw.randint(low, high, shape, dtype=case.native),
        lambda: torch.randint(low, high, shape, dtype=case.theirs),
    )


@pytest.mark.parametrize("span", [1, 2**28 - 1, 2**28, 2**32, 2**40, 2**63 - 1])
def test_integers_of_wide_ranges(span: int) -> None:
    case = Case(span % 1000, "int64")
    for low in (0, -(span // 2)):
        case.same(
            lambda low=low: draw.randint(low, low + span, (50,)), lambda low=low: torch.randint(low, low + span, (50,))
        )


def test_the_whole_range_of_int64() -> None:
    case, x = Case(1, "int64"), torch.zeros(30, dtype=torch.int64)
    case.same(
        lambda: draw.random.in_place((tensor(np.zeros(30, np.int64)), -(2**63))), lambda: x.random_(-(2**63), None)
    )


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 199, 200, 201, 202, 1000, 54321])
def test_permutations(n: int) -> None:
    case = Case(n, "int64")
    for name in ("int64", "int32", "float32"):
        case.same(
            lambda name=name: draw.randperm(n, dtype=dtypes.BY_NAME[name]),
            lambda name=name: torch.randperm(n, dtype=getattr(torch, name)),
        )


@each_case("float32", "float64")
def test_multinomial(case: Case) -> None:
    rows = (int(case.rng.integers(1, 6)),) if case.rng.random() < 0.5 else ()
    weights = case.rng.random((*rows, int(case.rng.integers(2, 3000)))).astype(case.native)
    weights[..., ::3] = 0
    weights[..., 1] = 1
    possible = int((weights > 0).sum(-1).min())
    count = int(case.rng.integers(1, possible + 1))
    theirs = torch.from_numpy(weights)
    for replacement, drawn in ((True, 4 * count), (True, 1), (False, min(count, 9)), (False, 1)):
        case.same(
            lambda drawn=drawn, how=replacement: draw.multinomial(tensor(weights), drawn, how),
            lambda drawn=drawn, how=replacement: torch.multinomial(theirs, drawn, how),
        )


@each_case("float16", "float32")
def test_multinomial_without_replacement_of_equal_chances(case: Case) -> None:
    weights = case.rng.random((3, int(case.rng.integers(2, 600)))).astype(case.native)
    weights[:, ::3] = 0
    weights[:, 1] = 1
    count = int(case.rng.integers(2, weights.shape[1] + 1))
    case.same(
        lambda: draw.multinomial(tensor(weights), count, False),
        lambda: torch.multinomial(torch.from_numpy(weights), count),
    )


@each_case("float32", "float64")
def test_normal_numbers_of_tensors(case: Case) -> None:
    theirs, mine = case.pair()
    shape = case.shape()
    make = {"dtype": case.native}, {"dtype": case.theirs}
    case.same(lambda: draw.normal(0.3, 1.7, shape, **make[0]), lambda: torch.normal(0.3, 1.7, shape, **make[1]))
    for mean, std in ((True, False), (False, True), (True, True)):
        case.same(
            lambda mean=mean, std=std: draw.normal(tensor(mine) if mean else 0.3, tensor(mine) if std else 0.7),
            lambda mean=mean, std=std: torch.normal(theirs if mean else 0.3, theirs if std else 0.7),
        )


@each_case("float32", "float64")
@pytest.mark.parametrize("most", [12, 80])
def test_counts(case: Case, most: int) -> None:
    rates = (case.rng.random((20, 7)) * most).astype(case.native)
    rates[0] = 0
    chances = case.rng.random(7).astype(case.native)
    chances[:2] = 0, 1
    theirs = torch.from_numpy(rates), torch.from_numpy(chances)
    case.same(lambda: draw.poisson(tensor(rates)), lambda: torch.poisson(theirs[0]))
    case.same(
        lambda: draw.binomial(tensor(np.floor(rates)), tensor(chances)),
        lambda: torch.binomial(theirs[0].floor(), theirs[1].expand(20, 7)),
    )


def test_a_cancelled_draw_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = iter([None, None])

    def pause() -> None:
        if next(pauses, 1) == 1:
            raise EngineError(Reason.CANCELLED, "no more")

    monkeypatch.setattr(counts, "pause", pause)
    generator = Generator(3)
    before = generator.get_state()
    with activate(Context(generator=generator)), pytest.raises(EngineError, match="no more"):
        draw.poisson(tensor(np.full(20000, 3.0)))
    assert generator.get_state() == before

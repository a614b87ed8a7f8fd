"""Dropout: what it keeps, what it preserves on average, and what passes unchanged."""

import numpy as np
import pytest

from gradwire_engine import Context, EngineError, Generator, Reason, activate, gradients, tensor
from gradwire_engine.ops.nn import dropout
from tests.engine.oracle import Refused, Same, integers, normal, refused, same, torch

F = torch.nn.functional
X = normal(3, 4)
NAMES = ["dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d"]
SHAPES = {"dropout1d": (2, 3, 4), "dropout2d": (2, 3, 4, 4), "dropout3d": (2, 3, 2, 2, 2)}
SAME = [
    *(same(getattr(dropout, name), getattr(F, name), normal(*SHAPES.get(name, (2, 3))), 0.4, False) for name in NAMES),
    *(same(getattr(dropout, name), getattr(F, name), normal(*SHAPES.get(name, (2, 3))), 0.0, True) for name in NAMES),
    same(dropout.dropout, F.dropout, X, 1.0, True),
    same(dropout.alpha_dropout, F.alpha_dropout, X, 1.0, True),
    same(dropout.dropout2d, F.dropout2d, normal(3), 1.0, True),
    same(dropout.dropout2d, F.dropout2d, normal(3), 0.5, False),
    same(dropout.dropout3d, F.dropout3d, normal(3), 1.0, True),
    same(dropout.feature_alpha_dropout, F.feature_alpha_dropout, normal(0), 0.5, True),
    same(dropout.rrelu, F.rrelu, X, 0.1, 0.3, False),
]
REFUSED = [
    *(
        refused(
            getattr(dropout, name),
            Reason.ARGUMENT_VALUE,
            "but got 1.5",
            normal(*SHAPES.get(name, (2, 3))),
            1.5,
            True,
            theirs=getattr(F, name),
        )
        for name in NAMES
    ),
    refused(dropout.dropout, Reason.DTYPE, "output type Long", integers(0, 3, 4), theirs=F.dropout),
    refused(dropout.dropout1d, Reason.RUNTIME, "received a 1D input", normal(3), theirs=F.dropout1d),
    refused(dropout.rrelu, Reason.RUNTIME, "0.5, 0.1", X, 0.5, 0.1, True, theirs=F.rrelu),
    refused(dropout.rrelu, Reason.NOT_SUPPORTED, "'Long'", integers(0, 3, 4), theirs=F.rrelu),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.fixture(autouse=True)
def _seeded(context: Context):
    with activate(Context(generator=Generator(7))):
        yield


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_elements_are_zero_with_probability_p_or_scaled_to_keep_the_mean(p: float) -> None:
    found = dropout.dropout(tensor(np.ones(40000)), p).array
    np.testing.assert_allclose(np.unique(found), [0, 1 / (1 - p)])
    assert abs((found == 0).mean() - p) < 0.02


def test_the_gradient_passes_where_elements_were_kept() -> None:
    x = tensor(np.full(100, 2.0), True)
    out = dropout.dropout(x, 0.5)
    (found,), _ = gradients([out], [x], [tensor(np.ones(100))])
    np.testing.assert_array_equal(found.array, out.array / 2.0)


def test_the_same_seed_drops_the_same_elements() -> None:
    made = []
    for _ in range(2):
        with activate(Context(generator=Generator(3))):
            made.append(dropout.dropout(tensor(np.ones(50))).array.tolist())
    assert made[0] == made[1]
    assert 0.0 in made[0]


@pytest.mark.parametrize("shape", [(5,), (5, 4), (5, 4, 3), (5, 4, 3, 2), (5, 4, 3, 2, 2, 2)], ids=len)
def test_dropout3d_takes_all_but_five_dimensions_for_one_sample(shape: tuple[int, ...]) -> None:
    found = dropout.dropout3d(tensor(np.ones(shape))).array.reshape(5, -1)
    assert all(len(np.unique(channel)) == 1 for channel in found)


@pytest.mark.parametrize("name", ["dropout1d", "dropout2d", "dropout3d"])
def test_channels_are_dropped_whole(name: str) -> None:
    shape = (30, 10, *SHAPES[name][2:])
    found = getattr(dropout, name)(tensor(np.ones(shape)), 0.3).array.reshape(300, -1)
    assert (found == found[:, :1]).all()
    assert 0.15 < (found[:, 0] == 0).mean() < 0.45


def test_an_unbatched_input_of_two_dimensions_is_one_sample() -> None:
    found = dropout.dropout1d(tensor(np.ones((200, 3))), 0.5).array
    assert (found == found[:, :1]).all()
    assert set(np.unique(found)) == {0.0, 2.0}


@pytest.mark.parametrize("function", [dropout.alpha_dropout, dropout.feature_alpha_dropout])
def test_mean_and_variance_of_normal_inputs_are_kept(function) -> None:
    x = np.random.default_rng(1).standard_normal((200, 200))
    found = function(tensor(x), 0.3, True).array
    assert abs(found.mean()) < 0.03
    assert abs(found.std() - 1) < 0.03


def test_slopes_of_rrelu_lie_between_the_bounds_and_vary() -> None:
    x = tensor(-np.ones(1000), True)
    out = dropout.rrelu(x, 0.2, 0.4, True)
    assert -0.4 <= out.array.min() < out.array.max() <= -0.2
    (found,), _ = gradients([out], [x], [tensor(np.ones(1000))])
    np.testing.assert_allclose(found.array, -out.array)


def test_dropout_in_place_writes_into_the_tensor() -> None:
    x = tensor(np.ones(64))
    assert dropout.dropout.in_place((x, 0.5, True)) is x
    assert set(np.unique(x.array)) == {0.0, 2.0}


def test_channels_need_two_dimensions() -> None:
    with pytest.raises(EngineError, match="at least 2 dimensions"):
        dropout.feature_alpha_dropout(tensor(np.ones(3)), 0.5, True)

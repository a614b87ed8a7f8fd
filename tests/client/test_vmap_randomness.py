"""Random ops in a vmap: `randomness` decides for tensors that all samples share, too, as with PyTorch."""

from collections.abc import Callable
from typing import Any

import pytest

import gradwire
from tests.client.oracle import agree

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests")
pytestmark = pytest.mark.usefixtures("deferring")

OUT_OF_PLACE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "rand": lambda torch, shared, own: torch.rand(2),
    "rand_like": lambda torch, shared, own: torch.rand_like(shared),
    "randn_like": lambda torch, shared, own: torch.randn_like(shared),
    "randint_like": lambda torch, shared, own: torch.randint_like(shared, 9),
    "bernoulli": lambda torch, shared, own: torch.bernoulli(shared),
    "bernoulli of a number": lambda torch, shared, own: torch.bernoulli(shared, 0.3),
    "dropout": lambda torch, shared, own: torch.nn.functional.dropout(shared, 0.5),
    "alpha_dropout": lambda torch, shared, own: torch.nn.functional.alpha_dropout(shared, 0.5, training=True),
    "poisson": lambda torch, shared, own: torch.poisson(shared),
    "normal of a size": lambda torch, shared, own: torch.normal(1.0, 2.0, (2,)),
    "normal of means": lambda torch, shared, own: torch.normal(shared, 2.0),
    "normal of deviations": lambda torch, shared, own: torch.normal(1.0, shared),
    "randperm": lambda torch, shared, own: torch.randperm(5),
    "multinomial": lambda torch, shared, own: torch.multinomial(shared, 2),
    "multinomial of rows": lambda torch, shared, own: torch.multinomial(shared.expand(3, 2), 4, replacement=True),
    "dropout2d": lambda torch, shared, own: torch.nn.functional.dropout2d(shared.expand(2, 3, 2, 2)),
}
IN_PLACE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "normal_": lambda torch, shared, own: shared.clone().normal_(),
    "uniform_": lambda torch, shared, own: shared.clone().uniform_(),
    "bernoulli_": lambda torch, shared, own: shared.clone().bernoulli_(),
    "exponential_": lambda torch, shared, own: shared.clone().exponential_(),
    "random_": lambda torch, shared, own: shared.clone().random_(),
    "geometric_": lambda torch, shared, own: shared.clone().geometric_(0.5),
    "cauchy_": lambda torch, shared, own: shared.clone().cauchy_(),
    "log_normal_": lambda torch, shared, own: shared.clone().log_normal_(),
}
BATCHED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "bernoulli_ of own": lambda torch, shared, own: own.clone().bernoulli_(),
    "dropout in place of own": lambda torch, shared, own: torch.nn.functional.dropout(own + 1, 0.5, inplace=True),
    "dropout1d": lambda torch, shared, own: torch.nn.functional.dropout1d(_more(own, 2, 3, 2)),
    "dropout1d without a batch": lambda torch, shared, own: torch.nn.functional.dropout1d(_more(own, 3, 2)),
    "dropout2d": lambda torch, shared, own: torch.nn.functional.dropout2d(_more(own, 2, 3, 2, 2)),
    "dropout2d of all": lambda torch, shared, own: torch.nn.functional.dropout2d(_more(own, 2, 3, 2, 2), 1.0),
    "dropout3d": lambda torch, shared, own: torch.nn.functional.dropout3d(_more(own, 2, 3, 1, 2, 2)),
    "dropout3d without a batch": lambda torch, shared, own: torch.nn.functional.dropout3d(_more(own, 3, 1, 2, 2)),
    "alpha_dropout": lambda torch, shared, own: torch.nn.functional.alpha_dropout(_more(own, 3, 2), 0.3, True),
    "feature_alpha_dropout": lambda torch, shared, own: torch.nn.functional.feature_alpha_dropout(
        _more(own, 2, 3, 2), 0.3, True
    ),
    "attention": lambda torch, shared, own: _attended(torch, _more(own, 1, 3, 2)),
    "causal attention": lambda torch, shared, own: _attended(torch, _more(own, 1, 3, 2), is_causal=True),
    "masked attention": lambda torch, shared, own: _attended(
        torch, _more(own, 1, 3, 2), attn_mask=torch.tensor([[True, False, True], [False] * 3, [True] * 3])
    ),
    "attention with a bias": lambda torch, shared, own: _attended(
        torch, _more(own, 1, 3, 2), attn_mask=torch.tensor([0.0, -1.0, 2.0]).expand(3, 3), scale=0.3
    ),
    "evaluated dropout": lambda torch, shared, own: torch.nn.functional.dropout(shared, 0.5, training=False) + own,
}


def _more(own: Any, *shape: int) -> Any:
    return own + own.new_ones(shape).cumsum(-2)


def _attended(torch: Any, each: Any, **options: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(each, each, each + 1, dropout_p=0.5, **options)


def _mapped(torch: Any, function: Callable[[Any, Any, Any], Any], randomness: str) -> Any:
    torch.manual_seed(3)
    shared = torch.full((2,), 0.5)
    return torch.func.vmap(lambda own: function(torch, shared, own), randomness=randomness)(torch.zeros(3, 2))


@pytest.mark.parametrize("randomness", ["same", "different"])
@pytest.mark.parametrize("name", OUT_OF_PLACE)
def test_samples_that_share_a_tensor_draw_as_randomness_says(name: str, randomness: str) -> None:
    agree(lambda torch: _mapped(torch, OUT_OF_PLACE[name], randomness))


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_samples_share_is_drawn_in_place_for_all_or_not_at_all(name: str) -> None:
    agree(lambda torch: _mapped(torch, IN_PLACE[name], "same"))
    for module in (torch, gradwire):
        with pytest.raises(RuntimeError, match="Cannot ask for different inplace randomness on an unbatched tensor"):
            _mapped(module, IN_PLACE[name], "different")


@pytest.mark.parametrize("name", [*OUT_OF_PLACE, *IN_PLACE])
def test_a_draw_is_refused_without_randomness(name: str) -> None:
    function = {**OUT_OF_PLACE, **IN_PLACE}[name]
    for module in (torch, gradwire):
        with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
            _mapped(module, function, "error")


@pytest.mark.parametrize("randomness", ["same", "different"])
@pytest.mark.parametrize("name", BATCHED)
def test_samples_of_their_own_draw_as_randomness_says(name: str, randomness: str) -> None:
    agree(lambda torch: _mapped(torch, BATCHED[name], randomness))


@pytest.mark.parametrize("randomness", ["same", "different"])
@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2), (4, 3, 2, 1, 2, 2)], ids=len)
@pytest.mark.filterwarnings("ignore:dropout")
def test_dropout3d_takes_samples_of_other_than_five_dimensions_for_lone_ones(shape: Any, randomness: str) -> None:
    agree(lambda torch: _mapped(torch, lambda t, _, own: t.nn.functional.dropout3d(_more(own[:1], *shape)), randomness))


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_alpha_dropout"])
@pytest.mark.parametrize("p", [0.0, 1.0])
def test_a_dropout_of_all_or_nothing_needs_no_randomness(name: str, p: float) -> None:
    agree(lambda torch: _mapped(torch, lambda t, _, own: getattr(t.nn.functional, name)(own + 1, p, True), "error"))


@pytest.mark.parametrize("name", ["dropout1d", "dropout2d", "dropout3d"])
@pytest.mark.parametrize("p", [0.0, 1.0])
@pytest.mark.filterwarnings("ignore:dropout")
def test_a_dropout_of_all_or_no_channels_needs_no_randomness(name: str, p: float) -> None:
    def mapped(torch: Any) -> Any:
        return _mapped(torch, lambda t, _, own: getattr(t.nn.functional, name)(_more(own, 2, 3, 2), p), "error")

    agree(mapped)


@pytest.mark.parametrize("module", [torch, gradwire], ids=["torch", "gradwire"])
def test_dropout1d_refuses_samples_without_channels_even_if_it_drops_none(module: Any) -> None:
    for training in (True, False):
        with pytest.raises(RuntimeError, match="Expected 2D or 3D input, but received a 1D input"):
            _mapped(module, lambda t, _, own, on=training: t.nn.functional.dropout1d(own, 0.5, on), "same")


@pytest.mark.parametrize("module", [torch, gradwire], ids=["torch", "gradwire"])
@pytest.mark.parametrize(("draw", "arguments"), [("bernoulli", ()), ("normal", (1.0,))])
def test_the_same_numbers_are_refused_for_parameters_that_differ(module: Any, draw: str, arguments: Any) -> None:
    with pytest.raises(RuntimeError, match="does not currently support same randomness with a batched"):
        _mapped(module, lambda torch, shared, own: getattr(torch, draw)(own, *arguments), "same")


@pytest.mark.parametrize("outer", ["same", "different"])
@pytest.mark.parametrize("inner", ["same", "different"])
def test_each_of_two_vmaps_decides_for_its_samples(inner: str, outer: str) -> None:
    def mapped(torch: Any) -> Any:
        torch.manual_seed(3)
        shared = torch.full((2,), 0.5)
        one = torch.func.vmap(lambda own: torch.randn_like(shared) + own, randomness=inner)
        return torch.func.vmap(one, randomness=outer)(torch.zeros(2, 3, 2))

    agree(mapped)


@pytest.mark.parametrize("module", [torch, gradwire], ids=["torch", "gradwire"])
def test_samples_with_weights_of_their_own_draw_different_indices_or_none(module: Any) -> None:
    def drawn(torch: Any) -> Any:
        return _mapped(torch, lambda torch, shared, own: torch.multinomial(_more(own, 3, 2), 1), "different")

    agree(drawn)
    with pytest.raises(RuntimeError, match="does not currently support same randomness with a batched"):
        _mapped(module, lambda torch, shared, own: torch.multinomial(own + 1, 2), "same")


@pytest.mark.parametrize("inner", ["same", "different"])
@pytest.mark.parametrize("outer", ["same", "different"])
def test_nested_vmaps_draw_permutations_each_by_its_own_randomness(outer: str, inner: str) -> None:
    def drawn(torch: Any) -> Any:
        torch.manual_seed(5)
        vmap = torch.func.vmap
        nested = vmap(
            lambda y: vmap(lambda x: x + y + torch.randperm(4), randomness=inner)(torch.zeros(3, 4)), 0, 0, outer
        )
        return nested(torch.zeros(2, 4))

    agree(drawn)

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
    "evaluated dropout": lambda torch, shared, own: torch.nn.functional.dropout(shared, 0.5, training=False) + own,
}


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

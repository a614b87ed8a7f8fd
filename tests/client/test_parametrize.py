"""Parametrizations and pruning: what is refused, kept, transferred and stored, beside PyTorch's."""

import copy
import pickle

import numpy as np
import pytest

from tests.client.oracle import agree, refuse

RNG = np.random.default_rng(0)  # conftest.py seeds it anew for each test

torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
pytest.importorskip("torch.nn.utils.prune")  # PyTorch does not import it by itself
pytestmark = pytest.mark.usefixtures("session")


def parametrization(t, forward, inverse=None):
    """A module of two functions, the second its right_inverse."""

    class Made(t.nn.Module):
        def forward(self, *given):
            return forward(*given)

    if inverse is not None:
        Made.right_inverse = lambda self, value: inverse(value)
    return Made()


def linear(t):
    layer = t.nn.Linear(3, 4)
    layer.weight.data = t.tensor(np.arange(12.0).reshape(4, 3), dtype=t.float32)
    return layer


@pytest.mark.parametrize(
    ("forward", "inverse", "phrase"),
    [
        (lambda x: x, lambda w: None, "Tensor or a Sequence of"),
        (lambda x, y: x, lambda w: (None, w), "element 0 of the sequence with type NoneType"),
        (lambda x: x.float(), lambda w: w.bool(), "outputs one tensor, it may not change the dtype"),
        (lambda x: 2, None, "must return a tensor"),
        (lambda x: x.bool(), None, "may not change the dtype"),
        (lambda x: x[:-1], None, "may not change the shape"),
        (lambda x, y: (x + y).bool(), lambda w: (w, w + 1), "may not change the dtype"),
    ],
)
def test_a_first_parametrization_is_refused_for_what_it_changes(forward, inverse, phrase):
    def register(t):
        layer = linear(t)
        t.nn.utils.parametrize.register_parametrization(layer, "weight", parametrization(t, forward, inverse))

    refuse(register, ValueError, phrase)


@pytest.mark.parametrize(
    ("forward", "inverse", "phrase"),
    [
        (lambda x: (x, x), None, "must return a tensor"),
        (lambda x: x.bool(), None, "may not change the dtype"),
        (lambda x: x[:-1], None, "may not change the shape"),
        (lambda x: x, lambda w: (w, w), "right_inverse must return a tensor"),
        (lambda x: x, lambda w: w.bool(), "must have the same dtype"),
        (lambda x: x, lambda w: w[:-1], "must have the same shape"),
    ],
)
def test_a_further_parametrization_is_refused_for_what_it_changes(forward, inverse, phrase):
    def register(t):
        layer = linear(t)
        t.nn.utils.parametrize.register_parametrization(layer, "weight", parametrization(t, lambda x: x))
        t.nn.utils.parametrize.register_parametrization(layer, "weight", parametrization(t, forward, inverse))

    refuse(register, ValueError, phrase)


def test_the_parameter_stays_the_same_object():
    def kept(t):
        layer = linear(t)
        weight = layer.weight
        double = parametrization(t, lambda x: x * 2, lambda w: w / 2)
        t.nn.utils.parametrize.register_parametrization(layer, "weight", double)
        inside = layer.parametrizations.weight.original is weight
        original = weight.detach().clone()
        t.nn.utils.parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
        return inside, layer.weight is weight, original, layer.weight.detach(), type(layer).__name__

    agree(kept)


def test_an_inverse_that_is_not_implemented_is_none():
    def raises(value):
        raise NotImplementedError

    def kept(t):
        layer = linear(t)
        halves = parametrization(t, lambda x: x / 2, raises)
        t.nn.utils.parametrize.register_parametrization(layer, "weight", halves)
        return layer.weight.detach(), layer.parametrizations.weight.original.detach()

    agree(kept)


@pytest.mark.parametrize("several", [False, True])
def test_parametrizations_are_transferred_with_their_originals(several):
    def transferred(t):
        first, second = linear(t), t.nn.Linear(3, 4)
        made = (
            parametrization(t, lambda x, y: x + y, lambda w: (w, t.zeros_like(w)))
            if several
            else parametrization(t, lambda x: x * 3)
        )
        t.nn.utils.parametrize.register_parametrization(first, "weight", made)
        given = t.nn.utils.parametrize.transfer_parametrizations_and_params(first, second)
        name = "original0" if several else "original"
        same = getattr(second.parametrizations.weight, name) is getattr(first.parametrizations.weight, name)
        untouched = t.nn.utils.parametrize.transfer_parametrizations_and_params(linear(t), t.nn.Linear(2, 2))
        return given is second, same, second.weight.detach(), type(untouched).__name__

    agree(transferred)


def test_parametrized_modules_are_copied_and_not_pickled():
    def copied(t):
        layer = t.nn.utils.parametrizations.weight_norm(linear(t))
        return copy.deepcopy(layer).weight.detach()

    agree(copied)
    refuse(lambda t: pickle.dumps(t.nn.utils.parametrizations.weight_norm(linear(t))), RuntimeError, "state_dict")


@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_states_of_the_older_weight_norm_load():
    def loaded(t):
        older = t.nn.utils.weight_norm(linear(t))
        newer = t.nn.utils.parametrizations.weight_norm(t.nn.Linear(3, 4))
        found = newer.load_state_dict(older.state_dict())
        return str(found), newer.weight.detach(), sorted(newer.state_dict())

    agree(loaded)


def test_orthogonal_refuses_matrices_of_another_shape():
    def assigned(t):
        layer = t.nn.utils.parametrizations.orthogonal(t.nn.Linear(3, 4))
        layer.weight = t.ones(5, 5)

    refuse(assigned, ValueError, "matrices of shape")


@pytest.mark.parametrize("orthogonal_map", ["matrix_exp", "cayley"])
def test_orthogonal_without_trivialization_takes_the_weight_as_it_is(orthogonal_map):
    values = RNG.standard_normal((4, 4))

    def made(t):
        layer = t.nn.Linear(4, 4, dtype=t.float64)
        layer.weight.data = t.tensor(values)
        t.nn.utils.parametrizations.orthogonal(layer, "weight", orthogonal_map, use_trivialization=False)
        return layer.weight.detach()

    agree(made)


def test_pruning_helpers_that_programs_call():
    def counted(t):
        prune = t.nn.utils.prune
        prune._validate_pruning_amount_init(0.3)
        prune._validate_pruning_amount(3, 3)
        norms = prune._compute_norm(t.tensor([[3.0, 0.0], [4.0, 1.0]]), 2, -1)
        return [prune._compute_nparams_toprune(amount, 17) for amount in (0, 5, 0.4, 1.0)], norms

    agree(counted)
    refuse(lambda t: t.nn.utils.prune._validate_pruning_amount_init("x"), TypeError, "Invalid type for amount")
    refuse(lambda t: t.nn.utils.prune._validate_pruning_amount_init(1.5), ValueError, "float in the range")
    refuse(lambda t: t.nn.utils.prune._validate_pruning_amount(4, 3), ValueError, "should be smaller")
    refuse(lambda t: t.nn.utils.prune._validate_structured_pruning(t.ones(3)), ValueError, "multidimensional")
    refuse(lambda t: t.nn.utils.prune._validate_pruning_dim(t.ones(3, 2), 2), IndexError, "Invalid index")


def test_a_pruned_weight_is_among_those_that_a_recurrent_layer_uses():
    def told(t):
        layer = t.nn.LSTM(4, 3)
        t.nn.utils.prune.l1_unstructured(layer, "weight_ih_l0", 0.5)
        pruned = [isinstance(each, t.nn.Parameter) for each in layer._flat_weights]
        t.nn.utils.prune.remove(layer, "weight_ih_l0")
        return pruned, [isinstance(each, t.nn.Parameter) for each in layer._flat_weights]

    agree(told)

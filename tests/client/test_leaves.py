"""Leaves, requires_grad and .grad: SEMANTICS 1 row by row, over a socket, compared with PyTorch."""

import copy
import pickle

import pytest

import gradwire
from tests.client.oracle import agree, refuse, warn

pytestmark = pytest.mark.usefixtures("session")


def leaf(t, *values, grad=True):
    return t.tensor(values or (1.0, 2.0, 3.0), requires_grad=grad)


def test_made_by_the_user_requiring_grad_is_a_leaf_that_receives():
    def case(t):
        x = leaf(t)
        (x * x).sum().backward()
        return x, x.is_leaf, x.grad_fn, x.requires_grad, x.grad

    agree(case)


def test_made_by_an_op_of_requiring_inputs_is_no_leaf_and_receives_nothing():
    def case(t):
        x = leaf(t)
        y = x * 2.0
        y.sum().backward()
        return y, y.is_leaf, y.requires_grad, y.grad_fn.name(), y.retains_grad

    agree(case)


def test_without_requires_grad_everything_is_a_leaf():
    def case(t):
        x = leaf(t, grad=False)
        y = x * 2.0
        return x, y, y.is_leaf, y.grad_fn, y.grad, x.grad

    agree(case)


def test_one_requiring_input_is_enough():
    agree(lambda t: [leaf(t) + leaf(t, grad=False), leaf(t, grad=False) + leaf(t), leaf(t, grad=False) + 1.0])


def test_results_that_are_not_differentiable_require_none():
    def case(t):
        x = leaf(t)
        return [x > 1.0, x == x, t.zeros_like(x), t.ones_like(x), x.argmax(), x.long(), x.new_ones(2)]

    agree(case)


def test_random_like_requires_none():
    def case(t):
        made = t.rand_like(leaf(t))
        return made.requires_grad, made.is_leaf, made.shape

    agree(case)


def test_requires_grad_defaults_to_false():
    agree(lambda t: [t.tensor([1.0]).requires_grad, t.zeros(2).requires_grad, t.zeros(2, requires_grad=True)])


def test_requires_grad_sets_a_flag_and_is_no_op():
    def case(t):
        x = t.tensor([1.0, 2.0])
        before = x.grad_fn
        x.requires_grad = True
        same = x.requires_grad_() is x
        y = (x * x).sum()
        y.backward()
        return before, x, x.grad_fn, same, x.is_leaf, x.grad

    agree(case)


def test_the_flag_can_be_taken_back():
    def case(t):
        x = leaf(t)
        x.requires_grad_(False)
        y = x * 2.0
        x.requires_grad = True
        return y, x, x * 2.0

    agree(case)


def test_a_non_leaf_may_be_set_to_require_grad_again():
    def case(t):
        y = leaf(t) * 2.0
        return y.requires_grad_() is y, y

    agree(case)


@pytest.mark.parametrize("how", ["method", "attribute"])
def test_a_non_leaf_cannot_be_set_not_to_require_grad(how):
    def case(t):
        y = leaf(t) * 2.0
        if how == "method":
            y.requires_grad_(False)
        else:
            y.requires_grad = False

    refuse(case, RuntimeError, "you can only change requires_grad flags of leaf variables.*detach")


def test_a_non_leafs_attribute_cannot_be_assigned_at_all():
    def case(t):
        y = leaf(t) * 2.0
        y.requires_grad = True

    refuse(case, RuntimeError, "you can only change requires_grad flags of leaf variables")


@pytest.mark.parametrize("values", [[1, 2], [True, False]])
def test_integers_and_bools_refuse_to_require_grad(values):
    def assign(t):
        x = t.tensor(values)
        x.requires_grad = True

    constructor = "Only Tensors of floating point and complex dtype can require gradients"
    refuse(lambda t: t.tensor(values, requires_grad=True), RuntimeError, constructor)
    refuse(
        lambda t: t.tensor(values).requires_grad_(), RuntimeError, "only Tensors of floating point dtype can require"
    )
    refuse(assign, RuntimeError, "only Tensors of floating point and complex dtype can require gradients")


def test_complex_numbers_can_require_grad():
    agree(lambda t: t.tensor([1 + 2j], requires_grad=True))


def test_grad_is_none_first_and_then_a_plain_leaf():
    def case(t):
        x = leaf(t)
        before = x.grad
        (x * x).sum().backward()
        return before, x.grad, x.grad.is_leaf, x.grad.requires_grad, x.grad.retains_grad, x.grad.grad_fn

    agree(case)


def test_grad_has_the_tensors_dtype():
    def case(t):
        x = t.tensor([1.0, 2.0], dtype=t.float64, requires_grad=True)
        h = t.tensor([1.0, 2.0], dtype=t.float16, requires_grad=True)
        (x * h).sum().backward()
        return x.grad, h.grad

    agree(case)


def test_grad_is_the_same_object_until_it_is_replaced():
    def case(t):
        x = leaf(t)
        (x * x).sum().backward()
        first = x.grad
        again = x.grad is first
        (x * x).sum().backward()
        kept = x.grad is first
        x.grad = None
        (x * x).sum().backward()
        return again, kept, x.grad is first, first, x.grad

    agree(case)


def test_each_backward_adds_in_place():
    def case(t):
        x = leaf(t)
        seen = []
        (x * 2.0).sum().backward()
        held = x.grad
        for _ in range(3):
            (x * 2.0).sum().backward()
            seen.append(held.tolist())
        return seen

    agree(case)


def test_grad_can_be_set_and_cleared():
    def case(t):
        x = leaf(t)
        given = t.tensor([10.0, 20.0, 30.0])
        x.grad = given
        same = x.grad is given
        (x * 2.0).sum().backward()
        added = x.grad.tolist()
        x.grad = None
        cleared = x.grad
        (x * 2.0).sum().backward()
        return same, added, cleared, x.grad, given

    agree(case)


def test_a_grad_of_another_shape_is_refused():
    def case(t):
        leaf(t).grad = t.ones(2)

    refuse(case, RuntimeError, "attempting to assign a gradient of size")


def test_a_grad_of_another_dtype_is_refused():
    def case(t):
        leaf(t).grad = t.ones(3, dtype=t.float64)

    refuse(case, RuntimeError, "attempting to assign a gradient with dtype")


@pytest.mark.parametrize(
    ("value", "error", "phrase"), [(3, TypeError, "Tensor or None"), ("self", RuntimeError, "own grad")]
)
def test_what_is_no_grad_is_refused(value, error, phrase):
    def case(t):
        x = leaf(t)
        x.grad = x if value == "self" else value

    refuse(case, error, phrase)


def test_reading_a_non_leafs_grad_warns_and_answers_none():
    def case(t):
        y = leaf(t) * 2.0
        y.sum().backward()
        assert y.grad is None

    warn(case, "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed", "leaf", "retain_grad()")


def test_reading_a_leafs_grad_never_warns():
    def case(t):
        x, constant = leaf(t), leaf(t, grad=False)
        assert x.grad is None
        assert constant.grad is None
        (x * 2.0).sum().backward()
        assert x.grad is not None

    warn(case)


def test_a_retained_grad_does_not_warn():
    def case(t):
        y = leaf(t) * 2.0
        y.retain_grad()
        y.sum().backward()
        assert y.grad is not None

    warn(case)


def test_retain_grad_keeps_a_non_leafs_gradient():
    def case(t):
        x = leaf(t)
        y = x * 2.0
        before = y.retains_grad
        y.retain_grad()
        y.retain_grad()
        (y * y).sum().backward()
        return before, y.retains_grad, y.grad, x.grad, y.grad.retains_grad

    agree(case)


def test_retain_grad_on_a_leaf_changes_nothing():
    def case(t):
        x = leaf(t)
        x.retain_grad()
        (x * 2.0).sum().backward()
        return x.retains_grad, x.grad

    agree(case)


def test_retain_grad_without_requires_grad_is_refused():
    refuse(
        lambda t: leaf(t, grad=False).retain_grad(),
        RuntimeError,
        "can't retain_grad on Tensor that has requires_grad=False",
    )


def test_retain_grad_after_backward_is_too_late():
    def case(t):
        x = leaf(t)
        y = x + 1.0
        y.sum().backward(retain_graph=True)
        y.retain_grad()
        first = y.grad
        y.sum().backward()
        return first, y.grad, x.grad

    agree(case)


def test_a_retained_gradient_is_a_new_tensor_each_time():
    def case(t):
        x = leaf(t)
        y = x * 2.0
        y.retain_grad()
        y.sum().backward(retain_graph=True)
        first = y.grad
        y.sum().backward()
        return first, y.grad, first is y.grad

    agree(case)


def test_retain_grad_follows_the_tensor_through_in_place_ops():
    def case(t):
        x = leaf(t)
        y = x * 2.0
        y.retain_grad()
        y += 1.0
        y.mul_(3.0)
        (y * y).sum().backward()
        return y.retains_grad, y.grad, x.grad

    agree(case)


def test_deepcopy_copies_leaves_with_their_gradients():
    def case(t):
        x = leaf(t)
        (x * x).sum().backward()
        y = copy.deepcopy(x)
        (y * 2.0).sum().backward()
        return x, x.grad, y, y.grad, y.is_leaf

    agree(case)


def test_deepcopy_of_a_non_leaf_is_refused():
    refuse(
        lambda t: copy.deepcopy(leaf(t) * 2.0),
        RuntimeError,
        r"Only Tensors created explicitly by the user \(graph leaves\) support the deepcopy protocol",
    )


def test_a_shallow_copy_is_a_leaf_on_the_same_values():
    def case(t):
        x = leaf(t)
        y, z = copy.copy(x), copy.copy(x * 2.0)
        with t.no_grad():
            y[0] = 9.0
        return x, y, z

    agree(case)


def test_a_tensor_is_pickled_with_its_values():
    assert pickle.loads(pickle.dumps(gradwire.ones(1))).tolist() == [1.0]


def test_grad_fn_cannot_be_assigned():
    def case(t):
        leaf(t).grad_fn = None

    refuse(case, AttributeError, "grad_fn|set")

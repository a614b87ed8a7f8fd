"""Entry points of backward: the gradients they give, add and refuse. tests/engine/test_backward.py has more."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, call, tensor
from gradwire_engine.autograd.backward import backward, gradients


def test_gradients_are_added_to_the_leaves_and_the_receivers_are_returned() -> None:
    x, w = tensor(np.array([1.0, 2.0]), True), tensor(np.array([3.0, 4.0]), True)
    for _ in range(2):
        received = backward([call("sum", (x * w,))])
    assert {id(each) for each in received} == {id(x), id(w)}
    assert (x.grad.array.tolist(), w.grad.array.tolist()) == ([6.0, 8.0], [2.0, 4.0])


def test_only_the_named_inputs_receive_a_gradient() -> None:
    x, w = tensor(np.ones(2), True), tensor(np.ones(2), True)
    backward([call("sum", (x * w,))], inputs=[w])
    assert x.grad is None
    assert w.grad.array.tolist() == [1.0, 1.0]


def test_gradients_are_returned_and_no_leaf_changes() -> None:
    x = tensor(np.array([1.0, 2.0]), True)
    (found,), retained = gradients([x * x], [x], [tensor(np.array([1.0, 10.0]))])
    assert (found.array.tolist(), retained, x.grad) == ([2.0, 40.0], [], None)


def test_an_input_that_is_not_used_is_refused_none_or_zeros() -> None:
    x, other = tensor(np.ones(2), True), tensor(np.ones(3), True)
    with pytest.raises(EngineError) as refusal:
        gradients([call("sum", (x,))], [other])
    assert refusal.value.reason is Reason.UNUSED_INPUT
    assert gradients([call("sum", (x,))], [other], allow_unused=True)[0] == [None]
    (zeros,), _ = gradients([call("sum", (x,))], [other], materialize_grads=True)
    assert zeros.array.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("grad", "given", "reason"),
    [
        (True, None, Reason.GRADIENT_NEEDS_SCALAR),
        (True, (3,), Reason.SHAPE),
        (False, (2,), Reason.NO_GRAD_FN),
    ],
)
def test_roots_that_cannot_be_differentiated_are_refused_and_nothing_changes(grad, given, reason: Reason) -> None:
    x = tensor(np.ones(2), grad)
    with pytest.raises(EngineError) as refusal:
        backward([x * 2.0], None if given is None else [tensor(np.ones(given))])
    assert (refusal.value.reason, x.grad) == (reason, None)

"""Callbacks of backward: where a hook is registered, which hooks a node has, and which answers are refused."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, call, tensor
from gradwire_engine.graph import callbacks
from gradwire_engine.graph.hooks import CallbackKind, ExternalCallback


def _leaf(*shape: int):
    return tensor(np.ones(shape or (2,)), True)


def test_a_hook_on_a_tensor_belongs_to_its_node_also_after_a_change_in_place() -> None:
    y = _leaf() * 2.0
    node, ask = y.grad_fn, ExternalCallback(1, [])
    callbacks.hook_tensor(y, ask)
    call("add_", (y, 1.0))
    assert y.grad_fn is not node
    assert callbacks.hooks_on(node)
    assert not callbacks.hooks_on(y.grad_fn)


def test_hooks_of_a_leaf_and_of_its_node_are_found_together() -> None:
    x = _leaf()
    leaf_node = (x * 2.0).grad_fn.edges[0][0]
    asks = [ExternalCallback(number, []) for number in (1, 2, 3)]
    callbacks.hook_tensor(x, asks[0])
    callbacks.hook_accumulated(x, asks[1])
    assert callbacks.hooks_on(leaf_node)
    callbacks.hooks_of(leaf_node).add(CallbackKind.BEFORE, asks[2])
    both = callbacks.hooks_on(leaf_node)
    assert all((both.tensor, both.accumulated, both.before))
    assert callbacks.hooks_of(leaf_node) is callbacks.hooks_of(leaf_node)


def test_hooks_need_a_gradient_and_accumulation_a_leaf() -> None:
    plain = tensor(np.ones(1))
    for register, target in (
        (callbacks.hook_tensor, plain),
        (callbacks.hook_accumulated, plain),
        (callbacks.hook_accumulated, _leaf() * 2.0),
    ):
        with pytest.raises(EngineError) as refusal:
            register(target, ExternalCallback(1, []))
        assert refusal.value.reason is Reason.REQUIRES_GRAD


OLD = tensor(np.ones((2, 3)))


@pytest.mark.parametrize(
    ("old", "new", "reason", "says"),
    [
        ([OLD], [], Reason.RUNTIME, "got 0, but expected 1"),
        ([None], [OLD], Reason.RUNTIME, "None gradient"),
        ([OLD], [tensor(np.ones(2))], Reason.SHAPE, "was [2, 3], is [2]"),
        ([OLD], [tensor(np.ones((2, 3), np.float32))], Reason.DTYPE, "was float64 got float32"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_with_both(old: list, new: list, reason: Reason, says: str) -> None:
    with pytest.raises(EngineError) as refusal:
        callbacks.check_replaced(old, new)
    assert (refusal.value.reason, says in refusal.value.message) == (reason, True)


def test_an_answer_may_keep_or_replace_each_gradient() -> None:
    callbacks.check_replaced([OLD, OLD, None], [None, tensor(np.zeros((2, 3))), None])


@pytest.mark.parametrize(("given", "fits"), [((2, 3), True), ((3,), False), ((4, 2, 3), True), ((2, 4), False)])
def test_a_formulas_gradient_must_sum_to_the_inputs_shape(given: tuple, fits: bool) -> None:
    node, wanted = (_leaf() * 2.0).grad_fn, ((2, 3), np.dtype(np.float64))
    if fits:
        callbacks.refuse_shape(node, 1, tensor(np.ones(given)), wanted)
        return
    with pytest.raises(EngineError, match="invalid gradient at index 1") as refusal:
        callbacks.refuse_shape(node, 1, tensor(np.ones(given)), wanted)
    assert refusal.value.reason is Reason.SHAPE

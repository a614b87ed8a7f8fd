"""A node that is called applies its formulas alone: nothing is passed on, and its saved values stay."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, call, tensor
from gradwire_engine.autograd.backward import backward
from gradwire_engine.autograd.node_call import NodeCall


def called(node, *gradients, create_graph: bool = False):
    call_of_node = NodeCall(node, gradients, create_graph)
    for _ in call_of_node.advance():
        pass
    return call_of_node.results()


def test_the_gradients_of_the_inputs_are_returned_and_nothing_is_passed_on() -> None:
    x, w = tensor(np.array([1.0, 2.0]), True), tensor(np.array([3.0, 4.0]))
    y = (x * 5.0) * w
    for _ in range(2):
        first, second = called(y.node, tensor(np.array([1.0, 10.0])))
        assert (first.array.tolist(), second, x.grad) == ([3.0, 40.0], None, None)
    backward([call("sum", (y,))])
    assert x.grad.array.tolist() == [15.0, 20.0]


def test_with_create_graph_the_results_have_derivatives() -> None:
    x = tensor(np.array([3.0]), True)
    (found, *_) = called((x * x).node, tensor(np.array([1.0])), create_graph=True)
    assert found.requires_grad


@pytest.mark.parametrize("count", [0, 2])
def test_a_wrong_number_of_gradients_is_refused(count: int) -> None:
    node = call("exp", (tensor(np.ones(2), True),)).node
    with pytest.raises(EngineError, match=f"expected 1 arguments, got {count} instead") as refusal:
        NodeCall(node, [tensor(np.ones(2))] * count, False)
    assert refusal.value.reason is Reason.ARGUMENT_TYPE


def test_a_freed_node_is_refused() -> None:
    y = call("exp", (tensor(np.ones(2), True),))
    backward([call("sum", (y,))])
    with pytest.raises(EngineError) as refusal:
        called(y.node, tensor(np.ones(2)))
    assert refusal.value.reason is Reason.GRAPH_FREED

"""Custom functions: which outputs join the graph, what may be changed in place, and what is refused."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, gradients, tensor
from gradwire_engine.autograd.functions import record_function
from gradwire_engine.ops.index.index import getitem


def _leaf(*values: float, grad: bool = True):
    return tensor(np.array(values), grad)


def test_nothing_is_recorded_where_no_input_requires_grad() -> None:
    out = _leaf(1.0, grad=False)
    assert record_function("Double", None, [_leaf(1.0, grad=False), None], [out]) is None
    assert (out.requires_grad, out.grad_fn) == (False, None)


def test_without_a_formula_each_outputs_gradient_goes_to_its_input() -> None:
    a, b = _leaf(1.0, 2.0), _leaf(3.0)
    out, other = _leaf(5.0, 6.0, grad=False), _leaf(7.0, grad=False)
    node = record_function("Pass", None, [a, b], [out, other])
    assert out.grad_fn.name == "Pass"
    assert (out.node, other.node, other.index) == (node, node, 1)
    (first, second), _ = gradients([out, other], [a, b], [tensor(np.array([2.0, 3.0])), tensor(np.array([4.0]))])
    assert (first.array.tolist(), second.array.tolist()) == ([2.0, 3.0], [4.0])


def test_whole_numbers_and_constants_get_no_gradient() -> None:
    x = _leaf(1.0)
    whole, constant, real = tensor(np.array([1])), _leaf(2.0, grad=False), _leaf(3.0, grad=False)
    record_function("Mixed", None, [x], [whole, constant, real, None], constant=[constant])
    assert [each.requires_grad for each in (whole, constant, real)] == [False, False, True]


def test_saved_values_tell_outputs_from_inputs() -> None:
    x, out = _leaf(1.0), _leaf(2.0, grad=False)
    node = record_function("Keep", None, [x], [out], saved=[x, out, None])
    assert [None if each is None else each.output for each in node.saved] == [-1, 0, None]


def test_an_output_that_has_a_history_is_refused_and_nothing_changes() -> None:
    x = _leaf(1.0)
    old = x * 2.0
    node, fresh = old.node, _leaf(1.0, grad=False)
    with pytest.raises(EngineError, match="is already part of a graph") as refusal:
        record_function("Bad", None, [x], [fresh, old])
    assert refusal.value.reason is Reason.RUNTIME
    assert (old.node, fresh.requires_grad) == (node, False)


def test_a_dirty_input_that_is_returned_gets_the_functions_node() -> None:
    x = _leaf(1.0) * 2.0
    before = x.storage.version
    node = record_function("Change", None, [x], [x], dirty=[x])
    assert x.node is node
    assert x.storage.version == before + 1


def test_a_dirty_input_must_be_returned() -> None:
    x = _leaf(1.0) * 2.0
    with pytest.raises(EngineError, match="must all be outputs of the Function"):
        record_function("Change", None, [x], [_leaf(1.0, grad=False)], dirty=[x])


def test_a_dirty_leaf_is_refused() -> None:
    x = _leaf(1.0)
    with pytest.raises(EngineError) as refusal:
        record_function("Change", None, [x], [x], dirty=[x])
    assert refusal.value.reason is Reason.LEAF_IN_PLACE


def test_a_dirty_view_may_be_the_only_output() -> None:
    base = _leaf(1.0, 2.0) * 2.0
    view = getitem(base, slice(0, 1))
    with pytest.raises(EngineError, match="cannot return more than one Tensor"):
        record_function("Change", None, [view], [view, _leaf(1.0, grad=False)], dirty=[view])


def test_a_view_among_outputs_may_not_be_changed_later() -> None:
    from gradwire_engine.op.refusals import check_in_place

    x = _leaf(1.0, 2.0, grad=False)
    view = getitem(x, slice(0, 1))
    record_function("Show", None, [_leaf(1.0)], [view])
    with pytest.raises(EngineError) as refusal:
        check_in_place(view)
    assert refusal.value.reason is Reason.RUNTIME

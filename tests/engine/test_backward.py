"""The reverse pass: what it computes, what it refuses, and that it holds for any depth and width."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradwire_engine import (
    Backward,
    Context,
    EngineError,
    Gradients,
    Interrupt,
    Reason,
    Tensor,
    activate,
    backward,
    call,
    data,
    detach,
    grad_mode,
    gradients,
    retain_grad,
    set_data,
    set_requires_grad,
    tensor,
)
from gradwire_engine.autograd.buffer_reuse import own
from gradwire_engine.graph.graph import Node
from tests.steps import Polled


def leaf(*values: float, grad: bool = True) -> Tensor:
    return tensor(np.array(values, np.float64), grad)


def test_gradients_accumulate_over_passes_until_the_graph_is_freed() -> None:
    a = leaf(3.0)
    b = a * a
    seen = []
    for retain in (True, True, False):
        backward([b], retain_graph=retain)
        seen.append(a.grad.array.item())
    assert seen == [6.0, 12.0, 18.0]
    with pytest.raises(EngineError, match="Trying to backward through the graph a second time") as refusal:
        backward([b])
    assert refusal.value.reason is Reason.GRAPH_FREED
    assert a.grad.array.item() == 18.0


def test_a_graph_that_saved_nothing_can_be_walked_again() -> None:
    x = leaf(1.0)
    y = call("sum", (x + x + 2.0,))
    backward([y])
    backward([y])
    assert x.grad.array.tolist() == [4.0]


def test_accumulation_keeps_the_gradient_object() -> None:
    x = leaf(2.0)
    backward([x * x])
    first = x.grad
    backward([x * x])
    assert x.grad is first
    assert first.array.tolist() == [8.0]


def test_third_derivative_of_a_cube() -> None:
    a = leaf(3.0)
    results = []
    value = a * a * a
    for _ in range(3):
        (value,), _ = gradients([value], [a], create_graph=True)
        results.append(value.array.item())
    assert results == [27.0, 18.0, 6.0]


def test_a_constant_gradient_does_not_require_grad_with_create_graph() -> None:
    a = leaf(3.0)
    b = a * a
    retain_grad(b)
    backward([b], create_graph=True)
    assert a.grad.requires_grad
    assert not b.grad.requires_grad


def test_retained_gradients_arrive_at_non_leaves() -> None:
    a = leaf(3.0)
    b = a * 2.0
    retain_grad(b)
    backward([b * b])
    assert b.retains_grad
    assert b.grad.array.tolist() == [12.0]


def test_retain_grad_follows_the_tensor_through_an_in_place_op() -> None:
    a = leaf(3.0)
    b = a * 1.0
    retain_grad(b)
    call("mul_", (b, 5.0))
    backward([b * 2.0])
    assert b.grad.array.tolist() == [2.0]
    assert a.grad.array.tolist() == [10.0]


def test_in_place_on_a_non_leaf_differentiates_to_second_order() -> None:
    a = leaf(3.0)
    b = a * 1.0
    call("mul_", (b, a))
    (first,), _ = gradients([b], [a], create_graph=True)
    (second,), _ = gradients([first], [a])
    assert (b.array.item(), first.array.item(), second.array.item()) == (9.0, 6.0, 2.0)


def test_in_place_on_the_base_is_seen_through_an_older_view() -> None:
    x, w = leaf(1.0, 2.0), leaf(5.0, 7.0)
    base = x * 1.0
    view = base[0:1]
    call("mul_", (base, w))
    backward([call("sum", (view,))])
    assert w.grad.array.tolist() == [1.0, 0.0]
    assert x.grad.array.tolist() == [5.0, 0.0]


def test_in_place_on_a_view_rewrites_the_history_of_its_base() -> None:
    x = leaf(1.0, 2.0)
    base = x * 2.0
    view = base[0:1]
    call("mul_", (view, 3.0))
    assert (base.grad_fn.name, view.grad_fn.name) == ("CopySlices", "AsStridedBackward0")
    backward([call("sum", (base,))])
    assert x.grad.array.tolist() == [6.0, 2.0]


def test_a_graph_with_rewritten_bases_goes_with_its_last_tensor(context: Context) -> None:
    gc.disable()
    try:
        x = leaf(1.0, 2.0)
        held = context.account.bytes
        base = x * 2.0
        for _ in range(10):
            view = base[0:1]
            call("mul_", (view, x[1:]))
        backward([call("sum", (base,))], create_graph=False, retain_graph=True)
        x.grad = None
        del base, view
        assert context.account.bytes == held
    finally:
        gc.enable()


@pytest.mark.parametrize("through", ["the tensor", "a detached alias"])
def test_a_changed_saved_value_is_refused(through: str) -> None:
    x = leaf(1.0, 2.0)
    y = x * 2.0
    z = y * y
    call("add_", (y if through == "the tensor" else detach(y), 1.0))
    with pytest.raises(EngineError, match=r"modified by an inplace operation.*\[2\].*version 1; expected version 0"):
        backward([call("sum", (z,))])
    assert x.grad is None


def test_in_place_on_a_leaf_that_requires_grad_is_refused_but_allowed_without_grad_mode() -> None:
    x = leaf(1.0)
    with pytest.raises(EngineError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        call("add_", (x, 1.0))
    with grad_mode(False):
        call("add_", (x, 1.0))
    assert x.array.tolist() == [2.0]
    assert x.is_leaf and x.requires_grad


def test_in_place_on_a_view_of_a_leaf_is_refused() -> None:
    with pytest.raises(EngineError, match="a view of a leaf Variable that requires grad"):
        call("add_", (leaf(1.0, 2.0)[0:1], 1.0))


def test_writing_a_tensor_into_a_plain_one_makes_it_a_non_leaf() -> None:
    z, w = leaf(0.0, 0.0, grad=False), leaf(4.0)
    call("setitem_", (z, (0,), call("sum", (w,))))
    assert not z.is_leaf
    backward([call("sum", (z * z,))])
    assert w.grad.array.tolist() == [8.0]


def test_backward_refuses_what_has_no_graph_and_what_is_no_scalar() -> None:
    with pytest.raises(EngineError, match="element 0 of tensors does not require grad and does not have a grad_fn"):
        backward([leaf(1.0, grad=False)])
    with pytest.raises(EngineError, match="grad can be implicitly created only for scalar outputs"):
        backward([leaf(1.0, 2.0) * 2.0])


def test_unused_inputs_are_refused_or_none_or_zeros() -> None:
    x, unused = leaf(1.0), leaf(1.0, 2.0)
    with pytest.raises(EngineError, match="appears to not have been used in the graph"):
        gradients([x * x], [unused])
    assert gradients([x * x], [unused], allow_unused=True)[0] == [None]
    zeros = gradients([x * x], [unused], materialize_grads=True)[0][0]
    assert zeros.array.tolist() == [0.0, 0.0]


def test_backward_with_inputs_reaches_only_those() -> None:
    x, y = leaf(2.0), leaf(3.0)
    z = x * y
    backward([z * z], inputs=[y, z])
    assert x.grad is None
    assert y.grad.array.tolist() == [24.0]
    assert z.grad.array.tolist() == [12.0]


def test_a_backward_that_fails_midway_leaves_every_gradient_alone() -> None:
    good, bad = leaf(1.0), leaf(2.0)
    spoiled = bad * 2.0
    product = spoiled * spoiled
    call("add_", (spoiled, 1.0))
    total = product + good * 3.0
    with pytest.raises(EngineError, match="modified by an inplace operation"):
        backward([total])
    assert good.grad is None
    assert bad.grad is None


def test_several_roots_that_share_nodes_add_up() -> None:
    x = leaf(2.0)
    y = x * x
    backward([y, y * 3.0, y], [None, leaf(2.0, grad=False), None])
    assert x.grad.array.tolist() == [4.0 * (1 + 6 + 1)]


def test_a_chain_of_100_000_ops_goes_forward_and_back() -> None:
    x = leaf(1.0)
    y = x
    for _ in range(50_000):
        y = (y + 1.0) * 1.0
    backward([y])
    assert x.grad.array.tolist() == [1.0]
    del y


def test_ten_thousand_consumers_of_one_tensor_add_up() -> None:
    x = leaf(1.0)
    y = x * 1.0
    total = call("sum", (call("stack", ([y * 2.0 for _ in range(10_000)],)),))
    backward([total])
    assert x.grad.array.tolist() == [20_000.0]


def test_graphs_are_freed_by_reference_counts_alone(context: Context) -> None:
    gc.collect()
    gc.disable()
    try:
        x = leaf(1.0, 2.0)
        before = context.account.bytes
        y = call("exp", (x * 2.0,))
        node = weakref.ref(y.node)
        backward([call("sum", (y,))])
        x.grad = None
        del y
        assert node() is None
        assert context.account.bytes == before == 16
    finally:
        gc.enable()


def test_views_and_detached_tensors_are_counted_once(context: Context) -> None:
    x = tensor(np.zeros((10, 10), np.float32))
    views = [call("transpose", (x, 0, 1)), detach(x), x[0]]
    assert context.account.bytes == 400
    del x
    assert context.account.bytes == 400
    del views
    assert context.account.bytes == 0


def test_a_cancelled_backward_stops_between_nodes_and_changes_no_gradient() -> None:
    x = leaf(1.0)
    y = x
    for _ in range(100):
        y = y * 1.5
    interrupt = Polled([False] * 10 + [True])
    with activate(Context(interrupt=interrupt)), pytest.raises(EngineError) as refusal:
        backward([y])
    assert refusal.value.reason is Reason.CANCELLED
    assert x.grad is None
    assert not interrupt.answers
    node, passed = y.grad_fn, 0
    while node.freed:
        node, passed = node.edges[0][0], passed + 1
    assert passed == 5  # one after each two looks, before and after a pause


def test_a_backward_that_pauses_gives_what_one_without_pauses_gives() -> None:
    def pass_both(interrupt: Interrupt | None) -> tuple[Any, Any, int]:
        x = leaf(0.5)
        y = x
        for _ in range(50):
            y = call("sin", (y,)) * x
        pauses = 0
        with activate(Context(interrupt=interrupt)):
            run = Gradients([y], [x], create_graph=True)
            for _ in run.to_end():
                pauses += 1
            (first,) = run.results(False, False)
            run = Backward([first])
            for _ in run.to_end():
                pauses += 1
            run.deliver()
        return first.array.tolist(), x.grad.array.tolist(), pauses

    *plain, none = pass_both(None)
    *paused, pauses = pass_both(Polled([False] * 100_000))
    assert paused == plain
    assert none == 0
    assert pauses > 200  # one before each node


def test_sessions_number_their_nodes_apart() -> None:
    """A backward that pauses before each node makes the same numbers, whatever another context makes meanwhile."""

    def numbers(between: Callable[[], None]) -> list[int]:
        with activate(Context(interrupt=Polled([False] * 100_000))):
            x = leaf(0.5)
            y = x
            for _ in range(20):
                y = y * x
            run = Gradients([y], [x], create_graph=True)
            steps = run.to_end()
            while next(steps, 0) is None:
                with activate(other):
                    between()
            (slope,) = run.results(False, False)
        found, waiting = set(), [slope.grad_fn]
        while waiting:
            node = waiting.pop()
            if isinstance(node, Node) and node.seq not in found:
                found.add(node.seq)
                waiting.extend(edge[0] for edge in node.edges if edge is not None)
        return sorted(found)

    other = Context()
    alone = numbers(lambda: None)
    beside = numbers(lambda: leaf(1.0) * 2.0)
    assert len(alone) > 60
    assert beside == alone
    assert other.nodes.next > 20


def test_a_graph_of_two_contexts_has_its_gradients() -> None:
    """The second context numbers its nodes from 0 too, so a newer node may have a smaller number than an older one."""
    x = leaf(3.0)
    y = x
    for _ in range(5):
        y = y * 2.0
    with activate(Context()):
        z = y * y
        assert z.grad_fn.seq < y.grad_fn.seq
        (slope,), _ = gradients([z], [x])
    assert slope.array == 2 * 96.0 * 32.0


def test_gradients_never_share_memory_with_each_other_or_with_the_users() -> None:
    x, y, seed = (tensor(np.ones((3, 3)), flag) for flag in (True, True, False))
    total = x + y
    retain_grad(total)
    backward([total], [seed])
    arrays = [x.grad.array, y.grad.array, total.grad.array, seed.array]
    assert not any(np.shares_memory(a, b) for number, a in enumerate(arrays) for b in arrays[number + 1 :])
    call("mul_", (x.grad, 5.0))
    assert y.grad.array.tolist() == seed.array.tolist() == np.ones((3, 3)).tolist()


def test_gradients_in_another_shape_never_share_memory_either() -> None:
    given, x, y = tensor(np.ones((2, 3))), tensor(np.ones(6), True), tensor(np.ones((3, 2)), True)
    backward([call("reshape", (x, (2, 3))), call("reshape", (y, (2, 3)))], [given, given])
    assert x.grad is not None and y.grad is not None
    for one, other in ((x.grad, y.grad), (x.grad, given), (y.grad, given)):
        assert not np.shares_memory(one.array, other.array)


def test_a_new_gradient_in_another_shape_is_taken_over_without_a_copy() -> None:
    made = np.zeros((2, 3)).reshape(-1)
    where = made.__array_interface__["data"][0]
    pending = [made]
    del made
    assert own(pending.pop()).array.__array_interface__["data"][0] == where


def test_a_gradient_that_is_a_saved_value_is_copied() -> None:
    x, ones = tensor(np.ones((2, 2)), True), tensor(np.ones((2, 2)))
    backward([x * ones], [ones])
    call("add_", (x.grad, 1.0))
    assert ones.array.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_gradients_of_a_pass_that_is_recorded_are_tensors_of_their_own() -> None:
    x, y, seed = (tensor(np.ones((3, 3)), flag) for flag in (True, True, False))
    backward([x + y], [seed], create_graph=True)
    call("mul_", (x.grad, 5.0))
    assert y.grad.array.tolist() == seed.array.tolist() == np.ones((3, 3)).tolist()


def test_gradients_that_are_returned_may_be_changed_in_place() -> None:
    x, y, seed = leaf(1.0, 2.0), leaf(1.0, 2.0), leaf(1.0, 1.0, grad=False)
    (of_x, of_y, again), _ = gradients([x + y], [x, y, x], [seed])
    call("mul_", (of_x, 5.0))
    assert of_y.array.tolist() == again.array.tolist() == seed.array.tolist() == [1.0, 1.0]
    scalar = tensor(np.array(2.0), True)
    (slope,), _ = gradients([scalar * scalar], [scalar])
    call("mul_", (slope, 5.0))
    (stretched,), _ = gradients([call("sum", (x,))], [x])
    call("mul_", (stretched, 5.0))
    assert (slope.array.item(), stretched.array.tolist()) == (20.0, [5.0, 5.0])


def test_an_input_named_twice_receives_its_gradient_once() -> None:
    x = leaf(2.0)
    y = x * x
    retain_grad(y)
    backward([y * 3.0], inputs=[x, x, y])
    assert (x.grad.array.item(), y.grad.array.item()) == (12.0, 3.0)


def test_a_non_leaf_among_the_inputs_of_backward_retains_its_gradient() -> None:
    x = leaf(2.0)
    y = x * x
    backward([y * 3.0], inputs=[y])
    assert y.retains_grad
    assert x.grad is None


def test_a_gradient_is_retained_only_where_the_pass_has_to_go() -> None:
    x, w = leaf(2.0), leaf(3.0)
    aside = x * 2.0
    retain_grad(aside)
    gradients([aside + w, aside], [w])
    assert aside.grad is None


def test_a_leaf_switched_off_before_backward_receives_nothing() -> None:
    x = leaf(2.0)
    y = x * x
    set_requires_grad(x, False)
    backward([y])
    assert x.grad is None


def test_a_gradient_that_overlaps_itself_is_not_added_to() -> None:
    x, w = leaf(1.0, 2.0), leaf(1.0, 2.0)
    x.grad = call("expand", (leaf(1.0, grad=False), (2,)))
    with pytest.raises(EngineError, match="more than one element of the written-to tensor"):
        backward([call("sum", (x * w,))])
    assert x.grad.array.tolist() == [1.0, 1.0]
    assert w.grad is None


def test_a_real_gradient_of_a_complex_output_is_refused() -> None:
    with pytest.raises(EngineError, match="both grad_output and output are required to have the same dtype"):
        backward([leaf(1.0) * 1j], [leaf(1.0, grad=False)])


def test_an_older_view_as_an_operand_of_an_in_place_op_has_its_present_history() -> None:
    x, w = leaf(1.0, 2.0), leaf(5.0, 7.0)
    base, target = x * 1.0, leaf(1.0, 1.0) * 1.0
    view = base[0:2]
    call("mul_", (base, w))
    call("mul_", (target, view))
    backward([call("sum", (target,))])
    assert x.grad.array.tolist() == [5.0, 7.0]
    assert w.grad.array.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("op", ["copy_", "setitem_"])
def test_whole_numbers_that_are_overwritten_do_not_come_to_require_grad(op: str) -> None:
    whole, value = tensor(np.zeros(2, np.int64)), leaf(1.5, 2.5)
    call(op, (whole, value) if op == "copy_" else (whole, slice(0, 2), value))
    assert whole.array.tolist() == [1, 2]
    assert whole.is_leaf and not whole.requires_grad


def test_data_that_was_exchanged_counts_in_backward_at_the_same_version() -> None:
    x = leaf(1.0, 2.0)
    with grad_mode(False):
        call("add_", (x, 0.0))
    y = call("sum", (x * x,))
    set_data(x, leaf(10.0, 20.0, grad=False))
    assert x.storage.version == 1
    backward([y])
    assert x.grad.array.tolist() == [20.0, 40.0]


def test_exchanging_data_again_and_again_keeps_nothing() -> None:
    x = leaf(1.0)
    for _ in range(3):
        set_data(x, data(x))
    assert x.storage.owner.owner is None


def test_a_long_chain_of_views_keeps_only_its_base(context: Context) -> None:
    x = tensor(np.ones((2, 3)), True)
    y = x * 1.0
    first = y
    for _ in range(50_000):
        y = call("t", (y,))
    second = weakref.ref(call("t", (first,)))
    assert second() is None
    call("mul_", (first, 2.0))
    backward([call("sum", (y,))])
    assert x.grad.array.tolist() == np.full((2, 3), 2.0).tolist()
    del y, first
    x.grad = None
    assert context.account.bytes == 48


def test_a_part_of_a_larger_array_counts_as_the_whole_that_it_keeps(context: Context) -> None:
    part = tensor(np.zeros((10, 10))[2:4])
    stretched = tensor(np.broadcast_to(np.float64(1.0), (100,)))
    assert context.account.bytes == 800 + 8
    del part, stretched
    assert context.account.bytes == 0


def test_a_view_made_under_no_grad_says_that_it_requires_grad_but_receives_none() -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    with grad_mode(False):
        view = x[0:2]
    assert view.requires_grad and view.is_leaf
    backward([call("sum", (view * w,))])
    assert w.grad.array.tolist() == [1.0, 2.0]
    assert view.grad is None
    assert x.grad is None
    assert gradients([call("sum", (view * w,))], [view], allow_unused=True)[0] == [None]
    with pytest.raises(EngineError, match="does not require grad and does not have a grad_fn"):
        backward([view], [leaf(1.0, 1.0, grad=False)])


def test_batch_norm_of_no_samples_leaves_the_running_statistics() -> None:
    mean, variance = leaf(1.0, 2.0, grad=False), leaf(3.0, 4.0, grad=False)
    call("batch_norm", (tensor(np.zeros((0, 2))), mean, variance), {"training": True})
    assert (mean.array.tolist(), variance.array.tolist()) == ([1.0, 2.0], [3.0, 4.0])


@pytest.mark.parametrize("offset", [-(2**31), 2**31, -(2**62), 4, -4])
def test_a_diagonal_far_outside_is_empty(offset: int) -> None:
    x = tensor(np.ones((3, 4)), True)
    far = call("diagonal", (x, offset))
    assert far.shape == (0,)
    backward([call("sum", (far,))])
    assert not x.grad.array.any()
    assert call("diag", (x, offset)).shape == (0,)

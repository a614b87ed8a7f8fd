"""Refusals: in-place changes that PyTorch forbids, and array modules' errors in PyTorch's words."""

from types import SimpleNamespace

import numpy as np
import pytest

from gradwire_engine import Context, EngineError, Reason, Tensor, set_grad, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.op import refusals
from gradwire_engine.ops.index.index import getitem

OP = SimpleNamespace(name="stretch", promotes="same")


def _refusal(call, *args) -> EngineError:
    with pytest.raises(EngineError) as refusal:
        call(*args)
    return refusal.value


def test_a_leaf_and_a_view_of_one_may_not_be_changed_while_they_require_grad() -> None:
    leaf = tensor(np.ones(3), True)
    assert _refusal(refusals.check_in_place, leaf).reason is Reason.LEAF_IN_PLACE
    view = _refusal(refusals.check_in_place, getitem(leaf, slice(0, 2)))
    assert (view.reason, "a view of a leaf Variable" in view.message) == (Reason.LEAF_IN_PLACE, True)
    refusals.check_in_place(tensor(np.ones(3)))
    refusals.check_in_place(leaf * 2.0)


def test_one_of_several_views_may_not_be_changed() -> None:
    from gradwire_engine.ops.shape.shape import unbind

    part = unbind(tensor(np.ones((2, 2)), True) * 1.0)[0]
    assert _refusal(refusals.check_in_place, part).reason is Reason.RUNTIME


def test_inference_tensors_change_only_in_inference_mode() -> None:
    refusals.check_inference(Context(inference=True))
    assert "outside InferenceMode" in _refusal(refusals.check_inference, Context()).message


def test_an_array_whose_elements_share_memory_is_not_written_to() -> None:
    refusals.check_writable(np.ones((2, 3)))
    refusals.check_writable(np.broadcast_to(np.ones(()), (1, 1)))
    refusals.check_writable(np.broadcast_to(np.ones((1, 0)), (5, 0)))
    shown = np.broadcast_to(np.ones(3), (2, 3))
    assert refusals.shares_elements(shown)
    assert "clone()" in _refusal(refusals.check_writable, shown).message


def test_operands_may_lie_in_the_written_memory_alike_but_not_shifted() -> None:
    whole = np.arange(6.0)
    refusals.check_overlap(whole, whole)
    refusals.check_overlap(whole[:3], whole[3:])
    refusals.check_overlap(whole[:4], whole[:4])
    refusals.check_overlap(whole[::2], whole[1::2])
    assert "single memory location" in _refusal(refusals.check_overlap, whole[1:], whole[:-1]).message
    square = np.arange(4.0).reshape(2, 2)
    assert "single memory location" in _refusal(refusals.check_overlap, square, square.T).message


def test_operands_that_must_lie_apart_are_refused_even_inside_lists() -> None:
    x = tensor(np.arange(6.0))
    refusals.check_no_overlap(x.array, (tensor(np.ones(6)), 2.0, [None]))
    for given in ((x,), ([x],), (tensor(x.array[2:]),)):
        assert _refusal(refusals.check_no_overlap, x.array, given).reason is Reason.RUNTIME


@pytest.mark.parametrize(
    ("array", "dense"),
    [
        (np.ones((2, 3)), True),
        (np.ones((2, 3)).T, True),
        (np.ones((2, 1, 3)), True),
        (np.ones((2, 4))[:, :3], False),
        (np.broadcast_to(np.ones(3), (2, 3)), False),
        (np.ones(4)[::-1], False),
        (np.ones(()), True),
    ],
)
def test_dense_arrays_fill_their_memory_in_any_order_of_dimensions(array: np.ndarray, dense: bool) -> None:
    assert refusals.is_dense(array) is dense


def test_a_result_must_have_the_targets_shape_and_no_higher_kind() -> None:
    target = tensor(np.ones(2, np.int64))
    refusals.check_result("add", target, np.ones(2, np.int32))
    shape = _refusal(refusals.check_result, "add", target, np.ones((3, 2), np.int64))
    assert (shape.reason, "[2] doesn't match the broadcast shape [3, 2] in add_()" in shape.message) == (
        Reason.SHAPE,
        True,
    )
    dtype = _refusal(refusals.check_result, "div", target, np.ones(2, np.float32))
    assert (dtype.reason, "Float can't be cast to the desired output type Long" in dtype.message) == (
        Reason.DTYPE,
        True,
    )
    assert dtype.metadata == {"op": "div_"}


A, B = np.zeros((2, 3)), np.zeros((4,))


@pytest.mark.parametrize(
    ("error", "reason", "says"),
    [
        (MemoryError("9 GiB"), Reason.MEMORY_LIMIT, "not enough memory: 9 GiB"),
        (np.exceptions.AxisError(3, 2), Reason.DIM_OUT_OF_RANGE, "axis 3"),
        (IndexError("index 5"), Reason.INDEX_OUT_OF_RANGE, "index 5"),
        (OverflowError("too large"), Reason.ARGUMENT_VALUE, "a number is out of range: too large"),
        (
            TypeError("expected int"),
            Reason.ARGUMENT_TYPE,
            "stretch() got an invalid argument: expected int",
        ),
        (AttributeError("no shape"), Reason.ARGUMENT_TYPE, "no shape"),
        (TypeError("ufunc 'x' not supported for the input types"), Reason.NOT_SUPPORTED, "Double"),
        (
            ValueError("operands"),
            Reason.SHAPE,
            "tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
        ),
        (ZeroDivisionError("by zero"), Reason.SHAPE, "stretch was given shapes [2, 3] and [4]"),
    ],
)
def test_an_array_modules_error_is_told_in_pytorchs_words(error: Exception, reason: Reason, says: str) -> None:
    found = refusals.explain(OP, (A, B, 2.0), error)
    assert found.reason is reason
    assert says in found.message
    assert found.metadata == {"op": "stretch", "shapes": "[[2, 3], [4]]"}


def test_an_error_that_sizes_do_not_explain_is_told_as_it_is() -> None:
    found = refusals.explain(OP, (A, A), ValueError("odd"))
    assert (found.reason, found.message) == (Reason.RUNTIME, "stretch: odd (shapes [[2, 3], [2, 3]])")


def test_a_missing_loop_of_numpy_is_not_supported() -> None:
    with pytest.raises(TypeError) as error:
        np.bitwise_and(A, A)
    assert refusals.explain(OP, (A,), error.value).reason is Reason.NOT_SUPPORTED


def test_an_error_in_a_formula_is_told_as_one_of_backward() -> None:
    found = refusals.explain_backward(OP, A, [A], ValueError("odd"))
    assert found.message.startswith("backward of stretch: odd")


def test_a_gradient_of_other_sizes_names_all_three() -> None:
    x = tensor(np.ones(2))
    found = _refusal(refusals.refuse_changed, x, np.ones(3))
    assert (found.reason, "got [3] but expected shape compatible with [2]" in found.message) == (Reason.SHAPE, True)
    set_grad(x, Tensor(np.ones(2, dtypes.float64)))
    assert "its .grad is of shape [2]" in _refusal(refusals.refuse_changed, x, np.ones(3)).message

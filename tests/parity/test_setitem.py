"""x[key] = value in place: nodes, gradients, views and refusals as in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine import EngineError
from gradwire_engine.core import dtypes

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")

INDEX = np.array([0, 2])
MASK = np.array([True, False, True, True])
KEYS: list[Any] = [
    0,
    (0, 1),
    slice(1, 3),
    slice(None),
    Ellipsis,
    (),
    INDEX,
    MASK,
    (0, INDEX),
    (slice(1, 3), INDEX),
    (Ellipsis, 0),
    (None, 1),
    True,
]


def _both(key: Any, wrap: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(_both(item, wrap) for item in key)
    return wrap(key) if isinstance(key, np.ndarray) else key


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_setitem_rewrites_history_as_pytorch_does(key: Any) -> None:
    """A tensor for a value: the same node, values and gradients of both."""
    start, value = np.arange(20.0).reshape(4, 5), np.array(2.5)
    leaf, given = engine.tensor(start.copy(), True), engine.tensor(value.copy(), True)
    target = engine.call("mul", [leaf, 3.0])
    assert engine.call("setitem_", [target, _both(key, engine.tensor), given]) is target
    its_leaf, its_given = torch.tensor(start, requires_grad=True), torch.tensor(value, requires_grad=True)
    its = its_leaf * 3.0
    its[_both(key, torch.tensor)] = its_given
    assert target.grad_fn is not None
    assert target.grad_fn.name == its.grad_fn.name().rpartition("::")[2]
    np.testing.assert_array_equal(target.array, its.detach().numpy())
    weights = np.arange(1.0, 21.0).reshape(4, 5)
    engine.backward([target], [engine.tensor(weights)])
    its.backward(torch.tensor(weights))
    for mine, theirs in ((leaf, its_leaf), (given, its_given)):
        assert mine.grad is not None
        np.testing.assert_allclose(mine.grad.array, theirs.grad.numpy())


def test_setitem_of_a_number_on_a_plain_tensor_leaves_it_a_leaf() -> None:
    """Nothing requires grad, nothing is recorded; views see the change."""
    target = engine.tensor(np.zeros((2, 3)))
    row = engine.call("getitem", [target, 0])
    engine.call("setitem_", [target, (0, slice(1, 3)), 7.0])
    assert target.is_leaf
    np.testing.assert_array_equal(row.array, [0, 7, 7])
    assert target.storage.version == 1


def test_setitem_truncates_into_whole_numbers() -> None:
    """Unlike arithmetic in place, which refuses."""
    target = engine.tensor(np.zeros(3, np.int64))
    engine.call("setitem_", [target, 0, 2.7])
    engine.call("setitem_", [target, slice(1, 3), engine.tensor(np.array([-1.5, 3.9]))])
    np.testing.assert_array_equal(target.array, [2, -1, 3])


def test_changed_mask_is_noticed_in_backward() -> None:
    """An index tensor is saved with its version."""
    leaf = engine.tensor(np.ones(3), True)
    mask = engine.tensor(np.array([True, False, True]))
    chosen = engine.call("getitem", [leaf, (mask,)])
    engine.call("logical_not_", [mask])
    with pytest.raises(EngineError, match="modified by an inplace operation"):
        engine.backward([chosen], [engine.tensor(np.ones(2))])


@pytest.mark.parametrize(("key", "value"), [(0, np.ones(4)), (slice(0, 2), np.ones((3, 5))), (INDEX, np.ones((3, 5)))])
def test_value_that_does_not_fit_is_refused_and_changes_nothing(key: Any, value: np.ndarray) -> None:
    """Before a byte is written."""
    target = engine.tensor(np.zeros((4, 5)))
    with pytest.raises(EngineError, match="shape mismatch"):
        engine.call("setitem_", [target, _both(key, engine.tensor), engine.tensor(value)])
    assert not target.array.any()
    assert target.storage.version == 0


def test_advanced_indexing_adds_up_repeated_rows_in_every_dtype() -> None:
    """Through the sparse product, the flat addition, and float32 for half types."""
    places = np.array([0, 2, 0, 0])
    for dtype in dtypes.BY_NAME.values():
        if not dtypes.is_differentiable(dtype):
            continue
        for shape in ((3,), (3, 2), (3, 2, 2)):
            leaf = engine.tensor(np.ones(shape, dtype), True)
            chosen = engine.call("getitem", [leaf, (engine.tensor(places),)])
            engine.backward([chosen], [engine.tensor(np.ones(chosen.shape, dtype))])
            assert leaf.grad is not None
            got = leaf.grad.array.astype(np.complex128).reshape(3, -1)[:, 0]
            np.testing.assert_array_equal(got, [3, 0, 1])


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_a_value_of_one_element_fits_a_place_of_no_dimensions(shape: tuple[int, ...]) -> None:
    """x[0] = tensor([5.]): leading dimensions of size 1 fall away."""
    target, value = engine.tensor(np.zeros(3)), engine.tensor(np.full(shape, 5.0), True)
    engine.call("setitem_", [target, 0, value])
    engine.backward([engine.call("sum", [target])])
    assert target.array.tolist() == [5.0, 0.0, 0.0]
    assert value.grad is not None
    assert value.grad.array.shape == shape


def test_an_index_put_of_another_dtype_is_refused_but_for_a_single_value_under_a_mask() -> None:
    """As PyTorch has it: the mask is a masked_fill."""
    target, value = engine.tensor(np.zeros(4)), engine.tensor(np.array([1]))
    with pytest.raises(EngineError, match="Index put requires the source and destination dtypes match"):
        engine.call("setitem_", [target, (engine.tensor(INDEX),), value])
    engine.call("setitem_", [target, (engine.tensor(MASK),), value])
    assert target.array.tolist() == [1.0, 0.0, 1.0, 1.0]


def test_stretched_elements_may_be_filled_but_not_copied_into() -> None:
    """A fill writes the same everywhere; a row of a tensor stretched over rows is no overlap."""
    rows = engine.call("expand", [engine.tensor(np.zeros((1, 3))), (2, 3)])
    engine.call("fill_", [rows, 2.0])
    engine.call("setitem_", [rows, 0, engine.tensor(np.arange(3.0))])
    assert rows.array.tolist() == [[0.0, 1.0, 2.0]] * 2
    with pytest.raises(EngineError, match="more than one element of the written-to tensor"):
        engine.call("copy_", [rows, engine.tensor(np.ones((2, 3)))])
    empty = engine.tensor(np.zeros((0, 3)))
    engine.call("setitem_", [empty, Ellipsis, 1.0])
    assert empty.array.shape == (0, 3)

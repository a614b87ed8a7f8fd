"""Broadcasting, indexing and shape ops hold for whatever hypothesis draws: values as NumPy's, gradients by counting.

Ops that only move elements are linear, so their gradient follows from where each element went: apply the op to the
elements' numbers and add up what arrives at each. No oracle but NumPy is needed.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gradwire_engine import EngineError, Reason, Tensor, gradients, tensor
from gradwire_engine import call as call_op

quick = settings(max_examples=60)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
FULL_SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4)


def call(name: str, *args: Any) -> Any:
    return call_op(name, args)


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape) + 1.0


def weights(shape: tuple[int, ...]) -> np.ndarray:
    return np.cos(np.arange(int(np.prod(shape)), dtype=np.float64)).reshape(shape)


def gradient(out: Tensor, *inputs: Tensor) -> list[np.ndarray]:
    """Of the sum of the result times known weights."""
    found, _ = gradients([out], list(inputs), [tensor(weights(out.shape))])
    return [each.array for each in found if each is not None]


def moves(out: Tensor, x: Tensor, expected: np.ndarray, origin: np.ndarray) -> None:
    """The result is `expected`, and its gradient arrives at the elements numbered in `origin`."""
    assert out.shape == expected.shape
    np.testing.assert_array_equal(out.array, expected)
    arrived = np.zeros(x.array.size)
    np.add.at(arrived, origin.astype(np.int64).ravel() - 1, weights(out.shape).ravel())
    (found,) = gradient(out, x)
    np.testing.assert_allclose(found, arrived.reshape(x.shape), rtol=1e-12, atol=1e-12)


BINARY: dict[str, tuple[Any, Any, Any]] = {
    "add": (np.add, lambda a, b: 1.0, lambda a, b: 1.0),
    "sub": (np.subtract, lambda a, b: 1.0, lambda a, b: -1.0),
    "mul": (np.multiply, lambda a, b: b, lambda a, b: a),
    "div": (np.divide, lambda a, b: 1 / b, lambda a, b: -a / b**2),
    "hypot": (np.hypot, lambda a, b: a / np.hypot(a, b), lambda a, b: b / np.hypot(a, b)),
}


def reduced(whole: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Summed over what broadcasting stretched."""
    whole = whole.sum(axis=tuple(range(whole.ndim - len(shape))))
    return whole.sum(axis=tuple(n for n, size in enumerate(shape) if size == 1 != whole.shape[n]), keepdims=True)


@quick
@given(st.sampled_from(sorted(BINARY)), hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, min_side=0))
def test_operands_broadcast_and_their_gradients_are_summed_back(name: str, drawn: Any) -> None:
    compute, by_first, by_second = BINARY[name]
    first, second = drawn.input_shapes
    a, b = tensor(numbered(first), True), tensor(numbered(second) + 0.5, True)
    out = call(name, a, b)
    expected = compute(a.array, b.array)
    assert out.shape == expected.shape
    np.testing.assert_allclose(out.array, expected, rtol=1e-14)
    for found, slope, shape in zip(gradient(out, a, b), (by_first, by_second), (first, second), strict=True):
        whole = weights(out.shape) * np.broadcast_to(slope(a.array, b.array), out.shape)
        np.testing.assert_allclose(found, reduced(whole, shape), rtol=1e-10, atol=1e-10)


@quick
@given(SHAPES, SHAPES)
def test_shapes_that_do_not_broadcast_are_refused_by_name(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    a, b = tensor(numbered(first)), tensor(numbered(second))
    try:
        expected = np.broadcast_shapes(first, second)
    except ValueError:
        with pytest.raises(EngineError) as caught:
            call("add", a, b)
        assert caught.value.reason is Reason.SHAPE
    else:
        assert call("add", a, b).shape == expected


@quick
@given(st.data(), FULL_SHAPES)
def test_slices_ints_and_new_axes_pick_what_numpy_picks(data: st.DataObject, shape: tuple[int, ...]) -> None:
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True, max_dims=6))
    items = index if isinstance(index, tuple) else (index,)
    if any(isinstance(item, slice) and (item.step or 1) < 0 for item in items):
        with pytest.raises(EngineError):
            call("getitem", tensor(numbered(shape)), items)
        return
    x = tensor(numbered(shape), True)
    moves(call("getitem", x, items), x, x.array[index], x.array[index])


@quick
@given(st.data(), FULL_SHAPES)
def test_integer_tensors_and_masks_pick_what_numpy_picks(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = tensor(numbered(shape), True)
    if data.draw(st.booleans()):
        items: Any = (data.draw(hnp.arrays(np.bool_, shape[: data.draw(st.integers(1, len(shape)))])),)
    else:
        items = data.draw(hnp.integer_array_indices(shape, result_shape=hnp.array_shapes(max_dims=2, max_side=3)))
    picked = x.array[tuple(items)]
    moves(call("getitem", x, tuple(tensor(item) for item in items)), x, picked, picked)


@st.composite
def movements(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[str, tuple[Any, ...], Any]:
    """An op that moves elements, its arguments, and NumPy's way of doing it."""
    ndim = len(shape)
    dims = st.integers(-ndim, ndim - 1)
    kind = draw(
        st.sampled_from(
            ["permute", "flip", "roll", "transpose", "unsqueeze", "reshape", "repeat", "expand", "diagonal"]
        )
    )
    if kind == "permute":
        order = draw(st.permutations(range(ndim)))
        return kind, (tuple(order),), lambda x: x.transpose(order)
    if kind == "flip":
        axes = tuple(draw(st.sets(st.integers(0, ndim - 1))))
        return kind, (axes,), lambda x: np.flip(x, axes)
    if kind == "roll":
        shift, axis = draw(st.integers(-7, 7)), draw(dims)
        return kind, ((shift,), (axis,)), lambda x: np.roll(x, shift, axis)
    if kind == "transpose":
        one, other = draw(dims), draw(dims)
        return kind, (one, other), lambda x: np.swapaxes(x, one, other)
    if kind == "unsqueeze":
        place = draw(st.integers(-ndim - 1, ndim))
        return kind, (place,), lambda x: np.expand_dims(x, place)
    if kind == "reshape":
        first = draw(st.sampled_from([n for n in range(1, 257) if int(np.prod(shape)) % n == 0]))
        return kind, ((first, -1),), lambda x: x.reshape(first, -1)
    if kind == "repeat":
        times = tuple(draw(st.lists(st.integers(0, 3), min_size=ndim, max_size=ndim + 1)))
        return kind, (times,), lambda x: np.tile(x, times)
    if kind == "expand":
        size = (draw(st.integers(1, 3)), *(draw(st.integers(0, 3)) if n == 1 else n for n in shape))
        return kind, (size,), lambda x: np.broadcast_to(x, size)
    if ndim < 2:
        return "flip", ((0,),), lambda x: np.flip(x, 0)
    one, other = draw(st.permutations(range(ndim)))[:2]
    offset = draw(st.integers(-2, 2))
    return kind, (offset, one, other), lambda x: np.diagonal(x, offset, one, other)


@quick
@given(st.data(), FULL_SHAPES)
def test_shape_ops_in_any_order_move_elements_as_numpy_does(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = tensor(numbered(shape), True)
    out, expected = x, x.array
    for _ in range(data.draw(st.integers(1, 4))):
        if not expected.ndim or not expected.size or expected.size > 5000:
            break
        name, args, compute = data.draw(movements(expected.shape))
        out, expected = call(name, out, *args), compute(expected)
    moves(out, x, expected, expected)


@quick
@given(st.data(), FULL_SHAPES)
def test_what_is_cut_apart_joins_again(data: st.DataObject, shape: tuple[int, ...]) -> None:
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    size = data.draw(st.integers(1, 5))
    x = tensor(numbered(shape), True)
    parts = call("split", x, size, dim)
    places = list(range(size, shape[dim], size))
    for part, expected in zip(parts, np.split(x.array, places, dim), strict=True):
        np.testing.assert_array_equal(part.array, expected)
    moves(call("cat", list(parts), dim), x, x.array, x.array)

"""Max pooling by loops: which calls ask for a loop, and which are left to NumPy."""

import itertools
from typing import Any

import numpy as np
import pytest

from gradwire_engine.ops.base.loops import LEAST
from gradwire_engine.ops.nn.pooling import max_loops
from gradwire_engine.ops.nn.windows import Window


def window(size: tuple[int, ...], kernel: tuple[int, ...]) -> Window:
    ones = (1,) * len(size)
    return Window(size, kernel, ones, (0,) * len(size), ones)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the loops that are asked for. There are none."""
    names: list[str] = []
    monkeypatch.setattr(max_loops, "find", lambda loops, name, *rest: names.append(name))
    return names


def image(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


_SIDE = int(LEAST**0.5) + 1
_NO_LOOPS: Any = None  # as `find` is replaced


def test_large_images_of_both_dtypes_ask_for_a_loop(asked: list[str]) -> None:
    for dtype in (np.float32, np.float64):
        whole = image((1, _SIDE, _SIDE), dtype)
        windows = window((_SIDE, _SIDE), (8, 8))  # as many kernel positions as a loop takes
        which = np.zeros((1, *windows.output), np.uint8)
        assert max_loops.maxima(_NO_LOOPS, windows, whole) is None
        assert max_loops.picked(_NO_LOOPS, windows, whole, which) is None
        ones = window((_SIDE, _SIDE), (1, 1))
        assert max_loops.scattered(_NO_LOOPS, ones, whole, np.zeros(whole.shape, np.uint8)) is None
    assert asked == ["max_pool", "max_pick", "max_unpool"] * 2


def test_other_calls_are_left_to_numpy(asked: list[str]) -> None:
    small, wide = window((3, 3), (2, 2)), window((_SIDE, _SIDE), (5, 13))
    square, line = window((_SIDE, _SIDE), (2, 2)), window((_SIDE,), (2,))
    for windows, whole in (
        (small, image((1, 3, 3))),
        (wide, image((1, _SIDE, _SIDE))),  # positions of 65 elements
        (line, image((_SIDE, _SIDE))),
        (square, image((1, _SIDE, _SIDE)).swapaxes(1, 2)[:, ::-1]),
        (square, image((1, _SIDE, _SIDE), np.float16)),
        (square, image((1, _SIDE, _SIDE), np.int64)),
    ):
        assert max_loops.maxima(_NO_LOOPS, windows, whole) is None
    whole = image((1, _SIDE, _SIDE))
    places = np.zeros((1, *square.output), np.int64)  # of wider windows: no bytes
    assert max_loops.picked(_NO_LOOPS, square, whole, places) is None
    assert max_loops.scattered(_NO_LOOPS, square, image(places.shape), places) is None
    assert asked == []


@pytest.mark.parametrize(("stride", "padding", "dilation"), [*itertools.product((1, 2, 3), (0, 1, 2), (1, 2))])
def test_windows_that_need_no_look_at_their_elements_are_all_that_have_no_padding(
    stride: int, padding: int, dilation: int
) -> None:
    for size, kernel, ceil_mode in itertools.product((5, 8, 13), (1, 3, 4), (False, True)):
        windows = Window((size,), (kernel,), (stride,), (padding,), (dilation,), ceil_mode)
        (count,) = windows.output
        if count < 1:
            continue
        begins = np.arange(count) * stride - padding
        inside = np.flatnonzero((begins >= 0) & (begins + dilation * (kernel - 1) < size))
        first, end = max_loops._inside(count, size, stride, padding, kernel, dilation)
        assert list(range(first, end)) == list(inside)
        assert 0 <= first <= end <= count

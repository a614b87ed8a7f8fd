"""Rules for the bounds of results, on arrays of the stand-in for CuPy; tensors in host memory have none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.core import device as devices
from gradwire_engine.core.context import Context, activate
from gradwire_engine.core.index_bounds import IGNORED, known, note
from gradwire_engine.graph.tensor import set_version
from gradwire_engine.op.integer_bounds import joined, like_input, note_positions, positions
from tests.gpu import stand_in


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with stand_in.installed(), activate(Context()):
        yield


def on_gpu(values: Any, dtype: str = "int64") -> engine.Tensor:
    given = np.array(values, dtype)
    made = engine.tensor(devices.to_device(given, "cuda:0"))
    note(made.storage, made.array, given)
    return made


def test_positions_are_below_the_size_of_their_dimension() -> None:
    x = on_gpu(np.zeros((3, 5)), "float32")
    assert positions(1)((x, 1)) == [(0, 4)]
    assert positions(1)((x, -2)) == [(0, 2)]
    assert positions(1)((x, None)) == [(0, 14)]
    assert positions(2, 1)((x, 0, 0)) == [None, (0, 2)]
    assert positions(1)((on_gpu(1.0, "float32"), 0)) == [(0, 0)]


def test_a_selection_has_its_operands_bounds() -> None:
    (found,) = like_input((on_gpu([3, IGNORED, 8]),))
    assert found is not None
    assert (found.least, found.most, found.ignored) == (3, 8, True)
    assert like_input((on_gpu([1.0], "float32"),)) == [None]
    assert like_input((engine.tensor(np.array([1, 2])),)) == [None]
    assert like_input((np.array([1, 2]),)) == [None]


def test_joined_tensors_have_the_bounds_of_all() -> None:
    parts = [on_gpu([3, 5]), on_gpu([-7]), on_gpu([4, IGNORED])]
    assert joined((parts, 0)) == [(-7, 5, True)]
    assert joined(([*parts, engine.tensor(devices.to_device(np.array([1]), "cuda:0"))], 0)) == [None]
    assert joined(([parts[0], on_gpu([3], "int32")], 0)) == [None]
    assert joined(([], 0)) == [None]


def test_a_version_that_was_set_says_nothing_of_bounds() -> None:
    made = on_gpu([1, 2])
    version = made.storage.version
    assert known(made.storage, made.array) is not None
    made.array[0] = 90
    set_version(made, version)
    assert known(made.storage, made.array) is None


def test_bounds_that_a_dtype_cannot_hold_are_not_noted() -> None:
    for most, kept in ((255, True), (256, False)):
        made = engine.tensor(devices.to_device(np.array([1, 2], np.uint8), "cuda:0"))
        note_positions(made, 0, most)
        assert (made.storage.bounds is not None) is kept
    host = engine.tensor(np.array([1, 2]))
    note_positions(host, 0, 2)
    assert host.storage.bounds is None

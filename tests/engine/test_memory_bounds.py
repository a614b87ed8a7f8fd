"""as_strided reaches no memory but the tensor's own, whatever views lie between."""

import numpy as np
import pytest

import gradwire_engine as engine


def strided(name, *args):
    return engine.call(name, (engine.tensor(np.arange(6.0)), *args))


@pytest.mark.parametrize(
    "view", [("as_strided", (3, 4), (1, 1)), ("unfold", 0, 3, 1), ("expand", (100, 6))], ids=lambda view: view[0]
)
def test_as_strided_of_an_overlapping_view_stays_within_the_memory_behind_it(view):
    shown = strided(*view)
    with pytest.raises(engine.EngineError, match="out of bounds for storage of size 48"):
        engine.call("as_strided", (shown, (7,), (1,)))
    assert engine.call("as_strided", (shown, (2, 3), (3, 1))).array.tolist() == [[0, 1, 2], [3, 4, 5]]

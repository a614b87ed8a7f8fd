"""Matrices without an inverse or a factor: PyTorch raises its own LinAlgError, in the same words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.errors import EngineError, Reason

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")

SINGULAR = [[1.0, 2.0], [2.0, 4.0]]


def _refusals(name: str, *given: Any) -> tuple[EngineError, str]:
    with pytest.raises(EngineError) as ours:
        engine.call(name, [engine.tensor(np.array(value)) for value in given])
    function = getattr(torch.linalg, name.removeprefix("linalg."))
    with pytest.raises(torch.linalg.LinAlgError) as theirs:
        function(*(torch.tensor(value, dtype=torch.float64) for value in given))
    return ours.value, str(theirs.value)


@pytest.mark.parametrize("matrix", [SINGULAR, [np.eye(2).tolist(), SINGULAR]], ids=["one", "batch"])
def test_singular_matrix_is_refused_naming_the_pivot(matrix: Any) -> None:
    """The sentence, the pivot and the batch element are PyTorch's."""
    for name, more in (("linalg.inv", ()), ("linalg.solve", (np.ones((2, 1)).tolist(),))):
        ours, theirs = _refusals(name, matrix, *more)
        assert ours.reason is Reason.RUNTIME
        assert ours.message == theirs

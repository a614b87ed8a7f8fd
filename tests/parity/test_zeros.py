"""Signs of zeros, which comparisons of values do not see."""

from __future__ import annotations

import numpy as np
import pytest

import gradwire_engine as engine

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")


@pytest.mark.parametrize("name", ["remainder", "fmod"])
def test_zero_that_is_left_of_dividing_has_pytorchs_sign(name: str) -> None:
    """The dividend's."""
    dividends, divisors = np.array([-4.0, 4.0, 0.0, -0.0]), np.array([2.0, -2.0, -3.0, 3.0])
    ours = engine.call(name, [engine.tensor(dividends), engine.tensor(divisors)])
    theirs = getattr(torch, name)(torch.tensor(dividends), torch.tensor(divisors))
    np.testing.assert_array_equal(np.signbit(ours.array), np.signbit(theirs.numpy()))

"""Gamma and Dirichlet numbers: their derivatives are changes of quantiles; what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

from gradwire_engine import Context, EngineError, Generator, activate, tensor
from gradwire_engine.ops.random import gammas

ALPHA = np.array([0.05, 0.7, 1.0, 3.5, 9.0, 120.0])
BETA = np.array([3.0, 2.5, 1.0, 7.0, 0.7, 60.0])
LEVEL = np.array([0.4, 0.01, 0.5, 0.99, 0.3, 0.7])


def slope(quantile: Any) -> Any:
    """How a quantile moves with the concentration."""
    step = 1e-4 * ALPHA
    return (quantile(ALPHA + step) - quantile(ALPHA - step)) / (2 * step)


def test_a_gamma_number_moves_like_its_quantile() -> None:
    x = special.gammaincinv(ALPHA, LEVEL)
    found = gammas.standard_gamma_grad(tensor(ALPHA), tensor(x)).array
    np.testing.assert_allclose(found, slope(lambda at: special.gammaincinv(at, LEVEL)), rtol=1e-6)


def test_a_part_of_a_dirichlet_vector_moves_like_its_quantile() -> None:
    x = special.betaincinv(ALPHA, BETA, LEVEL)
    found = gammas.dirichlet_grad(tensor(x), tensor(ALPHA), tensor(ALPHA + BETA)).array
    expected = slope(lambda at: special.betaincinv(at, BETA, LEVEL)) / (1 - x)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("algorithm", ["mt19937", "pcg64"])
def test_numbers_have_their_moments_and_zero_and_nan_stay(algorithm: str) -> None:
    given = np.broadcast_to(np.array([0.3, 1.0, 6.0, 0.0, np.nan, -3.0]), (20000, 6))
    with activate(Context(generator=Generator(1, algorithm))):
        drawn = gammas.standard_gamma(tensor(given)).array
        parts = gammas.sample_dirichlet(tensor(given[:100, :3])).array
    np.testing.assert_allclose(drawn.mean(0)[:3], [0.3, 1.0, 6.0], rtol=0.05)
    np.testing.assert_allclose(drawn.var(0)[:3], [0.3, 1.0, 6.0], rtol=0.1)
    assert (drawn[:, 3] == np.finfo(np.float64).tiny).all() and np.isnan(drawn[:, 4:]).all()
    np.testing.assert_allclose(parts.sum(-1), 1, rtol=1e-6)


def test_integers_are_refused() -> None:
    with activate(Context(generator=Generator(1))), pytest.raises(EngineError, match="not implemented for 'Long'"):
        gammas.standard_gamma(tensor(np.array([1, 2])))

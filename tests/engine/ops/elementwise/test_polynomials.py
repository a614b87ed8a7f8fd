"""Orthogonal polynomials: the values of SciPy's, of all degrees at once; degrees that PyTorch refuses to compute."""

import numpy as np
import pytest
from scipy import special

from gradwire_engine import REGISTRY, tensor
from gradwire_engine.ops.elementwise import polynomials

SCIPY = {
    "chebyshev_polynomial_t": special.eval_chebyt, "chebyshev_polynomial_u": special.eval_chebyu,
    "shifted_chebyshev_polynomial_t": special.eval_sh_chebyt, "shifted_chebyshev_polynomial_u": special.eval_sh_chebyu,
    "hermite_polynomial_h": special.eval_hermite, "hermite_polynomial_he": special.eval_hermitenorm,
    "laguerre_polynomial_l": special.eval_laguerre, "legendre_polynomial_p": special.eval_legendre,
}  # fmt: skip


@pytest.mark.parametrize("name", SCIPY)
def test_values_are_scipys(name: str) -> None:
    x, n = np.linspace(-1.7, 1.7, 35), np.arange(40)[:, None]
    found = REGISTRY[f"special.{name}"](tensor(x), tensor(n.astype(np.float64))).array
    np.testing.assert_allclose(found, SCIPY[name](n, x), rtol=1e-9, atol=1e-9)


def test_a_huge_degree_ends_where_values_overflow() -> None:
    found = REGISTRY["special.chebyshev_polynomial_t"](tensor(np.array([2.0, 0.5])), 1e15).array
    assert not np.isfinite(found[0]) and abs(found[1]) <= 1


def test_hermite_polynomials_beyond_pytorchs_limit_are_nan() -> None:
    degrees = tensor(np.array([512.0, 513.0]))
    found = REGISTRY["special.hermite_polynomial_he"](tensor(np.array([0.5, 0.5])), degrees).array
    assert np.isnan(found).tolist() == [bool(np.isnan(found[0])), True]
    assert polynomials.__doc__


def test_hermite_polynomials_of_float32_are_as_exact_as_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    x = np.linspace(-8, 8, 999, dtype=np.float32)
    found = REGISTRY["special.hermite_polynomial_he"](tensor(x), 9).array
    exact = special.eval_hermitenorm(9, x.astype(np.float64))
    theirs = torch.special.hermite_polynomial_he(torch.from_numpy(x), 9).numpy()
    assert found.dtype == np.float32 and np.abs(found - exact).sum() <= np.abs(theirs - exact).sum()

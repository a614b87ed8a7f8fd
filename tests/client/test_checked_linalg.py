"""cholesky_ex and inv_ex: results, infos and gradients as PyTorch's; only `check_errors` raises."""

import pytest

from tests.client.oracle import agree, refuse

pytestmark = pytest.mark.usefixtures("session")

GOOD = [[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]]
INDEFINITE = [[4.0, 1.0, 0.5], [1.0, -3.0, 0.2], [0.5, 0.2, 2.0]]
SINGULAR = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]]


def _given(t, *matrices, **options):
    return t.tensor(matrices[0] if len(matrices) == 1 else matrices, dtype=t.float64, **options)


@pytest.mark.parametrize("name", ["cholesky_ex", "inv_ex"])
def test_results_infos_and_gradients_of_matrices_that_do_not_fail(name):
    def case(t):
        A = _given(t, GOOD, GOOD, requires_grad=True)
        made, info = getattr(t.linalg, name)(A)
        (made * t.arange(18, dtype=t.float64).reshape(2, 3, 3)).sum().backward()
        return made, info, str(info.dtype), A.grad, type(getattr(t.linalg, name)(A.detach())).__name__

    agree(case)


def test_the_upper_factor_and_tensors_for_the_results():
    agree(lambda t: tuple(t.linalg.cholesky_ex(_given(t, GOOD), upper=True)))

    def case(t):
        out = t.empty(3, 3, dtype=t.float64), t.empty((), dtype=t.int32)
        t.linalg.inv_ex(_given(t, GOOD), out=out)
        return out

    agree(case)


@pytest.mark.parametrize(("name", "bad"), [("cholesky_ex", INDEFINITE), ("inv_ex", SINGULAR)])
def test_a_matrix_that_fails_has_an_info_and_spoils_no_other(name, bad):
    def case(t):
        made, info = getattr(t.linalg, name)(_given(t, GOOD, bad, GOOD))
        return info, made[0], made[2]

    agree(case)
    agree(lambda t: getattr(t.linalg, name)(_given(t, bad)).info)


@pytest.mark.parametrize(("name", "bad"), [("cholesky_ex", INDEFINITE), ("inv_ex", SINGULAR)])
def test_check_errors_raises(name, bad):
    refuse(lambda t: getattr(t.linalg, name)(_given(t, bad), check_errors=True), RuntimeError, "linalg")

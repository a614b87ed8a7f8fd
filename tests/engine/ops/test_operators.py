"""Python's operators on Tensors call the ops, in the order of the operands, and record."""

import operator

import numpy as np
import pytest

from gradwire_engine import Tensor, gradients, tensor
from gradwire_engine.ops import operators

X, Y = np.array([4.0, -3.0, 2.5]), np.array([2.0, 2.0, -1.5])


@pytest.fixture(autouse=True)
def _attached() -> None:
    operators.attach()  # again: the result is the same


@pytest.mark.parametrize("sign", ["add", "sub", "mul", "truediv", "gt", "ge", "lt", "le"])
def test_an_operator_of_two_tensors_is_numpys(sign: str) -> None:
    found = getattr(operator, sign)(tensor(X), tensor(Y))
    np.testing.assert_array_equal(found.array, getattr(operator, sign)(X, Y))


@pytest.mark.parametrize("sign", ["add", "sub", "mul", "truediv"])
def test_a_number_may_stand_on_either_side(sign: str) -> None:
    apply = getattr(operator, sign)
    np.testing.assert_array_equal(apply(tensor(X), 2.0).array, apply(X, 2.0))
    np.testing.assert_array_equal(apply(2.0, tensor(X)).array, apply(2.0, X))


def test_logic_matrices_powers_and_keys() -> None:
    x, matrix = tensor(X), np.arange(9.0).reshape(3, 3)
    np.testing.assert_array_equal((-x).array, -X)
    np.testing.assert_array_equal(((x > 0) & (x < 3)).array, (X > 0) & (X < 3))
    np.testing.assert_array_equal(((x < 0) | (x > 3)).array, (X < 0) | (X > 3))
    np.testing.assert_array_equal((~(x > 0)).array, ~(X > 0))
    np.testing.assert_array_equal((tensor(matrix) @ x).array, matrix @ X)
    np.testing.assert_array_equal((x**2).array, X**2)
    np.testing.assert_array_equal((x**3).array, X**3)
    np.testing.assert_array_equal(x[1:].array, X[1:])


def test_equality_is_identity_so_that_tensors_can_be_keys() -> None:
    x, same = tensor(X), tensor(X)
    assert x == x
    assert x != same
    assert len({x, same}) == 2


def test_what_an_operator_makes_is_recorded() -> None:
    x = tensor(X, True)
    out = 1.0 / x - x
    assert isinstance(out, Tensor)
    (found,), _ = gradients([out], [x], [tensor(np.ones(3))])
    np.testing.assert_allclose(found.array, -1 / X**2 - 1)

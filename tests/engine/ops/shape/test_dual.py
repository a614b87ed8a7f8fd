"""Duals as ops: a tangent by a token, its absence, and the end of a level."""

import numpy as np

from gradwire_engine import tensor
from gradwire_engine.core.context import Context, activate
from gradwire_engine.ops.shape import dual


def test_a_tangent_is_found_by_its_token_until_its_level_ends() -> None:
    with activate(Context()):
        token, x, v = tensor(np.zeros(())), tensor(np.ones(3)), tensor(np.arange(3.0))
        made = dual.make_dual(x, v, token, 1)
        np.testing.assert_array_equal(dual.dual_tangent(made * 2, token).array, [0.0, 2.0, 4.0])
        plain = dual.dual_primal(made, token)
        assert np.shares_memory(plain.array, x.array)
        np.testing.assert_array_equal(dual.dual_tangent(plain, token).array, np.zeros(3))
        dual.exit_dual_level(token)
        np.testing.assert_array_equal(dual.dual_tangent(made, token).array, np.zeros(3))

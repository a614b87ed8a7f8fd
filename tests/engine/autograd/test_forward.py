"""Forward mode in the engine: levels, the rules, the passes behind them, and what an op without duals does."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine import Context, EngineError, activate, tensor
from gradwire_engine.autograd.forward import ForwardMode
from gradwire_engine.autograd.tangent_rules import _DERIVED
from gradwire_engine.op.declaration import OPS


@pytest.fixture
def mode():
    made = ForwardMode()
    with activate(Context(duals=made)):
        yield made


def level():
    return tensor(np.zeros(()))


def test_a_context_has_no_duals_until_one_is_made(mode):
    assert not mode.active
    assert Context().duals is not Context().duals
    token = level()
    dual = mode.make(tensor(np.ones(3)), tensor(np.arange(3.0)), token, 1)
    assert mode.active
    np.testing.assert_array_equal(mode.tangent(dual * 2.0, token).array, [0, 2, 4])
    mode.leave(token)
    assert not mode.active
    assert not mode.described(dual)


def test_levels_are_apart(mode):
    one, two = level(), level()
    x = mode.make(tensor(np.array([3.0])), tensor(np.array([1.0])), one, 1)
    y = mode.make(x * x, tensor(np.array([10.0])), two, 2)
    z = y * y  # x^4, and y^2 by y
    inner = mode.tangent(z, two)
    assert [depth for depth, _ in mode.described(z)] == [1, 2]
    assert mode.tangent(z, one).array == 4 * 27
    assert inner.array == 2 * 9 * 10
    assert mode.tangent(inner, one).array == 2 * 6 * 10
    mode.leave(two)
    assert [depth for depth, _ in mode.described(z)] == [1]


def test_levels_side_by_side_do_not_mix(mode):
    one, other = level(), level()
    x, y = (mode.make(tensor(np.ones(2)), tensor(np.ones(2)), token, 1) for token in (one, other))
    with pytest.raises(EngineError, match="side by side"):
        x * y
    assert mode.active
    mode.leave(one)
    mode.leave(other)
    assert not mode.active


def test_a_dropped_token_closes_its_level(mode):
    token = level()
    dual = mode.make(tensor(np.ones(2)), tensor(np.ones(2)), token, 1)
    del token
    gc.collect()
    assert not mode.active
    assert not mode.described(dual)


def test_a_pass_of_a_tangent_ends_at_the_operands(mode):
    """The history of an op's operands is not gone through for its tangent, and stays as it is."""
    x = tensor(np.array([0.5, 0.25]), True)
    y = x
    for _ in range(2000):
        y = y * 1.0
    before = y.node.edges
    token = level()
    dual = mode.make(y, tensor(np.ones(2)), token, 1)
    out = engine.call("linalg.matrix_exp", (engine.call("diag", (dual,)),))
    tangent = mode.tangent(out, token)
    assert y.node.edges is before
    (slope,), _ = engine.gradients([tangent], [x], [tensor(np.eye(2))])
    np.testing.assert_allclose(slope.array, np.exp([0.5, 0.25]))


def test_every_rule_is_a_known_kind():
    kinds = {op.tangent_rule for op in OPS.values() if isinstance(op.tangent_rule, str)}
    assert kinds == _DERIVED.keys()
    assert all(op.differentiable for op in OPS.values() if op.tangent_rule is not None)


def test_the_common_ops_have_rules():
    """Those that programs consist of; others take their formulas' adjoint."""
    wanted = (
        "add sub mul div neg exp log sin cos tanh sigmoid relu gelu silu pow where clamp maximum mm bmm addmm baddbmm "
        "mv dot _linear_addmm _convolution sum mean var std prod amax logsumexp softmax log_softmax _layer_norm "
        "_batch_norm _group_norm reshape permute transpose expand cat stack select _slice _index gather index_select "
        "_embedding cumsum cummax sort topk linalg.inv linalg.det linalg.cholesky _mse_loss _nll_loss _max_dim "
        "masked_fill copy"
    )
    assert not [name for name in wanted.split() if OPS[name].tangent_rule is None]


def test_in_place_ops_of_duals_are_not_recorded_wrongly(mode):
    token = level()
    w = tensor(np.array([2.0, 3.0]), True)
    dual = mode.make(tensor(np.array([1.0, 4.0])), tensor(np.ones(2)), token, 1)
    y = dual * w
    y = OPS["mul"].in_place((y, y))  # (w x)^2: its tangent is 2 w^2 x
    tangent = mode.tangent(y, token)
    np.testing.assert_array_equal(tangent.array, [8, 72])
    (slope,), _ = engine.gradients([tangent], [w], [tensor(np.ones(2))])
    np.testing.assert_array_equal(slope.array, [8, 48])

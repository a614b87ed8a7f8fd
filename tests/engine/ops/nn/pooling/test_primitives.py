"""Large windows' maxima: as PyTorch has them, values and indices, ties, nan, -inf and padding included."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import gradwire_engine as engine
from gradwire_engine.ops.nn.pooling import primitives

CALLS = [
    ((1, 2, 40, 37), (13, 9), 1, 0, 1, False),
    ((2, 1, 40, 37), (12, 15), (1, 2), (6, 7), 1, True),
    ((1, 1, 60, 50), (11, 10), (2, 1), (3, 5), (3, 2), False),
    ((1, 1, 300), (130,), 1, 60, 1, False),
    ((1, 1, 12, 14, 15), (5, 6, 7), 1, (2, 3, 3), 1, True),
]


def given(kind: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    rng = np.random.default_rng(5)
    values = rng.integers(0, 4, shape).astype(dtype) if kind == "ties" else rng.standard_normal(shape).astype(dtype)
    if kind == "nan":
        values[rng.random(shape) < 0.02] = np.nan
    if kind == "infinite":
        values[:] = -np.inf
        values[rng.random(shape) < 0.01] = np.inf
    return values


@pytest.mark.parametrize("kind", ["ties", "values", "nan", "infinite"])
@pytest.mark.parametrize("call", CALLS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_large_windows_maxima_are_as_pytorch_has_them(call, kind, dtype, monkeypatch):
    shape, *options = call
    monkeypatch.setattr(primitives, "_is_wide", lambda xp, window: True)
    values = given(kind, shape, dtype)
    name = f"max_pool{len(shape) - 2}d"
    theirs = torch.tensor(values, requires_grad=True)
    stride, padding, dilation, ceil_mode = options[1:]
    expected, places = getattr(F, name)(theirs, options[0], stride, padding, dilation, ceil_mode, True)
    ours = engine.tensor(values, True)
    made, found = engine.call(name, [ours, options[0], stride, padding, dilation, ceil_mode, True])
    np.testing.assert_array_equal(made.array, expected.detach().numpy())
    np.testing.assert_array_equal(found.array, places.numpy())
    weights = np.random.default_rng(6).standard_normal(made.shape).astype(dtype)
    engine.backward([made], [engine.tensor(weights)])
    expected.backward(torch.tensor(weights))
    np.testing.assert_allclose(ours.grad.array, theirs.grad.numpy(), rtol=1e-5, atol=1e-5)


def test_the_derivative_of_the_derivative_of_large_windows_picks_the_winners():
    values = given("ties", (1, 2, 30, 31), "float64")
    x, g = engine.tensor(values, True), engine.tensor(np.random.default_rng(1).standard_normal((1, 2, 20, 19)), True)
    y = engine.call("max_pool2d", [x, (11, 13), 1])
    (first,), _ = engine.gradients([y], [x], [g], create_graph=True)
    seed = np.random.default_rng(2).standard_normal(values.shape)
    (second,), _ = engine.gradients([first], [g], [engine.tensor(seed)])
    tx, tg = torch.tensor(values, requires_grad=True), torch.tensor(g.array, requires_grad=True)
    (tf,) = torch.autograd.grad(F.max_pool2d(tx, (11, 13), 1), tx, tg, create_graph=True)
    (ts,) = torch.autograd.grad(tf, tg, torch.tensor(seed))
    np.testing.assert_array_equal(second.array, ts.numpy())

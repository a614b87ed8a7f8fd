"""Pooling's arguments: sizes by dimension, PyTorch's results for one and several dimensions, and its refusals."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import gradwire_engine as engine
from gradwire_engine.core.errors import EngineError
from gradwire_engine.ops.nn.pooling import pool

SHAPES = {1: (2, 3, 11), 2: (2, 3, 9, 8), 3: (1, 2, 7, 6, 5)}


@pytest.mark.parametrize("spatial", SHAPES)
@pytest.mark.parametrize(
    ("name", "arguments"), [("max_pool", (3, 2, 1)), ("avg_pool", (3, 2, 1)), ("adaptive_avg_pool", (2,))]
)
def test_pooling_and_its_gradient_equal_pytorchs(name: str, arguments: tuple[int, ...], spatial: int) -> None:
    values = np.random.default_rng(3).standard_normal(SHAPES[spatial])
    theirs = torch.tensor(values, requires_grad=True)
    expected = getattr(F, f"{name}{spatial}d")(theirs, *arguments)
    expected.sum().backward()
    ours = engine.tensor(values, True)
    made = engine.call(f"{name}{spatial}d", [ours, *arguments])
    engine.backward([made], [engine.tensor(np.ones(made.shape))])
    np.testing.assert_allclose(made.array, expected.detach().numpy())
    np.testing.assert_allclose(ours.grad.array, theirs.grad.numpy())


@pytest.mark.parametrize(
    ("op", "arguments", "message"),
    [
        (pool.max_pool1d, (0,), "kernel_size must be greater than zero"),
        (pool.max_pool2d, ((2, 2, 2),), "kernel_size must either be a single int, or a tuple of two ints"),
        (pool.max_pool2d, (2, 0), "stride should not be zero"),
        (pool.avg_pool2d, (2, 2, 2), "pad should be at most half of effective kernel size"),
        (pool.adaptive_avg_pool2d, ((-1, 2),), "greater than or equal to 0"),
    ],
)
def test_arguments_are_refused_with_pytorchs_message(op, arguments, message: str) -> None:
    values = np.zeros(SHAPES[1 if op is pool.max_pool1d else 2])
    name = op.name
    with pytest.raises(EngineError, match=message):
        engine.call(name, [engine.tensor(values), *arguments])
    with pytest.raises(RuntimeError, match=message):
        getattr(F, name)(torch.tensor(values), *arguments)

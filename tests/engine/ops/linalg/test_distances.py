"""Distances between rows: values and gradients beside PyTorch's, in blocks of every kind, and higher derivatives."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from gradwire_engine import Tensor, backward, call, gradients, tensor
from gradwire_engine.core.context import Context, activate
from gradwire_engine.ops.linalg import distances
from tests.engine.oracle import torch

EXACT = "donot_use_mm_for_euclid_dist"
SHAPES = [
    ((5, 3), (7, 3)), ((40, 3), (30, 3)), ((2, 5, 40), (2, 6, 40)), ((3, 1, 4, 2), (2, 9, 2)), ((0, 3), (4, 3)),
    ((4, 0), (3, 0)), ((9, 33), (1, 33)), ((6, 1), (8, 1)),
]  # fmt: skip
NORMS = [0, 0.5, 1, 1.5, 2, 3, 7.3, math.inf]


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with activate(Context()):
        yield


def _given(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Values, of which some rows are equal and some differences are 0, if the shapes allow it."""
    rng = np.random.default_rng(len(one) + one[-2] + other[-2])
    left, right = rng.standard_normal(one), rng.standard_normal(other)
    if left.size and right.size:
        left[..., 0, :] = right.reshape(-1, right.shape[-1])[0]
        left[..., -1, 0] = right.reshape(-1, right.shape[-1])[-1, 0]
    return left, right


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("block", [1 << 15, 64, 1])
@pytest.mark.parametrize(("one", "other"), SHAPES)
def test_values_and_gradients_are_pytorchs(one, other, p, block, monkeypatch):
    monkeypatch.setattr(distances, "_BLOCK", block)
    arrays = _given(one, other)
    mine, theirs = [tensor(each, True) for each in arrays], [torch.tensor(each, requires_grad=True) for each in arrays]
    made, expected = call("cdist", (*mine, p, EXACT)), torch.cdist(*theirs, p, EXACT)
    weights = np.random.default_rng(1).standard_normal(expected.shape)
    (expected * torch.tensor(weights)).sum().backward()
    backward([call("sum", (made * tensor(weights),))])
    np.testing.assert_allclose(made.array, expected.detach().numpy(), rtol=1e-12, atol=1e-12)
    for ours, its in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(ours.grad.array, its.grad.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("length", [3, 40])
def test_derivatives_of_gradients_are_those_of_the_array_of_differences(p, length):
    arrays = _given((4, length), (5, length))
    arrays[0][0] += np.linspace(0.3, 0.9, length)  # where rows are equal, it is infinite for most norms
    arrays[0][-1, 0] += 0.5

    def by_differences(one: Tensor, other: Tensor) -> Tensor:
        differences = call("unsqueeze", (one, -2)) - call("unsqueeze", (other, -3))
        return distances.row_norm(differences, float(p))

    seen = []
    for norm in (lambda one, other: call("cdist", (one, other, p, EXACT)), by_differences):
        one, other = [tensor(each, True) for each in arrays]
        made = norm(one, other)
        first = gradients([call("sum", (made * made * made,))], [one, other], create_graph=True)[0]
        total = call("sum", (first[0] * first[0],)) + call("sum", (first[1] * first[1] * 0.5,))
        second = [] if p == 0 else gradients([total], [one, other])[0]
        seen.append([each.array for each in (*first, *second)])
    for mine, expected in zip(*seen, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-8, atol=1e-8)

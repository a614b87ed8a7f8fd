"""interpolate(antialias=True) against PyTorch: values and gradients, smaller and larger, by size and by factor."""

import itertools

import numpy as np
import pytest

import gradwire
from tests.client.oracle import agree, refuse, torch

pytestmark = pytest.mark.usefixtures("session")

IMAGES = np.random.default_rng(3).standard_normal((2, 3, 9, 7))


@pytest.mark.parametrize(("mode", "corners"), itertools.product(["bilinear", "bicubic"], [False, True]))
@pytest.mark.parametrize("wanted", [(4, 3), (9, 7), (13, 20), (1, 1), (5, 12)])
def test_values_and_gradients_by_size(mode, corners, wanted):
    def case(t):
        x = t.tensor(IMAGES, requires_grad=True)
        made = t.nn.functional.interpolate(x, size=wanted, mode=mode, align_corners=corners, antialias=True)
        (made * t.arange(made.numel(), dtype=t.float64).reshape(made.shape)).sum().backward()
        return made.detach(), x.grad

    agree(case)


@pytest.mark.parametrize("recomputed", [None, True])
@pytest.mark.parametrize("factor", [0.5, 1.7, (0.4, 2.1)])
def test_values_by_factor(factor, recomputed):
    def case(t):
        return t.nn.functional.interpolate(
            t.tensor(IMAGES),
            scale_factor=factor,
            mode="bilinear",
            align_corners=False,
            antialias=True,
            recompute_scale_factor=recomputed,
        )

    agree(case)


def test_bytes_are_rounded():
    pixels = np.random.default_rng(4).integers(0, 256, (1, 3, 16, 12)).astype(np.uint8)
    found = []
    for t in (torch, gradwire):
        made = t.nn.functional.interpolate(t.tensor(pixels), size=(5, 7), mode="bilinear", antialias=True)
        found.append(made.numpy().astype(int))
    assert abs(found[0] - found[1]).max() <= 1  # PyTorch adds in integers, so a half may go the other way


@pytest.mark.parametrize(("mode", "shape"), [("nearest", (1, 1, 4, 4)), ("bilinear", (1, 4, 4))])
def test_other_modes_and_shapes_are_refused(mode, shape):
    refuse(
        lambda t: t.nn.functional.interpolate(t.ones(shape), size=(2, 2)[: len(shape) - 2], mode=mode, antialias=True),
        ValueError,
        "Anti-alias option is restricted to bilinear and bicubic modes",
    )

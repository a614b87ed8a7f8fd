"""Convolutions on a GPU by cuDNN, and without it: the values of NumPy's, in all three passes."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.backends import cudnn
from gradwire_engine.backends.cudnn import Library
from gradwire_engine.core import device as devices
from gradwire_engine.ops.nn.convolution import cudnn as convolutions

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "one dimension": ((2, 3, 9), (4, 3, 3), {"padding": 1}),
    "two dimensions": ((2, 3, 7, 8), (4, 3, 3, 2), {"padding": (1, 0), "stride": (2, 1)}),
    "three dimensions": ((1, 2, 4, 5, 6), (3, 2, 2, 3, 1), {"padding": (1, 1, 0)}),
    "dilation": ((2, 2, 9, 9), (2, 2, 3, 3), {"dilation": 2, "padding": 2}),
    "groups": ((2, 4, 6, 6), (6, 2, 3, 3), {"groups": 2, "stride": 2, "padding": 1}),
    "depthwise": ((1, 3, 6, 6), (6, 1, 3, 3), {"groups": 3}),
    "pixels that no window reads": ((1, 2, 8, 8), (2, 2, 3, 3), {"stride": 3}),
    "pointwise": ((2, 5, 4, 4), (3, 5, 1, 1), {}),
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The convolutions that cuDNN computed."""
    made: list[str] = []
    convolve = Library.convolve

    def counting(self: Library, kind: Any, *args: Any) -> bool:
        done = convolve(self, kind, *args)
        if done:
            made.append(kind)
        return done

    monkeypatch.setattr(Library, "convolve", counting)
    return made


@pytest.fixture
def has_cudnn(request: pytest.FixtureRequest) -> None:
    if "stand-in" in request.node.name or cudnn.library(devices.cupy()) is None:
        pytest.skip("needs cuDNN")


def placed(values: np.ndarray[Any, Any], dtype: str, device: str) -> Any:
    return devices.to_device(values.astype(dtype), devices.canonical(device))


def passes(case: str, dtype: str, device: str, draw: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    """A convolution's result, and the gradients of input, weight and bias."""
    shape, kernel, options = CASES[case]
    sizes = (shape, kernel, kernel[:1])
    leaves = [engine.tensor(placed(draw.standard_normal(size), dtype, device), True) for size in sizes]
    made = engine.call(f"conv{len(shape) - 2}d", leaves, options)
    grad = engine.tensor(placed(draw.standard_normal(made.array.shape), dtype, device))
    engine.backward([made], [grad])
    return [devices.host(each.array) for each in (made, *(leaf.grad for leaf in leaves))]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_cudnn_computes_all_passes(has_cudnn: None, calls: list[str], case: str, dtype: str) -> None:
    found, expected = (passes(case, dtype, device, np.random.default_rng(7)) for device in ("cuda", "cpu"))
    assert sorted(calls) == ["forward", "source", "weights"]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_without_cudnn_the_values_are_the_same(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setattr(convolutions, "library", lambda cupy: None)
    found, expected = (passes(case, "float64", device, np.random.default_rng(7)) for device in ("cuda", "cpu"))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_arrays_in_any_order_are_read_right(has_cudnn: None, calls: list[str]) -> None:
    draw = np.random.default_rng(3)
    image, weight = draw.standard_normal((2, 6, 5, 3)), draw.standard_normal((3, 3, 4, 3))
    results = []
    for device in ("cuda", "cpu"):
        given = [engine.tensor(placed(each, "float64", device)) for each in (image, weight)]
        turned = [engine.call("permute", (each, (0, 3, 1, 2))) for each in given]
        results.append(devices.host(engine.call("conv2d", turned).array))
    assert calls == ["forward"]
    np.testing.assert_allclose(*results, rtol=1e-12, atol=1e-12)


def test_an_algorithm_whose_bits_vary_is_not_used(
    has_cudnn: None, calls: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cudnn, "_DETERMINISTIC", -1)  # so that no algorithm says it
    cudnn.library(devices.cupy())._known.clear()
    with caplog.at_level(logging.INFO, "gradwire.engine"):
        found, expected = (passes("groups", "float64", device, np.random.default_rng(1)) for device in ("cuda", "cpu"))
    cudnn.library(devices.cupy())._known.clear()
    assert not calls
    assert "no algorithm gives the same bits" in caplog.text
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)

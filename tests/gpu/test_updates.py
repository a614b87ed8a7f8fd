"""Updates in place that one kernel computes: the values of one after another, whatever shares memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.compile.eager.library import SessionLoops
from gradwire_engine.compile.fusion.cuda_launcher import Launcher
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.core import device as devices
from gradwire_engine.core.context import CURRENT, Context, activate
from gradwire_engine.op.declaration import OPS
from gradwire_engine.ops.base.updates import MOST, Updates


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A context on CuPy, with a GPU or hostcupy: the stand-in compiles nothing."""
    if devices.cupy() is None:
        pytest.skip("needs CuPy and a CUDA GPU, or hostcupy")
    monkeypatch.setattr(OPTIONS, "mode", "on")
    with activate(Context(loops=SessionLoops(lambda: True), grad_enabled=False)):
        yield


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many updates each kernel of several computed."""
    counts: list[int] = []
    given = Launcher.launch_many

    def noted(self: Launcher, sets: Any, numbers: Any) -> None:
        counts.append(len(sets))
        given(self, sets, numbers)

    monkeypatch.setattr(Launcher, "launch_many", noted)
    return counts


def on_gpu(array: Any) -> engine.Tensor:
    return engine.tensor(devices.to_device(array, "cuda:0"))


def apply(updates: Updates, calls: list[tuple[engine.Tensor, engine.Tensor, float]]) -> None:
    """Calls of add_ in a row, as a program makes them."""
    for place, (target, other, alpha) in enumerate(calls):
        updates.settle(target.array, [other.array])
        with updates.during(place + 1 < len(calls)):
            OPS["add"].in_place((target, other, alpha))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_updates_of_arrays_of_any_size_are_one_kernel(dtype: Any, launched: list[int]) -> None:
    rng = np.random.default_rng(0)
    shapes = [(), (1,), (3, 5), (257,), (70000,), (2, 3, 4)]
    values, grads = ([rng.standard_normal(shape).astype(dtype) for shape in shapes] for _ in range(2))
    calls = [(on_gpu(value), on_gpu(grad), -0.05) for value, grad in zip(values, grads, strict=True)]
    apply(Updates(), calls)
    assert launched == [len(shapes)]
    for (target, _, _), value, grad in zip(calls, values, grads, strict=True):
        np.testing.assert_array_equal(devices.host(target.array), value + grad * dtype(-0.05))


def test_a_kernel_takes_a_limited_number_of_updates(launched: list[int]) -> None:
    calls = [(on_gpu(np.zeros(3, np.float32)), on_gpu(np.ones(3, np.float32)), 2.0) for _ in range(2 * MOST + 2)]
    apply(Updates(), calls)
    assert launched == [MOST, MOST, 2]
    assert all((devices.host(target.array) == 2).all() for target, _, _ in calls)


@pytest.mark.parametrize("mode", ["on", "verify"])
@pytest.mark.parametrize("seed", range(8))
def test_random_rows_with_shared_memory_are_what_one_after_another_is(
    seed: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OPTIONS, "mode", mode)
    rng = np.random.default_rng(seed)
    wholes = [rng.standard_normal(12).astype(np.float32) for _ in range(7)]
    # The same views of host arrays and of the GPU's: parts of the first two overlap.
    parts = [slice(0, 12), *[slice(begin, begin + 4) for begin in range(0, 9, 2)]]
    moved = [on_gpu(whole) for whole in wholes]
    calls: list[Any] = []
    expected = [whole.copy() for whole in wholes]
    for _ in range(40):
        part = parts[rng.integers(len(parts))]
        first, second = rng.integers(7, size=2)
        if first == second:
            continue
        alpha = float(rng.choice([0.5, -0.25, 1.0, -0.0]))
        expected[first][part] = expected[first][part] + expected[second][part] * np.float32(alpha)
        views = [
            engine.call("narrow", (moved[each], 0, part.start, part.stop - part.start)) for each in (first, second)
        ]
        calls.append((*views, alpha))
    apply(Updates(), calls)
    for tensor, wanted in zip(moved, expected, strict=True):
        np.testing.assert_array_equal(devices.host(tensor.array), wanted)


def test_a_refused_call_leaves_the_updates_before_it(launched: list[int]) -> None:
    updates = Updates()
    targets = [on_gpu(np.zeros(3, np.float32)) for _ in range(2)]
    ones = on_gpu(np.ones(3, np.float32))
    for target in targets:
        with updates.during(True):
            OPS["add"].in_place((target, ones, 2.0))
    with pytest.raises(engine.EngineError), updates.during(True):
        OPS["add"].in_place((targets[0], on_gpu(np.ones(4, np.float32)), 2.0))
    assert launched == [2]
    assert not updates.waiting
    assert all((devices.host(target.array) == 2).all() for target in targets)


def test_verification_refuses_a_wrong_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPTIONS, "mode", "verify")
    given = Launcher.launch_many
    monkeypatch.setattr(Launcher, "launch_many", lambda self, sets, numbers: given(self, sets, [numbers[0] * 2]))
    calls = [(on_gpu(np.zeros(3, np.float32)), on_gpu(np.ones(3, np.float32)), 2.0) for _ in range(2)]
    with pytest.raises(engine.EngineError, match="the loop of add_scaled_"):
        apply(Updates(), calls)


def test_updates_outside_of_a_row_run_at_once() -> None:
    target, other = on_gpu(np.zeros(3, np.float32)), on_gpu(np.ones(3, np.float32))
    with activate(replace(CURRENT.get())):
        OPS["add"].in_place((target, other, 2.0))
    np.testing.assert_array_equal(devices.host(target.array), 2)

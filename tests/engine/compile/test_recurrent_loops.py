"""The steps of recurrent layers by loops of machine code: PyTorch's values and gradients, and NumPy where none fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.compile.eager import recurrent
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.core import threads
from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.threads import POOL
from gradwire_engine.op.declaration import OPS
from gradwire_engine.ops.nn.recurrent import backward, forward, onednn, step_loops
from tests.engine.compile.fusing import NotedLoops

pytest.importorskip("llvmlite")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("machine_code")


@pytest.fixture(autouse=True)
def _without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "fits", lambda tensors: False)


Arrays = list["np.ndarray[Any, Any]"]
_GATES = {"lstm": 4, "gru": 3}
_WIDTH, _INPUT = 37, 5  # rows that fill no vector
_PACKED = (40, 40, 23, 23, 9, 1)


def _drawn(kind: str, dtype: Any, packed: bool, projected: bool = False) -> Arrays:
    rng, gates = np.random.default_rng(3), _GATES[kind] * _WIDTH
    shapes: list[tuple[int, ...]] = [(sum(_PACKED), _INPUT) if packed else (6, 40, _INPUT)]
    out = _WIDTH - 9 if projected else _WIDTH
    shapes += [
        (40, out),
        *([(40, _WIDTH)] if kind == "lstm" else []),
        (gates, _INPUT),
        (gates, out),
        (gates,),
        (gates,),
    ]
    shapes += [(out, _WIDTH)] if projected else []
    return [(rng.standard_normal(shape) * (0.3 if place else 1)).astype(dtype) for place, shape in enumerate(shapes)]


def _weighted(results: Any, mul: Callable[[Any, Any], Any], constant: Callable[[Any], Any]) -> list[Any]:
    """The results, each times other numbers."""
    return [mul(each, constant(np.cos(np.arange(np.prod(each.shape)) + 1).reshape(each.shape))) for each in results]


def _ours(kind: str, given: Arrays, packed: bool, reverse: bool) -> Arrays:
    """Results and gradients."""
    leaves = [engine.tensor(each, True) for each in given]
    options = {"batch_sizes": list(_PACKED) if packed else [], "reverse": reverse}
    results = engine.call(f"{kind}_layer", leaves, options)
    dtype = given[0].dtype
    parts = _weighted(
        results, lambda one, other: engine.call("mul", [one, other]), lambda x: engine.tensor(x.astype(dtype))
    )
    engine.backward([engine.call("sum", [part]) for part in parts])
    return [each.array for each in results] + [each.grad.array for each in leaves if each.grad is not None]


def _theirs(kind: str, given: Arrays, packed: bool, reverse: bool) -> Arrays:
    leaves = [torch.tensor(each, requires_grad=True) for each in given]
    x, *states = leaves[: _GATES[kind] - 1]
    weights = leaves[len(states) + 1 :]
    states = [each[None] for each in states]
    if packed:  # PyTorch computes backwards in the second direction of a layer only
        flat = [torch.zeros_like(each) for each in weights]
        both = [*flat, *weights] if reverse else weights
        states = [torch.cat([each, each]) for each in states] if reverse else states
        function = getattr(torch, kind)
        hidden = tuple(states) if kind == "lstm" else states[0]
        made = function(x, torch.tensor(_PACKED), hidden, both, True, 1, 0.0, True, reverse)
        results = [made[0][:, _WIDTH:] if reverse else made[0], *[each[-1] for each in made[1:]]]
    else:
        function = getattr(torch, kind)
        hidden = tuple(states) if kind == "lstm" else states[0]
        made = function(x.flip(0) if reverse else x, hidden, weights, True, 1, 0.0, True, False, False)
        results = [made[0].flip(0) if reverse else made[0], *[each[0] for each in made[1:]]]
    parts = _weighted(results, torch.mul, lambda values: torch.tensor(values.astype(given[0].dtype)))
    sum(part.sum() for part in parts).backward()
    return [each.detach().numpy() for each in results] + [each.grad.numpy() for each in leaves]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_values_and_gradients_are_pytorchs(
    kind: str, dtype: Any, packed: bool, reverse: bool, noted: NotedLoops, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backward, "BLOCK", 100 * 4 * _WIDTH)  # several blocks
    given = _drawn(kind, dtype, packed)
    made, expected = _ours(kind, given, packed, reverse), _theirs(kind, given, packed, reverse)
    letter = np.dtype(dtype).char
    assert noted.found >= {(f"{kind}_step", letter), (f"{kind}_step_backward", letter)}
    bound = 3e-6 if dtype is np.float32 else 1e-13
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=bound, atol=bound * np.abs(other).max())


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_results_do_not_depend_on_the_threads(kind: str, noted: NotedLoops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SHARED", 1)
    monkeypatch.setattr(threads, "LARGE", 1)
    given, found = _drawn(kind, np.float32, True), []
    for number in (1, 3):
        monkeypatch.setattr(POOL, "threads", number)
        found.append([each.tobytes() for each in _ours(kind, given, True, False)])
    assert found[0] == found[1]
    assert noted.found


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_session_with_a_log_computes_the_same_bits_as_without_machine_code(kind: str) -> None:
    given = _drawn(kind, np.float32, False)
    plain = _ours(kind, given, False, False)
    with engine.activate(replace(CURRENT.get(), loops=NotedLoops(applies=False))):
        logged = _ours(kind, given, False, False)
    assert [each.tobytes() for each in plain] == [each.tobytes() for each in logged]


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_verification_compares_with_numpy(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(NotedLoops):
        def find(self, name: str, dtype: str) -> Any:
            return super().find("lstm_step_backward" if name == "lstm_step" else name, dtype)

    monkeypatch.setattr(OPTIONS, "mode", "verify")
    given = _drawn(kind, np.float32, False)
    with engine.activate(replace(CURRENT.get(), loops=NotedLoops())):
        _ours(kind, given, False, False)
    if kind == "lstm":
        with engine.activate(replace(CURRENT.get(), loops=Wrong())), pytest.raises(EngineError) as refusal:
            _ours(kind, given, False, False)
        assert refusal.value.reason is Reason.RUNTIME


def test_a_projection_has_no_loop_of_its_backward(noted: NotedLoops) -> None:
    given = _drawn("lstm", np.float32, False, projected=True)
    leaves = [engine.tensor(each, True) for each in given]
    results = engine.call("lstm_layer", leaves, {})
    engine.backward([engine.call("sum", [each]) for each in results])
    with engine.activate(replace(CURRENT.get(), loops=None)):
        plain = [engine.tensor(each, True) for each in given]
        expected = engine.call("lstm_layer", plain, {})
        engine.backward([engine.call("sum", [each]) for each in expected])
    names = {name for name, _ in noted.found}
    assert "lstm_step" in names
    assert "lstm_step_backward" not in names
    pairs = [*zip(results, expected, strict=True), *[(a.grad, b.grad) for a, b in zip(leaves, plain, strict=True)]]
    for one, other in pairs:
        np.testing.assert_allclose(one.array, other.array, rtol=1e-5, atol=1e-5 * np.abs(other.array).max())


def test_a_batch_of_layers_is_computed_by_numpy(noted: NotedLoops) -> None:
    given = [np.stack([each, each + each]) for each in _drawn("gru", np.float32, False)]
    engine.call("gru_layer", [engine.tensor(each) for each in given], {})
    assert not {name for name, _ in noted.found} & {*recurrent.STEPS}


def test_nothing_is_made_for_loops_of_arrays_on_a_gpu(noted: NotedLoops) -> None:
    on_gpu: Any = object()
    loops: Any = noted
    for attempt in (forward._lstm, forward._gru):
        assert attempt(loops, np, [on_gpu] * 4, (), False, True) is None
    gradients: list[Any] = [on_gpu, on_gpu, None, None, None]
    assert backward._lstm_by_loop(loops, gradients, [on_gpu] * 4, (), False, on_gpu, on_gpu, on_gpu) is None
    assert backward._gru_by_loop(loops, gradients, [on_gpu] * 3, (), False, on_gpu, on_gpu) is None
    assert not noted.found


def test_a_step_has_a_loop_only_for_matrices_of_one_dtype_packed_within_rows(noted: NotedLoops) -> None:
    gates = np.zeros((4, 9 * 2), np.float32)
    loops: Any = noted
    on_gpu: Any = object()
    fitting = step_loops.beside(gates, 2, True)
    made = step_loops.beside(np.zeros((4, 8 * 2), np.float32), 2, True)

    def found(last: Any) -> bool:
        return step_loops.step_loop(loops, "lstm_step", 2, [*fitting, *made[:-1], (last, True)]) is not None

    assert found(made[-1][0])
    for other in (
        np.zeros((4, 2)),
        np.zeros((4, 3), np.float32),
        np.zeros(2, np.float32),
        np.zeros((4, 4), "f")[:, ::2],
    ):
        assert not found(other)
    assert step_loops.step_loop(None, "lstm_step", 2, fitting) is None
    assert step_loops.in_host_memory(gates) and not step_loops.in_host_memory(on_gpu)


def test_layers_declare_their_loops() -> None:
    assert {*recurrent.STEPS} == {*OPS["_lstm"].loops, *OPS["_gru"].loops}

"""A layer of an LSTM by oneDNN: PyTorch's values and gradients, and what happens without the library."""

from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.backends.onednn import library
from gradwire_engine.compile.tracing import Tracer
from gradwire_engine.core.context import Context, activate
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.threads import POOL
from gradwire_engine.ops.nn.recurrent import onednn
from tests.engine.oracle import torch

pytestmark = pytest.mark.skipif(library() is None, reason="oneDNN is not installed")
INNER, WIDTH = 6, 9


def drawn(rows: int = 3, length: int = 5, bias: bool = True, dtype: str = "float32") -> list[Any]:
    """Input, h, c, two weights and two biases."""
    rng = np.random.default_rng(rows)
    gates = 4 * WIDTH
    shapes = [(length, rows, INNER), (rows, WIDTH), (rows, WIDTH), (gates, INNER), (gates, WIDTH), (gates,), (gates,)]
    made = [(rng.standard_normal(shape) * 0.5).astype(dtype) for shape in shapes]
    return made if bias else [*made[:5], None, None]


def leaves_of(arrays: list[Any]) -> list[Any]:
    return [None if each is None else engine.tensor(each, True) for each in arrays]


def weights_like(each: Any) -> np.ndarray:
    return np.cos(np.arange(np.prod(each.shape)) + 1.0).reshape(each.shape).astype("float32")


def loss(results: Any) -> Any:
    parts = [engine.call("sum", (each * each * engine.tensor(weights_like(each)),)) for each in results]
    return parts[0] + parts[1] + parts[2]


def ours(arrays: list[Any], reverse: bool = False) -> list[np.ndarray]:
    """Results and gradients."""
    leaves = leaves_of(arrays)
    results = engine.call("lstm_layer", leaves, {"reverse": reverse})
    engine.backward([loss(results)])
    return [each.array for each in results] + [each.grad.array for each in leaves if each is not None]


def theirs(arrays: list[Any], reverse: bool = False, twice: bool = False) -> list[np.ndarray]:
    leaves = [None if each is None else torch.tensor(each, requires_grad=True) for each in arrays]
    x, h, c, *weights = leaves
    held = [each for each in weights if each is not None]
    given = x.flip(0) if reverse else x
    with torch.backends.mkldnn.flags(enabled=not twice):
        made = torch.lstm(given, (h[None], c[None]), held, len(held) > 2, 1, 0.0, True, False, False)
        results = [made[0].flip(0) if reverse else made[0], made[1][0], made[2][0]]
        total = sum((each * each * torch.tensor(weights_like(each))).sum() for each in results)
        if twice:
            (slope,) = torch.autograd.grad(total, x, create_graph=True)
            total = (slope * slope).sum()
        total.backward()
    return [each.detach().numpy() for each in results] + [each.grad.numpy() for each in leaves if each is not None]


def close(made: list[np.ndarray], expected: list[np.ndarray], bound: float = 3e-6) -> None:
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=bound, atol=bound * max(1, np.abs(other).max()))


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("rows", [1, 7, 16, 37, 80])
def test_values_and_gradients_are_pytorchs(rows: int, reverse: bool, bias: bool) -> None:
    arrays = drawn(rows, bias=bias)
    close(ours(arrays, reverse), theirs(arrays, reverse))


def test_gradients_of_gradients_are_pytorchs() -> None:
    arrays = drawn()
    leaves = leaves_of(arrays)
    results = engine.call("lstm_layer", leaves)
    (slope,), _ = engine.gradients([loss(results)], [leaves[0]], create_graph=True)
    engine.backward([engine.call("sum", (slope * slope,))])
    close([each.array for each in results] + [each.grad.array for each in leaves], theirs(arrays, twice=True), 2e-5)


def test_any_number_of_threads_computes_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays, found = drawn(37), []
    for threads in (1, 3):
        monkeypatch.setattr(POOL, "threads", threads)
        found.append(ours(arrays))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("lost", ["library", "workspace"])
def test_a_layer_recorded_with_another_library_has_the_same_gradients(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = drawn(16)
    expected, leaves = ours(arrays), leaves_of(arrays)
    total = loss(engine.call("lstm_layer", leaves))
    if lost == "library":
        monkeypatch.setattr(onednn, "_cached", lambda *sizes: None)
    else:
        monkeypatch.setattr(onednn._Layer, "reads", lambda layer, workspace: False)
    engine.backward([total])
    close([each.grad.array for each in leaves], expected[3:])


def test_a_plan_has_the_layer_as_one_op() -> None:
    with activate(Context()):
        leaves = leaves_of(drawn())
    tracer = Tracer(leaves, True)
    with activate(Context(tracer=tracer)):
        engine.backward([engine.call("sum", [engine.call("lstm_layer", leaves)[0]])])
    assert tracer.failed is None
    assert "_lstm_layer" in [instr.what.name for instr in tracer.instrs if instr.kind == "op"]


@pytest.mark.parametrize(
    ("length", "rows", "dtype", "fits"),
    [(5, 3, "float32", True), (5, 3, "float64", False), (5000, 512, "float32", False)],
)
def test_only_short_layers_in_float32_are_the_librarys(length: int, rows: int, dtype: str, fits: bool) -> None:
    arrays = drawn(1, 1, dtype=dtype)
    arrays[0] = np.broadcast_to(arrays[0], (length, rows, INNER))
    assert onednn.fits(arrays[:6]) is fits


def test_memory_that_is_short_is_refused() -> None:
    arrays = drawn(16, 50)
    context = Context(account=engine.Account(limit=1 << 18))
    with activate(context), pytest.raises(EngineError) as refusal:
        engine.call("lstm_layer", leaves_of(arrays))
    assert refusal.value.reason is Reason.MEMORY_LIMIT

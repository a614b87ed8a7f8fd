"""Gradients of gather, sort and their like by loops of machine code: PyTorch's bits, as without machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.compile.eager import scatters
from gradwire_engine.core import threads
from gradwire_engine.core.context import Context
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.threads import POOL
from gradwire_engine.ops.index import scatter_loops
from tests.engine.compile.fusing import NotedLoops

pytest.importorskip("llvmlite")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("machine_code")

DTYPES = [np.float32, np.float64]
SHAPES = [(5000,), (3, 40, 67), (4097, 1), (1, 4097), (130, 64)]


def _gathered(shape: tuple[int, ...], count: int, dtype: Any) -> Any:
    """The gradient of gather along the last dimension at `count` indices a line, many of which repeat."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal(shape).astype(dtype)
    index = rng.integers(0, shape[-1], (*shape[:-1], count))
    slope = rng.standard_normal(index.shape).astype(dtype)
    x = engine.tensor(values, True)
    engine.backward([engine.call("gather", [x, -1, engine.tensor(index)])], [engine.tensor(slope)])
    theirs = torch.tensor(values, requires_grad=True)
    torch.gather(theirs, -1, torch.tensor(index)).backward(torch.tensor(slope))
    assert x.grad is not None
    return x.grad.array, theirs.grad.numpy()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_gradients_of_gather_have_pytorchs_bits(shape: tuple[int, ...], dtype: Any, noted: NotedLoops) -> None:
    for count in (shape[-1], 5000):
        made, expected = _gathered(shape, count, dtype)
        assert made.tobytes() == expected.tobytes()
    assert {name for name, _ in noted.found} == {"gather_backward"}


def test_the_bits_are_those_of_numpy_and_do_not_depend_on_the_threads(
    noted: NotedLoops, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine.activate(Context()):
        expected, _ = _gathered((300, 70), 90, np.float32)
    monkeypatch.setattr(threads, "SHARED", 1)
    monkeypatch.setattr(threads, "LARGE", 1)
    for number in (1, 3):
        monkeypatch.setattr(POOL, "threads", number)
        made, _ = _gathered((300, 70), 90, np.float32)
        assert made.tobytes() == expected.tobytes()
    assert noted.found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "args", "loop"),
    [
        ("sort", (-1,), "put_along"),
        ("topk", (60, 1), "put_along"),
        ("cummax", (1,), "gather_backward"),
        ("adaptive_max_pool2d", ((5, 7), True), "gather_backward"),
    ],
)
def test_gradients_of_selected_elements_have_pytorchs_bits(
    name: str, args: tuple[Any, ...], loop: str, dtype: Any, noted: NotedLoops
) -> None:
    rng = np.random.default_rng(2)
    shape = (30, 8, 13, 17) if name.startswith("adaptive") else (90, 130)
    values = rng.permutation(np.prod(shape)).reshape(shape).astype(dtype)
    x, theirs = engine.tensor(values, True), torch.tensor(values, requires_grad=True)
    made = engine.call(name, [x, *args])[0]
    expected = (getattr(torch, name, None) or getattr(torch.nn.functional, name))(theirs, *args)[0]
    slope = rng.standard_normal(made.shape).astype(dtype)
    engine.backward([made], [engine.tensor(slope)])
    expected.backward(torch.tensor(slope))
    assert x.grad is not None
    assert x.grad.array.tobytes() == theirs.grad.numpy().tobytes()
    assert loop in {found for found, _ in noted.found}
    assert {*scatters.NAMES} == {"gather_backward", "put_along"}


@pytest.mark.parametrize("wrong", [-1, 70])
def test_an_index_outside_of_the_line_is_refused(wrong: int, noted: NotedLoops) -> None:
    from gradwire_engine.op.declaration import OPS

    index = np.zeros((100, 70), np.int64)
    index[99, 69] = wrong
    g = np.ones(index.shape, np.float32)
    for name in ("_gather_backward", "_put_along"):
        op = OPS[name]
        with pytest.raises(EngineError) as raised:
            op.apply(op.bind((engine.tensor(g), 1, engine.tensor(index), (100, 70)), {}))
        assert raised.value.reason is Reason.RUNTIME
        assert f"index {wrong} is out of bounds for dimension 1 with size 70" in str(raised.value)
    assert noted.found == set()


def test_which_calls_are_left_to_numpy() -> None:
    g, index = np.zeros((6, 8), np.float32), np.zeros((6, 8), np.int64)
    assert scatter_loops.fits(g, 1, index, (6, 3))
    for given, dim, places, shape in (
        (g, 0, index, (6, 8)),  # not the last dimension
        (g, 1, index, (7, 8)),  # fewer lines than the result has
        (g.astype(np.float16), 1, index, (6, 8)),
        (g.astype(np.int64), 1, index, (6, 8)),
        (g[:, ::-1], 1, index, (6, 8)),
        (g, 1, index[::-1], (6, 8)),
        (g, 1, index.astype(np.int32), (6, 8)),
        (g, 1, index[:, :4], (6, 8)),
    ):
        assert not scatter_loops.fits(given, dim, places, shape)

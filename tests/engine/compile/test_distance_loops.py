"""Distances between rows by loops of machine code: beside PyTorch's, with tails of vectors, and when they run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.compile.eager import distances
from gradwire_engine.compile.eager.loop_code import lanes
from gradwire_engine.core import threads
from gradwire_engine.core.threads import POOL
from gradwire_engine.ops.linalg import distance_loops
from tests.engine.compile.fusing import NotedLoops

pytest.importorskip("llvmlite")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("machine_code")

EXACT = "donot_use_mm_for_euclid_dist"
NORMS = [1.0, 2.0, math.inf]
SHAPES = [
    ((64, 3), (33, 3)), ((21, 130), (16, 130)), ((17, 17), (1100, 17)), ((3, 1, 20, 5), (2, 31, 5)),
    ((2, 18, 4), (3, 1, 64, 4)), ((19, 1), (400, 1)),
]  # fmt: skip
Shape = tuple[int, ...]


def _given(one: Shape, other: Shape, dtype: Any) -> list[Any]:
    """Values, of which some rows are equal and some differences are 0 or equally large."""
    rng = np.random.default_rng(one[-2])
    left, right = rng.standard_normal(one).astype(dtype), rng.standard_normal(other).astype(dtype)
    left[..., 0, :] = right.reshape(-1, right.shape[-1])[0]
    left[..., -1, 0] = right.reshape(-1, right.shape[-1])[-1, 0]
    return [left, right]


def _weights(shape: Shape, dtype: Any) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def _ours(arrays: list[Any], p: float) -> list[Any]:
    """The distances, and the gradients."""
    inputs = [engine.tensor(each, True) for each in arrays]
    made = engine.call("cdist", [*inputs, p, EXACT])
    engine.backward([made], [engine.tensor(_weights(made.shape, arrays[0].dtype))])
    return [np.asarray(each) for each in (made.array, *[one.grad.array for one in inputs if one.grad is not None])]


def _theirs(arrays: list[Any], p: float) -> list[Any]:
    inputs = [torch.tensor(each, requires_grad=True) for each in arrays]
    made = torch.cdist(*inputs, p, EXACT)
    made.backward(torch.tensor(_weights(tuple(made.shape), arrays[0].dtype)))
    return [made.detach().numpy(), *[each.grad.numpy() for each in inputs]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize(("one", "other"), SHAPES)
def test_values_and_gradients_are_pytorchs(one: Shape, other: Shape, p: float, dtype: Any, noted: NotedLoops) -> None:
    arrays = _given(one, other, dtype)
    made, expected = _ours(arrays, p), _theirs(arrays, p)
    name, kind = distance_loops._NAMES[p], np.dtype(dtype).char
    assert noted.found == {(name, kind), (f"{name}_backward", kind)}
    tolerance = 2e-5 if dtype is np.float32 else 1e-12
    for mine, theirs in zip(made, expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance * max(1.0, np.abs(theirs).max()))


@pytest.mark.parametrize("p", NORMS)
def test_values_that_are_not_finite_are_numpys(p: float, noted: NotedLoops) -> None:
    arrays = _given((40, 5), (37, 5), np.float64)
    arrays[0][3, 2], arrays[0][7, 0], arrays[1][36, 4], arrays[1][5, 1] = np.nan, np.inf, -np.inf, np.nan
    arrays[0][9, 1] = arrays[1][9, 1] = np.inf
    made = _ours(arrays, p)
    assert len(noted.found) == 2
    for mine, theirs in zip(made, _by_numpy(arrays, p), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)
    if p != math.inf:  # PyTorch's maximum drops nan
        np.testing.assert_allclose(made[0], _theirs(arrays, p)[0], rtol=1e-12)


def _by_numpy(arrays: list[Any], p: float) -> list[Any]:
    with engine.activate(engine.core.context.Context()), np.errstate(all="ignore"):
        return _ours(arrays, p)


@pytest.mark.parametrize("p", NORMS)
def test_results_do_not_depend_on_the_threads(p: float, noted: NotedLoops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SHARED", 1)
    monkeypatch.setattr(threads, "LARGE", 1)
    arrays, found = _given((3, 19, 40), (3, 70, 40), np.float32), []
    for number in (1, 2, 5):
        monkeypatch.setattr(POOL, "threads", number)
        found.append([each.tobytes() for each in _ours(arrays, p)])
    assert found[0] == found[1] == found[2]
    assert noted.found


def test_second_derivatives_are_pytorchs(noted: NotedLoops) -> None:
    arrays = [each + 0.1 * place for place, each in enumerate(_given((20, 6), (40, 6), np.float64))]
    ours = [engine.tensor(each, True) for each in arrays]
    theirs = [torch.tensor(each, requires_grad=True) for each in arrays]
    made = engine.call("cdist", [*ours, 2.0, EXACT])
    (slope,), _ = engine.gradients([engine.call("sum", [engine.call("exp", [made])])], ours[:1], create_graph=True)
    assert slope is not None
    engine.backward([engine.call("sum", [engine.call("square", [slope])])])
    lengths = torch.linalg.vector_norm(theirs[0][:, None] - theirs[1][None], dim=-1)  # cdist has no second derivative
    expected = torch.autograd.grad(lengths.exp().sum(), theirs[0], create_graph=True)[0]
    expected.square().sum().backward()
    assert noted.found
    for mine, its in zip(ours, theirs, strict=True):
        assert mine.grad is not None
        np.testing.assert_allclose(mine.grad.array, its.grad.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("columns", "used"), [(16, {("cdist_2", "f")}), (17, set())])
def test_a_loop_takes_the_place_of_a_product_of_short_rows(columns: int, used: Any, noted: NotedLoops) -> None:
    arrays = _given((64, columns), (70, columns), np.float32)
    made = engine.call("cdist", [engine.tensor(each) for each in arrays]).array
    assert noted.found == used
    expected = torch.cdist(*[torch.tensor(each, dtype=torch.float64) for each in arrays], 2.0, EXACT).numpy()
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6 if used else 1e-2)


@pytest.mark.parametrize(
    ("one", "other", "p"),
    [((8, 8), (20, 8), 1.0), ((5000, 3), (4, 3), 1.0), ((90, 9), (90, 9), 3.0), ((0, 2, 90, 9), (90, 9), 1.0)],
)
def test_numpy_computes_small_operands_and_other_norms(one: Shape, other: Shape, p: float, noted: NotedLoops) -> None:
    engine.call("cdist", [engine.tensor(np.ones(one, np.float32)), engine.tensor(np.ones(other, np.float32)), p])
    assert noted.found == set()


def test_the_op_declares_all_loops() -> None:
    assert distance_loops.NAMES == distances.NAMES
    for kind, itemsize in (("f4", 4), ("f8", 8)):
        assert lanes(kind) * itemsize == distance_loops._VECTOR

"""Running sums, products, maxima and minima by loops of machine code: PyTorch's bits, as without machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.compile.eager import scans
from gradwire_engine.compile.eager.loop_code import lanes
from gradwire_engine.core import threads
from gradwire_engine.core.context import Context
from gradwire_engine.core.threads import POOL
from gradwire_engine.ops.reduce import scan_loops
from tests.engine.compile.fusing import NotedLoops

pytest.importorskip("llvmlite")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("machine_code")

Arrays = list[Any]
#: Tails of vectors, of groups of four chains and of blocks; one chain; dimensions of 1.
SHAPES = [
    ((37, 130), 1), ((5000,), 0), ((1, 20001), 1), ((6, 1, 900), -1), ((70, 129), 0), ((3, 40, 67), 1),
    ((900, 3, 2), 0), ((2, 1500, 5), 1), ((130, 32), 0), ((4097, 1), 1), ((1, 4097), 0), ((9, 4, 300), 1),
]  # fmt: skip
DTYPES = [np.float32, np.float64]


def _given(shape: tuple[int, ...], dtype: Any, special: bool = True) -> Any:
    """Values of which many are equal, and some are special."""
    rng = np.random.default_rng(shape[0])
    values = (np.round(rng.standard_normal(shape) * 4) / 4 + rng.choice([0, 0.001], shape)).astype(dtype)
    if special:
        places = rng.integers(0, values.size, 6)
        values.reshape(-1)[places] = [np.nan, np.inf, -np.inf, -0.0, 1e30, -1e30]
    return values


def _ours(name: str, values: Any, dim: int, wanted: Any = None) -> Arrays:
    """The results, and the gradient if one is given."""
    x = engine.tensor(values, wanted is not None)
    made = engine.call(name, [x, dim])
    found = list(made) if isinstance(made, tuple | list) else [made]
    if wanted is None:
        return [np.asarray(each.array) for each in found]
    engine.backward([found[0]], [engine.tensor(wanted)])
    assert x.grad is not None
    return [np.asarray(each.array) for each in (*found, x.grad)]


def _theirs(name: str, values: Any, dim: int, wanted: Any = None) -> Arrays:
    x = torch.tensor(values, requires_grad=wanted is not None)
    made = getattr(torch, name)(x, dim)
    found = list(made) if isinstance(made, tuple) else [made]
    if wanted is None:
        return [each.numpy() for each in found]
    found[0].backward(torch.tensor(wanted))
    return [each.detach().numpy() for each in (*found, x.grad)]


def _by_numpy(name: str, values: Any, dim: int, wanted: Any = None) -> Arrays:
    with engine.activate(Context()), np.errstate(all="ignore"):
        return _ours(name, values, dim, wanted)


def _assert_same_bits(made: Arrays, expected: Arrays) -> None:
    for mine, theirs in zip(made, expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)
        if mine.dtype.kind == "f":
            numbers = ~np.isnan(theirs)
            np.testing.assert_array_equal(np.signbit(mine[numbers]), np.signbit(theirs[numbers]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("name", scans.NAMES)
def test_results_have_pytorchs_bits(name: str, shape: tuple[int, ...], dim: int, dtype: Any, noted: NotedLoops) -> None:
    values = _given(shape, dtype)
    expected = _theirs(name, values, dim)
    _assert_same_bits(_ours(name, values, dim), expected)
    assert noted.found == {(name, np.dtype(dtype).char)}
    _assert_same_bits(_by_numpy(name, values, dim), expected)


@pytest.mark.parametrize("dtype", [np.float16, *DTYPES])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_of_equal_zeros_the_last_one_is_taken(name: str, dtype: Any) -> None:
    values = np.array([[0.0, -0.0, 0.0, -0.0], [-0.0, 0.0, -1.0, np.nan]] * 20, dtype)
    for dim in (0, 1):
        _assert_same_bits(_by_numpy(name, values, dim), _theirs(name, values, dim))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_gradients_of_sums_have_pytorchs_bits(shape: tuple[int, ...], dim: int, dtype: Any, noted: NotedLoops) -> None:
    values, wanted = _given(shape, dtype, special=False), _given(shape, dtype)
    expected = _theirs("cumsum", values, dim, wanted)
    _assert_same_bits(_ours("cumsum", values, dim, wanted), expected)
    assert noted.found
    _assert_same_bits(_by_numpy("cumsum", values, dim, wanted), expected)


@pytest.mark.parametrize("name", ["cumprod", "cummax", "cummin"])
def test_gradients_are_pytorchs(name: str, noted: NotedLoops) -> None:
    rng = np.random.default_rng(3)
    values, wanted = 1 + 0.1 * rng.standard_normal((50, 90)), rng.standard_normal((50, 90))
    made, expected = _ours(name, values, 1, wanted), _theirs(name, values, 1, wanted)
    assert noted.found
    for mine, theirs in zip(made, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "values"),
    [("cumsum", [3e38, 3e38, -3e38]), ("cumprod", [1e-30, 1e-30, 1e30, 1e30]), ("cumsum", [1e8, 1.0, -1e8])],
)
@pytest.mark.parametrize("dim", [0, 1])
def test_float32_is_added_in_double_precision(name: str, values: list[float], dim: int, noted: NotedLoops) -> None:
    rows = np.resize(np.array(values, np.float32), (2000, len(values)))
    given = np.ascontiguousarray(rows.T) if dim == 0 else rows
    with np.errstate(all="ignore"):
        wide = getattr(given.astype(np.float64), name)(dim).astype(np.float32)
        made = [_ours(name, given, dim), _by_numpy(name, given, dim)]
    assert noted.found
    for (mine,) in made:
        np.testing.assert_array_equal(mine, wide)


@pytest.mark.parametrize("dtype", [np.complex64, np.float16])
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_other_dtypes_are_numpys(shape: tuple[int, ...], dim: int, dtype: Any, noted: NotedLoops) -> None:
    values = _given(shape, np.float32, special=False).astype(dtype)
    _assert_same_bits(_ours("cumsum", values, dim), _theirs("cumsum", values, dim))
    assert noted.found == set()


@pytest.mark.parametrize("name", scans.NAMES)
def test_results_do_not_depend_on_the_threads(name: str, noted: NotedLoops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SHARED", 1)
    monkeypatch.setattr(threads, "LARGE", 1)
    found = []
    for number in (1, 2, 5):
        monkeypatch.setattr(POOL, "threads", number)
        found.append([
            each.tobytes() for shape, dim in SHAPES for each in _ours(name, _given(shape, np.float32), dim)
        ])  # fmt: skip
    assert found[0] == found[1] == found[2]
    assert noted.found


@pytest.mark.parametrize("name", scans.NAMES)
def test_small_and_strided_operands_are_numpys(name: str, noted: NotedLoops) -> None:
    for values in (_given((60, 60), np.float32), np.swapaxes(_given((60, 90), np.float32), 0, 1)):
        _ours(name, values, 1)
    assert noted.found == set()


def test_the_loops_have_vectors_of_this_size() -> None:
    for kind, itemsize in (("f4", 4), ("f8", 8)):
        assert lanes(kind) * itemsize == scan_loops._VECTOR

"""Indices of equal elements: PyTorch's along any dimension, of any dtype, in either direction."""

import numpy as np
import pytest

from gradwire_engine import tensor
from gradwire_engine.ops.index import sort, ties
from gradwire_engine.ops.reduce.averages import mode

torch = pytest.importorskip("torch")

SHAPES = [((40,), 0), ((300,), 0), ((3, 70), 1), ((70, 3), 0), ((2, 90, 3), 1)]
DTYPES = ["bool", "uint8", "int64", "float16", "float32"]


def _given(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Few distinct values, nan among those of floating point."""
    made = np.random.default_rng(5).integers(0, 2 if dtype == "bool" else 7, shape).astype(dtype)
    if made.dtype.kind == "f":
        made[made == 3] = np.nan
    return made


def _equal(ours: object, theirs: object) -> bool:
    """Whether all parts are equal, nan with nan."""
    parts = list(ours) if isinstance(ours, list | tuple) else [ours]
    others = list(theirs) if isinstance(theirs, tuple) else [theirs]
    assert len(parts) == len(others)
    return all(
        np.array_equal(one.array, other.numpy(), equal_nan=other.is_floating_point())
        for one, other in zip(parts, others, strict=True)
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("descending", [False, True])
def test_indices_of_equal_elements_are_those_of_pytorch(
    shape: tuple[int, ...], dim: int, dtype: str, descending: bool
) -> None:
    given = _given(shape, dtype)
    x, y = tensor(given), torch.tensor(given)
    assert _equal(sort.sort(x, dim, descending), torch.sort(y, dim, descending))
    assert _equal(sort.sort(x, dim, descending, True), torch.sort(y, dim=dim, descending=descending, stable=True))
    assert _equal(sort.argsort(x, dim, descending), torch.argsort(y, dim, descending))
    if dtype == "bool":
        return
    for k in (1, 2, shape[dim] // 2, shape[dim]):
        assert _equal(sort.kthvalue(x, k, dim), torch.kthvalue(y, k, dim))
        for ordered in (True, False):
            found = sort.topk(x, k, dim, descending, ordered)
            assert _equal(found, torch.topk(y, k, dim, descending, ordered)), (k, ordered)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_the_index_of_a_mode_and_of_a_median_is_that_of_pytorch(shape: tuple[int, ...], dim: int, dtype: str) -> None:
    given = _given(shape, dtype)
    x, y = tensor(given), torch.tensor(given)
    assert _equal(mode(x, dim), torch.mode(y, dim))
    if dtype != "bool":
        assert _equal(sort.median_dim(x, dim, False), torch.median(y, dim))


def test_long_lines_keep_the_order_of_equal_elements() -> None:
    given = np.random.default_rng(5).integers(0, 9, ties.MOST + 1)
    assert (sort.argsort(tensor(given)).array == np.argsort(given, kind="stable")).all()

"""CuPy with NumPy's behaviour, over a module that behaves as CuPy does: what is replaced, and what is passed on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gradwire_engine.backends.cupy import Overlay, _refusing_complex, _Replaced

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def test_an_overlay_has_the_replaced_names_and_the_modules_own() -> None:
    asked = []

    class Module:
        __name__ = "module"

        def __getattr__(self, name: str) -> str:
            asked.append(name)
            return name

    made = Overlay(Module(), where="replaced")
    assert (made.__name__, made.where, made.sort, made.sort) == ("module", "replaced", "sort", "sort")
    assert asked == ["sort"]  # kept after the first access


def _where_of_cupy(condition: Any, *chosen: Any) -> Any:
    """CuPy's: a bfloat16 operand becomes float32."""
    wide = [each.astype(np.float32) if getattr(each, "dtype", None) == BFLOAT16 else each for each in chosen]
    return np.where(condition, *wide)


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> _Replaced:
    made = _Replaced.__new__(_Replaced)
    made.cupy = SimpleNamespace(where=_where_of_cupy, ndarray=np.ndarray, asarray=np.asarray)
    return made


@pytest.mark.parametrize("other", [np.array([-1, -2], BFLOAT16), BFLOAT16.type(-1), 0.5])
def test_where_of_bfloat16_stays_bfloat16_and_keeps_nan(replaced: _Replaced, other: Any) -> None:
    one = np.array([np.nan, 2.0], BFLOAT16)
    for mask in (np.array([True, False]), np.array([False, True])):
        found = replaced.where(mask, one, other)
        assert found.dtype == BFLOAT16
        expected = np.where(mask, one, np.asarray(other, BFLOAT16))
        np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


def test_where_of_bfloat16_and_another_dtype_is_of_their_common_one(replaced: _Replaced) -> None:
    found = replaced.where(np.array([True, False]), np.ones(2, BFLOAT16), np.zeros(2, np.float64))
    assert (found.dtype, found.tolist()) == (np.float64, [1.0, 0.0])
    assert replaced.where(np.array([True, False]), 1.0, np.zeros(2, np.float32)).tolist() == [1.0, 0.0]


def test_what_moves_elements_keeps_bfloat16(replaced: _Replaced) -> None:
    wide = lambda input, k=0: np.tril(input, k).astype(np.float32 if input.dtype == BFLOAT16 else input.dtype)  # noqa: E731
    found = replaced.moving(wide)(np.ones((2, 2), BFLOAT16), -1)
    assert (found.dtype, found.astype(int).tolist()) == (BFLOAT16, [[0, 0], [1, 0]])


def test_complex_numbers_are_refused_as_numpy_refuses_them() -> None:
    copysign = _refusing_complex("copysign", np.copysign)
    assert copysign(1.0, -2.0) == -1.0
    with pytest.raises(TypeError, match="not supported"):
        copysign(np.array([1j]), 1.0)

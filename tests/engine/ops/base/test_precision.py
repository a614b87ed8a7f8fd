"""Half types are computed in float32, rounded once, and refused where PyTorch has no kernel."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason
from gradwire_engine.core import dtypes
from gradwire_engine.ops.base import precision


@precision.through_float32
def _thrice(xp: object, input: np.ndarray, *, plus: float = 0.0) -> np.ndarray:
    """Adds a third of each element three times."""
    third = input / 3
    return third + third + third + plus


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_a_half_array_is_rounded_once_at_the_end(dtype: np.dtype) -> None:
    x = np.linspace(-3, 3, 50).astype(dtype)
    found = _thrice(np, x, plus=1.0)
    wide = x.astype(np.float32)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, (wide / 3 + wide / 3 + wide / 3 + 1.0).astype(dtype))


def test_other_dtypes_and_calls_of_numbers_go_through_unchanged() -> None:
    assert _thrice(np, np.ones(2)).dtype == np.float64
    assert _thrice(np, 3.0) == 3.0


def test_the_decorator_keeps_the_name_and_declares_that_it_widens() -> None:
    assert _thrice.__name__ == "_thrice"
    assert _thrice.widens is True


@pytest.mark.parametrize(
    ("dtype", "half", "title"),
    [(dtypes.complex64, True, "ComplexFloat"), (dtypes.float16, False, "Half"), (dtypes.bfloat16, False, "BFloat16")],
)
def test_a_dtype_without_kernel_is_refused_with_kernel_and_dtype(dtype: np.dtype, half: bool, title: str) -> None:
    with pytest.raises(EngineError, match=f"\"erf_cpu\" not implemented for '{title}'") as refusal:
        precision.check_special("erf_cpu", dtype, half)
    assert refusal.value.reason is Reason.NOT_SUPPORTED


def test_float32_and_allowed_halves_pass() -> None:
    precision.check_special("erf_cpu", dtypes.float32, half=False)
    precision.check_special("erf_cpu", dtypes.float16)


def test_special_functions_of_numpy_arrays_are_scipys() -> None:
    assert precision.special(np).__name__ == "scipy.special"

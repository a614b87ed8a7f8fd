"""Other dtypes and devices, and the parts of complex numbers."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.ops.elementwise import convert
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch, uniform

Z = normal(3, 2, dtype="complex128")
SAME = [
    same(convert.to, torch.Tensor.to, normal(3), dtypes.float32),
    same(convert.to, torch.Tensor.to, uniform(-90, 90, 5), dtypes.int8),
    same(convert.to, torch.Tensor.to, normal(3), dtypes.complex128),
    same(convert.type_as, torch.Tensor.type_as, integers(0, 9, 3), normal(1, dtype="float32").constant),
    same(convert.real_, torch.real, Z),
    same(convert.conjugate, lambda z: torch.conj(z).resolve_conj(), Z),
    same(convert.imag, torch.imag, Z),
    same(convert.complex_, torch.complex, normal(3), normal(1)),
    same(convert.polar, torch.polar, uniform(0.5, 2, 3), normal(3)),
    same(convert.angle, torch.angle, Z),
    same(convert.angle, torch.angle, given([0j, -1 + 0j, 1j], "complex128"), smooth=False),
    same(convert.angle, torch.angle, given([-1.0, 0.0, 2.0, np.nan]), smooth=False),
]
REFUSED = [
    refused(convert.imag, Reason.RUNTIME, "non-complex dtypes: float64", normal(2), theirs=torch.imag),
    refused(
        convert.complex_,
        Reason.RUNTIME,
        "type Double but got scalar type Float",
        normal(2),
        normal(2, dtype="float32"),
        theirs=torch.complex,
    ),
    refused(
        convert.complex_,
        Reason.RUNTIME,
        "Half, Float or Double tensors but got Long",
        integers(0, 3, 2),
        integers(0, 3, 2),
        theirs=torch.complex,
    ),
    refused(convert.polar, Reason.NOT_SUPPORTED, "'Half'", normal(2, dtype="float16"), normal(2, dtype="float16")),
    refused(
        convert.polar, Reason.RUNTIME, "scalar type Double", normal(2), normal(2, dtype="float32"), theirs=torch.polar
    ),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_a_conversion_that_changes_nothing_returns_the_tensor_itself() -> None:
    x = tensor(np.ones(2))
    assert convert.to(x) is x
    assert convert.to(x, dtypes.float64, "cpu") is x
    assert convert.type_as(x, tensor(np.zeros(1))) is x
    assert convert.real_(x) is x
    assert convert.conjugate(x) is x
    assert convert.resolve_conj(x) is x


def test_a_copy_is_made_where_it_is_asked_for() -> None:
    x = tensor(np.ones(2))
    copied = convert.to(x, copy=True)
    assert copied is not x
    assert not np.shares_memory(copied.array, x.array)


def test_parts_of_complex_numbers_are_views() -> None:
    z = tensor(np.array([1 + 2j]))
    assert np.shares_memory(convert.real_(z).array, z.array)
    assert np.shares_memory(convert.imag(z).array, z.array)
    assert not np.shares_memory(convert.imaginary(z).array, z.array)


def test_an_absent_device_is_refused_with_those_that_exist() -> None:
    with pytest.raises(EngineError, match="the server has cpu") as refusal:
        convert.to(tensor(np.ones(1)), device="cuda:99")
    assert refusal.value.reason is Reason.DEVICE_UNAVAILABLE

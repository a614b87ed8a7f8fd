"""Functions of two or three tensors: broadcast, promoted, with both gradients, and at ties."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, gradients, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.ops.elementwise import binary
from tests.engine.oracle import Refused, Same, bools, given, integers, normal, refused, same, torch, uniform

A, B = normal(3, 1), normal(4)
POSITIVE = uniform(0.3, 3, 4)
NAN = np.nan
TIED = (given([1.0, 2.0, NAN, 0.0]), given([1.0, NAN, 3.0, -0.0]))
WHOLE = (integers(-20, 20, 8), integers(1, 7, 8))
SAME = [
    same(binary.pow, torch.pow, uniform(0.3, 3, 3, 1), B),
    same(binary.pow, torch.pow, normal(4), 3),
    same(binary.pow, torch.pow, normal(4), 0),
    same(binary.pow, torch.pow, 2.5, B),
    same(binary.pow, torch.pow, given([0.0, 0.0, 2.0]), given([0.0, 2.0, -1.0]), smooth=False),
    same(binary.pow, torch.pow, integers(1, 5, 4), integers(0, 4, 4)),
    same(binary.pow, torch.pow, given([1, -1, 2, -2], "int64", False), given([-3, -3, -1, -2], "int64", False)),
    same(binary.pow, torch.pow, normal(3, dtype="complex128"), normal(3, dtype="complex128")),
    same(binary.float_power, torch.float_power, integers(1, 5, 4), -2),
    same(binary.remainder, torch.remainder, normal(6), uniform(0.5, 2, 6)),
    same(binary.remainder, torch.remainder, *WHOLE),
    same(binary.remainder, torch.remainder, given([-3, 3], "int64", False), given([2, -2], "int64", False)),
    same(binary.fmod, torch.fmod, normal(6), uniform(0.5, 2, 6)),
    same(binary.fmod, torch.fmod, *WHOLE),
    same(binary.floor_divide, torch.floor_divide, *WHOLE),
    same(binary.atan2, torch.atan2, A, B),
    same(binary.hypot, torch.hypot, A, B),
    same(binary.maximum, torch.maximum, A, B),
    same(binary.minimum, torch.minimum, A, B),
    *(
        same(getattr(binary, name), getattr(torch, name), *TIED, smooth=False)
        for name in ("maximum", "minimum", "fmax", "fmin")
    ),
    same(binary.rsub, torch.rsub, A, B, alpha=2.0),
    same(binary.lerp, torch.lerp, A, B, 0.3),
    same(binary.lerp, torch.lerp, normal(4), normal(4), uniform(0, 1, 4)),
    same(binary.addcmul, torch.addcmul, A, B, normal(3, 4), value=0.5),
    same(binary.addcdiv, torch.addcdiv, A, B, uniform(0.5, 2, 3, 4), value=-2.0),
    same(binary.clamp, torch.clamp, normal(3, 4), -0.5, 0.6),
    same(binary.clamp, torch.clamp, normal(3, 4), None, 0.1),
    same(
        binary.clamp, torch.clamp, given([1.0, 2.0, 0.0]), given([2.0, 2.0, 5.0]), given([3.0, 1.0, 4.0]), smooth=False
    ),
    same(binary.clamp_min, torch.clamp_min, normal(4), normal(4)),
    same(binary.clamp_max, torch.clamp_max, normal(4), 0.2),
    same(binary.logaddexp, torch.logaddexp, A, B),
    same(binary.logaddexp, torch.logaddexp, given([-np.inf, 800.0], grad=False), given([-np.inf, 800.0], grad=False)),
    same(binary.logaddexp2, torch.logaddexp2, A, B),
    same(binary.copysign, torch.copysign, A, B),
    same(binary.copysign, torch.copysign, given([1.0, -2.0]), -0.0),
    same(binary.ldexp, torch.ldexp, normal(4), integers(-3, 4, 4)),
    same(binary.nextafter, torch.nextafter, A.constant, B.constant),
    same(binary.gcd, torch.gcd, integers(-40, 40, 9), integers(-40, 40, 9)),
    same(binary.lcm, torch.lcm, integers(-40, 40, 9), integers(-40, 40, 9)),
    same(binary.heaviside, torch.heaviside, given([-1.0, 0.0, 2.0], grad=False), given([7.0, 7.0, 7.0], grad=False)),
    same(binary.xlogy, torch.xlogy, A, POSITIVE),
    same(binary.xlogy, torch.xlogy, given([0.0, 0.0, 1.0]), given([0.0, NAN, 0.0]), smooth=False),
    same(binary.maximum, torch.maximum, integers(-9, 9, 4, dtype="int8"), integers(-9, 9, 4)),
]
REFUSED = [
    refused(binary.pow, Reason.RUNTIME, "negative integer powers", integers(1, 3, 2), -1, theirs=torch.pow),
    refused(binary.pow, Reason.NOT_SUPPORTED, "'Bool'", bools(2), bools(2), theirs=torch.pow),
    refused(binary.remainder, Reason.RUNTIME, "ZeroDivisionError", integers(1, 3, 2), 0, theirs=torch.remainder),
    refused(binary.fmod, Reason.RUNTIME, "ZeroDivisionError", integers(1, 3, 2), 0, theirs=torch.fmod),
    refused(binary.maximum, Reason.RUNTIME, "complex", normal(2, dtype="complex128"), normal(2), theirs=torch.maximum),
    refused(binary.clamp, Reason.RUNTIME, "At least one of 'min' or 'max'", normal(2), theirs=torch.clamp),
    refused(binary.clamp, Reason.NOT_SUPPORTED, "complex", normal(2, dtype="complex128"), 0.0, theirs=torch.clamp),
    refused(binary.addcdiv, Reason.RUNTIME, "Integer division", *[integers(1, 4, 2)] * 3, theirs=torch.addcdiv),
    refused(
        binary.heaviside,
        Reason.RUNTIME,
        "They are Double and Float",
        normal(2),
        normal(2, dtype="float32"),
        theirs=torch.heaviside,
    ),
    refused(binary.lerp, Reason.RUNTIME, "`end`", normal(2), normal(2, dtype="float32"), 0.5, theirs=torch.lerp),
    refused(binary.lerp, Reason.NOT_SUPPORTED, "'Long'", integers(0, 3, 2), normal(2), 0.5),
    refused(binary.ldexp, Reason.NOT_SUPPORTED, "'Bool'", normal(2), bools(2)),
    refused(binary.float_power, Reason.ARGUMENT_TYPE, "float_power()", 2.0, 3.0),
    refused(binary.gcd, Reason.NOT_SUPPORTED, "'Double, Double'", normal(2), normal(2), theirs=torch.gcd),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("function", [binary.floor_divide, binary.heaviside])
def test_an_op_without_derivative_refuses_in_backward(function) -> None:
    x = tensor(np.array([3.0]), True)
    with pytest.raises(EngineError) as refusal:
        gradients([function(x, tensor(np.array([2.0])))], [x], [tensor(np.ones(1))])
    theirs = torch.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError) as expected:
        getattr(torch, function.name)(theirs, torch.ones(1)).backward()
    assert type(expected.value) is RuntimeError
    assert refusal.value.reason is Reason.RUNTIME
    assert refusal.value.message == str(expected.value)


def test_float_power_in_place_wants_double_precision() -> None:
    x = tensor(np.array([3.0]))
    binary.float_power.in_place((x, 2.0))
    assert x.array.tolist() == [9.0]
    with pytest.raises(EngineError, match="dtype Float but the operation's result requires dtype Double"):
        binary.float_power.in_place((tensor(np.ones(1, np.float32)), 2.0))


def test_log_of_sum_of_complex_numbers_is_the_logarithm_of_the_sum() -> None:
    rng = np.random.default_rng(5)
    one, other = (rng.standard_normal(9) + 1j * rng.standard_normal(9) for _ in range(2))
    found = binary.log_of_sum(np, one, other)
    np.testing.assert_allclose(np.exp(found), np.exp(one) + np.exp(other), rtol=1e-12)
    assert found.dtype == dtypes.complex128

"""Signatures: names, binding of arguments, refusals of them, and dtypes that an op lacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason
from gradwire_engine.core.dtypes import BY_NAME
from gradwire_engine.op.signature import REGISTRY, Signature

Array = Any


def _stretch(xp: Any, input: Array, by: float, times: int = 2, *, mode: str = "fast", scale: float = 1.0) -> Array:
    """Stretches the input.

    Twice by default.
    """
    return (input, by, times, mode, scale)


@pytest.fixture
def signature() -> Signature:
    return Signature(_stretch, "_stretch", skip=1)


@pytest.mark.parametrize(
    ("args", "kwargs", "bound"),
    [
        ((1, 2.0), {}, (1, 2.0, 2, "fast", 1.0)),
        ((1, 2.0, 5), {}, (1, 2.0, 5, "fast", 1.0)),
        ((1,), {"by": 3.0, "mode": "slow"}, (1, 3.0, 2, "slow", 1.0)),
        ((), {"input": 1, "by": 2.0, "scale": 4.0}, (1, 2.0, 2, "fast", 4.0)),
    ],
)
def test_arguments_are_bound_in_the_order_of_the_parameters(signature, args, kwargs, bound) -> None:
    assert signature.bind(args, kwargs) == bound
    assert signature.forward(np, *bound) == bound


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((1,), {}, "missing 1 required argument: 'by'"),
        ((1, 2, 3, 4), {}, "takes 3 positional arguments but 4 were given"),
        ((1, 2.0), {"how": 1}, "unexpected keyword argument 'how'; it has input, by, times, mode, scale"),
        ((1, 2.0), {"by": 1.0}, "multiple values for argument 'by'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(signature, args, kwargs, says: str) -> None:
    with pytest.raises(EngineError) as refusal:
        signature.bind(args, kwargs)
    assert refusal.value.reason is Reason.ARGUMENT_TYPE
    assert says in refusal.value.message
    assert refusal.value.metadata == {"op": "_stretch"}


def test_a_signature_has_a_name_places_and_a_clean_description(signature) -> None:
    assert signature.positions == {"input": 0, "by": 1, "times": 2, "mode": 3, "scale": 4}
    assert (signature.arity, signature.required, signature.positional) == (5, 2, 3)
    assert signature.doc == "Stretches the input.\n\nTwice by default."
    assert "_stretch" not in REGISTRY


def test_a_public_name_is_registered_once() -> None:
    assert REGISTRY["add"].name == "add"
    with pytest.raises(ValueError, match="op add is declared twice"):
        Signature(_stretch, "add", skip=1)


def _with(dtype: str) -> tuple:
    return (np.zeros(1, BY_NAME[dtype]), 1.0, 2, "fast", 1.0)


def test_a_lacking_kind_is_refused_as_pytorch_does(signature) -> None:
    signature.unsupported("bi", kernel="stretch_cpu", except_for=("uint8",))
    refusal = signature.unsupported_error(_with("int64"))
    assert (refusal.reason, refusal.message) == (Reason.NOT_SUPPORTED, "\"stretch_cpu\" not implemented for 'Long'")
    assert signature.unsupported_error(_with("bool")) is not None
    assert signature.unsupported_error(_with("uint8")) is None
    assert signature.unsupported_error(_with("float32")) is None


def test_a_refusal_may_have_words_of_its_own_and_a_condition(signature) -> None:
    signature.unsupported("c", message="no complex stretching", when=signature.given("mode", "slow"))
    assert signature.unsupported_error(_with("complex64")) is None
    refusal = signature.unsupported_error((np.zeros(1, complex), 1.0, 2, "slow", 1.0))
    assert (refusal.reason, refusal.message) == (Reason.RUNTIME, "no complex stretching")


def test_only_the_named_parameters_are_checked() -> None:
    signature = Signature(_two, "_two", skip=0)
    signature.unsupported("f", kernel="two", of=("second",))
    one, other = np.zeros(1), np.zeros(1, np.int64)
    assert signature.unsupported_error((one, other)) is None
    assert signature.unsupported_error((other, one)) is not None


def _two(first: Array, second: Array) -> Array:
    return first

"""Tensors of lists: dtypes, shapes and refusals as PyTorch's; of a list of tensors no value is read."""

import warnings
from typing import Any

import numpy as np
import pytest

import gradwire
from tests.client.oracle import agree, messages, refuse
from tests.client.test_deferral import waits  # noqa: F401 a fixture

MADE = {
    "two float dtypes": lambda t: t.tensor([t.tensor(1.5, dtype=t.float64), 2.5]),
    "a half and a float": lambda t: t.tensor([t.tensor(1.5, dtype=t.float16), 2.5]),
    "two integer dtypes": lambda t: t.tensor([t.tensor(1, dtype=t.int32), 2]),
    "signed and unsigned": lambda t: t.tensor([t.tensor(1, dtype=t.uint8), t.tensor(1, dtype=t.int8)]),
    "one integer dtype": lambda t: t.tensor([t.tensor(1, dtype=t.int32)]),
    "bfloat16": lambda t: t.tensor([t.tensor(1.5, dtype=t.bfloat16)]),
    "bool and integer": lambda t: t.tensor([t.tensor(True), t.tensor(2)]),
    "vectors of one element": lambda t: t.tensor([t.tensor([1.0]), t.tensor([2.0])]),
    "a matrix of one element": lambda t: t.tensor([t.tensor([[1.0]]), 2]),
    "rows of tensors": lambda t: t.tensor([[t.tensor(1.5), t.tensor(2)], [t.tensor(3), t.tensor(4)]]),
    "a row that is a tensor": lambda t: t.tensor([[1, 2], t.tensor([3, 4])]),
    "wider": lambda t: t.tensor([t.tensor(1.5), t.tensor(2)], dtype=t.float64),
    "narrower": lambda t: t.tensor([t.tensor(1.5), t.tensor(2)], dtype=t.float16),
    "integers as floats": lambda t: t.FloatTensor([t.tensor(1), t.tensor(2)]),
    "a leaf": lambda t: t.tensor([t.tensor(1.0)], requires_grad=True),
    "of a graph": lambda t: t.tensor([t.ones((), requires_grad=True) * 2]),
    "as_tensor": lambda t: t.as_tensor((t.tensor(1.5), t.tensor(2.5))),
    "NumPy's and Python's float": lambda t: t.tensor([np.float64(1.5), 2.0]),
    "NumPy's float and an integer": lambda t: t.tensor([np.float64(1.5), 2]),
    "NumPy's single and a float": lambda t: t.tensor([np.float32(1.5), 2.0]),
    "NumPy's half and an integer tensor": lambda t: t.tensor([np.float16(1.5), t.tensor(2)]),
    "NumPy's float and a complex number": lambda t: t.tensor([np.float64(1.5), 1j]),
    "NumPy's integers": lambda t: t.tensor([np.uint8(3), np.int8(3)]),
}
REFUSED = {
    "two elements": (lambda t: t.tensor([t.ones(2), t.ones(2)]), ValueError, "only one element tensors"),
    "no element": (lambda t: t.tensor([t.ones(0)]), ValueError, "only one element tensors"),
    "a fraction": (lambda t: t.tensor([t.tensor(1.5)], dtype=t.int64), TypeError, "only integer tensors"),
    "too large": (lambda t: t.tensor([t.tensor(300)], dtype=t.uint8), RuntimeError, "without overflow"),
    "no dimensions": (lambda t: t.tensor([np.array(1.5)]), TypeError, "unsized object"),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_list_becomes_what_it_becomes_in_pytorch(session, make):
    agree(make)


@pytest.mark.parametrize(("make", "error", "phrase"), REFUSED.values(), ids=REFUSED)
def test_list_is_refused_as_in_pytorch(session, make, error, phrase):
    refuse(make, error, phrase)


def test_list_of_tensors_is_not_read(waits):  # noqa: F811
    def listed(value):
        return gradwire.tensor([value]), gradwire.tensor([[value, value], [value, value]], dtype=gradwire.float64)

    value = gradwire.ones(())
    listed(value)
    assert waits.during(listed, value + 1) <= 1  # that of the sum, at a new place


def test_warning_tells_of_a_graph_that_is_left(session, monkeypatch):
    monkeypatch.setattr("gradwire._tensor.tensor._scalar_warned", False)
    text = messages(lambda t: t.tensor([t.ones((), requires_grad=True)]), gradwire)
    assert len(text) == 1 and "requires_grad=True to a scalar" in text[0]


@pytest.mark.parametrize("name", ["uint8", "uint16", "int8", "int64", "float32", "float16", "bool"])
@pytest.mark.parametrize(
    "value", [-3, -255, -256, -65535, 256, -129, 3.7, -3.7, [1, -1], [-1.5, 2], 300.5, 1e40, float("inf"), float("nan")]
)
@pytest.mark.usefixtures("session")
def test_numbers_out_of_range_are_pytorchs(value: object, name: str) -> None:
    def told(t: Any) -> str:
        try:
            return repr(t.tensor(value, dtype=getattr(t, name)).tolist())
        except RuntimeError as error:
            return str(error)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agree(told)

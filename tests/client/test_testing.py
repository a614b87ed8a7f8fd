"""torch.testing: what assert_close takes for close, what it refuses, and make_tensor's ranges."""

from collections import OrderedDict

import pytest

import gradwire
from tests.client.oracle import agree, torch

pytestmark = pytest.mark.usefixtures("session")


def _raised(t, *args, **options):
    """The kind of exception, and the first line of its text up to the first number."""
    try:
        t.testing.assert_close(*args, **options)
    except (AssertionError, ValueError) as error:
        return type(error).__name__
    return "close"


CASES = {
    "equal": lambda t: (t.ones(3), t.ones(3)),
    "within the tolerance": lambda t: (t.ones(3), t.ones(3) + 1e-6),
    "outside of the tolerance": lambda t: (t.ones(3), t.ones(3) + 1e-4),
    "float64's tolerance is smaller": lambda t: (
        t.ones(3, dtype=t.float64),
        t.ones(3, dtype=t.float64) + 1e-6,
    ),
    "float16's is larger": lambda t: (t.ones(3, dtype=t.float16), t.ones(3, dtype=t.float16) + 9e-4),
    "another shape": lambda t: (t.ones(3), t.ones(1, 3)),
    "another dtype": lambda t: (t.ones(3), t.ones(3, dtype=t.float64)),
    "integers": lambda t: (t.tensor([1, 2]), t.tensor([1, 2])),
    "other integers": lambda t: (t.tensor([1, 2]), t.tensor([1, 3])),
    "complex": lambda t: (t.tensor([1 + 1j]), t.tensor([1 + 1.1j])),
    "nan": lambda t: (t.tensor([float("nan")]), t.tensor([float("nan")])),
    "infinite": lambda t: (t.tensor([float("inf")]), t.tensor([float("inf")])),
    "numbers": lambda t: (1.0, 1.0 + 1e-9),
    "other numbers": lambda t: (1.0, 1.1),
    "lists": lambda t: ([t.ones(2), 3.0], [t.ones(2), 3.0]),
    "lists of other lengths": lambda t: ([t.ones(2)], [t.ones(2), 3.0]),
    "dicts": lambda t: ({"a": t.ones(2)}, OrderedDict(a=t.ones(2))),
    "dicts with other keys": lambda t: ({"a": t.ones(2)}, {"b": t.ones(2)}),
    "nested, with a difference": lambda t: ({"a": [t.ones(2)]}, {"a": [t.zeros(2)]}),
    "empty": lambda t: (t.ones(0), t.ones(0)),
}


@pytest.mark.parametrize("name", CASES)
def test_close_is_what_it_is_in_pytorch(name):
    def case(t):
        options = [{}, {"rtol": 0, "atol": 1e-3}, {"equal_nan": True}, {"check_dtype": False}, {"rtol": 1e-3}]
        return [_raised(t, *CASES[name](t), **each) for each in options]

    agree(case)


def test_the_message_names_the_place_and_the_count():
    with pytest.raises(AssertionError, match=r"'a'.*\[1\](.|\n)*Mismatched elements: 2 / 3"):
        gradwire.testing.assert_close({"a": [1.0, gradwire.ones(3)]}, {"a": [1.0, gradwire.tensor([1.0, 2.0, 3.0])]})
    with pytest.raises(AssertionError, match="my words"):
        gradwire.testing.assert_close(gradwire.ones(3), gradwire.zeros(3), msg="my words")
    with pytest.raises(AssertionError, match="at first: Tensor-likes"):
        gradwire.testing.assert_close(gradwire.ones(3), gradwire.zeros(3), msg=lambda text: f"at first: {text}")


@pytest.mark.parametrize("name", ["float32", "float64", "int64", "uint8", "int8", "bool", "complex64"])
def test_made_tensors_have_pytorchs_range(name):
    for t in (torch, gradwire):
        made = t.testing.make_tensor((400,), dtype=getattr(t, name), device="cpu")
        assert (made.dtype, tuple(made.shape)) == (getattr(t, name), (400,))
        values = t.view_as_real(made) if name == "complex64" else made
        low, high = float(values.to(t.float64).min()), float(values.to(t.float64).max())
        least = 0 if name in ("uint8", "bool") else -9
        assert least <= low <= least + 1 and high <= 9 and high >= (1 if name == "bool" else 8)
    narrow = gradwire.testing.make_tensor(5, 3, dtype=gradwire.float32, device="cpu", low=2, high=3, requires_grad=True)
    assert narrow.requires_grad and float(narrow.min()) >= 2 and float(narrow.max()) <= 3

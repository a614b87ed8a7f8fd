"""Numbers that a dtype does not hold are refused in the call itself, also where other numbers succeeded before."""

import pytest

import gradwire
from tests.client.oracle import torch

pytestmark = pytest.mark.usefixtures("session")

CALLS = {
    "full": lambda t, x, number: t.full((3,), number, dtype=x.dtype),
    "full_like": lambda t, x, number: t.full_like(x, number),
    "fill_": lambda t, x, number: x.fill_(number),
    "masked_fill_": lambda t, x, number: x.masked_fill_(x > 0, number),
    "index_fill": lambda t, x, number: x.index_fill(0, t.tensor([0]), number),
    "linspace": lambda t, x, number: t.linspace(0, number, 3, dtype=x.dtype),
    "clamp": lambda t, x, number: x.clamp(number, number),
    "clamp_min": lambda t, x, number: x.clamp_min(number),
    "clamp_max": lambda t, x, number: x.clamp_max(number),
    "hardtanh": lambda t, x, number: t.nn.functional.hardtanh(x, number, number),
    "scatter": lambda t, x, number: x.scatter(0, t.tensor([0]), number),
}
NUMBERS = {
    "float16": [(1.5, 1e6)],
    "bfloat16": [(1.5, 1e39)],
    "float32": [(1.5, 1e39), (1e30, -1e300)],
    "int64": [(3.5, 1e30)],
    "uint8": [(3.5, 300.5), (1.5, -1.5), (3, 300)],
}
CASES = [(call, dtype, *pair) for dtype, pairs in NUMBERS.items() for pair in pairs for call in CALLS]


def _answer(t, call, dtype, number):
    try:
        CALLS[call](t, t.ones(3).to(getattr(t, dtype)), number)
    except RuntimeError as error:
        return "told late" if "without waiting" in str(error) else "refused"
    return "taken"


@pytest.mark.parametrize(("call", "dtype", "good", "bad"), CASES)
def test_a_number_out_of_range_is_refused_at_once(call, dtype, good, bad):
    for number in (good, good, bad, good):
        answer = _answer(gradwire, call, dtype, number)
        gradwire.zeros(1).item()  # nothing is left to be told
        assert answer == _answer(torch, call, dtype, number)
        assert answer == "taken" or number == bad


FACTORS = {
    "add": lambda t, x, number: t.add(x, x, alpha=number),
    "add_": lambda t, x, number: x.add_(x, alpha=number),
    "sub": lambda t, x, number: t.sub(x, x, alpha=number),
    "rsub": lambda t, x, number: t.rsub(x, x, alpha=number),
    "addcmul": lambda t, x, number: t.addcmul(x, x, x, value=number),
    "addcdiv": lambda t, x, number: t.addcdiv(x, x, x, value=number),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("call", FACTORS)
def test_a_factor_that_the_dtype_does_not_hold_is_refused(call, dtype):
    for number in (2.5, 2.5, 1e300, 2j, float("inf"), 2.5):
        answers = []
        for t in (torch, gradwire):
            try:
                answers.append(str(FACTORS[call](t, t.ones(3, dtype=getattr(t, dtype)), number).dtype))
            except RuntimeError:
                answers.append("refused")
        gradwire.zeros(1).item()
        assert answers[0] == answers[1], number


@pytest.mark.parametrize("call", ["quantile", "normal"])
def test_another_probability_or_deviation_is_refused_at_once(call):
    def draw(t, number):
        return t.quantile(t.ones(3), number) if call == "quantile" else t.normal(0.0, number, (3,))

    for number, refused in ((0.5, False), (0.25, False), (-1.5, True)):
        for t in (torch, gradwire):
            if refused:
                with pytest.raises(RuntimeError):
                    draw(t, number)
            else:
                draw(t, number)
    gradwire.zeros(1).item()

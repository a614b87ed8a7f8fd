"""Cases: numbers and their bits."""

import datetime
import decimal
import fractions
import math

import gradwire
from tests.client.compile_cases.table import case


@case
def zero_and_minus_zero():
    held = [0.0]
    return (lambda x: x.new_zeros(3) + gradwire.tensor([1.0]) / gradwire.tensor([held[0]])), lambda: held.__setitem__(
        0, -0.0
    )


@case
def zero_and_minus_zero_among_the_arguments():
    values = [0.0, 0.0, 0.0, -0.0, -0.0, 0.0]
    turn = iter(values)
    return (lambda x, z: x / (x * 0 + z)), lambda: None, lambda: (gradwire.ones(2), next(turn))


@case
def one_and_true():
    held = [1]
    return (lambda x: gradwire.tensor([held[0], held[0]])), lambda: held.__setitem__(0, True)


@case
def one_and_one_point_nought():
    held = [1]
    return (lambda x: gradwire.tensor([held[0]])), lambda: held.__setitem__(0, 1.0)


@case
def one_and_true_among_the_arguments():
    turn = iter([1, 1, 1, True, 1.0, True])
    return (lambda x, z: gradwire.tensor([z])), lambda: None, lambda: (gradwire.ones(2), next(turn))


@case
def nan_and_a_number():
    held = [math.nan]
    return (lambda x: x * held[0]), lambda: held.__setitem__(0, 3.0)


@case
def a_complex_numbers_sign_of_zero():
    held = [complex(1.0, 0.0)]

    def step(x):
        return x * math.copysign(1.0, held[0].imag)

    return step, lambda: held.__setitem__(0, complex(1.0, -0.0))


@case
def a_decimal():
    held = [decimal.Decimal(2)]
    return (lambda x: x * float(held[0])), lambda: held.__setitem__(0, decimal.Decimal(3))


@case
def the_decimal_context():
    held = decimal.Decimal(1)
    context = decimal.getcontext()

    def step(x):
        return x * float(held / decimal.Decimal(3))

    return step, lambda: setattr(context, "prec", 3), None, lambda: setattr(context, "prec", 28)


@case
def a_fraction():
    held = [fractions.Fraction(1, 2)]
    return (lambda x: x * float(held[0])), lambda: held.__setitem__(0, fractions.Fraction(1, 3))


@case
def a_date():
    held = [datetime.date(2020, 1, 2)]
    return (lambda x: x * held[0].day), lambda: held.__setitem__(0, datetime.date(2020, 1, 3))


@case
def a_text():
    held = ["ab"]
    return (lambda x: x * len(held[0])), lambda: held.__setitem__(0, "abc")


@case
def a_range_exchanged():
    held = [range(2)]
    return (lambda x: x * len(held[0])), lambda: held.__setitem__(0, range(3))


@case
def a_slice_exchanged():
    held = [slice(0, 2)]
    return (lambda x: x[held[0]]), lambda: held.__setitem__(0, slice(1, 3))


@case
def a_dtype_exchanged():
    held = [gradwire.float32]
    return (lambda x: x.to(held[0])), lambda: held.__setitem__(0, gradwire.float64)

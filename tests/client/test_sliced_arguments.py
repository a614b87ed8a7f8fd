"""`compile(…, sliced=…)`: the arguments that are cut are those that it names, however the function gets them."""

from typing import Any

import pytest

import gradwire
from gradwire import nn
from gradwire._compile.calls import FunctionCall

pytestmark = pytest.mark.usefixtures("deferring")


def step(x: Any, y: Any, *, scale: Any = None) -> Any:
    return x, y, scale


class Trainer:
    def step(self, x: Any, y: Any) -> Any:
        return x, y


class Net(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x, y


def cut(function: Any, sliced: Any, *args: Any, **kwargs: Any) -> list[int]:
    return FunctionCall(function, 1, sliced, args, kwargs, "data_parallel=2").sliced


@pytest.mark.parametrize("function", [step, Trainer().step, Net()], ids=["function", "method", "module"])
@pytest.mark.parametrize(
    ("sliced", "expected"), [(("x",), [0]), (("y",), [1]), ((1,), [1]), (("x", 1), [0, 1]), (None, [0, 1])]
)
def test_names_and_positions_mean_the_same_argument(function: Any, sliced: Any, expected: list[int]) -> None:
    x, y = gradwire.ones(2, 3), gradwire.zeros(2)
    assert cut(function, sliced, x, y) == expected
    assert cut(function, sliced, x, y=y) == expected
    assert cut(function, sliced, x=x, y=y) == expected


@pytest.mark.parametrize("sliced", [("x", "z"), ("x", 2), ("x", -1), (0, "self")])
@pytest.mark.parametrize("function", [step, Trainer().step, Net()], ids=["function", "method", "module"])
def test_what_names_no_argument_is_refused(function: Any, sliced: Any) -> None:
    with pytest.raises(ValueError, match=r"sliced names \[.*\], which are no arguments; the parameters are 'x', 'y'"):
        cut(function, sliced, gradwire.ones(2), gradwire.ones(2))


def test_a_parameter_that_the_call_leaves_out_may_be_named() -> None:
    assert cut(step, ("x", "scale"), gradwire.ones(2), gradwire.ones(2)) == [0]

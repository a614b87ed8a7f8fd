"""Autograd's rules one by one, on the engine itself: each scenario runs with torch and in process, and both agree.

`torch_like` translates PyTorch's surface to calls of the engine. A scenario that needs the client says why.
"""

import functools
import re
from collections.abc import Callable
from typing import Any

import pytest

from gradwire_engine import REGISTRY
from tests.comparison import alike, plain
from tests.engine import torch_like
from tests.scenarios import SCENARIOS, Scenario

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests")
pytestmark = pytest.mark.filterwarnings("ignore")

IN_PROCESS = [pytest.param(each, id=each.name) for each in SCENARIOS if each.over_the_wire_only is None]
OVER_THE_WIRE = [pytest.param(each, id=each.name) for each in SCENARIOS if each.over_the_wire_only is not None]


def outcome(scenario: Scenario, module: Any) -> Any:
    """What the scenario returns, as plain data; or the class of its refusal, if the message is the expected one."""
    if scenario.refusal is None:
        return plain(scenario(module))
    error, phrase = scenario.refusal
    try:
        scenario(module)
    except error as raised:
        return error if re.search(phrase, str(raised)) else f"{type(raised).__name__}: {raised}"
    return "no refusal"


def check(scenario: Scenario) -> None:
    """The engine does what PyTorch does."""
    expected, found = outcome(scenario, torch), outcome(scenario, torch_like)
    assert alike(found, expected), f"{found} is not {expected}"


@pytest.mark.parametrize("scenario", IN_PROCESS)
def test_the_engine_does_what_pytorch_does(scenario: Scenario) -> None:
    check(scenario)


@pytest.mark.parametrize("scenario", OVER_THE_WIRE)
def test_what_is_left_to_the_client_is_not_the_engines(scenario: Scenario) -> None:
    with pytest.raises(Exception):  # noqa: B017 what is missing shows in many ways
        check(scenario)


@pytest.mark.parametrize("name", ["clone", "exp", "mul", "select", "sum"])
def test_a_wrong_derivative_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op = REGISTRY[name]
    wrong = {parameter: (_doubled(formula), names) for parameter, (formula, names) in op.formulas.items()}
    monkeypatch.setattr(op, "formulas", wrong)
    monkeypatch.setattr(op, "saving_plans", {})
    returning = [each for each in SCENARIOS if each.over_the_wire_only is None and each.refusal is None]
    assert any(not alike(_in_process(each), outcome(each, torch)) for each in returning)


def _doubled(formula: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(formula)
    def wrong(*args: Any) -> Any:
        return formula(*args) * 2

    return wrong


def _in_process(scenario: Scenario) -> Any:
    """What the engine makes of a scenario, which may be an error where a derivative is wrong."""
    try:
        return outcome(scenario, torch_like)
    except Exception as error:  # noqa: BLE001
        return repr(error)

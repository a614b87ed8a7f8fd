"""Autograd's rules one by one: each scenario runs with torch and, over the server, with gradwire, and both agree.

A scenario is a function of the module, in `scenarios/`. It answers tensors, numbers and flags; or it is refused.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest

from tests import scenarios
from tests.client.oracle import agree, torch

pytestmark = pytest.mark.usefixtures("session")


def _all() -> list[Any]:
    found = []
    for info in pkgutil.iter_modules(scenarios.__path__):
        module = importlib.import_module(f"{scenarios.__name__}.{info.name}")
        for name, function in vars(module).items():
            own = inspect.isfunction(function) and function.__module__ == module.__name__ and info.name != "kit"
            if own and list(inspect.signature(function).parameters) == ["torch"]:
                found.append(pytest.param(function, id=f"{info.name}-{name}"))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scenario", _all())
def test_gradwire_does_what_pytorch_does(scenario: Callable[[Any], Any]) -> None:
    refusal = getattr(scenario, "refusal", None)
    if refusal is None:
        agree(scenario)
        return
    import gradwire

    error, phrase = refusal
    for module in (torch, gradwire, gradwire, gradwire):
        with pytest.raises(error, match=phrase):
            scenario(module)

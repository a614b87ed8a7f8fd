"""Autograd's rules, one function each. A scenario takes a module that looks like torch, and returns or is refused.

The scenarios run beside PyTorch in two ways: tests/engine/test_scenarios.py uses the engine in process, and
tests/client/test_scenarios.py the client over a server.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.scenarios.kit import Client


@dataclass(frozen=True)
class Scenario:
    """A program, the error and phrase of its refusal if any, and the reason why it needs the client if any."""

    name: str
    function: Callable[[Any], Any]
    refusal: tuple[type[Exception], str] | None
    over_the_wire_only: Client | None

    def __call__(self, torch: Any) -> Any:
        """Run with a module that looks like torch."""
        return self.function(torch)


def _of(module: Any) -> list[Scenario]:
    found = []
    for name, function in vars(module).items():
        own = inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
        if own:
            reason = getattr(function, "over_the_wire_only", getattr(module, "OVER_THE_WIRE_ONLY", None))
            title = f"{module.__name__.rpartition('.')[2]}-{name}"
            found.append(Scenario(title, function, getattr(function, "refusal", None), reason))
    return found


SCENARIOS = [
    scenario
    for info in pkgutil.iter_modules(__path__)
    if info.name != "kit"
    for scenario in _of(importlib.import_module(f"{__name__}.{info.name}"))
]

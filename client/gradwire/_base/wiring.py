"""Wiring: gives lower packages access to functions of higher packages.

The facade's tables name the module of each function. A lower package imports no higher one, not even inside a
function. The module is loaded at the first call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


@cache
def wired(name: str) -> Any:
    """The public function or `gradwire._WIRED` entry of that name. Raises KeyError for an unknown name."""
    facade = sys.modules["gradwire"]  # loaded before any of its modules
    home = facade._HOMES.get(name) or facade._WIRED[name]
    return getattr(import_module(f"gradwire.{home}"), name)


def names_of_paths(module: str) -> Callable[[str], Any]:
    """A `__getattr__` for a package: names and submodules that the tables of PyTorch's paths have (`_paths`)."""
    path = module.removeprefix("gradwire.")

    def find(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module '{module}' has no attribute '{name}'", name=name)
        found = wired("attribute")(path, name)
        setattr(sys.modules[module], name, found)
        return found

    return find

"""Functions of higher packages that lower ones call: the facade's tables say where each is defined.

A lower package imports no higher one, not even inside a function. Nothing is loaded before the first call.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any


@cache
def wired(name: str) -> Any:
    """The function of that name, a public one of gradwire or one of `gradwire._WIRED`. Raises KeyError for another."""
    facade = sys.modules["gradwire"]  # loaded before any of its modules
    home = facade._HOMES.get(name) or facade._WIRED[name]
    return getattr(import_module(f"gradwire.{home}"), name)

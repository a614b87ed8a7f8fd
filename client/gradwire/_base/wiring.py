"""Wiring: gives lower packages access to functions of higher packages.

The facade's tables name the module of each function. A lower package imports no higher one, not even inside a
function. The module is loaded at the first call.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any


@cache
def wired(name: str) -> Any:
    """The public function or `gradwire._WIRED` entry of that name. Raises KeyError for an unknown name."""
    facade = sys.modules["gradwire"]  # loaded before any of its modules
    home = facade._HOMES.get(name) or facade._WIRED[name]
    return getattr(import_module(f"gradwire.{home}"), name)

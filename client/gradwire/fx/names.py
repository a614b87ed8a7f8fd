"""Names of a graph's values: each once, and none of Python's own."""

from __future__ import annotations

import builtins
import keyword
import re
from typing import Any

#: What the code of a graph may use besides its values.
GLOBALS = ("inf", "nan", "NoneType", "torch", "device", "fx_pytree", "pytree")


class Names:
    """The names in use."""

    def __init__(self) -> None:
        self._used: dict[str, Any] = {}
        self._next: dict[str, int] = {}

    def make(self, candidate: str, owner: Any) -> str:
        """A free name like the candidate."""
        candidate = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        found = re.fullmatch(r"(.*)_(\d+)", candidate)
        base, number = (found[1], int(found[2])) if found and found[1] else (candidate, None)
        while candidate in self._used or _reserved(candidate):
            number = self._next.get(base, 0) + 1 if number is None else number + 1
            candidate = f"{base}_{number}"
        self._next[base] = max(number or 0, self._next.get(base, 0))
        self._used[candidate] = owner
        return candidate

    def free(self, name: str) -> None:
        """Let a name be used again."""
        self._used.pop(name, None)


def _reserved(name: str) -> bool:
    return keyword.iskeyword(name) or name in GLOBALS or name in builtins.__dict__


def snake_case(name: str) -> str:
    """A class's or function's name in lower case with underscores."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()

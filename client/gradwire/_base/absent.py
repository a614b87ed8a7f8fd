"""Absent names: suggests the nearest names and marks the ops of PyTorch that gradwire lacks."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

from gradwire._base.errors import GradwireNotImplementedError

# PyTorch's ops and functions that gradwire lacks, keyed by module. A test compares them with PyTorch.
PYTORCH: dict[str, str] = {
    "gradwire": """
        as_strided_ eig embedding_renorm_ gru lstm lstsq rnn_relu rnn_tanh solve symeig""",
    "gradwire.nn.functional": "conv_tbc grouped_mm scaled_grouped_mm scaled_mm",
    "Tensor": "lstsq reinforce",
}


class GradwireAbsentError(GradwireNotImplementedError, AttributeError):
    """A name that PyTorch has and gradwire lacks."""


class _MissingName(AttributeError):
    """An AttributeError whose sentence looks for names like the missing one when it is read.

    Programs ask by `hasattr` for names that are not there, and such a search takes milliseconds.
    """

    def __init__(self, start: str, name: str, known: Callable[[], Iterable[str]]) -> None:
        super().__init__(name=name)
        self._start, self._name, self._known = start, name, known
        self._text = ""

    def __str__(self) -> str:
        if not self._text:
            near = suggested(self._name, self._known())
            self._text = self._start + (f". Did you mean: {', '.join(near)}?" if near else "")
        return self._text

    @property
    def args(self) -> tuple[Any, ...]:  # type: ignore[override]
        """The sentence, which programs read here, too."""
        return (str(self),)

    def __repr__(self) -> str:
        return f"AttributeError({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return AttributeError, (str(self),)


# Tracebacks show it as what it is.
_MissingName.__name__ = _MissingName.__qualname__ = "AttributeError"
_MissingName.__module__ = "builtins"


def absent(home: str, name: str, known: Callable[[], Iterable[str]]) -> AttributeError:
    """The error for a name that `home` lacks. It says if PyTorch has the name, and else suggests names like it.

    `known` gives the names that there are.
    """
    if name in PYTORCH.get(home, "").split():
        error = GradwireAbsentError(f"{home} has no '{name}': PyTorch's op of that name is not supported here")
        error.reason, error.code = "OP_UNKNOWN", 12
        return error
    owner = "'Tensor' object" if home == "Tensor" else f"module '{home}'"
    return _MissingName(f"{owner} has no attribute '{name}'", name, known)


def suggested(name: str, known: Iterable[str]) -> list[str]:
    """At most three known names that a slip of the finger makes of `name`: none is better than a wrong one."""
    plain = _plain(name)
    found = sorted(
        (edits, each)
        for each in difflib.get_close_matches(name, sorted(known), n=12, cutoff=0.6)
        if (edits := _edits(plain, _plain(each))) <= (1 if len(plain) < 8 else 2)
        # A short name, or one with two slips, begins as the right one does: cond is not conj, to_sparse not is_sparse.
        and (each[:1].lower() == name[:1].lower() or (edits < 2 and len(plain) > 4))
    )
    return [each for edits, each in found if edits == found[0][0]][:3]


def _plain(name: str) -> str:
    """A name without what is easily left out: capitals and underscores."""
    return name.lower().replace("_", "")


def _edits(one: str, other: str) -> int:
    """How many letters are added, left out, changed, or swapped with the next one. In a short name a change is two."""
    change = 2 if len(one) < 5 else 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one):
        last, before, row = before, row, [i + 1]
        for k, wanted in enumerate(other):
            least = min(before[k] + change * (letter != wanted), before[k + 1] + 1, row[k] + 1)
            if i and k and letter == other[k - 1] and one[i - 1] == wanted:
                least = min(least, last[k - 1] + 1)
            row.append(least)
    return row[-1]

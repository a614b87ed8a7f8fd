"""Root reads: tells whether a program is likely to read what it has differentiated, as a loop does that prints a loss.

Each value that is read allows one read ahead of a later backward. So a loop that reads each loss is foreseen, and one
that reads every tenth loss asks in vain once each time.
"""

from __future__ import annotations

from collections import deque

_MOST_ROOTS = 4  # whose reads are noted: a loop may differentiate several losses before it reads them
_MOST_ALLOWED = 4


class RootReads:
    """Notes of a session which of the last roots of backward were read."""

    __slots__ = ("_allowed", "_roots")

    def __init__(self) -> None:
        self._allowed = 0
        self._roots: deque[int] = deque(maxlen=_MOST_ROOTS)

    def are_expected(self) -> bool:
        """Whether the value of the next root may be asked for before it is read."""
        return self._allowed > 0

    def begun(self) -> None:
        """Note that a root's value is asked for before it is read."""
        self._allowed -= 1

    def differentiated(self, tensor_id: int) -> None:
        """Note a root of backward."""
        self._roots.append(tensor_id)

    def read(self, tensor_id: int) -> None:
        """Note that a tensor's value was read."""
        if tensor_id in self._roots:
            self._roots.remove(tensor_id)
            self._allowed = min(self._allowed + 1, _MOST_ALLOWED)

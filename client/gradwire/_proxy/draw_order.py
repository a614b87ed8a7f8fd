"""The order of draws: numbers the commands of a session that may draw, and tells whether their order is known."""

from __future__ import annotations

import threading
from typing import Any

from gradwire.v1 import service_pb2

# Commands that draw no random numbers. Ops that may draw are noted where they are called.
_DRAWING_NOTHING = frozenset(
    {
        "backward", "create", "describe", "grad", "gradients", "graph", "name_edge", "op", "read", "record_function",
        "register_hook", "register_program", "release", "remove_hook", "retain_grad", "set_counters", "set_data",
        "set_grad", "set_requires_grad",
    }
)  # fmt: skip


class DrawOrder:
    """What a session knows of its draws.

    calls: number of commands that may have drawn. apart: whether the order is not known, since more than one thread
    drew or another client may. in_backward: whether a part of a graph is computed again in backward, which may draw.
    followed: the client's copy of the generator, if there is one (`_tensor/known_values/drawn.py`).
    """

    __slots__ = ("_thread", "apart", "calls", "followed", "in_backward")

    def __init__(self) -> None:
        self.calls = 0
        self.apart = self.in_backward = False
        self.followed: Any = None
        self._thread = 0

    def begin(self) -> int:
        """Note that a command that may draw from the generator is about to be sent; return its number."""
        thread = threading.get_ident()
        if thread != self._thread:
            self.apart = self.apart or bool(self._thread)
            self._thread = thread
        self.calls += 1
        return self.calls

    def begin_command(self, command: service_pb2.Command) -> None:
        """The same of a command that may draw by its kind."""
        if command.WhichOneof("command") not in _DRAWING_NOTHING:
            self.begin()

    def undone(self) -> None:
        """Note that a command may have drawn nothing: it was refused or cancelled."""
        self.calls += 1

"""Ctrl-C must not fall between two steps that belong together: it waits here until both are done."""

from __future__ import annotations

# The module below `signal`, which would turn every number into an enum: that costs ten times as much.
from _signal import getsignal, signal  # type: ignore[import-not-found]
from collections.abc import Callable
from os import register_at_fork
from signal import SIGINT
from threading import get_ident, main_thread
from types import FrameType
from typing import Any

_Arrival = tuple[int, FrameType | None]
# The outermost shield that the main thread is under: handlers run in that thread alone.
_held: shielded | None = None
_main = main_thread().ident


def _forked() -> None:
    global _main
    _main = get_ident()


register_at_fork(after_in_child=_forked)


class shielded:
    """Hold back SIGINT's handler while the block runs; `wake` is called at once, or if one is held back already.

    Shields nest: what arrives is handled at the end of the outermost.
    """

    __slots__ = ("_arrived", "_handler", "_is_inner", "_wake")

    def __init__(self, wake: Callable[[], None] | None = None) -> None:
        self._wake = wake
        self._handler: Any = None
        self._is_inner = False

    def __enter__(self) -> shielded:
        global _held
        if get_ident() != _main:
            return self
        outer = _held
        if outer is not None:
            self._is_inner = True
            self._wake, outer._wake = outer._wake, self._wake  # until the block ends
            if outer._arrived and outer._wake is not None:
                outer._wake()
            return self
        handler = getsignal(SIGINT)
        if callable(handler):
            self._arrived: list[_Arrival] = []
            self._handler = handler
            signal(SIGINT, self._hold)
            _held = self
        return self

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._arrived.append((number, frame))
        if self._wake is not None:
            self._wake()

    def handle(self) -> None:
        """Handle now what has arrived, if this is the outermost shield; what arrives from now on waits."""
        if not self._is_inner and self._handler is not None and self._arrived:
            first, *_ = self._arrived
            self._arrived.clear()
            self._handler(*first)

    def __exit__(self, *exc: object) -> None:
        global _held
        if self._is_inner:
            assert _held is not None
            _held._wake = self._wake
        elif self._handler is not None:
            _held = None
            signal(SIGINT, self._handler)
            if self._arrived:
                self._handler(*self._arrived[0])


def interrupted() -> bool:
    """Whether a Ctrl-C of the main thread is held back that its waits should end for."""
    return get_ident() == _main and _held is not None and bool(_held._arrived)


class Interrupted(Exception):
    """A wait has ended for a Ctrl-C that is held back."""

"""Ctrl-C must not fall between two steps that belong together: it waits here until both are done."""

from __future__ import annotations

# The module below `signal`, which would turn every number into an enum: that costs ten times as much.
from _signal import getsignal, signal  # type: ignore[import-not-found]
from collections.abc import Callable
from signal import SIGINT
from threading import get_ident, main_thread
from types import FrameType
from typing import Any


class shielded:
    """Hold back SIGINT's handler while the block runs; `wake` is called at once. Only the main thread ever runs one."""

    __slots__ = ("_arrived", "_handler", "_wake")

    def __init__(self, wake: Callable[[], None] | None = None) -> None:
        self._wake = wake

    def __enter__(self) -> None:
        handler: Any = getsignal(SIGINT) if get_ident() == main_thread().ident else None
        self._handler = handler if callable(handler) else None
        if self._handler is not None:
            self._arrived: list[tuple[int, FrameType | None]] = []
            signal(SIGINT, self._hold)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._arrived.append((number, frame))
        if self._wake is not None:
            self._wake()

    def __exit__(self, *exc: object) -> None:
        if self._handler is not None:
            signal(SIGINT, self._handler)
            if self._arrived:
                self._handler(*self._arrived[0])

"""Timeouts: limits how long a call may wait for its answer (gradwire.timeout)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar, Token

#: Seconds that a call of this thread or asyncio task may wait; None is unlimited.
TIMEOUT: ContextVar[float | None] = ContextVar("gradwire_timeout", default=None)
# Extra seconds: the server stops at the limit itself, and its error has more details.
_GRACE_SECONDS = 0.25


class timeout:
    """Limit each wait for the server inside the block: a longer wait raises GradwireTimeoutError after `seconds`.

    The server stops the work of the call that timed out. Commands that earlier calls deferred continue, and a later
    call may wait for them again. Raises ValueError if `seconds` is not positive.
    """

    def __init__(self, seconds: float) -> None:
        if not seconds > 0:
            raise ValueError(f"a timeout is a positive number of seconds, not {seconds}")
        self.seconds = float(seconds)
        self._tokens: list[Token[float | None]] = []

    def __enter__(self) -> None:
        outer = TIMEOUT.get()
        self._tokens.append(TIMEOUT.set(self.seconds if outer is None else min(outer, self.seconds)))

    def __exit__(self, *exc: object) -> None:
        TIMEOUT.reset(self._tokens.pop())


class Alarm:
    """Call `ring` repeatedly once the time is over, until the block ends. `until` is a time.monotonic() value."""

    def __init__(self, seconds: float, ring: Callable[[], None]) -> None:
        self.until = time.monotonic() + seconds + _GRACE_SECONDS
        self._ring = ring
        self._off = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gradwire-alarm", daemon=True)

    def _run(self) -> None:
        if not self._off.wait(self.until - time.monotonic()):
            while True:
                self._ring()
                if self._off.wait(_GRACE_SECONDS):
                    return

    def __enter__(self) -> Alarm:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._off.set()

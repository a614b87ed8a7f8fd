"""The compute thread: takes calls as they come and lets sessions take turns, away from the event loop.

It also collects garbage, between turns: so that a tensor's bytes are given back by the thread that counts them,
and no other thread ever stops for a collection.
"""

import gc
import queue
import threading
import time
from collections.abc import Callable

from gradwire_server.session.session import Pending
from gradwire_server.worker.runtime import Runtime
from gradwire_server.worker.scheduler import Answer, Scheduler, work

_YOUNG_LIMIT = 50_000  # new objects that containers keep, before the young ones are looked through
_YOUNG_PER_FULL = 20


class Collector:
    """Collects garbage when it is called, if it is time to: instead of Python, whose own collector it turns off."""

    def __init__(self) -> None:
        gc.disable()
        gc.freeze()
        self._collections = 0

    def __call__(self) -> None:
        if gc.get_count()[0] > _YOUNG_LIMIT:
            self._collections += 1
            gc.collect(0 if self._collections % _YOUNG_PER_FULL else 2)


class ComputeThread:
    """Applies calls to a host. With `collects` it takes garbage collection over for the process."""

    def __init__(
        self, host: Runtime, answer: Answer, parked: Callable[[Pending], None], collects: bool = False
    ) -> None:
        self._runtime = host
        self._calls: queue.SimpleQueue[tuple[str, int, bytes, int, float | None, float] | None] = queue.SimpleQueue()
        self._ended = False
        scheduler = Scheduler(host, answer, parked)
        between = Collector() if collects else _nothing
        self._thread = threading.Thread(
            target=work, args=(scheduler, self, between), name="gradwire-compute", daemon=True
        )
        self._thread.start()

    def submit(self, method: str, number: int, raw: bytes, ticket: int, deadline: float | None) -> None:
        """Apply a call."""
        self._calls.put((method, number, raw, ticket, deadline, time.monotonic()))

    def take(self, timeout: float | None) -> list[Pending] | None:
        """What was submitted, waiting for it so long, or without end; None after the last."""
        found: list[Pending] = []
        if self._ended:
            return None
        try:
            while True:
                call = self._calls.get(timeout=timeout) if timeout != 0 else self._calls.get_nowait()
                timeout = 0
                if call is None:
                    self._ended = True
                    break
                found.append(self._runtime.begin(*call))
        except queue.Empty:
            pass
        return found

    def waits(self) -> bool:
        """Whether calls have come that were not taken."""
        return not self._calls.empty()

    def stop(self, timeout: float) -> bool:
        """End after what was submitted; tells whether that was within the timeout."""
        self._calls.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()


def _nothing() -> None:
    pass

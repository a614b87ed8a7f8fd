"""The compute thread: executes the calls of a worker thread's sessions, off the event loop.

It also collects garbage, between slices. So a tensor's bytes are freed by the thread that counts them, and no other
thread pauses for a collection.
"""

import gc
import queue
import threading
import time
from collections.abc import Callable

from gradwire_server.session.session import PendingCall
from gradwire_server.worker.runtime import Runtime
from gradwire_server.worker.scheduler import Answer, Scheduler, run_scheduler

_YOUNG_LIMIT = 50_000  # container objects allocated, less those freed, before generation 0 is collected
_YOUNG_PER_FULL = 20
_IDLE_SECONDS = 0.005  # without calls, until `idle` is called


class Collector:
    """Collects garbage when called, if enough was allocated. Disables Python's automatic collection."""

    def __init__(self) -> None:
        gc.disable()
        gc.freeze()
        self._collections = 0

    def __call__(self) -> None:
        if gc.get_count()[0] > _YOUNG_LIMIT:
            self._collections += 1
            gc.collect(0 if self._collections % _YOUNG_PER_FULL else 2)


class ComputeThread:
    """Applies calls to a runtime. With `collects` it replaces automatic garbage collection in the process."""

    def __init__(
        self,
        runtime: Runtime,
        answer: Answer,
        parked: Callable[[PendingCall], None],
        collects: bool = False,
        idle: Callable[[], None] | None = None,
    ) -> None:
        """`idle` is called in the thread when it has waited for calls for a moment."""
        self._runtime = runtime
        self._idle = idle
        self._calls: queue.SimpleQueue[tuple[str, int, bytes, int, float | None, float] | None] = queue.SimpleQueue()
        self._ended = False
        scheduler = Scheduler(runtime, answer, parked)
        between = Collector() if collects else _nothing
        self._thread = threading.Thread(
            target=run_scheduler, args=(scheduler, self, between), name="gradwire-compute", daemon=True
        )
        self._thread.start()

    def submit(self, method: str, number: int, raw: bytes, ticket: int, deadline: float | None) -> None:
        """Queue a call."""
        self._calls.put((method, number, raw, ticket, deadline, time.monotonic()))

    def take(self, timeout: float | None) -> list[PendingCall] | None:
        """Return submitted calls, or None after the last. Wait up to `timeout` seconds for one; None: without limit."""
        if self._ended:
            return None
        found: list[PendingCall] = []
        calls = self._calls
        while not found or not calls.empty():
            try:
                call = calls.get_nowait() if found or timeout == 0 else self._next(timeout)
            except queue.Empty:
                break
            if call is None:
                self._ended = True
                break
            found.append(self._runtime.make_call(*call))
        return found

    def _next(self, timeout: float | None) -> tuple[str, int, bytes, int, float | None, float] | None:
        """The next call, or None for the end. Raises queue.Empty."""
        if self._idle is not None and (timeout is None or timeout > _IDLE_SECONDS):
            try:
                return self._calls.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                self._idle()
        return self._calls.get(timeout=timeout)

    def has_calls(self) -> bool:
        """Whether calls are queued."""
        return not self._calls.empty()

    def stop(self, timeout: float) -> bool:
        """End after the submitted calls; return whether the thread ended within `timeout` seconds."""
        self._calls.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()


def _nothing() -> None:
    pass

"""The compute thread: one thread that runs calls in the order in which they come, away from the event loop.

It also collects garbage, between calls: so that a tensor's bytes are given back by the thread that counts them,
and the event loop never stops for a collection.
"""

import asyncio
import gc
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_YOUNG_LIMIT = 50_000  # new objects that containers keep, before the young ones are looked through
_YOUNG_PER_FULL = 20


class ComputeThread:
    """Runs functions one after the other. With `collects` it takes garbage collection over for the process."""

    def __init__(self, collects: bool = False) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._collects = collects
        self._collections = 0
        self._thread = threading.Thread(target=self._work, name="gradwire-compute", daemon=True)
        if collects:
            gc.disable()
            gc.freeze()
        self._thread.start()

    def submit(
        self, function: Callable[..., T], *args: Any, after: Callable[[], None] | None = None
    ) -> "asyncio.Future[T]":
        """Run a function on the thread; its result comes to the running loop, where `after` is called in any case."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = function(*args)
            except BaseException as raised:  # noqa: BLE001 - handed to whoever waits
                error = raised
            loop.call_soon_threadsafe(finish, result, error)
            error = None  # or its traceback and this frame would hold each other, and whatever it holds

        def finish(result: T, error: BaseException | None) -> None:
            if not future.done():  # its waiter may have gone
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)
            if after is not None:
                after()

        self._jobs.put(job)
        return future

    def stop(self, timeout: float) -> bool:
        """End after what is queued; tells whether that was within the timeout."""
        self._jobs.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            job()
            del job
            if self._collects and gc.get_count()[0] > _YOUNG_LIMIT:
                self._collect()

    def _collect(self) -> None:
        self._collections += 1
        gc.collect(0 if self._collections % _YOUNG_PER_FULL else 2)

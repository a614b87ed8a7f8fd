"""`InProcessBackend`: runs sessions in this process."""

import time
from collections.abc import Callable

from gradwire_server.common.limits import Limits
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.registry.backend import Backend
from gradwire_server.workers.thread_worker import ThreadWorker


class InProcessBackend(Backend):
    """Sessions in this process. One thread computes them, so BLAS has one caller at a time."""

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        owns_process: bool = False,
        counts: bool = False,
    ) -> None:
        """With `counts`, the worker counts for the metrics."""
        resolved = limits.resolved()
        counters = SharedCounters(1)
        worker = ThreadWorker(resolved, counters, owns_process, counts)
        self.runtime = worker.runtime
        super().__init__(resolved, [worker], counters, clock)

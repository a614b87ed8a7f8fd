"""`InProcessBackend`: runs sessions in this process."""

import time
from collections.abc import Callable

from gradwire_server.common.limits import Limits
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.registry.backend import Backend
from gradwire_server.worker.runtime import Runtime
from gradwire_server.worker_pool.thread_worker import ThreadWorker
from gradwire_server.worker_pool.worker import Load, Worker, WorkerEvents


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

        def make(load: Load, events: WorkerEvents) -> list[Worker]:
            self._worker = ThreadWorker(load, events, resolved, counters, owns_process, counts)
            return [self._worker]

        super().__init__(resolved, make, counters, clock)

    @property
    def runtime(self) -> Runtime:
        """The worker's runtime."""
        return self._worker.runtime

"""`WorkersBackend`: runs sessions in worker processes."""

import os
import time
from collections.abc import Callable
from dataclasses import replace

from gradwire.v1 import service_pb2
from gradwire_server.common import blas
from gradwire_server.common.limits import Limits
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.registry.backend import Backend
from gradwire_server.worker.frames import WorkerParameters
from gradwire_server.worker.rings import RING_BYTES
from gradwire_server.worker_pool.process_worker import VISIBLE, ProcessWorker, gpus
from gradwire_server.worker_pool.worker import Load, WorkerEvents


class WorkersBackend(Backend):
    """Sessions in `workers` processes. BLAS threads follow how many workers have work, unless the user sets them."""

    def __init__(
        self,
        limits: Limits,
        workers: int,
        clock: Callable[[], float] = time.monotonic,
        log_format: str = "plain",
        log_level: str = "warning",
        counts: bool = False,
    ) -> None:
        """With `counts`, the workers count for the metrics."""
        resolved = limits.resolved()
        descriptor = SharedCounters.file(workers)
        cores = blas.cores() if blas.shared() else 0

        # Each worker's share of max_shared_bytes, at least one ring.
        rings = max(min(resolved.max_shared_bytes, RING_BYTES), resolved.max_shared_bytes // workers)
        worker_limits = replace(resolved, max_shared_bytes=rings)

        def parameters(index: int, calls: int, control: int, counters: int, buffers: int) -> WorkerParameters:
            return WorkerParameters(
                index, workers, calls, control, counters, buffers, cores, log_format, log_level, counts, worker_limits
            )

        visible = gpus()
        environments = [{VISIBLE: visible[index % len(visible)]} if visible else {} for index in range(workers)]

        def make(load: Load, events: WorkerEvents) -> list[ProcessWorker]:
            return [
                ProcessWorker(index, load, events, parameters, descriptor, resolved, environments[index])
                for index in range(workers)
            ]

        super().__init__(resolved, make, SharedCounters(workers, descriptor), clock)
        self.cores = cores
        self._descriptor = descriptor

    async def stop(self, grace: float) -> int:
        """End the workers and close the shared counters' file. Returns how many sessions were not stored."""
        lost = await super().stop(grace)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        return lost

    async def server_info(self) -> service_pb2.ServerInfoResponse:
        """Description and limits of the server."""
        info = await super().server_info()
        info.build["workers"] = str(len(self.workers))
        if self.cores:
            info.build["blas_threads"] = str(max(1, self.cores // max(1, self.counters.runnable)))
        return info

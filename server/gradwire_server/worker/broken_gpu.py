"""A broken GPU context: after a kernel's wrong access all CUDA calls of the process fail, so the worker ends."""

import logging
import os

from gradwire_engine.core.device import is_broken
from gradwire_server.common.errors import Refusal

STATUS = 70  # of the process

log = logging.getLogger("gradwire.server")


class GpuWatch:
    """Looks at the GPUs when something unforeseen fails, and ends the process between two calls if one is broken."""

    def __init__(self) -> None:
        self.broken = False

    def refusal(self, error: BaseException) -> Refusal | None:
        """The refusal of what failed on a broken GPU; None for other errors. Waits for the GPUs."""
        if isinstance(error, MemoryError) or not (self.broken or is_broken()):
            return None
        if not self.broken:
            log.critical("a GPU's context is broken; this worker ends", exc_info=error)
        self.broken = True
        return Refusal("INTERNAL", "the GPU failed: the worker ends, and its sessions with it")

    def end_if_broken(self) -> None:
        """End the process if a GPU is broken; the front starts another worker."""
        if self.broken:
            os._exit(STATUS)

"""Preloading: reads in the background what the first ops of a process would wait for, when its first session begins.

That is LLVM, a team's code, the loops that recent processes used, and the kernels that oneDNN generates at its first
product. An op that comes earlier waits as it would without.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, wait

from gradwire_engine.compile.eager.library import LIBRARY, Library
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.compile.fusion.kernel_cache import available
from gradwire_engine.core import matrix_product
from gradwire_engine.core.threads import POOL

log = logging.getLogger("gradwire.engine")
_LONGEST_SECONDS = 60.0  # for which a fork waits


class Preloader:
    """What a process loads at its first session. Any thread may use it."""

    def __init__(self, library: Library = LIBRARY) -> None:
        self._library = library
        self._begun = threading.Lock()
        self._waited: list[Future[None]] = []

    def begin(self) -> None:
        """Load in the background, once."""
        if OPTIONS.mode == "off" or not self._begun.acquire(blocking=False):
            return
        products: Future[None] = Future()
        self._waited.append(products)

        def prepare_products() -> None:
            try:
                matrix_product.prepare()
            except (RuntimeError, MemoryError) as error:  # the first product raises it, too
                log.warning("products could not be prepared: %s", error)
            finally:
                products.set_result(None)

        threading.Thread(target=prepare_products, name="gradwire-preload", daemon=True).start()
        if available():
            self._begin_loops()

    def _begin_loops(self) -> None:
        compiler: Future[None] = Future()

        def load() -> None:
            try:
                if POOL.threads > 1:
                    POOL.ready_team()
                self._library.preload()
            finally:
                compiler.set_result(None)

        if OPTIONS.kernels.hurry(load):
            self._waited.append(compiler)

    def wait(self) -> None:
        """Wait for what takes locks of native libraries, which a fork would find locked for ever."""
        wait(self._waited, _LONGEST_SECONDS)


PRELOADER = Preloader()

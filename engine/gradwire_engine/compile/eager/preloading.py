"""Preloading: reads in the background what the first ops on large arrays would wait for.

That is a team's code, the loops and texts of calls that recent processes used, and the kernels that oneDNN generates at
its first product.
Where LLVM must load the loops, they take 70 MiB, of which 12 are the process's own. So a process loads them when a
session first holds as many bytes as an op needs to use them (`WORTH`). An op that comes earlier waits as it would
without.
"""

from __future__ import annotations

import atexit
import logging
import threading
from concurrent.futures import Future, wait

from gradwire_engine.compile.eager.call_codes import CallCodes
from gradwire_engine.compile.eager.library import LIBRARY, Library
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.compile.fusion.kernel_cache import available
from gradwire_engine.core import matrix_product
from gradwire_engine.core.threads import POOL
from gradwire_engine.op.repeated_source import CODES
from gradwire_engine.ops.base.loops import LEAST

log = logging.getLogger("gradwire.engine")
_LONGEST_SECONDS = 60.0  # for which a fork waits


class Preloader:
    """What a process loads once. Any thread may use it."""

    #: Bytes that a session holds from which its ops may use what is loaded: `LEAST` elements of float32.
    WORTH = 4 * LEAST

    def __init__(self, library: Library = LIBRARY) -> None:
        self._library = library
        self._beginning = threading.Lock()
        self._waited: list[Future[None]] = []
        self.begun = False

    def begin(self) -> None:
        """Load in the background, once."""
        with self._beginning:
            begun, self.begun = self.begun, True
        if begun or OPTIONS.mode == "off":
            return
        compiler, products = Future[None](), Future[None]()
        self._waited += compiler, products
        atexit.register(self.wait)  # native libraries destroy at the end what the thread still uses
        thread = threading.Thread(target=self._load, args=(compiler, products), name="gradwire-preload", daemon=True)
        thread.start()

    def _load(self, compiler: Future[None], products: Future[None]) -> None:
        def load_loops() -> None:
            try:
                CallCodes(CODES, OPTIONS.kernels).read()
                if POOL.threads > 1:
                    POOL.ready_team()
                self._library.preload()
            finally:
                compiler.set_result(None)

        if not (available() and OPTIONS.kernels.hurry(load_loops)):
            compiler.set_result(None)
        try:
            matrix_product.prepare()
        except (RuntimeError, MemoryError) as error:  # the first product raises it, too
            log.warning("products could not be prepared: %s", error)
        finally:
            products.set_result(None)

    def wait(self) -> None:
        """Wait for what takes locks of native libraries, which a fork would find locked for ever."""
        wait(self._waited, _LONGEST_SECONDS)


PRELOADER = Preloader()

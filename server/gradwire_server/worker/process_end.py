"""End of a process whose threads may still compute.

`exit` destroys what native libraries hold: oneDNN's kernels, LLVM. A thread that is in one of them then reads freed
memory. So the process ends by `_exit`, after all that Python does at its end.
"""

import atexit
import contextlib
import logging
import os
import sys
import threading
from typing import NoReturn, TextIO


def end_process(status: int = 0) -> NoReturn:
    """Wait for threads that are no daemons, run what is registered with atexit, and end the process."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter itself calls first
        atexit._run_exitfuncs()
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            _flush(stream)
    finally:
        os._exit(status)


def _flush(stream: TextIO | None) -> None:
    """Write what is buffered, if anybody still reads it."""
    if stream is not None:
        with contextlib.suppress(OSError, ValueError):  # the reader has gone, or it is closed
            stream.flush()

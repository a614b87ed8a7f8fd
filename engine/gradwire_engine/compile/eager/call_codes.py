"""Compiled texts of repeated calls (op/repeated_source.py), kept on disk for the first steps of later processes.

A step of a new model makes up to 20 such texts, and Python takes 0.5 ms to compile one. They are kept in one file
beside the kernels. It is read and written in the kernels' thread alone, and checked like a kernel's file. A code is
used for its own text only, so a text that changes is compiled. Each worker holds what the file has, and a text grows
with the tensors of a call's lists. So long texts are left out, and all of them together are bounded.
"""

from __future__ import annotations

import logging
import marshal
import sys
import threading
from importlib.util import MAGIC_NUMBER
from types import CodeType

from gradwire_engine.compile.fusion.kernel_cache import Kernels
from gradwire_engine.op.repeated_source import LONGEST_KEPT, Codes

log = logging.getLogger("gradwire.engine")
#: The file: another version of Python or of its optimizations has another one.
NAME = f"calls-{MAGIC_NUMBER.hex()}-{sys.flags.optimize}"
#: Texts that are kept, the last ones. Most have 1,000 to 4,000 characters.
MOST = 256
#: Characters of all texts that are kept. A code has three times the bytes of its text.
MOST_CHARACTERS = 1 << 18
_DELAY = 0.5  # seconds from a new text until it is kept, with those that follow


class CallCodes:
    """Reads the texts of earlier processes into `codes`, and keeps those that it compiles."""

    def __init__(self, codes: Codes, kernels: Kernels) -> None:
        self._codes, self._kernels = codes, kernels
        self._lock = threading.Lock()
        self._new: dict[str, CodeType] = {}

    def read(self) -> None:
        """Read what earlier processes have kept; note from now on what is compiled. In the kernels' thread only."""
        self._codes.known.update(self._kept())
        self._codes.noted = self.note

    def note(self, text: str, code: CodeType) -> None:
        """Keep a text that was compiled, a little later. Any thread; a fork keeps none."""
        if len(text) > LONGEST_KEPT or self._kernels.is_forked():  # a fork may have copied the lock while it was held
            return
        with self._lock:
            is_first = not self._new
            self._new[text] = code
        if is_first:
            later = threading.Timer(_DELAY, self._ask)
            later.daemon = True
            try:
                later.start()
            except RuntimeError as error:  # the system allows no more threads
                self._drop(str(error))

    def keep(self) -> None:
        """Write the new texts with those on disk. In the kernels' thread only."""
        with self._lock:
            new, self._new = self._new, {}
        self._kernels.keep(NAME, marshal.dumps(_last({**self._kept(), **new})))

    def _ask(self) -> None:
        if not self._kernels.later(self.keep):
            self._drop("too many jobs wait")

    def _drop(self, why: str) -> None:
        """Keep none of the new texts, so that the next one is again the first."""
        log.info("compiled calls are not kept: %s", why)
        with self._lock:
            self._new = {}

    def _kept(self) -> dict[str, CodeType]:
        data = self._kernels.kept(NAME)
        if data is None:
            return {}
        try:
            found = marshal.loads(data)
        except (EOFError, ValueError, TypeError) as error:
            log.warning("compiled calls are not used: %s", error)
            return {}
        if type(found) is not dict:
            log.warning("compiled calls are not used: the file has no mapping of texts")
            return {}
        return {text: code for text, code in found.items() if type(text) is str and type(code) is CodeType}


def _last(texts: dict[str, CodeType]) -> dict[str, CodeType]:
    """The last texts that are not too many and not too long together."""
    room, found = MOST_CHARACTERS, []
    for text in list(reversed(texts))[:MOST]:
        room -= len(text)
        if room < 0:
            break
        found.append(text)
    return {text: texts[text] for text in reversed(found)}

"""The compiler process (compiler.py) as its parent sees it: starts it, asks it, and ends it when it is stuck.

Both pipes have a time limit: a process that neither reads nor answers is ended.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic

SCRIPT = Path(__file__).with_name("compiler.py")
#: Seconds that a kernel may take to compile, and the process to start.
SECONDS = 60.0
_PIECE = 1 << 16  # bytes


class Unusable(Exception):
    """The process cannot compile anything, whatever the source: it cannot import LLVM. The message says why."""


class Compiler:
    """A compiler process. One thread."""

    def __init__(self) -> None:
        """Start it. Raises OSError; Unusable if it cannot import LLVM."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GRADWIRE_")}
        self._process = subprocess.Popen(
            # Isolated: it imports nothing from the working directory or from PYTHONPATH.
            [sys.executable, "-I", str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        self._rest = b""
        try:
            told = self._answer(monotonic() + SECONDS)
        except OSError:
            self.end()
            raise
        if "unusable" in told:
            self.end()
            raise Unusable(f"the compiler cannot import LLVM: {told['unusable']}")

    def compiled(self, source: str) -> bytes:
        """Object code. Raises RuntimeError: not valid; OSError: the process failed or took too long."""
        end = monotonic() + SECONDS
        self._ask(json.dumps(source).encode() + b"\n", end)
        told = self._answer(end)
        if "error" in told:
            raise RuntimeError(told["error"])
        if "code" not in told:
            raise OSError("the compiler answered neither code nor an error")
        return base64.b64decode(told["code"])

    def _ask(self, data: bytes, end: float) -> None:
        """Write, unless the process does not read. Raises OSError."""
        left = memoryview(data)
        while left:
            _, ready, _ = select.select([], [self._to], [], max(0.0, end - monotonic()))
            if not ready:
                raise TimeoutError(f"the compiler read nothing for {SECONDS:g} s")
            with suppress(BlockingIOError):
                left = left[os.write(self._to, left[:_PIECE]) :]

    def _answer(self, end: float) -> dict[str, str]:
        """A line. Raises OSError."""
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - monotonic()))
            if not ready:
                raise TimeoutError(f"compiling took more than {SECONDS:g} s")
            piece = os.read(self._from, _PIECE)
            if not piece:
                raise BrokenPipeError("the compiler ended")
            self._rest += piece
        line, self._rest = self._rest.split(b"\n", 1)
        try:
            told = json.loads(line)
        except ValueError:
            told = None
        if not isinstance(told, dict):  # such as another program's greeting, where sys.executable is no interpreter
            raise OSError("the compiler answered no JSON object")
        return told

    def end(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self._process.kill()
        self._process.wait()

"""Marks: ranges of a program that it names itself."""

from __future__ import annotations

import contextlib
import time

from gradwire.profiler._recording import Recording, active_recording


class record_function(contextlib.ContextDecorator):
    """A named region of a program, as context manager or decorator. A profile shows it with what is computed inside."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args
        self._recording: Recording | None = None
        self._began = 0.0

    def __enter__(self) -> record_function:
        self._recording, self._began = active_recording(), time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        recording, self._recording = self._recording, None
        if recording is not None and recording is active_recording():
            recording.add_range(self.name, self._began)

    def _recreate_cm(self) -> record_function:
        return type(self)(self.name, self.args)

"""Profiling (torch.profiler): marks are accepted; recordings are refused, since the server computes."""

from __future__ import annotations

import contextlib

from gradwire._base.refused import refused
from gradwire._base.wiring import names_of_paths

__all__ = ["ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule", "tensorboard_trace_handler"]

_WHY = "commands are computed by the server; use gradwire.timings() or gradwire.explain()"
ExecutionTraceObserver = refused("profiler.ExecutionTraceObserver", _WHY)
ProfilerAction = refused("profiler.ProfilerAction", _WHY)
ProfilerActivity = refused("profiler.ProfilerActivity", _WHY)
EventList = refused("autograd.profiler.EventList", _WHY)
emit_itt = refused("autograd.profiler.emit_itt", _WHY)
emit_nvtx = refused("autograd.profiler.emit_nvtx", _WHY)
profile = refused("profiler.profile", _WHY)
schedule = refused("profiler.schedule", _WHY)
supported_activities = refused("profiler.supported_activities", _WHY)
tensorboard_trace_handler = refused("profiler.tensorboard_trace_handler", _WHY)


__getattr__ = names_of_paths(__name__)


class record_function(contextlib.ContextDecorator):
    """A named region of a program, as context manager or decorator. The name has no effect here."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def kineto_available() -> bool:
    """False: the library of PyTorch's profiler is not here."""
    return False

"""Profiling (torch.profiler): what the server computed for a block, op by op, with its times.

`profile` records by a schedule; torch.autograd.profiler has the older one for a block. `record_function` names a range
of the program.
"""

from __future__ import annotations

from gradwire._base.refused import refused
from gradwire._base.wiring import names_of_paths
from gradwire.profiler._event_list import EventList as EventList
from gradwire.profiler._marks import record_function
from gradwire.profiler._profiles import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)
from gradwire.profiler._recording import active_recording

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]

_WHY = "commands are computed by the server; use torch.profiler.profile, gradwire.timings() or gradwire.explain()"
ExecutionTraceObserver = refused("profiler.ExecutionTraceObserver", _WHY)
emit_itt = refused("autograd.profiler.emit_itt", _WHY)
emit_nvtx = refused("autograd.profiler.emit_nvtx", _WHY)


__getattr__ = names_of_paths(__name__)


def kineto_available() -> bool:
    """False: the library of PyTorch's profiler is not here."""
    return False


def profiler_enabled() -> bool:
    """Whether a profile records (torch.autograd._profiler_enabled)."""
    return active_recording() is not None

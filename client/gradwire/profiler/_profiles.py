"""Profiles: record what a block computes (torch.autograd.profiler.profile), and by steps of a schedule
(torch.profiler.profile)."""

from __future__ import annotations

import enum
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from gradwire._base.errors import GradwireRuntimeError
from gradwire.profiler._event_list import EventList
from gradwire.profiler._events import FunctionEventAvg
from gradwire.profiler._marks import record_function
from gradwire.profiler._recording import Recording

_UNMEASURED = "gradwire's profiler measures time alone: {} has no effect."


class ProfilerActivity(enum.Enum):
    """What a profile covers. Here it is always the ops of the session, on whatever device they run."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """What a profile does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """The activities that a profile covers."""
    return {ProfilerActivity.CPU}


class _Results:
    """What both kinds of profiles tell of their recording."""

    _found: EventList | None

    def _events(self) -> EventList:
        if self._found is None:
            raise GradwireRuntimeError("Profiler didn't finish running")
        return self._found

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """The sums by name. Raises RuntimeError before the profile has ended."""
        return self._events().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the events for a viewer of traces. Raises RuntimeError before the profile has ended."""
        self._events().export_chrome_trace(path)

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write lines of the program with their times, for a flame graph; needs `with_stack`."""
        self._events().export_stacks(path, metric)

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Refused: a profile records all of its block."""
        raise NotImplementedError("toggle_collection_dynamic: a profile of gradwire records all of its block")


class op_profile(_Results):
    """Record the ops of a block (torch.autograd.profiler.profile).

    Every command waits for its answer in the block. An op's time is the server's. Ops of the current session are
    recorded, those of all threads. Memory, flops and modules are not measured. Raises RuntimeError inside another
    profile.
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        **others: Any,
    ) -> None:
        for name, wanted in (("with_flops", with_flops), ("profile_memory", profile_memory)):
            if wanted:
                warnings.warn(_UNMEASURED.format(name), UserWarning, stacklevel=2)
        self.enabled = enabled
        self._recording = Recording(record_shapes, with_stack)
        self._found = None
        self.entered = False

    def __enter__(self) -> op_profile | None:
        if not self.enabled:
            return None
        if self.entered:
            raise GradwireRuntimeError("Profiler context manager is not reentrant")
        self.entered = True
        self._recording.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.enabled:
            try:
                self._recording.stop()
            finally:
                self._found = self._recording.events()

    @property
    def function_events(self) -> EventList | None:
        """The events; None before the profile has ended."""
        return self._found

    def __repr__(self) -> str:
        return "<unfinished torch.autograd.profile>" if self._found is None else repr(self._found)

    def __str__(self) -> str:
        return "<unfinished torch.autograd.profile>" if self._found is None else str(self._found)

    def table(self, *args: Any, **options: Any) -> str:
        """A table of the events, as of EventList."""
        return self._events().table(*args, **options)

    def total_average(self) -> FunctionEventAvg:
        """The sums over all events."""
        return self._events().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events, each counted once."""
        return self._events().self_cpu_time_total


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """A function from the number of a step to what a profile does in it.

    After `skip_first` steps a cycle waits, warms up and records so many steps each; it is repeated, without end for 0.
    With `skip_first_wait` the first cycle does not wait. Raises ValueError unless some steps are active.
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise ValueError("a schedule has no negative numbers of steps, and active is at least 1")
    cycle = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        if repeat and step // cycle >= repeat:
            return ProfilerAction.NONE
        place = step % cycle
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def _always(step: int) -> ProfilerAction:
    return ProfilerAction.RECORD


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """A function for `on_trace_ready` that writes each trace into a folder, for TensorBoard's profiler."""

    def write(ready: Any) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        ready.export_chrome_trace(os.path.join(dir_name, name))

    return write


class profile(_Results):
    """Record the ops of a block, or of the steps that a schedule names (torch.profiler.profile).

    `on_trace_ready` is called with the profile when a recording is complete. Every command waits for its answer while
    it records. An op's time is the server's. `activities` are not chosen: all ops are recorded. Memory, flops and
    modules are not measured.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        **others: Any,
    ) -> None:
        for name, wanted in (("with_flops", with_flops), ("profile_memory", profile_memory)):
            if wanted:
                warnings.warn(_UNMEASURED.format(name), UserWarning, stacklevel=2)
        self.activities = set(activities) if activities else supported_activities()
        self.record_shapes, self.with_stack = record_shapes, with_stack
        self.profile_memory, self.with_flops, self.with_modules = profile_memory, with_flops, with_modules
        self.schedule = schedule or _always
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._marks_steps = schedule is not None
        self._mark: record_function | None = None
        self._recording: Recording | None = None
        self._found = None

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin with the first step."""
        if self._records():
            self._begin()
        self._mark_step()

    def stop(self) -> None:
        """End the last step. A recording is complete then."""
        self._end_mark()
        if self._recording is not None:
            self._end()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
        self.current_action = ProfilerAction.NONE

    def step(self) -> None:
        """Begin the next step of the schedule."""
        self._end_mark()
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        if before is ProfilerAction.RECORD_AND_SAVE and self._recording is not None:
            self._end()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
        elif self._recording is not None and not self._records():
            warnings.warn("Incorrect schedule: a recording ends without RECORD_AND_SAVE", UserWarning, stacklevel=2)
            self._end()
        if self._recording is None and self._records():
            self._begin()
        self._mark_step()

    def events(self) -> EventList:
        """The events of the last recording. Raises RuntimeError before it is complete."""
        return self._events()

    def add_metadata(self, key: str, value: str) -> None:
        """Accepted without effect: traces have no metadata."""

    add_metadata_json = add_metadata

    def _records(self) -> bool:
        return self.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)

    def _begin(self) -> None:
        recording = Recording(self.record_shapes, self.with_stack)
        recording.start()
        self._recording = recording  # of which there is something to end

    def _end(self) -> None:
        recording, self._recording = self._recording, None
        assert recording is not None
        try:
            recording.stop()
        finally:
            self._found = recording.events()

    def _mark_step(self) -> None:
        if self._marks_steps:
            self._mark = record_function(f"ProfilerStep#{self.step_num}")
            self._mark.__enter__()

    def _end_mark(self) -> None:
        if self._mark is not None:
            self._mark.__exit__(None, None, None)
            self._mark = None

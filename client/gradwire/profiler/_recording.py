"""Recording: collects a session's events while a profile is active.

Each command waits then, and the server tells how long each of its ops took. An event of an op has that time, and ends
when the answer came. The program's own ranges have times of this process: what their ops leave is the way to the server
and back, and the program itself.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from gradwire._base.call_site import INTERNAL
from gradwire._base.errors import GradwireRuntimeError
from gradwire._proxy.handle import Handle
from gradwire._session.sessions import current_session
from gradwire._tensor.batching import BATCHING, DISPATCH
from gradwire._tensor.call import _call
from gradwire.profiler._event_list import EventList
from gradwire.profiler._events import FunctionEvent, nest
from gradwire.v1 import commands_pb2, service_pb2

# The active recording of the process, in a list of at most one.
_ACTIVE: list[Recording] = []
# What the names of events begin with, by the kind of their entries; others are commands.
_PLACES = {"op": "aten::", "step": "aten::", "program": "gradwire::program "}
_NODE = "autograd::engine::evaluate_function: "
_MOST_EVENTS = 1 << 20  # of a recording: some hundred MB


class _Call(threading.local):
    """The op that this thread calls: its name and the shapes of its arguments."""

    op = ""
    shapes: Sequence[Any] = ()
    calling = False


class Recording:
    """The events of a session between `start` and `stop`."""

    wants_ops = True

    def __init__(self, shapes: bool = False, stacks: bool = False) -> None:
        self._shapes = shapes
        self._stacks = stacks
        self._call = _Call()
        self._lock = threading.Lock()
        self._threads: dict[int, int] = {}
        self._events: list[FunctionEvent] = []
        self._dropped = 0
        self._began = 0.0
        self._last = 0.0  # when the last answer came

    def start(self) -> None:
        """Begin. Raises GradwireRuntimeError while another profile records."""
        if _ACTIVE:
            raise GradwireRuntimeError("profiler is already enabled: one profile at a time records")
        session = self._session = current_session()
        session.sync()
        self._kept = session.memo, session.models, session.every_call_waits
        session.memo, session.models, session.every_call_waits = {}, {}, True
        session.timed = (*session.timed, self)
        _ACTIVE.append(self)
        BATCHING.insert(0, self)
        self._began = self._last = time.perf_counter()

    def stop(self) -> None:
        """End, with all that was issued answered. Raises GradwireError as `sync` does."""
        session = self._session
        try:
            session.sync()
        finally:
            _ACTIVE.remove(self)
            BATCHING.remove(self)
            session.timed = tuple(each for each in session.timed if each is not self)
            memo, models, session.every_call_waits = self._kept
            if session._unusable is None:  # else nothing is remembered
                session.memo, session.models = memo, models
        if self._dropped:
            warnings.warn(
                f"the profile keeps its first {_MOST_EVENTS} events, and not {self._dropped} later ones; profile fewer "
                "steps, or use a schedule",
                UserWarning,
                stacklevel=3,
            )

    def events(self) -> EventList:
        """What was recorded, in order of time."""
        with self._lock:
            made = sorted(self._events, key=lambda each: (each.time_range.start, -each.time_range.end))
        for number, each in enumerate(made):
            each.id, each.cpu_parent, each.cpu_children = number, None, []
        nest(made)
        return EventList(made)

    def add(self, response: service_pb2.RunResponse) -> None:
        """Add the events of an answered batch."""
        now = time.perf_counter()
        entries = response.op_times
        with self._lock:
            start = max(self._last, now - sum(each.seconds for each in entries))
            self._last = now
        for entry in entries:
            if entry.kind:
                self._add_entry(entry, start)
            start += entry.seconds

    def add_range(self, name: str, began: float) -> None:
        """Add a range of the program's own, which began at that time and ends now."""
        if began >= self._began:
            self._append(name, began, time.perf_counter(), is_user_annotation=True, stack=self._stack())

    def call(self, op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any) -> Any:
        """Call an op, whose event gets the shapes of the arguments. NotImplemented within such a call."""
        here = self._call
        if here.calling:
            return NotImplemented
        here.calling, here.op, here.shapes = True, op, [_shape_of(each) for each in args]
        try:
            return _call(op, args, kwargs, result)
        finally:
            here.calling, here.op = False, ""

    def _add_entry(self, entry: commands_pb2.OpTime, start: float) -> None:
        end = start + entry.seconds
        if entry.kind == "backward" and entry.name:  # without a name: what is around the nodes
            self._append(_NODE + entry.name, start, end)
            self._append(entry.name, start, end)
            return
        shapes = self._call.shapes if self._shapes and entry.kind == "op" and entry.name == self._call.op else ()
        name = (
            _PLACES[entry.kind] + entry.name.replace(".", "_") if entry.kind in _PLACES else f"gradwire::{entry.kind}"
        )
        self._append(name, start, end, input_shapes=shapes, stack=self._stack())

    def _append(self, name: str, start: float, end: float, **details: Any) -> None:
        with self._lock:
            if len(self._events) >= _MOST_EVENTS:
                self._dropped += 1
                return
            thread = self._threads.setdefault(threading.get_ident(), len(self._threads) + 1)
            begin, finish = [(each - self._began) * 1e6 for each in (start, end)]
            self._events.append(FunctionEvent(len(self._events), name, thread, begin, finish, node_id=0, **details))

    def _stack(self) -> list[str]:
        return list(_program_lines()) if self._stacks else []


def _program_lines() -> Iterator[str]:
    """The lines that the program is at, innermost first."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not INTERNAL[code.co_filename]:
            yield f"{code.co_filename}({frame.f_lineno}): {code.co_name}"
        frame = frame.f_back


def _shape_of(value: Any) -> list[Any]:
    """A tensor's sizes, those of each tensor in a list, and nothing for other arguments."""
    if isinstance(value, Handle):
        return list(value._spec.shape)
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, Handle) for each in value):
        return [list(each._spec.shape) for each in value]
    return []


def active_recording() -> Recording | None:
    """The recording of the process; None outside of a profile."""
    return _ACTIVE[0] if _ACTIVE else None


def _dispatch(op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any) -> Any:
    return _ACTIVE[0].call(op, args, kwargs, result) if _ACTIVE else NotImplemented


DISPATCH.append(_dispatch)

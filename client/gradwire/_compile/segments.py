"""Segments: the parts of a function between its graph breaks, each sent as one program.

A function that cannot become one program runs in Python at each call. Its commands are held back until a value is
read or the function returns: that is a segment. A segment that was seen before is replaced by one command, which
runs it as a program (segment_programs.py). Thus Python's effects and branches are those of the uncompiled call, and a
branch on a value that was read leads to the segment that follows it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gradwire._base.errors import GradwireError
from gradwire._compile.recordings import counted
from gradwire._compile.segment_programs import Layout, SegmentProgram
from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import MemoEntry
from gradwire._session.sessions import current_session
from gradwire.v1 import programs_pb2, service_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol

#: A buffered command: its bytes, its record, and whether it is a call of a prepared op.
Buffered = tuple[bytes, Any, bool]

# Commands that end a segment: a program cannot hold them, or runs step by step because of them.
_BREAKING = frozenset(
    ("checkpoint", "collective", "data_parallel", "manual_seed", "pack_saved", "record_function", "register_hook",
     "remove_hook")
)  # fmt: skip
# Fewer or more commands are sent as they are.
_FEWEST_COMMANDS = 2
_MOST_COMMANDS = 2048
# Most lists of commands that are remembered for a function, and most programs for each.
_MOST_LISTS = 64
_MOST_PROGRAMS = 8
# Runs of a program until it is asked whether it became a plan.
_RUNS_BEFORE_ASKING = 8


class SegmentedFunction:
    """A function whose calls are sent in segments, in whichever session its tensors are."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._segments: weakref.WeakKeyDictionary[Any, Segments] = weakref.WeakKeyDictionary()
        self._last: weakref.ref[Any] | None = None

    def use_session(self, session: SessionProtocol) -> None:
        """Note the session of the tensors that the function closes over."""
        self._last = weakref.ref(session)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        session = self._session_of((*args, *kwargs.values()))
        if (
            session is None
            or session._unusable is not None
            or session.segments is not None
            or session.recorder is not None
            or session.every_call_waits
        ):
            return self._function(*args, **kwargs)
        found = self._segments.get(session)
        if found is None:
            found = self._segments[session] = Segments(session)
        return found.call(self._function, args, kwargs)

    def describe(self) -> list[str]:
        """Describe the programs in sentences. Costs one round trip for each."""
        return [line for segments in self._segments.values() for line in segments.describe()]

    def _session_of(self, given: Sequence[Any]) -> Any:
        for value in given:
            if isinstance(value, Handle):
                return value._session
        last = None if self._last is None else self._last()
        return current_session() if last is None or last._unusable is not None else last


class Segments:
    """The segments of one function in one session."""

    def __init__(self, session: SessionProtocol) -> None:
        self._session: Any = weakref.proxy(session)
        self._seen: dict[tuple[MemoEntry, ...], _CommandList] = {}
        self._start = 0
        self._thread = 0
        self._unregistered: list[_CommandList] = []
        self._asked: list[tuple[_CommandList, SegmentProgram]] = []

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call the function; send its commands in segments."""
        session = self._session
        first = session.next_command()
        self._start = session.position()
        self._thread = threading.get_ident()
        session.segments = self
        try:
            answer = function(*args, **kwargs)
        finally:
            try:
                self.close()
            finally:
                session.segments = None
            session.note_module_call(first, None, getattr(function, "__qualname__", "").rpartition(".")[2])
            session.flush_early()
        if self._unregistered:
            self._register()
        if self._asked:
            self._ask()
        return answer

    def close(self) -> None:
        """End the segment that is being made: replace its buffered commands by programs where these are known."""
        if threading.get_ident() == self._thread:
            self._start = self._session.replace_buffered(self._start, self._replaced)

    def describe(self) -> list[str]:
        """Describe each program: its first line, and how the server ran it."""
        lines = []
        for each in self._seen.values():
            for program in each.programs:
                answer = _register(self._session, program)
                if each.is_split or not answer.planned_runs + answer.stepwise_runs:
                    continue
                text = f"- A part of it: {counted(program.count, 'command')} as one, run "
                text += f"{counted(answer.planned_runs, 'time')} as a plan and "
                text += f"{counted(answer.stepwise_runs, 'time')} step by step"
                why = answer.stepwise_because
                lines.append(f"{text}{', since ' + why if why else ''}.")
        return lines

    def _replaced(self, items: Sequence[Buffered]) -> list[Buffered]:
        """The buffered commands, with those of each segment replaced by its program.

        A command that a program cannot hold ends a segment. Tensors made of values are made before it.
        """
        found: list[Buffered] = []
        segment: list[Buffered] = []
        for item in items:
            entry = item[1]
            if isinstance(entry, MemoEntry) and entry.name == "create":
                found.append(item)
            elif type(entry) is MemoEntry and entry.name not in _BREAKING:
                segment.append(item)
            else:
                found.extend(self._as_program(segment, False))
                found.append(item)
                segment = []
        found.extend(self._as_program(segment, True))
        return found

    def _as_program(self, items: Sequence[Buffered], is_last: bool) -> Sequence[Buffered]:
        """The commands, or the program that does the same.

        is_last: whether no command follows. One that does may read a result that was released since.
        """
        if not _FEWEST_COMMANDS <= len(items) <= _MOST_COMMANDS:
            return items
        entries = tuple([item[1] for item in items])
        data = b"".join([item[0] for item in items])
        seen = self._seen.get(entries)
        if seen is None:
            if len(self._seen) < _MOST_LISTS:
                self._seen[entries] = _CommandList(data)
            return items
        if seen.is_split:
            return self._around_programs(items, is_last)
        released = set(self._session.released.copy()) if is_last else set()
        program, ids, numbers = seen.find(data, released)
        if program is not None and program.hash in self._session.programs:
            self._session.programs.move_to_end(program.hash)
            self._session.drop_released(program.inner(ids))
            program.runs += 1
            if program.runs == _RUNS_BEFORE_ASKING and any(entry.name == "run_program" for entry in entries):
                self._asked.append((seen, program))
            return [(program.command(ids, numbers), program.entry, False)]
        if program is None and not seen.wants_registration and seen.add(self._session, items, data, released):
            self._unregistered.append(seen)
        elif program is not None and not seen.wants_registration:  # the server has dropped it
            seen.wants_registration = True
            self._unregistered.append(seen)
        return items

    def _around_programs(self, items: Sequence[Buffered], is_last: bool) -> list[Buffered]:
        """The commands in parts around the programs among them, which run as plans only by themselves."""
        found: list[Buffered] = []
        part: list[Buffered] = []
        for item in items:
            if item[1].name == "run_program":
                found.extend([*self._as_program(part, False), item])
                part = []
            else:
                part.append(item)
        return [*found, *self._as_program(part, is_last)]

    def _ask(self) -> None:
        """Ask how programs with other programs in them ran: where step by step, these run by themselves again."""
        asked, self._asked = self._asked, []
        for each, program in asked:
            each.is_split = not _register(self._session, program).planned_runs

    def _register(self) -> None:
        """Register the new programs. The commands of one that the server refuses are sent as they are."""
        waiting, self._unregistered = self._unregistered, []
        for each in waiting:
            each.wants_registration = False
            for program in each.programs:
                if program.hash not in self._session.programs:
                    try:
                        _register(self._session, program)
                    except GradwireError as error:
                        if error.late or self._session._unusable is not None:
                            raise
                        each.refused = True


class _CommandList:
    """What is known about a list of commands: its programs, and which of its values vary."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._layout: Layout | None = None
        self._varying: set[int] = set()
        self._kept: set[int] = set()
        self.programs: list[SegmentProgram] = []
        self.refused = False
        self.is_split = False
        self.wants_registration = False

    def find(self, data: bytes, released: set[int]) -> tuple[SegmentProgram | None, list[int], list[float]]:
        """The program that does what these commands do, with the ids of its slots and its numbers."""
        if not self.refused:
            for program in self.programs:
                values = program.match(data, released)
                if values is not None:
                    return program, *values
        return None, [], []

    def add(self, session: SessionProtocol, items: Sequence[Buffered], data: bytes, released: set[int]) -> bool:
        """Make a program of the commands; return whether that was possible."""
        if self.refused or len(self.programs) >= _MOST_PROGRAMS:
            return False
        if self._layout is None:
            self._layout = Layout.of(items)
        layout = self._layout
        if layout is None or len(data) != layout.size or len(self._data) != layout.size:
            self._layout, self._data = None, data  # entries get their templates at their second use
            return False
        self._varying.update(layout.differing_floats(self._data, data))
        made = SegmentProgram.of(session, layout, items, data, self._varying, self._kept, released)
        self.refused = made is None
        if made is None:
            return False
        self.programs.insert(0, made)
        self.wants_registration = True
        return True


def _register(session: Any, program: SegmentProgram) -> programs_pb2.RegisterProgramResponse:
    request = programs_pb2.RegisterProgramRequest(hash=program.hash, program=program.data)
    answer: programs_pb2.RegisterProgramResponse = session.wait(
        service_pb2.Command(register_program=request)
    ).register_program
    session.note_program(program.hash, program.data)
    return answer

"""Signal handlers run between gradwire's calls, as they do between those of a library in C, and at its waits.

A Python handler may run after any bytecode of the main thread, and what it raises is raised there. In the middle of a
call it would part a command from what the client notes of it. So every Python handler is held by a `Held`: where it
finds the main thread in a call of this package the signal waits until that call returns, or waits for the server.

Programs see their own handlers: signal.signal and signal.getsignal take and give those. Handlers that were set by
other ways are found when a call sends or waits.
"""

from __future__ import annotations

import functools
import inspect
import signal as _public
import sys
import time

# The module below `signal`, which would turn every number into an enum: that costs ten times as much.
from _signal import getsignal, signal  # type: ignore[import-not-found]
from _thread import interrupt_main, start_new_thread
from collections.abc import Callable
from os import register_at_fork
from queue import SimpleQueue
from threading import get_ident, main_thread
from types import FrameType
from typing import Any

_main = main_thread().ident
#: Signals that wait, and exceptions to be raised once the call is over; in the order they came.
_pending: list[int | BaseException] = []
#: What ends the main thread's wait, innermost last; the second kind, only where that lasts.
_wakers: list[Callable[[], object]] = []
_enders: list[Callable[[], object]] = []
_bell: SimpleQueue[None] = SimpleQueue()
#: Signals that the helper has made up, and whose handlers have not begun: several of them run a handler once.
_kicks: set[int] = set()
_seen: list[Any] = []
_has_helper = False
_forced = False
_depth = 0  # handlers that run, one inside the other
_latest = 0  # the signal whose handler ran last
_held_on = 0  # blocks of `holding` around the main thread
_held_at = 0.0  # when the first of what is held back came

# Those that a system has; all others are wrapped when a session is opened, or by signal.signal.
_COMMON = tuple(sorted(number for number in _public.valid_signals() if number < 32))
# What this package calls: a frame of these is of whoever called them.
_LIBRARIES = frozenset((*sys.stdlib_module_names, "google", "grpc", "ml_dtypes", "numpy", "rich", "tqdm")) - {
    "__main__"
}
# Programs of this package, which are interrupted as a user's are.
_PROGRAMS = frozenset(f"gradwire._cli.{name}" for name in ("admin", "bench", "main", "top", "workloads"))
# What these return is not in anybody's hands yet, or what they raise is told to nobody.
_NO_EDGE = frozenset(("__enter__", "__aenter__", "__del__"))
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_FIRST_LOOK, _LOOKS = 0.2, 0.02  # seconds that a wait may go on with a signal pending; between looks
_LONGEST_DEFERRAL = 3.0  # seconds after which a handler runs wherever the main thread is


class Interrupted(Exception):
    """A wait has ended for a signal that is held back."""


class Held:
    """A handler that runs when no call of this package is under way."""

    __slots__ = ("handler",)

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        kicked = number in _kicks
        _kicks.discard(number)
        if kicked and not _pending:  # it was handled meanwhile
            return
        if _inside(frame) and not (_forced and (kicked or number in _pending)):
            if not kicked:
                _hold(number)
            return
        if not _pending:
            _run(self.handler, number, frame)
            return
        if not kicked and number not in _pending:
            _pending.append(number)
        deliver()


def _run(handler: Callable[[int, FrameType | None], Any], number: int, frame: FrameType | None) -> None:
    global _depth, _latest
    _depth += 1
    _latest = number
    try:
        handler(number, frame)
    finally:
        _depth -= 1


def handlers_running() -> int:
    """How many handlers the calling thread is in, each of which has interrupted the one before."""
    return _depth if get_ident() == _main else 0


def guard() -> None:
    """Hold the handlers there are, and from now on those that are set. Those of other ways: see `look`."""
    if _public.signal is not _set:
        _public.signal = _set
        _public.getsignal = _get
    _start_helper()
    if get_ident() == _main:
        _hold_handlers(tuple(_public.valid_signals()))


def look() -> None:
    """Hold handlers that were set otherwise than by signal.signal."""
    if get_ident() == _main and list(map(getsignal, _COMMON)) != _seen:
        _hold_handlers(_COMMON)


def interrupted() -> bool:
    """Whether a signal is held back that the main thread's waits should end for."""
    return bool(_pending) and not _held_on and get_ident() == _main


class holding:
    """A block whose waits go on whatever is held back, since they are short and their outcome is needed."""

    def __enter__(self) -> None:
        global _held_on
        if get_ident() == _main:
            _held_on += 1

    def __exit__(self, *exc: object) -> None:
        global _held_on
        if get_ident() == _main:
            _held_on -= 1


def deliver() -> None:
    """Run the handlers of what is held back: all is in order here. Raises what they raise."""
    if not _pending or get_ident() != _main:
        return
    while _pending:
        first = _pending.pop(0)
        if isinstance(first, BaseException):
            raise first
        held = getsignal(first)
        if callable(held):
            _run(held.handler if type(held) is Held else held, first, sys._getframe(1))


def postpone(error: BaseException) -> None:
    """Raise what a handler raised when the call is over, for what it waited for has been done all the same."""
    _hold(error)


class waking:
    """A block in which the main thread waits: `wake` is called, by another thread, when a signal is held back.

    It may be called again and again, and when the wait is over. With `patient`, only where the wait lasts.
    """

    __slots__ = ("_list", "_wake")

    def __init__(self, wake: Callable[[], object], patient: bool = False) -> None:
        self._wake = wake
        self._list = _enders if patient else _wakers

    def __enter__(self) -> None:
        if get_ident() == _main:
            self._list.append(self._wake)
            if _pending:
                _bell.put(None)

    def __exit__(self, *exc: object) -> None:
        if get_ident() == _main:
            del self._list[-1:]  # a child that was forked in the block has none


def _hold(what: int | BaseException) -> None:
    global _held_at
    if not _pending:
        _held_at = time.monotonic()
    if what not in _pending:
        _pending.append(what)
    if sys.getprofile() is None:
        sys.setprofile(_returned)
    _start_helper()
    _bell.put(None)


def _inside(frame: FrameType | None) -> bool:
    """Whether a frame is of this package, or of what it calls; not of a user's function that it calls."""
    if frame is not None and frame.f_globals.get("__name__") == "weakref":
        return True  # a callback, whose exceptions are told to nobody
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        top = name.partition(".")[0]
        if top == "gradwire":
            return name not in _PROGRAMS
        if top not in _LIBRARIES:
            return False
        frame = frame.f_back
    return False


def _returned(frame: FrameType, event: str, _: object) -> None:
    """Called as a profiler while something is held back: handle it as soon as the outermost call has returned."""
    if not _pending:
        sys.setprofile(None)
        return
    if event == "return":
        code = frame.f_code
        if (
            code.co_flags & _SUSPENDED  # such a frame may not be left by an exception here
            or code.co_name in _NO_EDGE
            or frame.f_globals.get("__name__") == "weakref"
            or frame.f_back is None
            or _inside(frame.f_back)
        ):
            return
    elif event not in ("c_call", "c_return") or frame.f_code.co_name in _NO_EDGE or _inside(frame):
        return
    sys.setprofile(None)
    deliver()


# Which handlers are held.


def _hold_handlers(numbers: tuple[int, ...]) -> None:
    global _seen
    for number in numbers:
        handler = getsignal(number)
        if callable(handler) and type(handler) is not Held:
            signal(number, Held(handler))
    _seen = list(map(getsignal, _COMMON))


def _own(handler: Any) -> Any:
    return handler.handler if type(handler) is Held else handler


_set_before, _get_before = _public.signal, _public.getsignal


@functools.wraps(_set_before)
def _set(signalnum: Any, handler: Any) -> Any:
    handler = _own(handler)
    # Enums of SIG_DFL and SIG_IGN are no functions, and a call of one is not what they are for.
    is_function = callable(handler) and not isinstance(handler, int)
    return _own(_set_before(signalnum, Held(handler) if is_function else handler))


@functools.wraps(_get_before)
def _get(signalnum: Any) -> Any:
    return _own(_get_before(signalnum))


# The thread that ends waits, and looks after what is held back for long.


def _start_helper() -> None:
    global _has_helper
    if not _has_helper:
        _has_helper = True
        start_new_thread(_help, ())  # which takes no lock: this may be a handler


def _help() -> None:
    global _forced
    while True:
        _bell.get()
        while _pending:
            waited = time.monotonic() - _held_at
            wakers = () if _held_on else (*_wakers[-1:], *(_enders[-1:] if waited > _FIRST_LOOK else ()))
            for wake in wakers:
                try:
                    wake()
                except Exception:  # noqa: BLE001, S112 - what it was to end has ended
                    continue
            _forced = waited > _LONGEST_DEFERRAL
            inside = _inside(sys._current_frames().get(_main or 0))
            if _forced or not inside:
                _kick(inside)
            time.sleep(_LOOKS)
        _forced = False


def _kick(inside: bool) -> None:
    """Have the main thread look again, as if what waits came now: a signal, or the one that an exception came of."""
    first = next(iter(_pending), 0)
    if not isinstance(first, int) and inside:
        return  # it is raised when the call is over, however long that takes
    number = first if isinstance(first, int) else _latest
    if number and type(getsignal(number)) is Held:  # one that was set otherwise would not know of it
        _kicks.add(number)
        if _forced and _main is not None:
            _public.pthread_kill(_main, number)  # which also ends a system call that blocks
        else:
            interrupt_main(number)  # type: ignore[arg-type]


def _forked() -> None:
    global _main, _has_helper, _bell, _forced, _held_on, _depth
    if _main != get_ident():  # blocks and handlers of a thread that is not there
        _held_on = _depth = 0
    _main = get_ident()
    _bell = SimpleQueue()
    _has_helper = _forced = False  # a child that only execs needs no helper
    for each in (_pending, _wakers, _enders, _kicks):
        each.clear()


register_at_fork(after_in_child=_forked)

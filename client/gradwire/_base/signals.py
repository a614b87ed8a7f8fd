"""Signals: runs Python signal handlers between gradwire calls, and while a call waits for the server.

Python may run a handler after any bytecode of the main thread, and raises the handler's exception there. Within a
gradwire call, that could separate a sent command from the client's record of it. So a `DeferredHandler` wraps each
Python handler. If the main thread is inside a gradwire call, the signal is deferred until the call returns or waits for
the server. Calls into C libraries behave the same way.

Programs see their own handlers: signal.signal and signal.getsignal accept and return the unwrapped handler. A handler
set in another way is wrapped when a call sends or waits.

A helper thread asks the main thread to deliver what is pending, by a signal of its own, SIGURG. To raise the pending
signal again would hide one that arrives at the same time. In a program that handles SIGURG, signals wait for the end of
the call or of its wait.
"""

from __future__ import annotations

import functools
import inspect
import signal as _public
import sys
import time

# The C module below `signal`. `signal` converts each number to an enum, which takes ten times as long.
from _signal import getsignal, signal, valid_signals  # type: ignore[import-not-found]
from _thread import interrupt_main, start_new_thread
from collections.abc import Callable
from os import register_at_fork
from queue import SimpleQueue
from threading import get_ident, main_thread
from types import FrameType
from typing import Any

_main = main_thread().ident
#: Deferred signals, and exceptions to raise after the call; in order of arrival.
_pending: list[int | BaseException] = []
#: Callables that end the main thread's wait, innermost last. `_delayed_wakers` run only after _DELAYED_WAKE_SECONDS.
_wakers: list[Callable[[], object]] = []
_delayed_wakers: list[Callable[[], object]] = []
_wakeups: SimpleQueue[None] = SimpleQueue()
#: The helper's signal: one that is ignored by default, and rarely handled.
_WAKE_SIGNAL = getattr(_public, "SIGURG", None)
_ignored: Any = _public.SIG_DFL  # what the program set for it, unless it handles it: SIG_DFL or SIG_IGN
_last_handlers: list[Any] = []
_has_helper = False
_forced = False
_depth = 0  # nested handlers that are running
_forced_depth = 0  # nested deliveries inside a call
_deferring_blocks = 0  # nested `deferring_signals` blocks of the main thread
_pending_since = 0.0  # time.monotonic() at the arrival of the oldest pending item

# Standard signals. `wrap_handlers` and signal.signal also wrap the real-time signals.
_COMMON = tuple(sorted(number for number in valid_signals() if number < 32))
# Libraries that gradwire calls. A frame of these counts as part of its caller.
_LIBRARIES = frozenset(
    (*sys.stdlib_module_names, "google", "grpc", "ml_dtypes", "numpy", "opentelemetry", "rich", "tqdm")
) - {"__main__"}
# What the module is called in which a named tuple's constructor runs, which Python generates.
_GENERATED = "namedtuple_"
# gradwire's own programs. Signals interrupt them like a user's program.
_PROGRAMS = frozenset(f"gradwire._cli.{name}" for name in ("admin", "bench", "main", "top", "workloads"))
# No delivery here: the caller does not hold the result yet, or Python ignores the exception (`__del__`).
_NO_EDGE = frozenset(("__enter__", "__aenter__", "__del__"))
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_DELAYED_WAKE_SECONDS, _CHECK_SECONDS = 0.2, 0.02  # seconds: wait allowed with a signal pending; interval of checks
_LONGEST_DEFERRAL = 3.0  # seconds after which a handler runs even inside a call


class Interrupted(Exception):
    """A wait ended because a signal is pending."""


class DeferredHandler:
    """A wrapped handler that runs only outside gradwire calls."""

    __slots__ = ("handler",)

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if _inside(frame) or _forced_depth:
            if _forced and number in _pending:
                _deliver_inside()
            else:
                _defer(number)
            return
        if not _pending:
            _run(self.handler, number, frame)
            return
        if number not in _pending:
            _pending.append(number)
        deliver()


def _wake(number: int, frame: FrameType | None) -> None:
    """Deliver what is pending: the handler of the helper's signal."""
    if not (_inside(frame) or _forced_depth):
        deliver()
    elif _forced:
        _deliver_inside()


def _may_force() -> bool:
    """Whether the oldest pending item may be delivered inside a call: an exception waits until the call returns."""
    return isinstance(next(iter(_pending), None), int)


def _deliver_inside() -> None:
    """Run pending handlers inside a call, up to an exception, which is not raised inside a handler either."""
    global _forced_depth
    _forced_depth += 1
    try:
        while _may_force():
            _deliver_oldest(sys._getframe(1))
    finally:
        _forced_depth -= 1


def _run(handler: Callable[[int, FrameType | None], Any], number: int, frame: FrameType | None) -> None:
    global _depth
    _depth += 1
    try:
        handler(number, frame)
    finally:
        _depth -= 1


def handlers_running() -> int:
    """The number of nested handlers that the calling thread is running."""
    return _depth if get_ident() == _main else 0


def wrap_handlers() -> None:
    """Wrap the current handlers, and each handler set later by signal.signal. See also `wrap_new_handlers`."""
    if _public.signal is not _set:
        _public.signal = _set
        _public.getsignal = _get
    _start_helper()
    if get_ident() == _main:
        _wrap_each(tuple(valid_signals()))


def wrap_new_handlers() -> None:
    """Wrap handlers that were not set by signal.signal."""
    if get_ident() == _main and list(map(getsignal, _COMMON)) != _last_handlers:
        _wrap_each(_COMMON)


def interrupted() -> bool:
    """Whether a pending signal should end the calling thread's wait. False outside the main thread."""
    return bool(_pending) and not _deferring_blocks and get_ident() == _main


class deferring_signals:
    """A block whose waits ignore pending signals: the waits are short and their outcome is needed."""

    def __enter__(self) -> None:
        global _deferring_blocks
        if get_ident() == _main:
            _deferring_blocks += 1

    def __exit__(self, *exc: object) -> None:
        global _deferring_blocks
        if get_ident() == _main:
            _deferring_blocks -= 1


def deliver() -> None:
    """Run the pending handlers. Call it only where the client's state is consistent. Raises what the handlers raise."""
    if not _pending or get_ident() != _main:
        return
    while _pending:
        _deliver_oldest(sys._getframe(1))


def _deliver_oldest(frame: FrameType) -> None:
    first = _pending.pop(0)
    if isinstance(first, BaseException):
        raise first
    held = getsignal(first)
    if callable(held):
        _run(held.handler if type(held) is DeferredHandler else held, first, frame)


def defer_exception(error: BaseException) -> None:
    """Defer a handler's exception until the call returns, because the awaited work completed anyway."""
    _defer(error)


class wake_on_signal:
    """A block in which the main thread waits. Another thread calls `wake` when a signal is pending.

    `wake` may be called several times, and also after the wait. With `delayed`, the first call follows after 0.2 s.
    """

    __slots__ = ("_list", "_wake")

    def __init__(self, wake: Callable[[], object], delayed: bool = False) -> None:
        self._wake = wake
        self._list = _delayed_wakers if delayed else _wakers

    def __enter__(self) -> None:
        if get_ident() == _main:
            self._list.append(self._wake)
            if _pending:
                _wakeups.put(None)

    def __exit__(self, *exc: object) -> None:
        if get_ident() == _main:
            del self._list[-1:]  # empty in a child that was forked in the block


def _defer(what: int | BaseException) -> None:
    global _pending_since
    if not _pending:
        _pending_since = time.monotonic()
    if what not in _pending:
        _pending.append(what)
    if sys.getprofile() is None:
        sys.setprofile(_returned)
    _start_helper()
    _wakeups.put(None)


def _inside(frame: FrameType | None) -> bool:
    """Whether a frame belongs to gradwire or to a library it calls. False in a user function called by gradwire."""
    if frame is not None and frame.f_globals.get("__name__") == "weakref":
        return True  # a weakref callback: Python ignores its exceptions
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        top = name.partition(".")[0]
        if top == "gradwire":
            return name not in _PROGRAMS
        if top not in _LIBRARIES and not top.startswith(_GENERATED):
            return False
        frame = frame.f_back
    return False


def _returned(frame: FrameType, event: str, _: object) -> None:
    """Profiler callback while items are pending: deliver them as soon as the outermost gradwire call returns."""
    if not _pending:
        sys.setprofile(None)
        return
    if _forced_depth:
        return
    if event == "return":
        code = frame.f_code
        if (
            code.co_flags & _SUSPENDED  # an exception here must not leave a suspended frame
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


# Wrapping of handlers.


def _wrap_each(numbers: tuple[int, ...]) -> None:
    global _last_handlers, _ignored
    if _WAKE_SIGNAL is not None and (found := getsignal(_WAKE_SIGNAL)) in (_public.SIG_DFL, _public.SIG_IGN):
        _ignored = _public.Handlers(found)
        signal(_WAKE_SIGNAL, _wake)
    for number in numbers:
        handler = getsignal(number)
        if callable(handler) and type(handler) is not DeferredHandler and handler is not _wake:
            signal(number, DeferredHandler(handler))
    _last_handlers = list(map(getsignal, _COMMON))


def _unwrapped(handler: Any) -> Any:
    if handler is _wake:
        return _ignored
    return handler.handler if type(handler) is DeferredHandler else handler


_set_before, _get_before = _public.signal, _public.getsignal


@functools.wraps(_set_before)
def _set(signalnum: Any, handler: Any) -> Any:
    handler = _unwrapped(handler)
    # The enums SIG_DFL and SIG_IGN are callable, but they are not handlers.
    is_function = callable(handler) and not isinstance(handler, int)
    return _unwrapped(_set_before(signalnum, DeferredHandler(handler) if is_function else handler))


@functools.wraps(_get_before)
def _get(signalnum: Any) -> Any:
    return _unwrapped(_get_before(signalnum))


# The helper thread: ends waits and forces delivery after `_LONGEST_DEFERRAL`.


def _start_helper() -> None:
    global _has_helper
    if not _has_helper:
        _has_helper = True
        start_new_thread(_run_helper, ())  # takes no lock: the caller may be a signal handler


def _run_helper() -> None:
    global _forced
    while True:
        _wakeups.get()
        while _pending:
            waited = time.monotonic() - _pending_since
            wakers = (
                ()
                if _deferring_blocks
                else (*_wakers[-1:], *(_delayed_wakers[-1:] if waited > _DELAYED_WAKE_SECONDS else ()))
            )
            for wake in wakers:
                try:
                    wake()
                except Exception:  # noqa: BLE001, S112 - what it was to end has ended
                    continue
            _forced = waited > _LONGEST_DEFERRAL
            if _forced or not _inside(sys._current_frames().get(_main or 0)):
                _wake_main()
            time.sleep(_CHECK_SECONDS)
        _forced = False


def _wake_main() -> None:
    """Run `_wake` in the main thread, unless the program handles that signal itself."""
    if _WAKE_SIGNAL is None or _main is None or getsignal(_WAKE_SIGNAL) is not _wake:
        return
    interrupt_main(_WAKE_SIGNAL)  # also if the signal is blocked
    if _forced and _may_force():
        _public.pthread_kill(_main, _WAKE_SIGNAL)  # interrupts a blocking system call


def _after_fork_in_child() -> None:
    global _main, _has_helper, _wakeups, _forced, _deferring_blocks, _depth, _forced_depth
    if _main != get_ident():  # blocks and handlers of a thread that the child lacks
        _deferring_blocks = _depth = _forced_depth = 0
    _main = get_ident()
    _wakeups = SimpleQueue()
    _has_helper = _forced = False  # a child that only execs needs no helper
    for each in (_pending, _wakers, _delayed_wakers):
        each.clear()


register_at_fork(after_in_child=_after_fork_in_child)

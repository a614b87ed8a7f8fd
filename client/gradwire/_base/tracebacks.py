"""Tracebacks: leaves the package's own frames out of the errors that a program ends with or a notebook shows.

An error that the package raises is about a line of the program, so that line is shown last. An error that is no
refusal, as of a fault in the package, keeps all of its frames. So do all errors with GRADWIRE_TRACEBACK=full. What a
program catches is never changed.
"""

from __future__ import annotations

import linecache
import os
import runpy
import sys
import threading
import traceback
from functools import cache
from types import TracebackType
from typing import Any

from gradwire._base.call_site import INTERNAL

# The file name of the module by which the package runs a program.
_LAUNCHER = runpy.run_path.__code__.co_filename


@cache
def install() -> None:
    """Fold, once and for all, the tracebacks of uncaught errors, in the main thread and in others.

    The hooks that were there are called as before.
    """
    if _full():
        return
    before, before_thread = sys.excepthook, threading.excepthook

    def shown(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> None:
        fold(error)
        before(kind, error, error.__traceback__)

    def shown_thread(args: Any) -> None:
        if args.exc_value is not None:
            fold(args.exc_value)
            args = threading.ExceptHookArgs((args.exc_type, args.exc_value, args.exc_value.__traceback__, args.thread))
        before_thread(args)

    sys.excepthook, threading.excepthook = shown, shown_thread


def _full() -> bool:
    return os.environ.get("GRADWIRE_TRACEBACK", "") == "full"


def fold(error: BaseException) -> None:
    """Leave the package's frames out of an error's traceback, and of those that led to it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if _is_refusal(each.__traceback__):
            each.__traceback__ = _without_internals(each.__traceback__)
        waiting += [each.__cause__, each.__context__]


def folded_lines(error: BaseException) -> list[str]:
    """An error as notebooks show it, line by line."""
    if not _full():
        fold(error)
    return "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip().split("\n")


def _is_refusal(tb: TracebackType | None) -> bool:
    """Whether the program or a `raise` of the package made the error; else the package may have a fault."""
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    if tb is None:
        return False
    filename = tb.tb_frame.f_code.co_filename
    return not INTERNAL[filename] or linecache.getline(filename, tb.tb_lineno).lstrip().startswith("raise ")


def _without_internals(tb: TracebackType | None) -> TracebackType | None:
    """The frames of the program, without those by which `gradwire run` runs it. All frames, if there are none."""
    kept: list[TracebackType] = []
    starts = False  # whether the package has just begun to run the program
    each = tb
    while each is not None:
        filename = each.tb_frame.f_code.co_filename
        if INTERNAL[filename]:
            starts = True
        elif starts and filename == _LAUNCHER:
            kept.clear()
        else:
            starts = False
            kept.append(each)
        each = each.tb_next
    made: TracebackType | None = None
    for each in reversed(kept):
        made = TracebackType(made, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return made or tb

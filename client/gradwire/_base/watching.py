"""Watching: lets this package's own code run unwatched while a function's use of names and calls is recorded.

A recording watches its thread by a profile and a trace function, each of which is called at every event. Work that
runs none of the user's code says nothing of the function. Without them it takes less than half the time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")
# From Python 3.12 on, setting these functions instruments code anew, which takes longer than it saves.
_EXCHANGES = sys.version_info < (3, 12)


class Watcher(threading.local):
    """The profile and trace functions of this thread's recording; None outside one."""

    profile: Callable[..., Any] | None = None
    trace: Callable[..., Any] | None = None


WATCHER = Watcher()


def unwatched(work: Callable[..., _T], *args: Any) -> _T:
    """Call `work`, which must run no code of the user and give no warning.

    Functions that others have set meanwhile stay.
    """
    profile = WATCHER.profile
    if profile is None or not _EXCHANGES or sys.getprofile() is not profile:
        return work(*args)
    trace = WATCHER.trace
    if trace is not None and sys.gettrace() is not trace:
        trace = None
    sys.setprofile(None)
    if trace is not None:
        sys.settrace(None)
    try:
        return work(*args)
    finally:
        if trace is not None:
            sys.settrace(trace)
        sys.setprofile(profile)

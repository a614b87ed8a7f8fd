"""Streams and events (torch.cuda): the server orders a session's commands itself, so they only mark times."""

from __future__ import annotations

import time
from typing import Any

from gradwire._session.sessions import current_session


class Stream:
    """A queue of a GPU's work. All commands of a session are in one order, so streams change nothing."""

    def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
        self.device = device
        self.cuda_stream = 0

    def synchronize(self) -> None:
        """Wait until everything issued so far is done."""
        current_session().sync()

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: commands are in one order."""

    wait_event = wait_stream

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event now."""
        made = Event() if event is None else event
        made.record(self)
        return made

    def query(self) -> bool:
        """Wait until everything issued so far is done; True."""
        self.synchronize()
        return True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Event:
    """A moment in a session's commands. Recording it waits for the commands before it."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._at: float | None = None

    def record(self, stream: Any = None) -> None:
        """Wait until everything issued so far is done, and note the time."""
        current_session().sync()
        self._at = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Do nothing: commands are in one order."""

    def query(self) -> bool:
        """True: the commands before it are done."""
        return True

    def synchronize(self) -> None:
        """Do nothing: the commands before it are done."""

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two recorded events. Raises ValueError if one is not recorded."""
        if self._at is None or end_event._at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._at - self._at) * 1000


class device_context:
    """Context of a GPU of the server (torch.cuda.device). The default device stays the server's CPU."""

    def __init__(self, device: Any) -> None:
        self.idx = device

    def __enter__(self) -> device_context:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def stream(stream: Stream | None) -> Any:
    """Context of a stream: no effect."""
    return Stream() if stream is None else stream


def current_stream(device: Any = None) -> Stream:
    """The one stream."""
    return Stream(device)


default_stream = current_stream
StreamContext = stream

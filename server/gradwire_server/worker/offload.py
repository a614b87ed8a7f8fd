"""The lane: keeps a worker's sessions computing while an expensive op of one session runs aside.

Only the thread that holds the baton touches sessions and runs `work`. An expensive op (`Interrupt.offload`) is computed
apart (forked_op.py) or, if it cannot be forked, in its own thread. Its session leaves the turns, and the baton passes to a
standby thread. When the op is done, its thread claims the baton and gets it between two slices. Time that the session
waits for the baton or for a place is not charged as computing.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from gradwire_engine.core.errors import EngineError, Reason
from gradwire_server.session.session import Session
from gradwire_server.session.state.cancel_token import CancelToken
from gradwire_server.worker.fork_slots import ForkPlaces
from gradwire_server.worker.forked_op import Child
from gradwire_server.worker.runtime import Runtime

PRESS_SECONDS = 0.05  # a session computes this long before it must yield between two ops
_OTHERS_SECONDS = 0.01  # other sessions then compute this long
_MOST_AWAY = 128  # sessions whose op runs or waits aside, one thread each
_SPARE = 2  # standby threads that are kept; others end
_IDLE_LOOKS = 20


class Slices(Protocol):
    """What the lane needs of the scheduler (scheduler.py): the running session, and how it leaves and returns."""

    runtime: Runtime
    running: Session | None  # whose slice it is
    slices: int  # slices begun
    others_wait: Callable[[], bool]  # whether any other session could compute

    def leave(self, session: Session) -> None:
        """Take a session that computes aside out of the turns; its calls wait."""

    def come_back(self, session: Session) -> None:
        """Resume the slice of a session that computed aside."""


class Baton:
    """Mutual exclusion of a worker's threads: the holder computes."""

    def __init__(self) -> None:
        self.claims = 0  # threads that wait to get the baton back
        self.ended = False
        self._changed = threading.Condition()
        self._free = False
        self._standing_by = 0
        self.threads = 1

    def ready(self, run: Callable[[], None]) -> bool:
        """Ensure that a thread can take over the baton; start one that calls `run` if none stands by.

        False if no thread can be started.
        """
        with self._changed:
            if self._standing_by or self.claims:
                return True
            try:
                threading.Thread(target=run, name="gradwire-compute", daemon=True).start()
            except RuntimeError:
                return False
            self.threads += 1
            return True

    def give(self) -> None:
        """Release the baton to a thread ensured by `ready`."""
        with self._changed:
            self._free = True
            self._changed.notify_all()

    def claim(self) -> None:
        """Wait for the baton and take it; claims precede standby threads."""
        with self._changed:
            self.claims += 1
            while not self._free:
                self._changed.wait()
            self.claims -= 1
            self._free = False

    def stand_by(self, holds: bool = True, spare: bool = False) -> bool:
        """Release the baton to claiming threads; take it when none claims it. False if the thread must end.

        A `spare` thread ends if enough others stand by.
        """
        with self._changed:
            if holds:
                self._free = True
            self._changed.notify_all()
            if spare and self._standing_by >= _SPARE:
                self.threads -= 1
                return False
            self._standing_by += 1
            while not self.ended and not (self._free and not self.claims):
                self._changed.wait()
            self._standing_by -= 1
            if self.ended:
                return False
            self._free = False
            return True

    def end(self) -> None:
        """End the standby threads: there is no more work."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()


class Lane:
    """Expensive ops of one worker's sessions, computed aside. Only the holder of the baton calls its methods."""

    def __init__(self, scheduler: Slices, run: Callable[[], None], most: int, forks: bool = True) -> None:
        """`run` is the body of a thread that takes over; at most `most` ops are computed apart at once."""
        self.scheduler = scheduler
        self.baton = Baton()
        self.away = 0  # sessions that are out of the turns
        self._run = run
        self._places = ForkPlaces(most)
        self._forks = forks
        self._waiting = threading.Event()
        threading.Thread(target=self._watch, name="gradwire-watch", daemon=True).start()

    # Called by the engine through a session's cancel token.

    def aside(
        self, cancel_token: CancelToken, compute: Callable[[], Any], name: str, alone: bool, room: int = 0
    ) -> Any:
        """Return the result of `compute` while other sessions compute. Raises EngineError: CANCELLED, COMPUTE_LIMIT."""
        session = self.scheduler.running
        if session is None or session.cancel_token is not cancel_token:  # this thread already runs aside
            return compute()
        if self.away >= _MOST_AWAY:
            raise EngineError(Reason.COMPUTE_LIMIT, f"{_MOST_AWAY} ops that take long run or wait already")
        host = self.scheduler.runtime
        host.reserve(room)
        try:
            if not alone or not self._forks:
                return self._in_thread(session, compute)
            return self._in_child(session, compute, name)
        finally:
            host.reserve(-room)

    def look(self, cancel_token: CancelToken) -> None:
        """Yield to other sessions between two ops of an expensive command. Raises EngineError: CANCELLED."""
        if cancel_token.stopping() or cancel_token.closed:
            raise EngineError(Reason.CANCELLED, "the command was cancelled")
        session = self.scheduler.running
        if session is None or session.cancel_token is not cancel_token:  # this thread already runs aside
            return
        if time.monotonic() < session.schedule.turn_ends or not self.scheduler.others_wait():
            return
        with self._gone(session):
            time.sleep(_OTHERS_SECONDS)
            session.schedule.waited += _OTHERS_SECONDS

    def _in_thread(self, session: Session, compute: Callable[[], Any]) -> Any:
        with self._gone(session) as gone:
            if not gone:
                return compute()
            with self._timed(session):
                self._places.enter(_Check(session.cancel_token))
            try:
                return compute()
            finally:
                self._places.leave()

    def _in_child(self, session: Session, compute: Callable[[], Any], name: str) -> Any:
        owner = session.usage.owner or -session.key
        self._take_place(session, owner)
        try:
            try:
                child = Child(lambda: _alone(session.cancel_token, compute), name)
            finally:
                self._places.forked()
        except OSError:  # no process could be forked
            self._places.give_back(owner)
            return compute()
        except BaseException:
            self._places.give_back(owner)
            raise
        with self._gone(session):
            try:
                return child.result(_Check(session.cancel_token, self._most_seconds(session), name))
            finally:
                self._places.give_back(owner)

    def _take_place(self, session: Session, owner: int) -> None:
        if self._places.take_at_once(owner):
            return
        with self._gone(session) as gone, self._timed(session):
            if not gone:
                raise EngineError(Reason.COMPUTE_LIMIT, "no thread is available; other ops take long already")
            self._places.take(owner, _Check(session.cancel_token))

    def _most_seconds(self, session: Session) -> float:
        """Seconds that one command may compute: the smaller quota of session and principal for a minute."""
        limits = self.scheduler.runtime.limits
        principals = limits.max_principal_compute_seconds if session.usage.place else 0.0
        return min(each or float("inf") for each in (limits.max_session_compute_seconds, principals))

    @contextmanager
    def _gone(self, session: Session) -> Iterator[bool]:
        """Take the session out of the turns inside the block, while others compute.

        Yields False if no thread can be started.
        """
        scheduler = self.scheduler
        if not self.baton.ready(self._run):
            yield False
            return
        scheduler.leave(session)
        self.away += 1
        self.baton.give()
        try:
            yield True
        finally:
            with self._timed(session):
                self.baton.claim()
            self.away -= 1
            scheduler.come_back(session)

    @contextmanager
    def _timed(self, session: Session) -> Iterator[None]:
        """Count the block's duration as waiting, not computing."""
        began = time.monotonic()
        try:
            yield
        finally:
            session.schedule.waited += time.monotonic() - began

    # Makes a command of many quick ops yield.

    def slice_begins(self) -> None:
        """Wake the watch thread, which limits how long a command computes without yielding."""
        if not self._waiting.is_set():
            self._waiting.set()

    def _watch(self) -> None:
        seen, idle = 0, 0
        while True:
            self._waiting.wait()
            time.sleep(PRESS_SECONDS)
            scheduler = self.scheduler
            session, slices = scheduler.running, scheduler.slices
            if session is not None and slices == seen:
                session.account.pressed = True
            idle = idle + 1 if slices == seen and session is None else 0
            seen = slices
            if idle > _IDLE_LOOKS:
                idle = 0
                self._waiting.clear()


def _alone(cancel_token: CancelToken, compute: Callable[[], Any]) -> Any:
    """Compute in a child, which has no other sessions to yield to and no threads."""
    cancel_token.lane = None
    if cancel_token.account is not None:
        cancel_token.account.pressed = False
    return compute()


class _Check:
    """Checks whether to end an op that is computed aside. Raises EngineError: CANCELLED, COMPUTE_LIMIT."""

    def __init__(self, cancel_token: CancelToken, most: float = float("inf"), name: str = "") -> None:
        self.cancel_token = cancel_token
        self.most = most
        self.name = name

    def __call__(self, seconds: float = 0.0) -> None:
        if self.cancel_token.stopping() or self.cancel_token.closed:
            raise EngineError(Reason.CANCELLED, "the command was cancelled")
        if seconds > self.most:
            raise EngineError(
                Reason.COMPUTE_LIMIT,
                f"{self.name} was ended: it had computed for the {self.most:g} seconds that are allowed in a minute",
                op=self.name,
                limit=self.most,
                retry_ms=60_000,
            )

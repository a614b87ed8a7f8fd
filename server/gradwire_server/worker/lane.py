"""The lane: one thread of a worker computes at a time, and another takes over while an op of one session takes long.

Whoever holds the baton touches sessions and runs `work`. An op that takes long (`Interrupt.aside`) is computed apart
(apart.py) or, where it cannot be, in its own thread; the session it is of leaves the turns, and the baton goes to a
thread that stands by. When the op is done its thread claims the baton back, which it gets between two slices.
What the session waits for meanwhile, the baton or a place, is not charged to it as computing.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.graph import go_on_from, next_seq
from gradwire_server.worker.apart import Child
from gradwire_server.worker.places import ForkPlaces

if TYPE_CHECKING:
    from gradwire_server.session.session import CancelToken, Session
    from gradwire_server.worker.scheduler import Scheduler

PRESS_SECONDS = 0.05  # that a session computes before it is asked to look up between two ops
_OTHERS_SECONDS = 0.01  # that others compute then
_MOST_AWAY = 128  # sessions whose op runs or waits aside, each with a thread
_SPARE = 2  # threads that go on standing by; others end
_IDLE_LOOKS = 20


class Baton:
    """Whose turn it is among the threads of a worker."""

    def __init__(self) -> None:
        self.claims = 0  # threads that want it back
        self.ended = False
        self._changed = threading.Condition()
        self._free = False
        self._standing_by = 0
        self.threads = 1

    def ready(self, run: Callable[[], None]) -> bool:
        """See that somebody takes over from who holds the baton; `run` is what a thread that is started for it does.

        False where there is no thread to be had.
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
        """Let another thread go on, which is `ready`."""
        with self._changed:
            self._free = True
            self._changed.notify_all()

    def claim(self) -> None:
        """Wait until it is this thread's turn again."""
        with self._changed:
            self.claims += 1
            while not self._free:
                self._changed.wait()
            self.claims -= 1
            self._free = False

    def stand_by(self, holds: bool = True, spare: bool = False) -> bool:
        """Let those go on that claim it, and take over when nobody does; whether there is anything to take over.

        A `spare` thread is to end where enough others stand by.
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
        """There is no more work: let those end that stand by."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()


class Lane:
    """What computes aside, for the sessions of one worker. Its methods are called by whoever holds the baton."""

    def __init__(self, scheduler: "Scheduler", run: Callable[[], None], most: int, forks: bool = True) -> None:
        """`run` is what a thread does that takes over; so many ops are computed apart at once."""
        self.scheduler = scheduler
        self.baton = Baton()
        self.away = 0  # sessions that left the turns for now
        self._run = run
        self._places = ForkPlaces(most)
        self._forks = forks
        self._waiting = threading.Event()
        threading.Thread(target=self._watch, name="gradwire-watch", daemon=True).start()

    # What the engine asks for, by way of a session's cancel token.

    def aside(
        self, cancel_token: "CancelToken", compute: Callable[[], Any], name: str, alone: bool, room: int = 0
    ) -> Any:
        """What `compute` makes, while other sessions compute. Raises EngineError: CANCELLED, COMPUTE_LIMIT."""
        session = self.scheduler.running
        if session is None or session.cancel_token is not cancel_token:  # of a thread that is aside already
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

    def look(self, cancel_token: "CancelToken") -> None:
        """Between two ops of a command that takes long. Raises EngineError: CANCELLED."""
        if cancel_token.stopping() or cancel_token.closed:
            raise EngineError(Reason.CANCELLED, "the command was cancelled")
        session = self.scheduler.running
        if session is None or session.cancel_token is not cancel_token:  # of a thread that is aside already
            return
        if time.monotonic() < session.turn_ends or not self.scheduler.others_wait():
            return
        with self._gone(session):
            time.sleep(_OTHERS_SECONDS)
            session.waited += _OTHERS_SECONDS

    def _in_thread(self, session: "Session", compute: Callable[[], Any]) -> Any:
        with self._gone(session) as gone:
            if not gone:
                return compute()
            with self._timed(session):
                self._places.enter(_Check(session.cancel_token))
            try:
                return compute()
            finally:
                self._places.leave()

    def _in_child(self, session: "Session", compute: Callable[[], Any], name: str) -> Any:
        owner = session.owner or -session.key
        self._take_place(session, owner)
        try:
            try:
                child = Child(lambda: _alone(session.cancel_token, compute), name)
            finally:
                self._places.forked()
        except OSError:  # there is no process to be had
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

    def _take_place(self, session: "Session", owner: int) -> None:
        if self._places.take_at_once(owner):
            return
        with self._gone(session) as gone, self._timed(session):
            if not gone:
                raise EngineError(Reason.COMPUTE_LIMIT, "no thread is to be had; other ops take long already")
            self._places.take(owner, _Check(session.cancel_token))

    def _most_seconds(self, session: "Session") -> float:
        """What one command may compute: all that a quota gives within a minute."""
        limits = self.scheduler.runtime.limits
        principals = limits.max_principal_compute_seconds if session.place else 0.0
        return min(each or float("inf") for each in (limits.max_session_compute_seconds, principals))

    @contextmanager
    def _gone(self, session: "Session") -> Iterator[bool]:
        """The session is out of the turns inside the block, and others compute; False where no thread is to be had.

        Nodes that others make meanwhile do not count.
        """
        scheduler = self.scheduler
        if not self.baton.ready(self._run):
            yield False
            return
        number = next_seq()
        go_on_from(max(number, session.reached))
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
            session.reached = max(session.reached, next_seq())
            go_on_from(number)

    @contextmanager
    def _timed(self, session: "Session") -> Iterator[None]:
        """What passes inside the block the session waits."""
        began = time.monotonic()
        try:
            yield
        finally:
            session.waited += time.monotonic() - began

    # What has a command look up that makes many quick ops.

    def slice_begins(self) -> None:
        """Something is computed: see that it does not go on for long unasked."""
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


def _alone(cancel_token: "CancelToken", compute: Callable[[], Any]) -> Any:
    """In a child: there are no others to let go on, and no threads."""
    cancel_token.lane = None
    if cancel_token.account is not None:
        cancel_token.account.pressed = False
    return compute()


class _Check:
    """Whether an op that is computed aside is to be ended. Raises EngineError: CANCELLED, COMPUTE_LIMIT."""

    def __init__(self, cancel_token: "CancelToken", most: float = float("inf"), name: str = "") -> None:
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

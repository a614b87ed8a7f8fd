"""Turns: the sessions of a worker take turns at computing, so that a long batch of one keeps no other waiting.

A session's calls are applied in the order in which they came, one after the other. A turn is a few milliseconds of
one session's calls; a batch that is not done by then goes on in the session's next turn. A batch that came before its
predecessor is parked until that one has come, for a bounded time.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from gradwire_server.batch import OutOfOrder
from gradwire_server.errors import refusal_of
from gradwire_server.host import Host
from gradwire_server.session import Pending, Session

TURN_SECONDS = 0.001
# Gives a call's result, or what it raised, to whoever waits.
Answer = Callable[[Pending, bytes, Exception | None], None]


class Source(Protocol):
    """Where calls come from."""

    def take(self, timeout: float | None) -> Iterable[Pending] | None:
        """Calls that have come, waiting for one so long, or without end; None when there will be no more."""


class Turns:
    """The calls of a host's sessions. Used by the compute thread alone."""

    def __init__(self, host: Host, answer: Answer, seconds: float = TURN_SECONDS) -> None:
        self.host = host
        self.answer = answer
        self.seconds = seconds
        self.ring: deque[Session] = deque()  # sessions that have something to do, the next one first
        self.waiting: set[Session] = set()  # sessions that have parked batches

    def add(self, call: Pending) -> None:
        """A call has come."""
        line = call.session.line
        line.append(call)
        if len(line) == 1:
            self.ring.append(call.session)

    def turn(self) -> None:
        """Let the next session compute; there must be one."""
        session = self.ring.popleft()
        session.turn_ends = time.monotonic() + self.seconds
        line = session.line
        while line:
            call = line[0]
            if not self._step(call):
                break
            line.popleft()
            if time.monotonic() >= session.turn_ends:
                break
        if line:
            self.ring.append(session)

    def _step(self, call: Pending) -> bool:
        """Compute until the call is done or the turn is over; whether it is done, or parked."""
        if call.steps is None:
            call.steps = self.host.execute(call)
        result, failure = b"", None
        try:
            next(call.steps)
        except StopIteration as done:
            result = done.value
        except OutOfOrder as gap:
            if self._park(call):
                return True
            failure = gap.refusal
        except Exception as error:  # noqa: BLE001 - handed to whoever waits; `execute` makes refusals of them
            failure = refusal_of(error, call.method)
        else:
            return False
        call.steps = None
        self.answer(call, result, failure)
        failure = None  # or its traceback and this frame would hold each other, and whatever it holds
        if call.session.parked:
            self._unpark(call.session)
        return True

    def _park(self, call: Pending) -> bool:
        """Let a batch wait for its predecessor; whether it still may."""
        session = call.session
        call.steps = None
        now = time.monotonic()
        if call.give_up is None:
            call.give_up = now + self.host.limits.gap_seconds
        if session.brake.closed or now >= call.give_up:
            return False
        session.parked.append(call)
        self.waiting.add(session)
        return True

    def _unpark(self, session: Session) -> None:
        """Something of the session was applied: look at its parked batches again."""
        parked, session.parked = session.parked, []
        self.waiting.discard(session)
        # Behind the call that is being taken out of the line just now.
        session.line.extend(parked)

    def patience(self) -> float | None:
        """How long to wait for calls at most: until a parked batch is to be given up."""
        if not self.waiting:
            return None
        ends = min(call.give_up or 0.0 for session in self.waiting for call in session.parked)
        return max(0.0, ends - time.monotonic())

    def give_up(self) -> None:
        """Refuse the parked batches that have waited long enough."""
        now = time.monotonic()
        for session in list(self.waiting):
            if any(now >= (call.give_up or 0.0) for call in session.parked):
                idle = not session.line
                self._unpark(session)
                if idle:
                    self.ring.append(session)


def work(turns: Turns, source: Source, before: Callable[[], None]) -> None:
    """Compute until the source has no more calls and all that came are done. `before` is called before every turn."""
    ended = False
    while True:
        if not ended:
            calls = source.take(0.0 if turns.ring else turns.patience())
            ended = calls is None
            for call in calls or ():
                turns.add(call)
            del calls
        if turns.waiting:
            turns.give_up()
        if turns.ring:
            before()
            turns.turn()
        elif ended:
            return

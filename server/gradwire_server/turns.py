"""Turns: the sessions of a worker take turns at computing, so that a long batch of one keeps no other waiting.

A session's calls are applied in the order in which they came, one after the other. A turn is some milliseconds of
one session's calls, enough to be worth filling the processor's caches for; a batch that is not done by then goes on in
the session's next turn. A session that computes little is not kept waiting that long: a turn has slices of a
millisecond, and such a session gets one between two of them.

A batch that came before its predecessor is parked until that one has come, for a bounded time.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from gradwire_server.batch import OutOfOrder
from gradwire_server.errors import refusal_of
from gradwire_server.host import Host
from gradwire_server.session import Pending, Session

TURN_SECONDS = 0.01
SLICE_SECONDS = 0.001
# A session is light that has had nothing to do for so many times as long as it has computed; more than some
# computing is not held against it.
_LIGHT = 2
_MOST_USED = 0.1
# Gives a call's result, or what it raised, to whoever waits.
Answer = Callable[[Pending, bytes, Exception | None], None]


class Source(Protocol):
    """Where calls come from."""

    def take(self, timeout: float | None) -> Iterable[Pending] | None:
        """Calls that have come, waiting for one so long, or without end; None when there will be no more."""


class Turns:
    """The calls of a host's sessions. Used by the compute thread alone."""

    def __init__(
        self, host: Host, answer: Answer, seconds: float = TURN_SECONDS, slice_seconds: float = SLICE_SECONDS
    ) -> None:
        self.host = host
        self.answer = answer
        self.seconds = seconds
        self.slice_seconds = slice_seconds
        self.ring: deque[Session] = deque()  # sessions that have something to do; the first one's turn it is
        self.light: deque[Session] = deque()  # of those, the ones that computed little lately are here instead
        self.waiting: set[Session] = set()  # sessions that have parked batches
        self._turn: Session | None = None
        self._turn_ends = 0.0
        self._was_light = False

    @property
    def runnable(self) -> bool:
        """Whether there is something to compute."""
        return bool(self.ring or self.light)

    def add(self, call: Pending) -> None:
        """A call has come."""
        line = call.session.line
        line.append(call)
        if len(line) == 1:
            self._enter(call.session)

    def _enter(self, session: Session) -> None:
        """A session has something to do again."""
        idle = time.monotonic() - session.idle_since
        session.used = max(0.0, session.used - idle / _LIGHT)
        (self.ring if session.used else self.light).append(session)

    def slice(self) -> None:
        """Compute for a slice: a light session, every other time, else the one whose turn it is. There must be one."""
        self._was_light = bool(self.light) and not (self._was_light and self.ring)
        if self._was_light:
            session = self.light.popleft()
            self._compute(session)
            if session.line:
                self.ring.append(session)
            return
        session = self.ring[0]
        if session is not self._turn:
            self._turn, self._turn_ends = session, time.monotonic() + self.seconds
        self._compute(session)
        if not session.line:
            self.ring.popleft()
            self._turn = None
        elif time.monotonic() >= self._turn_ends:
            self.ring.rotate(-1)
            self._turn = None

    def _compute(self, session: Session) -> None:
        """Let a session compute for a slice."""
        began = now = time.monotonic()
        session.turn_ends = began + self.slice_seconds
        line = session.line
        while line and self._step(line[0], now):
            line.popleft()
            now = time.monotonic()
            if now >= session.turn_ends:
                break
        now = time.monotonic()
        session.used = min(_MOST_USED, session.used + now - began)
        session.computed += now - began
        if not line:
            session.idle_since = now

    def _step(self, call: Pending, now: float) -> bool:
        """Compute until the call is done or the turn is over; whether it is done, or parked."""
        if call.steps is None:
            call.queued = now - call.sent
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
            call.computed += time.monotonic() - now
            return False
        if self.host.meter is not None:
            self._count(call, call.computed + time.monotonic() - now)
        call.steps = None
        self.answer(call, result, failure)
        if call.session.leaving:
            self.host.let_go(call.session)
        failure = None  # or its traceback and this frame would hold each other, and whatever it holds
        if call.session.parked:
            self._unpark(call.session)
        return True

    def _count(self, call: Pending, computed: float) -> None:
        """A call is done; of what is the server's own affair nothing is told."""
        meter = self.host.meter
        if meter is not None and call.method not in self.host.own:
            meter.queued.add(call.queued)
            meter.computed.add(computed)
            if call.method == "Run":
                meter.sizes.add(call.size)

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
                    self._enter(session)


def work(turns: Turns, source: Source, before: Callable[[], None]) -> None:
    """Compute until the source has no more calls and all that came are done. `before` is called before every turn."""
    ended = False
    while True:
        if not ended:
            calls = source.take(0.0 if turns.runnable else turns.patience())
            ended = calls is None
            for call in calls or ():
                turns.add(call)
            del calls
        if turns.waiting:
            turns.give_up()
        if turns.runnable:
            before()
            turns.slice()
        elif ended:
            return

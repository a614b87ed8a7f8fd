"""The scheduler: the sessions of a worker take turns at computing, so that a long batch of one keeps no other waiting.

A session's calls are applied in the order in which they came, one after the other. A turn is some milliseconds of
one session's calls, enough to be worth filling the processor's caches for; a batch that is not done by then goes on in
the session's next turn. A session that computes little is not kept waiting that long: a turn has slices of a
millisecond, and between two of them such sessions come first, together for some slices' time.

Turns are a deficit round robin over measured time: a command that takes longer than the turn is charged to the turns
that follow, which the session misses while others have something to do. Sessions of one principal share its turn.

With a compute quota (quotas.py) a session that has used it up rests. What has come for it waits; a call that could not
begin before its deadline, or for too long, is refused at once and told when to come back.

A batch that came before its predecessor is parked until that one has come, for a bounded time.
"""

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

import numpy as np

from gradwire_engine.graph.graph import go_on_from, next_seq
from gradwire_server.common.errors import Refusal, refusal_of
from gradwire_server.session.batch import OutOfOrder
from gradwire_server.session.commands import MESSAGES
from gradwire_server.session.session import Answered, Pending, Session
from gradwire_server.worker.lane import Baton, Lane
from gradwire_server.worker.runtime import Runtime

TURN_SECONDS = 0.01
SLICE_SECONDS = 0.001
_MOST_LIGHT = 5  # slices that light sessions compute together while another waits for its next one
# A session is light that has had nothing to do for so many times as long as it has computed, but for a burst: a step of
# several calls, one after the other. More than some computing is not held against it.
_LIGHT = 2
_BURST_SECONDS = 0.02
_MOST_USED = 0.1
# A call that came alone is not kept waiting longer than this for a quota; a batch is, since it is part of an order.
MOST_REST = 30.0
_AWAY_SECONDS = 0.005  # between looks at whether an op that is computed aside is done
_LOOK_SECONDS = 0.1  # between looks at whether what waits for a quota was cancelled
# What the rest of a session concerns: the calls that compute.
_COMPUTING = frozenset((*MESSAGES, "Run"))
# Gives a call's result, or what it raised, to whoever waits.
Answer = Callable[[Pending, bytes, Exception | None], None]


class Source(Protocol):
    """Where calls come from."""

    def take(self, timeout: float | None) -> Iterable[Pending] | None:
        """Calls that have come, waiting for one so long, or without end; None when there will be no more."""

    def waits(self) -> bool:
        """Whether calls have come that were not taken."""


class Scheduler:
    """The calls of a host's sessions. Used by the compute thread alone."""

    def __init__(
        self,
        host: Runtime,
        answer: Answer,
        parked: Callable[[Pending], None],
        seconds: float = TURN_SECONDS,
        slice_seconds: float = SLICE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`parked` is told of a batch that waits for its predecessor; `clock` measures what sessions compute."""
        self.runtime = host
        self.answer = answer
        self.parked = parked
        self.seconds = seconds
        self.slice_seconds = slice_seconds
        self.clock = clock
        self.ring: deque[Session] = deque()  # sessions that have something to do; the first one's turn it is
        self.light: deque[Session] = deque()  # of those, the ones that computed little lately are here instead
        self.waiting: set[Session] = set()  # sessions that have parked batches
        self.resting: list[tuple[float, int, Session]] = []  # a heap: until when
        self._order = itertools.count()
        limits = host.limits
        self._counted = bool(limits.max_session_compute_seconds or limits.max_principal_compute_seconds)
        self.lane: Lane | None = None  # where what takes long is computed aside
        self.running: Session | None = None  # whose slice it is
        self.slices = 0
        # Is told when a slice begins, and with 0 when it is over: the front sees a worker that looks up no more.
        self.tells = partial(host.counters.compute, host.worker)
        self.others_wait: Callable[[], bool] = lambda: self.runnable
        self._turn: Session | None = None
        self._light_seconds = 0.0  # that light sessions have computed since another did

    @property
    def runnable(self) -> bool:
        """Whether there is something to compute."""
        return bool(self.ring or self.light)

    def add(self, call: Pending) -> None:
        """A call has come."""
        session, line = call.session, call.session.line
        if self._counted and call.method in _COMPUTING and not session.cancel_token.closed:
            rest = self.runtime.shares.rest(session)
            if rest and _cannot_wait(call, rest):
                self.answer(call, b"", _resting(rest))
                return
        line.append(call)
        if session.rests and call.method not in _COMPUTING:
            self._wake(session)  # what ends a session is not kept waiting, nor what keeps it
        elif len(line) == 1:
            self._enter(session)

    def _enter(self, session: Session) -> None:
        """A session has something to do again."""
        if self._rests(session):
            return
        idle = time.monotonic() - session.idle_since
        session.used = max(0.0, session.used - idle / _LIGHT)
        session.credit = min(0.0, session.credit + idle)
        self._queue(session)

    def _queue(self, session: Session) -> None:
        (self.light if session.used <= _BURST_SECONDS else self.ring).append(session)

    def _rests(self, session: Session) -> bool:
        """Put a session that has used its quota up aside; whether it has."""
        if not self._counted or session.line[0].method not in _COMPUTING or session.cancel_token.closed:
            return False
        rest = self.runtime.shares.rest(session)
        if not rest:
            return False
        session.rests = True
        heapq.heappush(self.resting, (time.monotonic() + rest, next(self._order), session))
        return True

    def _wake(self, session: Session) -> None:
        """Let a session compute that rested."""
        session.rests = False
        self.resting = [each for each in self.resting if each[2] is not session]
        heapq.heapify(self.resting)
        self.ring.append(session)

    def wake(self) -> None:
        """Let the sessions compute again that have rested long enough, or whose calls nobody waits for any more."""
        now = time.monotonic()
        for until, _, session in list(self.resting):
            cancel_token, call = session.cancel_token, session.line[0]
            late = call.deadline is not None and now >= call.deadline
            if now >= until or cancel_token.closed or cancel_token.cancel_ticket >= call.ticket or late:
                self._wake(session)

    def slice(self) -> None:
        """Compute for a slice: a light session, if they had not more than is theirs, else the one whose turn it is."""
        if self.light and (not self.ring or self._light_seconds <= _MOST_LIGHT * self.slice_seconds):
            session = self.light.popleft()
            took = self._compute(session)
            if not session.left:
                self._light_seconds += took
            session.left = False
            if session.line and not self._rests(session):
                self._queue(session)
            return
        self._light_seconds = 0.0
        session = self._whose_turn()
        session.credit -= self._compute(session)
        if session.left:
            session.left = False
            if session.line and not self._rests(session):
                self.ring.append(session)
            return
        if not session.line or self._rests(session):
            self.ring.popleft()
            self._turn = None
        elif session.credit <= 0:
            self.ring.rotate(-1)
            self._turn = None
        if not self.light and (not self.ring or (self.ring[0] is session and len(self.ring) == 1)):
            session.credit = 0.0  # nobody was kept waiting

    def leave(self, session: Session) -> None:
        """A session computes aside: its calls wait, and others have their turns."""
        session.left = True
        self.running = None
        self.tells(0)
        if self._turn is session:
            self._turn = None
        if session in self.ring:
            self.ring.remove(session)

    def come_back(self, session: Session) -> None:
        """It goes on with its slice, which is over soon."""
        self.running = session
        session.turn_ends = time.monotonic()
        self.tells(time.monotonic_ns())

    def _whose_turn(self) -> Session:
        """The session whose turn it is; those that still owe the others time are passed over, and owe less then."""
        session = self.ring[0]
        if session is self._turn:
            return session
        while True:
            alike = sum(each.owner == session.owner for each in self.ring) if session.owner else 1
            session.credit += self.seconds / alike
            if session.credit > 0:
                self._turn = session
                return session
            self.ring.rotate(-1)
            session = self.ring[0]

    def _compute(self, session: Session) -> float:
        """Let a session compute for a slice; how many seconds it took."""
        began, now = self.clock(), time.monotonic()
        session.waited = 0.0
        session.turn_ends = now + self.slice_seconds
        session.cancel_token.slice(session.turn_ends)
        session.cancel_token.lane = self.lane
        self.running = session
        self.slices += 1
        self.tells(time.monotonic_ns())
        line = session.line
        while line and self._step(line[0], now):
            line.popleft()
            now = time.monotonic()
            if now >= session.turn_ends:
                break
        self.running = None
        self.tells(0)
        if session.reached:  # others made nodes meanwhile
            go_on_from(max(session.reached, next_seq()))
            session.reached = 0
        took = max(0.0, self.clock() - began - session.waited)
        session.used = min(_MOST_USED, session.used + took)
        session.computed += took
        if self._counted:
            self.runtime.shares.spend(session, took)
        if not line:
            session.idle_since = time.monotonic()
        return took

    def _step(self, call: Pending, now: float) -> bool:
        """Compute until the call is done or the turn is over; whether it is done, or parked."""
        if call.steps is None:
            call.queued = now - call.sent
            call.steps = self.runtime.execute(call)
        call.resumed = now
        result, failure, waited = b"", None, call.session.waited
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
            call.computed += time.monotonic() - now - (call.session.waited - waited)
            return False
        if self.runtime.meter is not None:
            self._count(call, call.computed + time.monotonic() - now - (call.session.waited - waited))
        call.steps = None
        if call.hold is None or failure is not None:
            self.answer(call, result, failure)
        else:
            self._hold(call, call.hold, result)
        if call.session.leaving:
            self.runtime.let_go(call.session)
        failure = None  # or its traceback and this frame would hold each other, and whatever it holds
        if call.session.parked:
            self._unpark(call.session)
        return True

    def _count(self, call: Pending, computed: float) -> None:
        """A call is done; of what is the server's own affair nothing is told."""
        meter = self.runtime.meter
        if meter is not None and call.method not in self.runtime.own:
            meter.queued.add(call.queued)
            meter.computed.add(computed)
            if call.method == "Run":
                meter.sizes.add(call.size)

    def _hold(self, call: Pending, hold: Callable[[Answered, bytes], None], result: bytes) -> None:
        """Let an answer wait for the disk; it is given by another thread."""
        hold(lambda held, failure: self.answer(call, held, failure), result)
        checkpointer = self.runtime.checkpointer
        if checkpointer is not None and checkpointer.wants_saving(call.session):
            call.session.line.append(Pending("Save", call.session, checkpointer.own_order(), 0))

    def _park(self, call: Pending) -> bool:
        """Let a batch wait for its predecessor; whether it still may."""
        session = call.session
        call.steps = None
        now = time.monotonic()
        first = call.give_up is None
        give_up = call.give_up = call.give_up or now + self.runtime.limits.gap_seconds
        if session.cancel_token.closed or now >= give_up:
            return False
        if first:
            self.parked(call)
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
        """How long to wait for calls at most: until a parked batch is to be given up, or a session has rested."""
        if self.resting:
            return min(_LOOK_SECONDS, max(0.0, self.resting[0][0] - time.monotonic()))
        if not self.waiting:
            return None
        ends = min(call.give_up or 0.0 for session in self.waiting for call in session.parked)
        return max(0.0, ends - time.monotonic())

    def end(self) -> None:
        """No more calls will come: nobody rests any more."""
        self._counted = False
        for _, _, session in list(self.resting):
            self._wake(session)

    def give_up(self) -> None:
        """Refuse the parked batches that have waited long enough."""
        now = time.monotonic()
        for session in list(self.waiting):
            if any(now >= (call.give_up or 0.0) for call in session.parked):
                idle = not session.line
                self._unpark(session)
                if idle:
                    self._enter(session)


def _cannot_wait(call: Pending, rest: float) -> bool:
    """Whether a call is better refused than kept waiting: one that nothing else follows, or that would be too late."""
    if call.deadline is not None and time.monotonic() + rest >= call.deadline:
        return True
    return call.method != "Run" and rest > MOST_REST


def _resting(rest: float) -> Refusal:
    return Refusal(
        "COMPUTE_LIMIT",
        f"the session, or its principal, has computed as much as it may for now; in {rest:.1f} s it may go on",
        retry_ms=int(rest * 1000) + 1,
    )


def work(scheduler: Scheduler, source: Source, before: Callable[[], None], apart: int = 0) -> None:
    """Compute until the source has no more calls and all that came are done. `before` is called before every turn.

    apart: so many ops that take long are computed in processes of their own, while other sessions go on; 0 for none.
    """
    running = _Work(scheduler, source, before)
    if apart:
        lane = scheduler.lane = Lane(scheduler, running.take_over, apart)
        scheduler.others_wait = lambda: scheduler.runnable or source.waits()
        running.baton = lane.baton
    running.loop()


class _Work:
    """The loop of `work`, which the thread runs that holds the baton."""

    def __init__(self, scheduler: Scheduler, source: Source, before: Callable[[], None]) -> None:
        self.scheduler = scheduler
        self.source = source
        self.before = before
        self.baton: Baton | None = None
        self._ended = False

    def take_over(self) -> None:
        """What another thread does: stand by, and go on where the one before left off."""
        assert self.baton is not None
        with np.errstate(all="ignore"):
            if self.baton.stand_by(holds=False):
                self.loop(spare=True)

    def loop(self, spare: bool = False) -> None:
        """Compute until there is no more; a `spare` thread, until enough others are there that can."""
        baton = self.baton
        while True:
            if baton is not None and baton.claims and not baton.stand_by(spare=spare):
                return
            if not self._turn():
                if baton is not None:
                    baton.end()
                return

    def _turn(self) -> bool:
        """Take what has come, and compute for a slice; whether to go on."""
        scheduler, lane = self.scheduler, self.scheduler.lane
        away = lane is not None and lane.away > 0
        if not self._ended:
            timeout = 0.0 if scheduler.runnable else scheduler.patience()
            if away:
                timeout = _AWAY_SECONDS if timeout is None else min(timeout, _AWAY_SECONDS)
            calls = self.source.take(timeout)
            self._ended = calls is None
            if self._ended:
                scheduler.end()
            for call in calls or ():
                scheduler.add(call)
            del calls
        if scheduler.waiting:
            scheduler.give_up()
        if scheduler.resting:
            scheduler.wake()
        if scheduler.runnable:
            self.before()
            if lane is not None:
                lane.slice_begins()
            scheduler.slice()
        elif self._ended:
            if not away:
                return False
            time.sleep(_AWAY_SECONDS)
        return True

"""The scheduler: shares one worker's compute time among its sessions, so a long batch does not block other sessions.

A session's calls are applied one at a time, in order of arrival. A turn is about ten milliseconds of one session's
calls, long enough to amortize cache misses. An unfinished batch continues in the session's next turn. A turn consists
of slices of a millisecond. Between two slices, light sessions compute first, together for at most a few slices.

Turns follow a deficit round robin over measured time. A command longer than a turn is charged to the session's next
turns, which the session skips while other sessions are runnable. Sessions of one principal share one turn.

A session that has used up its compute quota (quotas.py) rests, and its calls wait. A call that cannot begin before its
deadline, or would wait too long, is refused at once with a retry time.

A batch that arrives before its predecessor is parked for a bounded time.
"""

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

import numpy as np

from gradwire_server.common.errors import Refusal, refusal_of
from gradwire_server.session.batch import OutOfOrder
from gradwire_server.session.commands import BY_METHOD
from gradwire_server.session.session import Answered, Pending, Session
from gradwire_server.worker.offload import Baton, Lane
from gradwire_server.worker.runtime import Runtime

TURN_SECONDS = 0.01
SLICE_SECONDS = 0.001
_MOST_LIGHT = 5  # slices that light sessions may compute before the session in turn gets its next slice
# Idle time offsets compute time at a rate of 1/_LIGHT. A session is light while at most _BURST_SECONDS, a burst of
# several calls, are not offset. At most _MOST_USED seconds count.
_LIGHT = 2
_BURST_SECONDS = 0.02
_MOST_USED = 0.1
# Longest wait of a unary call for a quota; a batch waits longer, since it is part of a sequence.
MOST_REST = 30.0
_AWAY_SECONDS = 0.005  # poll interval for the end of ops computed aside
_LOOK_SECONDS = 0.1  # poll interval for cancellation of calls that wait for a quota
# Methods that a resting session delays: those that compute.
_COMPUTING = frozenset((*BY_METHOD, "Run"))
# Takes a call, its result, and the exception it raised, if any.
Answer = Callable[[Pending, bytes, Exception | None], None]


class Source(Protocol):
    """Source of calls."""

    def take(self, timeout: float | None) -> Iterable[Pending] | None:
        """Receive calls; wait for one up to `timeout` seconds, None without limit. None after the last."""

    def waits(self) -> bool:
        """Whether calls have arrived that were not taken."""


class Scheduler:
    """Schedules the calls of a runtime's sessions. Used only by the compute thread."""

    def __init__(
        self,
        host: Runtime,
        answer: Answer,
        parked: Callable[[Pending], None],
        seconds: float = TURN_SECONDS,
        slice_seconds: float = SLICE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Calls `parked` with each batch that waits for its predecessor. `clock` measures sessions' compute time."""
        self.runtime = host
        self.answer = answer
        self.parked = parked
        self.seconds = seconds
        self.slice_seconds = slice_seconds
        self.clock = clock
        self.ring: deque[Session] = deque()  # runnable sessions; the first one has the turn
        self.light: deque[Session] = deque()  # runnable sessions that computed little lately; not in `ring`
        self.waiting: set[Session] = set()  # sessions that have parked batches
        self.resting: list[tuple[float, int, Session]] = []  # a heap by the end of the rest
        self._order = itertools.count()
        limits = host.limits
        self._counted = bool(limits.max_session_compute_seconds or limits.max_principal_compute_seconds)
        self.lane: Lane | None = None  # computes expensive ops aside
        self.running: Session | None = None  # whose slice it is
        self.slices = 0
        # Publishes when a slice began, 0 between slices, so the front detects a hung worker.
        self.tells = partial(host.counters.compute, host.worker)
        self.others_wait: Callable[[], bool] = lambda: self.runnable
        self._turn: Session | None = None
        self._light_seconds = 0.0  # that light sessions have computed since another did

    @property
    def runnable(self) -> bool:
        """Whether any session is runnable."""
        return bool(self.ring or self.light)

    def add(self, call: Pending) -> None:
        """Queue a call; refuse it if its session rests too long for it."""
        session, line = call.session, call.session.schedule.line
        if self._counted and call.method in _COMPUTING and not session.cancel_token.closed:
            rest = self.runtime.shares.rest(session)
            if rest and _cannot_wait(call, rest):
                self.answer(call, b"", _resting(rest))
                return
        line.append(call)
        if session.schedule.rests and call.method not in _COMPUTING:
            self._wake(session)  # a session's end and its saving do not wait for a quota
        elif len(line) == 1:
            self._enter(session)

    def _enter(self, session: Session) -> None:
        """Make a session runnable, unless it must rest."""
        schedule = session.schedule
        if self._rests(session):
            return
        idle = time.monotonic() - schedule.idle_since
        schedule.used = max(0.0, schedule.used - idle / _LIGHT)
        schedule.credit = min(0.0, schedule.credit + idle)
        self._queue(session)

    def _queue(self, session: Session) -> None:
        (self.light if session.schedule.used <= _BURST_SECONDS else self.ring).append(session)

    def _rests(self, session: Session) -> bool:
        """Let a session rest if its quota is used up; return whether it rests."""
        if not self._counted or session.schedule.line[0].method not in _COMPUTING or session.cancel_token.closed:
            return False
        rest = self.runtime.shares.rest(session)
        if not rest:
            return False
        session.schedule.rests = True
        heapq.heappush(self.resting, (time.monotonic() + rest, next(self._order), session))
        return True

    def _wake(self, session: Session) -> None:
        """End a session's rest."""
        session.schedule.rests = False
        self.resting = [each for each in self.resting if each[2] is not session]
        heapq.heapify(self.resting)
        self.ring.append(session)

    def wake(self) -> None:
        """End rests that are over, or whose session's first call was cancelled or is past its deadline."""
        now = time.monotonic()
        for until, _, session in list(self.resting):
            cancel_token, call = session.cancel_token, session.schedule.line[0]
            late = call.deadline is not None and now >= call.deadline
            if now >= until or cancel_token.closed or cancel_token.cancel_ticket >= call.ticket or late:
                self._wake(session)

    def slice(self) -> None:
        """Compute for a slice: a light session, if light sessions have time left, else the session in turn."""
        if self.light and (not self.ring or self._light_seconds <= _MOST_LIGHT * self.slice_seconds):
            session = self.light.popleft()
            schedule = session.schedule
            took = self._compute(session)
            if not schedule.left:
                self._light_seconds += took
            schedule.left = False
            if schedule.line and not self._rests(session):
                self._queue(session)
            return
        self._light_seconds = 0.0
        session = self._whose_turn()
        schedule = session.schedule
        schedule.credit -= self._compute(session)
        if schedule.left:
            schedule.left = False
            if schedule.line and not self._rests(session):
                self.ring.append(session)
            return
        if not schedule.line or self._rests(session):
            self.ring.popleft()
            self._turn = None
        elif schedule.credit <= 0:
            self.ring.rotate(-1)
            self._turn = None
        if not self.light and (not self.ring or (self.ring[0] is session and len(self.ring) == 1)):
            schedule.credit = 0.0  # no other session waited

    def leave(self, session: Session) -> None:
        """Take a session that computes aside out of the turns; its calls wait."""
        session.schedule.left = True
        self.running = None
        self.tells(0)
        if self._turn is session:
            self._turn = None
        if session in self.ring:
            self.ring.remove(session)

    def come_back(self, session: Session) -> None:
        """Resume the slice of a session that computed aside; the slice ends at the next check."""
        self.running = session
        session.schedule.turn_ends = time.monotonic()
        self.tells(time.monotonic_ns())

    def _whose_turn(self) -> Session:
        """The session in turn. Sessions with negative credit are skipped and gain credit for it."""
        session = self.ring[0]
        if session is self._turn:
            return session
        while True:
            owner, schedule = session.usage.owner, session.schedule
            alike = sum(each.usage.owner == owner for each in self.ring) if owner else 1
            schedule.credit += self.seconds / alike
            if schedule.credit > 0:
                self._turn = session
                return session
            self.ring.rotate(-1)
            session = self.ring[0]

    def _compute(self, session: Session) -> float:
        """Let a session compute for a slice; return the seconds it computed."""
        began, now, schedule = self.clock(), time.monotonic(), session.schedule
        schedule.waited = 0.0
        schedule.turn_ends = now + self.slice_seconds
        session.cancel_token.slice(schedule.turn_ends)
        session.cancel_token.lane = self.lane
        self.running = session
        self.slices += 1
        self.tells(time.monotonic_ns())
        line = schedule.line
        while line and self._step(line[0], now):
            line.popleft()
            now = time.monotonic()
            if now >= schedule.turn_ends:
                break
        self.running = None
        self.tells(0)
        took = max(0.0, self.clock() - began - session.schedule.waited)
        session.schedule.used = min(_MOST_USED, session.schedule.used + took)
        session.usage.computed += took
        if self._counted:
            self.runtime.shares.spend(session, took)
        if not line:
            schedule.idle_since = time.monotonic()
        return took

    def _step(self, call: Pending, now: float) -> bool:
        """Execute one step of a call; return whether the call is done or parked."""
        if call.steps is None:
            call.queued = now - call.sent
            call.steps = self.runtime.execute(call)
        call.resumed = now
        schedule = call.session.schedule
        result, failure, waited = b"", None, schedule.waited
        try:
            next(call.steps)
        except StopIteration as done:
            result = done.value
        except OutOfOrder as gap:
            if self._park(call):
                return True
            failure = gap.refusal
        except Exception as error:  # noqa: BLE001 - passed to the call's answer
            failure = refusal_of(error, call.method)
        else:
            call.computed += time.monotonic() - now - (schedule.waited - waited)
            return False
        if self.runtime.meter is not None:
            self._count(call, call.computed + time.monotonic() - now - (schedule.waited - waited))
        call.steps = None
        if call.hold is None or failure is not None:
            self.answer(call, result, failure)
        else:
            self._hold(call, call.hold, result)
        if call.session.leaving:
            self.runtime.let_go(call.session)
        failure = None  # breaks the reference cycle of its traceback and this frame
        if schedule.parked:
            self._unpark(call.session)
        return True

    def _count(self, call: Pending, computed: float) -> None:
        """Count a finished call in the meter, except the front's own methods."""
        meter = self.runtime.meter
        if meter is not None and call.method not in self.runtime.own:
            meter.queued.add(call.queued)
            meter.computed.add(computed)
            if call.method == "Run":
                meter.sizes.add(call.size)

    def _hold(self, call: Pending, hold: Callable[[Answered, bytes], None], result: bytes) -> None:
        """Defer an answer until its log record is on disk; another thread then sends it."""
        hold(lambda held, failure: self.answer(call, held, failure), result)
        checkpointer = self.runtime.checkpointer
        if checkpointer is not None and checkpointer.wants_saving(call.session):
            call.session.schedule.line.append(Pending("Save", call.session, checkpointer.own_order(), 0))

    def _park(self, call: Pending) -> bool:
        """Park a batch until its predecessor arrives; False if it has waited long enough."""
        session = call.session
        call.steps = None
        now = time.monotonic()
        first = call.give_up is None
        give_up = call.give_up = call.give_up or now + self.runtime.limits.gap_seconds
        if session.cancel_token.closed or now >= give_up:
            return False
        if first:
            self.parked(call)
        session.schedule.parked.append(call)
        self.waiting.add(session)
        return True

    def _unpark(self, session: Session) -> None:
        """Queue a session's parked batches again, after one of its calls was applied."""
        schedule = session.schedule
        parked, schedule.parked = schedule.parked, []
        self.waiting.discard(session)
        # Behind the finished call, which the caller removes next.
        schedule.line.extend(parked)

    def patience(self) -> float | None:
        """Longest wait for calls in seconds: until a parked batch times out or a rest ends; None without limit."""
        if self.resting:
            return min(_LOOK_SECONDS, max(0.0, self.resting[0][0] - time.monotonic()))
        if not self.waiting:
            return None
        ends = min(call.give_up or 0.0 for session in self.waiting for call in session.schedule.parked)
        return max(0.0, ends - time.monotonic())

    def end(self) -> None:
        """End all rests: no more calls will arrive."""
        self._counted = False
        for _, _, session in list(self.resting):
            self._wake(session)

    def give_up(self) -> None:
        """Refuse the parked batches that have waited long enough."""
        now = time.monotonic()
        for session in list(self.waiting):
            if any(now >= (call.give_up or 0.0) for call in session.schedule.parked):
                idle = not session.schedule.line
                self._unpark(session)
                if idle:
                    self._enter(session)


def _cannot_wait(call: Pending, rest: float) -> bool:
    """Whether to refuse a call instead of delaying it: its deadline comes first, or a unary call waits too long."""
    if call.deadline is not None and time.monotonic() + rest >= call.deadline:
        return True
    return call.method != "Run" and rest > MOST_REST


def _resting(rest: float) -> Refusal:
    return Refusal(
        "COMPUTE_LIMIT",
        f"the compute quota of the session or its principal is used up; try again in {rest:.1f} s",
        retry_ms=int(rest * 1000) + 1,
    )


def work(scheduler: Scheduler, source: Source, before: Callable[[], None], apart: int = 0) -> None:
    """Compute until the source has ended and all its calls are done. Calls `before` before every slice.

    At most `apart` expensive ops run aside in forked processes, while other sessions compute; 0 disables this.
    """
    running = _Work(scheduler, source, before)
    if apart:
        lane = scheduler.lane = Lane(scheduler, running.take_over, apart)
        scheduler.others_wait = lambda: scheduler.runnable or source.waits()
        running.baton = lane.baton
    running.loop()


class _Work:
    """The loop of `work`, run by the thread that holds the baton."""

    def __init__(self, scheduler: Scheduler, source: Source, before: Callable[[], None]) -> None:
        self.scheduler = scheduler
        self.source = source
        self.before = before
        self.baton: Baton | None = None
        self._ended = False

    def take_over(self) -> None:
        """Run a standby thread: wait for the baton, then run the loop."""
        assert self.baton is not None
        with np.errstate(all="ignore"):
            if self.baton.stand_by(holds=False):
                self.loop(spare=True)

    def loop(self, spare: bool = False) -> None:
        """Compute until all calls are done; a `spare` thread also ends when enough others stand by."""
        baton = self.baton
        while True:
            if baton is not None and baton.claims and not baton.stand_by(spare=spare):
                return
            if not self._turn():
                if baton is not None:
                    baton.end()
                return

    def _turn(self) -> bool:
        """Take arrived calls and compute for a slice; return whether to continue."""
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

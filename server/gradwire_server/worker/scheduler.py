"""The scheduler: shares one worker's compute time among its sessions, so a long batch does not block other sessions.

A session's calls are applied one at a time, in order of arrival. A turn is about ten milliseconds of one session's
calls, long enough to amortize cache misses. An unfinished batch continues in the session's next turn. A turn consists
of slices of a millisecond. Between two slices, light sessions compute first, together for at most a few slices. If no
other session has calls, a slice is extended instead, up to five turns.

Turns follow a deficit round robin over measured time. A command longer than a turn is charged to the session's next
turns, which the session skips while other sessions are runnable. Sessions of one principal share one turn.

A session that has used up its compute quota (quotas.py) is throttled: its calls wait. A call that cannot begin before
its deadline, or would wait too long, is refused at once with a retry time.

A batch that arrives before its predecessor is parked for a bounded time. A session whose call yields a future, or whose
command waits for one, is not scheduled until that future is done or the command is stopped.
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
from gradwire_server.session.session import AnswerCallback, PendingCall, Session
from gradwire_server.worker.offload import ComputeLock, OpOffloader
from gradwire_server.worker.runtime import Runtime

TURN_SECONDS = 0.01
SLICE_SECONDS = 0.001
_EXTENDED_TURNS = 5  # turns up to which a slice is extended: a pause costs 0.1 to 0.15 ms when the caches are cold
_MAX_LIGHT_SLICES = 5  # slices that light sessions may compute before the session in turn gets its next slice
# Idle time offsets compute time at a rate of 1/_LIGHT_DIVISOR. A session is light while at most _BURST_SECONDS, a burst
# of several calls, are not offset. At most _MAX_USED_SECONDS seconds count.
_LIGHT_DIVISOR = 2
_BURST_SECONDS = 0.02
_MAX_USED_SECONDS = 0.1
# Longest wait of a unary call for a quota; a batch waits longer, since it is part of a sequence.
MAX_THROTTLE_SECONDS = 30.0
_OFFLOAD_POLL_SECONDS = 0.005  # poll interval for the end of offloaded ops and for awaited futures
_THROTTLE_POLL_SECONDS = 0.1  # poll interval for cancellation of calls that wait for a quota
# Methods that a throttled session delays: those that compute.
_COMPUTING = frozenset((*BY_METHOD, "Run"))
# Takes a call, its result, and the exception it raised, if any.
Answer = Callable[[PendingCall, bytes, Exception | None], None]


class CallSource(Protocol):
    """Source of calls."""

    def take(self, timeout: float | None) -> Iterable[PendingCall] | None:
        """Receive calls; wait for one up to `timeout` seconds, None without limit. None after the last."""

    def has_calls(self) -> bool:
        """Whether calls have arrived that were not taken."""


class Scheduler:
    """Schedules the calls of a runtime's sessions. Used only by the compute thread."""

    def __init__(
        self,
        runtime: Runtime,
        answer: Answer,
        parked: Callable[[PendingCall], None],
        seconds: float = TURN_SECONDS,
        slice_seconds: float = SLICE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Calls `parked` with each batch that waits for its predecessor. `clock` measures sessions' compute time."""
        self.runtime = runtime
        self.answer = answer
        self.parked = parked
        self.seconds = seconds
        self.slice_seconds = slice_seconds
        self.clock = clock
        self.run_queue: deque[Session] = deque()  # runnable sessions; the first one has the turn
        self.light_queue: deque[Session] = deque()  # runnable sessions that computed little lately; not in `run_queue`
        self.with_parked: set[Session] = set()  # sessions that have parked batches
        self.throttled: list[tuple[float, int, Session]] = []  # a heap by the end of the throttling
        self.awaiting: list[Session] = []  # sessions whose first call awaits a future
        self._order = itertools.count()
        limits = runtime.limits
        self._has_quotas = bool(limits.max_session_compute_seconds or limits.max_principal_compute_seconds)
        self.offloader: OpOffloader | None = None  # computes expensive ops
        self.running: Session | None = None  # whose slice it is
        self.slices = 0
        # Publishes when a slice began, 0 between slices, so the front detects a hung worker.
        self.publish_slice_start = partial(runtime.counters.set_slice_start, runtime.worker)
        self.has_calls: Callable[[], bool] = lambda: False  # whether calls have arrived that were not taken
        self.take_calls: Callable[[], None] = lambda: None  # adds those
        self._extensible_until = 0.0  # the time until which the slice may be extended
        self._turn: Session | None = None
        self._light_seconds = 0.0  # that light sessions have computed since another did

    def others_wait(self) -> bool:
        """Whether any session is runnable, or calls have arrived."""
        return self.runnable or self.has_calls()

    @property
    def runnable(self) -> bool:
        """Whether any session is runnable."""
        return bool(self.run_queue or self.light_queue)

    def add(self, call: PendingCall) -> None:
        """Queue a call; refuse it if its session is throttled too long for it."""
        session, queue = call.session, call.session.schedule.queue
        if self._has_quotas and call.method in _COMPUTING and not session.cancel_token.closed:
            delay = self.runtime.quotas.delay(session)
            if delay and _cannot_wait(call, delay):
                self.answer(call, b"", _quota_refusal(delay))
                return
        queue.append(call)
        if session.schedule.throttled and call.method not in _COMPUTING:
            self._unthrottle(session)  # a session's end and its saving do not wait for a quota
        elif len(queue) == 1:
            self._activate(session)

    def _activate(self, session: Session) -> None:
        """Make a session runnable, unless its quota is used up."""
        schedule = session.schedule
        if self._has_quotas and self._throttle(session):
            return
        idle = time.monotonic() - schedule.idle_since
        schedule.used = max(0.0, schedule.used - idle / _LIGHT_DIVISOR)
        schedule.credit = min(0.0, schedule.credit + idle)
        self._enqueue(session)

    def _enqueue(self, session: Session) -> None:
        (self.light_queue if session.schedule.used <= _BURST_SECONDS else self.run_queue).append(session)

    def _throttle(self, session: Session) -> bool:
        """Throttle a session if its quota is used up; return whether it is throttled."""
        if not self._has_quotas or session.schedule.queue[0].method not in _COMPUTING or session.cancel_token.closed:
            return False
        delay = self.runtime.quotas.delay(session)
        if not delay:
            return False
        session.schedule.throttled = True
        heapq.heappush(self.throttled, (time.monotonic() + delay, next(self._order), session))
        return True

    def _suspend(self, session: Session) -> bool:
        """Suspend a session that awaits a future or whose quota is used up; return whether it is suspended."""
        if session.schedule.awaited is not None:
            self.awaiting.append(session)
            return True
        return self._throttle(session)

    def resume_awaiting(self) -> None:
        """Make the sessions runnable whose futures are done, or whose running command is to stop."""
        for session in list(self.awaiting):
            awaited, token = session.schedule.awaited, session.cancel_token
            if awaited is None or awaited.done() or token.closed or token.stopping():
                session.schedule.awaited = None
                self.awaiting.remove(session)
                self._enqueue(session)

    def _unthrottle(self, session: Session) -> None:
        """Let a throttled session compute again."""
        session.schedule.throttled = False
        self.throttled = [each for each in self.throttled if each[2] is not session]
        heapq.heapify(self.throttled)
        self.run_queue.append(session)

    def unthrottle(self) -> None:
        """End throttling that is over, or whose session's first call was cancelled or is past its deadline."""
        now = time.monotonic()
        for until, _, session in list(self.throttled):
            cancel_token, call = session.cancel_token, session.schedule.queue[0]
            late = call.deadline is not None and now >= call.deadline
            if now >= until or cancel_token.closed or cancel_token.cancel_ticket >= call.ticket or late:
                self._unthrottle(session)

    def slice(self) -> None:
        """Compute for a slice: a light session, if light sessions have time left, else the session in turn."""
        if self.light_queue and (not self.run_queue or self._light_seconds <= _MAX_LIGHT_SLICES * self.slice_seconds):
            session = self.light_queue.popleft()
            schedule = session.schedule
            took = self._compute(session)
            if not schedule.offloaded:
                self._light_seconds += took
            schedule.offloaded = False
            if schedule.queue and not self._suspend(session):
                self._enqueue(session)
            return
        self._light_seconds = 0.0
        session = self._next_session()
        schedule = session.schedule
        schedule.credit -= self._compute(session)
        if schedule.offloaded:
            schedule.offloaded = False
            if schedule.queue and not self._suspend(session):
                self.run_queue.append(session)
            return
        if not schedule.queue or self._suspend(session):
            self.run_queue.popleft()
            self._turn = None
        elif schedule.credit <= 0:
            self.run_queue.rotate(-1)
            self._turn = None
        if not self.light_queue and (not self.run_queue or (self.run_queue[0] is session and len(self.run_queue) == 1)):
            schedule.credit = 0.0  # no other session waited

    def extend_slice(self) -> bool:
        """Extend the running session's slice, if nothing else is to be done; whether it was extended.

        Ending a slice and beginning the next one takes as long as some ops. A slice grows to some turns at most, so
        that what is done between slices is not delayed for long.
        """
        now, session = time.monotonic(), self.running
        if session is None or now >= self._extensible_until or self._has_quotas:
            return False
        if self.awaiting or self.throttled or self.with_parked or self.light_queue:
            return False
        if self.has_calls():
            self.take_calls()  # those of this session wait behind the running one
            if self.light_queue or self.has_calls():
                return False
        if any(each is not session for each in self.run_queue):
            return False
        session.schedule.turn_ends = now + self.slice_seconds
        session.cancel_token.begin_slice(session.schedule.turn_ends)
        self.slices += 1
        return True

    def deschedule(self, session: Session) -> None:
        """Deschedule a session whose op is offloaded; its calls wait."""
        session.schedule.offloaded = True
        self.running = None
        self.publish_slice_start(0)
        if self._turn is session:
            self._turn = None
        if session in self.run_queue:
            self.run_queue.remove(session)

    def reschedule(self, session: Session) -> None:
        """Resume the slice of a session whose op was offloaded; the slice ends at the next check."""
        self.running = session
        session.schedule.turn_ends = time.monotonic()
        self.publish_slice_start(time.monotonic_ns())

    def _next_session(self) -> Session:
        """The session in turn. Sessions with negative credit are skipped and gain credit for it."""
        session = self.run_queue[0]
        if session is self._turn:
            return session
        while True:
            owner, schedule = session.usage.owner, session.schedule
            shares = sum(each.usage.owner == owner for each in self.run_queue) if owner else 1
            schedule.credit += self.seconds / shares
            if schedule.credit > 0:
                self._turn = session
                return session
            self.run_queue.rotate(-1)
            session = self.run_queue[0]

    def _compute(self, session: Session) -> float:
        """Let a session compute for a slice; return the seconds it computed."""
        began, now, schedule = self.clock(), time.monotonic(), session.schedule
        schedule.waited = 0.0
        if session.activity.watched is not None:
            session.activity.watched.resume()
        schedule.turn_ends = now + self.slice_seconds
        self._extensible_until = now + _EXTENDED_TURNS * self.seconds
        session.cancel_token.begin_slice(schedule.turn_ends)
        session.cancel_token.offloader, session.cancel_token.extend = self.offloader, self.extend_slice
        self.running = session
        self.slices += 1
        self.publish_slice_start(time.monotonic_ns())
        queue = schedule.queue
        while queue and self._step(queue[0], now):
            queue.popleft()
            now = time.monotonic()
            if now >= schedule.turn_ends:
                break
        self.running = None
        self.publish_slice_start(0)
        if session.activity.watched is not None:
            session.pause_watch()
        took = max(0.0, self.clock() - began - session.schedule.waited)
        session.schedule.used = min(_MAX_USED_SECONDS, session.schedule.used + took)
        session.usage.computed += took
        if self._has_quotas:
            self.runtime.quotas.spend(session, took)
        if not queue:
            schedule.idle_since = time.monotonic()
        return took

    def _step(self, call: PendingCall, now: float) -> bool:
        """Execute one step of a call; return whether the call is done or parked."""
        if call.steps is None:
            call.queued = now - call.sent
            call.steps = self.runtime.execute(call)
        call.resumed = now
        schedule = call.session.schedule
        result, failure, waited = b"", None, schedule.waited
        try:
            schedule.awaited = next(call.steps)
        except StopIteration as done:
            result = done.value
        except OutOfOrder as gap:
            if self._park_batch(call):
                return True
            failure = gap.refusal
        except Exception as error:  # noqa: BLE001 - passed to the call's answer
            failure = refusal_of(error, call.method)
        else:
            token = call.session.cancel_token
            if token.awaited is not None:
                schedule.awaited, token.awaited = token.awaited, None
            call.computed += time.monotonic() - now - (schedule.waited - waited)
            return False
        if self.runtime.meter is not None:
            self._count(call, call.computed + time.monotonic() - now - (schedule.waited - waited))
        call.steps = None
        if not call.ticket:
            pass  # nobody waits for an answer; a failure was logged
        elif call.hold is None or failure is not None:
            self.answer(call, result, failure)
        else:
            self._hold(call, call.hold, result)
        if call.session.deferred_releases:
            self.runtime.apply_deferred_releases(call.session)
        failure = None  # breaks the reference cycle of its traceback and this frame
        if schedule.parked:
            self._unpark_batches(call.session)
        return True

    def _count(self, call: PendingCall, computed: float) -> None:
        """Count a finished call in the meter, except the front's own methods."""
        meter = self.runtime.meter
        if meter is not None and call.method not in self.runtime.internal_methods:
            meter.queued.add(call.queued)
            meter.computed.add(computed)
            if call.method == "Run":
                meter.sizes.add(call.size)

    def _hold(self, call: PendingCall, hold: Callable[[AnswerCallback, bytes], None], result: bytes) -> None:
        """Defer an answer until its log record is on disk; another thread then sends it."""
        hold(lambda held, failure: self.answer(call, held, failure), result)
        checkpointer = self.runtime.checkpointer
        if checkpointer is not None and checkpointer.wants_saving(call.session):
            call.session.schedule.queue.append(PendingCall("Save", call.session, checkpointer.save_instruction(), 0))

    def _park_batch(self, call: PendingCall) -> bool:
        """Park a batch until its predecessor arrives; False if it has waited long enough."""
        session = call.session
        call.steps = None
        now = time.monotonic()
        first = call.park_deadline is None
        park_deadline = call.park_deadline = call.park_deadline or now + self.runtime.limits.gap_seconds
        if session.cancel_token.closed or now >= park_deadline:
            return False
        if first:
            self.parked(call)
        session.schedule.parked.append(call)
        self.with_parked.add(session)
        return True

    def _unpark_batches(self, session: Session) -> None:
        """Queue a session's parked batches again, after one of its calls was applied."""
        schedule = session.schedule
        parked, schedule.parked = schedule.parked, []
        self.with_parked.discard(session)
        # Behind the finished call, which the caller removes next.
        schedule.queue.extend(parked)

    def max_wait(self) -> float | None:
        """Longest wait for calls in seconds: until a parked batch times out or throttling ends; None: no limit."""
        if self.throttled:
            return min(_THROTTLE_POLL_SECONDS, max(0.0, self.throttled[0][0] - time.monotonic()))
        if not self.with_parked:
            return None
        ends = min(call.park_deadline or 0.0 for session in self.with_parked for call in session.schedule.parked)
        return max(0.0, ends - time.monotonic())

    def end_throttling(self) -> None:
        """Throttle no session any more: no more calls will arrive."""
        self._has_quotas = False
        for _, _, session in list(self.throttled):
            self._unthrottle(session)

    def expire_parked(self) -> None:
        """Refuse the parked batches that have waited long enough."""
        now = time.monotonic()
        for session in list(self.with_parked):
            if any(now >= (call.park_deadline or 0.0) for call in session.schedule.parked):
                idle = not session.schedule.queue
                self._unpark_batches(session)
                if idle:
                    self._activate(session)


def _cannot_wait(call: PendingCall, delay: float) -> bool:
    """Whether to refuse a call instead of delaying it: its deadline comes first, or a unary call waits too long."""
    if call.deadline is not None and time.monotonic() + delay >= call.deadline:
        return True
    return call.method != "Run" and delay > MAX_THROTTLE_SECONDS


def _quota_refusal(delay: float) -> Refusal:
    return Refusal(
        "COMPUTE_LIMIT",
        f"the compute quota of the session or its principal is used up; try again in {delay:.1f} s",
        retry_ms=int(delay * 1000) + 1,
    )


def run_scheduler(
    scheduler: Scheduler, source: CallSource, before_slice: Callable[[], None], max_forks: int = 0
) -> None:
    """Compute until the source has ended and all its calls are done. Calls `before_slice` before every slice.

    At most `max_forks` expensive ops run in forked processes, while other sessions compute; 0 disables this.
    """
    running = _SchedulerLoop(scheduler, source, before_slice)
    scheduler.has_calls, scheduler.take_calls = source.has_calls, running.take_calls
    if max_forks:
        offloader = scheduler.offloader = OpOffloader(scheduler, running.take_over, max_forks)
        running.compute_lock = offloader.compute_lock
    running.loop()


class _SchedulerLoop:
    """The loop of `run_scheduler`, run by the thread that holds the compute lock."""

    def __init__(self, scheduler: Scheduler, source: CallSource, before_slice: Callable[[], None]) -> None:
        self.scheduler = scheduler
        self.source = source
        self.before_slice = before_slice
        self.compute_lock: ComputeLock | None = None
        self._ended = False

    def take_calls(self, timeout: float | None = 0.0) -> None:
        """Add the calls that have arrived; wait for one up to `timeout` seconds, None without limit."""
        if self._ended:
            return
        calls = self.source.take(timeout)
        self._ended = calls is None
        if self._ended:
            self.scheduler.end_throttling()
        for call in calls or ():
            self.scheduler.add(call)

    def take_over(self) -> None:
        """Run a standby thread: wait for the compute lock, then run the loop."""
        assert self.compute_lock is not None
        with np.errstate(all="ignore"):
            if self.compute_lock.stand_by(holds=False):
                self.loop(spare=True)

    def loop(self, spare: bool = False) -> None:
        """Compute until all calls are done; a `spare` thread also ends when enough others stand by."""
        compute_lock = self.compute_lock
        while True:
            if compute_lock is not None and compute_lock.waiters and not compute_lock.stand_by(spare=spare):
                return
            if not self._run_slice():
                if compute_lock is not None:
                    compute_lock.close()
                return

    def _run_slice(self) -> bool:
        """Take arrived calls and compute for a slice; return whether to continue."""
        scheduler, offloader = self.scheduler, self.scheduler.offloader
        polls = bool(scheduler.awaiting) or (offloader is not None and offloader.offloaded > 0)
        if scheduler.awaiting:
            scheduler.resume_awaiting()  # the last slice may have completed a future
        if not self._ended:
            timeout = 0.0 if scheduler.runnable else scheduler.max_wait()
            if polls:
                timeout = _OFFLOAD_POLL_SECONDS if timeout is None else min(timeout, _OFFLOAD_POLL_SECONDS)
            self.take_calls(timeout)
        if scheduler.with_parked:
            scheduler.expire_parked()
        if scheduler.throttled:
            scheduler.unthrottle()
        if scheduler.awaiting:
            scheduler.resume_awaiting()
        if scheduler.runnable:
            self.before_slice()
            if offloader is not None:
                offloader.slice_begins()
            scheduler.slice()
        elif self._ended:
            if not polls:
                return False
            time.sleep(_OFFLOAD_POLL_SECONDS)
        return True

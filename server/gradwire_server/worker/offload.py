"""Offloading: keeps a worker's sessions computing while an expensive op of one session runs.

Only the thread that holds the compute lock touches sessions and runs `run_scheduler`. The engine passes an expensive op
to `Interrupt.offload`. The op runs in a fork (forked_op.py) or, if it cannot be forked, in its own thread. Its session
is descheduled, and the compute lock passes to a standby thread. When the op is done, its thread waits for the compute
lock and gets it between two slices. Waiting for the lock or a fork permit is not charged as computing.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from gradwire_engine.core.errors import EngineError, Reason
from gradwire_server.session.session import Session
from gradwire_server.session.state.cancel_token import CancelToken
from gradwire_server.worker.fork_permits import ForkPermits
from gradwire_server.worker.forked_op import ForkedOp
from gradwire_server.worker.runtime import Runtime

YIELD_AFTER_SECONDS = 0.05  # a session computes this long before it must yield between two ops
_YIELD_SECONDS = 0.01  # other sessions then compute this long
_MAX_OFFLOADED = 128  # sessions whose op runs or waits, one thread each
_MAX_STANDBY = 2  # standby threads that are kept; others end
_IDLE_POLLS = 20


class SliceScheduler(Protocol):
    """What the offloader needs of the scheduler (scheduler.py): the running session, and how it leaves and returns."""

    runtime: Runtime
    running: Session | None  # whose slice it is
    slices: int  # slices begun

    def others_wait(self) -> bool:
        """Whether any other session could compute."""

    def extend_slice(self) -> bool:
        """Extend the running session's slice, if nothing else is to be done; whether it was extended."""

    def deschedule(self, session: Session) -> None:
        """Deschedule a session whose op is offloaded; its calls wait."""

    def reschedule(self, session: Session) -> None:
        """Resume the slice of a session whose op was offloaded."""


class ComputeLock:
    """Mutual exclusion of a worker's threads: the holder computes."""

    def __init__(self) -> None:
        self.waiters = 0  # threads that wait to get the lock back
        self.ended = False
        self._changed = threading.Condition()
        self._free = False
        self._standing_by = 0
        self.threads = 1

    def ensure_successor(self, run: Callable[[], None]) -> bool:
        """Ensure that a thread can take over the lock; start one that calls `run` if none stands by.

        False if no thread can be started.
        """
        with self._changed:
            if self._standing_by or self.waiters:
                return True
            try:
                threading.Thread(target=run, name="gradwire-compute", daemon=True).start()
            except RuntimeError:
                return False
            self.threads += 1
            return True

    def release(self) -> None:
        """Release the lock to a thread ensured by `ready`."""
        with self._changed:
            self._free = True
            self._changed.notify_all()

    def acquire(self) -> None:
        """Wait for the lock and take it; these threads precede standby threads."""
        with self._changed:
            self.waiters += 1
            while not self._free:
                self._changed.wait()
            self.waiters -= 1
            self._free = False

    def stand_by(self, holds: bool = True, spare: bool = False) -> bool:
        """Release the lock to waiting threads; take it when none waits. False if the thread must end.

        A `spare` thread ends if enough others stand by.
        """
        with self._changed:
            if holds:
                self._free = True
            self._changed.notify_all()
            if spare and self._standing_by >= _MAX_STANDBY:
                self.threads -= 1
                return False
            self._standing_by += 1
            while not self.ended and not (self._free and not self.waiters):
                self._changed.wait()
            self._standing_by -= 1
            if self.ended:
                return False
            self._free = False
            return True

    def close(self) -> None:
        """End the standby threads: there is no more work."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()


class OpOffloader:
    """Runs expensive ops of one worker's sessions. Only the holder of the compute lock calls its methods."""

    def __init__(self, scheduler: SliceScheduler, run: Callable[[], None], max_forks: int, forks: bool = True) -> None:
        """`run` is the body of a thread that takes over; at most `max_forks` ops run in forks at once."""
        self.scheduler = scheduler
        self.compute_lock = ComputeLock()
        self.offloaded = 0  # descheduled sessions
        self._run = run
        self._permits = ForkPermits(max_forks)
        self._forks = forks
        self._waiting = threading.Event()
        threading.Thread(target=self._watch, name="gradwire-watch", daemon=True).start()

    # Called by the engine through a session's cancel token.

    def run(
        self, cancel_token: CancelToken, compute: Callable[[], Any], name: str, forkable: bool, room: int = 0
    ) -> Any:
        """Return the result of `compute` while other sessions compute. Raises EngineError: CANCELLED, COMPUTE_LIMIT."""
        session = self.scheduler.running
        if session is None or session.cancel_token is not cancel_token:  # this thread already runs an offloaded op
            return compute()
        if self.offloaded >= _MAX_OFFLOADED:
            raise EngineError(Reason.COMPUTE_LIMIT, f"{_MAX_OFFLOADED} ops that take long run or wait already")
        runtime = self.scheduler.runtime
        runtime.reserve(room)
        try:
            if not forkable or not self._forks:
                return self._run_in_thread(session, compute)
            return self._run_in_fork(session, compute, name)
        finally:
            runtime.reserve(-room)

    def extend_slice(self, cancel_token: CancelToken) -> bool:
        """Extend the slice of a plan or backward, if no other session waits; whether it was extended."""
        session = self.scheduler.running
        if session is None or session.cancel_token is not cancel_token:  # this thread already runs an offloaded op
            return False
        if self.offloaded or self.compute_lock.waiters or not self.scheduler.extend_slice():
            return False
        return not (cancel_token.closed or cancel_token.stopping())  # the extension may have hidden an interruption

    def yield_to_others(self, cancel_token: CancelToken) -> None:
        """Yield to other sessions between two ops of an expensive command. Raises EngineError: CANCELLED."""
        if cancel_token.stopping() or cancel_token.closed:
            raise EngineError(Reason.CANCELLED, "the command was cancelled")
        session = self.scheduler.running
        if session is None or session.cancel_token is not cancel_token:  # this thread already runs an offloaded op
            return
        if time.monotonic() < session.schedule.turn_ends or not self.scheduler.others_wait():
            return
        with self._descheduled(session):
            time.sleep(_YIELD_SECONDS)
            session.schedule.waited += _YIELD_SECONDS

    def _run_in_thread(self, session: Session, compute: Callable[[], Any]) -> Any:
        with self._descheduled(session) as descheduled:
            if not descheduled:
                return compute()
            with self._counted_as_waiting(session):
                self._permits.enter_thread(_StopCheck(session.cancel_token))
            try:
                return compute()
            finally:
                self._permits.exit_thread()

    def _run_in_fork(self, session: Session, compute: Callable[[], Any], name: str) -> Any:
        owner = session.usage.owner or -session.key
        self._acquire_permit(session, owner)
        try:
            try:
                child = ForkedOp(lambda: _compute_in_fork(session.cancel_token, compute), name)
            finally:
                self._permits.fork_done()
        except OSError:  # no process could be forked
            self._permits.release(owner)
            return compute()
        except BaseException:
            self._permits.release(owner)
            raise
        with self._descheduled(session):
            try:
                return child.result(_StopCheck(session.cancel_token, self._max_seconds(session), name))
            finally:
                self._permits.release(owner)

    def _acquire_permit(self, session: Session, owner: int) -> None:
        if self._permits.try_acquire(owner):
            return
        with self._descheduled(session) as descheduled, self._counted_as_waiting(session):
            if not descheduled:
                raise EngineError(Reason.COMPUTE_LIMIT, "no thread is available; other ops take long already")
            self._permits.acquire(owner, _StopCheck(session.cancel_token))

    def _max_seconds(self, session: Session) -> float:
        """Seconds that one command may compute: the smaller quota of session and principal for a minute."""
        limits = self.scheduler.runtime.limits
        principals = limits.max_principal_compute_seconds if session.usage.counter_row else 0.0
        return min(each or float("inf") for each in (limits.max_session_compute_seconds, principals))

    @contextmanager
    def _descheduled(self, session: Session) -> Iterator[bool]:
        """Deschedule the session inside the block, while others compute.

        Yields False if no thread can be started.
        """
        scheduler = self.scheduler
        if not self.compute_lock.ensure_successor(self._run):
            yield False
            return
        scheduler.deschedule(session)
        self.offloaded += 1
        self.compute_lock.release()
        try:
            yield True
        finally:
            with self._counted_as_waiting(session):
                self.compute_lock.acquire()
            self.offloaded -= 1
            scheduler.reschedule(session)

    @contextmanager
    def _counted_as_waiting(self, session: Session) -> Iterator[None]:
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
            time.sleep(YIELD_AFTER_SECONDS)
            scheduler = self.scheduler
            session, slices = scheduler.running, scheduler.slices
            if session is not None and slices == seen:
                session.account.pressed = True
            idle = idle + 1 if slices == seen and session is None else 0
            seen = slices
            if idle > _IDLE_POLLS:
                idle = 0
                self._waiting.clear()


def _compute_in_fork(cancel_token: CancelToken, compute: Callable[[], Any]) -> Any:
    """Compute in a child, which has no other sessions to yield to and no threads."""
    cancel_token.offloader = None
    if cancel_token.account is not None:
        cancel_token.account.pressed = False
    return compute()


class _StopCheck:
    """Checks whether to end an offloaded op. Raises EngineError: CANCELLED, COMPUTE_LIMIT."""

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

"""Offloading expensive ops: other sessions compute meanwhile, waiting is not charged, no fork happens inside BLAS."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gradwire_engine.core.errors import EngineError
from gradwire_server.session.state.cancel_token import CancelToken
from gradwire_server.session.state.schedule import SchedulingState
from gradwire_server.session.state.usage import Usage
from gradwire_server.worker import offload
from gradwire_server.worker.fork_permits import ForkPermits
from gradwire_server.worker.offload import OpOffloader
from tests.server.harness import WAIT, until


class Runtime:
    """The attributes of a runtime that the offloader uses."""

    class limits:
        max_session_compute_seconds = 0.0
        max_principal_compute_seconds = 0.0

    reserved = 0

    def reserve(self, change: int) -> None:
        self.reserved += change


class Session:
    """The attributes of a session that the offloader uses."""

    def __init__(self, owner: int = 1) -> None:
        self.cancel_token = CancelToken()
        self.schedule, self.usage, self.key = SchedulingState(), Usage(), 1
        self.usage.owner = owner


class Scheduler:
    """The attributes of a scheduler that the offloader uses."""

    def __init__(self) -> None:
        self.runtime = Runtime()
        self.slices = 0
        self.running: Any = Session()

    def deschedule(self, session: Any) -> None:
        self.running = None

    def reschedule(self, session: Any) -> None:
        self.running = session

    def others_wait(self) -> bool:
        return True


class ForkedOp:
    """Stands in for a process: it computes when it is asked for its result."""

    def __init__(self, compute: Callable[[], Any], name: str) -> None:
        self.compute = compute

    def result(self, check: Callable[[float], None]) -> Any:
        return self.compute()


def offloading(monkeypatch: pytest.MonkeyPatch, most: int = 2) -> Any:
    monkeypatch.setattr(offload, "ForkedOp", ForkedOp)
    offloader: Any

    def take_over() -> None:
        holds = False
        while offloader.compute_lock.stand_by(holds):
            holds = True
            until(
                lambda: offloader.compute_lock.waiters or offloader.compute_lock.ended
            )  # who computes meanwhile ends when it is asked for

    offloader = OpOffloader(Scheduler(), take_over, most)  # type: ignore[arg-type]
    return offloader


@contextmanager
def in_thread(work: Callable[[], Any]) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield thread
    thread.join(WAIT)
    assert not thread.is_alive()


def test_no_process_forks_while_a_thread_runs_an_offloaded_op() -> None:
    permits = ForkPermits(2)
    permits.enter_thread(lambda: None)
    assert not permits.try_acquire(1)
    taken = threading.Event()
    with in_thread(lambda: (permits.acquire(1, lambda: None), taken.set())):
        until(lambda: permits._requests)
        assert not taken.wait(0.1)
        permits.exit_thread()
    assert taken.is_set()


def test_no_thread_begins_an_offloaded_op_while_a_process_forks_or_is_waited_for() -> None:
    permits = ForkPermits(1)
    assert permits.try_acquire(1)
    entered = threading.Event()
    with in_thread(lambda: (permits.enter_thread(lambda: None), entered.set())):
        assert not entered.wait(0.1)
        permits.fork_done()
    assert entered.is_set()


def test_fork_permits_go_first_to_an_owner_without_one() -> None:
    permits, order = ForkPermits(2), []
    for _ in range(2):
        assert permits.try_acquire(1)
        permits.fork_done()

    def wait(owner: int) -> None:
        permits.acquire(owner, lambda: None)
        order.append(owner)
        permits.fork_done()

    with in_thread(lambda: wait(1)):
        until(lambda: len(permits._requests) == 1)
        with in_thread(lambda: wait(2)):
            until(lambda: len(permits._requests) == 2)
            permits.release(1)
        permits.release(1)
    assert order == [2, 1]


def test_a_wait_for_a_fork_slot_ends_when_it_is_cancelled() -> None:
    permits = ForkPermits(1)
    assert permits.try_acquire(1)

    def cancel() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        permits.acquire(2, cancel)
    with pytest.raises(KeyError):
        permits.enter_thread(cancel)
    permits.fork_done()
    permits.release(1)
    assert permits.try_acquire(2)


def test_many_ops_that_took_long_do_not_keep_later_ones_out(monkeypatch: pytest.MonkeyPatch) -> None:
    offloader = offloading(monkeypatch)
    session = offloader.scheduler.running
    offloader.offloaded = offload._MAX_OFFLOADED
    with pytest.raises(EngineError, match="run or wait already"):
        offloader.run(session.cancel_token, lambda: 1, "x", True)
    offloader.offloaded = 0
    offloader.compute_lock.threads = 1000
    assert offloader.run(session.cancel_token, lambda: 1, "x", True) == 1


@pytest.mark.parametrize("alone", [True, False])
def test_an_offloaded_op_reserves_its_memory_and_its_wait_is_not_charged(
    monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    offloader = offloading(monkeypatch)
    scheduler, session = offloader.scheduler, offloader.scheduler.running
    held, release = threading.Event(), threading.Event()

    def take_over() -> None:
        if offloader.compute_lock.stand_by(holds=False):
            held.set()
            release.wait(WAIT)
            offloader.compute_lock.stand_by()

    offloader._run = take_over
    seen = []

    def compute() -> int:
        held.wait(WAIT)
        seen.append((scheduler.runtime.reserved, offloader.offloaded))
        return 7

    made = []
    with in_thread(lambda: made.append(offloader.run(session.cancel_token, compute, "x", alone, 100))):
        until(lambda: offloader.compute_lock.waiters)
        threading.Event().wait(0.05)
        release.set()
    assert (made, seen, scheduler.runtime.reserved, offloader.offloaded) == ([7], [(100, 1)], 0, 0)
    assert session.schedule.waited >= 0.04


def test_an_op_inside_an_offloaded_op_deschedules_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    offloader = offloading(monkeypatch)
    other = offloader.scheduler.running
    mine = Session()
    assert offloader.run(mine.cancel_token, lambda: offloader.offloaded, "x", True) == 0
    offloader.yield_to_others(mine.cancel_token)
    assert offloader.scheduler.running is other


def test_without_a_standby_thread_an_op_runs_in_its_own_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    offloader = offloading(monkeypatch)
    session = offloader.scheduler.running

    class Thread:
        def __init__(self, **_: Any) -> None:
            pass

        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(offload.threading, "Thread", Thread)
    for alone in (True, False):
        assert offloader.run(session.cancel_token, lambda: 3, "x", alone) == 3
    assert (offloader.offloaded, offloader.scheduler.running) == (0, session)


def test_threads_that_are_not_needed_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = offloading(monkeypatch).compute_lock
    lock._standing_by, lock.threads = offload._MAX_STANDBY, offload._MAX_STANDBY + 2
    assert not lock.stand_by(spare=True)
    assert lock.threads == offload._MAX_STANDBY + 1

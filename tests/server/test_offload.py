"""The lane: what is computed aside holds nobody up for ever, is charged for no waiting, never forks inside BLAS."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gradwire_engine.core.errors import EngineError
from gradwire_server.session.state.cancel_token import CancelToken
from gradwire_server.session.state.schedule import Schedule
from gradwire_server.session.state.usage import Usage
from gradwire_server.worker import offload as lanes
from gradwire_server.worker.fork_slots import ForkPlaces
from gradwire_server.worker.offload import Lane
from tests.server.harness import WAIT, until


class Runtime:
    """Of a host, what a lane touches."""

    class limits:
        max_session_compute_seconds = 0.0
        max_principal_compute_seconds = 0.0

    reserved = 0

    def reserve(self, change: int) -> None:
        self.reserved += change


class Session:
    """Of a session, what a lane touches."""

    def __init__(self, owner: int = 1) -> None:
        self.cancel_token = CancelToken()
        self.schedule, self.usage, self.key = Schedule(), Usage(), 1
        self.usage.owner = owner


class Scheduler:
    """Of turns, what a lane touches."""

    def __init__(self) -> None:
        self.runtime = Runtime()
        self.slices = 0
        self.running: Any = Session()

    def leave(self, session: Any) -> None:
        self.running = None

    def come_back(self, session: Any) -> None:
        self.running = session

    def others_wait(self) -> bool:
        return True


class Child:
    """Stands in for a process: it computes when it is asked for its result."""

    def __init__(self, compute: Callable[[], Any], name: str) -> None:
        self.compute = compute

    def result(self, check: Callable[[float], None]) -> Any:
        return self.compute()


def a_lane(monkeypatch: pytest.MonkeyPatch, most: int = 2) -> Any:
    monkeypatch.setattr(lanes, "Child", Child)
    lane: Any

    def take_over() -> None:
        holds = False
        while lane.baton.stand_by(holds):
            holds = True
            until(lambda: lane.baton.claims or lane.baton.ended)  # who computes meanwhile ends when it is asked for

    lane = Lane(Scheduler(), take_over, most)  # type: ignore[arg-type]
    return lane


@contextmanager
def in_thread(work: Callable[[], Any]) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield thread
    thread.join(WAIT)
    assert not thread.is_alive()


def test_no_process_forks_while_a_thread_computes_aside() -> None:
    places = ForkPlaces(2)
    places.enter(lambda: None)
    assert not places.take_at_once(1)
    taken = threading.Event()
    with in_thread(lambda: (places.take(1, lambda: None), taken.set())):
        until(lambda: places._asked)
        assert not taken.wait(0.1)
        places.leave()
    assert taken.is_set()


def test_no_thread_begins_to_compute_aside_while_a_process_forks_or_is_waited_for() -> None:
    places = ForkPlaces(1)
    assert places.take_at_once(1)
    entered = threading.Event()
    with in_thread(lambda: (places.enter(lambda: None), entered.set())):
        assert not entered.wait(0.1)
        places.forked()
    assert entered.is_set()


def test_places_go_first_to_whoever_has_none() -> None:
    places, order = ForkPlaces(2), []
    for _ in range(2):
        assert places.take_at_once(1)
        places.forked()

    def wait(owner: int) -> None:
        places.take(owner, lambda: None)
        order.append(owner)
        places.forked()

    with in_thread(lambda: wait(1)):
        until(lambda: len(places._asked) == 1)
        with in_thread(lambda: wait(2)):
            until(lambda: len(places._asked) == 2)
            places.give_back(1)
        places.give_back(1)
    assert order == [2, 1]


def test_a_wait_for_a_place_ends_when_it_is_cancelled() -> None:
    places = ForkPlaces(1)
    assert places.take_at_once(1)

    def cancel() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        places.take(2, cancel)
    with pytest.raises(KeyError):
        places.enter(cancel)
    places.forked()
    places.give_back(1)
    assert places.take_at_once(2)


def test_many_ops_that_took_long_do_not_keep_later_ones_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lane = a_lane(monkeypatch)
    session = lane.scheduler.running
    lane.away = lanes._MOST_AWAY
    with pytest.raises(EngineError, match="run or wait already"):
        lane.aside(session.cancel_token, lambda: 1, "x", True)
    lane.away = 0
    lane.baton.threads = 1000
    assert lane.aside(session.cancel_token, lambda: 1, "x", True) == 1


@pytest.mark.parametrize("alone", [True, False])
def test_what_is_computed_aside_is_reserved_meanwhile_and_the_wait_afterwards_is_no_computing(
    monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    lane = a_lane(monkeypatch)
    scheduler, session = lane.scheduler, lane.scheduler.running
    held, release = threading.Event(), threading.Event()

    def take_over() -> None:
        if lane.baton.stand_by(holds=False):
            held.set()
            release.wait(WAIT)
            lane.baton.stand_by()

    lane._run = take_over
    seen = []

    def compute() -> int:
        held.wait(WAIT)
        seen.append((scheduler.runtime.reserved, lane.away))
        return 7

    made = []
    with in_thread(lambda: made.append(lane.aside(session.cancel_token, compute, "x", alone, 100))):
        until(lambda: lane.baton.claims)
        threading.Event().wait(0.05)
        release.set()
    assert (made, seen, scheduler.runtime.reserved, lane.away) == ([7], [(100, 1)], 0, 0)
    assert session.schedule.waited >= 0.04


def test_a_thread_that_computes_aside_puts_no_other_session_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    lane = a_lane(monkeypatch)
    other = lane.scheduler.running
    mine = Session()
    assert lane.aside(mine.cancel_token, lambda: lane.away, "x", True) == 0
    lane.look(mine.cancel_token)
    assert lane.scheduler.running is other


def test_where_no_thread_is_to_be_had_an_op_is_computed_in_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    lane = a_lane(monkeypatch)
    session = lane.scheduler.running

    class Thread:
        def __init__(self, **_: Any) -> None:
            pass

        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(lanes.threading, "Thread", Thread)
    for alone in (True, False):
        assert lane.aside(session.cancel_token, lambda: 3, "x", alone) == 3
    assert (lane.away, lane.scheduler.running) == (0, session)


def test_threads_that_are_not_needed_end(monkeypatch: pytest.MonkeyPatch) -> None:
    baton = a_lane(monkeypatch).baton
    baton._standing_by, baton.threads = lanes._SPARE, lanes._SPARE + 2
    assert not baton.stand_by(spare=True)
    assert baton.threads == lanes._SPARE + 1

"""Quotas: what a principal's sessions hold over all workers, and how little of it the next one may take."""

from typing import Any

import pytest

from gradwire_server.common.limits import Limits
from gradwire_server.common.shared_counters import PrincipalTotals, SharedCounters
from gradwire_server.session.session import CancelToken, Session
from gradwire_server.worker.quotas import Quotas

PLACE = 3


def limits(**more: Any) -> Limits:
    return Limits(**more).resolved()


def session(told: Limits, row: int = PLACE, **holds: int) -> Any:
    made = Session(1, told, CancelToken())
    made.usage.counter_row = row
    made.account.bytes = holds.get("bytes", 0)
    made.store.update(dict.fromkeys(range(holds.get("tensors", 0))))
    made.programs.update({bytes([number]): None for number in range(holds.get("programs", 0))})
    return made


@pytest.fixture
def counters() -> SharedCounters:
    return SharedCounters(2)


def test_a_session_tells_what_it_holds_and_nothing_once_it_ended(counters: SharedCounters) -> None:
    told = limits()
    quotas = Quotas(told, counters, 0)
    one, other = session(told, bytes=100, tensors=2, programs=1), session(told, bytes=10)
    quotas.publish(one)
    quotas.publish(other)
    assert counters.share(PLACE) == PrincipalTotals(bytes=110, tensors=2, programs=1)
    one.account.bytes = 40
    quotas.publish(one)
    assert counters.share(PLACE).bytes == 50
    quotas.publish(one, ended=True)
    quotas.publish(other, ended=True)
    assert counters.share(PLACE) == PrincipalTotals()


def test_workers_add_up(counters: SharedCounters) -> None:
    told = limits()
    for worker in (0, 1):
        Quotas(told, counters, worker).publish(session(told, bytes=100))
    assert counters.share(PLACE).bytes == 200


def test_a_session_without_a_row_is_not_counted(counters: SharedCounters) -> None:
    told = limits(max_principal_bytes=10, max_principal_compute_seconds=1.0)
    quotas, free = Quotas(told, counters, 0), session(told, row=0, bytes=100)
    quotas.publish(free)
    quotas.spend(free, 1000.0)
    before = free.account.limit
    quotas.limit(free)
    assert (free.account.limit, quotas.delay(free)) == (before, 0.0)


def test_limits_shrink_to_what_the_principal_has_left(counters: SharedCounters) -> None:
    told = limits(max_principal_bytes=1000, max_principal_tensors=10, max_principal_programs=3)
    quotas = Quotas(told, counters, 0)
    quotas.publish(session(told, bytes=700, tensors=8, programs=2))
    mine = session(told, bytes=100, tensors=1)
    quotas.publish(mine)
    quotas.limit(mine)
    assert (mine.account.limit, mine.max_tensors, mine.max_programs) == (300, 2, 1)


def test_a_principal_who_has_nothing_left_may_still_hold_what_it_holds(counters: SharedCounters) -> None:
    told = limits(max_principal_bytes=1000, max_principal_tensors=10)
    quotas = Quotas(told, counters, 0)
    quotas.publish(session(told, bytes=2000, tensors=20))
    mine = session(told)
    quotas.limit(mine)
    assert (mine.account.limit, mine.max_tensors) == (1, 0)


def test_without_quotas_limits_are_the_sessions_own(counters: SharedCounters) -> None:
    told = limits()
    mine = session(told)
    before = (mine.account.limit, mine.max_tensors, mine.max_programs)
    Quotas(told, counters, 0).limit(mine)
    assert (mine.account.limit, mine.max_tensors, mine.max_programs) == before


def test_computing_beyond_the_principals_quota_makes_all_its_sessions_rest(counters: SharedCounters) -> None:
    told = limits(max_principal_compute_seconds=6.0)
    quotas, one, other = Quotas(told, counters, 0), session(told), session(told)
    quotas.begin(one)
    quotas.spend(one, 5.0)
    assert quotas.delay(other) == 0.0
    quotas.spend(one, 4.0)
    assert 20.0 < quotas.delay(other) <= 30.0  # 3 seconds too many, at 6 a minute
    assert Quotas(told, counters, 1).counters.computed(PLACE) == 9_000_000


def test_a_restarted_worker_continues_its_counts(counters: SharedCounters) -> None:
    told = limits(max_principal_compute_seconds=6.0)
    Quotas(told, counters, 0).spend(session(told), 2.0)
    again = Quotas(told, counters, 0)
    again.spend(session(told), 1.0)
    assert counters.computed(PLACE) == 3_000_000


def test_a_session_has_a_compute_quota_of_its_own(counters: SharedCounters) -> None:
    told = limits(max_session_compute_seconds=6.0)
    quotas, mine = Quotas(told, counters, 0), session(told)
    assert quotas.delay(mine) == 0.0
    mine.usage.computed = 9.0
    assert 20.0 < quotas.delay(mine) <= 30.0
    assert quotas.delay(session(told)) == 0.0

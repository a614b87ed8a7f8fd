"""Jumps of the wall clock: leases, waits and quotas use a monotonic clock; only tokens' expiry uses dates."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gradwire.v1 import service_pb2
from gradwire_server.auth.principals import Principal
from gradwire_server.auth.tokens import Tokens, make
from gradwire_server.common.budgets import Budget
from gradwire_server.registry.session_registry import SessionRegistry
from tests.server.harness import LIMITS, Id, running
from tests.server.test_workers import Playing

YEAR = 365 * 24 * 3600.0
Jump = Callable[[float], None]


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Jump:
    """Put the clock on the wall forward or back."""
    real = time.time

    def to(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: real() + seconds)

    return to


@pytest.mark.parametrize("years", [-30, 30])
def test_a_lease_lasts_as_long_as_it_was_to(jump: Jump, years: int) -> None:
    directory: SessionRegistry[None] = SessionRegistry(LIMITS)
    entry = directory.open(service_pb2.OpenSessionRequest(), lambda: None)
    jump(years * YEAR)
    assert directory.sweep() == []
    assert directory.find(entry.id) is entry
    assert 0 < entry.expires - time.monotonic() <= LIMITS.lease_seconds


@pytest.mark.parametrize("years", [-30, 30])
def test_a_session_computes_on_and_a_client_is_told_the_end_of_its_lease_by_the_new_time(
    jump: Jump, years: int
) -> None:
    with running() as server:
        session = server.open()
        x = session.create([1.0])
        jump(years * YEAR)
        assert session.op("exp", Id(x)).id
        told = session.stub.KeepAlive(service_pb2.KeepAliveRequest(session_id=session.id))
        assert abs(told.expires_unix_ms / 1000 - time.time() - LIMITS.lease_seconds) < 30
        assert server.sweep() == []


@pytest.mark.parametrize("years", [-30, 30])
def test_turns_and_quotas_continue(jump: Jump, years: int) -> None:
    budget = Budget(6.0)
    assert budget.delay(12.0) == pytest.approx(60.0, abs=1.0)
    jump(years * YEAR)
    assert budget.delay(12.0) == pytest.approx(60.0, abs=30.0)
    playing = Playing()
    playing.batch(1, ticket=1, commands=5)
    playing.batch(1, ticket=3, commands=1, first=50)  # waits for those before it, not for ever and not for no time
    jump(-years * YEAR)
    playing.play()
    patience = playing.scheduler.max_wait()
    assert playing.done == [1]
    assert patience is not None and 0 < patience <= LIMITS.gap_seconds


def test_a_token_holds_until_its_date_on_the_wall(jump: Jump, tmp_path: Path) -> None:
    token, line = make("alice", expires=datetime.now(timezone.utc) + timedelta(days=1))
    path = tmp_path / "tokens"
    path.write_text(line + "\n")
    tokens = Tokens(path)

    def caller() -> Principal | None:
        return tokens.find(token)

    before = caller()
    assert before is not None
    before.check()
    jump(2 * 24 * 3600.0)
    with pytest.raises(Exception, match="expired"):
        before.check()
    jump(-YEAR)
    before.check()
    assert caller() is not None

"""The rate limiter: a caller with thousands of open calls waits alone, and every call begins in the end.

A caller with few open calls hardly waits, at any rate of calls. Users of one connection are distinguished.
"""

import asyncio
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gradwire.v1 import service_pb2
from gradwire_server.rpc import rate_limiter as module
from gradwire_server.rpc.rate_limiter import BURST, FEW, TRUSTED, RateLimiter
from tests.server.harness import Running, running
from tests.server.test_principals import House

COUNT = 500


async def waits(rate_limiter: RateLimiter, caller: str, calls: int) -> int:
    """How many of so many calls, each begun when the one before was, had to wait."""
    count = 0
    for _ in range(calls):
        turn = rate_limiter.enter(caller)
        if turn is not None:
            count += 1
            await asyncio.wait_for(turn, 60)
    return count


def test_who_has_few_calls_open_hardly_ever_waits_however_many_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RATE", 1.0)  # all that follows is beyond it

    async def play() -> None:
        rate_limiter = RateLimiter()
        assert await waits(rate_limiter, "one", 50 * TRUSTED) <= 51
        few = await asyncio.gather(*(waits(rate_limiter, "few", 5 * TRUSTED) for _ in range(FEW - 1)))
        assert sum(few) <= 5 * FEW * FEW

    asyncio.run(play())


def test_who_has_many_open_is_trusted_no_more_and_again_when_he_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RATE", 1.0)

    async def play() -> None:
        rate_limiter = RateLimiter()
        await waits(rate_limiter, "one", 2 * BURST)
        flood = [turn for turn in (rate_limiter.enter("one") for _ in range(COUNT)) if turn is not None]
        assert len(flood) >= COUNT - TRUSTED
        await asyncio.wait_for(flood[0], 60)
        assert "one" not in rate_limiter._trusted
        await asyncio.wait_for(asyncio.gather(*flood), 60)
        assert await waits(rate_limiter, "one", TRUSTED) <= 2

    asyncio.run(play())


def entered(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[bool]]:
    """By caller, whether each call was to wait."""
    told: dict[str, list[bool]] = defaultdict(list)
    enter = RateLimiter.enter

    def noting(self: RateLimiter, caller: str) -> Any:
        turn = enter(self, caller)
        told[caller].append(turn is not None)
        return turn

    monkeypatch.setattr(RateLimiter, "enter", noting)
    return told


def test_a_caller_that_waits_for_its_answers_is_hardly_ever_delayed(
    server: Running, in_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = server.open()
    told = entered(monkeypatch)
    monkeypatch.setattr(module, "RATE", 1.0)
    for _ in range(5 * TRUSTED):
        session.stub.KeepAlive(service_pb2.KeepAliveRequest(session_id=session.id))
    (calls,) = told.values()
    assert len(calls) == 5 * TRUSTED and sum(calls) <= 5
    session.close()


def test_two_principals_on_one_connection_do_not_delay_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path)
    alice, bob = house.metadata("alice"), house.metadata("bob")
    monkeypatch.setattr(module, "RATE", 1.0)  # so that what is beyond the allowance does not depend on the clock
    with running(0, tokens=house.known) as server:
        told = entered(monkeypatch)
        stub, request = server.stub, service_pb2.ServerInfoRequest()
        flood = [stub.ServerInfo.future(request, metadata=alice, timeout=60) for _ in range(200)]
        for _ in range(BURST):
            stub.ServerInfo(request, metadata=bob, timeout=60)
        for call in flood:
            call.result()
    assert told["bob"] == [False] * BURST
    assert len(told["alice"]) == 200 and set(told) == {"alice", "bob"}


def test_a_connections_calls_beyond_some_wait_and_no_others() -> None:
    async def play() -> None:
        rate_limiter = RateLimiter()
        flood = [rate_limiter.enter("one") for _ in range(COUNT)]
        assert flood[: BURST - 1] == [None] * (BURST - 1)
        waiting = [turn for turn in flood if turn is not None]
        assert len(waiting) >= COUNT - 2 * BURST
        assert rate_limiter.enter("other") is None
        second = [turn for turn in (rate_limiter.enter("two") for _ in range(3 * BURST)) if turn is not None]
        await second[-1]
        # From each in turn: the second did not wait for all of the first.
        assert sum(turn.done() for turn in waiting) < len(waiting) // 2
        await asyncio.wait_for(asyncio.gather(*waiting), 60)
        assert all(turn.done() for turn in second)
        assert not rate_limiter._waiting

    asyncio.run(play())


def test_who_waits_goes_first_and_who_has_gone_takes_no_turn() -> None:
    async def play() -> None:
        rate_limiter = RateLimiter()
        turns = [turn for turn in (rate_limiter.enter("one") for _ in range(10 * BURST)) if turn is not None]
        for turn in turns[::2]:
            turn.cancel()
        left, order = turns[1::2], list[int]()
        for number, turn in enumerate(left):
            turn.add_done_callback(lambda _, number=number: order.append(number))
        await asyncio.gather(*left)
        assert order == list(range(len(left)))

    asyncio.run(play())


def test_connections_that_are_gone_are_forgotten() -> None:
    async def play() -> None:
        rate_limiter = RateLimiter()
        for number in range(3 * module._MAX_CALLERS):
            assert rate_limiter.enter(str(number)) is None
            if number % module._MAX_CALLERS == 0:
                await asyncio.sleep(2 / module.RATE)
        assert len(rate_limiter._full_at) <= module._MAX_CALLERS + 1

    asyncio.run(play())


def test_all_calls_of_a_connection_with_many_are_answered(server: Running) -> None:
    session = server.open()
    request = service_pb2.KeepAliveRequest(session_id=session.id)
    calls = [session.stub.KeepAlive.future(request, timeout=60) for _ in range(200)]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(session.describe).result(60).tensor_count == 0
    for call in calls:
        assert call.result().lease_ms
    session.close()

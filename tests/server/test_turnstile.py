"""The turnstile: who has thousands of calls open waits by himself, and every call is begun in the end."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from gradwire.v1 import service_pb2
from gradwire_server import turnstile as module
from gradwire_server.turnstile import BURST, Turnstile
from tests.server.harness import Running

COUNT = 500


def test_a_connections_calls_beyond_some_wait_and_no_others() -> None:
    async def play() -> None:
        turnstile = Turnstile()
        flood = [turnstile.enter("one") for _ in range(COUNT)]
        assert flood[: BURST - 1] == [None] * (BURST - 1)
        waiting = [turn for turn in flood if turn is not None]
        assert len(waiting) >= COUNT - 2 * BURST
        assert turnstile.enter("other") is None
        second = [turn for turn in (turnstile.enter("two") for _ in range(3 * BURST)) if turn is not None]
        await second[-1]
        # From each in turn: the second did not wait for all of the first.
        assert sum(turn.done() for turn in waiting) < len(waiting) // 2
        await asyncio.wait_for(asyncio.gather(*waiting), 60)
        assert all(turn.done() for turn in second)
        assert not turnstile._waiting

    asyncio.run(play())


def test_who_waits_goes_first_and_who_has_gone_takes_no_turn() -> None:
    async def play() -> None:
        turnstile = Turnstile()
        turns = [turn for turn in (turnstile.enter("one") for _ in range(10 * BURST)) if turn is not None]
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
        turnstile = Turnstile()
        for number in range(3 * module._MOST_KNOWN):
            assert turnstile.enter(str(number)) is None
            if number % module._MOST_KNOWN == 0:
                await asyncio.sleep(2 / module.RATE)
        assert len(turnstile._begun) <= module._MOST_KNOWN + 1

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

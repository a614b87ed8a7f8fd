"""gradwire.aio: waits that leave the event loop free, many sessions in one loop, cancellation, errors."""

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

import gradwire as torch
from gradwire import aio
from gradwire._base.errors import GradwireError
from tests.client.proxy import CuttingProxy

SLOW = 700  # the size of matrices whose products take a while
UNENDING = 10_000  # so many of them take minutes


def ran(address: str, use: Callable[[aio.AsyncSession], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        async with aio.connect(address) as session:
            return await asyncio.wait_for(use(session), 60)

    return asyncio.run(whole())


def open_sessions(address: str) -> int:
    """Sessions on the server. One is its asker's own."""
    with torch.connect(address) as asking:
        count = torch.server_info().sessions
        asking.close()
    return int(count)


def slow(times: int) -> torch.Tensor:
    """A result that is computed for a while after this returns."""
    x = torch.eye(SLOW, dtype=torch.float64)
    for _ in range(times):
        x = x @ x
    return x.sum()


def test_a_step_and_its_values_are_awaited(server_address: str) -> None:
    async def use(session: aio.AsyncSession) -> Any:
        a = torch.tensor(3.0, requires_grad=True)
        b = a * a
        await session.run(b.backward)
        assert a.grad is not None
        both = torch.stack([a, b]).detach()
        return await session.item(a.grad), await session.tolist(both), (await session.numpy(both)).dtype

    assert ran(server_address, use) == (6.0, [3.0, 9.0], np.dtype(np.float32))


def test_the_loop_goes_on_while_a_value_is_awaited(server_address: str) -> None:
    async def use(session: aio.AsyncSession) -> tuple[float, int]:
        await session.run(slow, 2)  # a first execution waits for the shape
        result = slow(8)
        turns, done = 0, asyncio.Event()

        async def turn() -> None:
            nonlocal turns
            while not done.is_set():
                turns += 1
                await asyncio.sleep(0.001)

        turning = asyncio.create_task(turn())
        value = await session.item(result)
        done.set()
        await turning
        return value, turns

    value, turns = ran(server_address, use)
    assert value == SLOW
    assert turns > 3


def test_each_task_makes_tensors_in_the_session_that_it_entered(server_address: str) -> None:
    async def train(seed: float) -> tuple[str, float]:
        async with aio.connect(server_address) as session:
            w = torch.tensor([seed], requires_grad=True)
            for _ in range(3):
                loss = (w * w).sum()
                await session.run(loss.backward)
                with torch.no_grad():
                    w -= 0.25 * w.grad
                w.grad = None
                await asyncio.sleep(0)
            assert torch.current_session() is session.session
            return session.session.session_id, await session.item(w)

    async def whole() -> list[tuple[str, float]]:
        return await asyncio.gather(*(train(float(seed)) for seed in range(1, 9)))

    found = asyncio.run(whole())
    assert len({number for number, _ in found}) == 8
    assert [value for _, value in found] == [seed / 8 for seed in range(1, 9)]


def test_a_function_in_a_thread_has_the_tasks_modes(server_address: str) -> None:
    def of_mode() -> tuple[bool, bool]:
        return (torch.ones(1, requires_grad=True) * 2).requires_grad, torch.is_grad_enabled()

    async def use(session: aio.AsyncSession) -> Any:
        with torch.no_grad():
            inside = await session.run(of_mode)
        return inside, await session.run(of_mode)

    assert ran(server_address, use) == ((False, False), (True, True))


def test_a_refusal_is_raised_where_the_value_is_awaited(server_address: str) -> None:
    async def use(session: aio.AsyncSession) -> None:
        six, three, zero = (torch.tensor(number) for number in (6, 3, 0))
        first, wrong = (six % number for number in (three, zero))  # the second line of its kind does not wait
        assert first.dtype is torch.int64
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            await session.item(wrong)
        assert await session.item(torch.ones(2).sum()) == 2.0

    ran(server_address, use)


def test_a_cancelled_wait_stops_the_work_on_the_server(server_address: str) -> None:
    async def use(session: aio.AsyncSession) -> float:
        begun = time.monotonic()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(session.run(lambda: slow(UNENDING).item()), 0.5)
        taken = time.monotonic() - begun
        assert await session.item(torch.ones(3).sum()) == 3.0
        return taken

    assert ran(server_address, use) < 60


def test_a_call_that_has_not_begun_is_dropped(server_address: str) -> None:
    ran_late: list[int] = []

    async def use(session: aio.AsyncSession) -> None:
        release = asyncio.Event()
        loop = asyncio.get_running_loop()

        def busy() -> None:
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result(30)

        held = [asyncio.create_task(session.run(busy)) for _ in range(4)]
        await asyncio.sleep(0.05)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(session.run(ran_late.append, 1), 0.05)
        release.set()
        await asyncio.gather(*held)

    ran(server_address, use)
    assert not ran_late


def test_the_end_of_the_block_ends_the_calls_that_wait(server_address: str) -> None:
    async def whole() -> list[BaseException]:
        async with aio.connect(server_address) as session:
            waiting = [asyncio.create_task(session.run(lambda: slow(UNENDING).item())) for _ in range(6)]
            await asyncio.sleep(0.2)
        return list(await asyncio.gather(*waiting, return_exceptions=True))

    begun = time.monotonic()
    ended = asyncio.run(whole())
    assert time.monotonic() - begun < 60
    assert all(isinstance(each, (GradwireError, RuntimeError)) for each in ended)


def test_values_survive_a_broken_connection(server_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWIRE_LOCAL_STREAM", "0")  # through the proxy
    proxy = CuttingProxy(server_address, iter(lambda: 4000, None))
    try:

        async def use(session: aio.AsyncSession) -> float:
            x = torch.zeros(8)
            for _ in range(200):
                x += 1
                await session.sync()
            return await session.item(x.sum())

        assert ran(proxy.address, use) == 1600.0
        assert proxy.broken
    finally:
        proxy.close()


def test_an_unreachable_server_is_told_at_the_entrance() -> None:
    async def whole() -> None:
        async with aio.connect("127.0.0.1:1", patience=0.2):
            pass

    with pytest.raises(torch.GradwireConnectionError):
        asyncio.run(whole())


def test_a_session_is_used_only_inside_its_block(server_address: str) -> None:
    async def whole() -> None:
        session = aio.connect(server_address)
        with pytest.raises(RuntimeError, match="only inside `async with`"):
            await session.sync()
        async with session:
            pass
        with pytest.raises(RuntimeError, match="only inside `async with`"):
            await session.sync()
        with pytest.raises(RuntimeError, match="entered once"):
            await session.__aenter__()

    asyncio.run(whole())


def test_a_cancelled_entrance_leaves_no_session(server_address: str) -> None:
    async def whole() -> None:
        async def enter() -> None:
            async with aio.connect(server_address):
                await asyncio.sleep(60)

        for wait in (0.0, 0.001, 0.01, 0.3):
            task = asyncio.create_task(enter())
            await asyncio.sleep(wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    before = open_sessions(server_address)
    asyncio.run(whole())
    gc.collect()
    ends = time.monotonic() + 60
    while open_sessions(server_address) > before:
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_another_task_may_leave_the_block_than_entered_it(server_address: str) -> None:
    """As a fixture of a test framework does, whose end runs in a task of its own."""

    async def whole() -> None:
        before = open_sessions(server_address)
        opened = aio.connect(server_address)
        await asyncio.create_task(opened.__aenter__())
        await asyncio.create_task(opened.__aexit__(None, None, None))
        assert open_sessions(server_address) == before

    asyncio.run(whole())


def test_sessions_may_be_left_in_another_order_than_they_were_entered(server_address: str) -> None:
    async def whole() -> None:
        one, other = aio.connect(server_address), aio.connect(server_address)
        async with aio.connect(server_address) as outer:
            await one.__aenter__()
            await other.__aenter__()
            await one.__aexit__(None, None, None)
            assert torch.current_session() is other.session
            await other.__aexit__(None, None, None)
            assert torch.current_session() is outer.session

    asyncio.run(whole())


def test_a_stop_iteration_ends_the_wait(server_address: str) -> None:
    async def use(session: aio.AsyncSession) -> None:
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            await asyncio.wait_for(session.run(next, iter(())), 20)

    ran(server_address, use)


def _factor(number: float) -> torch.Tensor:
    return torch.linalg.cholesky(torch.eye(2) * number)


def _contexts(error: BaseException) -> list[BaseException]:
    found = [error]
    while (last := found[-1].__context__) is not None:
        found.append(last)
    return found


@pytest.mark.parametrize("left_by", [KeyError, asyncio.CancelledError])
def test_what_leaves_a_block_is_not_replaced_by_a_refusal(server_address: str, left_by: type[BaseException]) -> None:
    async def use() -> None:
        async with aio.connect(server_address) as session:
            await session.item(_factor(1.0).sum())
            await session.item(_factor(1.0).sum())
            _factor(-1.0)
            try:
                raise ValueError("first")
            except ValueError:
                raise left_by("mine")  # noqa: B904 - its context is what is tested

    with pytest.raises(left_by) as raised:
        asyncio.run(use())
    kinds = [type(each) for each in _contexts(raised.value)]
    assert ValueError in kinds and torch.linalg.LinAlgError in kinds


def test_the_error_of_a_cancelled_call_is_told(server_address: str) -> None:
    release = threading.Event()

    def fail() -> None:
        release.wait(20)
        raise KeyError("own")

    async def use(session: aio.AsyncSession) -> BaseException:
        call = asyncio.create_task(session.run(fail))
        await asyncio.sleep(0.05)
        call.cancel()
        release.set()
        with pytest.raises(asyncio.CancelledError) as raised:
            await call
        return raised.value

    assert any(isinstance(each, KeyError) for each in _contexts(ran(server_address, use)))

"""The worker that is a process: a call that it cannot answer any more is refused, and does not wait."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.registry.process_backend import WorkersBackend
from gradwire_server.worker_pool.process_worker import ProcessWorker
from gradwire_server.worker_pool.session_entry import SessionEntry
from tests.server.harness import Id, op

_NEG = op("neg", Id(1)).SerializeToString()


def run(use: Callable[[WorkersBackend, ProcessWorker], Awaitable[Any]]) -> Any:
    """What a use of a backend and its one worker returns."""

    async def whole() -> Any:
        backend = WorkersBackend(Limits(), 1)
        (worker,) = backend.workers
        assert isinstance(worker, ProcessWorker)
        await backend.start()
        try:
            return await asyncio.wait_for(use(backend, worker), 60)
        finally:
            await backend.stop(0.1)

    return asyncio.run(whole())


async def _refused(answer: Awaitable[Any]) -> str:
    with pytest.raises(Refusal) as refusal:
        await answer
    return refusal.value.reason


def test_a_call_for_a_process_that_has_ended_is_refused_before_another_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(backend: WorkersBackend, worker: ProcessWorker) -> list[str]:
        monkeypatch.setattr(worker, "_launch", asyncio.Event().wait)  # no other process starts
        os.kill(worker.pid, signal.SIGKILL)
        while worker.alive:
            await asyncio.sleep(0.001)
        entry = SessionEntry("id", 9, worker, 60.0, 0.0)
        late: list[Awaitable[bytes]] = [
            worker.call(entry, "Op", _NEG) for _ in range(40)
        ]  # more than the process would get at once
        late += [worker.request("Op", 9, _NEG), asyncio.ensure_future(worker.list_ops())]
        return list(await asyncio.gather(*map(_refused, late)))

    assert set(run(use)) == {"UNAVAILABLE"}


def test_a_call_that_outlasts_the_stop_is_refused() -> None:
    async def use(backend: WorkersBackend, worker: ProcessWorker) -> list[str]:
        os.kill(worker.pid, signal.SIGSTOP)  # it answers nothing and does not end by itself
        entry = SessionEntry("id", 9, worker, 60.0, 0.0)
        waiting = [
            asyncio.ensure_future(_refused(each)) for each in (worker.call(entry, "Op", _NEG), worker.list_ops())
        ]
        await asyncio.sleep(0)
        await backend.stop(0.1)
        return list(await asyncio.wait_for(asyncio.gather(*waiting), 10))

    assert run(use) == ["UNAVAILABLE", "UNAVAILABLE"]

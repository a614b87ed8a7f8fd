"""What the front does for stored sessions, without a worker: snapshots in time."""

import asyncio
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gradwire_server import keeping
from gradwire_server.keeping import Keeping
from gradwire_server.shelf import Shelf


class Asked:
    """A worker that stores at once, but for sessions that are busy, and counts."""

    alive = True

    def __init__(self) -> None:
        self.stored: Counter[int] = Counter()
        self.busy = asyncio.Event()

    async def ask(self, method: str, number: int, raw: bytes) -> bytes:
        self.stored[number] += 1
        if number % 2:
            await self.busy.wait()
        return b""


def test_busy_sessions_hold_up_nobody_elses_periodic_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_PATIENCE_SECONDS", 0.01)

    async def watch() -> tuple[Counter[int], Counter[int]]:
        worker: Any = Asked()
        entries = {
            str(number): SimpleNamespace(
                id=str(number), number=number, worker=worker, saving=False, stored=False, shown="", owner=""
            )
            for number in range(6)
        }
        backend: Any = SimpleNamespace(directory=SimpleNamespace(entries=entries), workers=[worker])
        keeps = Keeping(backend, Shelf(tmp_path, 10.0, 0, 0), False, 0.01)
        await keeps.start()

        async def until(done: Any) -> None:
            while not done():
                await asyncio.sleep(0.01)

        await asyncio.wait_for(until(lambda: all(worker.stored[number] >= 3 for number in (0, 2, 4))), 30)
        while_busy = worker.stored.copy()
        worker.busy.set()
        await asyncio.wait_for(until(lambda: all(worker.stored[number] >= 2 for number in (1, 3, 5))), 30)
        await keeps.stop(1.0)
        return while_busy, worker.stored

    while_busy, at_last = asyncio.run(watch())
    assert [while_busy[number] for number in (1, 3, 5)] == [1, 1, 1]  # they are not asked again and again
    assert min(at_last.values()) >= 2

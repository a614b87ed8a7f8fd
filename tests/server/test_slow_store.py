"""A store whose calls take long delays only its own session: neither the event loop nor the compute thread waits."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import gradwire
from gradwire_server.registry.session_catalog import SessionCatalog
from gradwire_server.registry.thread_backend import InProcessBackend
from gradwire_server.rpc.server import Server
from gradwire_server.storage.configured import snapshot_store
from tests.server.harness import WAIT, until
from tests.server.memory_stores import MemoryObjects
from tests.server.test_durability import Storing

STORE = f"{__name__}:the_objects"
ROOT = Path(__file__).parents[2]


class Gated(MemoryObjects):
    """Objects whose calls wait while the gate is closed. Counts the calls that wait, and notes the threads of all."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = 0
        self.threads: set[str] = set()

    def _pass(self) -> None:
        self.threads.add(threading.current_thread().name)
        if not self.gate.is_set():
            self.waiting += 1
            assert self.gate.wait(WAIT)

    def put(self, name: str, data: bytes) -> None:
        self._pass()
        super().put(name, data)

    def get(self, name: str) -> bytes:
        self._pass()
        return super().get(name)

    def list(self, prefix: str) -> Mapping[str, tuple[int, float]]:
        self._pass()
        return super().list(prefix)

    def delete(self, name: str) -> None:
        self._pass()
        super().delete(name)


OBJECTS = Gated()


def the_objects() -> Gated:
    """The store of front and worker, which are one process here."""
    return OBJECTS


class Slow(Storing):
    """A server whose snapshots are objects behind a gate."""

    async def _start(self) -> tuple[Any, Server, str]:
        backend = InProcessBackend(self.limits, self.clock)
        catalog = SessionCatalog(self.root, **self.told, store=snapshot_store(STORE))
        await backend.persist_in(catalog, self.logs, 0.0, STORE)
        server = Server(backend, *self.guards)
        self.thread.name = "event loop"
        return backend, server, await server.start("127.0.0.1:0")


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Slow]:
    OBJECTS.__init__()  # type: ignore[misc]
    started = Slow(tmp_path)
    yield started
    OBJECTS.gate.set()
    started.stop()


class Case:
    """Sessions of a server: one that uses the store, and one whose ops must be answered meanwhile."""

    def __init__(self, server: Slow) -> None:
        self.server = server
        self.other = gradwire.connect(server.address)
        self.z = gradwire.ones(2)
        self.session = gradwire.connect(server.address)
        self.x = gradwire.ones(3)
        self.session.sync()
        self.id = self.session.session_id

    def delayed(self, action: Callable[[], Any]) -> Any:
        """Run an action of the first session while the store waits; the other session's ops are answered meanwhile."""
        OBJECTS.gate.clear()
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(action)
            until(lambda: OBJECTS.waiting or done.done(), "a call of the store")
            assert OBJECTS.waiting, "the action does not use the store"
            answered = threading.Thread(target=self._use_other, daemon=True)
            answered.start()
            answered.join(20)
            alive = answered.is_alive()
            OBJECTS.gate.set()
            assert not alive, "an op of another session waits for the store"
            return done.result(WAIT)

    def _use_other(self) -> None:
        for _ in range(5):
            assert (self.z * 2).tolist() == [2.0, 2.0]

    def evict(self) -> None:
        """Evict the first session, as its lease does."""

        async def evict() -> None:
            persistence = self.server.backend.persistence
            entries = self.server.backend.registry.entries
            entry = entries[self.id]
            until_evicted = asyncio.get_running_loop().time() + WAIT
            while entries.get(self.id) is entry:
                assert asyncio.get_running_loop().time() < until_evicted
                persistence.expired([entry])
                await asyncio.gather(*persistence._closing)

        self.server.do(evict())

    def lose(self) -> None:
        """Tell the front that the first session's worker ended, with the session stored."""
        backend = self.server.backend

        async def lose() -> None:
            entry = backend.registry.entries[self.id]
            backend.registry.remove_with_tombstone(entry, "SESSION_NOT_FOUND", "gone")
            assert not backend.persistence.lost([entry], "it ended")
            await asyncio.gather(*backend.persistence._closing)

        self.server.do(lose())


def _save(case: Case) -> Callable[[], Any]:
    return case.session.save


def _save_named(case: Case) -> Callable[[], Any]:
    return lambda: case.session.save("one", {"x": case.x})


def _command_after_save(case: Case) -> Callable[[], Any]:
    case.evict()
    (case.x + 1).tolist()  # restores it
    entry = case.server.backend.registry.entries[case.id]

    case.session._retransmission.drop()  # or the client, told of the end, could restore it before the gate is closed

    async def save_last() -> None:
        assert await case.server.backend.persistence._save(entry, last=True)

    case.server.do(save_last())
    return lambda: (case.x + 1).tolist()


def _evict(case: Case) -> Callable[[], Any]:
    return case.evict


def _restore_evicted(case: Case) -> Callable[[], Any]:
    case.evict()
    return lambda: (case.x + 1).tolist()


def _restore_named(case: Case) -> Callable[[], Any]:
    case.session.save("one", {"x": case.x})
    return lambda: gradwire.restore("one", case.server.address).tensors["x"].tolist()


def _list_named(case: Case) -> Callable[[], Any]:
    return gradwire.snapshots


def _delete_named(case: Case) -> Callable[[], Any]:
    case.session.save("one", {"x": case.x})
    return lambda: gradwire.delete_snapshot("one")


def _close_evicted(case: Case) -> Callable[[], Any]:
    case.evict()
    return case.session.close


def _lose_worker(case: Case) -> Callable[[], Any]:
    case.session.save()
    return case.lose


@pytest.mark.parametrize(
    "prepare",
    [
        _save,
        _save_named,
        _command_after_save,
        _evict,
        _restore_evicted,
        _restore_named,
        _list_named,
        _delete_named,
        _close_evicted,
        _lose_worker,
    ],
    ids=lambda prepare: prepare.__name__.strip("_"),
)
def test_other_sessions_are_answered_while_the_store_is_slow(
    slow: Slow, prepare: Callable[[Case], Callable[[], Any]]
) -> None:
    case = Case(slow)
    case.delayed(prepare(case))
    assert not {name for name in OBJECTS.threads if name in ("event loop", "gradwire-compute")}


class Stuck(MemoryObjects):
    """Objects that no call ever writes."""

    def put(self, name: str, data: bytes) -> None:
        threading.Event().wait()


def the_stuck_objects() -> Stuck:
    """The store of a server's front and worker."""
    return Stuck()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_store_that_never_answers_does_not_keep_the_server_alive(tmp_path: Path, workers: int) -> None:
    flags = ["--port=0", f"--workers={workers}", f"--state-dir={tmp_path}", "--grace-seconds=1"]
    flags += ["--durability=snapshot", f"--snapshot-store={__name__}:the_stuck_objects"]
    with subprocess.Popen(
        [sys.executable, "-m", "gradwire_server", *flags], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[-1]
            with gradwire.connect(address):
                gradwire.ones(3).tolist()
                server.send_signal(signal.SIGTERM)
                assert server.wait(WAIT) == 3  # the session is lost
        finally:
            server.kill()

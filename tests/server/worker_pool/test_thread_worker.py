"""The worker that is a thread: it starts and ends with its backend, tells what it holds, and may own the process."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import commands_pb2, service_pb2
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.core.threads import POOL
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.registry.session_catalog import SessionCatalog
from gradwire_server.registry.thread_backend import InProcessBackend
from gradwire_server.session.session import Session
from gradwire_server.worker_pool import thread_worker
from gradwire_server.worker_pool.session_entry import SessionEntry
from gradwire_server.worker_pool.thread_worker import ThreadWorker
from tests.server.harness import Id, op, payload


def run(use: Callable[[InProcessBackend, ThreadWorker], Awaitable[Any]], **options: Any) -> Any:
    """What a use of a backend and its one worker returns."""

    async def whole() -> Any:
        backend = InProcessBackend(Limits(), **options)
        (worker,) = backend.workers
        assert isinstance(worker, ThreadWorker)
        await backend.start()
        assert worker.alive
        try:
            return await asyncio.wait_for(use(backend, worker), 60)
        finally:
            await backend.stop(10.0)
            assert not worker.alive

    return asyncio.run(whole())


def test_a_call_of_a_session_that_is_not_open_is_refused() -> None:
    async def use(backend: InProcessBackend, worker: ThreadWorker) -> str:
        with pytest.raises(Refusal) as refusal:
            await worker.call(SessionEntry("id", 9, worker, 60.0, 0.0), "Op", op("neg", Id(1)).SerializeToString())
        return refusal.value.reason

    assert run(use) == "SESSION_NOT_FOUND"


def test_a_worker_tells_its_sessions_and_what_they_hold() -> None:
    async def use(backend: InProcessBackend, worker: ThreadWorker) -> tuple[Any, Any]:
        session = (await backend.open_session(service_pb2.OpenSessionRequest())).session_id
        create = commands_pb2.CreateRequest(id=1, payload=payload(np.ones(100))).SerializeToString()
        await backend.call("Create", session, create, None)
        during = await worker.usage_report(0, 10)
        await backend.close_session(session)
        return during, await worker.usage_report(0, 10)

    during, after = run(use)
    assert (during["tensors"], len(during["sessions"])) == (1, 1)
    assert during["bytes"] >= 800
    assert (after["bytes"], after["tensors"], after["sessions"]) == (0, 0, {})


def test_ops_and_the_machine_are_described() -> None:
    async def use(backend: InProcessBackend, worker: ThreadWorker) -> tuple[bytes, Any]:
        return await worker.list_ops(), worker.runtime.describe()

    ops, info = run(use)
    assert "add" in {each.name for each in service_pb2.ListOpsResponse.FromString(ops).ops}
    assert info.devices[0].name == "cpu"


def test_a_cancelled_session_refuses_the_calls_that_came_before() -> None:
    async def use(backend: InProcessBackend, worker: ThreadWorker) -> set[str]:
        session = (await backend.open_session(service_pb2.OpenSessionRequest())).session_id
        create = commands_pb2.CreateRequest(id=1, payload=payload(np.ones((90, 90)))).SerializeToString()
        await backend.call("Create", session, create, None)
        power = op("linalg.matrix_power", Id(1), 3).SerializeToString()
        calls = [backend.call("Op", session, power, None) for _ in range(400)]
        assert (await backend.cancel(service_pb2.CancelRequest(session_id=session))).cancelled
        answers = await asyncio.gather(*calls, return_exceptions=True)
        again = await backend.call("Op", session, op("neg", Id(1)).SerializeToString(), None)
        assert commands_pb2.OpResponse.FromString(again).outputs
        return {each.reason for each in answers if isinstance(each, Refusal)}

    assert run(use) == {"CANCELLED"}


@pytest.mark.parametrize("owns", [True, False])
def test_only_a_worker_that_owns_the_process_caps_its_memory_and_collects_its_garbage(
    owns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    capped: list[int] = []
    collects: list[bool] = []

    def thread(*args: Any, **options: Any) -> SimpleNamespace:
        collects.append(options["collects"])
        return SimpleNamespace(stop=lambda grace: True)

    monkeypatch.setattr(thread_worker, "cap_process", capped.append)
    monkeypatch.setattr(thread_worker, "cupy", lambda: None)
    monkeypatch.setattr(thread_worker, "ComputeThread", thread)

    async def use(backend: InProcessBackend, worker: ThreadWorker) -> int:
        return backend.limits.max_bytes

    most = run(use, owns_process=owns)
    assert (capped, collects) == ([most] if owns else [], [owns])


def test_a_worker_that_owned_the_process_leaves_it_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_worker, "cap_process", lambda most: None)
    monkeypatch.setattr(thread_worker.blas, "threads", lambda: 7)
    before = OPTIONS.mode, POOL.threads

    async def use(backend: InProcessBackend, worker: ThreadWorker) -> tuple[str, int]:
        return OPTIONS.mode, POOL.threads

    assert run(use, owns_process=True) == (Limits().jit, 7)
    assert (OPTIONS.mode, POOL.threads) == before


@pytest.mark.parametrize(("cores", "beside"), [(2, True), (3, False)])
def test_a_worker_that_uses_all_cores_leaves_one_to_the_client(
    cores: int, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_worker, "cap_process", lambda most: None)
    monkeypatch.setattr(thread_worker.blas, "threads", lambda: 2)
    monkeypatch.setattr(thread_worker.blas, "cores", lambda: cores)

    async def use(backend: InProcessBackend, worker: ThreadWorker) -> bool:
        return POOL.is_beside_client

    assert run(use, owns_process=True) is beside
    assert not POOL.is_beside_client


@pytest.mark.parametrize(("stores", "line"), [(False, "worker call failed"), (True, "session is not opened")])
def test_the_log_has_why_a_session_was_not_opened(
    stores: bool, line: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(backend: InProcessBackend, worker: ThreadWorker) -> None:
        def fail(session: Session, raw: bytes) -> bytes:
            raise Refusal("INTERNAL", "no place")

        worker.runtime._lifecycle["Open"] = fail
        if stores:
            await backend.persist_in(SessionCatalog(tmp_path, grace=60.0, max_snapshots=3, max_bytes=0), False, 0.0)
        await backend.open_session(service_pb2.OpenSessionRequest())
        await worker.usage_report(0, 1)
        await worker.notify("Tidy", 0, b"")

    run(use)
    (record,) = [record for record in caplog.records if record.message == line]
    assert vars(record)["error"] == "no place"


def test_the_thread_hands_an_answer_over_before_the_event_loop_gets_it() -> None:
    async def use(backend: InProcessBackend, worker: ThreadWorker) -> tuple[list[bytes], list[bytes], list[int]]:
        session = (await backend.open_session(service_pb2.OpenSessionRequest())).session_id
        taken: list[bytes] = []
        threads: list[int] = []

        def write(answer: bytes) -> bool:
            taken.append(answer)
            threads.append(threading.get_ident())
            return len(taken) % 2 == 1  # the event loop is to write every second one

        create = op("zeros", [3], outputs=[1]).SerializeToString()
        calls = [backend.call("Op", session, create, None, write)]
        calls += [backend.call("Op", session, op("neg", Id(1)).SerializeToString(), None, write) for _ in range(5)]
        answers = await asyncio.gather(*calls)  # the last of them comes because the thread is idle
        return taken, list(answers), threads

    taken, answers, threads = run(use)
    assert taken == answers
    assert threading.get_ident() not in threads


def test_a_refusal_is_not_handed_over_by_the_thread() -> None:
    async def use(backend: InProcessBackend, worker: ThreadWorker) -> tuple[str, list[bytes]]:
        session = (await backend.open_session(service_pb2.OpenSessionRequest())).session_id
        taken: list[bytes] = []

        def write(answer: bytes) -> bool:
            taken.append(answer)
            return True

        with pytest.raises(Refusal) as refusal:
            await backend.call("Op", session, op("neg", Id(7)).SerializeToString(), None, write)
        return refusal.value.reason, taken

    assert run(use) == ("TENSOR_NOT_FOUND", [])

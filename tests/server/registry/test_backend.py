"""The backend: leases and writers, calls in order, cancelling by writer, pages of sessions, large tensors."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import commands_pb2, service_pb2, types_pb2
from gradwire_server.auth.principals import CALLER, Principal
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.registry.backend import Backend
from gradwire_server.registry.thread_backend import InProcessBackend
from tests.server.harness import Id, op, payload


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def run(use: Callable[[Backend], Awaitable[Any]], clock: Clock | None = None, **limits: Any) -> Any:
    """What a use of a started backend returns."""

    async def whole() -> Any:
        backend: Backend = InProcessBackend(Limits(**limits), clock or Clock())
        await backend.start()
        try:
            return await asyncio.wait_for(use(backend), 60)
        finally:
            await backend.stop(10.0)

    return asyncio.run(whole())


async def opened(backend: Backend, **fields: Any) -> service_pb2.OpenSessionResponse:
    return await backend.open_session(service_pb2.OpenSessionRequest(**fields))


async def refusal(answer: Awaitable[Any]) -> Refusal:
    with pytest.raises(Refusal) as refused:
        await answer
    return refused.value


async def created(backend: Backend, session: str, array: np.ndarray, tensor_id: int = 1) -> None:
    request = commands_pb2.CreateRequest(id=tensor_id, payload=payload(array))
    await backend.call("Create", session, request.SerializeToString(), None)


def test_a_session_opens_computes_and_frees_its_bytes() -> None:
    async def use(backend: Backend) -> tuple[Any, int, int]:
        session = (await opened(backend)).session_id
        await created(backend, session, np.ones(100))
        raw = await backend.call("Op", session, op("add", Id(1), 2.0, outputs=[2]).SerializeToString(), None)
        spec = commands_pb2.OpResponse.FromString(raw).outputs[0]
        before = (await backend.server_info()).bytes
        return spec, before, await backend.close_session(session)

    spec, before, freed = run(use)
    assert (spec.id, list(spec.shape)) == (2, [100])
    assert before >= freed >= 1600


def test_calls_of_one_session_are_applied_in_their_order() -> None:
    async def use(backend: Backend) -> list[float]:
        session = (await opened(backend)).session_id
        await created(backend, session, np.zeros(1))
        steps = [op("mul_", Id(1), 2.0), op("add_", Id(1), 1.0)] * 5
        await asyncio.gather(*(backend.call("Op", session, step.SerializeToString(), None) for step in steps))
        read = commands_pb2.ReadRequest(tensor=1).SerializeToString()
        told = commands_pb2.ReadResponse.FromString(await backend.call("Read", session, read, None))
        return np.frombuffer(told.payload.data).tolist()

    assert run(use) == [31.0]


@pytest.mark.parametrize(("least", "most", "speaks"), [(0, 0, True), (1, 3, True), (2, 3, False), (2, 0, False)])
def test_a_client_that_speaks_no_common_protocol_is_refused(least: int, most: int, speaks: bool) -> None:
    async def use(backend: Backend) -> str:
        try:
            await opened(backend, min_protocol=least, max_protocol=most)
        except Refusal as refused:
            return refused.reason
        return ""

    assert run(use) == ("" if speaks else "PROTOCOL_VERSION")


def test_another_writer_attaches_to_a_session_and_gets_the_next_number() -> None:
    async def use(backend: Backend) -> list[int]:
        first = await opened(backend)
        second = await opened(backend, session_id=first.session_id)
        assert second.session_id == first.session_id
        assert (await refusal(opened(backend, session_id="nobody's"))).reason == "SESSION_NOT_FOUND"
        return [first.writer, second.writer]

    assert run(use) == [1, 2]


def test_a_lease_that_runs_out_ends_the_session_and_keeping_it_alive_does_not() -> None:
    clock = Clock()

    async def use(backend: Backend) -> list[str]:
        kept, gone = (await opened(backend)).session_id, (await opened(backend)).session_id
        lease = (await backend.keep_alive(kept)).lease_ms / 1000
        clock.now += 0.7 * lease
        await backend.keep_alive(kept)
        clock.now += 0.7 * lease
        await asyncio.gather(*backend.sweep())
        await backend.keep_alive(kept)
        return [(await refusal(backend.keep_alive(gone))).reason]

    assert run(use, clock)[0] in ("SESSION_NOT_FOUND", "SESSION_EXPIRED")


def test_a_writer_that_the_session_lacks_is_not_cancelled() -> None:
    async def use(backend: Backend) -> tuple[bool, Refusal]:
        session = (await opened(backend)).session_id
        idle = await backend.cancel(service_pb2.CancelRequest(session_id=session))
        wrong = service_pb2.CancelRequest(session_id=session, writer=9, through_seq=1)
        return idle.cancelled, await refusal(backend.cancel(wrong))

    idle, wrong = run(use)
    assert not idle
    assert "no writer 9" in str(wrong)
    assert wrong.metadata == {"argument": "writer"}


def test_sessions_are_listed_in_pages_and_by_principal() -> None:
    async def use(backend: Backend) -> None:
        for name in ("alice", "bob", "alice"):
            token = CALLER.set(Principal(name))
            await opened(backend, client=f"client of {name}")
            CALLER.reset(token)
        page = await backend.list_sessions(service_pb2.ListSessionsRequest(page_size=2))
        assert [each.principal for each in page.sessions] == ["alice", "bob"]
        rest = await backend.list_sessions(service_pb2.ListSessionsRequest(page_token=page.next_page_token))
        assert ([each.principal for each in rest.sessions], rest.next_page_token) == (["alice"], "")
        hers = await backend.list_sessions(service_pb2.ListSessionsRequest(principal="alice"))
        assert [each.client for each in hers.sessions] == ["client of alice"] * 2
        await backend.end_session(hers.sessions[0].number)
        left = await backend.list_sessions(service_pb2.ListSessionsRequest(principal="alice"))
        assert [each.number for each in left.sessions] == [hers.sessions[1].number]
        assert (await refusal(backend.end_session(12345))).reason == "SESSION_NOT_FOUND"

    run(use)


@pytest.mark.parametrize("token", ["x", "-1", "1" * 30, "1.5"])
def test_a_page_token_of_another_kind_is_refused(token: str) -> None:
    request = service_pb2.ListSessionsRequest(page_token=token)
    assert run(lambda backend: refusal(backend.list_sessions(request))).metadata == {"argument": "page_token"}


def test_a_server_that_stores_nothing_says_so() -> None:
    async def use(backend: Backend) -> set[str]:
        stored = service_pb2.ListSessionsRequest(stored=True)
        asked = (backend.list_sessions(stored), backend.list_snapshots(), backend.end_session(1, stored=True))
        return {(await refusal(each)).reason for each in asked}

    assert run(use) == {"NOT_SUPPORTED"}


def test_ops_are_listed_by_prefix() -> None:
    async def use(backend: Backend) -> tuple[set[str], set[str]]:
        lists = [service_pb2.ListOpsResponse.FromString(await backend.list_ops(prefix)) for prefix in ("", "logic")]
        whole, some = ({each.name for each in told.ops} for told in lists)
        return whole, some

    whole, some = run(use)
    assert some == {name for name in whole if name.startswith("logic")} > {"logical_and"}


def test_an_upload_becomes_a_tensor_and_a_download_its_bytes() -> None:
    array = np.random.default_rng(1).standard_normal(50_000)
    raw = array.tobytes()

    async def use(backend: Backend) -> bytes:
        session = (await opened(backend)).session_id
        start = service_pb2.UploadStart(session_id=session, total_bytes=len(raw))
        arrival = await backend.begin_upload(session, start)
        chunk = backend.limits.chunk_bytes
        for place in range(0, len(raw), chunk):
            await backend.append(arrival, memoryview(raw)[place : place + chunk])
        assert await backend.end_upload(arrival) == len(raw)
        backend.leave_upload(arrival)
        told = commands_pb2.Transfer(transfer_id=arrival.transfer_id, dtype=types_pb2.DTYPE_FLOAT64, shape=array.shape)
        await backend.call("Create", session, commands_pb2.CreateRequest(id=1, transfer=told).SerializeToString(), None)
        read = await backend.call("Read", session, commands_pb2.ReadRequest(tensor=1).SerializeToString(), None)
        transfer = commands_pb2.ReadResponse.FromString(read).transfer.transfer_id
        found = b""
        async with aclosing(backend.chunks(session, transfer, 0)) as parts:
            async for part in parts:
                found += service_pb2.DownloadResponse.FromString(part).data
        await backend.finish_download(session, transfer)
        too_much = await backend.begin_upload(session, service_pb2.UploadStart(session_id=session, total_bytes=10))
        assert (await refusal(backend.append(too_much, memoryview(b"x" * 11)))).reason == "PAYLOAD_SIZE"
        return found

    assert run(use, chunk_bytes=64 * 1024, max_inline_bytes=1024) == raw

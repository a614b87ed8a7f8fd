"""Transfers through a ring: positions that follow each other, and a ring that is returned whatever happens."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.rpc.shared_memory import share

RING = SimpleNamespace(pid=7, fd=5, name="ring", nbytes=40, piece=20)


class Backend:
    """A backend that notes what it is asked; a download has `total` bytes, given in pieces of the ring's."""

    def __init__(self, total: int = 0) -> None:
        self.total = total
        self.did: list[tuple] = []

    async def begin_upload(self, session_id: str, start: Any) -> Any:
        return SimpleNamespace(transfer_id="t1", offset=start.offset)

    def leave_upload(self, arrival: Any) -> None:
        self.did.append(("leave",))

    async def keep_upload(self, arrival: Any) -> None:
        self.did.append(("keep",))

    async def lend_ring(self, session_id: str, nonce: str) -> Any:
        return RING

    async def return_ring(self, session_id: str, ring: Any, clean: bool) -> None:
        self.did.append(("return", clean))

    async def read_ring(self, arrival: Any, ring: Any, ring_offset: int, size: int) -> None:
        self.did.append(("read", ring_offset, size))

    async def write_ring(
        self, session_id: str, transfer_id: str, offset: int, ring: Any, ring_offset: int
    ) -> tuple[int, int]:
        size = min(ring.piece, self.total - offset)
        self.did.append(("write", offset, ring_offset))
        end = offset + size
        return size, 0 if end == self.total else end

    async def finish_download(self, session_id: str, transfer_id: str, received: bool = False) -> None:
        self.did.append(("finish", received))


async def _parts(*parts: service_pb2.ShareRequest) -> AsyncIterator[service_pb2.ShareRequest]:
    for part in parts:
        yield part


def moved(*places: int) -> list[service_pb2.ShareRequest]:
    return [service_pb2.ShareRequest(moved=ring_offset) for ring_offset in places]


def upload(total: int, offset: int = 0) -> service_pb2.ShareRequest:
    return service_pb2.ShareRequest(
        session_id="s", upload=service_pb2.UploadStart(session_id="s", total_bytes=total, offset=offset)
    )


def download() -> service_pb2.ShareRequest:
    return service_pb2.ShareRequest(
        session_id="s", download=service_pb2.DownloadRequest(session_id="s", transfer_id="t1")
    )


def run(backend: Backend, *parts: service_pb2.ShareRequest, admit: Any = lambda session_id: None) -> list:
    written: list[service_pb2.ShareResponse] = []

    async def write(response: service_pb2.ShareResponse) -> None:
        written.append(response)

    asyncio.run(share(backend, _parts(*parts), write, admit))
    return written


def test_an_upload_takes_each_piece_at_its_place_and_is_kept_when_complete() -> None:
    backend = Backend()
    written = run(backend, upload(70), *moved(20, 40, 60, 70))
    assert (written[0].ring.name, written[0].ring.bytes, written[0].transfer_id) == ("ring", 40, "t1")
    assert [each.moved for each in written[1:]] == [20, 40, 60, 70]
    assert backend.did == [
        ("read", 0, 20), ("read", 20, 20), ("read", 0, 20), ("read", 20, 10), ("keep",), ("return", True), ("leave",)
    ]  # fmt: skip


def test_a_resumed_upload_counts_from_its_offset() -> None:
    backend = Backend()
    run(backend, upload(30, offset=20), *moved(10))
    assert backend.did == [("read", 0, 10), ("keep",), ("return", True), ("leave",)]


def test_a_ring_of_an_upload_that_ended_early_is_not_clean() -> None:
    backend = Backend()
    run(backend, upload(70), *moved(20))
    assert backend.did == [("read", 0, 20), ("return", False), ("leave",)]


@pytest.mark.parametrize("ring_offset", [0, 21, 45])
def test_a_position_out_of_turn_is_refused_and_the_ring_returned(ring_offset: int) -> None:
    backend = Backend()
    with pytest.raises(Refusal, match=f"the client cannot be at {ring_offset} after 0") as refusal:
        run(backend, upload(70), *moved(ring_offset))
    assert (refusal.value.reason, refusal.value.metadata["argument"]) == ("ARGUMENT_VALUE", "moved")
    assert backend.did == [("return", False), ("leave",)]


def test_a_download_waits_for_the_client_where_the_ring_is_full() -> None:
    backend = Backend(total=90)
    written = run(backend, download(), *moved(20, 40, 60, 80, 90))
    assert [each.moved for each in written[1:]] == [20, 40, 60, 80, 90]
    assert [each for each in backend.did if each[0] == "write"] == [
        ("write", 0, 0), ("write", 20, 20), ("write", 40, 0), ("write", 60, 20), ("write", 80, 0)
    ]  # fmt: skip
    assert backend.did[-2:] == [("finish", True), ("return", True)]


def test_bytes_that_the_client_has_not_taken_are_never_overwritten() -> None:
    backend, given = Backend(total=90), []

    async def client() -> AsyncIterator[service_pb2.ShareRequest]:
        yield download()
        for ring_offset in (20, 40, 60, 80, 90):
            given.append(sum(each[0] == "write" for each in backend.did))
            yield service_pb2.ShareRequest(moved=ring_offset)

    async def write(response: service_pb2.ShareResponse) -> None:
        pass

    asyncio.run(share(backend, client(), write, lambda session_id: None))
    assert given == [2, 3, 4, 5, 5]  # two pieces fit the ring


def test_a_client_that_leaves_a_download_cancels_it() -> None:
    backend = Backend(total=90)
    with pytest.raises(Refusal, match="before it had all") as refusal:
        run(backend, download(), *moved(20))
    assert refusal.value.reason == "CANCELLED"
    assert backend.did[-1] == ("return", False)
    assert ("finish", True) not in backend.did


def test_a_client_cannot_have_taken_more_than_it_was_given() -> None:
    with pytest.raises(Refusal, match="cannot be at 95 after 0"):
        run(Backend(total=90), download(), *moved(95))


@pytest.mark.parametrize("parts", [[], [service_pb2.ShareRequest(session_id="s")], moved(3)])
def test_a_call_begins_with_upload_or_download(parts: list) -> None:
    backend = Backend()
    with pytest.raises(Refusal, match="begins with a message that has upload or download") as refusal:
        run(backend, *parts)
    assert (refusal.value.reason, backend.did) == ("MALFORMED", [])


def test_a_session_that_is_not_admitted_gets_no_ring() -> None:
    def refuse(session_id: str) -> None:
        raise Refusal("UNAVAILABLE", session_id)

    backend = Backend()
    with pytest.raises(Refusal, match=r"^s$"):
        run(backend, upload(70), admit=refuse)
    assert backend.did == []

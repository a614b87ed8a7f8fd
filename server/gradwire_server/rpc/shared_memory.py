"""Share: moves a large tensor's bytes through a ring in shared memory. Messages carry only positions."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.registry.interface import SessionBackend

Parts: TypeAlias = AsyncIterator[service_pb2.ShareRequest]
Write: TypeAlias = Callable[[service_pb2.ShareResponse], Awaitable[None]]


async def share(backend: SessionBackend, parts: Parts, write: Write, admit: Callable[[str], None]) -> None:
    """Answer a call with the messages `parts`, if `admit` accepts its session's id. Raises Refusal."""
    first = await anext(parts, None)
    if first is None or first.WhichOneof("transfer") is None:
        raise Refusal("MALFORMED", "a call begins with a message that has upload or download")
    admit(first.session_id)
    uploads = first.WhichOneof("transfer") == "upload"
    upload = await backend.begin_upload(first.session_id, first.upload) if uploads else None
    try:
        await _share(backend, first, upload, parts, write)
    finally:
        if upload is not None:
            backend.leave_upload(upload)


async def _share(
    backend: SessionBackend, first: service_pb2.ShareRequest, upload: Any, parts: Parts, write: Write
) -> None:
    transfer_id = first.download.transfer_id if upload is None else upload.transfer_id
    ring = await backend.lend_ring(first.session_id, first.nonce)
    clean = False
    try:
        lent = service_pb2.Ring(pid=ring.pid, fd=ring.fd, name=ring.name, bytes=ring.nbytes)
        await write(service_pb2.ShareResponse(ring=lent, transfer_id=transfer_id))
        if upload is not None:
            moved = await _receive(backend, upload, first.upload.total_bytes, ring, parts, write)
            # A killed client's messages end as if it had half-closed, so compare the bytes.
            clean = first.upload.offset + moved == first.upload.total_bytes
        else:
            await _send(backend, first, ring, parts, write)
            clean = True
    finally:
        await backend.return_ring(first.session_id, ring, clean)


async def _receive(backend: SessionBackend, upload: Any, total: int, ring: Any, parts: Parts, write: Write) -> int:
    moved, begun = 0, upload.offset
    async for part in parts:
        size, ring_offset = part.moved - moved, moved % ring.nbytes
        if not 0 < size <= ring.piece or ring_offset + size > ring.nbytes:
            raise _wrong_position(part.moved, moved)
        await backend.read_ring(upload, ring, ring_offset, size)
        moved += size
        if begun + moved == total:
            await backend.keep_upload(upload)
        await write(service_pb2.ShareResponse(moved=moved))
    return moved


async def _send(
    backend: SessionBackend, first: service_pb2.ShareRequest, ring: Any, parts: Parts, write: Write
) -> None:
    transfer_id, offset = first.download.transfer_id, first.download.offset
    sent = read = 0
    while True:
        while sent - read > ring.nbytes - ring.piece:
            read = await _wait_for_read(parts, read, sent)
        size, offset = await backend.write_ring(first.session_id, transfer_id, offset, ring, sent % ring.nbytes)
        sent += size
        await write(service_pb2.ShareResponse(moved=sent))
        if not offset:
            break
    while read < sent:
        read = await _wait_for_read(parts, read, sent)
    await backend.finish_download(first.session_id, transfer_id, received=True)


async def _wait_for_read(parts: Parts, read: int, sent: int) -> int:
    part = await anext(parts, None)
    if part is None:
        raise Refusal("CANCELLED", "the client ended the call before it had all")
    if not read < part.moved <= sent:
        raise _wrong_position(part.moved, read)
    return part.moved


def _wrong_position(moved: int, before: int) -> Refusal:
    return Refusal("ARGUMENT_VALUE", f"the client cannot be at {moved} after {before}", argument="moved")

"""The interface between the front and where sessions live: `SessionBackend`.

The front hands over serialized requests and gets serialized responses. A backend keeps the calls of a session in
order and raises `Refusal` for what is refused, nothing else.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol

from gradwire.v1 import files_pb2, service_pb2, snapshots_pb2
from gradwire_server.common.limits import Limits


class Files(Protocol):
    """The files that clients keep on the server's disk. Every method may raise Refusal."""

    async def save(self, session_id: str, name: str, raw: bytes) -> bytes:
        """Write a file; `raw` is the SaveFileRequest, the answer a serialized SaveFileResponse."""

    async def load(self, session_id: str, name: str, raw: bytes) -> bytes:
        """Make tensors of a file; `raw` is the LoadFileRequest, the answer a serialized LoadFileResponse."""

    async def listed(self) -> files_pb2.ListFilesResponse:
        """The caller's files."""

    async def delete(self, name: str) -> int:
        """Delete a file of the caller's; bytes freed."""


class SessionBackend(Protocol):
    """Sessions somewhere. Every method may raise Refusal."""

    limits: Limits
    local_stream: str  # OpenSessionResponse.local_stream

    @property
    def files(self) -> Files:
        """Files on the server's disk."""

    async def start(self) -> None:
        """Begin to take calls."""

    async def waiting(self) -> frozenset[str]:
        """Sessions that cannot be stored yet, since a backward of theirs waits for its client."""

    async def stop(self, grace: float) -> int:
        """Store what is to be stored, and end; how many sessions were not stored that were to be."""

    async def open_session(self, request: service_pb2.OpenSessionRequest) -> service_pb2.OpenSessionResponse:
        """Open a session or attach to one."""

    async def close_session(self, session_id: str) -> int:
        """End a session; bytes freed."""

    async def keep_alive(self, session_id: str) -> service_pb2.KeepAliveResponse:
        """Renew a lease, past whatever is computing."""

    async def cancel(self, request: service_pb2.CancelRequest) -> service_pb2.CancelResponse:
        """Stop what is computing."""

    def stop_work(self, principal: str) -> None:
        """Stop what is computed for a principal's sessions, as for one who may no longer call."""

    def call(self, method: str, session_id: str, raw: bytes, deadline: float | None) -> "asyncio.Future[bytes]":
        """Hand a command or a batch over, to be applied in the session's order. `deadline` is by time.monotonic()."""

    def when_answered(self, then: Callable[[], None]) -> None:
        """Call this whenever a request was answered."""

    def check_traffic(self, session_id: str, size: int) -> None:
        """Whether another request of so many bytes may be handed over now."""

    def is_full(self, session_id: str) -> bool:
        """Whether a session's stream is not to be read for now, since enough of its bytes wait for answers."""

    async def begin_upload(self, session_id: str, start: service_pb2.UploadStart) -> Any:
        """Begin an upload or go on with one; what `append` is to be given, with `transfer_id`."""

    async def append(self, arrival: Any, data: memoryview) -> None:
        """Take an upload's next bytes. A refusal may come with a later call."""

    async def end_upload(self, arrival: Any) -> int:
        """No more bytes come by this call; how many the upload has by now."""

    async def keep_upload(self, arrival: Any) -> None:
        """All bytes of an upload are here: where what is acknowledged is stored, they are too."""

    def leave_upload(self, arrival: Any) -> None:
        """The upload's call is over, however it went."""

    def chunks(self, session_id: str, transfer_id: str, offset: int) -> AsyncGenerator[bytes, None]:
        """Serialized DownloadResponses, from an offset on to the transfer's end."""

    async def finish_download(self, session_id: str, transfer_id: str, received: bool = False) -> None:
        """A download was sent to its end; `received` if it is known to have arrived."""

    async def lend_ring(self, session_id: str, nonce: str) -> Any:
        """Shared memory for one call: with pid, fd, name, nbytes and piece."""

    async def return_ring(self, session_id: str, ring: Any, clean: bool) -> None:
        """The call has ended; `clean` if its client is known to have done with the ring."""

    async def take(self, arrival: Any, ring: Any, place: int, size: int) -> None:
        """Take an upload's next bytes out of a ring."""

    async def give(self, session_id: str, transfer_id: str, offset: int, ring: Any, place: int) -> tuple[int, int]:
        """Put a download's next piece into a ring; its size, and where the next one begins, 0 after the last."""

    async def server_info(self) -> service_pb2.ServerInfoResponse:
        """What the server is."""

    async def list_ops(self, prefix: str) -> bytes:
        """The ops, serialized."""

    async def list_sessions(self, request: service_pb2.ListSessionsRequest) -> service_pb2.ListSessionsResponse:
        """Everybody's sessions, a page of them."""

    async def end_session(self, number: int, stored: bool = False) -> int:
        """End anybody's session, or delete a stored one that nobody uses; bytes freed."""

    async def save_session(self, request: snapshots_pb2.SaveSessionRequest, raw: bytes) -> bytes:
        """Store a session, under a name or for itself; a serialized SaveSessionResponse."""

    async def restore_session(
        self, request: snapshots_pb2.RestoreSessionRequest, raw: bytes
    ) -> service_pb2.RestoreSessionResponse:
        """Open a session that begins as a named snapshot."""

    async def list_snapshots(self) -> snapshots_pb2.ListSnapshotsResponse:
        """The caller's named snapshots."""

    async def delete_snapshot(self, name: str) -> int:
        """Delete a named snapshot of the caller's; bytes freed."""

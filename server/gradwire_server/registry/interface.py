"""Backend interface: `SessionBackend`, the protocol between the RPC service and the place where sessions run.

The front passes serialized requests and gets serialized responses. A backend keeps the calls of a session in order.
The only exception it raises is `Refusal`.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol

from gradwire.v1 import files_pb2, service_pb2, snapshots_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits


class FileStore(Protocol):
    """Files of clients on the server's disk. Every method may raise Refusal."""

    async def save(self, session_id: str, name: str, raw: bytes) -> bytes:
        """Write a file. `raw` is a SaveFileRequest; the answer is a serialized SaveFileResponse."""

    async def load(self, session_id: str, name: str, raw: bytes) -> bytes:
        """Create tensors from a file. `raw` is a LoadFileRequest; the answer is a serialized LoadFileResponse."""

    async def listed(self) -> files_pb2.ListFilesResponse:
        """The caller's files."""

    async def delete(self, name: str) -> int:
        """Delete one of the caller's files; bytes freed."""


class SessionBackend(Protocol):
    """The place where sessions run. Every method may raise Refusal."""

    limits: Limits
    local_stream: str  # OpenSessionResponse.local_stream

    @property
    def files(self) -> FileStore:
        """Files on the server's disk."""

    async def start(self) -> None:
        """Start taking calls."""

    async def unstorable_sessions(self) -> frozenset[str]:
        """Sessions that cannot be stored yet, since one of their backwards waits for its client."""

    def begin_drain(self) -> None:
        """Open no more sessions."""

    def admits_in_drain(self, method: str) -> bool:
        """Whether a call is answered while the server ends, because it is sent to another server."""

    def refusal_in_drain(self, session_id: str | None = None) -> Refusal:
        """Why a call is refused while the server ends: UNAVAILABLE, or SESSION_MOVED."""

    async def hand_over(self, finishing: frozenset[str]) -> None:
        """Give the sessions to other servers, each once its calls are answered, but not those that finish here."""

    async def stop(self, grace: float) -> int:
        """Store the sessions to keep, and end. Returns how many of them could not be stored."""

    async def open_session(self, request: service_pb2.OpenSessionRequest) -> service_pb2.OpenSessionResponse:
        """Open a session, or attach a writer to one."""

    async def close_session(self, session_id: str) -> int:
        """End a session; bytes freed."""

    async def keep_alive(self, session_id: str) -> service_pb2.KeepAliveResponse:
        """Renew a lease without waiting for running computations."""

    async def cancel(self, request: service_pb2.CancelRequest) -> service_pb2.CancelResponse:
        """Cancel the session's computations."""

    def stop_work(self, principal: str) -> None:
        """Cancel the computations of a principal's sessions, as when its credential was revoked."""

    def call(
        self,
        method: str,
        session_id: str,
        raw: bytes,
        deadline: float | None,
        at_once: Callable[[bytes], bool] | None = None,
        then: "Callable[[asyncio.Future[bytes]], None] | None" = None,
    ) -> "asyncio.Future[bytes]":
        """Submit a command or a batch, applied in the session's order. `deadline` is on time.monotonic()'s clock.

        A thread of this process that has computed the answer may call `at_once` with it, before the future is done.
        `then` is called on the event loop as soon as that has the answer; the future's callbacks need one more pass.
        """

    def stream_opened(self, session_id: str) -> None:
        """Note that a client opened a stream."""

    def stream_closed(self, session_id: str) -> None:
        """Note that a stream ended; its client may be gone."""

    def when_answered(self, then: Callable[[], None]) -> None:
        """Register a callback for each answered request."""

    def check_traffic(self, session_id: str, size: int) -> None:
        """Check that another request of `size` bytes may be submitted now. Raises Refusal: TRAFFIC_LIMIT."""

    def is_full(self, session_id: str) -> bool:
        """Whether to stop reading a session's stream, since its unanswered bytes reach the limit."""

    async def begin_upload(self, session_id: str, start: service_pb2.UploadStart) -> Any:
        """Begin or resume an upload. Returns the handle for `append`; the handle has `transfer_id`."""

    async def append(self, upload: Any, data: memoryview) -> None:
        """Receive an upload's next bytes. A later call may raise the refusal."""

    async def end_upload(self, upload: Any) -> int:
        """End this call's part of an upload; bytes received so far."""

    async def keep_upload(self, upload: Any) -> None:
        """Store a complete upload's bytes, if the server logs what it acknowledges."""

    def leave_upload(self, upload: Any) -> None:
        """Release an upload's call, successful or not."""

    def chunks(self, session_id: str, transfer_id: str, offset: int) -> AsyncGenerator[bytes, None]:
        """Serialized DownloadResponses, from an offset to the transfer's end."""

    async def finish_download(self, session_id: str, transfer_id: str, received: bool = False) -> None:
        """Finish a download that was sent completely; `received` if the client confirmed it."""

    async def lend_ring(self, session_id: str, nonce: str) -> Any:
        """Lend shared memory for one call: an object with pid, fd, name, nbytes and piece."""

    async def return_ring(self, session_id: str, ring: Any, clean: bool) -> None:
        """Return a ring after its call; `clean` if the client is known to be done with it."""

    async def read_ring(self, upload: Any, ring: Any, ring_offset: int, size: int) -> None:
        """Receive an upload's next bytes from a ring."""

    async def write_ring(
        self, session_id: str, transfer_id: str, offset: int, ring: Any, ring_offset: int
    ) -> tuple[int, int]:
        """Write a download's next piece into a ring; its size, and the next piece's offset, 0 after the last."""

    async def server_info(self) -> service_pb2.ServerInfoResponse:
        """Description of the server."""

    async def list_ops(self, prefix: str, known_hash: str = "") -> bytes:
        """The ops whose names begin with `prefix`: a serialized ListOpsResponse, without ops if their hash is known."""

    async def list_sessions(self, request: service_pb2.ListSessionsRequest) -> service_pb2.ListSessionsResponse:
        """One page of all principals' sessions."""

    async def end_session(self, number: int, stored: bool = False) -> int:
        """End any principal's session, or with `stored` delete an evicted one; bytes freed."""

    async def save_session(self, request: snapshots_pb2.SaveSessionRequest, raw: bytes) -> bytes:
        """Store a session's own state or a named snapshot; a serialized SaveSessionResponse."""

    async def restore_session(
        self, request: snapshots_pb2.RestoreSessionRequest, raw: bytes
    ) -> service_pb2.RestoreSessionResponse:
        """Open a session that begins as a named snapshot."""

    async def list_snapshots(self) -> snapshots_pb2.ListSnapshotsResponse:
        """The caller's named snapshots."""

    async def delete_snapshot(self, name: str) -> int:
        """Delete one of the caller's named snapshots; bytes freed."""

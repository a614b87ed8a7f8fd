"""Finalizer: ends a session at `close`, or in the maintenance thread after the session is garbage-collected.

The garbage collector may run a finalizer anywhere, even while gRPC holds a lock, so a finalizer must not block. It only
queues an object that can end the session. This object is separate from the session: in a garbage cycle, the channel
might be finalized before the session.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import TYPE_CHECKING

from gradwire._base.errors import GradwireError
from gradwire.v1 import service_pb2

if TYPE_CHECKING:
    from gradwire._transport.embedded import EmbeddedServer
    from gradwire._transport.transport import Transport

_PATIENCE_SECONDS = 5.0
_WAITS = (0.02, 0.1, 0.3)  # seconds between attempts; few, because the server may be down


class Finalizer:
    """The state needed to end a session, independent of the session object."""

    __slots__ = ("_embedded", "_session_id", "_transport")

    def __init__(self, transport: Transport, session_id: str, embedded: EmbeddedServer | None) -> None:
        self._transport = transport
        self._session_id = session_id
        self._embedded = embedded

    def run(self) -> None:
        """Free the session's tensors on the server and close the channel.

        An embedded server is stopped instead, without a CloseSession call. Raises GradwireError if the server cannot be
        reached.
        """
        try:
            if self._embedded is None:
                request = service_pb2.CloseSessionRequest(session_id=self._session_id)
                self._transport.call(
                    "CloseSession", request, service_pb2.CloseSessionResponse, _PATIENCE_SECONDS, _WAITS
                )
        finally:
            self._transport.close()
            if self._embedded is not None:
                self._embedded.stop()


class Orphans:
    """The finalizers of garbage-collected sessions."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Clear the queue; also in a forked child, because the earlier finalizers belong to the parent."""
        # SimpleQueue.put is reentrant: a finalizer's put may interrupt another put.
        self._finalizers: queue.SimpleQueue[Finalizer] = queue.SimpleQueue()
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.Lock()

    def put(self, finalizer: Finalizer) -> None:
        """Queue a finalizer for the next call of `end`."""
        self._finalizers.put(finalizer)
        self._wakeups.put(None)

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`, or until a finalizer is queued."""
        with contextlib.suppress(queue.Empty):
            self._wakeups.get(timeout=seconds)

    def end(self) -> None:
        """Run all queued finalizers, and wait for those that another thread is running."""
        with self._lock, contextlib.suppress(queue.Empty):
            while True:
                finalizer = self._finalizers.get_nowait()
                # A session whose server is unreachable needs no end.
                with contextlib.suppress(GradwireError):
                    finalizer.run()


ORPHANS = Orphans()

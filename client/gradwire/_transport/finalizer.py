"""How a session ends: at once where somebody closes it, else by the keeper thread once nothing refers to it.

A finalizer runs wherever the garbage collector happens to, inside a lock of gRPC's too, so it must wait for nothing:
it only puts what the end needs into a queue. That is held apart from the session, for in a cycle of garbage the channel
might be finalized before the session is.
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
_WAITS = (0.02, 0.1, 0.3)  # a connection may break; a server that is gone is not waited for


class Finalizer:
    """What ends a session, whether or not its object is still there."""

    __slots__ = ("_embedded", "_session_id", "_transport")

    def __init__(self, transport: Transport, session_id: str, embedded: EmbeddedServer | None) -> None:
        self._transport = transport
        self._session_id = session_id
        self._embedded = embedded

    def run(self) -> None:
        """Free the session's tensors on the server and close the channel. Raises GradwireError if it is out of reach.

        An embedded server ends with its session, so it need not be told first.
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
    """The endings of sessions that nothing refers to any more."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start empty; also in a forked child, for those before are the parent's."""
        # Of all queues these allow a put that interrupts another, as a finalizer's may.
        self._endings: queue.SimpleQueue[Finalizer] = queue.SimpleQueue()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.Lock()

    def put(self, ending: Finalizer) -> None:
        """Leave an ending to whoever comes first."""
        self._endings.put(ending)
        self._bell.put(None)

    def wait(self, seconds: float) -> None:
        """Sleep so long, or until there is one."""
        with contextlib.suppress(queue.Empty):
            self._bell.get(timeout=seconds)

    def end(self) -> None:
        """End all there are; also those that another thread is about to end have ended after that."""
        with self._lock, contextlib.suppress(queue.Empty):
            while True:
                ending = self._endings.get_nowait()
                # One whose server is gone needs no end.
                with contextlib.suppress(GradwireError):
                    ending.run()


ORPHANS = Orphans()

"""Shared memory: transfers large tensors to a server of the same machine and user (RPC Share).

The server creates a ring, which is anonymous shared memory. The client verifies the ring before use. The ring must have
a sealed size. Its name must be the nonce that the client just sent, or the name of the previous call's ring.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import mmap
import os
import queue
import secrets
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire._transport.transport import Transport, stream_messages
from gradwire.v1 import service_pb2

#: Minimum bytes for shared memory. Smaller transfers finish before a ring is set up.
SHARED_FROM = 2 << 20
_MOST_RING_BYTES = 256 << 20
Array = npt.NDArray[Any]


class NotShared(Exception):
    """The shared memory cannot be opened or fails verification."""


@functools.cache
def machine() -> str:
    """The id of this machine and user, as in OpenSessionResponse.machine; "" if it cannot be determined."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        spaces = [os.stat(f"/proc/self/ns/{name}").st_ino for name in ("pid", "user")]
    except OSError:  # not Linux
        return ""
    return hashlib.sha256(f"{boot} {spaces[0]} {spaces[1]} {os.getuid()}".encode()).hexdigest()[:32]


def may_share(opened: service_pb2.OpenSessionResponse) -> bool:
    """Whether the server is on this machine. GRADWIRE_SHARED_MEMORY=0 disables shared memory."""
    return bool(opened.machine) and opened.machine == machine() and os.environ.get("GRADWIRE_SHARED_MEMORY") != "0"


def open_ring(ring: service_pb2.Ring) -> Array:
    """Map the server's ring after verification, as uint8. Raises NotShared."""
    import fcntl  # missing on Windows, where servers share no memory

    wanted = f"/memfd:gradwire-{ring.name} (deleted)"
    try:
        path = f"/proc/{ring.pid}/fd/{ring.fd}"
        if os.readlink(path) != wanted:  # checked before opening: it might be a device
            raise NotShared(f"{path} is not the server's memory")
        opened = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            sealed = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
            if (
                os.readlink(f"/proc/self/fd/{opened}") != wanted
                or fcntl.fcntl(opened, fcntl.F_GET_SEALS) & sealed != sealed
                or not 0 < os.fstat(opened).st_size == ring.bytes <= _MOST_RING_BYTES
            ):
                raise NotShared(f"{path} is not the server's memory")
            mapped = mmap.mmap(opened, ring.bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        finally:
            os.close(opened)
    except OSError as error:
        raise NotShared(str(error)) from None
    return np.frombuffer(mapped, np.uint8)


class SharedTransfer:
    """One call of Share. `ring` is the memory. Each side sends the position it has reached in the transfer."""

    def __init__(self, transport: Transport, first: service_pb2.ShareRequest, known: dict[str, Array]) -> None:
        self._known = known
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        first.nonce = secrets.token_hex(16)
        self._messages.put(first.SerializeToString())
        self._call = transport.start_stream("stream_stream", "Share", iter(self._messages.get, None))
        try:
            self._begin(first.nonce)
        except BaseException:
            self.cancel()
            raise

    def _begin(self, nonce: str) -> None:
        answer = self._next()
        self.transfer_id = answer.transfer_id
        self._name = answer.ring.name
        # Removed while in use: the server does not lend the ring of a broken call again.
        ring = self._known.pop(self._name, None)
        if ring is None and self._name != nonce:
            raise NotShared("the server's memory was made for another request")
        self.ring = open_ring(answer.ring) if ring is None else ring
        self.piece = self.ring.nbytes // 2

    def _next(self) -> service_pb2.ShareResponse:
        for raw in stream_messages(self._call):
            return service_pb2.ShareResponse.FromString(raw)
        raise NotShared("the server ended the call early")

    def send_position(self, moved: int) -> None:
        """Send the client's position in bytes."""
        self._messages.put(service_pb2.ShareRequest(moved=moved).SerializeToString())

    def receive_position(self, least: int, most: int) -> int:
        """Wait until the server's position is above `least` and at most `most`; return it. Raises NotShared."""
        moved = self._next().moved
        if not least < moved <= most:
            raise NotShared(f"the server cannot be at {moved} after {least}")
        return moved

    def finish(self) -> None:
        """End the complete call, and keep the ring for the next call."""
        self._messages.put(None)
        for _ in stream_messages(self._call):
            pass
        self._known.clear()
        self._known[self._name] = self.ring

    def cancel(self) -> None:
        """Cancel the call."""
        self._messages.put(None)
        with contextlib.suppress(ValueError):  # another thread has closed the channel
            self._call.cancel()

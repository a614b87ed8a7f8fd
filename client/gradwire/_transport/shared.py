"""Large tensors' bytes through shared memory, where the server is on this machine and of this user (Share).

The server makes a ring, small memory without a name; what it says of it is believed only as far as it was seen: it
must be memory of a fixed size, made for a word that this client has just thought of, or the one of the call before.
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

from gradwire._transport.transport import Transport, answers
from gradwire.v1 import service_pb2

#: Smaller tensors are through before a ring is there.
SHARED_FROM = 2 << 20
_MOST_RING_BYTES = 256 << 20
Array = npt.NDArray[Any]


class NotShared(Exception):
    """The memory cannot be had, or is not what it should be."""


@functools.cache
def machine() -> str:
    """Which machine and user this is, as a server tells it (OpenSessionResponse.machine); empty if not to be known."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        spaces = [os.stat(f"/proc/self/ns/{name}").st_ino for name in ("pid", "user")]
    except OSError:  # no Linux
        return ""
    return hashlib.sha256(f"{boot} {spaces[0]} {spaces[1]} {os.getuid()}".encode()).hexdigest()[:32]


def may_share(opened: service_pb2.OpenSessionResponse) -> bool:
    """Whether it is worth asking for shared memory; GRADWIRE_SHARED_MEMORY=0 says no."""
    return bool(opened.machine) and opened.machine == machine() and os.environ.get("GRADWIRE_SHARED_MEMORY") != "0"


def open_ring(ring: service_pb2.Ring) -> Array:
    """The server's memory. Raises NotShared."""
    import fcntl  # not everywhere, but wherever a server is that shares

    wanted = f"/memfd:gradwire-{ring.name} (deleted)"
    try:
        place = f"/proc/{ring.pid}/fd/{ring.fd}"
        if os.readlink(place) != wanted:  # looked at before it is opened: it might be a device
            raise NotShared(f"{place} is not the server's memory")
        opened = os.open(place, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            sealed = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
            if (
                os.readlink(f"/proc/self/fd/{opened}") != wanted
                or fcntl.fcntl(opened, fcntl.F_GET_SEALS) & sealed != sealed
                or not 0 < os.fstat(opened).st_size == ring.bytes <= _MOST_RING_BYTES
            ):
                raise NotShared(f"{place} is not the server's memory")
            mapped = mmap.mmap(opened, ring.bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        finally:
            os.close(opened)
    except OSError as error:
        raise NotShared(str(error)) from None
    return np.frombuffer(mapped, np.uint8)


class Exchange:
    """One call of Share. `ring` is the memory; `moved` tells the server where the client is, `hear` where it is."""

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
        # Taken out while it is in use: a call that breaks leaves a ring that the server will not lend again.
        ring = self._known.pop(self._name, None)
        if ring is None and self._name != nonce:
            raise NotShared("the server's memory is of another's asking")
        self.ring = open_ring(answer.ring) if ring is None else ring
        self.piece = self.ring.nbytes // 2

    def _next(self) -> service_pb2.ShareResponse:
        for raw in answers(self._call):
            return service_pb2.ShareResponse.FromString(raw)
        raise NotShared("the server ended the call early")

    def tell(self, moved: int) -> None:
        """Say how far the client is."""
        self._messages.put(service_pb2.ShareRequest(moved=moved).SerializeToString())

    def hear(self, least: int, most: int) -> int:
        """Wait until the server is further than `least`, at `most` at the furthest; where it is."""
        moved = self._next().moved
        if not least < moved <= most:
            raise NotShared(f"the server cannot be at {moved} after {least}")
        return moved

    def finish(self) -> None:
        """All is through: end the call, and keep the ring for the next one."""
        self._messages.put(None)
        for _ in answers(self._call):
            pass
        self._known.clear()
        self._known[self._name] = self.ring

    def cancel(self) -> None:
        """End the call somewhere in the middle."""
        self._messages.put(None)
        with contextlib.suppress(ValueError):  # another thread has closed the channel
            self._call.cancel()

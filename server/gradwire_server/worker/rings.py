"""Rings: transfer large tensors' bytes through shared memory, between processes of one machine and one user.

A ring is anonymous memory (a memfd). The client opens it as /proc/<pid>/fd/<fd>; the kernel's permission check
authenticates the client. The kernel frees the memory however either process ends. The size is sealed, so a client
cannot remove pages under a reader, and all pages are allocated at creation. Bytes are copied out before they are
validated, so a client that writes at the wrong time changes only values in transit. A ring is small enough to stay in
the processor's cache, so only the tensor's own memory is newly touched.
"""

import fcntl
import functools
import hashlib
import mmap
import os
import re
import threading
import time
from typing import Any

from gradwire_server.common.errors import Refusal

RING_BYTES = 8 << 20
IDLE_SECONDS = 10.0  # how long a session's ring is kept for its next transfer
_NONCE = re.compile(r"[A-Za-z0-9]{8,64}")


@functools.cache
def machine() -> str:
    """Identify this machine and user (OpenSessionResponse.machine); empty if rings are not supported."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        spaces = [os.stat(f"/proc/self/ns/{name}").st_ino for name in ("pid", "user")]
        descriptor, _ = _shared_memory("test" * 2, mmap.PAGESIZE)
        os.close(descriptor)
    except (OSError, AttributeError):  # not Linux, or access denied
        return ""
    return hashlib.sha256(f"{boot} {spaces[0]} {spaces[1]} {os.getuid()}".encode()).hexdigest()[:32]


def _shared_memory(name: str, nbytes: int) -> tuple[int, mmap.mmap]:
    """New shared memory of a fixed size: its descriptor and its mapping. Raises OSError, AttributeError."""
    descriptor = os.memfd_create(f"gradwire-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(descriptor, 0, nbytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return descriptor, mmap.mmap(descriptor, nbytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    except BaseException:
        os.close(descriptor)
        raise


class Ring:
    """One ring's memory. `bytes` is its uint8 array; a transfer alternates between pieces of `piece` bytes."""

    def __init__(self, name: str, nbytes: int) -> None:
        self.name = name
        self.nbytes = nbytes
        self.piece = nbytes // 2
        self.pid = os.getpid()
        self.since = 0.0
        self.fd, mapped = _shared_memory(name, nbytes)
        import numpy as np  # the front imports this file, and needs it for transfers only

        self.bytes: np.ndarray[Any, Any] = np.frombuffer(mapped, np.uint8)

    def close(self) -> None:
        """Close the descriptor and drop the mapping; the last process to unmap the memory frees it."""
        os.close(self.fd)
        self.bytes = self.bytes[:0].copy()


class Rings:
    """A runtime's rings, `limit` bytes at most. Each is lent to one call at a time and kept for the session's next."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self._idle: dict[int, list[Ring]] = {}
        self._lock = threading.Lock()

    def take(self, session: int, nonce: str) -> Ring:
        """Take an idle ring of the session, or create one. Raises Refusal: ARGUMENT_VALUE, NOT_SUPPORTED."""
        if not _NONCE.fullmatch(nonce):
            raise Refusal("ARGUMENT_VALUE", "a nonce is 8 to 64 letters and digits", argument="nonce")
        with self._lock:
            if self._idle.get(session):
                return self._idle[session].pop()
            if self.bytes + RING_BYTES > self.limit:
                self._tidy(0.0)
            if not machine() or self.bytes + RING_BYTES > self.limit:
                raise Refusal("NOT_SUPPORTED", "there is no shared memory available; use Upload and Download")
            try:
                ring = Ring(nonce, RING_BYTES)
            except OSError as error:
                raise Refusal("NOT_SUPPORTED", f"there is no shared memory available: {error.strerror}") from None
            self.bytes += RING_BYTES
            return ring

    def give_back(self, session: int, ring: Ring, again: bool) -> None:
        """Give back a ring after a call. `again` only if the client cannot still write into it; else it is closed."""
        with self._lock:
            if again:
                ring.since = time.monotonic()
                self._idle.setdefault(session, []).append(ring)
            else:
                self._close(ring)

    def tidy(self) -> None:
        """Close rings that were idle for IDLE_SECONDS."""
        if self._idle:
            with self._lock:
                self._tidy(IDLE_SECONDS)

    def _tidy(self, seconds: float) -> None:
        latest = time.monotonic() - seconds
        for session, rings in list(self._idle.items()):
            for ring in [ring for ring in rings if ring.since <= latest]:
                rings.remove(ring)
                self._close(ring)
            if not rings:
                del self._idle[session]

    def _close(self, ring: Ring) -> None:
        self.bytes -= ring.nbytes
        ring.close()

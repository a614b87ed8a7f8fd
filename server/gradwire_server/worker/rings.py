"""Rings: shared memory that large tensors' bytes pass through, between processes of one machine and one user.

A ring is memory without a name (a memfd), which a client opens as /proc/<pid>/fd/<fd>: that the kernel lets it do so is
the proof of who it is, and nothing is left behind however either side ends. Its size is sealed, so that no client
can take pages away under a reader, and its pages are there from the start. Bytes are copied out before they are looked
at: who scribbles into a ring changes no values but those on their way. It is small, so it stays in the processor's
cache, and new memory is touched only where the tensor will be.
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

import numpy as np

from gradwire_server.common.errors import Refusal

RING_BYTES = 8 << 20
IDLE_SECONDS = 10.0  # how long a session's ring is kept for its next transfer
_NONCE = re.compile(r"[A-Za-z0-9]{8,64}")


@functools.cache
def machine() -> str:
    """Which machine and user this is (OpenSessionResponse.machine); empty where rings cannot be had."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        spaces = [os.stat(f"/proc/self/ns/{name}").st_ino for name in ("pid", "user")]
        Ring("test" * 2, mmap.PAGESIZE).close()
    except (OSError, AttributeError):  # no Linux, or one that is locked down
        return ""
    return hashlib.sha256(f"{boot} {spaces[0]} {spaces[1]} {os.getuid()}".encode()).hexdigest()[:32]


class Ring:
    """The memory. `bytes` is an array of it; pieces of `piece` bytes go through it in turn."""

    def __init__(self, name: str, nbytes: int) -> None:
        self.name = name
        self.nbytes = nbytes
        self.piece = nbytes // 2
        self.pid = os.getpid()
        self.since = 0.0
        self.fd = os.memfd_create(f"gradwire-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(self.fd, 0, nbytes)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            mapped = mmap.mmap(self.fd, nbytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        except BaseException:
            os.close(self.fd)
            raise
        self.bytes: np.ndarray[Any, Any] = np.frombuffer(mapped, np.uint8)

    def close(self) -> None:
        """Let go of it; the memory goes with the last who has it mapped."""
        os.close(self.fd)
        self.bytes = np.empty(0, np.uint8)


class Rings:
    """A host's rings: lent to one call at a time, and kept for the session's next one. At most `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self._idle: dict[int, list[Ring]] = {}
        self._lock = threading.Lock()

    def take(self, session: int, nonce: str) -> Ring:
        """A ring of the session's, or a new one. Raises Refusal: ARGUMENT_VALUE, NOT_SUPPORTED."""
        if not _NONCE.fullmatch(nonce):
            raise Refusal("ARGUMENT_VALUE", "a nonce is 8 to 64 letters and digits", argument="nonce")
        with self._lock:
            if self._idle.get(session):
                return self._idle[session].pop()
            if self.bytes + RING_BYTES > self.limit:
                self._tidy(0.0)
            if not machine() or self.bytes + RING_BYTES > self.limit:
                raise Refusal("NOT_SUPPORTED", "there is no shared memory to be had; use Upload and Download")
            try:
                ring = Ring(nonce, RING_BYTES)
            except OSError as error:
                raise Refusal("NOT_SUPPORTED", f"there is no shared memory to be had: {error.strerror}") from None
            self.bytes += RING_BYTES
            return ring

    def give_back(self, session: int, ring: Ring, again: bool) -> None:
        """A call has ended. Where its client may still write into the ring, nobody else is to have it `again`."""
        with self._lock:
            if again:
                ring.since = time.monotonic()
                self._idle.setdefault(session, []).append(ring)
            else:
                self._close(ring)

    def tidy(self) -> None:
        """Drop those that nobody has used for a while."""
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

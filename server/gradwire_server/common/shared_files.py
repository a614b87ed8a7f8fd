"""Shared files: files in memory without a name, which processes of one user on one machine open by their location."""

import os
from collections.abc import Sequence

#: Distance of the two regions of a rank's memory, in bytes: its file is sparse.
REGION = 1 << 40


def location(fd: int) -> list[int]:
    """Where other processes find a file of this process: process, descriptor, and inode."""
    return [os.getpid(), fd, os.fstat(fd).st_ino]


def opened(where: Sequence[int]) -> int:
    """A descriptor of a file at another process's `location`, read-only. Raises OSError if that has closed it.

    The process may have used the descriptor's number again, for values of another session: the inode tells.
    """
    process, number, inode = where[:3]
    fd = os.open(f"/proc/{process}/fd/{number}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if os.fstat(fd).st_ino != inode:
        os.close(fd)
        raise FileNotFoundError(f"process {process} has closed the file")
    return fd

"""Process memory: what another process of this machine holds at an address, copied by one call of the kernel.

Linux allows it for processes of one user, unless its security modules or a container forbid it (process_vm_readv(2)).
A number of a process may be used again once it has ended, so each read ends with a look at whether it still runs.
"""

import ctypes
import errno
import os
import select
from functools import cache
from typing import Any

import numpy as np

HostArray = np.ndarray[Any, Any]


class _Piece(ctypes.Structure):
    """iovec."""

    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_size_t))


@cache
def _call() -> Any:
    """The function of the C library. Raises AttributeError where there is none."""
    found = ctypes.CDLL(None, use_errno=True).process_vm_readv
    number, pieces = ctypes.c_ulong, ctypes.POINTER(_Piece)
    found.argtypes = (ctypes.c_int, pieces, number, pieces, number, number)
    found.restype = ctypes.c_ssize_t
    return found


class ProcessMemory:
    """The memory of a process."""

    def __init__(self, process: int) -> None:
        """Raises OSError if it has ended, or if the system cannot tell that."""
        self._process = process
        self._descriptor = os.pidfd_open(process)
        self._ended = select.poll()
        self._ended.register(self._descriptor, select.POLLIN)

    def read(self, address: int, into: HostArray) -> None:
        """Copy what it has at an address into a row-major array. Raises OSError; the array has zeros then."""
        if not into.nbytes:
            return
        own, other = _Piece(into.ctypes.data, into.nbytes), _Piece(address, into.nbytes)
        copied = _call()(self._process, own, 1, other, 1, 0)
        if copied == into.nbytes and not self._ended.poll(0):
            return
        code = ctypes.get_errno() if copied < 0 else errno.ESRCH if copied == into.nbytes else errno.EFAULT
        into[...] = 0
        raise OSError(code, f"process {self._process} cannot be read: {os.strerror(code)}")

    def has(self, address: int, expected: HostArray) -> bool:
        """Whether it can be read, and has the expected values at an address."""
        found = np.zeros_like(expected)
        try:
            self.read(address, found)
        except (OSError, AttributeError):
            return False
        return bool((found == expected).all())

    def close(self) -> None:
        """Close the descriptor. No other call may follow."""
        os.close(self._descriptor)

"""Process memory: what another process of this machine holds at an address, copied by one call of the kernel.

Linux allows it for processes of one user, unless its security modules or a container forbid it (process_vm_readv(2)).
"""

import ctypes
import os
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


def read(process: int, address: int, into: HostArray) -> None:
    """Copy what a process has at an address into a row-major array. Raises OSError."""
    if not into.nbytes:
        return
    own, other = _Piece(into.ctypes.data, into.nbytes), _Piece(address, into.nbytes)
    copied = _call()(process, own, 1, other, 1, 0)
    if copied < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"process {process} cannot be read: {os.strerror(code)}")
    if copied != into.nbytes:
        raise OSError(f"process {process} has {copied} of {into.nbytes} bytes at this address")


def can_read(process: int, address: int, expected: HostArray) -> bool:
    """Whether a process can be read: it has the expected values at an address."""
    found = np.zeros_like(expected)
    try:
        read(process, address, found)
    except (OSError, AttributeError):
        return False
    return bool((found == expected).all())

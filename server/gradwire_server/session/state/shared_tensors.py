"""Shared tensors: tensors whose memory the workers of a group's other ranks map, instead of copying from it.

To copy from another process costs more than the reduction itself (process_memory.py). So a tensor that is reduced a
second time moves to a file in memory. Its array must have no other reference than the tensor's, so that no view, saved
value or plan keeps the old memory. The account counts the bytes as before.

A rank keeps the mappings of its last reduction only. When a tensor is gone, its file gives its memory back, although
others may still have it mapped: they would find zeros there.

Each file and each mapping needs descriptors. All sessions of a process together take a share of those it may have.
What is beyond it is copied.
"""

import contextlib
import mmap
import os
import resource
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradwire_engine import Account, Tensor
from gradwire_engine.core.errors import EngineError
from gradwire_engine.core.reduction import HostArray
from gradwire_server.common.shared_files import opened

LEAST = 1 << 20  # bytes of a tensor that moves
MOST = 1 << 28  # bytes of all tensors of a session that have moved
_MOST_TENSORS = 64  # of a session that have moved
_REFERENCES = 2  # to an array that only its tensor holds: the tensor's, and the argument of the question
_OPEN: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()  # of all sessions: the files and mappings
_DESCRIPTORS = 2  # of a file: the own one, and Python's for the memory; a mapping has the latter
_SHARE = 4  # the process may have this many times the descriptors


class File(NamedTuple):
    """Where other processes find a tensor's memory: this process's descriptor, and the inode."""

    descriptor: int
    inode: int
    nbytes: int


class SharedTensors:
    """The tensors of a session that have moved. Only the compute thread calls it."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._seen: weakref.WeakValueDictionary[int, HostArray] = weakref.WeakValueDictionary()
        self._files: dict[int, File] = {}  # by address, as long as the memory is in use
        self._ends: dict[int, weakref.finalize[..., Any]] = {}

    def prepare(self, tensors: Sequence[Tensor]) -> None:
        """Move those that are reduced a second time, if there is room."""
        for each in tensors:
            if type(each.array) is not np.ndarray or each.array.nbytes < LEAST:
                continue
            if not _is_seen(self._seen, each.array):
                self._seen[id(each.array)] = each.array
            elif self.file_of(each.array) is None and _is_alone(each) and self._has_room(each.array.nbytes):
                self._move(each)

    def file_of(self, array: HostArray) -> File | None:
        """The file that has the values of a row-major array, from its start on; None if none has."""
        found = self._files.get(array.ctypes.data)
        return found if found is not None and found.nbytes == array.nbytes else None

    def _has_room(self, nbytes: int) -> bool:
        files = list(self._files.values())
        if len(files) >= _MOST_TENSORS or sum(each.nbytes for each in files) + nbytes > MOST or not _is_below_share():
            return False
        try:
            self._account.admit(nbytes)  # while the values are there twice
        except EngineError:
            return False
        return True

    def _move(self, tensor: Tensor) -> None:
        array = tensor.array
        try:
            descriptor = os.memfd_create("gradwire-tensor", os.MFD_CLOEXEC)
        except OSError:
            return
        try:
            os.posix_fallocate(descriptor, 0, array.nbytes)  # a write to missing pages would end the process
            memory = mmap.mmap(descriptor, array.nbytes, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        except (OSError, MemoryError):
            os.close(descriptor)
            return
        base: HostArray = np.ndarray(array.shape, array.dtype, memory)
        base[...] = array
        made = base[...]  # as views of it, it has a base that is an array
        address = made.ctypes.data
        self._files[address] = File(descriptor, os.fstat(descriptor).st_ino, made.nbytes)
        # All views refer to `base`. While it is forgotten, the address is not used again: it keeps the memory.
        self._ends[address] = end = weakref.finalize(base, self._forget(), address, memory)
        end.atexit = False
        _OPEN.add(memory)
        self._seen[id(made)] = made
        tensor.array = made

    def _forget(self) -> Callable[[int, mmap.mmap], None]:
        """What closes the file of a tensor that is gone, and gives its memory back. It does not keep this object."""
        files, ends, process = self._files, self._ends, os.getpid()

        def forget(address: int, memory: mmap.mmap) -> None:
            if os.getpid() != process:
                return  # in a fork (worker/forked_op.py), which shares the memory
            with contextlib.suppress(OSError):  # then the memory lasts until no rank has it mapped
                memory.madvise(mmap.MADV_REMOVE)
            del ends[address]
            os.close(files.pop(address).descriptor)

        return forget

    def close(self) -> None:
        """Close all files. The tensors keep their memory."""
        for address, end in list(self._ends.items()):
            if end.detach() is not None:  # otherwise another thread is closing it
                del self._ends[address]
                os.close(self._files.pop(address).descriptor)


def _is_below_share() -> bool:
    """Whether the process may open another file, or map one."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit < 0 or (len(_OPEN) + 1) * _DESCRIPTORS * _SHARE <= limit


def _is_seen(seen: Mapping[int, HostArray], array: HostArray) -> bool:
    return seen.get(id(array)) is array


def _is_alone(tensor: Tensor) -> bool:
    """Whether an array owns its memory, row by row, and nothing but the tensor refers to it."""
    array = tensor.array
    whole = array.base is None and array.flags.owndata and array.flags.c_contiguous and array.flags.writeable
    del array
    return whole and sys.getrefcount(tensor.array) == _REFERENCES


class MappedTensors:
    """The other ranks' shared tensors that one rank has mapped, read-only."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, int, int], HostArray] = {}
        self._used: dict[tuple[int, int, int], HostArray] = {}

    def find(self, process: int, descriptor: int, inode: int, nbytes: int) -> HostArray | None:
        """The bytes of a process's file, until a reduction ends that does not use them.

        None if it cannot be mapped: the process has closed it, or this one has too many files open.
        """
        key = process, descriptor, inode
        found = self._used.get(key)
        if found is None:
            found = self._held.get(key)
            if found is None or found.nbytes < nbytes:
                found = _mapped(key, nbytes)
            if found is None:
                return None
            self._used[key] = found
        return found[:nbytes]

    def end(self) -> None:
        """End a reduction: keep what it has used, and nothing else."""
        self._held, self._used = self._used, {}

    def clear(self) -> None:
        """Keep nothing."""
        self._held, self._used = {}, {}


def _mapped(where: tuple[int, int, int], nbytes: int) -> HostArray | None:
    """Map a file. None if its process has closed it, it is too short, or this process has too many files open."""
    if not _is_below_share():
        return None
    try:
        descriptor = opened(where)
    except OSError:
        return None
    try:
        made = mmap.mmap(descriptor, nbytes, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ)
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    _OPEN.add(made)
    return np.frombuffer(made, np.uint8)

"""NCCL by CuPy: collectives between GPUs of several processes, without a way through the host's memory.

A `Communicator` is one rank's end. Its own thread makes NCCL's calls and waits for their stream, for both may wait for
other ranks. The wait is bounded: it ends at a time limit, at an error of NCCL, and when the communicator is aborted.
While NCCL connects the ranks, nothing ends the thread's call. Who waits for it is told nevertheless.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gradwire_engine.core.device import Array, cupy, row_major_copy, selected
from gradwire_engine.core.dtypes import COMPLEX, FLOAT, DType, category, name_of

_LEAST_VERSION = 21000  # NCCL 2.10 has averages and bfloat16
_SUM, _PRODUCT, _MAX, _MIN, _AVERAGE = range(5)  # ncclRedOp_t
_OPS = {"sum": _SUM, "product": _PRODUCT, "max": _MAX, "min": _MIN, "avg": _AVERAGE}
_OF_BOOLS = {"sum": _MAX, "max": _MAX, "bor": _MAX, "product": _MIN, "min": _MIN, "band": _MIN}
_BYTE = 1  # ncclUint8
_TYPES = {
    "int8": 0, "uint8": _BYTE, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip  # ncclDataType_t
_PARTS = {"complex64": "float32", "complex128": "float64"}
_POLL_SECONDS = 0.0002  # between two looks at the stream
_STARTED_SECONDS = 0.005  # after which the looks are rarer
_SLOW_POLL_SECONDS = 0.002
_LATE = "another rank's GPU did not take part in time"


@cache
def library() -> Any:
    """cupy.cuda.nccl; None if it is missing or too old."""
    module = cupy()
    if module is None:
        return None
    try:
        found = module.cuda.nccl
        return found if found.get_version() >= _LEAST_VERSION else None
    except (AttributeError, ImportError, RuntimeError):  # CuPy was built without NCCL, or cannot load it
        return None


def identity(device: str) -> str:
    """Names a GPU among those of all machines."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"{boot}/{cupy().cuda.Device(int(device[5:])).pci_bus_id}"  # type: ignore[union-attr]


@dataclass(frozen=True)
class Encoding:
    """How NCCL computes with a dtype: its type, how many of these an element has, and the reduction."""

    type: int
    per_element: int
    op: int = _SUM


def encoding(dtype: DType, reduction: str | None) -> Encoding | None:
    """The encoding for a reduction, or for copies; None where NCCL would give other values, or has none.

    NCCL says nothing of nan in a least or greatest value. Values of two bytes are rounded after each addition.
    """
    name, kind = name_of(dtype), category(dtype)
    if reduction is None:
        return Encoding(_BYTE, dtype.itemsize)
    if name == "bool":
        return None if reduction not in _OF_BOOLS else Encoding(_BYTE, 1, _OF_BOOLS[reduction])
    if reduction not in _OPS or (reduction in ("min", "max") and kind == FLOAT):
        return None
    if kind == COMPLEX:
        linear = reduction in ("sum", "avg") and name in _PARTS
        return Encoding(_TYPES[_PARTS[name]], 2, _OPS[reduction]) if linear else None
    return Encoding(_TYPES[name], 1, _OPS[reduction]) if name in _TYPES else None


class Aborted(Exception):
    """The communicator was aborted, or a rank did not come in time."""


#: A call of NCCL, given the communicator and the stream.
Call = Callable[[Any, int], None]


class Communicator:
    """One rank of `size`, on a GPU. All ranks make the same calls in the same order."""

    def __init__(self, device: str, size: int, rank: int, unique_id: Sequence[int]) -> None:
        self.device = device
        self._name = size, tuple(unique_id), rank
        self._nccl = library()
        self._comm: Any = None
        self._stream: Any = None
        self._aborted = ""  # why
        self._connected = False  # whether a call has returned: later ones wait for no other rank
        self._asked: list[Future[None]] = []
        self._lock = threading.Lock()  # of these three
        self._calls: queue.SimpleQueue[tuple[Sequence[Call], Any, float, Future[None]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="gradwire-nccl", daemon=True).start()

    def exchange(self, calls: Sequence[Call], seconds: float) -> "Future[None]":
        """Make calls as one, after what the current thread has begun on the GPU. The future is done when they are.

        It raises Aborted, also after `seconds`, and NCCL's errors.
        """
        done: Future[None] = Future()
        with selected(self.device):
            before = cupy().cuda.Event()  # type: ignore[union-attr]
            before.record()
        with self._lock:
            self._asked.append(done)
        self._calls.put((calls, before, time.monotonic() + seconds, done))
        if self._aborted:  # the thread may have ended
            self._refuse()
        return done

    def abort(self, why: str = "the communicator was aborted") -> None:
        """End calls in progress, on this rank, and refuse later ones. Other ranks may wait until they abort, too."""
        self._abort(why)

    def _abort(self, why: str, connecting: bool = False) -> None:
        """Abort; with `connecting` only if the ranks are not connected yet."""
        with self._lock:
            if connecting and self._connected:
                return
            self._aborted = self._aborted or why
            told_now = not self._connected
        self._calls.put(None)
        if told_now:  # else the thread tells it, when the GPU uses no tensor any more
            self._refuse()

    def _refuse(self) -> None:
        with self._lock:
            asked, self._asked = self._asked, []
        for each in asked:
            each.set_exception(Aborted(self._aborted))

    def _tell(self, done: "Future[None]", error: BaseException | None) -> None:
        with self._lock:
            if done not in self._asked:
                return
            self._asked.remove(done)
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def _serve(self) -> None:
        try:
            while not self._aborted and (asked := self._calls.get()) is not None:
                calls, before, limit, done = asked
                try:
                    self._run(calls, before, limit)
                except BaseException as error:  # noqa: BLE001 - told to who waits; the communicator is of no use now
                    self._aborted = self._aborted or str(error) or type(error).__name__
                    self._end()
                    self._tell(done, error)
                else:
                    self._tell(done, None)
        finally:
            self._end()
            self._refuse()

    def _run(self, calls: Sequence[Call], before: Any, limit: float) -> None:
        cuda = cupy().cuda  # type: ignore[union-attr]
        with cuda.Device(int(self.device[5:])):
            if self._connected:
                self._begin(calls, before)
            else:
                late = threading.Timer(limit - time.monotonic(), self._abort, (_LATE, True))
                late.daemon = True
                late.start()
                try:
                    self._comm = self._nccl.NcclCommunicator(*self._name)
                    self._stream = cuda.Stream(non_blocking=True)
                    self._begin(calls, before)
                    with self._lock:
                        self._connected = True
                finally:
                    late.cancel()  # it may be running already, and then finds the ranks connected
            began = time.monotonic()
            while not self._stream.done:
                self._check()
                self._comm.check_async_error()
                now = time.monotonic()
                if now >= limit:
                    raise Aborted(_LATE)
                time.sleep(_POLL_SECONDS if now < began + _STARTED_SECONDS else _SLOW_POLL_SECONDS)

    def _begin(self, calls: Sequence[Call], before: Any) -> None:
        self._check()
        self._stream.wait_event(before)
        self._nccl.groupStart()
        try:
            for call in calls:
                call(self._comm, self._stream.ptr)
        finally:
            self._nccl.groupEnd()

    def _check(self) -> None:
        if self._aborted:
            raise Aborted(self._aborted)

    def _end(self) -> None:
        comm, self._comm = self._comm, None
        if comm is not None:
            comm.abort()  # unlike destroy(), it waits for no other rank


class InPlace:
    """Tensors that a collective changes in place: one call for each."""

    def __init__(self, arrays: Sequence[Array], written: bool) -> None:
        self._arrays = arrays
        self._written = written
        self._dense = [each if each.flags.c_contiguous else row_major_copy(each) for each in arrays]

    def calls(self, make: Callable[[Any, int, int, int], Call]) -> list[Call]:
        """The calls that `make` makes of addresses given and taken, and a number of elements."""
        return [make(each, each.data.ptr, each.data.ptr, each.size) for each in self._dense if each.size]

    def finish(self) -> None:
        """Write the results to the arrays that are not row-major."""
        for array, dense in zip(self._arrays, self._dense, strict=True):
            if self._written and dense is not array:
                array[...] = dense


class Joined:
    """Tensors that a collective reads and others that it writes, each of them as one row of values."""

    def __init__(self, given: Sequence[Array], taken: Sequence[Array]) -> None:
        module: Any = cupy()
        self._taken = taken
        self._given = module.concatenate([each.reshape(-1) for each in given])
        self._made = module.empty(sum(each.size for each in taken), self._given.dtype)

    def calls(self, make: Callable[[Any, int, int, int], Call]) -> list[Call]:
        """As InPlace; the number is of the lesser of both, each rank's share."""
        count = min(self._given.size, self._made.size)
        return [make(self, self._given.data.ptr, self._made.data.ptr, count)] if count else []

    def finish(self) -> None:
        """Write the results to the tensors."""
        begin = 0
        for array in self._taken:
            array[...] = self._made[begin : begin + array.size].reshape(array.shape)
            begin += array.size


def nbytes_of(arrays: Sequence[Array]) -> int:
    """Bytes of the copies that Joined makes at most, or InPlace."""
    return int(sum(np.prod(each.shape, dtype=np.int64) * each.dtype.itemsize for each in arrays))

"""A stand-in for NCCL and CuPy's streams: ranks of one process meet in its memory. It notes each rank's calls.

Pointers are those of the stand-in's arrays, which NumPy holds. A call of a group runs when all ranks have made it, on a
thread that stands for the stream.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

TYPES = [
    np.dtype(each)
    for each in ("i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8", ml_dtypes.bfloat16)  # by ncclDataType_t
]
REDUCTIONS: list[Any] = [np.add, np.multiply, np.maximum, np.minimum, np.add]  # by ncclRedOp_t; the last is the average


class NcclError(RuntimeError):
    """An error of NCCL."""


class World:
    """What all communicators of a test share."""

    def __init__(self) -> None:
        self.ids = itertools.count(1)
        self.lock = threading.Condition()
        self.notes: list[tuple[int, tuple[Any, ...]]] = []  # by rank: each call without its pointers and stream
        self.meetings: dict[Any, dict[int, Any]] = {}
        self.deaf: set[int] = set()  # ranks whose calls do not reach the others
        self.error: str | None = None  # of the asynchronous kind
        self.aborted: list[int] = []
        self.version = 22304
        self.pending: list[Any] = []

    def module(self) -> Any:
        """Stands for cupy.cuda.nccl."""
        world = self

        class NcclCommunicator:
            def __init__(self, size: int, unique: tuple[int, ...], rank: int) -> None:
                assert len(unique) == 128 and all(-128 <= each < 128 for each in unique)
                self.size, self.key, self.rank = size, unique, rank
                self.calls = 0
                self.ended = False
                world.meet((unique, "init"), rank, size, None, 10)

            def abort(self) -> None:
                self.ended = True
                with world.lock:
                    world.aborted.append(self.rank)
                    world.lock.notify_all()

            def check_async_error(self) -> None:
                if world.error is not None:
                    raise NcclError(world.error)

            def _put(self, name: str, given: int, taken: int, *about: int) -> None:
                world.notes.append((self.rank, (name, *about[:-1])))
                self.calls += 1
                world.pending.append(_Call(world, self, name, given, taken, about))

            def allReduce(self, given: int, taken: int, count: int, dtype: int, op: int, stream: int) -> None:
                self._put("allReduce", given, taken, count, dtype, op, stream)

            def reduce(self, given: int, taken: int, count: int, dtype: int, op: int, root: int, stream: int) -> None:
                self._put("reduce", given, taken, count, dtype, op, root, stream)

            def broadcast(self, given: int, taken: int, count: int, dtype: int, root: int, stream: int) -> None:
                self._put("broadcast", given, taken, count, dtype, root, stream)

            def allGather(self, given: int, taken: int, count: int, dtype: int, stream: int) -> None:
                self._put("allGather", given, taken, count, dtype, stream)

            def reduceScatter(self, given: int, taken: int, count: int, dtype: int, op: int, stream: int) -> None:
                self._put("reduceScatter", given, taken, count, dtype, op, stream)

        return SimpleNamespace(
            NcclCommunicator=NcclCommunicator, get_version=lambda: self.version, groupStart=self.lock.acquire,
            groupEnd=self._end_group, get_unique_id=lambda: (next(self.ids), *([-1] * 127)),
        )  # fmt: skip

    def _end_group(self) -> None:
        """Begin the calls of the group, whose end their stream waits for."""
        calls, self.pending = self.pending, []
        for call in calls:
            if call.comm.rank not in self.deaf:
                Stream.of_thread().add(call)
            else:
                Stream.of_thread().add(None)
        self.lock.release()

    def meet(self, key: Any, rank: int, size: int, value: Any, seconds: float, ended: Any = None) -> dict[int, Any]:
        """What all ranks bring."""
        with self.lock:
            brought = self.meetings.setdefault(key, {})
            brought[rank] = value
            self.lock.notify_all()
            met = self.lock.wait_for(lambda: len(brought) == size or (ended is not None and ended()), seconds)
            if not met or len(brought) < size:
                raise NcclError("no meeting")
            return brought


class _Call:
    def __init__(self, world: World, comm: Any, name: str, given: int, taken: int, about: tuple[int, ...]) -> None:
        self.world, self.comm, self.name, self.about, self.number = world, comm, name, about, comm.calls
        self.dtype, count = TYPES[about[1]], about[0]
        shares = comm.size if name == "reduceScatter" else 1
        self.given = _at(given, count * shares, self.dtype).copy()
        self.taken = _at(taken, count * (comm.size if name == "allGather" else 1), self.dtype)

    def run(self) -> None:
        comm = self.comm
        key = comm.key, self.number
        brought = self.world.meet(
            key, comm.rank, comm.size, (self.name, self.about[:-1], self.given), 20, lambda: comm.ended
        )
        assert len({each[:2] for each in brought.values()}) == 1, brought
        values = [brought[rank][2] for rank in range(comm.size)]
        if self.name == "allGather":
            self.taken[...] = np.concatenate(values)
        elif self.name == "broadcast":
            self.taken[...] = values[self.about[2]]
        elif self.name != "reduce" or self.about[3] == comm.rank:
            total = values[0].copy()
            for each in values[1:]:
                total = REDUCTIONS[self.about[2]](total, each)
            if self.about[2] == 4:
                total = total / self.dtype.type(comm.size)
            count = self.about[0]
            self.taken[...] = total[comm.rank * count :][:count] if self.name == "reduceScatter" else total


def _at(pointer: int, count: int, dtype: Any) -> Any:
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(pointer)
    return np.frombuffer(memory, dtype)


class Stream:
    """A stream; the thread that made it last uses it."""

    _of_thread = threading.local()

    def __init__(self, non_blocking: bool = False) -> None:
        assert non_blocking  # else it would wait for all other work of the process
        self.ptr = 7
        self._running: list[threading.Thread] = []
        self._never = False
        self.waited: list[Any] = []
        Stream._of_thread.stream = self

    @classmethod
    def of_thread(cls) -> Stream:
        return cls._of_thread.stream  # type: ignore[no-any-return]

    def wait_event(self, event: Any) -> None:
        assert event.recorded
        self.waited.append(event)

    def add(self, call: _Call | None) -> None:
        if call is None:
            self._never = True
            return
        before = list(self._running)

        def run() -> None:
            for each in before:
                each.join()
            try:
                call.run()
            except NcclError:
                self._never = True

        self._running.append(threading.Thread(target=run, daemon=True))
        self._running[-1].start()

    @property
    def done(self) -> bool:
        return not self._never and not any(each.is_alive() for each in self._running)


class Event:
    """An event of the null stream."""

    def __init__(self) -> None:
        self.recorded = False

    def record(self) -> None:
        self.recorded = True

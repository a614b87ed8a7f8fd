"""Forked op: runs an expensive op in a fork of this process, which can be killed without loss.

The child shares the operands' memory copy-on-write and sends its result through a pipe. Only ops that read arrays
and create new ones run in a child. The waiting thread polls for cancellation; cancelling kills the child.
"""

import contextlib
import ctypes
import os
import pickle
import select
import signal
import struct
import time
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from gradwire_engine.compile.eager.preloading import PRELOADER
from gradwire_engine.core.device import load_scipy
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_server.worker.fork_permits import POLL_SECONDS

_OOM_SCORE = "1000"  # oom_score_adj: the OOM killer chooses the child first
_NICE = 10  # below the workers, which serve short commands
_PIECE = 1 << 20
_MAX_DESCRIPTORS = 1 << 16
_HEAD = struct.Struct("<QQ")  # bytes of the pickle, and how many buffers follow
_SIZE = struct.Struct("<Q")
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_F_SETPIPE_SZ = 1031
_libc = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None


class ForkedOp:
    """A forked process that computes one op. Fork where no other thread is inside BLAS (fork_permits.py)."""

    def __init__(self, compute: Callable[[], Any], name: str) -> None:
        """Fork the child. Raises OSError if it cannot be forked."""
        self.name = name
        PRELOADER.wait()
        load_scipy()  # each child would load it anew, and could wait forever for a lock of another thread's import
        self.began = time.monotonic()
        self._read, write = os.pipe()
        parent = os.getpid()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of other threads: the child needs none of them
                self.pid = os.fork()
        except OSError:
            os.close(self._read)
            os.close(write)
            raise
        if not self.pid:
            _run_child(compute, write, parent)
        os.close(write)
        with contextlib.suppress(OSError):
            import fcntl

            fcntl.fcntl(self._read, _F_SETPIPE_SZ, _PIECE)

    def result(self, check: Callable[[float], None]) -> Any:
        """Return the op's result.

        Calls `check` with the seconds since the fork every POLL_SECONDS without data. If `check` raises, the child is
        killed. Raises the op's exception. If the child ended before its result was complete: MemoryError if it was
        killed, RuntimeError otherwise, with the signal or the exit status.
        """
        try:
            head = self._read_exactly(_HEAD.size, check)
            length, count = _HEAD.unpack(bytes(head))
            sizes = [_SIZE.unpack(bytes(self._read_exactly(_SIZE.size, check)))[0] for _ in range(count)]
            body = bytes(self._read_exactly(length, check))
            buffers = [self._read_exactly(size, check) for size in sizes]
        finally:
            self.end()
        succeeded, result = pickle.loads(body, buffers=buffers)
        if succeeded:
            return result
        raise _decode_error(result)

    def end(self) -> int:
        """Kill the child if it still runs, and reap it. Returns its exit status; negative: the signal that ended it."""
        if not self.pid:
            return 0
        pid, self.pid = self.pid, 0
        os.close(self._read)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def _ended_early(self) -> BaseException:
        """SIGKILL without a check that raised is the OOM killer's, which chooses the child first."""
        status = self.end()
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with exit status {status}"
        kind = MemoryError if status == -signal.SIGKILL else RuntimeError
        return kind(f"the process that computed {self.name} ended before it was done, {how}")

    def _read_exactly(self, size: int, check: Callable[[float], None]) -> Any:
        room: Any = np.empty(size, np.uint8)
        view, got = memoryview(room), 0
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        while got < size:
            if not poll.poll(POLL_SECONDS * 1000):
                check(time.monotonic() - self.began)
                continue
            count = os.readv(self._read, [view[got : got + _PIECE]])
            if not count:
                raise self._ended_early()
            got += count
        return room


def _run_child(compute: Callable[[], Any], write: int, parent: int) -> NoReturn:
    """Run the child: compute, send the result, exit. Touches and cleans up nothing of the parent process."""
    status = 1
    try:
        if _libc is not None:
            _libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.closerange(3, write)
        os.closerange(write + 1, _max_descriptors())
        with contextlib.suppress(OSError):
            os.nice(_NICE)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write(_OOM_SCORE)
        outcome: Any
        try:
            outcome = True, compute()
        except BaseException as error:  # noqa: BLE001 - sent to the parent, which raises it
            outcome = False, _encode_error(error)
        _send(write, outcome)
        status = 0
    finally:
        os._exit(status)


def _max_descriptors() -> int:
    most = os.sysconf("SC_OPEN_MAX")
    return most if 0 < most < _MAX_DESCRIPTORS else _MAX_DESCRIPTORS  # negative: no limit


def _send(write: int, outcome: Any) -> None:
    buffers: list[pickle.PickleBuffer] = []
    body = pickle.dumps(outcome, 5, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    _write(write, _HEAD.pack(len(body), len(raw)))
    for each in raw:
        _write(write, _SIZE.pack(each.nbytes))
    for part in (body, *raw):
        _write(write, part)


def _write(write: int, data: Any) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(write, view[:_PIECE]) :]


def _encode_error(error: BaseException) -> tuple[str, Any]:
    if isinstance(error, EngineError):
        return "refused", (error.reason.value, error.message, error.metadata)
    if isinstance(error, MemoryError):
        return "memory", str(error)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - an exception that cannot be pickled is sent as its repr
        return "other", repr(error)
    return "raised", error


def _decode_error(encoded: tuple[str, Any]) -> BaseException:
    kind, what = encoded
    if kind == "refused":
        reason, message, metadata = what
        error = EngineError(Reason(reason), message)
        error.metadata = metadata
        return error
    if kind == "memory":
        return MemoryError(what)
    if kind == "raised":
        return what  # type: ignore[no-any-return]
    return RuntimeError(what)

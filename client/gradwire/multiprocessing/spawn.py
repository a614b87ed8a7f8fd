"""spawn: runs a function in several processes, and ends them all where one fails (torch.multiprocessing.spawn)."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from gradwire._transport.embedded import EmbeddedServer

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]


class ProcessException(Exception):
    """A process failed. `error_index` is its number among the started ones."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg, error_index, error_pid)
        self.msg, self.error_index, self.error_pid = msg, error_index, error_pid

    def __str__(self) -> str:
        return self.msg


class ProcessRaisedException(ProcessException):
    """A process failed by an exception, whose traceback is in the message."""


class ProcessExitedException(ProcessException):
    """A process ended by a signal or an exit code."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        Exception.__init__(self, msg, error_index, error_pid, exit_code, signal_name)
        self.msg, self.error_index, self.error_pid = msg, error_index, error_pid
        self.exit_code, self.signal_name = exit_code, signal_name


def _call(fn: Callable[..., Any], index: int, args: Sequence[Any], failures: Any) -> None:
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the parent was interrupted as well
    except Exception as error:
        failures.send(traceback.format_exc())
        raise SystemExit(1) from error


class ProcessContext:
    """The processes that `start_processes` started."""

    def __init__(self, processes: Sequence[Any], failures: Sequence[Any], server: Any = None) -> None:
        self._server = server
        self.processes = list(processes)
        self._failures = list(failures)
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """Process ids."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until a process ends, at most `timeout` seconds. Return whether all have ended.

        Where one failed, the others are terminated, and killed after `grace_period` seconds. Raises
        ProcessRaisedException with the traceback, or ProcessExitedException.
        """
        ready = multiprocessing.connection.wait(list(self.sentinels), timeout=timeout)
        failed = None
        for sentinel in ready:
            index = self.sentinels.pop(sentinel)
            process = self.processes[index]
            process.join()
            if process.exitcode != 0:
                failed = index
                break
        if failed is None:
            if not self.sentinels:
                self._stop_server()
            return not self.sentinels
        self._end_others(30.0 if grace_period is None else grace_period)
        self._stop_server()
        raise self._failure(failed)

    def _stop_server(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _end_others(self, seconds: float) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        until = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    def _failure(self, index: int) -> ProcessException:
        process, failures = self.processes[index], self._failures[index]
        if failures.poll():
            text = f"\n\n-- Process {index} terminated with the following error:\n{failures.recv()}"
            return ProcessRaisedException(text, index, process.pid)
        code = process.exitcode
        if code < 0:
            name = signal.Signals(-code).name
            return ProcessExitedException(
                f"process {index} terminated with signal {name}", index, process.pid, code, name
            )
        return ProcessExitedException(f"process {index} terminated with exit code {code}", index, process.pid, code)


SpawnContext = ProcessContext


def start_processes(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Call `fn(index, *args)` in `nprocs` processes; wait for them, or without `join` return their context.

    Each process has its own session. Several processes share one server, which is started if GRADWIRE_ADDRESS names
    none. Raises ProcessRaisedException or ProcessExitedException where one fails.
    """
    context: Any = multiprocessing.get_context(start_method)
    processes, failures = [], []
    server = None
    if nprocs > 1 and not os.environ.get("GRADWIRE_ADDRESS"):
        server = EmbeddedServer(min(nprocs, os.cpu_count() or 1))
        os.environ["GRADWIRE_ADDRESS"] = server.address  # for the children
    try:
        for index in range(nprocs):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_call, args=(fn, index, tuple(args), sender), daemon=daemon)
            process.start()
            sender.close()
            processes.append(process)
            failures.append(receiver)
    finally:
        if server is not None:
            del os.environ["GRADWIRE_ADDRESS"]
    started = ProcessContext(processes, failures, server)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Call `fn(index, *args)` in `nprocs` spawned processes (torch.multiprocessing.spawn)."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)

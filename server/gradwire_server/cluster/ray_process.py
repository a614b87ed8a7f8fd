"""Ray's processes on this machine: starts them, connects to them, and ends them, and no other Ray's.

Ray is the control plane only. A token is needed to reach it, since whoever reaches Ray runs programs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradwire_server.cluster.head import HeadStorage

NAMESPACE = "gradwire"  # of the cluster's actors
MACHINE = "gradwire_node"  # resource of each machine that joined, by which Ray's autoscaler counts them
_START_SECONDS = 60.0
_COMMAND_SECONDS = 120.0  # for `ray start`, which ends once Ray runs
_END_SECONDS = 5.0
_RAYLET, _GCS = b"/raylet/raylet", b"/gcs/gcs_server"  # Ray's processes of a machine, and of the head
_STORE_BYTES = 80_000_000  # of Ray's object store, which holds nothing here; Ray's minimum is 75 MiB
# Ray's defaults notice a lost node after a minute. With these it takes 4 seconds.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # A server inherits these from its actor. It is neither a background job nor the first to be killed.
    "RAY_worker_niceness": "0",
    "RAY_worker_oom_score_adjustment": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    # Nodes serve without Ray's head for a day. Two owners of a session cannot come of that (storage/ownership.py).
    "RAY_gcs_rpc_server_reconnect_timeout_s": "86400",
    "RAY_grpc_client_keepalive_time_ms": "2000",
    "RAY_grpc_client_keepalive_timeout_ms": "2000",
}


def resource(endpoint: str) -> str:
    """Name of the resource of the machine on which a server runs."""
    return f"endpoint:{endpoint}"


class RayError(Exception):
    """Ray cannot be started or reached."""


def make_token(path: Path) -> None:
    """Write a new token to a file that only its owner reads, unless the file exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with open(descriptor, "w") as file:
        file.write(secrets.token_hex(32))


def use_token(path: Path) -> None:
    """Make Ray's processes and this one authenticate by a token."""
    os.environ.update(_SETTINGS, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(path.resolve()))


def connect(address: str, seconds: float = 0.0) -> None:
    """Connect this process to Ray, trying for some seconds. Raises RayError."""
    import ray

    ends = time.monotonic() + seconds
    while True:
        try:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
            return
        except Exception as error:
            if time.monotonic() >= ends:
                raise RayError(
                    f"Ray at {address} cannot be reached: {error}. Are the address and the token right?"
                ) from error
        time.sleep(0.3)


class RayProcess:
    """What `ray start` starts, in a session of its own, so that it can be ended without harm to another Ray.

    `ray start` itself ends then: with --block it would hold 90 MiB to wait.
    """

    def __init__(self, session: int, folder: str) -> None:
        """`session` is the id of the processes' session."""
        self.pid = session
        self.folder = folder
        self._raylet = 0  # its process, once it was found

    @classmethod
    def start(
        cls, host: str, endpoints: Sequence[str], log: Any, port: int = 0, address: str = "",
        storage: HeadStorage | None = None, name: str = "",
    ) -> RayProcess:  # fmt: skip
        """Start a head at `port`, or without one a node of the cluster at `address`. Raises RayError.

        `endpoints` are the servers that run here: each is a resource, by which Ray finds the machine (node.py).
        A head with a `storage` continues the cluster of that name.
        """
        folder = tempfile.mkdtemp(prefix="gw-ray-", dir="/tmp")  # paths of sockets in it must be short
        role = [f"--address={address}"] if address else ["--head", f"--port={port}", "--include-dashboard=false"]
        resources = json.dumps({**{resource(each): 1 for each in endpoints}, **({MACHINE: 1} if address else {})})
        command = [
            sys.executable, "-m", "ray.scripts.scripts", "start", *role, f"--node-ip-address={host}",
            f"--resources={resources}", "--num-cpus=0", f"--object-store-memory={_STORE_BYTES}",
            "--include-log-monitor=false", "--disable-usage-stats",
        ]  # fmt: skip
        if not address:
            command.append(f"--temp-dir={folder}")
        environment = dict(os.environ)
        if storage is not None:
            command += storage.arguments()
            environment.update(storage.environment(name))
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            env=environment,
        )  # fmt: skip
        made = cls(process.pid, folder)
        try:
            failed = process.wait(_COMMAND_SECONDS) != 0
        except subprocess.TimeoutExpired:
            failed = True
        if failed:
            made.stop()
            where = f" at {address}: are the address and the token right?" if address else ""
            raise RayError(f"`ray start` has failed{where}")
        return made

    @property
    def alive(self) -> bool:
        """Whether Ray runs on this machine: its raylet does."""
        if _RAYLET not in _command(self._raylet):
            self._raylet = next((each for each in _session(self.pid) if _RAYLET in _command(each)), 0)
        return self._raylet != 0

    @property
    def is_known(self) -> bool:
        """Whether the session is Ray's still, and its id not another one's since."""
        return any(name in _command(each) for each in _session(self.pid) for name in (_RAYLET, _GCS))

    def head(self) -> int:
        """Process id of Ray's head; 0 if it does not run here."""
        return next((each for each in _session(self.pid) if _GCS in _command(each)), 0)

    def stop(self) -> None:
        """End all its processes."""
        for each in _session(self.pid):
            if any(name in _command(each) for name in (_RAYLET, _GCS)):
                _signal(each, signal.SIGTERM)
        ends = time.monotonic() + _END_SECONDS
        while self.alive and time.monotonic() < ends:
            time.sleep(0.05)
        for each in _session(self.pid):  # what SIGTERM has not ended
            _signal(each, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, address: str) -> None:
        """Connect to the started Ray. Raises RayError if it ends or does not answer."""
        ends = time.monotonic() + _START_SECONDS
        while True:
            if not self.alive:
                raise RayError("Ray has ended")
            try:
                connect(address)
                return
            except RayError:
                if time.monotonic() >= ends:
                    raise
            time.sleep(0.3)


def _session(leader: int) -> list[int]:
    """The processes in a process's session."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if os.getsid(int(name)) == leader:
                    found.append(int(name))
            except (ProcessLookupError, PermissionError):
                continue
    return found


def _command(pid: int) -> bytes:
    """A process's program, with its path; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return b""


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.kill(pid, number)

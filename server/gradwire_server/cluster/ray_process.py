"""Ray's processes on this machine: starts them, connects to them, and ends them, and no other Ray's.

Ray is the control plane only. A token is needed to reach it, since whoever reaches Ray runs programs.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradwire_server.cluster.head_storage import HeadStorage
from gradwire_server.cluster.ray_session import RaySession

NAMESPACE = "gradwire"  # of the cluster's actors
MACHINE = "gradwire_node"  # resource of each machine that joined, by which Ray's autoscaler counts them
_START_SECONDS = 60.0
_COMMAND_SECONDS = 120.0  # for `ray start`, which ends once Ray runs
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


class RayProcess(RaySession):
    """What `ray start` starts, in a session of its own, so that it can be ended without harm to another Ray.

    `ray start` itself ends then: with --block it would hold 90 MiB to wait.
    """

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
            "--include-log-monitor=false", "--disable-usage-stats", f"--temp-dir={folder}",
        ]  # fmt: skip
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
            status = process.wait(_COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            made.stop()
            raise RayError(
                f"`ray start` did not end in {_COMMAND_SECONDS:.0f} seconds: this machine or Ray's head is too busy, "
                "or what answers at the address is no Ray"
            ) from None
        except BaseException:  # such as a signal, which must not leave Ray behind
            made.stop()
            raise
        if status:
            made.stop()
            where = f" at {address}: is Ray's head there, and is the token the cluster's?" if address else ""
            said = "above" if log is sys.stderr else f"in {log.name}"
            raise RayError(f"`ray start` has failed (status {status}; its output is {said}){where}")
        return made

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

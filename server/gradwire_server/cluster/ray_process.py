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
_COMMAND_SECONDS = 180.0  # for `ray start`, which ends once Ray runs
_LOOK_SECONDS = 0.5  # between looks at what it has started
_CRASHED = 256  # no status of a process
_STORE_BYTES = 80_000_000  # of Ray's object store, which holds nothing here; Ray's minimum is 75 MiB
# Ray's defaults notice a lost node after a minute. With these it takes 4 seconds.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # A busy machine needs more than the defaults, 30 and 20 seconds.
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_agent_register_timeout_ms": "120000",
    # A server inherits these from its actor. It is neither a background job nor the first to be killed.
    "RAY_worker_niceness": "0",
    "RAY_worker_oom_score_adjustment": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    # Nothing here reads Ray's own records of tasks and events. Its store holds nothing.
    "RAY_task_events_report_interval_ms": "0",
    "RAY_event_stats": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_raylet_check_gc_period_milliseconds": "1000",
    "RAY_object_manager_timer_freq_ms": "1000",
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    # Nodes serve without Ray's head for a day. Two owners of a session cannot come of that (storage/ownership.py).
    "RAY_gcs_rpc_server_reconnect_timeout_s": "86400",
    "RAY_grpc_client_keepalive_time_ms": "2000",
    "RAY_grpc_client_keepalive_timeout_ms": "2000",
}
#: Of Ray's processes alone: they have up to 40 threads each, and would hold memory for each of them.
MEMORY = {"MALLOC_ARENA_MAX": "1"}


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


def connect(address: str, seconds: float = 0.0, host: str | None = None) -> None:
    """Connect this process to Ray, trying for some seconds. Raises RayError.

    `host` is this machine's address, by which Ray finds its process here. Ray's guess needs a route to the internet.
    """
    import ray

    ends = time.monotonic() + seconds
    while True:
        try:
            ray.init(
                address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR,
                _node_ip_address=host,
            )  # fmt: skip
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
        storage: HeadStorage | None = None, name: str = "", tries: int = 2,
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
        environment = {**os.environ, **MEMORY}
        if storage is not None:
            command += storage.arguments()
            environment.update(storage.environment(name))
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            env=environment,
        )  # fmt: skip
        made = cls(process.pid, folder)
        try:
            status = made._wait_for(process)
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
            process.wait()
            if status == _CRASHED and tries > 1:
                return cls.start(host, endpoints, log, port, address, storage, name, tries - 1)
            where = f" at {address}: is Ray's head there, and is the token the cluster's?" if address else ""
            said = "above" if log is sys.stderr else f"in {log.name}"
            how = "its raylet has ended" if status == _CRASHED else f"status {status}"
            raise RayError(f"`ray start` has failed ({how}; its output is {said}){where}")
        return made

    def _wait_for(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for `ray start`: its status, or _CRASHED once the raylet has ended. Raises TimeoutExpired.

        On a busy machine the raylet ends when its agent does not start in 20 seconds, which `ray start` does not see.
        """
        ends, was_alive = time.monotonic() + _COMMAND_SECONDS, False
        while True:
            try:
                return process.wait(_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                alive = self.alive
                if was_alive and not alive:
                    return _CRASHED
                was_alive = alive
                if time.monotonic() > ends:
                    raise

    def connect(self, address: str, host: str | None = None) -> None:
        """Connect to the started Ray. Raises RayError if it ends or does not answer."""
        ends = time.monotonic() + _START_SECONDS
        while True:
            if not self.alive:
                raise RayError("Ray has ended")
            try:
                connect(address, host=host)
                return
            except RayError:
                if time.monotonic() >= ends:
                    raise
            time.sleep(0.3)

"""Three machines of a cluster on this one, for benchmarks.cluster: started, harmed in several ways, and made whole.

Where this process may make network namespaces, each machine has one, and a /tmp of its own. Elsewhere all are at
127.0.0.1, and there are no partitions.
"""

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import psutil

import gradwire
from gradwire._transport.credentials import Credentials
from gradwire.v1 import service_pb2, service_pb2_grpc
from gradwire_server.auth.tokens import append, make
from tests.client.sharing import attach_elsewhere
from tests.namespaces import Network, may_make
from tests.ports import free_port
from tests.server.harness import until
from tests.server.machines import head_at, processes_of, server_of, start_machine

COUNT = 3
SILENT_MS = 1500  # since a node's report, from which on the cluster is not whole
LIMIT_BYTES = 192 << 20  # of a principal, over all nodes
#: What all servers have, also the single one that they are compared with.
SERVER = ("--workers=1", "--log-level=error", f"--max-principal-bytes={LIMIT_BYTES}", "--insecure-bind")
_OWN_TMP = ("sh", "-c", 'mount -t tmpfs tmpfs /tmp && exec "$@"', "sh")


class Machines:
    """The first machine, whose Ray's head has a storage, and those that joined it."""

    def __init__(self, folder: Path, network: Network | None) -> None:
        self._folder = folder
        self.network = network
        if network is not None:
            self._ray, self._hosts, ports = 6379, network.hosts[:COUNT], [50051] * COUNT
        else:
            self._ray, self._hosts, ports = free_port(), ["127.0.0.1"] * COUNT, [free_port() for _ in range(COUNT)]
        self.endpoints = [f"{host}:{port}" for host, port in zip(self._hosts, ports, strict=True)]
        self.addresses = ",".join(self.endpoints)
        self.ray_address = f"{self._hosts[0]}:{self._ray}"
        self.token_file = folder / "token"  # of Ray
        token, line = make("benchmark", frozenset({"admin"}))
        append(folder / "tokens", line)
        self.credentials = Credentials(token)
        os.environ.update(GRADWIRE_TOKEN=token, TMPDIR=str(folder))
        self._server = (*SERVER, f"--token-file={folder}/tokens")
        self._commands: list[subprocess.Popen[str] | None] = [None] * COUNT
        self._folders: set[str] = set()  # of Ray, which a machine that was killed leaves behind without its own /tmp

    def start(self, index: int) -> None:
        """Start one, or start it again."""
        role = ["start", f"--ray-port={self._ray}", f"--head-storage={self._folder}/head"]
        if index:
            role = ["join", self.ray_address]
        port = self.endpoints[index].rpartition(":")[2]
        shared = [f"--state-dir={self._folder}/state", f"--folder={self._folder}", "--private-network"]
        within: tuple[str, ...] = () if self.network is None else (*self.network.within(index), *_OWN_TMP)
        self._commands[index] = start_machine(
            *role, f"--host={self._hosts[index]}", f"--port={port}", *shared, "--", *self._server, within=within
        )

    def try_to_start(self, index: int) -> None:
        """Start one. If it fails, on a busy machine, `make_whole` tries again."""
        if (before := self._commands[index]) is not None:
            _close(before)
            self._commands[index] = None
        try:
            self.start(index)
        except AssertionError as error:
            print(str(error).splitlines()[-1], file=sys.stderr)

    def start_single(self) -> tuple["subprocess.Popen[str]", str]:
        """A server that is no part of the cluster, in a network like a machine's, with a log as the nodes have."""
        host, within = (
            ("127.0.0.1", ()) if self.network is None else (self.network.hosts[COUNT], self.network.within(COUNT))
        )
        command = [
            *within, sys.executable, "-m", "gradwire_server", f"--host={host}", "--port=0",
            f"--state-dir={self._folder}/single", "--durability=log", *self._server,
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return process, process.stdout.readline().split()[-1]

    def here(self) -> int:
        """The machine that has the current session."""
        return self.endpoints.index(gradwire.current_session().address)

    def head(self) -> int:
        """Process id of Ray's head; 0 without one."""
        return head_at(self._ray)

    def processes(self, index: int) -> dict[int, str]:
        """Processes of a machine, and what each is."""
        watch = Path(f"/proc/{self._command(index).pid}/cmdline").read_text().split("\0")
        if self.network is None:
            self._folders.add(watch[5])
        return processes_of(self._command(index), self.endpoints[index])

    def signal(self, pids: Sequence[int], number: int) -> None:
        """Send a signal to processes, of which some may have ended."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def make_whole(self) -> None:
        """Wait until all nodes report, and start those again that have ended, as a supervisor of a machine does."""
        until(self._is_whole, "the cluster")

    def _is_whole(self) -> bool:
        for index, command in enumerate(self._commands):
            if command is None or command.poll() is not None:
                self.try_to_start(index)
        return self.all_report()

    def all_report(self) -> bool:
        """Whether all nodes serve, and each knows that all report. False takes a moment."""
        if all(self._reports(endpoint) for endpoint in self.endpoints):
            return True
        time.sleep(0.2)
        return False

    def statuses(self) -> list[int | None]:
        """The exit status of each machine's command; None while it runs."""
        return [self._command(index).poll() for index in range(COUNT)]

    def _reports(self, endpoint: str) -> bool:
        """Whether a node serves, and knows that all report."""
        request = service_pb2.ListSessionsRequest(nodes=True, page_size=1)
        with grpc.insecure_channel(endpoint) as channel:
            try:
                stub = service_pb2_grpc.AutogradServiceStub(channel)
                nodes = stub.ListSessions(request, timeout=2.0, metadata=self.credentials.metadata).nodes
            except grpc.RpcError:
                return False
        return len(nodes) == COUNT and all(each.silent_ms < SILENT_MS for each in nodes)

    def _command(self, index: int) -> "subprocess.Popen[str]":
        command = self._commands[index]
        assert command is not None
        return command

    def end(self) -> None:
        """End all by a signal, the first one last."""
        for command in filter(None, reversed(self._commands)):
            command.terminate()
            try:
                command.wait(60)
            except subprocess.TimeoutExpired:
                command.kill()
                command.wait()
            _close(command)
        for each in self._folders:
            shutil.rmtree(each, ignore_errors=True)


def _close(command: "subprocess.Popen[str]") -> None:
    """Close the output of a command that has ended."""
    assert command.stdout is not None
    command.stdout.close()


@contextlib.contextmanager
def machines(own_networks: bool = True) -> Iterator[Machines]:
    """Three machines in the block. They and all that they made are removed then."""
    warnings.filterwarnings("ignore", "the token travels")  # to a network of this machine
    logging.getLogger("gradwire").setLevel(logging.ERROR)  # without a line for each session that moves
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True)))
        network = Network(COUNT + 1) if own_networks and may_make() else None
        if network is not None:
            stack.callback(network.remove)
            try:
                network.make()
            except subprocess.CalledProcessError as error:
                print(f"no network namespaces can be made here: {error.stderr.strip()}", file=sys.stderr)
                network = None
        made = Machines(folder, network)
        stack.callback(made.end)
        made.start(0)
        # Two of Ray's that start at one address at the same time disturb each other.
        with ThreadPoolExecutor(1 if network is None else COUNT) as pool:
            list(pool.map(made.try_to_start, range(1, COUNT)))
        made.make_whole()
        yield made


# Failures of the machine that has the current session.


@dataclass(frozen=True)
class Failure:
    """A kind of failure: what does it to a machine, and what ends it, some steps later."""

    part: str
    name: str
    harm: Callable[[Machines, int], None]
    heal: Callable[[Machines, int], None]
    bound: float  # of the longest step, in seconds
    heals: bool = False  # whether what was harmed comes back, and Ray may count it as lost


def _kill(*kinds: str) -> Callable[[Machines, int], None]:
    """Kill those of a machine's processes that are of such kinds."""

    def kill(machines: Machines, index: int) -> None:
        pids = [pid for pid, kind in machines.processes(index).items() if kind in kinds]
        machines.signal(pids, signal.SIGKILL)

    return kill


def _kill_worker(machines: Machines, index: int) -> None:
    workers = psutil.Process(server_of(machines.endpoints[index])).children()
    machines.signal([each.pid for each in workers], signal.SIGKILL)


def _freeze(machines: Machines, index: int) -> None:
    machines.signal(list(machines.processes(index)), signal.SIGSTOP)


def _thaw(machines: Machines, index: int) -> None:
    machines.signal(list(machines.processes(index)), signal.SIGCONT)


def _cut(machines: Machines, index: int) -> None:
    assert machines.network is not None
    machines.network.cut(index)


def _cut_from_nodes(machines: Machines, index: int) -> None:
    assert machines.network is not None
    machines.network.cut_from_nodes(index)
    attach_elsewhere(
        machines.endpoints[(index + 1) % COUNT], gradwire.current_session().session_id, machines.credentials
    )


def _heal(machines: Machines, index: int) -> None:
    assert machines.network is not None
    machines.network.heal(index)


def _nothing(machines: Machines, index: int) -> None:
    """What has ended starts again by itself, or by `make_whole`."""


FAILURES = (
    Failure("worker", "worker killed", _kill_worker, _nothing, 2.0),
    Failure("front", "front killed (the server's process)", _kill("server"), _nothing, 5.0),
    Failure("node", "node killed (server, worker and actor)", _kill("server", "worker", "actor"), _nothing, 5.0),
    Failure(
        "machine",
        "machine killed (Ray's processes, too)",
        _kill("server", "worker", "actor", "Ray", "watch"),
        _nothing,
        5.0,
    ),
    Failure("frozen", "machine frozen", _freeze, _thaw, 8.5, heals=True),
)
PARTITIONS = (
    Failure("cut", "partition of all from the node", _cut, _heal, 10.0, heals=True),
    Failure("second-writer", "partition of the nodes, and a second client", _cut_from_nodes, _heal, 10.0, heals=True),
)

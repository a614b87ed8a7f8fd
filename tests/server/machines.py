"""Machines of a cluster: `gradwire cluster start` and `join` as processes, and Ray's processes that belong to them."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path


def start_machine(*arguments: str, path: str = "", within: Sequence[str] = ()) -> "subprocess.Popen[str]":
    """Run a command that starts a node, until it listens. `path` has gradwire's packages, if of another version.

    `within` is a command that runs it somewhere, such as in a network namespace.
    """
    line = [*within, sys.executable, "-c", "from gradwire_server.cluster.cli import cluster; cluster()", *arguments]
    environment = {**os.environ, "PYTHONPATH": path or os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    node = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert node.stdout is not None
    said = []
    for text in node.stdout:
        said.append(text)
        if text.startswith("listening on"):
            return node
    raise AssertionError("".join(said))


def processes() -> Iterator[tuple[int, list[bytes]]]:
    """All processes, each with its command line."""
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                yield int(each.name), (each / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue


def parent_of(pid: int) -> int:
    """A process's parent; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def server_of(endpoint: str) -> int:
    """Process id of a node's server; 0 without one."""
    return next((pid for pid, words in processes() if f"--endpoint={endpoint}".encode() in words), 0)


def actor_of(endpoint: str) -> int:
    """Process id of the actor of a node: the parent of its server; 0 without one."""
    actors = {pid for pid, words in processes() if b"ray::Node" in words[0]}
    parent = parent_of(server_of(endpoint))
    return parent if parent in actors else 0


def head_at(port: int) -> int:
    """Process id of the head of Ray at a port; 0 without one."""
    ports = f"--gcs_server_port={port}".encode()
    return next((pid for pid, words in processes() if words[0].endswith(b"/gcs/gcs_server") and ports in words), 0)


def processes_of(command: "subprocess.Popen[str]", endpoint: str) -> dict[int, str]:
    """All processes of a machine, and what each is: the command's, the node's and those of its Ray."""
    server, actor = server_of(endpoint), actor_of(endpoint)
    raylets = [pid for pid, words in processes() if words[0].endswith(b"/raylet/raylet")]
    session = next(os.getsid(pid) for pid in raylets if pid == parent_of(actor))
    found = {pid: "Ray" for pid, _ in processes() if session_of(pid) == session}
    found |= {pid: "worker" for pid, _ in processes() if parent_of(pid) == server}
    found |= {pid: "watch" for pid, _ in processes() if parent_of(pid) == command.pid}
    return {**found, command.pid: "watch", server: "server", actor: "actor"}


def kill_machine(command: "subprocess.Popen[str]", endpoint: str) -> None:
    """Kill all processes of a machine."""
    for pid in processes_of(command, endpoint):
        _kill(pid)
    command.wait(60)


def session_of(pid: int) -> int:
    """The session of a process; 0 if it has ended."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)

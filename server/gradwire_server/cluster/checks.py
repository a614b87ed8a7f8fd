"""Checks before a node starts: its storage is the cluster's, its version fits, and Ray is not open to others."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import stat
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from gradwire_server.cluster.head_probe import TOKEN_REFUSED, why_no_head
from gradwire_server.cluster.head_storage import HeadStorage, StorageError
from gradwire_server.common.addresses import address_of, is_loopback

#: Ports that Ray gives to its workers unless it is told others.
WORKER_PORTS = range(10_002, 20_000)
_ANSWER_SECONDS = 1.0  # of what may listen at a port of this machine
_MARK = "cluster"  # file in the state directory, with the cluster's name
_VERSIONS = "ray"  # file in the state directory, with the versions of the head
_NAME_LENGTH = 16
_WRITTEN_SECONDS = 2.0  # another node's time to write the name after it made the file
_VERSION = re.compile(r"(\d+)\.(\d+)")
_TLS_FILES = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")


class CheckFailed(Exception):
    """A node must not start; the message says why, and what to do."""


class Refused(CheckFailed):
    """It must not start before somebody changes something: waiting does not help."""


def cluster_name(token: Path) -> str:
    """A cluster's name, by its token."""
    return hashlib.sha256(b"gradwire cluster " + token.read_bytes().strip()).hexdigest()[:_NAME_LENGTH]


def check_storage(folder: Path, token: Path, joins: bool) -> None:
    """Check that a state directory can be written and is this cluster's, and mark it so.

    A cluster's name follows from its token. With `joins` another node must have used the directory. Raises CheckFailed.
    """
    name = cluster_name(token)
    mark = folder / _MARK
    try:
        # Clusters of before have no mark, but their servers' locks.
        if joins and not mark.exists() and not (folder / "servers").is_dir():
            raise CheckFailed(
                f"the cluster does not use {folder}: no node has stored anything there. --state-dir must name the "
                "directory that all machines share"
            )
        folder.mkdir(parents=True, exist_ok=True)
        found = _written(mark, name)
        probe = folder / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink(missing_ok=True)  # a node of another machine may have the same number
    except OSError as error:
        raise CheckFailed(f"the state directory {folder} cannot be written: {error.strerror or error}") from None
    if found != name:
        raise Refused(
            f"the state directory {folder} is another cluster's: its token differs. Use another directory. If that "
            f"cluster is gone, delete {mark}"
        )


def check_head_storage(storage: HeadStorage, token: Path) -> None:
    """Check that Ray's head can use its storage, and that no other cluster does. Raises CheckFailed."""
    if not storage.directory:
        try:
            storage.check_redis()
        except StorageError as error:
            raise CheckFailed(str(error)) from None
        return
    folder = Path(storage.directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = _written(folder / _MARK, cluster_name(token))
        probe = folder / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise CheckFailed(f"the head's storage {folder} cannot be written: {error.strerror or error}") from None
    if found != cluster_name(token):
        raise CheckFailed(f"the head's storage {folder} is another cluster's: its token differs. Use another directory")


def _written(mark: Path, name: str) -> str:
    """The name in a mark, which is made if there is none. Raises OSError."""
    try:
        with mark.open("x") as file:
            file.write(name)
            file.flush()
            os.fsync(file.fileno())
        return name
    except FileExistsError:
        ends = time.monotonic() + _WRITTEN_SECONDS
        while len(found := mark.read_text()) < _NAME_LENGTH and time.monotonic() < ends:
            time.sleep(_WRITTEN_SECONDS / 20)
        return found


def check_version(own: str, nodes: Mapping[str, str]) -> None:
    """Check a new node's version against those of the nodes, by endpoint. "" is not known, and fits.

    Minor versions may differ by one, so that nodes can be upgraded one after the other. Raises CheckFailed.
    """
    for endpoint, version in nodes.items():
        mine, other = _VERSION.match(own), _VERSION.match(version)
        if mine is None or other is None:
            continue
        if mine[1] != other[1] or abs(int(mine[2]) - int(other[2])) > 1:
            raise Refused(
                f"this is gradwire {own}, and the node {endpoint} has {version}: they may differ by one minor version. "
                "Upgrade the nodes one after the other, through each minor version"
            )


def check_ray(folder: Path) -> None:
    """Check that this machine has the versions of Ray and Python that the cluster's head has, as Ray demands.

    Without a record of the head's, Ray itself refuses a node, after a minute. Raises CheckFailed.
    """
    try:
        head = (folder / _VERSIONS).read_text()
    except FileNotFoundError:
        return
    except OSError as error:
        raise CheckFailed(f"the state directory {folder} cannot be read: {error.strerror or error}") from None
    own = _versions()
    if _compared(head) != _compared(own):
        raise CheckFailed(f"this machine has {own}, and the cluster's head has {head}: install the same here")


def note_ray(folder: Path) -> None:
    """Record the versions of this machine, whose Ray has become the cluster's head. Raises OSError."""
    made = folder / f".{_VERSIONS}-{os.getpid()}"
    made.write_text(_versions())
    made.replace(folder / _VERSIONS)


def _versions() -> str:
    return f"Ray {metadata.version('ray')} and Python {'.'.join(map(str, sys.version_info[:3]))}"


def _compared(versions: str) -> str:
    """The part of versions that Ray compares: without Python's last number, if Ray is told so."""
    level = os.environ.get("RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL", "patch")
    return versions.rpartition(".")[0] if level == "minor" else versions


def check_network(host: str, private_network: bool) -> None:
    """Check that Ray is not reachable by others by oversight. Raises CheckFailed."""
    if os.environ.get("RAY_USE_TLS") == "1":
        for name in _TLS_FILES:
            path = os.environ.get(name, "")
            if not os.access(path, os.R_OK):
                raise CheckFailed(f"RAY_USE_TLS=1 needs {name}, the path of a file that can be read, not {path!r}")
        return
    if not is_loopback(host) and not private_network:
        raise CheckFailed(
            f"{host} can be reached by others, and whoever reaches Ray and sees its token runs programs there. Set "
            "RAY_USE_TLS=1 and Ray's certificates, or pass --private-network if the network has trusted machines only."
        )


def check_ray_port(port: int) -> None:
    """Check that Ray's head can listen at a port. Raises CheckFailed."""
    if port in WORKER_PORTS or not 0 < port < 1 << 16:
        raise CheckFailed(
            f"Ray's head cannot use the port {port}: it must be in 1 to 65535, and not in {WORKER_PORTS.start} to "
            f"{WORKER_PORTS.stop - 1}, which Ray gives to its workers"
        )


def check_answers(address: str, token: Path) -> None:
    """Check that Ray's head is at an address, and knows the token. Raises CheckFailed."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise CheckFailed(f"{address!r} is no address of Ray's head: it has the form HOST:PORT")
    if why := why_no_head(address, token):
        refusal = Refused if why.startswith(TOKEN_REFUSED) else CheckFailed
        raise refusal(f"what is at {address} {why}")


def check_free(host: str, port: int) -> None:
    """Check that nothing listens where Ray's head or a server is to listen. Raises CheckFailed."""
    try:
        socket.create_connection((host, port), _ANSWER_SECONDS).close()
    except OSError:
        return
    raise CheckFailed(f"something listens at {address_of(host, port)} already: end it, or choose another port")


def check_token(path: Path) -> None:
    """Check that only its owner reads the token: whoever has it runs programs on all nodes. Raises CheckFailed."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        raise Refused(f"there is no {path}: copy it from the machine where the cluster was started") from None
    if mode & 0o077:
        raise Refused(f"others can read {path} (mode {mode:o}), and with it run programs here: chmod 600 {path}")

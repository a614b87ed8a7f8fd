"""`gradwire cluster`: starts, shows and ends a cluster of servers.

`up` makes a cluster on this machine, in the background. `start` and `join` run one node per machine, until SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import click

from gradwire_server import __version__
from gradwire_server.app.cli import check_arguments
from gradwire_server.cluster.checks import (
    CheckFailed,
    check_answers,
    check_free,
    check_head_storage,
    check_network,
    check_ray_port,
    check_storage,
    check_token,
    check_version,
    cluster_name,
)
from gradwire_server.cluster.director import director
from gradwire_server.cluster.head_record import FileRecord, Record, check_head, claim_head
from gradwire_server.cluster.head_storage import PASSWORD, HeadStorage, RedisRecord, StorageError
from gradwire_server.cluster.node import NodeExists, nodes, remove_lost, start_node
from gradwire_server.cluster.placement import SILENT_SECONDS
from gradwire_server.cluster.ray_process import MACHINE, RayError, RayProcess, connect, make_token, use_token
from gradwire_server.cluster.watch import become_watch
from gradwire_server.common.addresses import address_of

_FOLDER = Path("~/.gradwire/cluster")
_START_SECONDS = 60.0
_CALL_SECONDS = 10.0
_FIGURES = ("sessions", "workers", "gpus", "bytes")
_ROW = "{:24} {:>9} {:>8} {:>5} {:>12} {:>7}  {}"
_RAY_PORT = 6379
#: Variables of servers that Ray sets for its processes.
_CHANGED_BY_RAY = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


class _Cluster(click.Group):
    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Run under the name that the user typed, also if another program's command line calls this one."""
        return super().make_context("gradwire cluster", args, parent, **extra)


def _with_ray(command: Callable[..., Any]) -> Callable[..., Any]:
    """Tell what is missing or wrong in a sentence."""

    @wraps(command)
    def run(*args: Any, **named: Any) -> Any:
        if find_spec("ray") is None:  # not imported yet: it reads the token's variables then
            raise click.ClickException("a cluster needs Ray: pip install 'gradwire[cluster]'")
        try:
            return command(*args, **named)
        except (RayError, CheckFailed, NodeExists, StorageError, OSError) as error:
            raise click.ClickException(str(error)) from None

    return run


_folder = click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), default=_FOLDER, show_default=True,
    envvar="GRADWIRE_CLUSTER_FOLDER", help="Where the cluster's token and, of `up`, its record and state lie.",
)  # fmt: skip
_address = click.option(
    "--address", metavar="HOST:PORT", help="Ray's address; default: that of the cluster that `up` made."
)
_serve_arguments = click.argument("serve_arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- SERVE OPTIONS]")


@click.group(cls=_Cluster, context_settings={"max_content_width": 110})
def cluster() -> None:
    """Servers on several machines that share their users and a state directory.

    Ray starts and watches them; data goes from clients to servers directly. What follows -- is passed to each
    `gradwire serve`.
    """


@cluster.command()
@click.option("--nodes", "count", type=click.IntRange(1, 64), default=3, show_default=True, help="Number of servers.")
@click.option("--port", type=int, default=0, help="First port of the servers; default: free ones.")
@_folder
@_serve_arguments
@_with_ray
def up(count: int, port: int, folder: Path, serve_arguments: tuple[str, ...]) -> None:
    """Make a cluster on this machine, in the background. `gradwire cluster down` ends it."""
    folder = folder.expanduser()
    record = folder / "cluster.json"
    if record.exists() and _recorded(record).alive:
        raise click.ClickException(f"the cluster of {folder} is up; `gradwire cluster down` ends it")
    (folder / "state").mkdir(parents=True, exist_ok=True)
    make_token(folder / "token")
    check_token(folder / "token")
    check_storage(folder / "state", folder / "token", joins=False)
    use_token(folder / "token")
    ray_port, *ports = _free_ports(1 + count)
    endpoints = [f"127.0.0.1:{port + index if port else ports[index]}" for index in range(count)]
    workers = max(1, (os.cpu_count() or 1) // count)
    lines = [_serve_line(each, folder / "state", (f"--workers={workers}", *serve_arguments)) for each in endpoints]
    with (folder / "ray.log").open("wb") as log:
        started = RayProcess.start("127.0.0.1", endpoints, log, port=ray_port)
    try:
        address = f"127.0.0.1:{ray_port}"
        started.connect(address)
        record.write_text(json.dumps({"address": address, "pid": started.pid, "folder": started.folder}))
        director()
        made = [_start_server(*each, started.folder) for each in zip(endpoints, lines, strict=True)]
        for endpoint, node in zip(endpoints, made, strict=True):
            _wait_until_started(endpoint, node)
    except BaseException:
        record.unlink(missing_ok=True)
        started.stop()
        raise
    click.echo(f"GRADWIRE_ADDRESS={','.join(endpoints)}")


@cluster.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="This machine's address for the others.")
@click.option("--port", type=int, default=50051, show_default=True, help="The server's port.")
@click.option("--ray-port", type=int, default=_RAY_PORT, show_default=True, help="Port at which others join.")
@click.option("--state-dir", required=True, metavar="DIRECTORY", help="State directory that all machines share.")
@click.option("--private-network", is_flag=True, help="Ray's ports can be reached by trusted machines only.")
@click.option(
    "--head-storage", metavar="DIRECTORY|URL", default="", envvar="GRADWIRE_HEAD_STORAGE",
    help="Where Ray's head keeps what it knows, so that it can be started again: a local directory, or "
    "redis://[USER@]HOST[:PORT] (rediss:// with TLS).",
)  # fmt: skip
@click.option(
    "--head-storage-password-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"File with the password of Redis; without it that is the variable {PASSWORD}.",
)  # fmt: skip
@_folder
@_serve_arguments
@_with_ray
def start(
    host: str, port: int, ray_port: int, state_dir: str, private_network: bool, head_storage: str,
    head_storage_password_file: Path | None, folder: Path, serve_arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Begin a cluster, with a server on this machine, until SIGTERM.

    Copy the token file, FOLDER/token, to the machines that join. With --head-storage, a cluster that had one there
    continues.
    """
    _check(check_ray_port, ray_port)
    _check(check_network, host, private_network)
    storage = _head_storage(head_storage, head_storage_password_file)
    token = folder.expanduser() / "token"
    make_token(token)
    if storage is not None:
        check_head_storage(storage, token)
    _run_node(host, port, state_dir, folder, serve_arguments, ray_port=ray_port, storage=storage)


def _head_storage(text: str, password_file: Path | None) -> HeadStorage | None:
    """The storage of Ray's head that the command line names. Raises UsageError."""
    if not text:
        return None
    password = os.environ.get(PASSWORD, "") if password_file is None else password_file.read_text().strip()
    try:
        return HeadStorage.of(text, password)
    except StorageError as error:
        raise click.UsageError(str(error)) from None


@cluster.command()
@click.argument("address")
@click.option("--host", default="127.0.0.1", show_default=True, help="This machine's address for the others.")
@click.option("--port", type=int, default=50051, show_default=True, help="The server's port.")
@click.option("--state-dir", required=True, metavar="DIRECTORY", help="State directory that all machines share.")
@click.option("--private-network", is_flag=True, help="Ray's ports can be reached by trusted machines only.")
@_folder
@_serve_arguments
@_with_ray
def join(
    address: str, host: str, port: int, state_dir: str, private_network: bool, folder: Path,
    serve_arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Add a server on this machine to the cluster whose Ray is at ADDRESS, until SIGTERM."""
    _check(check_network, host, private_network)
    _run_node(host, port, state_dir, folder, serve_arguments, address=address)


@cluster.command()
@_address
@_folder
@_with_ray
def status(address: str | None, folder: Path) -> None:
    """Show the nodes and what they hold."""
    with _connected(address, folder) as ray:
        loads = ray.get(director().nodes.remote(), timeout=_CALL_SECONDS)
        click.echo(_ROW.format("node", *_FIGURES, "starts", "state"))
        sums = dict.fromkeys(_FIGURES, 0)
        for endpoint, node in nodes().items():
            load = loads.get(endpoint)
            starts = ray.get(node.status.remote(), timeout=_CALL_SECONDS)["starts"]
            figures = ["-"] * len(_FIGURES) if load is None else [load[each] for each in _FIGURES]
            click.echo(_ROW.format(endpoint, *figures, starts, _state(load)))
            for each in _FIGURES:
                sums[each] += 0 if load is None else load[each]
        click.echo(_ROW.format("all", *sums.values(), "", ""))


@cluster.command()
@click.argument("count", type=click.IntRange(1, 10_000))
@_address
@_folder
@_with_ray
def scale(count: int, address: str | None, folder: Path) -> None:
    """Ask Ray's autoscaler for COUNT machines besides the first. It takes no machine away whose node is not drained."""
    with _connected(address, folder):
        from ray.autoscaler.sdk import request_resources

        request_resources(bundles=[{MACHINE: 1}] * count)
    click.echo(f"asked for {count} machines")


@cluster.command()
@_address
@_folder
@_with_ray
def targets(address: str | None, folder: Path) -> None:
    """Print where Prometheus finds the nodes' metrics, as file_sd_configs reads it: each with the label "node"."""
    with _connected(address, folder) as ray:
        loads = ray.get(director().nodes.remote(), timeout=_CALL_SECONDS)
    click.echo(json.dumps(metrics_targets(loads), indent=2))


def metrics_targets(loads: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Prometheus's target groups of the nodes that serve metrics."""
    return [
        {"targets": [load["metrics"]], "labels": {"node": endpoint}}
        for endpoint, load in loads.items()
        if load.get("metrics")
    ]


def _state(load: dict[str, Any] | None) -> str:
    """A node's state, by its last report."""
    if load is None:
        return "starting"
    if load["silent"] > SILENT_SECONDS:
        return f"silent for {load['silent']:.0f} s"
    return "draining" if load["draining"] else "ready"


@cluster.command()
@click.argument("node")
@click.option("--grace-seconds", type=float, default=30.0, show_default=True, help="Time to store its sessions.")
@_address
@_folder
@_with_ray
def drain(node: str, grace_seconds: float, address: str | None, folder: Path) -> None:
    """End the server at NODE, host:port. It stores its sessions, which continue at other nodes."""
    with _connected(address, folder):
        found = nodes().get(node)
        if found is None:
            raise click.ClickException(f"there is no node {node}; there are {', '.join(nodes()) or 'none'}")
        _end(node, found, grace_seconds)


@cluster.command()
@click.option("--grace-seconds", type=float, default=30.0, show_default=True, help="Time to store the sessions.")
@_address
@_folder
@_with_ray
def down(grace_seconds: float, address: str | None, folder: Path) -> None:
    """End all nodes. They store their sessions. Then end Ray, where `up` started it."""
    record = folder.expanduser() / "cluster.json"
    started = _recorded(record) if address is None and record.exists() else None
    try:
        _end_all(address, folder, grace_seconds)
    except (RayError, CheckFailed) as error:
        if started is None or not started.is_known:
            if started is not None:
                record.unlink()
            raise
        click.echo(f"the cluster does not answer, and its processes are ended: {error}", err=True)
    if started is not None:
        if started.is_known:
            started.stop()
        record.unlink()


def _end_all(address: str | None, folder: Path, grace: float) -> None:
    """End all nodes and the Director. Raises RayError, CheckFailed."""
    with _connected(address, folder) as ray:
        found = nodes()
        ending = [(node, each, each.stop.remote(grace)) for node, each in found.items()]
        for node, each, answer in ending:
            _ended(node, ray.get(answer, timeout=grace + _CALL_SECONDS))
            ray.kill(each)
        ray.kill(director())


# Nodes.


def _serve_line(endpoint: str, state_dir: Path | str, arguments: Sequence[str]) -> list[str]:
    """The arguments of a node's `gradwire serve`, checked. Raises ClickException."""
    host, _, port = endpoint.rpartition(":")
    line = [
        f"--host={host.strip('[]')}", f"--port={port}", f"--endpoint={endpoint}", f"--state-dir={state_dir}",
        "--durability=log", *arguments,
    ]  # fmt: skip
    check_arguments(line)
    return line


def _start_server(endpoint: str, line: Sequence[str], folder: str, control: str = "") -> Any:
    return start_node(endpoint, line, {name: os.environ.get(name) for name in _CHANGED_BY_RAY}, folder, control)


def _wait_until_started(endpoint: str, node: Any) -> None:
    import ray

    why = ray.get(node.wait_until_started.remote(_START_SECONDS), timeout=_START_SECONDS + _CALL_SECONDS)
    if why:
        ray.kill(node)
        raise click.ClickException(f"the server at {endpoint} does not start:\n{why}")


def _end(endpoint: str, node: Any, grace: float) -> None:
    import ray

    _ended(endpoint, ray.get(node.stop.remote(grace), timeout=grace + _CALL_SECONDS))
    ray.kill(node)


def _ended(endpoint: str, in_time: bool) -> None:
    click.echo(f"{endpoint} has ended" + ("" if in_time else ", killed after its grace"))


def _check(check: Callable[..., None], *arguments: Any) -> None:
    """Make a check of the command line. Raises UsageError."""
    try:
        check(*arguments)
    except CheckFailed as error:
        raise click.UsageError(str(error)) from None


def _run_node(
    host: str, port: int, state_dir: str, folder: Path, arguments: Sequence[str], ray_port: int = 0, address: str = "",
    storage: HeadStorage | None = None,
) -> None:  # fmt: skip
    """Run Ray and a server on this machine until a signal, or until the node is drained."""
    token = folder.expanduser() / "token"
    endpoint, head_address = address_of(host, port), address or address_of(host, ray_port)
    line = _serve_line(endpoint, state_dir, arguments)
    check_token(token)
    check_storage(Path(state_dir), token, joins=bool(address))
    check_free(host, port)
    records: list[Record] = []
    if address:
        check_answers(address, token)
    else:
        check_free(host, ray_port)
        records = _records(Path(state_dir), token, storage)
        claim_head(head_address, token, records)
    use_token(token)
    _end_by_signals()
    started = RayProcess.start(
        host, [endpoint], sys.stderr, port=ray_port, address=address, storage=storage, name=cluster_name(token)
    )
    try:
        started.connect(head_address)
        check_head(head_address, records)
        if storage is not None:
            storage.check_used()
        _end_by_signals()  # again, since Ray has set its own handlers
        import ray

        loads = ray.get(director().nodes.remote(), timeout=_CALL_SECONDS)
        check_version(__version__, {each: load.get("version", "") for each, load in loads.items()})
        remove_lost(endpoint)
        control = f"{started.folder}/node"
        node = _start_server(endpoint, line, started.folder, control)
        _wait_until_started(endpoint, node)
        ray.shutdown()
        head = 0 if storage is None else started.head()
        if storage is not None and not head:
            raise RayError("Ray's head has ended")
        click.echo(f"listening on {endpoint}, Ray at {head_address}")
    except BaseException:
        started.stop()
        raise
    become_watch(endpoint, started, control, head)


def _records(state_dir: Path, token: Path, storage: HeadStorage | None) -> list[Record]:
    """Where the address of the cluster's head is written."""
    records: list[Record] = [FileRecord(state_dir)]
    if storage is not None and not storage.directory:
        records.append(RedisRecord(storage, cluster_name(token)))
    return records


def _end_by_signals() -> None:
    """Let signals end this process by an exception, so that it ends what it has started."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end_by_signal)


def _end_by_signal(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


# The cluster of this machine.


@contextmanager
def _connected(address: str | None, folder: Path) -> Iterator[Any]:
    """Ray's module, connected to the cluster. Raises RayError, ClickException."""
    folder = folder.expanduser()
    if address is None:
        record = folder / "cluster.json"
        if not record.exists():
            raise click.ClickException(f"no cluster is up in {folder}; --address names another one")
        address = str(_read(record)["address"])
    check_token(folder / "token")
    check_answers(address, folder / "token")
    use_token(folder / "token")
    connect(address)
    import ray

    try:
        yield ray
    finally:
        ray.shutdown()


def _read(record: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(record.read_text())
    return told


def _recorded(record: Path) -> RayProcess:
    """The Ray that `up` started."""
    told = _read(record)
    return RayProcess(told["pid"], told["folder"])


def _free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 at which nothing listens."""
    made = [socket.socket() for _ in range(count)]
    try:
        for each in made:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in made]
    finally:
        for each in made:
            each.close()

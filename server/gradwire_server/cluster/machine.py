"""Machine: Ray and one node on this machine, from the checks to the watch (watch.py)."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import click

from gradwire_server import __version__
from gradwire_server.app.cli import check_arguments
from gradwire_server.cluster.checks import (
    check_answers,
    check_free,
    check_ray,
    check_storage,
    check_token,
    check_version,
    cluster_name,
    note_ray,
)
from gradwire_server.cluster.director import director
from gradwire_server.cluster.head_record import FileRecord, Record, check_head, claim_head
from gradwire_server.cluster.head_storage import HeadStorage, RedisRecord
from gradwire_server.cluster.node import remove_lost, start_node
from gradwire_server.cluster.ray_process import MEMORY, RayError, RayProcess, use_token
from gradwire_server.cluster.watch import become_watch
from gradwire_server.common.addresses import address_of

CALL_SECONDS = 10.0
_START_SECONDS = 60.0
#: Variables of servers that Ray sets for its processes.
_CHANGED_BY_RAY = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", *MEMORY)


@dataclass(frozen=True)
class NodeOptions:
    """What the command line says of a machine's node."""

    host: str
    port: int
    state_dir: str
    folder: str  # with the cluster's token
    arguments: Sequence[str]  # of `gradwire serve`
    address: str = ""  # of Ray's head, which is started here without one

    @property
    def token(self) -> Path:
        """The token's file."""
        return Path(self.folder).expanduser() / "token"

    @property
    def endpoint(self) -> str:
        """The node's address."""
        return address_of(self.host, self.port)

    def to_json(self) -> str:
        """As a word of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> NodeOptions:
        """Those of such a word."""
        return cls(**json.loads(text))


def run_node(options: NodeOptions, ray_port: int = 0, storage: HeadStorage | None = None) -> NoReturn:
    """Run Ray and a server on this machine until a signal, or until the node is drained. Returns by an error only.

    Raises ClickException, CheckFailed, RayError, NodeExists, StorageError and OSError.
    """
    host, address, token, endpoint = options.host, options.address, options.token, options.endpoint
    state_dir = Path(options.state_dir)
    head_address = address or address_of(host, ray_port)
    line = serve_line(endpoint, state_dir, options.arguments)
    check_token(token)
    check_storage(state_dir, token, joins=bool(address))
    check_free(host, options.port)
    records: list[Record] = []
    if address:
        check_answers(address, token)
        check_ray(state_dir)
    else:
        check_free(host, ray_port)
        records = _records(state_dir, token, storage)
        claim_head(head_address, token, records)
    use_token(token)
    end_by_signals()
    started = RayProcess.start(
        host, [endpoint], sys.stderr, port=ray_port, address=address, storage=storage, name=cluster_name(token)
    )
    try:
        started.connect(head_address, host)
        check_head(head_address, records)
        if not address:
            note_ray(state_dir)
        if storage is not None:
            storage.check_used()
        end_by_signals()  # again, since Ray has set its own handlers
        import ray

        loads = ray.get(director().nodes.remote(), timeout=CALL_SECONDS)
        check_version(__version__, {each: load.get("version", "") for each, load in loads.items()})
        remove_lost(endpoint)
        control = f"{started.folder}/node"
        node = start_server(endpoint, line, started.folder, control)
        wait_until_started(endpoint, node)
        ray.shutdown()
        head = 0 if storage is None else started.head()
        if storage is not None and not head:
            raise RayError("Ray's head has ended")
        click.echo(f"listening on {endpoint}, Ray at {head_address}")
    except BaseException:
        started.stop()
        raise
    become_watch(endpoint, started, control, head, options.to_json() if address else "")


def _records(state_dir: Path, token: Path, storage: HeadStorage | None) -> list[Record]:
    """Where the address of the cluster's head is written."""
    records: list[Record] = [FileRecord(state_dir)]
    if storage is not None and not storage.directory:
        records.append(RedisRecord(storage, cluster_name(token)))
    return records


def end_by_signals() -> None:
    """Let signals end this process by an exception, so that it ends what it has started."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end_by_signal)


def _end_by_signal(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def serve_line(endpoint: str, state_dir: Path | str, arguments: Sequence[str]) -> list[str]:
    """The arguments of a node's `gradwire serve`, checked. Raises ClickException."""
    host, _, port = endpoint.rpartition(":")
    line = [
        f"--host={host.strip('[]')}", f"--port={port}", f"--endpoint={endpoint}", f"--state-dir={state_dir}",
        "--durability=log", *arguments,
    ]  # fmt: skip
    check_arguments(line)
    return line


def start_server(endpoint: str, line: Sequence[str], folder: str, control: str = "") -> Any:
    return start_node(endpoint, line, {name: os.environ.get(name) for name in _CHANGED_BY_RAY}, folder, control)


def wait_until_started(endpoint: str, node: Any) -> None:
    import ray

    why = ray.get(node.wait_until_started.remote(_START_SECONDS), timeout=_START_SECONDS + CALL_SECONDS)
    if why:
        ray.kill(node)
        raise click.ClickException(f"the server at {endpoint} does not start:\n{why}")

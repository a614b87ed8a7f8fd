"""`gradwire top`: shows the sessions of a server, or of all nodes of its cluster, live in the terminal.

The data come from each node's ListSessions, which needs the scope admin, and from ServerInfo. Rates are computed from
the change between two looks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradwire._base.errors import GradwireError
from gradwire._cli.admin import RIGHTS, add_server, in_bytes, in_time, plain, server_of
from gradwire._cli.cluster_sessions import SILENT_MS, ClusterSessions, Sessions
from gradwire._transport.connection_advice import explained
from gradwire._transport.transport import Transport
from gradwire.v1 import service_pb2

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_MOST_SHOWN = 30  # characters of a name
_FEWEST_ROWS = 5
_AROUND = 6  # lines besides the sessions' lines
_NUMBERS = ("bytes", "tensors", "commands/s", "compute", "queue", "lease", "age", "worker")


@dataclass
class ServerState:
    """State of the server and of its cluster at one moment. `at` is monotonic time in seconds."""

    at: float
    info: service_pb2.ServerInfoResponse
    held: Sessions


def query_state(transport: Transport, cluster: ClusterSessions) -> ServerState:
    """Query the server's state, and the sessions of all nodes. Raises GradwireError."""
    at = time.monotonic()
    info = transport.call("ServerInfo", service_pb2.ServerInfoRequest(), service_pb2.ServerInfoResponse)
    return ServerState(at, info, cluster.query())


@dataclass
class SessionRow:
    """A session with its rates, and its node's endpoint."""

    session: service_pb2.SessionSummary
    node: str = ""
    rate: float = 0.0  # commands per second
    share: float = 0.0  # seconds computed per second


def rows(before: ServerState, now: ServerState) -> dict[str, list[SessionRow]]:
    """Sessions by principal. Sessions and principals with the largest compute share come first."""
    seconds = max(now.at - before.at, 1e-3)
    found: dict[str, list[SessionRow]] = {}
    for key, session in now.held.sessions.items():
        was = before.held.sessions.get(key)
        commands, computed = (0, 0) if was is None else (was.commands, was.compute_us)
        row = SessionRow(session, key[0])
        if session.HasField("commands"):
            row.rate = max(0, session.commands - commands) / seconds
            row.share = max(0, session.compute_us - computed) / seconds / 1e6
        found.setdefault(session.principal, []).append(row)
    for each in found.values():
        each.sort(key=lambda row: (-row.share, -row.session.bytes, row.node, row.session.number))
    return dict(sorted(found.items(), key=lambda item: (-sum(row.share for row in item[1]), item[0])))


def render(address: str, before: ServerState, now: ServerState, most: int) -> RenderableType:
    """Screen content, with at most `most` lines of sessions."""
    from rich.console import Group
    from rich.text import Text

    info = now.info
    devices = ", ".join(device.name for device in info.devices)
    workers = info.build.get("workers", "")
    head = f"gradwire {info.version} at {address} · {devices}{f' · {workers} workers' if workers else ''}"
    held = f"{info.sessions} sessions · {in_bytes(info.bytes)} held"
    if unstored := sum(bool(each.unstored) for each in now.held.sessions.values()):
        held += f" · {unstored} could not be stored"
    nodes = [Text(node_line(each, each.endpoint in now.held.missed)) for each in now.held.nodes]
    if len(nodes) > 1:
        nodes.insert(0, Text(cluster_line(now.held.nodes)))
    return Group(Text(head, "bold"), Text(held), *nodes, _table(rows(before, now), most, bool(nodes)))


def cluster_line(nodes: Sequence[service_pb2.ClusterNode]) -> str:
    """The sums of a cluster in one line."""
    sessions, workers, gpus, held = (
        sum(getattr(each, name) for each in nodes) for name in ("sessions", "workers", "gpus", "bytes")
    )
    several = f"{workers} workers{f' · {gpus} GPUs' if gpus else ''}"
    return f"cluster of {len(nodes)} nodes · {sessions} sessions · {several} · {in_bytes(held)} held"


def node_line(node: service_pb2.ClusterNode, missed: bool = False) -> str:
    """A node of the cluster in one line. `missed`: it did not tell its sessions."""
    held = in_bytes(node.bytes) + (f" of {in_bytes(node.max_bytes)}" if node.max_bytes else "")
    gpus = f" · {node.gpus} GPUs" if node.gpus else ""
    state = (
        "draining"
        if node.draining
        else ""
        if node.silent_ms < SILENT_MS and not missed
        else "its sessions are not shown: it does not answer here"
        if node.silent_ms < SILENT_MS
        else f"silent for {in_time(node.silent_ms / 1000)}"
    )
    line = f"node {plain(node.endpoint)} · {node.sessions} sessions · {node.workers} workers{gpus} · {held} held"
    return f"{line} · {state}" if state else line


def _table(found: dict[str, list[SessionRow]], most: int, by_node: bool) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("session", justify="right")
    for name in ("principal", "client"):
        table.add_column(name, max_width=_MOST_SHOWN, no_wrap=True)
    for name in _NUMBERS:
        table.add_column(name, justify="right", no_wrap=True)
    if by_node:
        table.add_column("node", no_wrap=True)
    left = most
    for principal, sessions in found.items():
        if len(sessions) > 1 and left > 0:
            table.add_row(*_sums(principal, sessions), style="bold")
            left -= 1
        for row in sessions[: max(0, left)]:
            table.add_row(*_cells(row), *([plain(row.node)] if by_node else []))
        left -= len(sessions)
    if left < 0:
        table.add_row("…", f"{-left} more")
    return table


def _cells(row: SessionRow) -> list[Any]:
    session = row.session
    known = session.HasField("bytes")
    return [
        str(session.number),
        named(session.principal) or "-",
        named(session.client),
        in_bytes(session.bytes) if known else "?",
        str(session.tensors) if known else "?",
        f"{row.rate:.0f}" if known else "?",
        f"{row.share:.0%}" if known else "?",
        str(session.pending),
        in_time(session.lease_left_ms / 1000),
        in_time(session.age_ms / 1000),
        str(session.worker),
    ]


def _sums(principal: str, sessions: Sequence[SessionRow]) -> list[Any]:
    def of(name: str) -> int:
        return sum(getattr(row.session, name) for row in sessions)

    return [
        "",
        named(principal) or "-",
        f"{len(sessions)} sessions",
        in_bytes(of("bytes")),
        str(of("tensors")),
        f"{sum(row.rate for row in sessions):.0f}",
        f"{sum(row.share for row in sessions):.0%}",
        str(of("pending")),
        "",
        "",
        "",
    ]


def named(text: str) -> Any:
    """Other users' text as plain rich text, without markup."""
    from rich.text import Text

    return Text(plain(text)) if text else ""


def main(arguments: Iterable[str]) -> int:
    """Show the sessions of a server or cluster until Ctrl-C; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="gradwire top",
        description="Show the sessions of a server or its cluster by principal, with their memory and computing time.",
        epilog=f"{RIGHTS} compute is of one core: 200% keeps two workers busy.",
    )
    add_server(parser)
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between looks, by default 2")
    parser.add_argument("--once", action="store_true", help="show one interval and end")
    options = parser.parse_args(list(arguments))
    if not options.interval > 0:
        parser.error(f"--interval is a positive number of seconds, not {options.interval}")
    address, transport = server_of(parser, options)
    cluster = ClusterSessions(address, transport, options)
    try:
        return _show(lambda: query_state(transport, cluster), address, options.interval, options.once)
    except GradwireError as error:
        parser.exit(1, f"gradwire top: {address}: {explained(error, address, transport.credentials)}\n")
    except KeyboardInterrupt:
        return 0
    finally:
        cluster.close()


def _show(query: Callable[[], ServerState], address: str, interval: float, once: bool) -> int:
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        raise SystemExit("gradwire top needs rich: pip install 'gradwire[cli]'") from None
    console = Console()
    before = query()
    if once:
        time.sleep(interval)
        console.print(render(address, before, query(), len(before.held.sessions) + _FEWEST_ROWS))
        return 0
    with Live(console=console, screen=True, auto_refresh=False) as live:
        now = before
        while True:
            most = max(_FEWEST_ROWS, console.height - _AROUND - len(now.held.nodes))
            live.update(render(address, before, now, most), refresh=True)
            time.sleep(interval)
            before, now = now, query()

"""`gradwire sessions`: lists open or stored sessions of a server or of all nodes of a cluster, and ends them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from gradwire._base.errors import GradwireError
from gradwire._cli.admin import RIGHTS, add_server, in_bytes, in_time, plain, server_of
from gradwire._cli.cluster_sessions import ClusterSessions
from gradwire._transport.connection_advice import explained
from gradwire.v1 import service_pb2

_LONGEST = 30  # characters of a name
_OPEN = ("session", "principal", "client", "bytes", "tensors", "lease", "age")
_STORED = ("session", "principal", "client", "bytes", "tensors", "kept", "stored", "")


def main(arguments: Sequence[str]) -> int:
    """List sessions, or end one; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="gradwire sessions",
        description="List the sessions of a server, or of all nodes of its cluster, or end one at that server.",
        epilog=RIGHTS,
    )
    add_server(parser)
    parser.add_argument("--stored", action="store_true", help="stored sessions that are not in use")
    parser.add_argument("--principal", default="", help="of this principal alone")
    parser.add_argument("--end", type=int, metavar="NUMBER", help="end this one, or with --stored delete its files")
    options = parser.parse_args(list(arguments))
    address, transport = server_of(parser, options)
    cluster = ClusterSessions(address, transport, options)
    try:
        if options.end is not None:
            request = service_pb2.EndSessionRequest(number=max(0, options.end), stored=options.stored)
            freed = transport.call("EndSession", request, service_pb2.EndSessionResponse).freed_bytes
            print(f"session {options.end} ended, {in_bytes(freed)} freed")
            return 0
        found = cluster.query(options.principal, options.stored)
    except GradwireError as error:
        parser.exit(1, f"gradwire sessions: {address}: {explained(error, address, transport.credentials)}\n")
    finally:
        cluster.close()
    titles = _STORED if options.stored else _OPEN
    rows = [_cells(session) for session in found.sessions.values()]
    if found.nodes:
        titles = ("node", *titles)
        rows = [(plain(node), *row) for (node, _), row in zip(found.sessions, rows, strict=True)]
    _print([titles, *rows])
    for endpoint, why in found.missed.items():
        print(f"node {plain(endpoint)} is missing: {plain(why)}")
    return 0


def _cells(session: service_pb2.SessionSummary) -> tuple[str, ...]:
    known = session.HasField("bytes")
    cells = (
        str(session.number),
        plain(session.principal)[:_LONGEST] or "-",
        plain(session.client)[:_LONGEST] or "-",
        in_bytes(session.bytes) if known else "?",
        str(session.tensors) if known else "?",
    )
    if not session.HasField("stored"):
        return (*cells, in_time(session.lease_left_ms / 1000), in_time(session.age_ms / 1000))
    stored = session.stored
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(stored.saved_unix_ms / 1000))
    return (*cells, in_time(stored.left_ms / 1000), at, plain(stored.damage))


def _print(table: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

"""`gradwire sessions`: an administrator lists a server's sessions and ends them, those that are only stored, too.

What the commands for administrators have in common is here: which server, and by what right.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence

from gradwire._credentials import from_environment
from gradwire._errors import GradwireError
from gradwire._transport import Transport
from gradwire.v1 import service_pb2

ADDRESS = "127.0.0.1:50051"
RIGHTS = (
    "Needs a token or a certificate with the scope admin: GRADWIRE_TOKEN, which `gradwire token NAME --scope admin` "
    "makes."
)
_LONGEST = 30  # characters of a name
_OPEN = ("session", "principal", "client", "bytes", "tensors", "lease", "age")
_STORED = ("session", "principal", "client", "bytes", "tensors", "kept", "stored", "")


def add_server(parser: argparse.ArgumentParser) -> None:
    """The arguments that say which server, and what to show it."""
    parser.add_argument("address", nargs="?", help=f"the server, host:port; else GRADWIRE_ADDRESS, else {ADDRESS}")
    for name, what in (("ca", "authorities to believe"), ("cert", "certificate to show"), ("key", "key to --cert")):
        parser.add_argument(f"--{name}", metavar="FILE", help=f"PEM file of the {what}; else GRADWIRE_{name.upper()}")
    parser.add_argument("--tls", action="store_true", default=None, help="encrypt; --ca implies it")


def server_of(parser: argparse.ArgumentParser, options: argparse.Namespace) -> tuple[str, Transport]:
    """The server's address, and the way there. Ends the program where the arguments are wrong."""
    address = options.address or os.environ.get("GRADWIRE_ADDRESS") or ADDRESS
    try:
        credentials = from_environment(None, options.ca, options.cert, options.key, options.tls)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return address, Transport(address, credentials)


def listed(transport: Transport, principal: str = "", stored: bool = False) -> Iterator[service_pb2.SessionSummary]:
    """Everybody's sessions, or one principal's. Raises GradwireError."""
    request = service_pb2.ListSessionsRequest(principal=principal, stored=stored)
    while True:
        page = transport.call("ListSessions", request, service_pb2.ListSessionsResponse)
        yield from page.sessions
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def in_bytes(size: float) -> str:
    """A size for a person."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def in_time(seconds: float) -> str:
    """A time for a person."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def plain(text: str) -> str:
    """What others have named, as nothing but text."""
    return "".join(each if each.isprintable() else "?" for each in text)


def main(arguments: Sequence[str]) -> int:
    """List sessions, or end one; the answer is the exit status."""
    parser = argparse.ArgumentParser(
        prog="gradwire sessions", description="List a server's sessions, or end one.", epilog=RIGHTS
    )
    add_server(parser)
    parser.add_argument("--stored", action="store_true", help="those that are only stored: nobody uses them")
    parser.add_argument("--principal", default="", help="of this principal alone")
    parser.add_argument("--end", type=int, metavar="NUMBER", help="end this one, or with --stored delete its files")
    options = parser.parse_args(list(arguments))
    address, transport = server_of(parser, options)
    try:
        if options.end is not None:
            request = service_pb2.EndSessionRequest(number=max(0, options.end), stored=options.stored)
            freed = transport.call("EndSession", request, service_pb2.EndSessionResponse).freed_bytes
            print(f"session {options.end} ended, {in_bytes(freed)} freed")
            return 0
        found = list(listed(transport, options.principal, options.stored))
    except GradwireError as error:
        parser.exit(1, f"gradwire sessions: {address}: {error}\n")
    finally:
        transport.close()
    _print([_STORED if options.stored else _OPEN, *map(_cells, found)])
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

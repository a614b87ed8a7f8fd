"""What the administrators' commands share: the choice of the server, the credentials, pages of sessions, and words."""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from gradwire._transport.connection_advice import checked
from gradwire._transport.credentials import Credentials, from_environment, stays_here
from gradwire._transport.transport import Transport
from gradwire.v1 import service_pb2

ADDRESS = "127.0.0.1:50051"
RIGHTS = (
    "Needs a token or a certificate with the scope admin: GRADWIRE_TOKEN, which `gradwire token NAME --scope admin` "
    "makes. A server on this machine without authentication admits the user who runs it."
)
# Loopback addresses of a local server, and for each wildcard address a loopback address that reaches it.
_LOCAL = ("127.0.0.1", "[::1]")
_ANY = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}


def add_server(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that select the server and the credentials."""
    parser.add_argument("address", nargs="?", help=f"the server, host:port; else GRADWIRE_ADDRESS, else {ADDRESS}")
    for name, what in (("ca", "authorities to believe"), ("cert", "certificate to show"), ("key", "key to --cert")):
        parser.add_argument(f"--{name}", metavar="FILE", help=f"PEM file of the {what}; else GRADWIRE_{name.upper()}")
    parser.add_argument("--tls", action="store_true", default=None, help="encrypt; --ca implies it")


def server_of(parser: argparse.ArgumentParser, options: argparse.Namespace) -> tuple[str, Transport]:
    """Server's address and a transport to it. Exits the program if the arguments are invalid."""
    address = (options.address or os.environ.get("GRADWIRE_ADDRESS") or ADDRESS).partition(",")[0].strip()
    try:
        address, credentials = credentials_for(address, options)
        return address, Transport(checked(address), credentials)
    except (OSError, ValueError) as error:
        parser.error(str(error))


def credentials_for(address: str, options: argparse.Namespace) -> tuple[str, Credentials]:
    """The user's credentials, else the secret of the server at this address; and the address to send them to.

    Raises OSError, ValueError.
    """
    credentials = from_environment(None, options.ca, options.cert, options.key, options.tls)
    if not credentials.metadata and not credentials.tls and stays_here(address):
        found = owners_secret(address)
        if found is not None:
            secret, address = found
            credentials = Credentials(secret)
    return address, credentials


def owners_secret(address: str) -> tuple[str, str] | None:
    """Secret that proves this user runs the server at `address`, and the address to send it to; None without one.

    The server wrote the secret to a file that only its user can read. The secret must not be sent to another process
    on the same port, such as one at the address that localhost resolves to first.
    """
    if not hasattr(os, "geteuid"):
        return None
    folder = f"/tmp/gradwire-{os.geteuid()}"
    host, _, port = address.rpartition(":")
    others = _LOCAL if host == "localhost" else ("localhost",) if host in _LOCAL else ()
    try:
        if not _is_ours_alone(os.lstat(folder), stat.S_ISDIR):
            return None
        for listens in (host, *others, *_ANY):
            secret = _secret_in(f"{folder}/{quote(f'{listens}:{port}', safe='[]:')}.owner")
            if secret:
                reached = _ANY.get(listens) or (listens if host == "localhost" else host)
                return secret, f"{reached}:{port}"
    except (OSError, ValueError):
        pass
    return None


def _is_ours_alone(found: os.stat_result, kind: Callable[[int], bool]) -> bool:
    return kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _secret_in(path: str) -> str | None:
    """Secret of a running server, which holds a lock on the file; None otherwise. Raises OSError."""
    import fcntl  # exists on POSIX only, as os.geteuid does

    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with open(file) as opened:
        if not _is_ours_alone(os.fstat(file), stat.S_ISREG):
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return opened.read().strip() or None
    return None


def listed(
    transport: Transport,
    principal: str = "",
    stored: bool = False,
    nodes: list[service_pb2.ClusterNode] | None = None,
    **call: Any,
) -> Iterator[service_pb2.SessionSummary]:
    """All sessions, or one principal's, page by page. Adds the cluster's nodes to `nodes`. Raises GradwireError.

    `call` goes to Transport.call: timeout, waits.
    """
    request = service_pb2.ListSessionsRequest(principal=principal, stored=stored, nodes=nodes is not None)
    while True:
        page = transport.call("ListSessions", request, service_pb2.ListSessionsResponse, **call)
        yield from page.sessions
        if nodes is not None:
            nodes.extend(page.nodes)
            request.nodes = False
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def in_bytes(size: float) -> str:
    """Readable size, such as "1.5 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def in_time(seconds: float) -> str:
    """Readable duration, such as "5 min"."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def plain(text: str) -> str:
    """Text with unprintable characters replaced by "?", safe for a terminal. Names come from other users."""
    return "".join(each if each.isprintable() else "?" for each in text)

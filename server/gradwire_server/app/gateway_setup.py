"""What `gradwire serve --web` and `gradwire studio` check before a gateway listens."""

import socket
from importlib.util import find_spec
from urllib.parse import urlsplit

from gradwire_server.common.addresses import address_of, is_loopback

_BACKLOG = 512
_NEEDED = ("starlette", "uvicorn", "websockets")


class GatewayRefused(Exception):
    """The gateway may not or cannot listen; the message says why and what helps."""


def check_installed(asked: str) -> None:
    """Check that the extra is installed. Raises GatewayRefused."""
    lacking = [name for name in _NEEDED if find_spec(name) is None]
    if lacking:
        raise GatewayRefused(f"{asked} needs {', '.join(lacking)}: pip install 'gradwire[web]'")


def check_exposure(host: str, authenticated: bool, encrypted: bool, insecure_bind: bool) -> None:
    """Check that an address others can reach is protected. Raises GatewayRefused."""
    if is_loopback(host):
        return
    if not authenticated:
        raise GatewayRefused(
            f"{host} can be reached by others, and the server admits callers without a token: whoever reaches the "
            "port, and every page in a browser that does, could use this machine. Listen at 127.0.0.1, or give the "
            "server a --token-file; --insecure-bind does not lift this"
        )
    if not encrypted and not insecure_bind:
        raise GatewayRefused(
            f"{host} can be reached by others, and there is no --tls-cert: whoever sees the traffic reads tokens and "
            "cookies. Pass --insecure-bind if a proxy before it encrypts"
        )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError with the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends without delay only where the protocol is named.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise OSError(f"cannot listen for the web at {address_of(host, port)}: {error.strerror or error}") from None
    made.setblocking(False)
    return made


def url_of(listening: socket.socket, encrypted: bool) -> str:
    """The URL at which a socket is reached."""
    host, port = listening.getsockname()[:2]
    return f"{'https' if encrypted else 'http'}://{address_of(host, port)}"


def origins_of(text: str) -> tuple[str, ...]:
    """Parse origins, separated by commas. Raises ValueError."""
    found = tuple(each.strip().rstrip("/").lower() for each in text.split(",") if each.strip())
    for origin in found:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.hostname or origin != f"{parts.scheme}://{parts.netloc}":
            raise ValueError(f"an origin is http://HOST or https://HOST, with a port if it is unusual, not {origin!r}")
    return found

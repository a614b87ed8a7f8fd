"""Mistakes: explains common connection and authentication errors, with advice.

The causes are derived from gRPC's error texts. If a text is ambiguous, one connection to the port decides.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from typing import TYPE_CHECKING

from gradwire._base.errors import GradwireError, make_error
from gradwire.v1 import errors_pb2 as pb

if TYPE_CHECKING:
    from gradwire._transport.credentials import Credentials

_PROBE_SECONDS = 0.7
_SCHEMES = ("unix:", "unix-abstract:", "vsock:", "dns:", "ipv4:", "ipv6:")
_HOST_AND_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^:\[\]/\s]+):(?P<port>[0-9]{1,5})")


def checked(address: str, source: str = "the address") -> str:
    """Return a valid address. Raises ValueError for others: without a port gRPC would use 443."""
    found = _HOST_AND_PORT.fullmatch(address)
    if address.startswith(_SCHEMES) or (found and 0 < int(found["port"]) < 65_536):
        return address
    host = address.rpartition("://")[2].partition("/")[0].partition(":")[0]
    if _HOST_AND_PORT.fullmatch(f"{host}:1") is None:
        host = "localhost"
    what = "has no port" if found is None and ":" not in address else "names no server"
    if found is not None:
        what = f"has the port {found['port']}, which is not in 1 to 65535"
    raise ValueError(f"{source} {address!r} {what}: give HOST:PORT, as {host}:50051, or unix:/path")


def checked_all(addresses: str, source: str = "the address") -> tuple[str, ...]:
    """The addresses of a comma-separated list, at least one. Raises ValueError for invalid ones."""
    parts = [part.strip() for part in addresses.split(",")]
    return tuple(dict.fromkeys(checked(part, source) for part in parts if part)) or (checked(addresses, source),)


def explained(error: GradwireError, address: str, credentials: Credentials | None) -> GradwireError:
    """The error of the first call to a server, with advice if the cause is known."""
    if error.reason == "UNAUTHENTICATED":
        hint = _about_token(credentials)
    elif error.reason == "UNAVAILABLE":
        hint = _about_connection(str(error), address, credentials)
    elif error.reason == "NOT_SUPPORTED" or error.code in (2, 12):  # UNKNOWN, UNIMPLEMENTED
        hint = _NOT_OURS if "REASON" not in error.metadata and "http" in str(error).lower() else ""
    else:
        hint = ""
    if not hint:
        return error
    reason = pb.Reason.Value(f"REASON_{error.reason}")
    return make_error(reason, f"{error}\n  {hint}", error.code, error.metadata)


_NOT_OURS = "The server at that port does not speak gRPC, perhaps a web server. Is it the port of `gradwire serve`?"
_REFUSED = "No server listens there: start `gradwire serve`, or check the host and the port."
_NO_HOST = "The host's name cannot be resolved: check its spelling, or give its IP address."
_SPEAKS_TLS = (
    "The server seems to use TLS: pass the authority that signed its certificate as ca= or GRADWIRE_CA. If it is a "
    "public authority, pass tls=True or set GRADWIRE_TLS=1."
)
_NO_TLS = (
    "The server seems not to use TLS: remove ca=, cert=, key= and tls=, and unset GRADWIRE_CA, _CERT, _KEY and _TLS."
)
_DISTRUSTED = (
    "The server's certificate is not trusted: pass the authority that signed it as ca= or GRADWIRE_CA, and connect to "
    "a name that the certificate contains."
)
_WANTS_CERTIFICATE = "The server requires a client certificate: pass cert= and key=, or set GRADWIRE_CERT and _KEY."


def _about_token(credentials: Credentials | None) -> str:
    if credentials is None or not credentials.metadata:
        return "No token was given: pass token=, or set GRADWIRE_TOKEN. `gradwire token NAME` makes one."
    return "The token of token= or GRADWIRE_TOKEN is unknown to this server, or has expired."


def _about_connection(text: str, address: str, credentials: Credentials | None) -> str:
    encrypts = credentials is not None and credentials.tls
    low = text.lower()
    if "name not found" in low or "errors resolving" in low or "dns" in low:
        return _NO_HOST
    if "connection refused" in low or "no such file" in low:
        return _REFUSED
    if "certificate_verify_failed" in low or "hostname" in low:
        return _DISTRUSTED
    if "certificate_required" in low or "handshake_failure" in low:
        return _WANTS_CERTIFICATE
    speaks = _speaks_tls(address)
    if encrypts:
        return _NO_TLS if speaks is False else _WANTS_CERTIFICATE if credentials and not credentials.shows else ""
    if speaks:
        return _SPEAKS_TLS
    return _NOT_OURS if "settings" in low or "parsing http" in low else ""


def _speaks_tls(address: str) -> bool | None:
    """Whether the port answers a TLS handshake; None if the port cannot be reached."""
    found = _HOST_AND_PORT.fullmatch(address)
    if found is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # a probe: it sends no data and trusts no answer
    with contextlib.suppress(ValueError, NotImplementedError):
        context.set_alpn_protocols(["h2"])
    host = found["host"].strip("[]")
    try:
        with socket.create_connection((host, int(found["port"])), _PROBE_SECONDS) as plain:
            try:
                with context.wrap_socket(plain, server_hostname=host):
                    return True
            except ssl.SSLError as error:
                return "alert" in str(error).lower()  # a TLS alert proves that the server speaks TLS
            except (OSError, ValueError):
                return False
    except OSError:
        return None

"""Credentials: authenticates the client and selects the trusted certificate authorities.

The token is metadata of every call, which works over any channel. A certificate is presented once per connection. No
error and no repr contains credentials.
"""

from __future__ import annotations

import ipaddress
import os
import re
import warnings
from collections.abc import Mapping
from typing import Any

import grpc

_TOKEN = re.compile(r"[!-~]{1,4096}")  # valid in a header; gRPC's own error would contain the token


class Credentials:
    """A token and the TLS settings of a connection. Raises ValueError or OSError for unusable credentials."""

    def __init__(
        self,
        token: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        cert: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        tls: bool | None = None,
    ) -> None:
        if token is not None and not _TOKEN.fullmatch(token):
            raise ValueError("a token is 1 to 4096 visible ASCII characters; this one is something else")
        if (cert is None) != (key is None):
            raise ValueError("cert and key go together")
        if tls is False and (ca is not None or cert is not None):
            raise ValueError("ca, cert and key are of use with TLS only, and tls is False")
        self.tls = bool(tls) or ca is not None or cert is not None
        #: Metadata of every call.
        self.metadata: tuple[tuple[str, str], ...] = (("authorization", f"Bearer {token}"),) if token else ()
        #: Whether the client presents a certificate.
        self.shows = cert is not None
        self._files = tuple(_content(path) for path in (ca, key, cert))

    def __repr__(self) -> str:
        given_kinds = [name for name, given in (("token", self.metadata), ("TLS", self.tls)) if given]
        return f"<Credentials with {' and '.join(given_kinds) or 'nothing'}>"

    def channel(self, address: str, options: list[Any]) -> grpc.Channel:
        """Open a channel to `address`. Warns if the token would leave this machine unencrypted."""
        if self.tls:
            return grpc.secure_channel(address, grpc.ssl_channel_credentials(*self._files), options)
        if self.metadata and not stays_here(address):
            warnings.warn(
                f"the token travels to {address} unencrypted, so others can read and use it; "
                "pass tls=True, or the server's certificate authority as ca",
                stacklevel=5,
            )
        return grpc.insecure_channel(address, options=options)


def from_environment(
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    tls: bool | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Credentials:
    """Credentials from the arguments, and from GRADWIRE_TOKEN, _CA, _CERT, _KEY and _TLS for missing ones."""
    if token is None:
        token = environment.get("GRADWIRE_TOKEN", "").strip() or None
    if tls is not False:
        ca = ca or environment.get("GRADWIRE_CA") or None
        if cert is None and key is None:
            cert, key = environment.get("GRADWIRE_CERT") or None, environment.get("GRADWIRE_KEY") or None
    if tls is None:
        tls = environment.get("GRADWIRE_TLS", "") not in ("", "0") or None
    return Credentials(token, ca, cert, key, tls)


def _content(path: str | os.PathLike[str] | None) -> bytes | None:
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()


def stays_here(address: str) -> bool:
    """Whether traffic to `address` stays on this machine."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

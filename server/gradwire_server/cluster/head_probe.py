"""Head probe: what answers at an address, and whether it is the Ray's head that knows a token. It takes seconds.

Ray itself would try an address for minutes.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import grpc

from gradwire_server.common.peer import answers

_SECONDS = 3.0
_HEAD = "/ray.rpc.NodeInfoGcsService/CheckAlive"
_SERVER = "/gradwire.v1.AutogradService/ServerInfo"
_WHERE = "`gradwire cluster start` prints its address"
_NO_SUCH_CALL = grpc.StatusCode.UNIMPLEMENTED
_NO_CREDENTIALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


def why_no_head(address: str, token: Path) -> str:
    """Why what is at HOST:PORT is no Ray's head that knows the token: part of a sentence; "" if it is one."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _SECONDS).close()
    except OSError as error:
        return f"cannot be reached: {error.strerror or error}"
    try:
        status, details = _status(address, _HEAD, token.read_text().strip())
    except OSError as error:
        return f"cannot be asked: {error.strerror or error}"
    if status is grpc.StatusCode.OK:
        return ""
    if status in (_NO_SUCH_CALL, *_NO_CREDENTIALS):
        if _status(address, _SERVER)[0] is not _NO_SUCH_CALL:
            return f"is a gradwire server, not Ray's head, which has another port: {_WHERE}"
        if status is _NO_SUCH_CALL:
            return f"is a gRPC server, but not Ray's head: {_WHERE}"
        return f"refuses the token: {token} must be a copy of that of the machine where the cluster was started"
    if answers(address, tls=True):
        return (
            "asks for TLS: it is no Ray's head, or RAY_USE_TLS=1 and Ray's certificates are not the same here and there"
        )
    return f"does not answer as Ray's head does: {details or status.name}. {_WHERE[0].upper() + _WHERE[1:]}"


def _status(address: str, method: str, token: str = "") -> tuple[grpc.StatusCode, str]:
    """How a call ends that has an empty message. Raises OSError if Ray's certificates cannot be read."""
    with _channel(address) as channel:
        call: Any = channel.unary_unary(method)
        try:
            call(b"", timeout=_SECONDS, metadata=[("authorization", f"Bearer {token}")] if token else None)
        except grpc.RpcError as error:
            return error.code(), " ".join(str(error.details()).split())
    return grpc.StatusCode.OK, ""


def _channel(address: str) -> grpc.Channel:
    if os.environ.get("RAY_USE_TLS") != "1":
        return grpc.insecure_channel(address)
    authority, key, certificate = (
        Path(os.environ[f"RAY_TLS_{name}"]).read_bytes() for name in ("CA_CERT", "SERVER_KEY", "SERVER_CERT")
    )
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(authority, key, certificate))

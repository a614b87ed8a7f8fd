"""Status: how a call ended, for browsers: Connect's JSON with details, gRPC-Web's trailers, WebSocket's close code.

A status comes from the server's trailers, or from a refusal of the gateway itself. Texts are data in JSON with the type
application/json; no answer has markup that a client chose.
"""

import base64
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import grpc
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from starlette.responses import JSONResponse

from gradwire.v1 import errors_pb2
from gradwire_server.common.abort import status_code
from gradwire_server.common.errors import ERROR_TRAILER, STATUS_TRAILER, Refusal

#: HTTP status codes, as Connect's protocol has them.
_HTTP = {
    "CANCELLED": 499, "UNKNOWN": 500, "INVALID_ARGUMENT": 400, "DEADLINE_EXCEEDED": 504, "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409, "PERMISSION_DENIED": 403, "RESOURCE_EXHAUSTED": 429, "FAILED_PRECONDITION": 400,
    "ABORTED": 409, "OUT_OF_RANGE": 400, "UNIMPLEMENTED": 501, "INTERNAL": 500, "UNAVAILABLE": 503, "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}  # fmt: skip
_CANCELLED = "canceled"  # Connect's spelling
_DETAIL_TYPES: tuple[Any, ...] = (
    error_details_pb2.ErrorInfo,
    error_details_pb2.BadRequest,
    error_details_pb2.RetryInfo,
)
_UNREACHABLE = "the server cannot be reached; try again"
# Texts of these statuses come from gRPC, not from the server, if there is no trailer. They may name private addresses.
_HIDDEN = frozenset((grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL))


@dataclass(frozen=True)
class CallStatus:
    """A status code with its message, and the two trailers of a refusal: serialized, or empty."""

    code: grpc.StatusCode
    message: str
    status: bytes = b""
    error: bytes = b""
    http: int = 0  # an HTTP status in place of the code's

    @property
    def http_status(self) -> int:
        """The HTTP status of a Connect answer."""
        return self.http or _HTTP[self.code.name]

    def body(self) -> dict[str, Any]:
        """Connect's error: code, message and details. A detail has its bytes in base64, and its fields as `debug`."""
        name = _CANCELLED if self.code is grpc.StatusCode.CANCELLED else self.code.name.lower()
        return {"code": name, "message": self.message, "details": self._details()}

    def _details(self) -> list[dict[str, Any]]:
        found = []
        try:
            for packed in status_pb2.Status.FromString(self.status).details:
                kind = packed.type_url.rpartition("/")[2]
                made = next((each for each in _DETAIL_TYPES if each.DESCRIPTOR.full_name == kind), None)
                fields = {} if made is None else {"debug": json_format.MessageToDict(made.FromString(packed.value))}
                found.append({"type": kind, "value": _base64(packed.value), **fields})
            if self.error:
                error = errors_pb2.Error.FromString(self.error)
                fields = {"debug": json_format.MessageToDict(error)}
                found.append({"type": error.DESCRIPTOR.full_name, "value": _base64(self.error), **fields})
        except (DecodeError, UnicodeDecodeError):
            return found  # of a server with another version: what can be read
        return found

    def response(self) -> JSONResponse:
        """The answer of a Connect call, and of everything that is no gRPC-Web call."""
        headers = {} if self.code is not grpc.StatusCode.UNAUTHENTICATED else {"www-authenticate": "Bearer"}
        return JSONResponse(self.body(), self.http_status, headers)

    def trailers(self) -> bytes:
        """gRPC-Web's trailers: lines of a last frame."""
        lines = [f"grpc-status: {self.code.value[0]}", f"grpc-message: {quote(self.message, safe=' ')}"]
        for name, value in ((STATUS_TRAILER, self.status), (ERROR_TRAILER, self.error)):
            if value:
                lines.append(f"{name}: {_base64(value)}")
        return ("\r\n".join(lines) + "\r\n").encode("ascii")


OK = CallStatus(grpc.StatusCode.OK, "")


def status_of(error: Exception) -> CallStatus:
    """The status of a call that raised: gRPC's error, or a refusal of the gateway."""
    if isinstance(error, Refusal):
        (_, status), (_, details) = error.trailers()
        return CallStatus(status_code(error), error.message, status, details, getattr(error, "http", 0))
    assert isinstance(error, grpc.aio.AioRpcError)
    trailers = {key: value for key, value in error.trailing_metadata() or () if isinstance(value, bytes)}
    code, message = error.code(), error.details() or ""
    if ERROR_TRAILER not in trailers and code in _HIDDEN:
        message = _UNREACHABLE if code is grpc.StatusCode.UNAVAILABLE else "the call broke; try again"
        if code is grpc.StatusCode.INTERNAL:
            # grpc.aio's own, where the server ends a call just as a message is written. The server's has a trailer.
            code = grpc.StatusCode.UNAVAILABLE
    return CallStatus(code, message, trailers.get(STATUS_TRAILER, b""), trailers.get(ERROR_TRAILER, b""))


def http_refusal(http: int, reason: str, message: str, **metadata: Any) -> Refusal:
    """A refusal whose HTTP status is not that of its reason, such as 415."""
    refusal = Refusal(reason, message, **metadata)
    refusal.http = http  # type: ignore[attr-defined]
    return refusal


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii").rstrip("=")

"""Status: converts a gRPC status to a GradwireError."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc

from gradwire._base.errors import GradwireError, make_error, reason_of_code
from gradwire._transport.wire import Details
from gradwire.v1 import errors_pb2


def error_of_status(
    status: grpc.StatusCode, text: str, trailers: Iterable[Any], address: str
) -> tuple[GradwireError, bool]:
    """The exception, and whether the server gave a reason. Errors without one come from the connection."""
    for key, value in trailers:
        if key == "grpc-status-details-bin":
            details = Details(value)
            name = f"REASON_{details.reason}"
            if name in errors_pb2.Reason.keys():  # noqa: SIM118 - it is no dict
                reason = errors_pb2.Reason.Value(name)
                return make_error(reason, details.message or text, details.code, details.metadata), True
    code: Any = status.value[0]
    text = text or str(status)
    if status is grpc.StatusCode.UNAVAILABLE:
        text = f"the server at {address} cannot be reached: {text}"
    return make_error(reason_of_code(code), text, code, {"address": address}), False


def error_of_call(error: grpc.RpcError, address: str) -> GradwireError:
    """The exception for a failed call."""
    if not isinstance(error, grpc.Call):
        return error_of_status(grpc.StatusCode.UNKNOWN, "", (), address)[0]
    return error_of_status(error.code(), error.details() or "", error.trailing_metadata() or (), address)[0]

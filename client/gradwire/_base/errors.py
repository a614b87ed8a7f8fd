"""Errors: one base exception, and a subclass for each Python exception that PyTorch raises.

`EXCEPTIONS` maps each reason of the contract to its class; a status code alone could not tell an IndexError
from a ValueError. No gRPC type leaves the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire._base.tracebacks import folded_lines
from gradwire.v1 import errors_pb2 as pb


class GradwireError(Exception):
    """The base of all errors that a server or the connection to one causes.

    `reason` is the contract's reason without its prefix ("SHAPE"). `code` is the gRPC status number.
    `metadata` holds machine-readable details: op, shapes, limits.
    """

    reason: str = "RUNTIME"
    code: int = 2
    metadata: Mapping[str, str] = {}
    #: Whether the error belongs to an earlier, deferred command.
    late = False

    def _render_traceback_(self) -> list[str]:
        """The lines that a notebook shows, without the package's own frames."""
        return folded_lines(self)


class GradwireRuntimeError(GradwireError, RuntimeError):
    """A refusal for which PyTorch raises RuntimeError."""


class GradwireLinAlgError(GradwireRuntimeError):
    """A singular matrix, or a decomposition that failed (torch.linalg.LinAlgError)."""


class GradwireGroupError(GradwireRuntimeError):
    """A rank of a process group is gone, or the ranks disagree (torch.distributed.DistBackendError)."""


class GradwireIndexError(GradwireError, IndexError):
    """A dimension or an index out of range."""


class GradwireTypeError(GradwireError, TypeError):
    """An argument of the wrong type."""


class GradwireValueError(GradwireError, ValueError):
    """An argument's value is not allowed."""


class GradwireNotImplementedError(GradwireRuntimeError, NotImplementedError):
    """An op, dtype or case that the server does not have."""


class GradwireMemoryError(GradwireRuntimeError, MemoryError):
    """The result would exceed the byte limit of the session or the server."""


class GradwireTimeoutError(GradwireError, TimeoutError):
    """A deadline passed before the work was done."""


class GradwireConnectionError(GradwireError, ConnectionError):
    """The server is shutting down or cannot be reached."""


class GradwireOSError(GradwireError, OSError):
    """The server cannot write: its disk is full, or its state directory read-only."""


class GradwirePermissionError(GradwireError, PermissionError):
    """The server cannot authenticate the caller or denies the request."""


EXCEPTIONS: dict[int, type[GradwireError]] = {
    pb.REASON_SESSION_NOT_FOUND: GradwireRuntimeError,
    pb.REASON_SESSION_EXPIRED: GradwireRuntimeError,
    pb.REASON_SESSION_MOVED: GradwireRuntimeError,
    pb.REASON_SESSION_LIMIT: GradwireRuntimeError,
    pb.REASON_TENSOR_NOT_FOUND: GradwireRuntimeError,
    pb.REASON_TENSOR_EXISTS: GradwireRuntimeError,
    pb.REASON_TRANSFER_NOT_FOUND: GradwireRuntimeError,
    pb.REASON_OP_UNKNOWN: GradwireNotImplementedError,
    pb.REASON_NOT_SUPPORTED: GradwireNotImplementedError,
    pb.REASON_ARGUMENT_TYPE: GradwireTypeError,
    pb.REASON_ARGUMENT_VALUE: GradwireValueError,
    pb.REASON_SHAPE: GradwireRuntimeError,
    pb.REASON_DTYPE: GradwireRuntimeError,
    pb.REASON_DIM_OUT_OF_RANGE: GradwireIndexError,
    pb.REASON_INDEX_OUT_OF_RANGE: GradwireIndexError,
    pb.REASON_DEVICE_UNAVAILABLE: GradwireRuntimeError,
    pb.REASON_DEVICE_MISMATCH: GradwireRuntimeError,
    pb.REASON_PAYLOAD_SIZE: GradwireValueError,
    pb.REASON_GRADIENT_NEEDS_SCALAR: GradwireRuntimeError,
    pb.REASON_NO_GRAD_FN: GradwireRuntimeError,
    pb.REASON_GRAPH_FREED: GradwireRuntimeError,
    pb.REASON_VERSION_CONFLICT: GradwireRuntimeError,
    pb.REASON_LEAF_IN_PLACE: GradwireRuntimeError,
    pb.REASON_UNUSED_INPUT: GradwireRuntimeError,
    pb.REASON_REQUIRES_GRAD: GradwireRuntimeError,
    pb.REASON_MEMORY_LIMIT: GradwireMemoryError,
    pb.REASON_TENSOR_LIMIT: GradwireRuntimeError,
    pb.REASON_MESSAGE_TOO_LARGE: GradwireValueError,
    pb.REASON_DEADLINE_EXCEEDED: GradwireTimeoutError,
    pb.REASON_CANCELLED: GradwireRuntimeError,
    pb.REASON_DEPENDENCY_FAILED: GradwireRuntimeError,
    pb.REASON_SEQUENCE_GAP: GradwireRuntimeError,
    pb.REASON_EPOCH_MISMATCH: GradwireRuntimeError,
    pb.REASON_PROTOCOL_VERSION: GradwireRuntimeError,
    pb.REASON_MALFORMED: GradwireValueError,
    pb.REASON_UNAVAILABLE: GradwireConnectionError,
    pb.REASON_INTERNAL: GradwireRuntimeError,
    pb.REASON_RESULT_FORGOTTEN: GradwireRuntimeError,
    pb.REASON_RUNTIME: GradwireRuntimeError,
    pb.REASON_UNAUTHENTICATED: GradwirePermissionError,
    pb.REASON_PERMISSION_DENIED: GradwirePermissionError,
    pb.REASON_STREAM_TAKEN: GradwireRuntimeError,
    pb.REASON_PROGRAM_UNKNOWN: GradwireRuntimeError,
    pb.REASON_PROGRAM_LIMIT: GradwireRuntimeError,
    pb.REASON_COMPUTE_LIMIT: GradwireRuntimeError,
    pb.REASON_TRAFFIC_LIMIT: GradwireRuntimeError,
    pb.REASON_OP_LIMIT: GradwireRuntimeError,
    pb.REASON_SNAPSHOT_NOT_FOUND: GradwireRuntimeError,
    pb.REASON_SNAPSHOT_LIMIT: GradwireRuntimeError,
    pb.REASON_SNAPSHOT_DAMAGED: GradwireRuntimeError,
    pb.REASON_STORAGE: GradwireOSError,
    pb.REASON_GROUP_BROKEN: GradwireGroupError,
    pb.REASON_COLLECTIVE_MISMATCH: GradwireGroupError,
}

# For a refusal without a reason (from a proxy or from gRPC itself), the status code decides.
_BY_CODE = {
    1: pb.REASON_CANCELLED,
    3: pb.REASON_MALFORMED,
    4: pb.REASON_DEADLINE_EXCEEDED,
    7: pb.REASON_PERMISSION_DENIED,
    8: pb.REASON_MESSAGE_TOO_LARGE,
    12: pb.REASON_NOT_SUPPORTED,
    14: pb.REASON_UNAVAILABLE,
    16: pb.REASON_UNAUTHENTICATED,
}


def make_error(reason: int, message: str, code: int = 2, metadata: Mapping[str, str] | None = None) -> GradwireError:
    """The exception for a reason of the contract. An unknown reason gives GradwireRuntimeError."""
    kind = EXCEPTIONS.get(reason, GradwireRuntimeError)
    if metadata and "linalg_error" in metadata and kind is GradwireRuntimeError:
        kind = GradwireLinAlgError
    error = kind(message)
    error.reason = pb.Reason.Name(reason).removeprefix("REASON_") if reason in pb.Reason.values() else str(reason)
    error.code = code
    error.metadata = dict(metadata or {})
    return error


def from_message(error: pb.Error) -> GradwireError:
    """The exception for a refusal in a batch."""
    return make_error(error.reason, error.message, error.code, error.metadata)


def reason_of_code(code: int) -> int:
    """The reason for a status code without a reason."""
    return _BY_CODE.get(code, pb.REASON_INTERNAL)


def refuse(message: str, reason: int = pb.REASON_RUNTIME) -> GradwireError:
    """The exception for a refusal by the client itself."""
    return make_error(reason, message, code=9)


def two_sessions(op: str, one: Any, other: Any) -> GradwireError:
    """The refusal of an op on tensors of two sessions."""
    return make_error(
        pb.REASON_ARGUMENT_VALUE,
        f"{op}(): the tensors are of two sessions, one at {one.address} and one at {other.address}; "
        "bring one over by gradwire.tensor(x.tolist()) or x.numpy()",
        3,
    )

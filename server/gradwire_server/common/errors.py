"""Refusals: the one exception for errors that clients see, and the table from reason to status code.

`refusal_of` turns every exception of a command into a refusal. Unexpected exceptions become INTERNAL, with a message
that reveals nothing; the stack goes to the log. engine_errors.py translates the engine's exceptions, so the front need
not load the engine.
"""

import logging
from enum import IntEnum
from string import printable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from google.protobuf import any_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from gradwire.v1 import errors_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from google.protobuf.message import Message

DOMAIN = "gradwire"
PREFIX = "REASON_"
# HTTP/2 peers commonly refuse trailers over 8 KiB. Trailers carry the text three times: percent-encoded, and in base64
# in google.rpc.Status and in gradwire.v1.Error. So these limits count the bytes of the percent-encoded text.
MAX_TEXT = 1500
MAX_DETAIL = 300
MAX_DETAILS = 8
# Most bytes of the serialized gradwire.v1.Error in trailers, before base64. Beyond that its texts are cut further.
MAX_ERROR = 1000
STATUS_TRAILER, ERROR_TRAILER = "grpc-status-details-bin", "gradwire-error-bin"
_UNQUOTED = "".join(set(printable[:95]) - {"%"})  # characters that gRPC does not percent-encode

log = logging.getLogger("gradwire.server")


class Code(IntEnum):
    """gRPC's status codes of refusals. Workers do not load gRPC for them."""

    CANCELLED = 1
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


CODES: dict[str, Code] = {
    "SESSION_NOT_FOUND": Code.NOT_FOUND,
    "SESSION_EXPIRED": Code.NOT_FOUND,
    "SESSION_MOVED": Code.UNAVAILABLE,
    "SESSION_LIMIT": Code.RESOURCE_EXHAUSTED,
    "TENSOR_NOT_FOUND": Code.NOT_FOUND,
    "TENSOR_EXISTS": Code.ALREADY_EXISTS,
    "TRANSFER_NOT_FOUND": Code.NOT_FOUND,
    "OP_UNKNOWN": Code.UNIMPLEMENTED,
    "NOT_SUPPORTED": Code.UNIMPLEMENTED,
    "ARGUMENT_TYPE": Code.INVALID_ARGUMENT,
    "ARGUMENT_VALUE": Code.INVALID_ARGUMENT,
    "SHAPE": Code.INVALID_ARGUMENT,
    "DTYPE": Code.INVALID_ARGUMENT,
    "DIM_OUT_OF_RANGE": Code.INVALID_ARGUMENT,
    "INDEX_OUT_OF_RANGE": Code.OUT_OF_RANGE,
    "DEVICE_UNAVAILABLE": Code.UNIMPLEMENTED,
    "DEVICE_MISMATCH": Code.INVALID_ARGUMENT,
    "PAYLOAD_SIZE": Code.INVALID_ARGUMENT,
    "GRADIENT_NEEDS_SCALAR": Code.INVALID_ARGUMENT,
    "NO_GRAD_FN": Code.FAILED_PRECONDITION,
    "GRAPH_FREED": Code.FAILED_PRECONDITION,
    "VERSION_CONFLICT": Code.FAILED_PRECONDITION,
    "LEAF_IN_PLACE": Code.FAILED_PRECONDITION,
    "UNUSED_INPUT": Code.FAILED_PRECONDITION,
    "REQUIRES_GRAD": Code.FAILED_PRECONDITION,
    "MEMORY_LIMIT": Code.RESOURCE_EXHAUSTED,
    "TENSOR_LIMIT": Code.RESOURCE_EXHAUSTED,
    "MESSAGE_TOO_LARGE": Code.RESOURCE_EXHAUSTED,
    "DEADLINE_EXCEEDED": Code.DEADLINE_EXCEEDED,
    "CANCELLED": Code.CANCELLED,
    "DEPENDENCY_FAILED": Code.FAILED_PRECONDITION,
    "SEQUENCE_GAP": Code.FAILED_PRECONDITION,
    "EPOCH_MISMATCH": Code.FAILED_PRECONDITION,
    "PROTOCOL_VERSION": Code.FAILED_PRECONDITION,
    "MALFORMED": Code.INVALID_ARGUMENT,
    "UNAVAILABLE": Code.UNAVAILABLE,
    "INTERNAL": Code.INTERNAL,
    "RESULT_FORGOTTEN": Code.DATA_LOSS,
    "RUNTIME": Code.INVALID_ARGUMENT,
    "UNAUTHENTICATED": Code.UNAUTHENTICATED,
    "PERMISSION_DENIED": Code.PERMISSION_DENIED,
    "STREAM_TAKEN": Code.ABORTED,
    "PROGRAM_UNKNOWN": Code.NOT_FOUND,
    "PROGRAM_LIMIT": Code.RESOURCE_EXHAUSTED,
    "COMPUTE_LIMIT": Code.RESOURCE_EXHAUSTED,
    "OP_LIMIT": Code.RESOURCE_EXHAUSTED,
    "TRAFFIC_LIMIT": Code.RESOURCE_EXHAUSTED,
    "SNAPSHOT_NOT_FOUND": Code.NOT_FOUND,
    "SNAPSHOT_LIMIT": Code.RESOURCE_EXHAUSTED,
    "SNAPSHOT_DAMAGED": Code.DATA_LOSS,
    "STORAGE": Code.RESOURCE_EXHAUSTED,
    "GROUP_BROKEN": Code.ABORTED,
    "COLLECTIVE_MISMATCH": Code.FAILED_PRECONDITION,
}
_NUMBERS = {reason: errors_pb2.Reason.Value(PREFIX + reason) for reason in CODES}


def reason_number(reason: str) -> errors_pb2.Reason:
    """The contract's number of a reason."""
    return _NUMBERS[reason]  # type: ignore[return-value]


# How long a client should wait before it tries again, in seconds.
RETRY_AFTER = {"UNAVAILABLE": 1.0, "SESSION_LIMIT": 5.0, "COMPUTE_LIMIT": 60.0, "TRAFFIC_LIMIT": 1.0}


class Refusal(Exception):
    """A refused command: a reason of errors.proto without its prefix, a message, and metadata for programs."""

    applied = False  # whether the command was applied and only its answer is missing
    began = False  # whether the command began, and what it did before it was refused remains
    in_step = False  # whether the other ranks of a group know of it (session/collectives/)

    def __init__(self, reason: str, message: str, /, root_seq: int = 0, **metadata: object) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata = {key: str(value) for key, value in metadata.items()}
        self.root_seq = root_seq

    def copy(self) -> "Refusal":
        """An equal refusal, to be raised by another call."""
        copied = Refusal(self.reason, self.message, self.root_seq)
        copied.metadata = dict(self.metadata)
        return copied

    @property
    def code(self) -> Code:
        """The gRPC status code of the reason."""
        return CODES[self.reason]

    def fill(self, error: errors_pb2.Error) -> None:
        """Write the refusal into a batch's result."""
        error.code = self.code.value
        error.reason = reason_number(self.reason)
        error.message = self.message
        error.root_seq = self.root_seq
        for key, value in self.metadata.items():
            error.metadata[key] = value

    def status(self) -> status_pb2.Status:
        """The refusal as google.rpc.Status with details, cut to fit trailers."""
        status = status_pb2.Status(code=self.code.value, message=cut(self.message, MAX_TEXT))
        status.details.extend(_packed(detail) for detail in self._details())
        return status

    def trailers(self) -> tuple[tuple[str, bytes], ...]:
        """The refusal as the two trailers of a call: google.rpc.Status, and gradwire.v1.Error without its types."""
        return (STATUS_TRAILER, self.status().SerializeToString()), (ERROR_TRAILER, self._short().SerializeToString())

    def _short(self) -> errors_pb2.Error:
        """The refusal as gradwire.v1.Error, with texts cut until it has at most MAX_ERROR bytes."""
        error = errors_pb2.Error()
        self.fill(error)
        limit = MAX_ERROR
        while error.ByteSize() > MAX_ERROR:
            limit //= 2
            error.message = cut(self.message, limit)
            error.metadata.clear()
            error.metadata.update({key: cut(value, limit) for key, value in self._kept().items()})
        return error

    def _kept(self) -> dict[str, str]:
        """The metadata that trailers carry."""
        return {key: cut(value, MAX_DETAIL) for key, value in list(self.metadata.items())[:MAX_DETAILS]}

    def _details(self) -> "Iterator[Message]":
        kept = self._kept()
        yield error_details_pb2.ErrorInfo(reason=self.reason, domain=DOMAIN, metadata=kept)
        if "argument" in kept:
            violation = error_details_pb2.BadRequest.FieldViolation(
                field=kept["argument"], description=cut(self.message, MAX_DETAIL)
            )
            yield error_details_pb2.BadRequest(field_violations=[violation])
        if self.reason in RETRY_AFTER:
            delay = Duration()
            delay.FromMilliseconds(int(self.metadata.get("retry_ms") or RETRY_AFTER[self.reason] * 1000))
            yield error_details_pb2.RetryInfo(retry_delay=delay)


_translations: "list[Callable[[BaseException], Refusal | None]]" = []
_surroundings: "list[Callable[[], Mapping[str, Any]]]" = []


def extend(
    translation: "Callable[[BaseException], Refusal | None]", surroundings: "Callable[[], Mapping[str, Any]]"
) -> None:
    """Register a translation of exceptions for `refusal_of`, and a function with details for its log."""
    _translations.append(translation)
    _surroundings.append(surroundings)


def refusal_of(error: BaseException, doing: str, about: "Mapping[str, Any] | None" = None) -> Refusal:
    """The refusal for an exception raised while `doing` something. Logs unexpected exceptions.

    `about` has details for the log. Without it the registered functions give them, such as the running command.
    """
    if isinstance(error, Refusal):
        return error
    for refused in _translations:
        refusal = refused(error)
        if refusal is not None:
            return refusal
    if isinstance(error, MemoryError):
        return Refusal("MEMORY_LIMIT", f"out of memory in {doing}: the server has too little memory ({error})")
    if isinstance(error, DecodeError):
        return Refusal("MALFORMED", f"the message of {doing} cannot be parsed")
    if about is None:
        about = {}
        for details in _surroundings:
            about = {**about, **details()}
    log.error("unexpected error in %s", doing, exc_info=error, extra=about)
    return Refusal("INTERNAL", f"internal error in {doing}; see the server's log")


def began(refusal: Refusal) -> Refusal:
    """Mark a refusal of a command that began and whose effects remain."""
    refusal.began = True
    return refusal


def cut(text: str, limit: int) -> str:
    """A text whose bytes, as gRPC sends them, fit a limit."""
    if len(text) <= limit and len(quote(text, _UNQUOTED)) <= limit:
        return text
    left = limit - len(quote("…"))
    for position, character in enumerate(text):
        left -= len(quote(character, _UNQUOTED))
        if left < 0:
            return text[:position] + "…"
    return text


def _packed(detail: "Message") -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed

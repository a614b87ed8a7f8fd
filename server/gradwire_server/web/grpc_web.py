"""gRPC-Web: frames of unary calls, binary and as base64 text."""

import base64
import binascii
import re

from gradwire_server.common.errors import Refusal
from gradwire_server.web.status import CallStatus

#: Content types, and whether each is base64 text.
TYPES = {
    "application/grpc-web": False,
    "application/grpc-web+proto": False,
    "application/grpc-web-text": True,
    "application/grpc-web-text+proto": True,
}
HEAD = 5  # bytes before a frame's message: flags and the length
_TRAILERS = 0x80
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_PADDED = re.compile(rb"[A-Za-z0-9+/]+={0,2}")


def message_of(body: bytes, text: bool) -> bytes:
    """The one message of a request's body. Raises Refusal: MALFORMED."""
    raw = _decoded(body) if text else body
    if len(raw) < HEAD or raw[0] != 0 or len(raw) != HEAD + int.from_bytes(raw[1:HEAD], "big"):
        raise Refusal("MALFORMED", "the body is not one uncompressed gRPC-Web frame")
    return raw[HEAD:]


def _decoded(body: bytes) -> bytes:
    """Base64 text, which may consist of several padded parts."""
    parts = _PADDED.findall(body)
    try:
        if sum(map(len, parts)) != len(body):
            raise binascii.Error
        return b"".join(base64.b64decode(part, validate=True) for part in parts)
    except binascii.Error:
        raise Refusal("MALFORMED", "the body is not base64") from None


def answer(message: bytes | None, status: CallStatus, text: bool) -> bytes:
    """The body of an answer: the message's frame if there is one, and the trailers' frame."""
    trailers = status.trailers()
    frames = b"" if message is None else b"\0" + len(message).to_bytes(4, "big") + message
    frames += bytes((_TRAILERS,)) + len(trailers).to_bytes(4, "big") + trailers
    return base64.b64encode(frames) if text else frames


def timeout(given: str | None) -> float | None:
    """Seconds of a grpc-timeout header. Raises Refusal: MALFORMED."""
    if given is None:
        return None
    found = _TIMEOUT.fullmatch(given)
    if found is None:
        raise Refusal("MALFORMED", "grpc-timeout is not digits and a unit, such as 100m")
    return int(found[1]) * _UNITS[found[2]]

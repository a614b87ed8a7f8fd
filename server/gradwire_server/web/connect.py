"""Connect: messages of unary calls as JSON or binary. The protocol is that of https://connectrpc.com/docs/protocol."""

import re

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from gradwire_server.common.errors import Refusal
from gradwire_server.web.methods import Method

JSON, PROTO = "application/json", "application/proto"
VERSION_HEADER, TIMEOUT_HEADER = "connect-protocol-version", "connect-timeout-ms"
_VERSION = "1"
_TIMEOUT = re.compile(r"[0-9]{1,10}")
_MOST_DEPTH = 100
_SHOWN = 300  # characters of a parser's complaint


def to_binary(method: Method, body: bytes) -> bytes:
    """A request's bytes from its JSON. Raises Refusal: MALFORMED."""
    message = method.request()
    try:
        json_format.Parse(body.decode("utf-8"), message, max_recursion_depth=_MOST_DEPTH)
    except (json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        name = method.request.DESCRIPTOR.name
        raise Refusal("MALFORMED", f"the body is no {name} as JSON: {str(error)[:_SHOWN]}") from None
    return message.SerializeToString()


def to_json(method: Method, answer: bytes) -> bytes:
    """JSON of an answer's bytes. Raises Refusal: INTERNAL."""
    try:
        return json_format.MessageToJson(method.response.FromString(answer), indent=None).encode()
    except (DecodeError, ValueError):
        raise Refusal("INTERNAL", f"the server's answer is no {method.response.DESCRIPTOR.name}") from None


def check_version(given: str | None) -> None:
    """Check the protocol's version. Raises Refusal: MALFORMED."""
    if given not in (None, _VERSION):
        raise Refusal("MALFORMED", f"{VERSION_HEADER} is {_VERSION}, or left out")


def timeout(given: str | None) -> float | None:
    """Seconds of the timeout's header. Raises Refusal: MALFORMED."""
    if given is None:
        return None
    if not _TIMEOUT.fullmatch(given):
        raise Refusal("MALFORMED", f"{TIMEOUT_HEADER} is a number of milliseconds, of at most 10 digits")
    return int(given) / 1000

"""Timings: what a batch waited, computed and took to serialize, as the last field of its answer.

They are appended to the bytes of an answer that is done, for only then is known what that took; so they are always the
last bytes, of fixed size, and the front can read them without parsing the rest.
"""

import struct
import time
from typing import Protocol

from gradwire.v1 import service_pb2
from gradwire_server.common.protobuf_peek import bytes_field, varint_field

_FIELDS = struct.Struct("<BdBdBd")  # Timings: three doubles, each with its key
_KEYS = (0x09, 0x11, 0x19)
_HEAD = bytes_field(service_pb2.RunResponse.TIMINGS_FIELD_NUMBER, _FIELDS.size)
#: Appended to a serialized RunRequest, asks for them.
ASK = varint_field(service_pb2.RunRequest.TIMINGS_FIELD_NUMBER, 1)


class Timed(Protocol):
    """A call whose times were taken, in seconds; `resumed`, by time.monotonic(), is when its last step began."""

    queued: float
    computed: float
    resumed: float


def with_timings(call: Timed, answer: bytes, serializing: float) -> bytes:
    """An answer and the times of its call; `serializing`, by time.monotonic(), is when it began to be written."""
    computed = call.computed + serializing - call.resumed
    values = (call.queued, computed, time.monotonic() - serializing)
    return b"".join((answer, _HEAD, _FIELDS.pack(*(part for pair in zip(_KEYS, values, strict=True) for part in pair))))


def read_timings(answer: bytes) -> tuple[float, float, float] | None:
    """The seconds of queue, compute and serialize that an answer ends with, if it does."""
    fields = len(answer) - _FIELDS.size
    if fields < len(_HEAD) or answer[fields - len(_HEAD) : fields] != _HEAD:
        return None
    first, queued, second, computed, third, serialized = _FIELDS.unpack_from(answer, fields)
    return (queued, computed, serialized) if (first, second, third) == _KEYS else None

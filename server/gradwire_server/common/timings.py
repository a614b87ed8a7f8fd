"""Timings: encodes how long a batch waited, computed and serialized, as the last field of its answer.

The time to serialize is known only when the answer is serialized, so the field is appended to the bytes. It always has
the last bytes and a fixed size, so the front reads it without parsing the rest.
"""

import struct
import time
from typing import Protocol

from gradwire.v1 import service_pb2
from gradwire_server.common.protobuf_peek import bytes_field, varint_field

_FIELDS = struct.Struct("<BdBdBd")  # Timings: three doubles, each with its key
_KEYS = (0x09, 0x11, 0x19)
_HEAD = bytes_field(service_pb2.RunResponse.TIMINGS_FIELD_NUMBER, _FIELDS.size)
#: Requests timings when appended to a serialized RunRequest.
REQUEST_TIMINGS = varint_field(service_pb2.RunRequest.TIMINGS_FIELD_NUMBER, 1)


class Timed(Protocol):
    """A timed call, in seconds. `resumed` is when its last step began, on time.monotonic()'s clock."""

    queued: float
    computed: float
    resumed: float


def with_timings(call: Timed, answer: bytes, serializing: float) -> bytes:
    """An answer with its call's timings. `serializing` is when serializing began, on time.monotonic()'s clock."""
    computed = call.computed + serializing - call.resumed
    values = (call.queued, computed, time.monotonic() - serializing)
    return b"".join((answer, _HEAD, _FIELDS.pack(*(part for pair in zip(_KEYS, values, strict=True) for part in pair))))


def read_timings(answer: bytes) -> tuple[float, float, float] | None:
    """Seconds of queue, compute and serialize at an answer's end; None without timings."""
    fields = len(answer) - _FIELDS.size
    if fields < len(_HEAD) or answer[fields - len(_HEAD) : fields] != _HEAD:
        return None
    first, queued, second, computed, third, serialized = _FIELDS.unpack_from(answer, fields)
    return (queued, computed, serialized) if (first, second, third) == _KEYS else None

"""Protobuf peek: reads a message's first fields, so the front's event loop parses no large message.

A session's requests begin with session_id (field 1). A batch continues with writer and first_seq. A sender may order
fields otherwise. Then the functions return None, and the caller must parse the message.
"""

from dataclasses import dataclass

_VARINT, _BYTES = 0, 2
_MAX_FIELDS = 8
_TRACEPARENT = 55  # characters of a traceparent
_SINGLE = [bytes((value,)) for value in range(0x80)]  # encoded numbers of one byte


@dataclass(slots=True)
class Header:
    """A message's first fields; empty or 0 if missing."""

    session_id: str = ""
    writer: int = 0
    first_seq: int = 0


def peek_session(raw: bytes) -> str | None:
    """The session_id that a message begins with; None if it does not begin with one."""
    if len(raw) < 2 or raw[0] != 0x0A or raw[1] >= 0x80 or len(raw) < 2 + raw[1]:
        return None
    try:
        return raw[2 : 2 + raw[1]].decode()
    except UnicodeDecodeError:
        return None


def peek_run(raw: bytes) -> Header | None:
    """Session, writer and first_seq of a RunRequest; None if they are not in the first fields."""
    header = Header()
    offset = 0
    for _ in range(_MAX_FIELDS):
        if offset >= len(raw):
            return header
        key, offset = _varint(raw, offset)
        if key >> 3 > 3:  # fields are in order, so writer and first_seq came before or are missing
            return header
        value, offset = _varint(raw, offset)
        if key == (1 << 3 | _BYTES):
            header.session_id = raw[offset : offset + value].decode(errors="replace")
            offset += value
        elif key == (2 << 3 | _VARINT):
            header.writer = value
        elif key == (3 << 3 | _VARINT):
            header.first_seq = value
        else:
            return None
    return header


def peek_data(raw: bytes, field: int) -> memoryview | None:
    """The bytes of a message that is one bytes field and nothing else; None if it is anything else."""
    offset = _only_field(raw, field)
    return None if offset is None else memoryview(raw)[offset:]


def peek_field(raw: bytes, field: int) -> bytes | None:
    """As `peek_data`, but a copy."""
    offset = _only_field(raw, field)
    return None if offset is None else raw[offset:]


def _only_field(raw: bytes, field: int) -> int | None:
    key = field << 3 | _BYTES
    if key >= 0x80 or not raw or raw[0] != key:
        return None
    size, offset = _varint(raw, 1)
    return offset if size == len(raw) - offset else None


def peek_parent(raw: bytes, field: int) -> tuple[str, bytes]:
    """A traceparent that a message begins with, and the rest; empty if it begins otherwise."""
    start = bytes_field(field, _TRACEPARENT)
    if not raw.startswith(start):
        return "", raw
    end = len(start) + _TRACEPARENT
    return raw[len(start) : end].decode("ascii", "replace"), raw[end:]


def varint_field(field: int, value: int) -> bytes:
    """An encoded varint field."""
    return _encode(field << 3 | _VARINT) + _encode(value)


def bytes_field(field: int, size: int) -> bytes:
    """Key and length that precede the `size` bytes of a bytes field."""
    return _encode(field << 3 | _BYTES) + _encode(size)


def _varint(raw: bytes, offset: int) -> tuple[int, int]:
    if offset < len(raw) and raw[offset] < 0x80:
        return raw[offset], offset + 1
    value = shift = 0
    while offset < len(raw) and shift < 70:
        byte = raw[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, offset


def _encode(value: int) -> bytes:
    if value < 0x80:
        return _SINGLE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

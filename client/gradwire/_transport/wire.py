"""Wire: serializes repeated commands without protobuf.

The protobuf API builds a command once. Its ids and floats have a fixed width of eight bytes, so a repeat replaces only
those bytes. A `Template` is the serialized message, cut at its variable fields. One `struct.pack` writes the next
command, with its tag and length in the batch. A call of a prepared op is shorter: its number and eight bytes per value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from gradwire.v1 import service_pb2

Value = int | float
Build = Callable[[Sequence[Value]], service_pb2.Command]

_COMMANDS_TAG = b"\x32"  # RunRequest.commands = 6
_BATCH_TAG = b"\x12"  # StreamRequest.batch = 2
_ACKNOWLEDGE_TAG = b"\x1a"  # StreamRequest.acknowledge = 3
_TIMED = b"\x80\x02\x01"  # RunRequest.timings = 32, true
_OP_TIMES = b"\x88\x02\x01"  # RunRequest.op_times = 33, true
_RECORDED = b"\x90\x02\x01"  # RunRequest.recorded = 34, true
_PARENT_TAG = b"\xf2\x01"  # StreamRequest.traceparent = 30
_OP_TAG = b"\x12"  # Command.op = 2
_QUIET = b"\xf0\x01\x01"  # Command.quiet = 30, true
# Eight bytes, valid as an id and as a double, that no message contains by chance. The exponent keeps doubles normal.
_MARK = struct.Struct("<I3sB")
_SALT = b"\x9d\xe5\x3a"
_ID = struct.Struct("<Q")
_MOST_VALUES = 4096
#: Maximum bytes of an op that can be prepared.
MAX_PREPARED_BYTES = 256


def varint(number: int) -> bytes:
    """A nonnegative int as a protobuf varint."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def framed(command: bytes) -> bytes:
    """A serialized Command as an element of RunRequest.commands."""
    return _COMMANDS_TAG + varint(len(command)) + command


def unframed(command: bytes) -> bytes:
    """The serialized Command of an element of RunRequest.commands."""
    start = len(_COMMANDS_TAG)
    while command[start] >= 0x80:
        start += 1
    return command[start + 1 :]


class Template:
    """A quiet command with placeholders. `pack(pieces[0], value, pieces[1], value, …, pieces[-1])` fills them."""

    __slots__ = ("op", "pack", "pieces", "words")

    def __init__(self, pieces: tuple[bytes, ...], kinds: str, op: bytes) -> None:
        self.pieces = pieces
        #: The OpRequest to prepare; empty if the command cannot be prepared.
        self.op = op
        #: Packs a call of the prepared op: its number, then the values.
        self.words: Callable[..., bytes] = struct.Struct("<Q" + kinds).pack
        layout = "".join(f"{len(piece)}s{kind}" for piece, kind in zip(pieces, [*kinds, ""], strict=True))
        self.pack: Callable[..., bytes] = struct.Struct("<" + layout).pack

    def fill(self, values: Sequence[Value]) -> bytes:
        """The framed command with these values."""
        pieces = self.pieces
        arguments: list[bytes | Value] = [pieces[0]]
        for value, piece in zip(values, pieces[1:], strict=True):
            arguments.append(value)
            arguments.append(piece)
        return self.pack(*arguments)


class Pattern:
    """Commands of one form that differ in ids, floats and integers.

    An integer has a fixed width too: a varint of ten bytes, padded with zero bits, which protobuf reads as any other.
    `slots` tells the order in the message: places among the values, or ~place among the integers.
    """

    __slots__ = ("kinds", "op", "pack", "pieces", "slots")

    def __init__(self, pieces: tuple[bytes, ...], slots: tuple[int, ...], kinds: str, op: tuple[int, int]) -> None:
        self.pieces = pieces
        self.slots = slots
        self.kinds = kinds
        # Bounds of the OpRequest in the command; (0, 0) if it cannot be prepared.
        self.op = op
        widths = ["10s" if slot < 0 else kinds[slot] for slot in slots]
        layout = "".join(f"{len(piece)}s{width}" for piece, width in zip(pieces, [*widths, ""], strict=True))
        self.pack: Callable[..., bytes] = struct.Struct("<" + layout).pack

    def fill(self, values: Sequence[Value], integers: Sequence[int]) -> bytes:
        """The framed command with these values and integers."""
        pieces = self.pieces
        arguments: list[bytes | Value] = [pieces[0]]
        for slot, piece in zip(self.slots, pieces[1:], strict=True):
            arguments.append(padded_varint(integers[~slot]) if slot < 0 else values[slot])
            arguments.append(piece)
        return self.pack(*arguments)

    def template(self, integers: Sequence[int]) -> Template:
        """The template of the commands with these integers."""
        merged = [self.pieces[0]]
        for slot, piece in zip(self.slots, self.pieces[1:], strict=True):
            if slot < 0:
                merged[-1] += padded_varint(integers[~slot]) + piece
            else:
                merged.append(piece)
        start, end = self.op
        op = self.fill([0.0 if kind == "d" else 0 for kind in self.kinds], integers)[start:end]
        return Template(tuple(merged), self.kinds, op)


@lru_cache(maxsize=1 << 14)
def padded_varint(value: int) -> bytes:
    """A sint64 as a varint of ten bytes, with zero bits at the end."""
    zigzag = (value << 1 ^ value >> 63) & ((1 << 64) - 1)
    groups = [zigzag >> shift & 0x7F | 0x80 for shift in range(0, 63, 7)]
    return bytes((*groups, zigzag >> 63))


def make_pattern(
    build: Callable[[Sequence[Value], Sequence[int]], service_pb2.Command], values: Sequence[Value], integers: int
) -> Pattern | None:
    """The pattern of the commands that `build` makes from values of these types and as many integers; None if it
    cannot be cut: see `make_template`.
    """
    if len(values) + integers > _MOST_VALUES:
        return None
    marks = _marks(len(values))
    kinds = "".join(["d" if type(value) is float else "Q" for value in values])
    # The top bit makes these varints ten bytes long.
    numbers = [-(0x5EED_0000_0000_0000 + (place << 16) + 0x9DE5) for place in range(integers)]
    command = build([mark.double if kind == "d" else mark.id for mark, kind in zip(marks, kinds, strict=True)], numbers)
    data, start, end = _quiet_command(command)
    found: list[tuple[int, int, int]] = []
    for place, mark in enumerate(marks):
        cut = data.find(mark.data)
        if cut < 0 or data.find(mark.data, cut + 1) >= 0:
            return None
        found.append((cut, place, 8))
    for place, number in enumerate(numbers):
        padded = padded_varint(number)
        cut = data.find(padded)
        if cut < 0 or data.find(padded, cut + 1) >= 0:
            return None
        found.append((cut, ~place, 10))
    found.sort()
    slots = tuple([slot for _, slot, _ in found])
    if [slot for slot in slots if slot >= 0] != [*range(len(values))]:
        return None
    pieces = []
    cut = 0
    for at, _, width in found:
        pieces.append(data[cut:at])
        cut = at + width
    pieces.append(data[cut:])
    return Pattern(tuple(pieces), slots, kinds, (start, end) if _is_preparable(command, end - start) else (0, 0))


def make_template(build: Build, values: Sequence[Value]) -> Template | None:
    """The template of the commands that `build` makes from values of these types; None without a fixed layout.

    `build` must put each value into the message exactly once, floats as doubles and ints as fixed64.
    """
    if len(values) > _MOST_VALUES:
        return None
    marks = _marks(len(values))
    doubles = [type(value) is float for value in values]
    command = build([mark.double if double else mark.id for mark, double in zip(marks, doubles, strict=True)])
    data, start, end = _quiet_command(command)
    pieces = []
    cut = 0
    for mark in marks:
        at = data.find(mark.data)
        if at < cut or data.find(mark.data, at + 1) >= 0:
            return None
        pieces.append(data[cut:at])
        cut = at + 8
    pieces.append(data[cut:])
    op = data[start:end] if _is_preparable(command, end - start) else b""
    return Template(tuple(pieces), "".join(["d" if double else "Q" for double in doubles]), op)


class _Mark(NamedTuple):
    """Eight bytes that stand for a value: as they are, as an id and as a double."""

    data: bytes
    id: int
    double: float


@cache
def _mark(place: int) -> _Mark:
    data = _MARK.pack(0x5EED0000 + place, _SALT, 0x41)
    return _Mark(data, *struct.unpack("<Q", data), *struct.unpack("<d", data))


def _marks(number: int) -> list[_Mark]:
    """So many different marks."""
    return [_mark(place) for place in range(number)]


def _quiet_command(command: service_pb2.Command) -> tuple[bytes, int, int]:
    """A command, quiet and framed, and where it has the OpRequest, which is its first field if it has one."""
    body = command.SerializeToString()
    data = framed(body + _QUIET)
    if not command.HasField("op"):
        return data, 0, 0
    start = len(data) - len(_QUIET) - len(body)
    assert data.startswith(_OP_TAG, start)
    length, start = _read_varint(data, start + len(_OP_TAG))
    return data, start, start + length


class DataFrame(NamedTuple):
    """The pieces of a quiet, framed command around an id and data of one length."""

    head: bytes
    middle: bytes
    tail: bytes

    def fill(self, number: int, data: bytes) -> bytes:
        """The command with this id and data."""
        return b"".join((self.head, _ID.pack(number), self.middle, data, self.tail))


def make_data_frame(build: Callable[[int, bytes], service_pb2.Command], size: int) -> DataFrame | None:
    """The frame of the commands that `build` makes from an id and data of this size; None without a fixed layout.

    `build` must put both into the message once, the id first and as fixed64.
    """
    mark = _MARK.pack(0x5EED0000, _SALT, 0x41)
    number = _ID.unpack(mark)[0]
    zeros, ones = [framed(build(number, fill * size).SerializeToString() + _QUIET) for fill in (b"\0", b"\xff")]
    if not size or len(zeros) != len(ones) or zeros.count(mark) != 1:
        return None
    start = next((place for place, (one, other) in enumerate(zip(zeros, ones, strict=True)) if one != other), 0)
    cut, end = zeros.index(mark), start + size
    if cut + _ID.size > start or zeros[start:end] != b"\0" * size or zeros[end:] != ones[end:]:
        return None
    return DataFrame(zeros[:cut], zeros[cut + _ID.size : start], zeros[end:])


def _is_preparable(command: service_pb2.Command, size: int) -> bool:
    """Whether a command is an op that can be prepared. It must be short and have no argument of floats."""
    if not 0 < size <= MAX_PREPARED_BYTES:
        return False
    return not any(argument.HasField("floats") for argument in command.op.args)


def prepare_command(number: int, op: bytes) -> bytes:
    """A quiet, framed Command that prepares an op."""
    body = b"\x08" + varint(number) + b"\x12" + varint(len(op)) + op  # Prepare.number = 1, Prepare.op = 2
    return framed(b"\x82\x01" + varint(len(body)) + body + _QUIET)  # Command.prepare = 16


def calls_command(calls: Sequence[bytes]) -> bytes:
    """A framed Command of calls of prepared ops."""
    words = b"".join(calls)
    body = b"\x08" + varint(len(calls)) + b"\x7a" + varint(len(words)) + words  # Calls.count = 1, Calls.words = 15
    return framed(b"\x7a" + varint(len(body)) + body)  # Command.calls = 15


def release_command(ids: Sequence[int]) -> bytes:
    """A quiet, framed Command that releases ids."""
    tensors = struct.pack(f"<{len(ids)}Q", *ids)
    request = b"\x1a" + varint(len(tensors)) + tensors  # ReleaseRequest.tensors = 3, packed
    return framed(b"\x6a" + varint(len(request)) + request + _QUIET)  # Command.release = 13


def stream_batch(
    first_seq: int,
    acknowledged: int,
    commands: Sequence[bytes],
    timed: bool = False,
    parent: str = "",
    op_times: bool = False,
    recorded: bool = False,
) -> tuple[bytes, int]:
    """A serialized StreamRequest with a batch of framed commands, and the bytes of credit it uses.

    `timed` requests timings, `op_times` those of each op. `parent` is the traceparent of the batch's trace. `recorded`:
    whether the commands are of a call that becomes a program.
    """
    head = b"\x18" + varint(first_seq) + (b"\x28" + varint(acknowledged) if acknowledged else b"")
    tail = (_TIMED if timed else b"") + (_OP_TIMES if op_times else b"") + (_RECORDED if recorded else b"")
    size = len(head) + sum(map(len, commands)) + len(tail)
    trace = _PARENT_TAG + varint(len(parent)) + parent.encode() if parent else b""
    return b"".join((trace, _BATCH_TAG, varint(size), head, *commands, tail)), size


def stream_acknowledge(seq: int) -> bytes:
    """A serialized StreamRequest that acknowledges all answers through `seq`."""
    acknowledge = b"\x08" + varint(seq)
    return _ACKNOWLEDGE_TAG + varint(len(acknowledge)) + acknowledge


class Details:
    """The fields of google.rpc.Status in a call's trailers, parsed without the googleapis package."""

    __slots__ = ("code", "message", "metadata", "reason")

    def __init__(self, data: bytes) -> None:
        self.code = 2
        self.message = ""
        self.reason = ""
        self.metadata: dict[str, str] = {}
        for field, value in _fields(data):
            if field == 1 and isinstance(value, int):
                self.code = value
            elif field == 2 and isinstance(value, bytes):
                self.message = value.decode("utf-8", "replace")
            elif field == 3 and isinstance(value, bytes):
                self._read_detail(value)

    def _read_detail(self, data: bytes) -> None:
        detail = dict(_fields(data))
        kind, body = detail.get(1, b""), detail.get(2, b"")
        if not isinstance(kind, bytes) or not isinstance(body, bytes) or not kind.endswith(b"google.rpc.ErrorInfo"):
            return
        for field, value in _fields(body):
            if field == 1 and isinstance(value, bytes):
                self.reason = value.decode()
            elif field == 3 and isinstance(value, bytes):
                pair = dict(_fields(value))
                key, text = pair.get(1, b""), pair.get(2, b"")
                if isinstance(key, bytes) and isinstance(text, bytes):
                    self.metadata[key.decode()] = text.decode("utf-8", "replace")


def _fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """A message's fields as (number, value). Raises ValueError if the message is truncated."""
    found: list[tuple[int, int | bytes]] = []
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        if tag & 7 == 0:
            number, position = _read_varint(data, position)
            found.append((tag >> 3, number))
            continue
        size = {1: 8, 5: 4}.get(tag & 7)
        if size is None:
            size, position = _read_varint(data, position)
        found.append((tag >> 3, data[position : position + size]))
        position += size
    return found


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if position >= len(data):
            raise ValueError("a message that ends within a number")
        byte = data[position]
        number |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return number, position
        shift += 7

"""TensorBoard's event files: their messages, and the frames of their records. No part of gradwire's contract.

A file is a sequence of TFRecords, each with a serialized Event. The messages here have the fields that gradwire writes
or reads, with TensorBoard's numbers (tensorboard/compat/proto). Their names differ from TensorBoard's, so both
libraries can be imported into one process.
"""

import struct
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "gradwire.tensorboard"
_T = descriptor_pb2.FieldDescriptorProto
_PLAIN = {
    "double": _T.TYPE_DOUBLE,
    "float": _T.TYPE_FLOAT,
    "int32": _T.TYPE_INT32,
    "int64": _T.TYPE_INT64,
    "string": _T.TYPE_STRING,
    "bytes": _T.TYPE_BYTES,
}
#: By message: fields as (number, name, type); "*" repeats a field, and other types are messages.
_MESSAGES = {
    "Dim": ((1, "size", "int64"),),
    "Shape": ((2, "dim", "*Dim"),),
    "Tensor": (
        (1, "dtype", "int32"),
        (2, "shape", "Shape"),
        (4, "content", "bytes"),
        (5, "float_val", "*float"),
        (6, "double_val", "*double"),
        (8, "string_val", "*bytes"),
    ),
    "Image": ((1, "height", "int32"), (2, "width", "int32"), (3, "colorspace", "int32"), (4, "encoded", "bytes")),
    "Histogram": (
        (1, "min", "double"),
        (2, "max", "double"),
        (3, "num", "double"),
        (4, "sum", "double"),
        (5, "sum_squares", "double"),
        (6, "bucket_limit", "*double"),
        (7, "bucket", "*double"),
    ),
    "PluginData": ((1, "plugin_name", "string"), (2, "content", "bytes")),
    "Metadata": ((1, "plugin_data", "PluginData"),),
    "Value": (
        (1, "tag", "string"),
        (2, "simple_value", "?float"),
        (4, "image", "Image"),
        (5, "histogram", "Histogram"),
        (8, "tensor", "Tensor"),
        (9, "metadata", "Metadata"),
    ),
    "Summary": ((1, "value", "*Value"),),
    "SessionLog": ((1, "status", "int32"),),
    "Event": (
        (1, "wall_time", "double"),
        (2, "step", "int64"),
        (3, "file_version", "string"),
        (5, "summary", "Summary"),
        (7, "session_log", "SessionLog"),
    ),
}
#: The version in a file's first event.
FILE_VERSION = "brain.Event:2"
#: TensorFlow's numbers of element types.
DT_FLOAT, DT_DOUBLE, DT_STRING = 1, 2, 7
#: SessionLog.status: steps from this event's on replace earlier ones.
SESSION_START = 1

_HEAD = struct.Struct("<QI")  # the data's length, and its checksum
_TAIL = struct.Struct("<I")  # the data's checksum
HEAD_BYTES, TAIL_BYTES = _HEAD.size, _TAIL.size
_POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, kind in fields:
            made = message.field.add(name=field, number=number)
            made.label = _T.LABEL_REPEATED if kind[0] == "*" else _T.LABEL_OPTIONAL
            plain = kind.lstrip("*?")
            if plain in _PLAIN:
                made.type = _PLAIN[plain]
            else:
                made.type, made.type_name = _T.TYPE_MESSAGE, f".{_PACKAGE}.{plain}"
            if kind[0] == "?":  # so that 0 differs from absent
                made.proto3_optional, made.oneof_index = True, 0
                message.oneof_decl.add(name=f"_{field}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


_made = _classes()
Event, Summary, Value = _made["Event"], _made["Summary"], _made["Value"]
Histogram, Image, Tensor = _made["Histogram"], _made["Image"], _made["Tensor"]


class RecordHead(NamedTuple):
    """A record's head: its data's length, and whether the length's checksum fits."""

    length: int
    valid: bool


def read_head(head: bytes) -> RecordHead:
    """Read the HEAD_BYTES before a record's data. TAIL_BYTES follow the data."""
    length, checksum = _HEAD.unpack(head)
    return RecordHead(length, checksum == _masked_crc(head[:8]))


def record(data: bytes) -> bytes:
    """A TFRecord with this data."""
    length = struct.pack("<Q", len(data))
    return b"".join((_HEAD.pack(len(data), _masked_crc(length)), data, _TAIL.pack(_masked_crc(data))))


def _table() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        found.append(byte)
    return tuple(found)


_TABLE = _table()


def _masked_crc(data: bytes) -> int:
    """The checksum of TFRecords: CRC-32C, rotated and shifted by a constant."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

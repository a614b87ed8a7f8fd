"""Safetensors heads: writes the head for given arrays; reads a head as untrusted input."""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from dataclasses import dataclass
from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.dtypes import DType
from gradwire_server.common.errors import Refusal
from gradwire_server.common.payload import MAX_DIMS

CRC = "gradwire.crc32"  # metadata key: CRC-32 of the file with zeros in place of the checksum
_METADATA = "__metadata__"
_LENGTH = struct.Struct("<Q")
_ZEROS = "0" * 8
_CODES = {
    "F64": dtypes.float64, "F32": dtypes.float32, "F16": dtypes.float16, "BF16": dtypes.bfloat16,
    "I64": dtypes.int64, "I32": dtypes.int32, "I16": dtypes.int16, "I8": dtypes.int8,
    "U64": dtypes.uint64, "U32": dtypes.uint32, "U16": dtypes.uint16, "U8": dtypes.uint8,
    "BOOL": dtypes.bool_, "C64": dtypes.complex64,
}  # fmt: skip
_CODE_OF = {dtype: code for code, dtype in _CODES.items()}


@dataclass(slots=True)
class TensorInfo:
    """A tensor of a file."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    nbytes: int


def head_of(arrays: dict[str, tuple[DType, tuple[int, ...]]], metadata: dict[str, str]) -> tuple[bytes, list[str]]:
    """Head of a file with these arrays, and the order of their bytes. Complex arrays get a last axis of 2."""
    described: dict[str, Any] = {_METADATA: {CRC: _ZEROS, **metadata}}
    order = sorted(arrays, key=lambda name: -arrays[name][0].itemsize)  # largest items first: all are aligned
    end = 0
    for name in order:
        dtype, shape = arrays[name]
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        part = dtypes.real_part(dtype)
        stored = shape if part == dtype else (*shape, 2)
        described[name] = {"dtype": _CODE_OF[part], "shape": list(stored), "data_offsets": [begin, end]}
    raw = json.dumps(described, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return _LENGTH.pack(len(raw)) + raw, order


def read_head(
    file: Any, name: str, most: int, total: int | None = None
) -> tuple[list[TensorInfo], dict[str, str], int]:
    """Read a file's tensors in byte order, its metadata, and the head's CRC-32; check the file's length.

    `total` is the length of a file that is not on the disk. Raises Refusal: SNAPSHOT_DAMAGED, DTYPE, MESSAGE_TOO_LARGE
    for a head of more than `most` bytes; OSError.
    """
    if total is None:
        total = os.fstat(file.fileno()).st_size
    start = file.read(_LENGTH.size)
    size = _LENGTH.unpack(start)[0] if len(start) == _LENGTH.size else total
    if size > total - _LENGTH.size:
        raise damaged(name, "it is cut short, or no safetensors file")
    if size > most:
        raise Refusal("MESSAGE_TOO_LARGE", f"the file {name!r} has a head of {size} bytes, and {most} are the cap")
    raw = file.read(size)
    try:
        described = json.loads(raw)
        metadata = described.pop(_METADATA, None) or {}
        if not all(isinstance(text, str) for pair in metadata.items() for text in pair):
            raise ValueError("its metadata are not texts")
        json.dumps(metadata, ensure_ascii=False).encode()  # raises for lone surrogates, as `_place` does for names
        locations = sorted((_location(key, each) for key, each in described.items()), key=lambda location: location[:2])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise damaged(name, "its head is none that describes tensors") from None
    end = 0
    for begin, ends, key, code, shape in locations:
        if code not in _CODES:
            raise Refusal("DTYPE", f"the file {name!r}: {key[:100]!r} is of the dtype {code[:20]!r}, unknown here")
        if begin != end or ends - begin != math.prod(shape) * _CODES[code].itemsize:
            raise damaged(name, f"the bytes of {key[:100]!r} do not match its shape")
        end = ends
    if end != total - _LENGTH.size - size:
        raise damaged(name, "it is shorter or longer than its head says")
    entries = [TensorInfo(key, _CODES[code], shape, ends - begin) for begin, ends, key, code, shape in locations]
    found = f'"{CRC}":"{metadata.get(CRC, "")}"'.encode()
    zeroed = raw.replace(found, f'"{CRC}":"{_ZEROS}"'.encode(), 1)
    return entries, metadata, zlib.crc32(start + zeroed)


def _location(name: str, described: Any) -> tuple[int, int, str, str, tuple[int, ...]]:
    """Begin, end, name, dtype code and shape of a tensor. Raises ValueError, LookupError, TypeError."""
    name.encode()
    (begin, end), code, shape = described["data_offsets"], described["dtype"], described["shape"]
    if not isinstance(code, str) or len(shape) > MAX_DIMS:
        raise ValueError(name)
    if not all(type(number) is int and 0 <= number < 1 << 62 for number in (begin, end, *shape)):
        raise ValueError(name)
    # NumPy bounds the product of the sizes that are not zero, even where the tensor is empty.
    if math.prod(number for number in shape if number) >= 1 << 58:
        raise ValueError(name)
    return begin, end, name, code, tuple(shape)


def damaged(name: str, what: str) -> Refusal:
    """Refusal for a damaged file."""
    return Refusal("SNAPSHOT_DAMAGED", f"the file {name!r} is damaged: {what}", file=name)

"""Program files, made of bytes as a hostile or foreign client might."""

import json
import struct
from typing import Any

import numpy as np

from gradwire.v1 import programs_pb2 as p
from gradwire.v1 import types_pb2 as t

DESCRIPTION = "gradwire.program"
_CODES = {"float32": "F32", "float64": "F64", "uint8": "U8", "int64": "I64"}


def file_of(tensors: dict[str, Any], programs: dict[str, Any], version: int = 1, schema: str = "x") -> bytes:
    """A file of these arrays and programs (messages or bytes)."""
    described = p.ProgramFile(version=version, schema=schema)
    for name, program in programs.items():
        raw = program if isinstance(program, bytes) else program.SerializeToString()
        described.programs.add(name=name, program=raw)
    return raw_file({**tensors, DESCRIPTION: np.frombuffer(described.SerializeToString(), np.uint8)})


def raw_file(tensors: dict[str, Any]) -> bytes:
    """A safetensors file of these arrays."""
    head: dict[str, Any] = {}
    body = b""
    for name, array in tensors.items():
        data = array.tobytes()
        offsets = [len(body), len(body) + len(data)]
        head[name] = {"dtype": _CODES[array.dtype.name], "shape": list(array.shape), "data_offsets": offsets}
        body += data
    raw = json.dumps(head).encode()
    return struct.pack("<Q", len(raw)) + raw + body


def file_payload(raw: bytes) -> t.Payload:
    """A file as the values of a tensor."""
    return t.Payload(dtype=t.DTYPE_UINT8, shape=[len(raw)], data=raw)

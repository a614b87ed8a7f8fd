"""Program files: safetensors with the tensors of programs, and the programs as the tensor "gradwire.program".

The server reads and writes them, too (`session/program_files.py`). The format needs no library.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradwire._base.dtypes import dtype
from gradwire._base.errors import GradwireRuntimeError, GradwireTypeError
from gradwire._base.version import __version__
from gradwire._functions.pickled import stored_array
from gradwire._session.sessions import current_session
from gradwire._tensor.tensor import Tensor
from gradwire.v1 import programs_pb2, types_pb2

DESCRIPTION = "gradwire.program"
_VERSION = 1
_CODES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
    "complex64": "C64",
}  # fmt: skip


@dataclass
class NamedProgram:
    """A program, its name in the file, and its serialized bytes."""

    name: str
    program: programs_pb2.Program
    data: bytes


def content_of(programs: Mapping[str, bytes], state: Mapping[str, Tensor]) -> bytes:
    """A file's content. Raises TypeError for a dtype that safetensors lacks."""
    file = programs_pb2.ProgramFile(
        version=_VERSION, schema=current_session()._ops_hash(), producer=f"gradwire {__version__}"
    )
    for name, data in programs.items():
        file.programs.add(name=name, program=data)
    described = file.SerializeToString(deterministic=True)
    parts: dict[str, tuple[str, list[int], bytes]] = {DESCRIPTION: ("U8", [len(described)], described)}
    for name, held in state.items():
        parts[name] = (_code(name, held.dtype), list(held.shape), stored_array(held).tobytes())
    head: dict[str, Any] = {"__metadata__": {"format": "gradwire.program", "signature": signature(file)}}
    order = sorted(parts, key=lambda name: -_item_bytes(parts[name]))  # largest items first: all are aligned
    end = 0
    for name in order:
        code, shape, data = parts[name]
        begin, end = end, end + len(data)
        head[name] = {"dtype": code, "shape": shape, "data_offsets": [begin, end]}
    raw = json.dumps(head, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return b"".join([struct.pack("<Q", len(raw)), raw, *(parts[name][2] for name in order)])


def _item_bytes(part: tuple[str, list[int], bytes]) -> int:
    count = int(np.prod(part[1], dtype=np.int64))
    return len(part[2]) // count if count else 0


def _code(name: str, given: dtype) -> str:
    code = _CODES.get(given.name)
    if code is None:
        raise GradwireTypeError(f"export: {name} is {given.name}, which a safetensors file cannot hold")
    return code


def programs_of(content: bytes, path: str) -> list[NamedProgram]:
    """The programs of a file. Raises RuntimeError if it is none; the server checks the rest."""
    try:
        (size,) = struct.unpack_from("<Q", content)
        begin, end = json.loads(content[8 : 8 + size])[DESCRIPTION]["data_offsets"]
        file = programs_pb2.ProgramFile.FromString(content[8 + size + begin : 8 + size + end])
        return [
            NamedProgram(each.name, programs_pb2.Program.FromString(each.program), each.program)
            for each in file.programs
        ]
    except Exception:  # noqa: BLE001 - whatever is wrong, it is no program file
        raise GradwireRuntimeError(f"{path} is no program file, as gradwire.export writes it") from None


def signature(file: programs_pb2.ProgramFile) -> str:
    """The programs' signatures, for people: "step(x: float32[128, 64]) -> loss: float32[]"."""
    lines = []
    for named in file.programs:
        program = programs_pb2.Program.FromString(named.program)
        inputs = [_described(item) for item in program.inputs if not item.state]
        outputs = [_described(item) for item in program.described]
        lines.append(f"{named.name}({', '.join(inputs)}) -> {', '.join(outputs) or 'nothing'}")
    return "\n".join(lines)


def _described(item: Any) -> str:
    sizes = [str(size) for size in item.shape]
    if item.dynamic:
        sizes[0] = "n"
    return f"{item.name}: {_dtype_name(item.dtype)}[{', '.join(sizes)}]"


def _dtype_name(number: int) -> str:
    return types_pb2.Dtype.Name(number).removeprefix("DTYPE_").lower()

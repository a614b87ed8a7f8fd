"""Program files: one safetensors file with a model's tensors and the programs that use them.

The file comes and goes as a tensor of bytes. So uploads, limits, logs and snapshots need no case for it. Its tensor
"gradwire.program" is a serialized ProgramFile. Everything in it is untrusted: sizes are checked before memory is taken,
and a refused file changes nothing.
"""

import functools
import hashlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError

from gradwire.v1 import programs_pb2
from gradwire_engine import REGISTRY, EngineError, Tensor, tensor
from gradwire_engine.core.device import CPU, to_device
from gradwire_engine.core.dtypes import name_of, uint8
from gradwire_server.common.errors import Refusal
from gradwire_server.common.payload import array_of, bytes_of
from gradwire_server.common.safetensors import TensorInfo, damaged, read_head
from gradwire_server.session.op_schemas import schemas
from gradwire_server.session.programs import Program, keep_programs
from gradwire_server.session.specs import fill_spec

if TYPE_CHECKING:
    from gradwire_server.session.session import Session

Bytes: TypeAlias = "np.ndarray[Any, Any]"
VERSION = 1
DESCRIPTION = "gradwire.program"
_NAME = "the program file"
_MAX_PROGRAMS = 64


class ProgramFile:
    """A program file's parts, checked: tensors with the places of their bytes, and programs."""

    def __init__(self, session: "Session", tensor_id: int) -> None:
        """Read a file from a tensor. Raises Refusal: DTYPE, SNAPSHOT_DAMAGED, NOT_SUPPORTED, MESSAGE_TOO_LARGE."""
        array = session.tensor(tensor_id).array
        if type(array) is not np.ndarray or array.dtype != uint8 or array.ndim != 1:
            given = f"{name_of(array.dtype)} of shape {list(array.shape)}"
            raise Refusal("DTYPE", f"a program file is a tensor of uint8 with one dimension, not {given}")
        self.bytes = np.ascontiguousarray(array)
        view = io.BufferedReader(_Bytes(self.bytes))
        most = session.limits.max_message_bytes // 2
        self.entries, _, _ = read_head(view, _NAME, most, total=array.nbytes)
        begin = array.nbytes - sum(entry.nbytes for entry in self.entries)
        self.places: dict[str, slice] = {}
        for entry in self.entries:
            self.places[entry.name] = slice(begin, begin + entry.nbytes)
            begin += entry.nbytes
        if DESCRIPTION not in self.places:
            raise damaged(_NAME, f"it has no tensor {DESCRIPTION!r}, as gradwire.export writes it")
        self.entries = [entry for entry in self.entries if entry.name != DESCRIPTION]
        described = self.bytes[self.places[DESCRIPTION]]
        self.description = _description(described.tobytes(), session.limits.max_message_bytes)

    def array(self, entry: TensorInfo) -> Bytes:
        """A copy of a tensor's values. Raises Refusal: ARGUMENT_VALUE for bools other than 0 and 1."""
        made: Bytes = array_of(self.bytes[self.places[entry.name]], entry.dtype, entry.shape, copy=True)
        return made


class _Bytes(io.RawIOBase):
    """The bytes of an array as a file that is read from its beginning, without a copy."""

    def __init__(self, array: Bytes) -> None:
        self._left = memoryview(array.data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def _description(raw: bytes, limit: int) -> programs_pb2.ProgramFile:
    if len(raw) > limit:
        raise Refusal("MESSAGE_TOO_LARGE", f"a file's description has at most {limit} bytes, not {len(raw)}")
    try:
        described = programs_pb2.ProgramFile.FromString(raw)
    except DecodeError:
        raise damaged(_NAME, f"its tensor {DESCRIPTION!r} is no ProgramFile") from None
    if described.version != VERSION:
        raise Refusal(
            "NOT_SUPPORTED",
            f"the program file has version {described.version}, and this server reads version {VERSION}",
            given=described.version,
            allowed=VERSION,
        )
    names = [program.name for program in described.programs]
    if not names or len(names) > _MAX_PROGRAMS or len(set(names)) < len(names):
        raise damaged(_NAME, f"it names from 1 to {_MAX_PROGRAMS} programs, each once, not {len(names)}")
    return described


@functools.cache
def schema_hash() -> str:
    """ListOpsResponse.hash of this server."""
    return schemas(REGISTRY).hash


def load_program(
    session: "Session",
    request: programs_pb2.LoadProgramRequest,
    answer: programs_pb2.LoadProgramResponse | None,
) -> Iterator[None]:
    """Make a file's tensors and register its programs; yields between tensors."""
    file = ProgramFile(session, request.file)
    entries = file.entries
    if len(request.ids) > len(entries):
        raise Refusal("ARGUMENT_VALUE", f"the file has {len(entries)} tensors, not {len(request.ids)}", argument="ids")
    session.check_all_new(request.ids)
    session.check_room(len(entries))
    _check_sizes(session, entries)
    programs = [_program(session, file, named) for named in file.description.programs]
    state = {item.name: item for each in programs for item in each.inputs if item.state}
    made: list[Tensor] = []
    for entry in entries:
        session.enter(session.grad_context)
        used = state.get(entry.name)
        array = to_device(file.array(entry), CPU if used is None else used.device)
        made.append(tensor(array, used is not None and used.requires_grad))
        yield
    session.enter(session.grad_context)
    hashes = [hashlib.sha256(program.raw).digest() for program in programs]
    held = session.programs
    new = {name: each for name, each in zip(hashes, programs, strict=True) if name not in held}
    for name in hashes:
        if name in held:
            held.move_to_end(name)
    if new:
        keep_programs(session, new)
    ids = session.allot(request.ids, len(entries))
    for tensor_id, each in zip(ids, made, strict=True):
        session.bind(tensor_id, each)
    if answer is None:
        return
    for entry, tensor_id, each in zip(entries, ids, made, strict=True):
        fill_spec(answer.tensors.add(name=entry.name).spec, each, tensor_id)
    by_name = {entry.name: tensor_id for entry, tensor_id in zip(entries, ids, strict=True)}
    for named, digest in zip(file.description.programs, hashes, strict=True):
        _describe(answer.programs.add(name=named.name, hash=digest), named.program, by_name)


def _check_sizes(session: "Session", entries: list[TensorInfo]) -> None:
    """Check a file's sizes before memory is taken. Raises Refusal: PAYLOAD_SIZE; EngineError: MEMORY_LIMIT."""
    limit = session.limits.max_tensor_bytes
    for entry in entries:
        if entry.nbytes > limit:
            raise Refusal(
                "PAYLOAD_SIZE",
                f"the file's tensor {entry.name[:100]!r} has {entry.nbytes} bytes, and {limit} are the cap",
                limit=limit,
                given=entry.nbytes,
            )
    session.account.admit(sum(entry.nbytes for entry in entries))


def _program(session: "Session", file: ProgramFile, named: programs_pb2.NamedProgram) -> Program:
    """A program of the file, whose state inputs must match its tensors. Raises Refusal."""
    try:
        program = Program(named.program, session)
    except (Refusal, EngineError) as refusal:
        given, here = file.description.schema, schema_hash()
        refusal.metadata["program"] = named.name[:100]
        if given != here:
            refusal.metadata.update(given=given[:64], allowed=here)
            refusal.message += (
                f"; the file was made with the ops of schema {given[:12]}, and this server has {here[:12]}"
            )
        raise
    mismatch = _mismatch(program, file)
    if mismatch is not None:
        raise damaged(_NAME, f"its program {named.name[:100]!r} {mismatch}")
    return program


def _mismatch(program: Program, file: ProgramFile) -> str | None:
    """What does not fit between a program's inputs and the file's tensors."""
    known = {entry.name: entry for entry in file.entries}
    for item in program.inputs:
        if not item.name:
            return "has an input without a name"
        if not item.state:
            continue
        entry, needs = known.get(item.name), f"{name_of(item.dtype)} of shape {list(item.shape)}"
        if entry is None:
            return f"needs a tensor {item.name[:100]!r}, {needs}, which it does not have"
        if entry.shape != item.shape or entry.dtype != item.dtype:
            given = f"{name_of(entry.dtype)} of shape {list(entry.shape)}"
            return f"needs a tensor {item.name[:100]!r}, {needs}, but it is {given}"
    return None


def _describe(loaded: programs_pb2.LoadedProgram, raw: bytes, by_name: dict[str, int]) -> None:
    message = programs_pb2.Program.FromString(raw)
    loaded.inputs.extend([by_name[item.name] if item.state else 0 for item in message.inputs])
    loaded.signature.extend(message.inputs)
    loaded.outputs.extend(message.described)
    loaded.rules.extend(message.rules)
    ruled = {rule.number for rule in message.rules if rule.WhichOneof("target") == "number"}
    loaded.numbers = message.numbers - len(ruled)


def save_program(
    session: "Session",
    request: programs_pb2.SaveProgramRequest,
    answer: programs_pb2.SaveProgramResponse | None,
) -> Iterator[None]:
    """Make a file from an earlier one, with new values of tensors; yields between tensors."""
    session.check_new(request.id)
    file = ProgramFile(session, request.file)
    known = {entry.name: entry for entry in file.entries}
    tensors = session.tensors([named.id for named in request.tensors])
    for named, given in zip(request.tensors, tensors, strict=True):
        entry = known.get(named.name)
        if entry is None:
            allowed = ", ".join(known)[:1000] or "none"
            raise Refusal(
                "ARGUMENT_VALUE",
                f"the file has no tensor {named.name[:100]!r}; it has {allowed}",
                argument="tensors",
                given=named.name[:100],
                allowed=allowed,
            )
        if given.shape != entry.shape or given.dtype != entry.dtype:
            raise Refusal(
                "DTYPE" if given.dtype != entry.dtype else "SHAPE",
                f"tensor {named.name!r} is {name_of(entry.dtype)} of shape {list(entry.shape)} in the file, "
                f"not {name_of(given.dtype)} of shape {list(given.shape)}",
            )
    session.account.admit(file.bytes.nbytes)
    made = file.bytes.copy()
    for named, given in zip(request.tensors, tensors, strict=True):
        made[file.places[named.name]] = np.frombuffer(bytes_of(given.array), np.uint8)
        yield
    session.enter(session.grad_context)
    tensor_id = session.bind(request.id, leaf := tensor(made))
    if answer is not None:
        fill_spec(answer.file, leaf, tensor_id)

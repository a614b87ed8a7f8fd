"""Tensor files: writes tensors to safetensors files and loads tensors from them, a piece per turn.

Both are calls in the session's queue, so all values are of one moment, while other sessions compute between pieces.
A file is written under a temporary name; a separate thread waits for the disk and renames it. A loaded file is checked
completely, with its checksum if it has one, before any tensor gets an id.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradwire.v1 import commands_pb2
from gradwire.v1 import files_pb2 as pb
from gradwire_engine import activate, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.core.device import CPU, canonical, selected, to_device
from gradwire_engine.core.device import device_of as place_of
from gradwire_server.common.errors import Refusal
from gradwire_server.common.payload import TO_WIRE
from gradwire_server.common.safetensors import CRC, TensorInfo, damaged, head_of, read_head
from gradwire_server.session.specs import fill_spec
from gradwire_server.storage import snapshot_files
from gradwire_server.storage.instructions import FileInstruction

if TYPE_CHECKING:
    from gradwire_server.session.session import PendingCall, Session

_SPARE = 1 << 20  # bytes that must stay free on the disk

log = logging.getLogger("gradwire.server")


class TensorFiles:
    """Writes and reads files for the sessions of one worker."""

    def __init__(self) -> None:
        self._disk: ThreadPoolExecutor | None = None  # created with the first file

    def stop(self) -> None:
        """End after all begun files are on disk."""
        if self._disk is not None:
            self._disk.shutdown()

    def save(self, call: PendingCall) -> Generator[None, None, bytes]:
        """Answer SaveFile. Raises Refusal: SNAPSHOT_LIMIT, STORAGE, ARGUMENT_VALUE and those of ids; EngineError."""
        session = call.session
        instruction, raw = FileInstruction.unpack(call.raw)
        request = pb.SaveFileRequest.FromString(raw)
        session.cancel_token.begin_call(call.ticket, call.deadline)
        arrays = _named(session, request)
        head, order_of_bytes = head_of(
            {name: (array.dtype, array.shape) for name, array in arrays.items()}, dict(request.metadata)
        )
        if len(head) > session.limits.max_message_bytes // 2:  # a longer head could not be loaded
            raise Refusal(
                "MESSAGE_TOO_LARGE", f"the file's head would have {len(head)} bytes: save it in several files"
            )
        total = len(head) + sum(array.nbytes for array in arrays.values())
        writing = _TensorFileWriter(instruction, total)
        try:
            writing.begin(head)
            for name in order_of_bytes:
                for piece in _pieces(session, arrays[name]):
                    if session.cancel_token.stopping():
                        raise session.cancel_token.refusal()
                    writing.add(piece)
                    yield
        except OSError as error:
            writing.abandon()
            raise writing.refusal(error) from None
        except BaseException:
            writing.abandon()
            raise
        if self._disk is None:
            self._disk = ThreadPoolExecutor(1, "gradwire-files")
        disk = self._disk

        def hold(answer: Callable[[bytes, Exception | None], None], _: bytes) -> None:
            def commit() -> None:
                try:
                    made = writing.commit()
                except OSError as error:
                    answer(b"", writing.refusal(error))
                else:
                    answer(made, None)

            disk.submit(commit)

        call.hold = hold
        return b""

    def load(self, call: PendingCall) -> Generator[None, None, bytes | LoadedTensors]:
        """Answer LoadFile: return the cached response to a repeated request, or tensors that have no ids yet.

        Raises Refusal: SNAPSHOT_NOT_FOUND, SNAPSHOT_DAMAGED, STORAGE, DTYPE, PAYLOAD_SIZE, and those of ids;
        EngineError: MEMORY_LIMIT.
        """
        session = call.session
        instruction, raw = FileInstruction.unpack(call.raw)
        request = pb.LoadFileRequest.FromString(raw)
        if request.request_id:
            held = session.response_cache.find(request.request_id, call.method, raw)
            if held is not None:
                return held
        session.cancel_token.begin_call(call.ticket, call.deadline)
        device = canonical(request.device or None)
        context = session.context(request.grad_mode)
        try:
            with open(instruction.path, "rb", buffering=0) as file:
                entries, metadata, crc = read_head(file, instruction.name, session.limits.max_message_bytes // 2)
                _admit(session, request, entries)
                with activate(context):  # their bytes count from now on, before they have ids
                    arrays = [np.empty(entry.shape, entry.dtype) for entry in entries]
                    made = [tensor(array) for array in arrays] if device == CPU else []
                try:
                    yield from _fill(session, file, instruction.name, arrays, crc, metadata.pop(CRC, ""))
                except BaseException:
                    made.clear()  # the exception's frames would keep them counted
                    raise
        except FileNotFoundError:
            raise Refusal(
                "SNAPSHOT_NOT_FOUND", f"there is no file {instruction.name!r}", name=instruction.name
            ) from None
        except OSError as error:
            log.error("file cannot be read", extra={"file": instruction.path, "error": str(error)})
            why = os.strerror(error.errno or 0)
            raise Refusal("STORAGE", f"the file {instruction.name!r} cannot be read: {why}") from None
        if device != CPU:
            with activate(context):
                made = [tensor(to_device(array, device)) for array in arrays]
        answer = pb.LoadFileResponse(metadata=metadata)
        ids = [*request.ids, *[0] * (len(entries) - len(request.ids))]
        for entry, each in zip(entries, made, strict=True):
            fill_spec(answer.tensors.add(name=entry.name).spec, each, 0)
        limit = session.limits.max_message_bytes
        if answer.ByteSize() + 9 * len(made) > limit:  # 9 bytes for each id
            raise Refusal("MESSAGE_TOO_LARGE", f"the file has more tensors than an answer of {limit} bytes can name")
        creations = [_creation(request, wanted, entry) for wanted, entry in zip(ids, entries, strict=True)]
        return LoadedTensors(session, request, raw, answer, made, creations, [_flat(array) for array in arrays])


@dataclass
class LoadedTensors:
    """Leaves loaded from a file that have no ids yet, with the commands and bytes that create them again."""

    session: Session
    request: pb.LoadFileRequest
    raw: bytes
    answer: pb.LoadFileResponse
    made: list[Any]
    creations: list[commands_pb2.CreateRequest]
    data: list[memoryview]

    def bind(self) -> bytes:
        """Give the leaves their ids; return the serialized answer."""
        session = self.session
        session.unary_commands += 1
        for creation, described, each in zip(self.creations, self.answer.tensors, self.made, strict=True):
            described.spec.id = session.bind(creation.id, each)
        response = self.answer.SerializeToString()
        if self.request.request_id:
            session.response_cache.keep(self.request.request_id, "LoadFile", self.raw, response)
        return response


class _TensorFileWriter:
    """A file being written under a temporary name."""

    def __init__(self, instruction: FileInstruction, total: int) -> None:
        self.instruction = instruction
        self.total = total
        self.path = Path(instruction.path)
        self._temporary_path = self.path.with_name(f".{instruction.name}.{secrets.token_hex(8)}.new")
        self._file = -1
        self._crc = 0
        self._crc_offset = 0

    def begin(self, head: bytes) -> None:
        """Create the file and write its head. Raises Refusal: SNAPSHOT_LIMIT, STORAGE, before writing; OSError."""
        room = self.instruction.room
        if room is not None and self.total > room:
            raise Refusal(
                "SNAPSHOT_LIMIT", f"the file takes {self.total} bytes, and {room} are left to the principal", limit=room
            )
        snapshot_files.make_folder(self.path.parent, self.path.parent.parent)
        free = os.statvfs(self.path.parent)
        if free.f_bavail * free.f_frsize < self.total + _SPARE:
            raise Refusal(
                "STORAGE", f"the server's disk is too full for a file of {self.total} bytes", bytes=self.total
            )
        self._file = os.open(self._temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._crc_offset = head.index(f'"{CRC}":"'.encode()) + len(CRC) + 4
        self.add(head)

    def add(self, piece: Any) -> None:
        """Write the next bytes. Raises OSError."""
        view = memoryview(piece)
        self._crc = zlib.crc32(view, self._crc)
        while view.nbytes:
            view = view[os.write(self._file, view) :]

    def commit(self) -> bytes:
        """Flush and rename the file; return the answer. Waits for the disk. Raises OSError."""
        try:
            os.pwrite(self._file, f"{self._crc:08x}".encode(), self._crc_offset)
            os.fsync(self._file)
            os.replace(self._temporary_path, self.path)
            snapshot_files.sync_folder(self.path.parent)
        except OSError:
            self.abandon()
            raise
        os.close(self._file)
        summary = pb.FileSummary(name=self.instruction.name, bytes=self.total, saved_unix_ms=int(time.time() * 1000))
        return pb.SaveFileResponse(file=summary).SerializeToString()

    def abandon(self) -> None:
        """Delete the temporary file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            with suppress(OSError):
                self._temporary_path.unlink()

    def refusal(self, error: OSError) -> Refusal:
        """Refusal for a failed write, without paths, which only the log may show."""
        log.error("file cannot be written", extra={"file": str(self.path), "error": str(error)})
        why = os.strerror(error.errno or 0)
        return Refusal("STORAGE", f"the server cannot write the file {self.instruction.name!r}: {why}")


def _named(session: Session, request: pb.SaveFileRequest) -> dict[str, Any]:
    """The arrays to write, by name. Raises Refusal: ARGUMENT_VALUE and those of ids."""
    arrays: dict[str, Any] = {}
    for named in request.tensors:
        if named.name in arrays or named.name in ("", "__metadata__"):
            raise Refusal(
                "ARGUMENT_VALUE", f"{named.name[:100]!r} names two tensors, or none can have that name",
                argument="tensors",
            )  # fmt: skip
        arrays[named.name] = session.tensor(named.id).array
    if any(key.startswith("gradwire.") for key in request.metadata):
        raise Refusal("ARGUMENT_VALUE", "metadata that begins with 'gradwire.' is the server's", argument="metadata")
    return arrays


def _pieces(session: Session, array: Any) -> Iterator[Any]:
    """Yield an array's values as bytes, row-major, in pieces. Raises EngineError: MEMORY_LIMIT."""
    if not array.size:
        return
    size = array.dtype.itemsize
    if place_of(array) != CPU:
        session.account.admit(array.nbytes)
        with selected(place_of(array)):
            whole = array.ravel().view(np.uint8)
            for start in range(0, whole.size, snapshot_files.PIECE):
                yield whole[start : start + snapshot_files.PIECE].get()
    elif array.flags.c_contiguous:
        whole = _flat(array)
        for start in range(0, len(whole), snapshot_files.PIECE):
            yield whole[start : start + snapshot_files.PIECE]
    else:
        bits = array.view(f"u{size}") if size <= 8 else array  # of any dtype, custom ones too
        walk = np.nditer(bits, ["external_loop", "buffered"], order="C", buffersize=snapshot_files.PIECE // size)
        for piece in walk:
            yield _flat(np.ascontiguousarray(piece))


def _flat(array: np.ndarray[Any, Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _admit(session: Session, request: pb.LoadFileRequest, entries: list[TensorInfo]) -> None:
    """Check ids and room for a file's tensors before any is created. Raises Refusal, EngineError."""
    if len(request.ids) > len(entries):
        raise Refusal(
            "ARGUMENT_VALUE", f"the file has {len(entries)} tensors, not {len(request.ids)}", argument="ids"
        )  # fmt: skip
    limit = session.limits.max_tensor_bytes
    for entry in entries:
        if entry.nbytes > limit:
            raise Refusal(
                "PAYLOAD_SIZE", f"a tensor has at most {limit} bytes, and {entry.name[:100]!r} has {entry.nbytes}",
                limit=limit, given=entry.nbytes,
            )  # fmt: skip
    if entries:
        session.check_all_new(request.ids)
        session.check_room(len(entries))
    session.account.admit(sum(entry.nbytes for entry in entries))


def _fill(session: Session, file: Any, name: str, arrays: list[Any], crc: int, wanted: str) -> Iterator[None]:
    """Read the values into the arrays, and check the checksum. Raises Refusal: SNAPSHOT_DAMAGED, CANCELLED; OSError."""
    for array in arrays:
        view = _flat(array)
        for start in range(0, len(view), snapshot_files.PIECE):
            if session.cancel_token.stopping():
                raise session.cancel_token.refusal()
            piece = view[start : start + snapshot_files.PIECE]
            if file.readinto(piece) != len(piece):
                raise damaged(name, "it is cut short")
            crc = zlib.crc32(piece, crc)
            if array.dtype == dtypes.bool_ and np.frombuffer(piece, np.uint8).max() > 1:
                raise damaged(name, "a bool of it is neither 0 nor 1")
            yield
    if wanted and wanted != f"{crc:08x}":
        raise damaged(name, "its checksum is not that of its bytes")


def _creation(request: pb.LoadFileRequest, wanted: int, entry: TensorInfo) -> commands_pb2.CreateRequest:
    """The command that creates the same leaf, without its bytes."""
    made = commands_pb2.CreateRequest(id=wanted, device=request.device, grad_mode=request.grad_mode)
    made.payload.dtype = TO_WIRE[entry.dtype]  # type: ignore[assignment]
    made.payload.shape.extend(entry.shape)
    return made

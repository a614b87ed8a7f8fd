"""Files: names, owners and quotas of clients' files on the server's disk. The front reads no tensors.

    DIR/<owner>/<name>.safetensors   a principal's file; may be copied between machines
    DIR/<owner>/.<name>.<...>.new    a file being written; counts towards its owner's bytes

The calling session's worker writes and reads them (tensor_files.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from gradwire.v1 import files_pb2 as pb
from gradwire_server.auth.principals import CALLER
from gradwire_server.common.errors import Refusal
from gradwire_server.registry.session_catalog import check_name, folder_of
from gradwire_server.storage import snapshot_files
from gradwire_server.storage.instructions import FileInstruction

if TYPE_CHECKING:
    from gradwire_server.registry.session_registry import SessionRegistry

_ENDING, _UNFINISHED = ".safetensors", ".new"
_UNFINISHED_SECONDS = 86_400.0  # age after which an unfinished file counts as abandoned
T = TypeVar("T")


class FileDirectory:
    """The directory of files. Its methods wait for the disk: call them off the event loop."""

    def __init__(self, root: Path, max_files: int = 0, max_bytes: int = 0) -> None:
        """Limit a principal's files and their bytes; 0 for no limit."""
        self.root = root
        self.max_files = max_files
        self.max_bytes = max_bytes

    def open(self) -> None:
        """Create the directory, and delete abandoned files. Raises OSError."""
        snapshot_files.make_folder(self.root)
        for path in self.root.glob(f"*/.*{_UNFINISHED}"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _UNFINISHED_SECONDS:
                    path.unlink()

    def path(self, owner: str, name: str) -> Path:
        """Path of a principal's file, existing or not. Raises Refusal: ARGUMENT_VALUE."""
        check_name(name, "file")
        return self.root / folder_of(owner) / f"{name}{_ENDING}"

    def listed(self, owner: str) -> list[pb.FileSummary]:
        """A principal's files, sorted by name. Raises Refusal: STORAGE."""
        return [
            pb.FileSummary(name=path.name.removesuffix(_ENDING), bytes=size, saved_unix_ms=at // 1_000_000)
            for path, size, at in self._held(owner)
            if path.name.endswith(_ENDING)
        ]

    def _held(self, owner: str) -> list[tuple[Path, int, int]]:
        found = []
        try:
            for path in sorted((self.root / folder_of(owner)).iterdir()):
                with contextlib.suppress(FileNotFoundError):
                    status = path.stat()
                    found.append((path, status.st_size, status.st_mtime_ns))
        except FileNotFoundError:  # nothing was ever written
            return []
        except OSError as error:
            raise _unreadable(error) from None
        return found

    def room(self, owner: str, name: str) -> int | None:
        """Bytes that a file of that name may have; None for no limit. Raises Refusal: SNAPSHOT_LIMIT, STORAGE."""
        own = self.path(owner, name)
        others = [(path, size) for path, size, _ in self._held(owner) if path != own]
        if self.max_files and sum(path.name.endswith(_ENDING) for path, _ in others) >= self.max_files:
            raise Refusal(
                "SNAPSHOT_LIMIT", f"a principal has at most {self.max_files} files; delete one first",
                limit=self.max_files,
            )  # fmt: skip
        return max(0, self.max_bytes - sum(size for _, size in others)) if self.max_bytes else None

    def delete(self, owner: str, name: str) -> int:
        """Delete a principal's file; bytes freed. Raises Refusal: SNAPSHOT_NOT_FOUND, STORAGE."""
        path = self.path(owner, name)
        try:
            size = path.stat().st_size
            path.unlink()
            snapshot_files.sync_folder(path.parent)
        except FileNotFoundError:
            raise Refusal("SNAPSHOT_NOT_FOUND", f"there is no file {name!r}", name=name) from None
        except OSError as error:
            raise Refusal("STORAGE", f"the file cannot be deleted: {os.strerror(error.errno or 0)}") from None
        return size


class Files:
    """The front's side: finds the session and the path; the worker reads and writes."""

    def __init__(self, directory: SessionRegistry[Any]) -> None:
        self.registry = directory
        self._executor: FileDirectory | None = None
        self._saving: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by owner

    async def use_directory(self, directory_of_files: FileDirectory) -> None:
        """Keep files in a directory. Raises OSError if the directory cannot be opened."""
        await self._run_in_executor(directory_of_files.open)
        self._executor = directory_of_files

    def directory_of_files(self) -> FileDirectory:
        """The directory of files. Raises Refusal: NOT_SUPPORTED, if there is none."""
        if self._executor is None:
            raise Refusal("NOT_SUPPORTED", "the server keeps no files: it has neither --files-dir nor --state-dir")
        return self._executor

    @staticmethod
    async def _run_in_executor(function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, function, *args)

    async def save(self, session_id: str, name: str, raw: bytes) -> bytes:
        """Answer SaveFile. A principal's files are written one at a time, so quotas count earlier ones."""
        entry = self.registry.find(session_id)
        directory_of_files = self.directory_of_files()
        path = directory_of_files.path(entry.owner, name)
        lock = self._saving.setdefault(entry.owner, asyncio.Lock())  # weak: lives while a save holds or awaits it
        async with lock:
            room = await self._run_in_executor(directory_of_files.room, entry.owner, name)
            instruction = FileInstruction(str(path), name, room).pack(raw)
            return bytes(await entry.worker.call(entry, "SaveFile", instruction))

    async def load(self, session_id: str, name: str, raw: bytes) -> bytes:
        """Answer LoadFile."""
        entry = self.registry.find(session_id)
        path = self.directory_of_files().path(entry.owner, name)
        return bytes(await entry.worker.call(entry, "LoadFile", FileInstruction(str(path), name).pack(raw)))

    async def listed(self) -> pb.ListFilesResponse:
        """Answer ListFiles."""
        return pb.ListFilesResponse(
            files=await self._run_in_executor(self.directory_of_files().listed, CALLER.get().name)
        )

    async def delete(self, name: str) -> int:
        """Answer DeleteFile; bytes freed."""
        return await self._run_in_executor(self.directory_of_files().delete, CALLER.get().name, name)


def _unreadable(error: OSError) -> Refusal:
    return Refusal("STORAGE", f"the server cannot read its files: {os.strerror(error.errno or 0)}")

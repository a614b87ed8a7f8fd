"""Log files: stores each log as a file in its session's folder. At most _MOST_OPEN files stay open."""

from __future__ import annotations

import contextlib
import errno
import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from gradwire_server.storage.snapshot_files import LOG, generations, sync_folder
from gradwire_server.storage.stores import LogStore

_MOST_OPEN = 512  # files
_MOST_PARTS = 512  # buffers in one pwritev


class LogFiles(LogStore):
    """A log is a file in its session's folder."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, int] = OrderedDict()

    def list(self, location: Path) -> list[int]:
        """The generations that have a log file."""
        return generations(location, LOG)

    def exists(self, path: Path) -> bool:
        """Whether the file exists."""
        return path.exists()

    def size(self, path: Path) -> int:
        """The file's bytes."""
        return path.stat().st_size

    def create(self, path: Path, beginning: bytes) -> None:
        """Write a temporary file and rename it to `path`."""
        beside = path.with_name(f"{path.name}.new")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write(descriptor, [beginning], 0)
            os.fdatasync(descriptor)
            os.replace(beside, path)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
        finally:
            os.close(descriptor)
        sync_folder(path.parent)

    def append(
        self, path: Path, parts: Sequence[bytes], offset: int, flush_mark: tuple[int, bytes], again: bool
    ) -> None:
        """Write and flush. The flush mark reaches the disk with the next flush at the latest."""
        descriptor = self._file(path)
        if again:
            os.ftruncate(descriptor, offset)
        try:
            _write(descriptor, parts, offset)
            os.fdatasync(descriptor)
            _check_there(path, descriptor)
            os.pwrite(descriptor, flush_mark[1], flush_mark[0])
        except (OSError, MemoryError):
            # By descriptor: the path may name another file now.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, offset)
            raise

    def cut(self, path: Path, size: int) -> None:
        """Truncate the file, by its path. Thread-safe."""
        os.truncate(path, size)

    def close(self, path: Path) -> None:
        """Close the file."""
        descriptor = self._open.pop(path, -1)
        if descriptor >= 0:
            os.close(descriptor)

    def open(self, path: Path) -> BinaryIO:
        """Open the file for reading, with its own descriptor."""
        return path.open("rb")

    def _file(self, path: Path) -> int:
        descriptor = self._open.get(path)
        if descriptor is None:
            descriptor = self._open[path] = os.open(path, os.O_WRONLY)
            while len(self._open) > _MOST_OPEN:
                os.close(self._open.popitem(last=False)[1])
        else:
            self._open.move_to_end(path)
        return descriptor


def _check_there(path: Path, descriptor: int) -> None:
    """Check that `path` still names the written file. Raises OSError if file or folder were removed or replaced."""
    found, written = os.stat(path), os.fstat(descriptor)
    if (found.st_dev, found.st_ino) != (written.st_dev, written.st_ino):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def _write(descriptor: int, parts: Sequence[bytes | memoryview], offset: int) -> None:
    """Write all parts at an offset; repeats short writes. Raises OSError."""
    for start in range(0, len(parts), _MOST_PARTS):
        some = list(parts[start : start + _MOST_PARTS])
        while some:
            wrote = os.pwritev(descriptor, some, offset)
            offset += wrote
            while some and wrote >= len(some[0]):
                wrote -= len(some.pop(0))
            if some and wrote:
                some[0] = memoryview(some[0])[wrote:]

"""Kernels' object code on disk, by key: written in one step, sealed by a hash, evicted when there are too many.

A file's name is the kernel's key. It begins with the hash of its contents, and is ignored if damaged. The directory
belongs to this user alone: whoever can write to it can run code in the server. A file's modification time is its last
use. When there are more than MOST files, the longest unused are removed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

log = logging.getLogger("gradwire.engine")

#: Files that are kept at most. A kernel's file has 2 to 30 kB.
MOST = 4096
_KEPT = 0.75  # share of the files that stays when too many are found
_WRITES_BETWEEN = 64  # files that a process writes between two counts
_STALE_SECONDS = 3600.0  # then an unfinished file was left by a process that ended
_DIGEST = hashlib.sha256().digest_size


def default_directory() -> Path:
    """Where kernels are kept: $GRADWIRE_KERNEL_CACHE, else in the user's cache directory."""
    given = os.environ.get("GRADWIRE_KERNEL_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(given or Path(base) / "gradwire" / "kernels").expanduser()


class KernelFiles:
    """The files of one directory. One thread."""

    def __init__(self, directory: Path | None = None) -> None:
        """The directory is made at the first use; None: the default one."""
        self._directory = directory
        self._written = 0

    def read(self, key: str) -> bytes | None:
        """Object code; None if there is none or it is damaged. Raises OSError."""
        directory = self._usable()
        if directory is None:
            return None
        path = directory / f"{key}.o"
        with suppress(FileNotFoundError):
            code = _unsealed(path.read_bytes())
            with suppress(OSError):
                os.utime(path)
            return code
        return None

    def write(self, key: str, code: bytes) -> None:
        """Keep object code. Where that is not possible, nothing is kept."""
        directory = self._usable()
        if directory is None:
            return
        with suppress(OSError):
            _write(directory / f"{key}.o", hashlib.sha256(code).digest() + code)
            if self._written % _WRITES_BETWEEN == 0:
                evict(directory)
            self._written += 1

    def _usable(self) -> Path | None:
        """The directory, made if missing; None if it cannot be used or others can write to it."""
        directory = self._directory or default_directory()
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            about = directory.stat()
        except (OSError, RuntimeError) as error:
            log.info("compiled kernels are not kept on disk: %s", error)
            return None
        if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o022:
            log.warning("compiled kernels are not kept on disk: others can write to %s", directory)
            return None
        return directory


def evict(directory: Path, most: int = MOST) -> None:
    """Remove the longest unused files if there are more than `most`, and unfinished ones. Raises OSError."""
    used: list[tuple[float, Path]] = []
    now = time.time()
    for path in directory.iterdir():
        with suppress(FileNotFoundError):  # another process evicts as well
            at = path.stat().st_mtime
            if path.suffix == ".o":
                used.append((at, path))
            elif path.suffix == ".part" and now - at > _STALE_SECONDS:
                path.unlink()
    if len(used) > most:
        for _, path in sorted(used)[: len(used) - int(most * _KEPT)]:
            path.unlink(missing_ok=True)


def _unsealed(data: bytes) -> bytes | None:
    digest, code = data[:_DIGEST], data[_DIGEST:]
    return code if code and hashlib.sha256(code).digest() == digest else None


def _write(path: Path, data: bytes) -> None:
    """Write a file in one step. Raises OSError."""
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        try:
            file.write(data)
            file.close()
            os.replace(file.name, path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise

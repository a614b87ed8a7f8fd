"""Kernels' object code on disk, by key: written in one step, sealed by a hash, evicted when there are too many.

A file's name is the kernel's key. It begins with the hash of its contents, and is ignored if damaged. Whoever can write
a file can run code in the server, and the hash is no protection. So directory and file must belong to this user alone.
Both are checked when they are open, and files are opened relative to the checked directory: nothing can be exchanged
between check and use. A file's modification time is its last use. When there are more than MOST files, the longest
unused are removed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger("gradwire.engine")

#: Files that are kept at most. A kernel's file has 2 to 30 kB.
MOST = 4096
_KEPT = 0.75  # share of the files that stays when too many are found
_WRITES_BETWEEN = 64  # files that a process writes between two counts
_STALE_SECONDS = 3600.0  # then an unfinished file was left by a process that ended
_NOTE = ".used"
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
        """Object code; None if there is none, it is damaged, not readable, or others can write to it."""
        with suppress(OSError), self._opened() as directory:
            if directory is None:
                return None
            file = os.open(f"{key}.o", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory)
            with open(file, "rb") as opened:
                about = os.fstat(file)
                if not (stat.S_ISREG(about.st_mode) and _is_own(about)):
                    log.warning("a compiled kernel is not used: others can write to %s.o", key)
                    return None
                code = _unsealed(opened.read())
                with suppress(OSError):
                    os.utime(file)
                return code
        return None

    def write(self, key: str, code: bytes) -> None:
        """Keep object code. Where that is not possible, nothing is kept."""
        with suppress(OSError), self._opened() as directory:
            if directory is None:
                return
            _write(directory, f"{key}.o", hashlib.sha256(code).digest() + code)
            if self._written % _WRITES_BETWEEN == 0:
                evict(directory)
            self._written += 1

    def note(self, name: str) -> None:
        """Note that a loop of this name was used. Names are few: those of the engine's loops."""
        with suppress(OSError), self._opened() as directory:
            if directory is not None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
                file = os.open(f"{name}{_NOTE}", flags, 0o600, dir_fd=directory)
                try:
                    os.utime(file)
                finally:
                    os.close(file)

    def noted(self) -> list[str]:
        """The names that were noted, the last first."""
        used: list[tuple[float, str]] = []
        with suppress(OSError), self._opened() as directory:
            for name in [] if directory is None else os.listdir(directory):
                if name.endswith(_NOTE):
                    at = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime
                    used.append((at, name.removesuffix(_NOTE)))
        return [name for _, name in sorted(used, reverse=True)]

    @contextmanager
    def _opened(self) -> Iterator[int | None]:
        """A descriptor of the directory, made if missing; None if it cannot be used or others can write to it."""
        path = self._directory or default_directory()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, RuntimeError) as error:
            log.info("compiled kernels are not kept on disk: %s", error)
            yield None
            return
        try:
            if _is_own(os.fstat(directory)):
                yield directory
            else:
                log.warning("compiled kernels are not kept on disk: others can write to %s", path)
                yield None
        finally:
            os.close(directory)


def evict(directory: int, most: int = MOST) -> None:
    """Remove the longest unused files if there are more than `most`, and unfinished ones. Raises OSError."""
    used: list[tuple[float, str]] = []
    now = time.time()
    for name in os.listdir(directory):
        with suppress(FileNotFoundError):  # another process evicts as well
            at = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime
            if name.endswith(".o"):
                used.append((at, name))
            elif name.endswith(".part") and now - at > _STALE_SECONDS:
                os.unlink(name, dir_fd=directory)
    if len(used) > most:
        for _, name in sorted(used)[: len(used) - int(most * _KEPT)]:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)


def _is_own(about: os.stat_result) -> bool:
    """Whether a file or directory belongs to this user, and only this user can write to it."""
    return about.st_uid == os.geteuid() and not stat.S_IMODE(about.st_mode) & 0o022


def _unsealed(data: bytes) -> bytes | None:
    digest, code = data[:_DIGEST], data[_DIGEST:]
    return code if code and hashlib.sha256(code).digest() == digest else None


def _write(directory: int, name: str, data: bytes) -> None:
    """Write a file in one step. Raises OSError."""
    part = f"{secrets.token_hex(8)}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(part, flags, 0o600, dir_fd=directory)
    try:
        with open(file, "wb") as opened:
            opened.write(data)
        os.replace(part, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        with suppress(OSError):
            os.unlink(part, dir_fd=directory)
        raise

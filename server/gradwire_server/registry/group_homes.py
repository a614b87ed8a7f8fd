"""Group homes: which server keeps a group's record, where several servers share a state directory.

    DIR/groups/key       the secret by which the servers of this directory know each other
    DIR/groups/<hash>    the server that keeps the record of one owner's group of one name: an Address as JSON

The server of rank 0 makes the second file, which exists until the group ends. A server that starts removes those that
it left behind. All functions may wait for the disk, so the front calls them in threads.
"""

import errno
import hashlib
import json
import logging
import os
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from gradwire_server.storage.snapshot_files import make_folder

_KEY_BYTES = 32

log = logging.getLogger("gradwire.server")


@dataclass(frozen=True)
class Address:
    """Where a server's peers reach it. `certificate` is the SHA-256 of its TLS certificate; empty without TLS."""

    endpoint: str
    host: str
    port: int
    certificate: str = ""


class Homes:
    """The files of one directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, endpoint: str) -> bytes:
        """The servers' secret; forgets what this endpoint left behind, and damaged files. Raises OSError."""
        make_folder(self.folder)
        for path in self.folder.iterdir():
            if path.suffix or path.name == "key":
                continue
            try:
                held = self._read(path)
            except (ValueError, TypeError):
                log.warning("a damaged file of a group is removed", extra={"file": path.name})
                path.unlink(missing_ok=True)
                continue
            if held is not None and held.endpoint == endpoint:
                path.unlink(missing_ok=True)
        path = self.folder / "key"
        with suppress(FileExistsError):
            self._make(path, secrets.token_bytes(_KEY_BYTES))
        key = path.read_bytes()
        if len(key) != _KEY_BYTES:  # an empty one would admit all
            raise OSError(
                errno.EIO, f"it has {len(key)} bytes, not {_KEY_BYTES}. Stop all servers and delete it", str(path)
            )
        return key

    def _make(self, path: Path, content: bytes) -> None:
        """Make a file, whole from the first moment. Raises FileExistsError, OSError."""
        beside = path.with_suffix(f".{secrets.token_hex(8)}")
        try:
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(beside, path)
        finally:
            beside.unlink(missing_ok=True)

    def _path(self, owner: str, name: str) -> Path:
        return self.folder / hashlib.sha256(json.dumps([owner, name]).encode()).hexdigest()

    @staticmethod
    def _read(path: Path) -> Address | None:
        try:
            return Address(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None

    def find(self, owner: str, name: str) -> Address | None:
        """The server of a group; None if there is none yet. Raises OSError."""
        return self._read(self._path(owner, name))

    def publish(self, owner: str, name: str, home: Address) -> bool:
        """Make a server the home of a group; whether no other was. Raises OSError."""
        try:
            self._make(self._path(owner, name), json.dumps(asdict(home)).encode())
        except FileExistsError:
            return False
        return True

    def withdraw(self, owner: str, name: str, home: Address) -> None:
        """Forget a server as the home of a group, unless another has taken its place. Raises OSError."""
        path = self._path(owner, name)
        if self._read(path) == home:
            path.unlink(missing_ok=True)

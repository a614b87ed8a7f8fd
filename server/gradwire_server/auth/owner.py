"""The owner of a server that asks nobody who he is: whoever runs as its user, on its machine.

A peer's address proves nothing: a proxy that runs beside the server passes strangers on from there. So the server
leaves a secret in a file that its user alone can read, and `gradwire top` and `gradwire sessions` show it.

The file's name has the address, and the server holds a lock on it for as long as it runs: so that the secret is shown
where this server listens and nowhere else, neither at the same port of another address nor after the server's death.
"""

import contextlib
import hmac
import logging
import os
import secrets
import stat
from pathlib import Path
from typing import Any
from urllib.parse import quote

_BEARER = "bearer "
_ENDING = ".owner"

log = logging.getLogger("gradwire.server")


class Owner:
    """The secret, and its file until `stop`."""

    def __init__(self, address: str) -> None:
        """Where no such file can be had the owner is nobody."""
        self._secret = secrets.token_urlsafe(32)
        self._file: int | None = None
        try:
            folder = _folder()
            _sweep(folder)
            self._path = folder / f"{quote(address, safe='[]:')}{_ENDING}"
            self._file = _write(self._path, self._secret)
        except OSError as error:
            log.info("the server has no owner: %s", error)

    def stop(self) -> None:
        """Take the file away, unless it is a later server's."""
        if self._file is not None:
            _remove(self._path, self._file)
            os.close(self._file)
            self._file = None

    def calls(self, context: Any) -> bool:
        """Whether a call shows the secret."""
        for key, value in context.invocation_metadata() or ():
            if key == "authorization" and isinstance(value, str) and value[: len(_BEARER)].lower() == _BEARER:
                shown = value[len(_BEARER) :].strip().encode()
                return self._file is not None and hmac.compare_digest(shown, self._secret.encode())
        return False


def _folder() -> Path:
    """A folder of this user's alone. Raises OSError."""
    if not hasattr(os, "geteuid"):
        raise OSError("the system has no users of that kind")
    folder = Path(f"/tmp/gradwire-{os.geteuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise OSError(f"{folder} is not this user's alone")
    return folder


def _write(path: Path, text: str) -> int:
    """Make a file that is locked as soon as it can be seen under its name. Raises OSError."""
    import fcntl  # not everywhere; but where users have numbers

    making = path.with_name(f".{secrets.token_hex(8)}")  # which nobody sweeps up
    file = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(file, text.encode())
        making.replace(path)
    except BaseException:
        making.unlink(missing_ok=True)
        os.close(file)
        raise
    return file


def _sweep(folder: Path) -> None:
    """Remove the files of servers that were killed: nobody holds their locks."""
    import fcntl

    for path in folder.glob(f"*{_ENDING}"):
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path, file)
            finally:
                os.close(file)


def _remove(path: Path, file: int) -> None:
    """Remove a file by its name, if it is the one that is open."""
    with contextlib.suppress(OSError):
        if os.path.samestat(path.lstat(), os.fstat(file)):
            path.unlink()

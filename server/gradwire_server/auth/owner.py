"""Owner: recognizes the administrator of a server that does not authenticate callers.

The owner is any process of the server's user on the server's machine. A peer's address proves nothing: a proxy on
the same machine may forward other callers. So the server writes a secret to a file that only its user can read.
`gradwire top` and `gradwire sessions` send the secret.

The file's name contains the address, and the server holds a lock on the file while it runs. So clients send the secret
only to this server, not to the same port of another address, and not after the server has died.
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
        """Write the secret's file. If that fails, no caller counts as the owner."""
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
        """Remove the file, unless it is a later server's."""
        if self._file is not None:
            _remove(self._path, self._file)
            os.close(self._file)
            self._file = None

    def calls(self, context: Any) -> bool:
        """Whether a call's metadata has the secret."""
        for key, value in context.invocation_metadata() or ():
            if key == "authorization" and isinstance(value, str) and value[: len(_BEARER)].lower() == _BEARER:
                shown = value[len(_BEARER) :].strip().encode()
                return self._file is not None and hmac.compare_digest(shown, self._secret.encode())
        return False


def _folder() -> Path:
    """A folder that only this user can access. Raises OSError."""
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
    """Create a file that is locked before it gets its name; its descriptor. Raises OSError."""
    import fcntl  # missing on systems without user ids, where `_folder` raises first

    making = path.with_name(f".{secrets.token_hex(8)}")  # lacks the ending, so `_sweep` skips it
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
    """Remove the files of killed servers: their locks are free."""
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
    """Remove a path, if it is still the open file."""
    with contextlib.suppress(OSError):
        if os.path.samestat(path.lstat(), os.fstat(file)):
            path.unlink()

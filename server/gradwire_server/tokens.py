"""Tokens: the file that says who may call, how a line of it is made, and how a token is found in it.

A token is `gradwire_<id>_<secret>`; its line has the id and a salted hash of the secret. The secret is 256 bits from
the system's generator, so that no guessing is worth anyone's while and one round of SHA-256 keeps it; a slow
password hash would let strangers who know no more than an id spend the server's time and memory.

A line is a principal's name and words:

    alice id=5f1c09e2a7b34d10 hash=sha256:<salt>:<digest> scopes=admin expires=2030-01-01T00:00:00+00:00
    bob certificate scopes=admin

`certificate` gives scopes to a name that comes with a client's certificate. Lines that begin with # are comments.
"""

import hashlib
import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from gradwire_server.principals import NAME, SCOPES, Principal

_PREFIX = "gradwire"
_TOKEN = re.compile(rf"{_PREFIX}_([0-9a-f]{{16}})_([A-Za-z0-9_-]{{43}})")
_HASH = re.compile(r"sha256:([0-9a-f]{32}):([0-9a-f]{64})")
_WORDS = frozenset(("id", "hash", "scopes", "expires", "certificate"))
_LOOK_SECONDS = 1.0  # between looks at the file's date
_MOST_BYTES = 4 << 20

log = logging.getLogger("gradwire.server")


class TokenFileError(ValueError):
    """The file cannot be used; says where, and never what stands there."""


@dataclass(frozen=True)
class Line:
    """A line of the file; `id` is empty for a certificate's."""

    name: str
    id: str
    salt: bytes
    digest: bytes
    scopes: frozenset[str]
    expires: datetime | None

    def __repr__(self) -> str:
        return f"<Line of {self.name}>"


def make(name: str, scopes: frozenset[str] = frozenset(), expires: datetime | None = None) -> tuple[str, str]:
    """A new token, and the line for the file. Raises TokenFileError for a name or a scope that cannot be."""
    if not NAME.fullmatch(name):
        raise TokenFileError(f"a principal's name has 1 to 128 letters, digits and ._@:/+-, unlike {name!r}")
    _check_scopes(scopes)
    identity, secret, salt = secrets.token_hex(8), secrets.token_urlsafe(32), secrets.token_bytes(16)
    words = [name, f"id={identity}", f"hash=sha256:{salt.hex()}:{_digest(salt, secret).hex()}"]
    words += [f"scopes={','.join(sorted(scopes))}"] if scopes else []
    words += [f"expires={expires.astimezone(timezone.utc).isoformat(timespec='seconds')}"] if expires else []
    return f"{_PREFIX}_{identity}_{secret}", " ".join(words)


def append(path: Path, line: str) -> None:
    """Add a line to the file, which nobody else may read."""
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+b") as file:
        file.seek(0, os.SEEK_END)
        whole = True
        if file.tell():
            file.seek(-1, os.SEEK_END)
            whole = file.read(1) == b"\n"
        file.write(f"{'' if whole else chr(10)}{line}\n".encode())
        file.flush()
        os.fsync(file.fileno())


def parse(text: str) -> Iterator[Line]:
    """The lines. Raises TokenFileError."""
    for number, raw in enumerate(text.splitlines(), 1):
        words = raw.split()
        if words and not words[0].startswith("#"):
            try:
                yield _line(words)
            except ValueError as error:
                raise TokenFileError(f"line {number}: {error}") from None


def _line(words: list[str]) -> Line:
    name, told = words[0], dict[str, str]()
    if not NAME.fullmatch(name):
        raise ValueError("it does not begin with a principal's name")
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key not in _WORDS or key in told:
            raise ValueError(f"a line has each of {', '.join(sorted(_WORDS))} once at most, and nothing else")
        told[key] = value
    scopes = frozenset(filter(None, told.get("scopes", "").split(",")))
    _check_scopes(scopes)
    expires = None
    if "expires" in told:
        try:
            expires = datetime.fromisoformat(told["expires"].replace("Z", "+00:00"))
        except ValueError:
            raise ValueError("expires is no date and time such as 2030-01-01T00:00:00+00:00") from None
        expires = expires if expires.tzinfo else expires.replace(tzinfo=timezone.utc)
    if "certificate" in told:
        if {"id", "hash"} & told.keys():
            raise ValueError("it is a token's or a certificate's, not both")
        return Line(name, "", b"", b"", scopes, expires)
    found = _HASH.fullmatch(told.get("hash", ""))
    if found is None or not re.fullmatch("[0-9a-f]{16}", told.get("id", "")):
        raise ValueError("it lacks an id or a hash as `gradwire token` makes them")
    return Line(name, told["id"], bytes.fromhex(found[1]), bytes.fromhex(found[2]), scopes, expires)


def _check_scopes(scopes: frozenset[str]) -> None:
    if scopes - SCOPES:
        raise TokenFileError(f"a scope is one of {', '.join(sorted(SCOPES))}")


def _digest(salt: bytes, secret: str) -> bytes:
    return hashlib.sha256(salt + secret.encode()).digest()


class Tokens:
    """The file's principals. It is read again when its date changes, or when `reload` is called.

    Who has lost the line is `revoked`, so that calls which last end with the next command. A file that cannot be used
    leaves those in force that were.
    """

    def __init__(self, path: Path) -> None:
        """Raises TokenFileError, OSError."""
        self.path = path
        self._known: dict[str, tuple[Line, Principal]] = {}
        self._certificates: dict[str, tuple[Line, Principal]] = {}
        self._nobody = Line("nobody", "", secrets.token_bytes(16), secrets.token_bytes(32), frozenset(), None)
        self._stamp = self._look()
        self._looked = time.monotonic()
        self._read()

    def __repr__(self) -> str:
        return f"<Tokens of {self.path}>"

    def find(self, token: str) -> Principal | None:
        """Whose token it is; None if nobody's. In constant time, but for what is no token at all."""
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        self._follow()
        line, principal = self._known.get(found[1], (self._nobody, None))
        return principal if hmac.compare_digest(_digest(line.salt, found[2]), line.digest) else None

    def certified(self, name: str) -> Principal:
        """The principal whose name a client's certificate gives."""
        self._follow()
        found = self._certificates.get(name)
        return Principal(name) if found is None else found[1]

    def reload(self) -> None:
        """Read the file again; what is wrong with it goes to the log."""
        try:
            self._stamp = self._look()
            self._read()
        except (OSError, TokenFileError) as error:
            log.error("token file not taken over: %s", error, extra={"path": str(self.path)})
        else:
            log.info("token file read", extra={"path": str(self.path), "tokens": len(self._known)})

    def _follow(self) -> None:
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            try:
                changed = self._look() != self._stamp
            except OSError:
                changed = True
            if changed:
                self.reload()

    def _look(self) -> tuple[int, int, int]:
        found = self.path.stat()
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _read(self) -> None:
        if self._stamp[2] > _MOST_BYTES:
            raise TokenFileError(f"{self.path} has more than {_MOST_BYTES} bytes")
        tokens: dict[str, Line] = {}
        certificates: dict[str, Line] = {}
        try:
            for line in parse(self.path.read_text("utf-8")):
                table, key = (tokens, line.id) if line.id else (certificates, line.name)
                if key in table:
                    raise TokenFileError(f"{line.name} has two lines for the same token or certificate")
                table[key] = line
        except UnicodeDecodeError:
            raise TokenFileError(f"{self.path} is no text") from None
        except TokenFileError as error:
            raise TokenFileError(f"{self.path}: {error}") from None
        self._known = _replaced(self._known, tokens)
        self._certificates = _replaced(self._certificates, certificates)


def _replaced(before: dict[str, tuple[Line, Principal]], lines: dict[str, Line]) -> dict[str, tuple[Line, Principal]]:
    """The table of the lines: who is in it unchanged stays who he is, others of before are revoked."""
    for key, (line, principal) in before.items():
        if lines.get(key) != line:
            principal.revoked = True
    return {
        key: before[key] if key in before and before[key][0] == line else (line, _principal(line))
        for key, line in lines.items()
    }


def _principal(line: Line) -> Principal:
    return Principal(line.name, line.scopes, line.expires)

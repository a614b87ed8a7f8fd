"""Tokens: reads and writes the token file, and finds the principal of a token.

A token is `gradwire_<id>_<secret>`; its line has the id and a salted hash of the secret. The secret is 256 bits from
the system's generator. Guessing is infeasible, so one round of SHA-256 suffices. With a slow password hash, callers
that know only an id could use up the server's time and memory.

A line is a principal's name and words:

    alice id=5f1c09e2a7b34d10 hash=sha256:<salt>:<digest> scopes=admin expires=2030-01-01T00:00:00+00:00
    bob certificate scopes=admin

`certificate` gives scopes to the name in a client's certificate. Lines that begin with # are comments.
"""

import hashlib
import hmac
import itertools
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeAlias
from weakref import WeakValueDictionary

from gradwire_server.auth.principals import NAME, SCOPES, Principal

_PREFIX = "gradwire"
_TOKEN = re.compile(rf"{_PREFIX}_([0-9a-f]{{16}})_([A-Za-z0-9_-]{{43}})")
_HASH = re.compile(r"sha256:([0-9a-f]{32}):([0-9a-f]{64})")
_WORDS = frozenset(("id", "hash", "scopes", "expires", "certificate"))
LOOK_SECONDS = 0.5  # between looks at the file; a change is applied at the second look that finds it unchanged
_AGAIN_SECONDS = 60.0  # between log lines about an unusable file
_MOST_BYTES = 4 << 20

Stamp: TypeAlias = tuple[int, int, int, int]  # dates, inode and size of a file
log = logging.getLogger("gradwire.server")


class TokenFileError(ValueError):
    """The file cannot be used. The message names the place and never quotes secrets."""


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

    @property
    def secret(self) -> tuple[str, bytes, bytes]:
        """The identity of a token: a change of it makes another token."""
        return self.name, self.salt, self.digest


def make(name: str, scopes: frozenset[str] = frozenset(), expires: datetime | None = None) -> tuple[str, str]:
    """Create a token; the token and its line for the file. Raises TokenFileError for an invalid name or scope."""
    if not NAME.fullmatch(name):
        raise TokenFileError(f"a principal's name has 1 to 128 letters, digits and ._@:/+-, unlike {name!r}")
    _check_scopes(scopes)
    identity, secret, salt = secrets.token_hex(8), secrets.token_urlsafe(32), secrets.token_bytes(16)
    words = [name, f"id={identity}", f"hash=sha256:{salt.hex()}:{_digest(salt, secret).hex()}"]
    words += [f"scopes={','.join(sorted(scopes))}"] if scopes else []
    words += [f"expires={expires.astimezone(timezone.utc).isoformat(timespec='seconds')}"] if expires else []
    return f"{_PREFIX}_{identity}_{secret}", " ".join(words)


def append(path: Path, line: str) -> None:
    """Append a line to the file. A new file gets mode 0600."""
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
    """Parse the file's lines. Raises TokenFileError."""
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
            raise ValueError("expires is not a date and time such as 2030-01-01T00:00:00+00:00") from None
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


@dataclass(frozen=True)
class Table:
    """A file's content: lines by token id, and by the name in a certificate."""

    tokens: dict[str, Line]
    certificates: dict[str, Line]
    stamp: Stamp
    number: int  # of the look that found it


class Tokens:
    """The file's principals. To follow the file, call `look` from time to time and pass its result to `take`.

    `look` may run in a thread, one call at a time; use all else on the event loop.

    A principal whose line is gone is `revoked`. If the file is missing, empty or has an error, the previous tokens
    stay in force. A change is applied only when two looks find the same file, so a file being written is not read.
    """

    def __init__(self, path: Path) -> None:
        """Raises TokenFileError, OSError."""
        self.path = path
        self.trouble = ""  # why the file cannot be used, if it cannot
        self.hurried = False  # whether the next look reads the file even if its date is unchanged
        self._told = 0.0
        self._numbers = itertools.count()
        self._taken = -1  # number of the look whose table is in force
        self._known: dict[str, tuple[Line, Principal]] = {}
        self._certificates: dict[str, Line] = {}
        self._certified: WeakValueDictionary[str, Principal] = WeakValueDictionary()
        self._nobody = Line("nobody", "", secrets.token_bytes(16), secrets.token_bytes(32), frozenset(), None)
        self._stamp = self._look()
        self._seen: Stamp | None = self._stamp  # at the last look
        self._failed: Stamp | None = None  # of a file with unusable content
        self._replace(self._read(self._stamp, next(self._numbers)))

    def __repr__(self) -> str:
        return f"<Tokens of {self.path}>"

    def find(self, token: str) -> Principal | None:
        """The principal of a token; None if there is none. In constant time for every well-formed token."""
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        line, principal = self._known.get(found[1], (self._nobody, None))
        return principal if hmac.compare_digest(_digest(line.salt, found[2]), line.digest) else None

    def certified(self, name: str) -> Principal:
        """The principal named in a client's certificate. All its concurrent calls share one object."""
        principal = self._certified.get(name)
        if principal is None:
            self._certified[name] = principal = Principal(name)
            _allow(principal, self._certificates.get(name))
        return principal

    def has(self, name: str) -> bool:
        """Whether a token of this name is in force."""
        return any(principal.name == name and not principal.over for _, principal in self._known.values())

    def look(self) -> Table | None:
        """The file's table, if it is new and unchanged since the last look; else None. Waits for the disk.

        Logs errors of the file.
        """
        hurried, self.hurried = self.hurried, False
        if hurried:
            self._told = 0.0
        number = next(self._numbers)
        try:
            stamp = self._look()
            settled, self._seen = stamp == self._seen, stamp
            if not hurried:
                if stamp == self._stamp:
                    self._usable()
                if stamp == self._stamp or not settled:
                    return None
                if stamp == self._failed:
                    raise TokenFileError(self.trouble)  # as at the last read
            table = self._read(stamp, number)
        except TokenFileError as error:
            self._failed = stamp
            self._unusable(error)
            return None
        except OSError as error:  # may pass although the file is unchanged, so `_failed` is not set
            self._unusable(error)
            return None
        self._usable()
        return table

    def take(self, table: Table) -> set[str]:
        """Put a table in force, unless a later look's is; the names that lost a token."""
        if table.number <= self._taken:
            return set()
        self._taken, self._stamp, self._failed = table.number, table.stamp, None
        before = len(self._known)
        gone = self._replace(table)
        told = {"path": str(self.path), "tokens": len(self._known), "before": before, "revoked": len(gone)}
        log.info("token file read", extra=told)
        return {principal.name for principal in gone}

    def reload(self) -> None:
        """Read the file now, even if its date is unchanged. Waits for the disk."""
        self.hurried = True
        table = self.look()
        if table is not None:
            self.take(table)

    def hurry(self) -> None:
        """Make the next look read the file, even if its date is unchanged."""
        self.hurried = True

    def _usable(self) -> None:
        if self.trouble:
            self.trouble, self._told = "", 0.0
            log.info("token file can be used again", extra={"path": str(self.path)})

    def _unusable(self, error: Exception) -> None:
        now, why = time.monotonic(), str(error)
        if why != self.trouble or not self._told or now - self._told >= _AGAIN_SECONDS:
            self._told = now
            log.error("token file not taken over, those before stay in force: %s", why, extra={"path": str(self.path)})
        self.trouble = why

    def _look(self) -> Stamp:
        found = self.path.stat()
        return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size

    def _read(self, stamp: Stamp, number: int) -> Table:
        if stamp[-1] > _MOST_BYTES:
            raise TokenFileError(f"{self.path} has more than {_MOST_BYTES} bytes")
        if not stamp[-1] and self._known:
            raise TokenFileError(f"{self.path} is empty; to admit no caller, leave a comment in it")
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
        return Table(tokens, certificates, stamp, number)

    def _replace(self, table: Table) -> list[Principal]:
        """Replace the principals. Keeps those whose token still has a line, revokes the others and returns them."""
        before, self._known = self._known, {}
        for key, line in table.tokens.items():
            known = before.get(key)
            if known is not None and known[0].secret == line.secret:
                _allow(known[1], line)
                self._known[key] = line, before.pop(key)[1]
            else:
                self._known[key] = line, Principal(line.name, line.scopes, line.expires)
        gone = [principal for _, principal in before.values()]
        for principal in gone:
            principal.revoked = True
        # A certificate is valid without a line; the line only changes its scopes and expiry.
        self._certificates = table.certificates
        for name, principal in list(self._certified.items()):
            _allow(principal, self._certificates.get(name))
        return gone


def _allow(principal: Principal, line: Line | None) -> None:
    if line is None:
        principal.allow(frozenset(), None)
    else:
        principal.allow(line.scopes, line.expires)

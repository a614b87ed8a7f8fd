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
LOOK_SECONDS = 0.5  # between looks at the file; a change is taken over at the second look that finds it so
_AGAIN_SECONDS = 60.0  # between lines of the log about a file that cannot be used
_MOST_BYTES = 4 << 20

Stamp: TypeAlias = tuple[int, int, int, int]  # dates, inode and size of a file
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

    @property
    def secret(self) -> tuple[str, bytes, bytes]:
        """What makes it another token."""
        return self.name, self.salt, self.digest


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


@dataclass(frozen=True)
class Table:
    """What a file says: lines by token id, and by the name in a certificate."""

    tokens: dict[str, Line]
    certificates: dict[str, Line]
    stamp: Stamp
    number: int  # of the look that found it


class Tokens:
    """The file's principals. Whoever asks `look` from time to time and has `take` what it finds follows the file.

    `look` may be called by a thread, one at a time; all else is of the event loop.

    Who has lost the line is `revoked`. A file that cannot be used, for it is missing, empty or has an error, leaves
    those in force that were; so does one that is being written, since a change is taken when it lies still.
    """

    def __init__(self, path: Path) -> None:
        """Raises TokenFileError, OSError."""
        self.path = path
        self.trouble = ""  # why the file cannot be used, if it cannot
        self.hurried = False  # whether the next look is to read the file, whatever its date
        self._told = 0.0
        self._numbers = itertools.count()
        self._taken = -1  # the number of the look whose table is in force
        self._known: dict[str, tuple[Line, Principal]] = {}
        self._certificates: dict[str, Line] = {}
        self._certified: WeakValueDictionary[str, Principal] = WeakValueDictionary()
        self._nobody = Line("nobody", "", secrets.token_bytes(16), secrets.token_bytes(32), frozenset(), None)
        self._stamp = self._look()
        self._seen: Stamp | None = self._stamp  # at the last look
        self._failed: Stamp | None = None  # of a file whose content could not be used
        self._replace(self._read(self._stamp, next(self._numbers)))

    def __repr__(self) -> str:
        return f"<Tokens of {self.path}>"

    def find(self, token: str) -> Principal | None:
        """Whose token it is; None if nobody's. In constant time, but for what is no token at all."""
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        line, principal = self._known.get(found[1], (self._nobody, None))
        return principal if hmac.compare_digest(_digest(line.salt, found[2]), line.digest) else None

    def certified(self, name: str) -> Principal:
        """The principal whose name a client's certificate gives; the same for all calls that last."""
        principal = self._certified.get(name)
        if principal is None:
            self._certified[name] = principal = Principal(name)
            _allow(principal, self._certificates.get(name))
        return principal

    def has(self, name: str) -> bool:
        """Whether a token of this name is in force."""
        return any(principal.name == name and not principal.over for _, principal in self._known.values())

    def look(self) -> Table | None:
        """What the file says, if that is new and has not changed since the last look. Waits for the disk.

        What is wrong with the file goes to the log.
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
                    raise TokenFileError(self.trouble)  # as before
            table = self._read(stamp, number)
        except TokenFileError as error:
            self._failed = stamp
            self._unusable(error)
            return None
        except OSError as error:  # which may pass, though the file stays as it is
            self._unusable(error)
            return None
        self._usable()
        return table

    def take(self, table: Table) -> set[str]:
        """Let be in force what the file says, unless a later look was taken; the names of which a token was revoked."""
        if table.number <= self._taken:
            return set()
        self._taken, self._stamp, self._failed = table.number, table.stamp, None
        before = len(self._known)
        gone = self._replace(table)
        told = {"path": str(self.path), "tokens": len(self._known), "before": before, "revoked": len(gone)}
        log.info("token file read", extra=told)
        return {principal.name for principal in gone}

    def reload(self) -> None:
        """Read the file now, whatever its date. Waits for the disk."""
        self.hurried = True
        table = self.look()
        if table is not None:
            self.take(table)

    def hurry(self) -> None:
        """Have the next look read the file, whatever its date."""
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
            raise TokenFileError(f"{self.path} is empty; to let nobody in, leave a comment in it")
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
        """Whose token has a line stays who he is, others of before are revoked; which."""
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
        # A certificate holds by itself: what changes is what its line adds or takes away.
        self._certificates = table.certificates
        for name, principal in list(self._certified.items()):
            _allow(principal, self._certificates.get(name))
        return gone


def _allow(principal: Principal, line: Line | None) -> None:
    if line is None:
        principal.allow(frozenset(), None)
    else:
        principal.allow(line.scopes, line.expires)

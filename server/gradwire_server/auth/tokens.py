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
POLL_SECONDS = 0.5  # between polls of the file; a change is applied at the second poll that finds it unchanged
_LOG_SECONDS = 60.0  # between log lines about an unusable file
_MOST_BYTES = 4 << 20

Stamp: TypeAlias = tuple[int, int, int, int]  # dates, inode and size of a file
log = logging.getLogger("gradwire.server")


class TokenFileError(ValueError):
    """The file cannot be used. The message names the place and never quotes secrets."""


@dataclass(frozen=True)
class TokenLine:
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


def parse(text: str) -> Iterator[TokenLine]:
    """Parse the file's lines. Raises TokenFileError."""
    for number, raw in enumerate(text.splitlines(), 1):
        words = raw.split()
        if words and not words[0].startswith("#"):
            try:
                yield _line(words)
            except ValueError as error:
                raise TokenFileError(f"line {number}: {error}") from None


def _line(words: list[str]) -> TokenLine:
    name, fields = words[0], dict[str, str]()
    if not NAME.fullmatch(name):
        raise ValueError("it does not begin with a principal's name")
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key not in _WORDS or key in fields:
            raise ValueError(f"a line has each of {', '.join(sorted(_WORDS))} once at most, and nothing else")
        fields[key] = value
    scopes = frozenset(filter(None, fields.get("scopes", "").split(",")))
    _check_scopes(scopes)
    expires = None
    if "expires" in fields:
        try:
            expires = datetime.fromisoformat(fields["expires"].replace("Z", "+00:00"))
        except ValueError:
            raise ValueError("expires is not a date and time such as 2030-01-01T00:00:00+00:00") from None
        expires = expires if expires.tzinfo else expires.replace(tzinfo=timezone.utc)
    if "certificate" in fields:
        if {"id", "hash"} & fields.keys():
            raise ValueError("it is a token's or a certificate's, not both")
        return TokenLine(name, "", b"", b"", scopes, expires)
    found = _HASH.fullmatch(fields.get("hash", ""))
    if found is None or not re.fullmatch("[0-9a-f]{16}", fields.get("id", "")):
        raise ValueError("it lacks an id or a hash as `gradwire token` makes them")
    return TokenLine(name, fields["id"], bytes.fromhex(found[1]), bytes.fromhex(found[2]), scopes, expires)


def _check_scopes(scopes: frozenset[str]) -> None:
    if scopes - SCOPES:
        raise TokenFileError(f"a scope is one of {', '.join(sorted(SCOPES))}")


def _digest(salt: bytes, secret: str) -> bytes:
    return hashlib.sha256(salt + secret.encode()).digest()


@dataclass(frozen=True)
class TokenTable:
    """A file's content: lines by token id, and by the name in a certificate."""

    tokens: dict[str, TokenLine]
    certificates: dict[str, TokenLine]
    stamp: Stamp
    number: int  # of the poll that found it


class Tokens:
    """The file's principals. To follow the file, call `poll` from time to time and pass its result to `apply`.

    `poll` may run in a thread, one call at a time; use all else on the event loop.

    A principal whose line is gone is `revoked`. If the file is missing, empty or has an error, the previous tokens
    stay in force. A change is applied only when two polls find the same file, so a file being written is not read.
    """

    def __init__(self, path: Path) -> None:
        """Raises TokenFileError, OSError."""
        self.path = path
        self.error = ""  # why the file cannot be used, if it cannot
        self.forced = False  # whether the next poll reads the file even if its date is unchanged
        self._last_logged = 0.0
        self._numbers = itertools.count()
        self._applied = -1  # number of the poll whose table is in force
        self._known: dict[str, tuple[TokenLine, Principal]] = {}
        self._certificates: dict[str, TokenLine] = {}
        self._certified: WeakValueDictionary[str, Principal] = WeakValueDictionary()
        self._unknown_line = TokenLine(
            "unknown", "", secrets.token_bytes(16), secrets.token_bytes(32), frozenset(), None
        )
        self._stamp = self._stat()
        self._seen: Stamp | None = self._stamp  # at the last poll
        self._failed: Stamp | None = None  # of a file with unusable content
        self._replace(self._read(self._stamp, next(self._numbers)))

    def __repr__(self) -> str:
        return f"<Tokens of {self.path}>"

    def find(self, token: str) -> Principal | None:
        """The principal of a token; None if there is none. In constant time for every well-formed token."""
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        line, principal = self._known.get(found[1], (self._unknown_line, None))
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

    def poll(self) -> TokenTable | None:
        """The file's table, if it is new and unchanged since the last poll; else None. Waits for the disk.

        Logs errors of the file.
        """
        forced, self.forced = self.forced, False
        if forced:
            self._last_logged = 0.0
        number = next(self._numbers)
        try:
            stamp = self._stat()
            unchanged, self._seen = stamp == self._seen, stamp
            if not forced:
                if stamp == self._stamp:
                    self._usable()
                if stamp == self._stamp or not unchanged:
                    return None
                if stamp == self._failed:
                    raise TokenFileError(self.error)  # as at the last read
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

    def apply(self, table: TokenTable) -> set[str]:
        """Put a table in force, unless a later poll's is; the names that lost a token."""
        if table.number <= self._applied:
            return set()
        self._applied, self._stamp, self._failed = table.number, table.stamp, None
        before = len(self._known)
        revoked = self._replace(table)
        details = {"path": str(self.path), "tokens": len(self._known), "before": before, "revoked": len(revoked)}
        log.info("token file read", extra=details)
        return {principal.name for principal in revoked}

    def reload(self) -> None:
        """Read the file now, even if its date is unchanged. Waits for the disk."""
        self.forced = True
        table = self.poll()
        if table is not None:
            self.apply(table)

    def force_next_poll(self) -> None:
        """Make the next poll read the file, even if its date is unchanged."""
        self.forced = True

    def _usable(self) -> None:
        if self.error:
            self.error, self._last_logged = "", 0.0
            log.info("token file can be used again", extra={"path": str(self.path)})

    def _unusable(self, error: Exception) -> None:
        now, why = time.monotonic(), str(error)
        if why != self.error or not self._last_logged or now - self._last_logged >= _LOG_SECONDS:
            self._last_logged = now
            log.error(
                "token file cannot be used, the previous tokens stay in force: %s", why, extra={"path": str(self.path)}
            )
        self.error = why

    def _stat(self) -> Stamp:
        found = self.path.stat()
        return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size

    def _read(self, stamp: Stamp, number: int) -> TokenTable:
        if stamp[-1] > _MOST_BYTES:
            raise TokenFileError(f"{self.path} has more than {_MOST_BYTES} bytes")
        if not stamp[-1] and self._known:
            raise TokenFileError(f"{self.path} is empty; to admit no caller, leave a comment in it")
        tokens: dict[str, TokenLine] = {}
        certificates: dict[str, TokenLine] = {}
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
        return TokenTable(tokens, certificates, stamp, number)

    def _replace(self, table: TokenTable) -> list[Principal]:
        """Replace the principals. Keeps those whose token still has a line, revokes the others and returns them."""
        before, self._known = self._known, {}
        for key, line in table.tokens.items():
            known = before.get(key)
            if known is not None and known[0].secret == line.secret:
                _allow(known[1], line)
                self._known[key] = line, before.pop(key)[1]
            else:
                self._known[key] = line, Principal(line.name, line.scopes, line.expires)
        revoked = [principal for _, principal in before.values()]
        for principal in revoked:
            principal.revoked = True
        # A certificate is valid without a line; the line only changes its scopes and expiry.
        self._certificates = table.certificates
        for name, principal in list(self._certified.items()):
            _allow(principal, self._certificates.get(name))
        return revoked


def _allow(principal: Principal, line: TokenLine | None) -> None:
    if line is None:
        principal.allow(frozenset(), None)
    else:
        principal.allow(line.scopes, line.expires)

"""Head storage: where Ray's head keeps what it knows, so that another such process continues its work (head.py).

It is a directory, which Ray's RocksDB uses, or a Redis server.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

PASSWORD = "GRADWIRE_HEAD_STORAGE_PASSWORD"
_ANSWER_SECONDS = 5.0  # of Redis
_LONGEST_LINE = 1 << 12  # of its answers
_REDIS_PORT = 6379
_SESSION = "session_name"  # a file that Ray makes in the directory
_SCHEMES = ("redis", "rediss")


class StorageError(Exception):
    """The head's storage cannot be used; the message says why, and what to do."""


@dataclass(frozen=True)
class HeadStorage:
    """Where Ray's head keeps what it knows: a directory, or a Redis server."""

    directory: str = ""
    host: str = ""
    port: int = _REDIS_PORT
    tls: bool = False
    user: str = ""
    password: str = ""

    @classmethod
    def of(cls, text: str, password: str = "") -> HeadStorage:
        """From an absolute path or redis://[USER@]HOST[:PORT]; rediss:// is with TLS. Raises StorageError."""
        if "://" not in text:
            if not os.path.isabs(text):
                raise StorageError(f"the head's storage {text!r} is no absolute path and no redis://HOST:PORT")
            return cls(directory=text)
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port or _REDIS_PORT
        except ValueError as error:
            raise StorageError(f"the head's storage {text!r} cannot be read: {error}") from None
        if parts.scheme not in _SCHEMES or not host or parts.path.strip("/") or parts.query:
            raise StorageError("the head's storage is redis://[USER@]HOST[:PORT], or rediss:// with TLS")
        if parts.password is not None:
            raise StorageError(f"the password does not belong into the address: set {PASSWORD}, or name its file")
        return cls("", host, port, parts.scheme == "rediss", parts.username or "", password)

    def environment(self, cluster: str) -> dict[str, str]:
        """Variables of Ray's head; what clusters of different names store does not mix."""
        if self.directory:
            return {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": self.directory}
        scheme = "rediss" if self.tls else "redis"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return {"RAY_REDIS_ADDRESS": f"{scheme}://{host}:{self.port}", "RAY_external_storage_namespace": cluster}

    def arguments(self) -> list[str]:
        """Options of `ray start`."""
        user = [f"--redis-username={self.user}"] if self.user else []
        return [*user, f"--redis-password={self.password}"] if self.password else user

    def check_used(self) -> None:
        """Check that Ray's head, which runs, keeps its tables in the directory. Raises StorageError."""
        if self.directory and not (Path(self.directory) / _SESSION).exists():
            raise StorageError("this version of Ray keeps nothing in a directory: use a newer one, or Redis")

    def check_redis(self) -> None:
        """Check that Redis answers, and takes the password. Raises StorageError."""
        self.ask("PING")

    def ask(self, *words: str) -> str:
        """Redis's answer to a command, "" for none. Raises StorageError."""
        where = f"Redis at {self.host}:{self.port}"
        try:
            with self._connected() as connection:
                if self.password:
                    _ask(connection, "AUTH", *([self.user] if self.user else []), self.password)
                return _ask(connection, *words)
        except _RedisRefusal as refusal:
            raise StorageError(f"{where} refuses: {refusal}. Is {PASSWORD} right?") from None
        except OSError as error:
            raise StorageError(f"{where} cannot be reached: {error.strerror or error}") from None

    def _connected(self) -> socket.socket:
        plain = socket.create_connection((self.host, self.port), _ANSWER_SECONDS)
        if not self.tls:
            return plain
        try:
            context = ssl.create_default_context(cafile=os.environ.get("RAY_REDIS_CA_CERT"))
            if certificate := os.environ.get("RAY_REDIS_CLIENT_CERT"):
                context.load_cert_chain(certificate, os.environ.get("RAY_REDIS_CLIENT_KEY"))
            return context.wrap_socket(plain, server_hostname=os.environ.get("RAY_REDIS_SERVER_NAME", self.host))
        except BaseException:
            plain.close()
            raise


class RedisRecord:
    """The address of a cluster's head in Redis (head_record.py)."""

    def __init__(self, storage: HeadStorage, cluster: str) -> None:
        self._storage = storage
        self._key = f"RAY{cluster}@gradwire-head"  # beside what Ray's head of that cluster stores
        self.where = f"Redis at {storage.host}:{storage.port}"

    def swap(self, address: str) -> str:
        """Write an address; the former one, "" for none. Raises StorageError."""
        return self._storage.ask("GETSET", self._key, address)

    def read(self) -> str:
        """The address. Raises StorageError."""
        return self._storage.ask("GET", self._key)


class _RedisRefusal(Exception):
    """Redis has answered with an error."""


def _ask(connection: socket.socket, *words: str) -> str:
    """Send a command of Redis and read its answer, a line or a text. Raises _RedisRefusal, OSError."""
    coded = [word.encode() for word in words]
    connection.sendall(b"*%d\r\n" % len(coded) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in coded))
    line = _line(connection)
    if line.startswith(b"$") and line != b"$-1":  # a text follows, which has no end of line here
        line = b"+" + _line(connection)
    if line.startswith(b"-"):
        raise _RedisRefusal(line[1:].decode(errors="replace"))
    if not line.startswith((b"+", b"$")):
        raise OSError("it does not answer as Redis does")
    return line[1:].decode(errors="replace") if line.startswith(b"+") else ""


def _line(connection: socket.socket) -> bytes:
    """A line of an answer. Raises OSError."""
    line = b""
    ends = time.monotonic() + _ANSWER_SECONDS
    while not line.endswith(b"\r\n"):
        part = connection.recv(1)
        if not part or len(line) > _LONGEST_LINE or time.monotonic() > ends:
            raise OSError("it does not answer as Redis does")
        line += part
    return line[:-2]

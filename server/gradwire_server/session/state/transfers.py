"""Transfers: holds a large tensor's bytes between a command and the chunks of Upload and Download.

An upload fills one buffer, which becomes the tensor's memory. A download uses the tensor's own bytes until the next
command that may change them, which copies them first. So the bytes stay as they were read, and a client that only
waits for the download costs no second tensor. The copy's bytes are counted from the start, so there is room for it.
Both kinds count as bytes of the session while they are held.
"""

import hashlib
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gradwire_engine import Account
from gradwire_server.common.errors import Refusal

MAX_TRANSFERS = 1024
ABANDONED_SECONDS = 900.0  # then an unfetched download, or an unfinished or unused upload, is dropped
# A broken connection may lose the last chunks, so a download that was sent to its end can be requested again.
LINGER_SECONDS = 10.0


class Upload:
    """An upload's bytes. `attempt` is the number of the call that may append; a new call replaces a broken one."""

    def __init__(self, total: int, request_id: str) -> None:
        self.buffer: np.ndarray[Any, Any] = np.empty(total, np.uint8)
        self.total = total
        self.request_id = request_id
        self.received = 0
        self.attempt = 0
        self.logged = False  # whether the session's log contains its bytes
        self.touched = time.monotonic()
        self.finished = False
        self.lock = threading.Lock()

    @staticmethod
    def received_already(buffer: "np.ndarray[Any, Any]", request_id: str) -> "Upload":
        """Create an upload that is already complete."""
        made = Upload(0, request_id)
        made.buffer, made.total, made.received = buffer, buffer.nbytes, buffer.nbytes
        made.logged = True
        return made


class Download:
    """A download's bytes. Different threads call `copy_data` and `copying`."""

    def __init__(self, data: memoryview) -> None:
        self.total = data.nbytes
        self.touched = time.monotonic()
        self.finished = False
        self._data = data
        self._lock = threading.Lock()

    def whole(self) -> memoryview:
        """All bytes, without a copy."""
        with self._lock:
            return self._data

    def copy_data(self) -> None:
        """Replace the tensor's own bytes with a copy."""
        copied = np.array(np.frombuffer(self._data, np.uint8))
        with self._lock:  # waits for one chunk at most; copying a chunk waits for nothing
            self._data = copied.data

    @contextmanager
    def copying(self, offset: int, most: int) -> Iterator[memoryview]:
        """At most `most` bytes from `offset`, which do not change inside the block."""
        with self._lock:
            yield self._data[offset : offset + most]


class Transfers:
    """A session's transfers by id, counted in its account."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.held: dict[str, Upload | Download] = {}
        self.begun: dict[str, str] = {}  # transfer ids of uploads by request_id
        self.borrowed: list[Download] = []  # downloads of tensors' own bytes
        # Download ids are derived from these, so replayed commands give the same ids.
        self.seed = secrets.token_bytes(16)
        self.begun_downloads = 0
        self.logs = False  # whether an upload must be logged before it is used

    def begin(self, total: int, limit: int, request_id: str = "") -> str:
        """Start an upload, or find the one begun under this request_id.

        Raises Refusal: PAYLOAD_SIZE over the tensor limit, ARGUMENT_VALUE; EngineError: MEMORY_LIMIT.
        """
        known = self.begun.get(request_id)
        if known is not None:
            return self._same(known, total)
        if total > limit:
            raise Refusal("PAYLOAD_SIZE", f"a tensor has at most {limit} bytes, not {total}", limit=limit, given=total)
        self.account.admit(total)
        transfer_id = self._hold(Upload(total, request_id), secrets.token_urlsafe(16))
        if request_id:
            self.begun[request_id] = transfer_id
        return transfer_id

    def _same(self, transfer_id: str, total: int) -> str:
        begun = self._find(transfer_id, Upload).total
        if begun != total:
            raise Refusal(
                "ARGUMENT_VALUE",
                f"an upload of {begun} bytes was begun under this request_id, not of {total}",
                argument="request_id",
            )
        return transfer_id

    def pin(self, data: memoryview, borrowed: bool = False) -> str:
        """Hold bytes for Download; `borrowed` bytes belong to a tensor and are copied before a command may change them.

        Raises Refusal: MEMORY_LIMIT for too many transfers.
        """
        self.tidy(0.0)
        download = Download(data)
        name = hashlib.blake2b(b"%d" % self.begun_downloads, key=self.seed, digest_size=12).hexdigest()
        transfer_id = self._hold(download, name)
        self.begun_downloads += 1
        if borrowed:
            self.borrowed.append(download)
        return transfer_id

    def copy_borrowed(self) -> None:
        """Copy the borrowed bytes of all downloads, before a command may change them."""
        while self.borrowed:
            self.borrowed[-1].copy_data()  # before the pop: the copy may raise MemoryError
            self.borrowed.pop()

    def put(self, transfer_id: str, transfer: Upload | Download) -> None:
        """Hold a restored transfer."""
        self.held[transfer_id] = transfer
        self.account.bytes += transfer.total
        if isinstance(transfer, Upload) and transfer.request_id:
            self.begun[transfer.request_id] = transfer_id

    def _hold(self, transfer: Upload | Download, transfer_id: str) -> str:
        if len(self.held) >= MAX_TRANSFERS:
            raise Refusal("MEMORY_LIMIT", f"a session holds at most {MAX_TRANSFERS} transfers", limit=MAX_TRANSFERS)
        self.held[transfer_id] = transfer
        self.account.bytes += transfer.total
        return transfer_id

    def resume(self, transfer_id: str) -> tuple[Upload, int]:
        """Resume an upload; return it and the new call's attempt number."""
        upload: Upload = self._find(transfer_id, Upload)
        with upload.lock:  # the broken call's last chunk has been written, or will be refused
            upload.attempt += 1
            return upload, upload.attempt

    @contextmanager
    def receiving(self, transfer_id: str, attempt: int, offset: int, size: int) -> Iterator[memoryview]:
        """Memory for the next bytes; they count as received if the block does not raise.

        Raises Refusal: TRANSFER_NOT_FOUND, ARGUMENT_VALUE, PAYLOAD_SIZE.
        """
        upload: Upload = self._find(transfer_id, Upload)
        with upload.lock:
            end = self._check_append(upload, attempt, offset, size)
            upload.touched = time.monotonic()
            yield memoryview(upload.buffer.data)[offset:end]
            upload.received = end

    @staticmethod
    def _check_append(upload: Upload, attempt: int, offset: int, size: int) -> int:
        if upload.attempt != attempt:
            raise Refusal("ARGUMENT_VALUE", "another call continues this upload", argument="transfer_id")
        if offset != upload.received:
            raise Refusal(
                "ARGUMENT_VALUE",
                f"the upload continues at {upload.received}, not at {offset}",
                argument="offset",
                received=upload.received,
            )
        end = offset + size
        if end > upload.total:
            raise Refusal(
                "PAYLOAD_SIZE",
                f"the upload was to have {upload.total} bytes, not {end}",
                expected=upload.total,
                given=end,
            )
        return end

    def finished(self, transfer_id: str) -> Upload:
        """A complete upload. Raises Refusal: TRANSFER_NOT_FOUND, PAYLOAD_SIZE, UNAVAILABLE."""
        upload: Upload = self._find(transfer_id, Upload)
        if upload.received != upload.total:
            raise Refusal(
                "PAYLOAD_SIZE",
                f"the upload has {upload.received} of {upload.total} bytes",
                expected=upload.total,
                given=upload.received,
            )
        if self.logs and not upload.logged:
            raise Refusal("UNAVAILABLE", f"the upload {transfer_id!r} is not answered yet: it is not stored")
        return upload

    def download(self, transfer_id: str) -> Download:
        """A download by id. Raises Refusal: TRANSFER_NOT_FOUND."""
        download: Download = self._find(transfer_id, Download)
        download.touched = time.monotonic()
        return download

    def finish(self, transfer_id: str, received: bool = False) -> None:
        """Finish a download that was sent to its end: uncount its bytes; drop it at once if the client received it."""
        download = self.held.get(transfer_id)
        if received:
            self.forget(transfer_id)
        elif isinstance(download, Download) and not download.finished:
            download.finished = True
            self.account.bytes -= download.total

    def tidy(self, linger: float = LINGER_SECONDS) -> None:
        """Drop abandoned transfers, and finished downloads that were not used for `linger` seconds."""
        now = time.monotonic()
        for transfer_id, held in list(self.held.items()):
            if now - held.touched >= (linger if held.finished else ABANDONED_SECONDS):
                self.forget(transfer_id)

    def forget(self, transfer_id: str) -> None:
        """Drop a transfer, if it is held."""
        transfer = self.held.pop(transfer_id, None)
        if transfer is not None and not transfer.finished:
            self.account.bytes -= transfer.total
        if isinstance(transfer, Upload):
            self.begun.pop(transfer.request_id, None)
        elif transfer in self.borrowed:
            self.borrowed.remove(transfer)

    def clear(self) -> None:
        """Drop all transfers."""
        for transfer_id in list(self.held):
            self.forget(transfer_id)

    def _find(self, transfer_id: str, kind: type[Any]) -> Any:
        transfer = self.held.get(transfer_id)
        if not isinstance(transfer, kind):
            raise Refusal(
                "TRANSFER_NOT_FOUND", f"no {kind.__name__.lower()} {transfer_id!r} in this session, or it was consumed"
            )
        return transfer

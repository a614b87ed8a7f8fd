"""Frames: the methods, frame kinds and bodies that the front and its workers exchange.

Does not import the engine: a front with worker processes needs none.
"""

import json
import signal
import struct
from dataclasses import asdict, dataclass
from typing import Any

from gradwire.v1 import errors_pb2
from gradwire_server.common.errors import Refusal, refusal_of
from gradwire_server.common.limits import Limits
from gradwire_server.common.methods import COMMANDS

# Methods of `Runtime.execute`: the RPCs that carry commands, and the steps of a session's lifecycle.
METHODS = (
    *COMMANDS, "Run", "Open", "Attach", "Drop", "BeginUpload", "KeepUpload", "FinishDownload", "Tidy", "Save",
    "Restore", "SaveFile", "LoadFile", "Group",
)  # fmt: skip
NUMBER = struct.Struct("<Q")
KEEP = b"keep"  # body of "Drop": keep the stored session
RESTORE_SESSION = "goes_back"  # metadata of a refusal: drop the session from memory and restore the stored one
UPLOAD_BEGUN = struct.Struct("<QQ")  # received, attempt; the transfer's id follows
# Frame kinds. On the call pipe, to the worker: an index into METHODS. On the control pipe, and to the front:
RESULT, REFUSAL, READY, CANCEL, CANCEL_THROUGH, CLOSE, UPLOAD, APPEND, END_UPLOAD, CHUNK = range(256, 266)
LEND_RING, RETURN_RING, READ_RING, WRITE_RING, BUFFER_FREE, QUERY, PARKED, GROUP = range(266, 274)
IN_BUFFER = struct.Struct("<QQ")  # buffer, bytes used

# Workers ignore these signals, which terminals and supervisors send to all processes: only the front ends workers.
IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class UploadCall:
    """A call that sends an upload's bytes: session number, transfer, attempt, and the offset of the next bytes."""

    number: int
    transfer_id: str
    attempt: int
    offset: int


@dataclass
class WorkerParameters:
    """A worker's start parameters. `calls`, `control`, `counters`, `buffers` and `lock` are inherited descriptors."""

    index: int
    workers: int
    calls: int
    control: int
    counters: int
    buffers: int
    cores: int  # shared among the workers that have work; 0 leaves BLAS's thread count unchanged
    log_format: str
    log_level: str
    counts: bool
    limits: Limits
    lock: int = -1  # of the state directory, held until the process ends
    stores: bool = False
    logs: bool = False
    store: str = ""  # the setting that names the snapshot store

    def text(self) -> str:
        """The parameters as a command line argument."""
        return json.dumps(asdict(self))

    @staticmethod
    def of(text: str) -> "WorkerParameters":
        """Parse a command line argument."""
        fields: dict[str, Any] = json.loads(text)
        return WorkerParameters(**{**fields, "limits": Limits(**fields["limits"])})


def packed(failure: Exception) -> bytes:
    """Serialize a failure as an Error message."""
    error = errors_pb2.Error()
    refusal_of(failure, "worker").fill(error)
    return error.SerializeToString()


def unpacked(body: bytes) -> Refusal:
    """Parse a serialized Error message."""
    error = errors_pb2.Error.FromString(body)
    reason = errors_pb2.Reason.Name(error.reason).removeprefix("REASON_")
    refusal = Refusal(reason, error.message, root_seq=error.root_seq)
    refusal.metadata = dict(error.metadata)
    return refusal

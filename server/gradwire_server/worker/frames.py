"""What the front and its workers say to each other, by whatever way: methods, kinds of frames, and their bodies.

It loads no engine: the front of worker processes needs none.
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

# What `execute` takes: the RPCs that carry commands, and what becomes of a session between its first and last.
METHODS = (
    *COMMANDS, "Run", "Open", "Attach", "Drop", "BeginUpload", "KeepUpload", "FinishDownload", "Tidy", "Save",
    "Restore", "SaveFile", "LoadFile",
)  # fmt: skip
NUMBER = struct.Struct("<Q")
OPENED = struct.Struct(
    "<QQ"
)  # its principal's place in the shared counters, and a number that stands for its principal
KEEP = b"keep"  # what is dropped is stored, and stays so
GOES_BACK = "goes_back"  # of a refusal: what is in memory is to be dropped, and what is stored taken up
UPLOAD_BEGUN = struct.Struct("<QQ")  # received, taker; the transfer's id follows
# Kinds of frames. To the worker on the first pipe: an index of METHODS. On the second, and back:
RESULT, REFUSAL, READY, CANCEL, CANCEL_THROUGH, CLOSE, UPLOAD, APPEND, END_UPLOAD, CHUNK = range(256, 266)
LEND, RETURN, TAKE, GIVE, EMPTIED, NUMBERS, NAME, PARKED, OPS = range(266, 275)
IN_SLOT = struct.Struct("<QQ")  # a slot, and how many bytes of it

# The front alone ends its workers: what a terminal or a supervisor sends to all is for the front.
FOR_THE_FRONT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class Arrival:
    """A call that sends an upload's bytes: what it appends to, under which number, and where its next bytes go."""

    number: int
    transfer_id: str
    taker: int
    offset: int


@dataclass
class Plan:
    """What a worker is told at its start; descriptors are those it inherits."""

    slot: int
    workers: int
    calls: int
    control: int
    counters: int
    slots: int
    cores: int  # to share among the workers that have work; 0 leaves BLAS's threads as they are
    log_format: str
    log_level: str
    counts: bool
    limits: Limits
    lock: int = -1  # of the state directory, held as long as the process lives
    stores: bool = False
    logs: bool = False

    def text(self) -> str:
        """As an argument."""
        return json.dumps(asdict(self))

    @staticmethod
    def of(text: str) -> "Plan":
        """Of an argument."""
        told: dict[str, Any] = json.loads(text)
        return Plan(**{**told, "limits": Limits(**told["limits"])})


def packed(failure: Exception) -> bytes:
    """A refusal as it travels."""
    error = errors_pb2.Error()
    refusal_of(failure, "worker").fill(error)
    return error.SerializeToString()


def unpacked(body: bytes) -> Refusal:
    """The refusal that travelled."""
    error = errors_pb2.Error.FromString(body)
    reason = errors_pb2.Reason.Name(error.reason).removeprefix("REASON_")
    refusal = Refusal(reason, error.message, root_seq=error.root_seq)
    refusal.metadata = dict(error.metadata)
    return refusal

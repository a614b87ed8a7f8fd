"""Replay: applies a log's records to a session restored from the preceding snapshot.

A command that was refused originally is refused again without being tried, since the cause may have passed. A command
whose refusal keeps effects (command_spec.py) repeats them first, up to the recorded repetition and step. A collective
takes the recorded values, since the other sessions do not repeat theirs. Everything else must repeat exactly: each
record contains its refusals, and the counts of commands and tensors and the next id after it. A session that differs is
refused, since its clients have seen other results.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gradwire.v1 import commands_pb2
from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server.common.errors import Refusal
from gradwire_server.session.batch import OutOfOrder, run_batch, run_unary
from gradwire_server.session.commands import BY_METHOD
from gradwire_server.session.session import PendingCall
from gradwire_server.session.state.cancel_token import CancelToken
from gradwire_server.session.state.durability import Received
from gradwire_server.session.state.transfers import Upload
from gradwire_server.storage.stores import LogStore
from gradwire_server.storage.write_ahead_log import LOADED, START, Notes, outcome, read

if TYPE_CHECKING:
    from gradwire_server.session.session import Session

_UNLIMITED = 1 << 62
_MEMORY_REASONS = ("MEMORY_LIMIT", "TENSOR_LIMIT", "PROGRAM_LIMIT")


class ReplayCancelToken(CancelToken):
    """Refuses the commands that were refused originally, and gives nodes their original numbers."""

    __slots__ = ("_refusals", "_repeated", "_resumptions", "_seq", "_session")

    def __init__(self, session: Session) -> None:
        self._seq = 0
        self._session = session
        self._repeated: Mapping[str, str] | None = None
        self._refusals: dict[int, pb.LogRefusal] = {}
        self._resumptions: dict[int, pb.LogResumption] = {}
        super().__init__()
        self.cancelled_through = {0: 0}

    def follow(self, record: pb.LogRecord) -> None:
        """Use a record's refusals and resumptions."""
        self._repeated = None
        self._refusals = {each.seq: each for each in record.refusals}
        self._resumptions = {each.after_seq + 1: each for each in record.resumptions}  # the last one for each seq

    @property
    def seq(self) -> int:
        """The running command's seq; setting it applies the resumption before that command."""
        return self._seq

    @seq.setter
    def seq(self, seq: int) -> None:
        self._seq = seq
        self._repeated = None
        resumption = self._resumptions.get(seq)
        if resumption is not None:
            self.resume(resumption)

    def resume(self, resumption: pb.LogResumption) -> None:
        """Restore the node number, and before a retry the random generator."""
        self.number(resumption)
        if resumption.generator:
            self._session.grad_context.generator.set_state(resumption.generator)

    def number(self, resumption: pb.LogResumption) -> None:
        """Restore the next node's number. Logs of older servers also have one wherever other sessions had computed."""
        nodes = self._session.grad_context.nodes
        nodes.next = max(nodes.next, resumption.node_seq)

    def cancelled(self) -> bool:
        """Whether the command was refused originally, and does not repeat what it did before."""
        return self._repeated is None and self._seq in self._refusals

    def stopping(self) -> bool:
        """Whether the command is `cancelled`; deadlines do not apply."""
        return self.cancelled()

    def repeats(self, keeps_effects: bool) -> bool:
        """Whether the running command, though refused, must repeat its effects."""
        refused = self._refusals.get(self._seq)
        # Older servers did not write `began`; only a program's run tells its repetition.
        if keeps_effects and refused is not None and (refused.began or "repetition" in refused.metadata):
            self._repeated = refused.metadata
        return self._repeated is not None

    def repeated(self) -> Mapping[str, str] | None:
        """Metadata of the refusal before which the running command repeats its effects."""
        return self._repeated

    def refusal(self) -> Refusal:
        """The original refusal."""
        refused = self._refusals[self._seq]
        restore_counters(self._session, refused)
        refusal = Refusal(refused.reason, refused.message, root_seq=refused.root_seq)
        refusal.metadata = dict(refused.metadata)
        return refusal


def restore_counters(session: Session, refused: pb.LogRefusal) -> None:
    """Set a session's random generator and next id to those after a refused command."""
    if refused.generator:
        session.grad_context.generator.set_state(refused.generator)
    session.next_id = max(session.next_id, refused.next_id)


class Replay:
    """Applies logs to a session."""

    def __init__(self, session: Session, store: LogStore) -> None:
        self.session = session
        self.store = store
        self.cancel_token = ReplayCancelToken(session)
        self.notes = Notes()

    def run(self, path: Path) -> Generator[None, None, int]:
        """Apply a log's records; return the offset where the last complete one ends.

        Raises Refusal: SNAPSHOT_DAMAGED; MEMORY_LIMIT, TENSOR_LIMIT, PROGRAM_LIMIT if the session no longer fits.
        """
        session, real = self.session, self.session.cancel_token
        real.ticket = 1 << 62  # a cancellation during the replay does not concern replayed commands
        end = START
        try:
            for record, ends in read(path, self.store):
                session.cancel_token, session.durability.log_notes = self.cancel_token, self.notes
                session.durability.replayed = deque(
                    Received(each.values if each.HasField("values") else None, each.peer) for each in record.received
                )
                session.schedule.turn_ends = float("inf")
                real.begin_slice(session.schedule.turn_ends)
                session.account.limit, session.account.operations = 0, math.inf
                session.max_tensors = session.max_programs = _UNLIMITED  # the original limits were checked already
                try:
                    self._apply(record)
                    self._compare(path, record, end)
                    session.apply_deferred_releases()
                finally:
                    session.cancel_token, session.durability.log_notes = real, None
                    session.durability.replayed = None
                    self.notes.clear()
                end = ends
                yield
            for transfer_id in [each for each in session.transfers.held if each.startswith(LOADED)]:
                session.transfers.forget(transfer_id)  # of an abandoned load
        finally:
            real.ticket = 1
            session.account.operations = session.limits.max_op_operations or math.inf
            session.durability.uncommitted = False
            session.max_tensors, session.max_programs = session.limits.max_session_tensors, session.limits.max_programs
        return end

    def _apply(self, record: pb.LogRecord) -> None:
        session = self.session
        which = record.WhichOneof("record")
        self.cancel_token.follow(record if which == "batch" else pb.LogRecord())
        if which == "batch":
            try:
                for _ in run_batch(PendingCall("Run", session, record.batch, 1)):
                    pass
            except (Refusal, OutOfOrder) as refused:
                raise Refusal("SNAPSHOT_DAMAGED", f"the session's log cannot be followed: {refused}") from None
            for resumption in record.resumptions:  # the last command may have been refused
                self.cancel_token.number(resumption)
        elif which == "call":
            self._call(record)
        elif which == "writer":
            session.attach(record.writer)
        elif which == "upload":
            self._upload(record.upload)
        elif which == "finished_download":
            session.transfers.forget(record.finished_download)
        elif which == "load":
            self._load(record.load)

    def _call(self, record: pb.LogRecord) -> None:
        """Repeat a unary call, or what remains of a refused one."""
        session, refused = self.session, record.refusals[0] if record.refusals else None
        token = self.cancel_token
        token.follow(pb.LogRecord(refusals=record.refusals))
        token.seq = 0
        repeats = token.repeats(BY_METHOD[record.call.method].refusal_keeps_effects)
        if not repeats:
            token.follow(pb.LogRecord())
        for resumption in record.resumptions:
            if resumption.generator or not repeats:  # a refusal's node number follows the nodes that are made again
                token.resume(resumption)
        if refused is None or refused.applied or repeats:
            try:
                for _ in run_unary(PendingCall(record.call.method, session, record.call.request, 1)):
                    pass
            except Refusal as refusal:
                if not refusal.applied:
                    self.notes.refused(session, 0, refusal)
                    for resumption in record.resumptions:
                        token.number(resumption)
                    return
        if refused is not None and not repeats:
            restore_counters(session, refused)
            self.notes.refusals.append(refused)

    def _load(self, load: pb.LogLoad) -> None:
        session = self.session
        for raw in load.creations:
            request = commands_pb2.CreateRequest.FromString(raw)
            for _ in run_unary(PendingCall("Create", session, raw, 1)):
                pass
            if request.HasField("transfer"):
                session.transfers.forget(request.transfer.transfer_id)
        if load.HasField("answer"):
            answer = load.answer
            session.response_cache.put(answer.request_id, answer.method, answer.request_digest, answer.response)

    def _upload(self, part: pb.LogUpload) -> None:
        """Apply a part of an upload. Offset 0 restarts it; a part at another offset belongs to a broken upload."""
        transfers = self.session.transfers
        held = transfers.held.get(part.transfer_id)
        if not isinstance(held, Upload) or held.total != part.total_bytes:
            transfers.forget(part.transfer_id)
            held = Upload(part.total_bytes, part.request_id)
            transfers.put(part.transfer_id, held)
        if part.offset in (0, held.received):
            held.buffer[part.offset : part.offset + len(part.data)] = memoryview(part.data)
            held.received = part.offset + len(part.data)
            held.logged = True

    def _compare(self, path: Path, record: pb.LogRecord, end: int) -> None:
        """Check that a record was repeated exactly. Raises Refusal: SNAPSHOT_DAMAGED; as `run` if room is short."""
        then, now = ({each.seq: each for each in refusals} for refusals in (record.refusals, self.notes.refusals))
        for seq in sorted(then.keys() & now.keys()):
            self._check_memory_limit(then[seq], now[seq])
            if then[seq].reason != now[seq].reason:
                raise self._other(path, end, f"command {seq} is refused for another cause: {now[seq].message}")
        for seq in sorted(then.keys() ^ now.keys()):
            refused = now.get(seq)
            self._check_memory_limit(None, refused)
            went = "is applied and was refused" if refused is None else f"was applied and is refused: {refused.message}"
            raise self._other(path, end, f"command {seq} {went}")
        if any(each.generator for each in self.notes.resumptions):  # random numbers were drawn twice
            raise Refusal("MEMORY_LIMIT", "there is too little memory to restore the session")
        if self.session.durability.replayed:
            raise self._other(path, end, "fewer collectives are repeated than were done")
        if record.HasField("outcome"):
            wanted, found = record.outcome, outcome(self.session)
            if wanted != found:
                raise self._other(path, end, f"the session has {_describe(found)}, and had {_describe(wanted)}")

    @staticmethod
    def _check_memory_limit(then: pb.LogRefusal | None, now: pb.LogRefusal | None) -> None:
        if now is not None and now.reason in _MEMORY_REASONS and (then is None or then.reason != now.reason):
            raise Refusal(now.reason, f"there is too little memory to restore the session: {now.message}")

    @staticmethod
    def _other(path: Path, end: int, what: str) -> Refusal:
        return Refusal(
            "SNAPSHOT_DAMAGED",
            f"{path.parent.name}/{path.name} leads to another session than there was: after the record at byte {end} "
            f"{what}",
            file=path.name,
        )


def _describe(outcome: pb.LogOutcome) -> str:
    return f"{outcome.applied} commands, {outcome.tensors} ids and a next one of {outcome.next_id}"

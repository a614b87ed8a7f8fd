"""Replay: a log's records applied to a session that was filled from the snapshot before them.

What was refused the first time is refused again and not tried: why it was may have passed. All else has to go as it
went then, which each record says: whether a command is refused now that was applied then, or how many commands, ids and
tensors there are after it. A session that comes out otherwise is refused by name: its clients have seen another.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from gradwire.v1 import commands_pb2
from gradwire.v1 import snapshots_pb2 as pb
from gradwire_engine.graph.graph import go_on_from, next_seq
from gradwire_server.common.errors import Refusal
from gradwire_server.session.batch import OutOfOrder, run_batch, run_unary
from gradwire_server.session.session import CancelToken, Pending
from gradwire_server.session.transfers import Upload
from gradwire_server.storage.stores import LogStore
from gradwire_server.storage.write_ahead_log import LOADED, START, Notes, outcome, read

if TYPE_CHECKING:
    from gradwire_server.session.session import Session

_UNLIMITED = 1 << 62
_SCARCE = ("MEMORY_LIMIT", "TENSOR_LIMIT", "PROGRAM_LIMIT")


class ReplayCancelToken(CancelToken):
    """Stops the commands that were refused the first time, and gives nodes the numbers that they had."""

    __slots__ = ("_refusals", "_resumptions", "_seq", "_session")

    def __init__(self, session: Session) -> None:
        self._seq = 0
        self._session = session
        self._refusals: dict[int, pb.LogRefusal] = {}
        self._resumptions: dict[int, pb.LogResumption] = {}
        super().__init__()
        self.through = {0: 0}

    def follow(self, record: pb.LogRecord) -> None:
        """Go by what a record says."""
        self._refusals = {each.seq: each for each in record.refusals}
        self._resumptions = {each.after_seq + 1: each for each in record.resumptions}  # of several the last

    @property
    def seq(self) -> int:
        """The command that runs."""
        return self._seq

    @seq.setter
    def seq(self, seq: int) -> None:
        self._seq = seq
        told = self._resumptions.get(seq)
        if told is not None:
            self.resume(told)

    def resume(self, told: pb.LogResumption) -> None:
        """Go on as it went on then."""
        go_on_from(told.node_seq)
        if told.generator:
            self._session.recording.generator.set_state(told.generator)

    def cancelled(self) -> bool:
        """Whether it was refused the first time."""
        return self._seq in self._refusals

    def stopping(self) -> bool:
        """As `cancelled`; time is no reason."""
        return self._seq in self._refusals

    def refusal(self) -> Refusal:
        """Why it was."""
        told = self._refusals[self._seq]
        after(self._session, told)
        refusal = Refusal(told.reason, told.message, root_seq=told.root_seq)
        refusal.metadata = dict(told.metadata)
        return refusal


def after(session: Session, told: pb.LogRefusal) -> None:
    """Leave a session as a command left it that was refused."""
    session.recording.generator.set_state(told.generator)
    session.next_id = max(session.next_id, told.next_id)


class Replay:
    """Applies logs to a session."""

    def __init__(self, session: Session, store: LogStore) -> None:
        self.session = session
        self.store = store
        self.cancel_token = ReplayCancelToken(session)
        self.notes = Notes()

    def run(self, path: Path) -> Generator[None, None, int]:
        """Apply a log's records; where the last whole one ends.

        Raises Refusal: SNAPSHOT_DAMAGED; MEMORY_LIMIT and its kin where there is no room for what was there then.
        """
        session, real = self.session, self.session.cancel_token
        real.ticket = 1 << 62  # what is cancelled meanwhile is not what was done before
        end = START
        try:
            for record, ends in read(path, self.store):
                floor = next_seq()
                session.cancel_token, session.notes = self.cancel_token, self.notes
                session.turn_ends = float("inf")
                real.slice(session.turn_ends)
                session.account.limit, session.account.operations = 0, math.inf
                session.max_tensors = session.max_programs = _UNLIMITED  # it was within the limits of then
                try:
                    self._apply(record)
                    self._compare(path, record, end)
                    session.let_go()
                finally:
                    session.cancel_token, session.notes = real, None
                    self.notes.clear()
                    go_on_from(max(floor, next_seq()) + 1)
                end = ends
                yield
            for transfer_id in [each for each in session.transfers.held if each.startswith(LOADED)]:
                session.transfers.forget(transfer_id)  # of a load that was given up
        finally:
            real.ticket = 1
            session.account.operations = session.limits.max_op_operations or math.inf
            session.torn = False
            session.max_tensors, session.max_programs = session.limits.max_session_tensors, session.limits.max_programs
        return end

    def _apply(self, record: pb.LogRecord) -> None:
        session = self.session
        which = record.WhichOneof("record")
        self.cancel_token.follow(record if which == "batch" else pb.LogRecord())
        if which == "batch":
            try:
                for _ in run_batch(Pending("Run", session, record.batch, 1)):
                    pass
            except (Refusal, OutOfOrder) as refused:
                raise Refusal("SNAPSHOT_DAMAGED", f"the session's log cannot be followed: {refused}") from None
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
        """A unary call; one that was refused left only what it used up."""
        session, refused = self.session, record.refusals[0] if record.refusals else None
        for told in record.resumptions:
            self.cancel_token.resume(told)
        if refused is None or refused.applied:
            try:
                for _ in run_unary(Pending(record.call.method, session, record.call.request, 1)):
                    pass
            except Refusal as refusal:
                if not refusal.applied:
                    self.notes.refused(session, 0, refusal)
                    return
        if refused is not None:
            after(session, refused)
            self.notes.refusals.append(refused)

    def _load(self, load: pb.LogLoad) -> None:
        session = self.session
        for raw in load.creations:
            request = commands_pb2.CreateRequest.FromString(raw)
            for _ in run_unary(Pending("Create", session, raw, 1)):
                pass
            if request.HasField("transfer"):
                session.transfers.forget(request.transfer.transfer_id)
        if load.HasField("answer"):
            answer = load.answer
            session.memory.put(answer.request_id, answer.method, answer.request_digest, answer.response)

    def _upload(self, part: pb.LogUpload) -> None:
        """A part of an upload. It may begin anew, and a part that does not fit is of one that broke off."""
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

    def _compare(self, path: Path, record: pb.LogRecord, place: int) -> None:
        """Whether it went as it went then. Raises Refusal: SNAPSHOT_DAMAGED, MEMORY_LIMIT."""
        then, now = ({each.seq: each for each in told} for told in (record.refusals, self.notes.refusals))
        for seq in sorted(then.keys() ^ now.keys()):
            told = now.get(seq)
            if told is not None and told.reason in _SCARCE:
                raise Refusal(told.reason, f"there is no room to restore the session: {told.message}")
            went = "is applied and was refused" if told is None else f"was applied and is refused: {told.message}"
            raise self._other(path, place, f"command {seq} {went}")
        if any(told.generator for told in self.notes.resumptions):  # random numbers were drawn twice
            raise Refusal("MEMORY_LIMIT", "there is no room to restore the session")
        if record.HasField("outcome"):
            wanted, found = record.outcome, outcome(self.session)
            if wanted != found:
                raise self._other(path, place, f"the session has {_shown(found)}, and had {_shown(wanted)}")

    @staticmethod
    def _other(path: Path, place: int, what: str) -> Refusal:
        return Refusal(
            "SNAPSHOT_DAMAGED",
            f"{path.parent.name}/{path.name} leads to another session than there was: after the record at byte {place} "
            f"{what}",
            file=path.name,
        )


def _shown(told: pb.LogOutcome) -> str:
    return f"{told.applied} commands, {told.tensors} ids and a next one of {told.next_id}"

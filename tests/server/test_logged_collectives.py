"""Collectives of sessions with a log: a restored session has what the other ranks gave it, and is in no group."""

import hashlib
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import collectives_pb2 as g
from gradwire.v1 import programs_pb2 as p
from gradwire.v1 import types_pb2 as t
from gradwire_server.storage.write_ahead_log import WriteAheadLog
from tests.server.harness import Id, op
from tests.server.test_collectives import SECONDS, Rank, refused, together
from tests.server.test_durability import Storing

# Multiplies its input in place, averages it over the ranks, and sums it at rank 1, which gives the sum to all.
_PROGRAM = p.Program(
    inputs=[p.ProgramInput(dtype=t.DTYPE_FLOAT64, shape=[3]) for _ in range(2)],
    steps=[
        p.ProgramStep(op=op("mul_", Id(1), 1.5)),
        p.ProgramStep(
            collective=g.CollectiveRequest(kind="COLLECTIVE_KIND_ALL_REDUCE", group="g", op="REDUCE_OP_AVG", inputs=[1])
        ),
        *(
            p.ProgramStep(
                collective=g.CollectiveRequest(
                    kind=f"COLLECTIVE_KIND_{kind}", group="g", op="REDUCE_OP_SUM", inputs=[2], peer=1
                )
            )
            for kind in ("REDUCE", "BROADCAST")
        ),
    ],
    outputs=[1],
).SerializeToString()


def use_all(rank: Rank) -> dict[str, int]:
    """Take part in each kind of collective; the ids of the tensors that received values."""
    values = rank.make(np.arange(3.0) + rank.rank)
    wide = rank.make(np.arange(6.0) * (1 + rank.rank))
    made = {name: rank.make(np.zeros(3)) for name in ("part", "received", "scattered")}
    gathered = rank.make(np.zeros(6))
    rank.ask("ALL_REDUCE", op="REDUCE_OP_SUM", inputs=[values])
    rank.ask("BROADCAST", peer=1, inputs=[wide])
    rank.ask("ALL_GATHER", inputs=[values], outputs=[gathered])
    rank.ask("REDUCE_SCATTER", op="REDUCE_OP_MAX", inputs=[wide], outputs=[made["part"]])
    rank.ask("SCATTER", peer=0, inputs=[] if rank.rank else [wide], outputs=[made["scattered"]])
    rank.ask("BARRIER")
    if rank.rank:
        rank.ask("SEND", peer=0, tag=3, inputs=[values])
    else:
        assert rank.ask("RECV", any_peer=True, tag=3, outputs=[made["received"]]).peer == 1
    shapes = [2 + rank.rank]
    assert refused(lambda: rank.ask("ALL_REDUCE", op="REDUCE_OP_SUM", inputs=[rank.make(np.ones(shapes))]))[0] == (
        "COLLECTIVE_MISMATCH"
    )
    name = hashlib.sha256(_PROGRAM).digest()
    rank.stub.RegisterProgram(p.RegisterProgramRequest(session_id=rank.session, hash=name, program=_PROGRAM))
    others = [rank.make(np.arange(3.0) * (number - rank.rank)) for number in range(4)]
    for other in others:  # as a plan from the second run on, whose last input is another one each time
        request = p.RunProgramRequest(session_id=rank.session, hash=name, inputs=[values, other], repeat=2)
        rank.stub.RunProgram(request, timeout=SECONDS)
    made |= {f"other {number}": other for number, other in enumerate(others)}
    rank.ask("REDUCE", peer=0, op="REDUCE_OP_PRODUCT", inputs=[gathered])
    return {"values": values, "wide": wide, "gathered": gathered, **made}


def test_a_restored_session_has_what_collectives_gave_it_and_is_in_no_group(tmp_path: Path) -> None:
    server = Storing(tmp_path / "0", logs=True)
    copy = None
    try:
        ranks = [Rank(server, rank, 2) for rank in range(2)]
        together(ranks, Rank.join)
        ids = together(ranks, use_all)
        before = [{name: rank.read(ids[rank.rank][name]).tobytes() for name in ids[0]} for rank in ranks]
        versions = [[rank.version(number) for number in ids[rank.rank].values()] for rank in ranks]
        shutil.copytree(server.root, tmp_path / "1")  # as after a crash: the logs of the last answers
        copy = Storing(tmp_path / "1", logs=True)
        for rank, held, version in zip(ranks, before, versions, strict=True):
            rank.stub = copy.stub
            assert {name: rank.read(ids[rank.rank][name]).tobytes() for name in held} == held
            assert [rank.version(number) for number in ids[rank.rank].values()] == version
            assert refused(lambda rank=rank: rank.ask("BARRIER")) == ("GROUP_BROKEN", "this session is in no group 'g'")
        together(ranks, Rank.join)  # and may form it again
        together(ranks, lambda rank: rank.ask("ALL_REDUCE", op="REDUCE_OP_SUM", inputs=[ids[rank.rank]["values"]]))
        assert ranks[0].read(ids[0]["values"]).tobytes() == ranks[1].read(ids[1]["values"]).tobytes()
    finally:
        server.stop()
        if copy is not None:
            copy.stop()


def test_a_program_that_ran_at_two_ranks_is_repeated_for_each(tmp_path: Path) -> None:
    """The first rank sends and the second receives: a plan of the one would not count what the other receives."""
    server = Storing(tmp_path / "0", logs=True)
    copy = None
    try:
        ranks = [Rank(server, rank, 2) for rank in range(2)]
        steps = [
            p.ProgramStep(op=op("mul_", Id(1), 1.5)),
            p.ProgramStep(
                collective=g.CollectiveRequest(kind="COLLECTIVE_KIND_BROADCAST", group="g", inputs=[1], peer=0)
            ),
            p.ProgramStep(op=op("mul", Id(1), 2.0, outputs=[2])),
        ]
        inputs = [p.ProgramInput(dtype=t.DTYPE_FLOAT64, shape=[3])]
        program = p.Program(inputs=inputs, steps=steps, outputs=[2]).SerializeToString()
        name = hashlib.sha256(program).digest()
        values = {rank: rank.make(np.arange(3.0) + 10 * rank.rank) for rank in ranks}
        made: dict[Rank, list[int]] = {rank: [] for rank in ranks}
        for rank in ranks:
            rank.stub.RegisterProgram(p.RegisterProgramRequest(session_id=rank.session, hash=name, program=program))

        def run(rank: Rank) -> None:
            for _ in range(4):
                made[rank].append(next(rank.ids))
                request = p.RunProgramRequest(
                    session_id=rank.session, hash=name, inputs=[values[rank]], outputs=made[rank][-1:]
                )
                rank.stub.RunProgram(request, timeout=SECONDS)

        for _ in range(2):
            together(ranks, Rank.join)
            together(ranks, run)
            together(ranks, lambda rank: rank.ask("LEAVE"))
            for rank in ranks:
                rank.rank = 1 - rank.rank

        def state(rank: Rank) -> Any:
            held = [rank.read(each).tolist() for each in (values[rank], *made[rank])]
            return held, rank.version(values[rank])

        before = [state(rank) for rank in ranks]
        shutil.copytree(server.root, tmp_path / "1")
        copy = Storing(tmp_path / "1", logs=True)
        for rank in ranks:
            rank.stub = copy.stub
        assert [state(rank) for rank in ranks] == before
    finally:
        server.stop()
        if copy is not None:
            copy.stop()


def test_a_session_that_moves_away_breaks_its_group(tmp_path: Path) -> None:
    server = Storing(tmp_path, logs=True)
    try:
        ranks = [Rank(server, rank, 2) for rank in range(2)]
        together(ranks, Rank.join)
        server.put_away()
        told: list[Any] = together(ranks, lambda rank: refused(lambda: rank.ask("BARRIER")))
        assert told == [("GROUP_BROKEN", "this session is in no group 'g'")] * 2
    finally:
        server.stop()


def test_calls_wait_while_the_disk_has_not_taken_what_collectives_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that does not wait for answers would fill the memory with values of many calls."""
    size, calls = 1 << 20, 12
    most, puts, appends = [0], WriteAheadLog.put, WriteAheadLog._append

    def put(self: WriteAheadLog, *args: Any, **named: Any) -> None:
        puts(self, *args, **named)
        most[0] = max(most[0], self.queued)

    def append(self: WriteAheadLog, target: Any, tasks: Any) -> Any:
        time.sleep(0.2 * any(each.size > size for each in tasks))  # a slow disk
        return appends(self, target, tasks)

    monkeypatch.setattr(WriteAheadLog, "put", put)
    monkeypatch.setattr(WriteAheadLog, "_append", append)
    monkeypatch.setattr("gradwire_server.storage.write_ahead_log.MOST_QUEUED", 2 * size)
    server = Storing(tmp_path, logs=True)
    try:
        ranks = [Rank(server, rank, 2) for rank in range(2)]
        together(ranks, Rank.join)
        ids = [rank.ones(size // 4) for rank in ranks]
        sums = {"kind": "COLLECTIVE_KIND_ALL_REDUCE", "group": "g", "op": "REDUCE_OP_AVG"}
        requests = [
            g.CollectiveRequest(session_id=rank.session, inputs=[x], **sums)
            for _ in range(calls)
            for rank, x in zip(ranks, ids, strict=True)
        ]
        answers = [server.stub.Collective.future(each, timeout=SECONDS) for each in requests]
        for each in answers:
            each.result()
        assert size < most[0] <= (2 + len(ranks)) * (size + 4096)  # and each session's one call
        assert [rank.read(x).sum() for rank, x in zip(ranks, ids, strict=True)] == [size / 4] * 2
    finally:
        server.stop()

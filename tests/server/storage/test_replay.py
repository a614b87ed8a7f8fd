"""Following a log: refusals are repeated without being tried, and a session that comes out differently is refused."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import commands_pb2
from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server.common.errors import Refusal
from gradwire_server.storage import replay
from gradwire_server.storage.replay import Replay, ReplayCancelToken
from gradwire_server.storage.write_ahead_log import Notes
from tests.server.memory_stores import MemoryLogs
from tests.server.session.opened import opened

LOG = Path("/nowhere/home/3.log")
NEXT = (1 << 52) + 77  # an id that the server gave


@pytest.fixture
def session() -> Iterator[Any]:
    with opened() as made:
        yield made


def _refusal(session: Any, **fields: Any) -> pb.LogRefusal:
    state = session.grad_context.generator.get_state()
    told = {"seq": 2, "reason": "MEMORY_LIMIT", "message": "too much", "generator": state, "next_id": NEXT, **fields}
    return pb.LogRefusal(**told)


def test_the_commands_that_were_refused_are_refused_again_with_the_same_words(session: Any) -> None:
    token = ReplayCancelToken(session)
    told = _refusal(session, root_seq=1, metadata={"limit": "5"})
    token.follow(pb.LogRecord(refusals=[told]))
    token.seq = 1
    assert not token.cancelled()
    token.seq = 2
    assert token.cancelled()
    assert token.stopping()
    refusal = token.refusal()
    assert (refusal.reason, str(refusal), refusal.metadata, refusal.root_seq) == (
        "MEMORY_LIMIT",
        "too much",
        {"limit": "5"},
        1,
    )
    assert session.next_id == NEXT


def test_another_record_has_other_refusals(session: Any) -> None:
    token = ReplayCancelToken(session)
    token.follow(pb.LogRecord(refusals=[_refusal(session)]))
    token.follow(pb.LogRecord())
    token.seq = 2
    assert not token.cancelled()


def test_a_retried_command_draws_the_random_numbers_that_it_drew_then(session: Any) -> None:
    generator = session.grad_context.generator
    generator.manual_seed(5)
    state = generator.get_state()
    drawn = generator.of(np).uniform(3).tolist()
    token = ReplayCancelToken(session)
    token.follow(pb.LogRecord(resumptions=[pb.LogResumption(after_seq=3, generator=state)]))
    token.seq = 3
    assert generator.of(np).uniform(3).tolist() != drawn
    token.seq = 4
    assert generator.of(np).uniform(3).tolist() == drawn


def test_a_next_id_never_goes_back(session: Any) -> None:
    session.next_id = NEXT + 500
    replay.restore_counters(session, _refusal(session))
    assert session.next_id == NEXT + 500


def _followed(session: Any, *records: pb.LogRecord, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(replay, "read", lambda path, store: ((each, 100 + place) for place, each in enumerate(records)))
    steps = Replay(session, MemoryLogs()).run(LOG)
    try:
        while True:
            next(steps)
    except StopIteration as done:
        return int(done.value)


def _seeding(seed: int) -> pb.LogRecord:
    request = commands_pb2.ManualSeedRequest(seed=seed).SerializeToString()
    return pb.LogRecord(call=pb.LogCall(method="ManualSeed", request=request))


def test_records_are_applied_and_the_limits_are_the_sessions_own_again(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, most = session.cancel_token, session.max_tensors
    assert _followed(session, _seeding(1), _seeding(9), monkeypatch=monkeypatch) == 101
    assert session.grad_context.generator.seed == 9
    assert (session.cancel_token, session.max_tensors) == (token, most)
    assert session.account.operations in (session.limits.max_op_operations, math.inf)


def test_an_empty_log_ends_where_it_starts(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _followed(session, monkeypatch=monkeypatch) == replay.START


def test_a_session_that_replays_differently_is_refused_with_file_and_offset(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = _seeding(1)
    record.outcome.CopyFrom(pb.LogOutcome(applied=5, tensors=2, next_id=9))
    with pytest.raises(Refusal, match=r"home/3\.log leads to another session .* 5 commands, 2 ids") as refusal:
        _followed(session, record, monkeypatch=monkeypatch)
    assert (refusal.value.reason, refusal.value.metadata) == ("SNAPSHOT_DAMAGED", {"file": "3.log"})


def _upload(data: bytes, offset: int, total: int = 5) -> pb.LogRecord:
    return pb.LogRecord(upload=pb.LogUpload(transfer_id="t", total_bytes=total, offset=offset, data=data))


@pytest.mark.parametrize(
    ("parts", "received", "held"),
    [
        ([(b"abc", 0), (b"de", 3)], 5, b"abcde"),
        ([(b"abc", 0), (b"xy", 0)], 2, b"xyc"),
        ([(b"abc", 0), (b"zz", 1)], 3, b"abc"),
    ],
)
def test_parts_of_an_upload_follow_each_other_or_start_again(
    session: Any, parts: list, received: int, held: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    _followed(session, *(_upload(data, offset) for data, offset in parts), monkeypatch=monkeypatch)
    upload = session.transfers.held["t"]
    assert upload.received == received
    assert bytes(upload.buffer[: len(held)]) == held


def test_a_part_of_another_size_of_upload_starts_a_new_one(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _followed(session, _upload(b"abc", 0), _upload(b"zz", 0, total=2), monkeypatch=monkeypatch)
    assert (session.transfers.held["t"].total, session.transfers.held["t"].received) == (2, 2)


def test_a_refused_call_is_not_tried_again_but_counts(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    record = _seeding(1)
    session.grad_context.generator.manual_seed(3)
    told = _refusal(session, seq=0)
    session.grad_context.generator.manual_seed(4)
    record.refusals.append(told)
    _followed(session, record, monkeypatch=monkeypatch)
    assert session.grad_context.generator.seed == 3
    assert session.next_id == NEXT


@pytest.mark.parametrize("algorithm", ["RANDOM_ALGORITHM_UNSPECIFIED", "RANDOM_ALGORITHM_PCG64"])
def test_a_seed_of_an_earlier_version_draws_the_numbers_of_then(
    session: Any, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = commands_pb2.ManualSeedRequest(seed=7, algorithm=algorithm).SerializeToString()
    _followed(session, pb.LogRecord(call=pb.LogCall(method="ManualSeed", request=request)), monkeypatch=monkeypatch)
    drawn = session.grad_context.generator.of(np).random(3)
    np.testing.assert_array_equal(drawn, np.random.Generator(np.random.PCG64(7)).random(3))


def test_a_seed_of_mt19937_draws_its_numbers(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    request = commands_pb2.ManualSeedRequest(seed=7, algorithm="RANDOM_ALGORITHM_MT19937").SerializeToString()
    _followed(session, pb.LogRecord(call=pb.LogCall(method="ManualSeed", request=request)), monkeypatch=monkeypatch)
    drawn = session.grad_context.generator.of(np).words(3)
    assert drawn.tolist() == np.random.RandomState(7).randint(0, 1 << 32, 3, np.uint32).tolist()


def test_a_refusals_generator_is_noted_only_after_draws(session: Any) -> None:
    notes, generator = Notes(), session.grad_context.generator
    for seq in (1, 2, 3):
        notes.refused(session, seq, Refusal("DTYPE", "no"))
        if seq == 2:
            generator.of(np)
    notes.refused(session, 4, Refusal("DTYPE", "no"))
    told = [bool(each.generator) for each in notes.refusals]
    assert told == [True, False, True, False]
    notes.clear()
    notes.refused(session, 5, Refusal("DTYPE", "no"))
    assert notes.refusals[0].generator == generator.get_state()


def test_a_refusal_without_a_generator_leaves_it(session: Any) -> None:
    generator = session.grad_context.generator
    before = generator.get_state()
    replay.restore_counters(session, _refusal(session, generator=b""))
    assert generator.get_state() == before
    assert session.next_id == NEXT

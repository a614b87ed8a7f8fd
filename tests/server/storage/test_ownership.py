"""Ownership of a session in a directory of several servers: claims, copies, what a former owner may still answer."""

import random
import threading
import time
from pathlib import Path

import pytest

from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server.common.errors import Refusal
from gradwire_server.storage import ownership
from gradwire_server.storage.ownership import Claim, begin, claim, claim_of, newest_complete, take_over, terms
from gradwire_server.storage.snapshot_files import SnapshotFiles
from gradwire_server.storage.write_ahead_log import Log, WriteAheadLog, packed, read
from tests.server.harness import WAIT

DIGEST = "a" * 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / DIGEST


def store(location: Path, generation: int = 1) -> None:
    """Store a generation in a location, as a snapshot does: the head's file last."""
    (location / f"{generation}.safetensors").write_bytes(b"data")
    (location / f"{generation}.session").write_bytes(b"head")


def removed(path: Path) -> None:
    ownership.remove_session(SnapshotFiles(), path)


def test_a_term_has_one_owner(folder: Path) -> None:
    begin(folder, "a:1")
    claim(folder, 2, "b:1")
    with pytest.raises(FileExistsError):
        claim(folder, 2, "c:1")
    assert terms(folder) == [1, 2]
    assert ownership.owner_of(folder, 2) == "b:1"


def test_two_claims_at_once_have_one_winner(folder: Path) -> None:
    store(begin(folder, "a:1"))
    won, lost, started = [], [], threading.Barrier(8)

    def take(name: str) -> None:
        started.wait()
        try:
            take_over(folder, 1, name)
            won.append(name)
        except FileExistsError:
            lost.append(name)

    threads = [threading.Thread(target=take, args=(f"{number}:1",)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(won) == 1
    assert len(lost) == 7
    assert ownership.owner_of(folder, 2) == won[0]


def test_the_former_owner_learns_who_has_the_session(folder: Path) -> None:
    store(begin(folder, "a:1"))
    held = Claim(folder, 1)
    assert held.lost() is None
    take_over(folder, 1, "b:1")
    found = held.lost()
    assert found is not None
    assert (found.reason, found.metadata) == ("SESSION_MOVED", {"endpoint": "b:1"})
    store(folder / "t2")
    take_over(folder, 2, "c:1")
    assert terms(folder) == [3], "older terms are deleted"
    again = held.lost()
    assert again is not None
    assert again.metadata == {"endpoint": "c:1"}


def test_a_claim_without_an_address_is_a_loss_too(folder: Path) -> None:
    begin(folder, "a:1")
    (folder / "t2").mkdir()
    found = Claim(folder, 1).lost()
    assert found is not None
    assert (found.reason, found.metadata) == ("SESSION_MOVED", {})


def test_state_is_copied_and_logs_are_new_files(folder: Path) -> None:
    own = begin(folder, "a:1")
    store(own, 3)
    for name, data in (("2.log", b"old"), ("3.log", b"three"), ("4.log", b"four"), ("running", b"")):
        (own / name).write_bytes(data)
    inode = (own / "3.log").stat().st_ino
    with (own / "3.log").open("ab") as still_open:
        taken = take_over(folder, 1, "b:1")
        assert taken == folder / "t2"
        still_open.write(b" later")
    assert sorted(each.name for each in taken.iterdir()) == [
        "3.log", "3.safetensors", "3.session", "4.log", "owner", "running",
    ]  # fmt: skip
    assert (taken / "3.log").read_bytes() == b"three"
    assert (taken / "3.log").stat().st_ino != inode
    assert terms(folder) == [2]


def test_a_term_whose_copy_did_not_end_is_passed_over(folder: Path) -> None:
    store(begin(folder, "a:1"))
    claim(folder, 2, "b:1")  # it was killed before it copied anything
    assert newest_complete(folder) == folder / "t1"
    assert take_over(folder, 2, "c:1") == folder / "t3"
    assert newest_complete(folder) == folder / "t3"
    assert terms(folder) == [3]


def test_a_snapshot_that_is_replaced_during_the_copy_is_copied_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = begin(folder, "a:1")
    store(own, 1)
    (own / "1.log").write_bytes(b"one")
    linked = ownership._link

    def link(source: Path, target: Path) -> None:
        if source.name == "1.safetensors":  # as a commit of the former owner
            store(own, 2)
            (own / "2.log").write_bytes(b"two")
            for name in ("1.session", "1.log", "1.safetensors"):
                (own / name).unlink()
        linked(source, target)

    monkeypatch.setattr(ownership, "_link", link)
    taken = take_over(folder, 1, "b:1")
    assert taken is not None
    assert sorted(each.name for each in taken.iterdir()) == ["2.log", "2.safetensors", "2.session", "owner"]


def test_a_session_that_was_never_stored_cannot_be_taken_over(folder: Path) -> None:
    begin(folder, "a:1")
    assert take_over(folder, 1, "b:1") is None


def test_the_owner_deletes_a_session_and_former_owners_do_not(folder: Path) -> None:
    store(begin(folder, "a:1"))
    take_over(folder, 1, "b:1")
    removed(folder / "t1")
    assert newest_complete(folder) == folder / "t2"
    removed(folder / "t2")
    assert not folder.exists()
    found = Claim(folder, 2).lost()
    assert found is not None
    assert found.reason == "SESSION_NOT_FOUND"


def test_a_location_of_one_server_has_no_claim(tmp_path: Path) -> None:
    assert claim_of(tmp_path / DIGEST) is None
    assert claim_of(tmp_path / "snapshots" / "anyone" / "t1") is None, "a named snapshot may have that name"
    held = claim_of(tmp_path / DIGEST / "t12")
    assert held is not None
    assert (held.folder, held.term) == (tmp_path / DIGEST, 12)


def test_where_the_file_system_has_no_links_the_snapshot_is_copied(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    store(begin(folder, "a:1"))
    monkeypatch.setattr(ownership.os, "link", refuse)
    taken = take_over(folder, 1, "b:1")
    assert taken is not None
    assert (taken / "1.safetensors").read_bytes() == b"data"


# The log of a former owner.


@pytest.mark.parametrize("seed", range(20))
def test_what_a_former_owner_answered_is_in_the_copy(folder: Path, seed: int) -> None:
    """Records are written one after the other, each in a flush of its own, while another server takes over."""
    own = begin(folder, "a:1")
    store(own)
    journal, target = WriteAheadLog(), Log(own / "1.log")
    answered: list[int] = []
    refused: list[Refusal] = []
    first = threading.Event()

    def write() -> None:
        for number in range(1, 2_000):
            told: list[Refusal | None] = []
            done = threading.Event()

            def tell(failure: Refusal | None, told: list[Refusal | None] = told, done: threading.Event = done) -> None:
                told.append(failure)
                done.set()

            journal.put(target, packed(pb.LogRecord(writer=number)), tell)
            assert done.wait(WAIT)
            if told[0] is not None:
                refused.append(told[0])
                return
            answered.append(number)
            first.set()

    writing = threading.Thread(target=write)
    writing.start()
    assert first.wait(WAIT)
    time.sleep(random.Random(seed).uniform(0, 0.02))
    taken = take_over(folder, 1, "b:1")
    writing.join()
    journal.stop(WAIT)
    assert taken is not None
    copied = [record.writer for record, _ in read(taken / "1.log")]
    assert copied == list(range(1, len(copied) + 1))
    assert set(answered) <= set(copied)
    assert len(copied) - len(answered) <= 1, "one record may have been written and not answered"
    assert [each.reason for each in refused] == ["SESSION_MOVED"]
    assert refused[0].metadata == {"endpoint": "b:1"}


def test_a_former_owner_answers_nothing_more_whether_or_not_it_writes(folder: Path) -> None:
    own = begin(folder, "a:1")
    store(own)
    journal, target, told = WriteAheadLog(), Log(own / "1.log"), []
    journal.put(target, packed(pb.LogRecord(writer=1)), told.append)
    while not told:
        time.sleep(0.001)
    take_over(folder, 1, "b:1")
    journal.put(target, (), told.append)  # an answer without a record
    journal.put(target, packed(pb.LogRecord(writer=2)), told.append)
    journal.stop(WAIT)
    assert told[0] is None
    assert [failure and failure.reason for failure in told[1:]] == ["SESSION_MOVED"] * 2
    with pytest.raises(Refusal, match="b:1") as refused:
        journal.check(target)
    assert refused.value.reason == "SESSION_MOVED"

"""The files of stored sessions, without a server: what the log owes to its callers, and what damage is told of."""

import struct
import threading
from pathlib import Path

import numpy as np
import pytest

from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server import vault
from gradwire_server.errors import Refusal
from gradwire_server.journal import Journal, Log, read
from gradwire_server.shelf import Shelf


def _wait(event: threading.Event) -> None:
    event.wait(10)


def test_what_came_before_a_log_was_closed_is_written_before_it_is_acknowledged(tmp_path: Path) -> None:
    journal, target, told = Journal(), Log(tmp_path / "1.log"), []
    holding = threading.Event()
    journal.put(Log(tmp_path / "2.log"), None, lambda failure: _wait(holding))  # both wait in the queue
    journal.put(target, pb.LogRecord(writer=7), told.append)
    journal.close(target)
    holding.set()
    journal.stop(10)
    assert told == [None]
    assert [record.writer for record, _ in read(target.path)] == [7]


def test_no_memory_for_a_record_is_told_and_ends_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, target, told = Journal(), Log(tmp_path / "1.log"), []
    written = journal._file

    def scarce(log: Log) -> int:
        monkeypatch.setattr(journal, "_file", written)
        raise MemoryError

    monkeypatch.setattr(journal, "_file", scarce)
    first = threading.Event()

    def done(failure: Refusal | None) -> None:
        told.append(failure)
        first.set()

    journal.put(target, pb.LogRecord(writer=1), done)
    assert first.wait(10)
    journal.put(target, pb.LogRecord(writer=2), told.append)
    journal.stop(10)
    assert isinstance(told[0], Refusal)
    assert told[1] is None
    assert [record.writer for record, _ in read(target.path)] == [1, 2]


def test_a_disk_that_fails_after_a_snapshot_exists_takes_none_of_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = pb.SessionState(memories=[pb.StoredMemory(bytes=8)])
    writing = vault.Writing(tmp_path, 1, pb.SnapshotHead(format=vault.FORMAT), state)
    list(writing.data([np.arange(2, dtype=np.int32)], None))
    synced = vault.sync_folder

    def fail_late(folder: Path) -> None:
        synced(folder)
        if (tmp_path / f"1{vault.SESSION}").exists():
            raise OSError("the disk is gone")

    monkeypatch.setattr(vault, "sync_folder", fail_late)
    with pytest.raises(OSError, match="gone"):
        writing.commit()
    writing.abandon()
    assert vault.head_of(tmp_path) is not None
    memory = np.zeros(2, np.int32)
    list(vault.read_data(tmp_path, 1, vault.read_state(tmp_path, 1)[1], [memory]))
    assert memory.tolist() == [0, 1]


@pytest.mark.parametrize("claimed", [1 << 20, 1 << 63, (1 << 64) - 1])
def test_a_data_file_that_claims_a_huge_head_is_damaged(tmp_path: Path, claimed: int) -> None:
    (tmp_path / "1.safetensors").write_bytes(struct.pack("<Q", claimed) + bytes(64))
    state = pb.SessionState(memories=[pb.StoredMemory(bytes=8)])
    with pytest.raises(Refusal, match="damaged") as raised:
        list(vault.read_data(tmp_path, 1, state, [bytearray(8)]))
    assert raised.value.reason == "SNAPSHOT_DAMAGED"


def test_what_is_no_sessions_folder_is_left_alone_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "sessions" / "lost+found").mkdir(parents=True)
    (tmp_path / "sessions" / "notes.txt").write_text("mine")
    shelf = Shelf(tmp_path, 10.0, 0, 0)
    shelf.open()
    shelf.close()
    assert (tmp_path / "sessions" / "lost+found").is_dir()
    assert (tmp_path / "sessions" / "notes.txt").read_text() == "mine"

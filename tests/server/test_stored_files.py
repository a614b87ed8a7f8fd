"""Snapshot files and logs without a server: failed writes are retried and reported, damage is detected."""

import os
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server.common.errors import Refusal
from gradwire_server.registry.session_catalog import SessionCatalog
from gradwire_server.storage import snapshot_files
from gradwire_server.storage import write_ahead_log as journals
from gradwire_server.storage.write_ahead_log import START, Log, WriteAheadLog, beginning, packed, read
from tests.server.harness import WAIT


def _wait(event: threading.Event) -> None:
    event.wait(WAIT)


def test_what_came_before_a_log_was_closed_is_written_before_it_is_acknowledged(tmp_path: Path) -> None:
    journal, target, told = WriteAheadLog(), Log(tmp_path / "1.log"), []
    holding = threading.Event()
    journal.put(Log(tmp_path / "2.log"), (), lambda failure: _wait(holding))  # both wait in the queue
    journal.put(target, packed(pb.LogRecord(writer=7)), told.append)
    journal.close(target)
    holding.set()
    journal.stop(WAIT)
    assert told == [None]
    assert [record.writer for record, _ in read(target.path)] == [7]


def test_no_memory_for_a_record_is_told_and_ends_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, target, told = WriteAheadLog(), Log(tmp_path / "1.log"), []
    written = journal.store.append

    def scarce(*_: Any) -> None:
        monkeypatch.setattr(journal.store, "append", written)
        raise MemoryError

    monkeypatch.setattr(journal.store, "append", scarce)
    first = threading.Event()

    def done(failure: Refusal | None) -> None:
        told.append(failure)
        first.set()

    journal.put(target, packed(pb.LogRecord(writer=1)), done)
    assert first.wait(WAIT)
    journal.put(target, packed(pb.LogRecord(writer=2)), told.append)
    journal.stop(WAIT)
    assert isinstance(told[0], Refusal)
    assert told[1] is None
    assert [record.writer for record, _ in read(target.path)] == [1, 2]


def _written(path: Path, writers: range, flushed: int = 0) -> list[int]:
    """Write a log of as many records, as of a crash before more than `flushed` of them were told; where each ends."""
    journal, target = WriteAheadLog(), Log(path)
    for writer in writers:
        journal.put(target, packed(pb.LogRecord(writer=writer)), None)
    journal.stop(WAIT)
    ends = [end for _, end in read(path)]
    if flushed:
        path.write_bytes(beginning(ends[flushed - 1]) + path.read_bytes()[START:])
    return ends


def test_a_torn_record_that_nobody_was_told_of_ends_the_log(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    ends = _written(path, range(1, 6), flushed=2)
    whole = path.read_bytes()
    for size in range(ends[1], len(whole)):
        path.write_bytes(whole[:size])
        found = list(read(path))
        assert [record.writer for record, _ in found] == list(range(1, len(found) + 1))
        assert 2 <= len(found) < 5
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert len(list(read(path))) == 4


def test_a_byte_that_changed_in_what_was_acknowledged_is_told_and_ends_no_log_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    _written(path, range(1, 6))
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with pytest.raises(Refusal, match=r"1\.log is damaged") as raised:
            list(read(path))
        assert raised.value.reason == "SNAPSHOT_DAMAGED"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(Refusal, match=r"1\.log is damaged"):
            list(read(path))


def test_a_record_that_this_version_does_not_know_is_told(tmp_path: Path) -> None:
    journal, target = WriteAheadLog(), Log(tmp_path / "1.log")
    later = b"\x9a\x06\x01x"  # a field 99
    journal.put(target, packed(pb.LogRecord.FromString(later)), None)
    journal.stop(WAIT)
    with pytest.raises(Refusal, match="none that this version"):
        list(read(target.path))


def test_a_log_writes_again_what_a_full_disk_refused_but_no_part_of_an_upload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, target, told = WriteAheadLog(), Log(tmp_path / "1.log"), []
    failing = threading.Event()
    failing.set()
    real = os.pwritev

    def pwritev(descriptor: int, parts: Any, place: int) -> int:
        if failing.is_set():
            real(descriptor, [b"half"], place)
            raise OSError(28, "No space left on device")
        return real(descriptor, [parts[0][:7]], place)  # it takes little at once

    first = threading.Event()
    journal.put(target, packed(pb.LogRecord(writer=1)), told.append)
    journal.put(target, (), lambda failure: first.set())
    assert first.wait(WAIT)
    monkeypatch.setattr(journals.os, "pwritev", pwritev)
    journal.put(target, packed(pb.LogRecord(writer=2)), told.append)
    journal.put(target, packed(pb.LogRecord(finished_download="x")), told.append, lasting=False)
    second = threading.Event()
    journal.put(target, (), lambda failure: second.set())
    assert second.wait(WAIT)
    failing.clear()
    journal.put(target, packed(pb.LogRecord(writer=3), b""), told.append)
    journal.put(target, packed(pb.LogRecord(), b"batch"), told.append)
    journal.stop(WAIT)
    assert [failure is None for failure in told] == [True, False, False, True, True]
    assert [record.writer or record.batch for record, _ in read(target.path)] == [1, 2, 3, b"batch"]
    assert journal.queued == 0


def test_whoever_has_bytes_that_can_wait_waits_for_room_in_the_logs_queue(tmp_path: Path) -> None:
    journal, holding = WriteAheadLog(), threading.Event()
    assert journal.has_room(journals.MOST_QUEUED * 2, 0.0)  # what is larger than the queue goes alone
    journal.put(Log(tmp_path / "1.log"), (), lambda failure: _wait(holding))
    target = Log(tmp_path / "2.log")
    journal.put(target, packed(pb.LogRecord(upload=pb.LogUpload(data=bytes(journals.MOST_QUEUED)))), None)
    assert not journal.has_room(1, 0.01)
    holding.set()
    assert journal.has_room(1, 10.0)
    journal.stop(WAIT)


def test_a_disk_that_fails_after_a_snapshot_exists_takes_none_of_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = pb.SessionState(memories=[pb.StoredMemory(bytes=8)])
    writing = snapshot_files.SnapshotFileWriter(tmp_path, 1, pb.SnapshotHead(format=snapshot_files.FORMAT), state)
    list(writing.data([np.arange(2, dtype=np.int32)], None))
    synced = snapshot_files.sync_folder

    def fail_late(folder: Path) -> None:
        synced(folder)
        if (tmp_path / f"1{snapshot_files.SESSION}").exists():
            raise OSError("the disk is gone")

    monkeypatch.setattr(snapshot_files, "sync_folder", fail_late)
    with pytest.raises(OSError, match="gone"):
        writing.commit()
    writing.abandon()
    assert snapshot_files.head_of(tmp_path) is not None
    memory = np.zeros(2, np.int32)
    list(snapshot_files.read_data(tmp_path, 1, snapshot_files.read_state(tmp_path, 1)[1], [memory]))
    assert memory.tolist() == [0, 1]


@pytest.mark.parametrize("claimed", [1 << 20, 1 << 63, (1 << 64) - 1])
def test_a_data_file_that_claims_a_huge_head_is_damaged(tmp_path: Path, claimed: int) -> None:
    (tmp_path / "1.safetensors").write_bytes(struct.pack("<Q", claimed) + bytes(64))
    state = pb.SessionState(memories=[pb.StoredMemory(bytes=8)])
    with pytest.raises(Refusal, match="damaged") as raised:
        list(snapshot_files.read_data(tmp_path, 1, state, [bytearray(8)]))
    assert raised.value.reason == "SNAPSHOT_DAMAGED"


def test_what_is_no_sessions_folder_is_left_alone_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "sessions" / "lost+found").mkdir(parents=True)
    (tmp_path / "sessions" / "notes.txt").write_text("mine")
    catalog = SessionCatalog(tmp_path, 10.0, 0, 0)
    catalog.open()
    catalog.close()
    assert (tmp_path / "sessions" / "lost+found").is_dir()
    assert (tmp_path / "sessions" / "notes.txt").read_text() == "mine"

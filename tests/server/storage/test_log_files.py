"""Logs as files: appended with their mark, cut after a failed write, and few of them open at once."""

import os
from pathlib import Path

import pytest

from gradwire_server.storage import log_files
from gradwire_server.storage.log_files import LogFiles

MARK = (0, b"MARK")


@pytest.fixture
def logs() -> LogFiles:
    return LogFiles()


@pytest.fixture
def path(tmp_path: Path, logs: LogFiles) -> Path:
    made = tmp_path / "7.log"
    logs.create(made, b"....begin")
    return made


def test_a_created_log_is_there_with_its_beginning_and_nothing_beside_it(path: Path, logs: LogFiles) -> None:
    assert path.read_bytes() == b"....begin"
    assert [each.name for each in path.parent.iterdir()] == ["7.log"]
    assert (logs.exists(path), logs.size(path), logs.list(path.parent)) == (True, 9, [7])
    assert path.stat().st_mode & 0o777 == 0o600


def test_parts_are_appended_and_the_mark_is_written_at_its_place(path: Path, logs: LogFiles) -> None:
    logs.append(path, [b"one", b"", b"two"], 9, MARK, False)
    logs.append(path, [b"three"], 15, (0, b"WORD"), False)
    assert path.read_bytes() == b"WORDbeginonetwothree"


def test_appending_again_first_cuts_what_a_failed_write_left(path: Path, logs: LogFiles) -> None:
    logs.append(path, [b"a long torn record"], 9, MARK, False)
    logs.append(path, [b"short"], 9, MARK, True)
    assert path.read_bytes() == b"MARKbeginshort"


def test_more_parts_than_one_write_takes_are_all_written(path: Path, logs: LogFiles) -> None:
    parts = [bytes([number % 251]) * (number % 3) for number in range(3 * log_files._MOST_PARTS + 5)]
    logs.append(path, parts, 9, MARK, False)
    assert path.read_bytes()[9:] == b"".join(parts)


def test_short_writes_are_continued_where_they_ended(
    path: Path, logs: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, place: whole(fd, [bytes(parts[0])[:3]], place))
    logs.append(path, [b"seven bytes", b"and more"], 9, MARK, False)
    assert path.read_bytes()[9:] == b"seven bytesand more"


def test_a_failed_write_is_cut_away_and_raised(path: Path, logs: LogFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(OSError, match="No space left"):
        logs.append(path, [b"lost"], 9, MARK, False)
    assert path.read_bytes() == b"....begin"


def test_a_log_that_was_removed_or_replaced_takes_nothing(path: Path, logs: LogFiles) -> None:
    logs.append(path, [b"one"], 9, MARK, False)
    path.rename(path.with_suffix(".old"))
    with pytest.raises(FileNotFoundError):
        logs.append(path, [b"two"], 12, MARK, False)
    path.write_bytes(b"another file")
    with pytest.raises(FileNotFoundError):
        logs.append(path, [b"two"], 12, MARK, False)
    assert path.read_bytes() == b"another file"


def test_a_failed_creation_leaves_nothing(tmp_path: Path, logs: LogFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(old: Path, new: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        logs.create(tmp_path / "1.log", b"begin")
    assert list(tmp_path.iterdir()) == []


def test_cut_shortens_and_open_reads_on_its_own(path: Path, logs: LogFiles) -> None:
    logs.append(path, [b"record"], 9, MARK, False)
    logs.cut(path, 11)
    with logs.open(path) as file:
        assert file.read() == b"MARKbeginre"


def test_only_so_many_logs_stay_open(tmp_path: Path, logs: LogFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "_MOST_OPEN", 2)
    paths = [tmp_path / f"{number}.log" for number in range(4)]
    for path in paths:
        logs.create(path, b"....")
        logs.append(path, [b"x"], 4, MARK, False)
    assert list(logs._open) == paths[2:]
    logs.append(paths[0], [b"y"], 5, MARK, False)
    assert paths[0].read_bytes() == b"MARKxy"
    logs.close(paths[0])
    logs.close(paths[1])
    assert list(logs._open) == [paths[3]]
    logs.close(paths[3])

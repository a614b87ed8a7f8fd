"""A stored session's files: they say that it runs before it changes, and that all is kept only if nothing changed."""

import threading
from pathlib import Path

import pytest

from gradwire_server.common.errors import Refusal
from gradwire_server.storage.session_files import SessionFiles
from tests.server.memory_stores import MemoryLogs, MemorySnapshots

HOME = Path("/nowhere/home")


class _Full(MemorySnapshots):
    """A store whose disk is full."""

    def set_running(self, location: Path, running: bool, lasting: bool = True) -> None:
        raise OSError(28, "No space left on device")


@pytest.fixture
def store() -> MemorySnapshots:
    return MemorySnapshots(MemoryLogs())


def test_a_stopped_session_is_marked_as_running_before_its_next_command(store: MemorySnapshots) -> None:
    files = SessionFiles(HOME, b"", store)
    files.stop(files.uses)
    assert (files.stopped, store.running(HOME)) == (True, False)
    files.use()
    assert (files.stopped, store.running(HOME)) == (False, True)


def test_a_session_that_was_used_meanwhile_is_not_told_to_have_stopped(store: MemorySnapshots) -> None:
    files = SessionFiles(HOME, b"", store)
    store.set_running(HOME, True)
    before = files.uses
    files.use()
    files.stop(before)
    assert (files.stopped, store.running(HOME)) == (False, True)


def test_with_a_log_nothing_need_be_marked(store: MemorySnapshots) -> None:
    files = SessionFiles(HOME, b"", store, log=object())
    files.use()
    assert (files.uses, store.running(HOME)) == (0, False)


def test_a_session_whose_mark_cannot_be_written_applies_nothing() -> None:
    files = SessionFiles(HOME, b"", _Full(MemoryLogs()), stopped=True)
    with pytest.raises(Refusal, match="No space left") as refusal:
        files.use()
    assert refusal.value.reason in ("STORAGE", "STORAGE_FULL", "STORAGE_LIMIT")
    assert files.stopped


def test_use_and_stop_do_not_run_at_once(store: MemorySnapshots) -> None:
    files = SessionFiles(HOME, b"", store)
    ended = threading.Event()
    with files.lock:
        thread = threading.Thread(target=lambda: (files.use(), ended.set()))
        thread.start()
        assert not ended.wait(0.05)
    assert ended.wait(60)
    thread.join()

"""The embedded server: it ends with its parent, and removes its socket and the folder that it made."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradwire_server import __main__ as entry
from gradwire_server.app import cli, embedded


def test_the_socket_goes_and_its_folder_only_if_the_server_made_it(tmp_path: Path) -> None:
    own, given = tmp_path / f"{embedded._PREFIX}abc", tmp_path / "of the client"
    for folder in (own, given):
        folder.mkdir()
        (folder / "socket").touch()
        embedded._remove(folder / "socket")
    assert not own.exists()
    assert list(given.iterdir()) == []
    embedded._remove(given / "socket")  # again: there is nothing to remove


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Path, bool]]]:
    """`main` without a server: where it would have served, and whether it ignored Ctrl-C."""
    told: list[tuple[Path, bool]] = []

    async def serve(path: Path, parent: int, workers: int) -> None:
        assert workers == 0
        assert parent == os.getppid()
        told.append((path, signal.getsignal(signal.SIGINT) is signal.SIG_IGN))

    monkeypatch.setattr(embedded, "_serve", serve)
    monkeypatch.setattr(embedded.blas, "prepare", lambda arguments: None)
    was = signal.getsignal(signal.SIGINT)
    yield told
    signal.signal(signal.SIGINT, was)


def test_ctrl_c_is_left_to_the_parent_and_the_private_folder_is_removed(served: list) -> None:
    embedded.main(None)
    ((path, ignored),) = served
    assert ignored
    assert path.parent.name.startswith(embedded._PREFIX)
    assert not path.parent.exists()


def test_a_path_beyond_the_kernels_limit_is_refused_with_the_path(served: list, tmp_path: Path) -> None:
    path = str(tmp_path / ("x" * 120))
    with pytest.raises(SystemExit, match="too long for a unix socket"):
        embedded.main(path)
    assert served == []


class _Exits:
    """Notes what the watching thread does instead of leaving the process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[str] = []
        self.over = threading.Event()
        monkeypatch.setattr(embedded.time, "sleep", lambda seconds: self.told.append("waited"))
        monkeypatch.setattr(os, "_exit", lambda code: (self.told.append(f"exit {code}"), self.over.set()))

    def watch(self, parent: int) -> list[str]:
        embedded._watch(parent, lambda: self.told.append("ended"), lambda: self.told.append("removed"))
        assert self.over.wait(30)
        return self.told


def test_a_parent_that_ended_ends_the_server_at_last_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _Exits(monkeypatch).watch(os.getppid() + 1) == ["ended", "waited", "removed", "exit 0"]


def test_the_end_of_standard_input_ends_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = os.pipe()
    os.write(writes, b"what the parent writes does not matter")
    os.close(writes)
    with os.fdopen(reads) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert _Exits(monkeypatch).watch(os.getppid())[0] == "ended"


@pytest.mark.parametrize(
    ("arguments", "socket"),
    [
        (["--embedded"], None),
        (["--embedded", "--socket=/tmp/one"], "/tmp/one"),
        (["--embedded", "--socket", "/tmp/two"], "/tmp/two"),
        (["--socket", "/tmp/three", "--embedded"], "/tmp/three"),
        (["--embedded", "--socket"], None),
    ],
)
def test_the_module_starts_the_embedded_server_at_the_given_socket(
    arguments: list[str], socket: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str | None] = []
    monkeypatch.setattr(embedded, "main", lambda socket, workers: started.append(socket))
    monkeypatch.setattr(sys, "argv", ["gradwire_server", *arguments])
    entry.main()
    assert started == [socket]


def test_the_module_starts_the_command_line_server_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(cli, "serve", lambda prog_name: started.append(prog_name))
    monkeypatch.setattr(embedded, "main", lambda socket, workers: started.append("embedded"))
    monkeypatch.setattr(sys, "argv", ["gradwire_server", "--port", "0"])
    entry.main()
    assert started == ["gradwire serve"]

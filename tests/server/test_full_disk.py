"""A state directory that is full, or not there: what is acknowledged is kept, the server lives, and goes on after it.

The full disk is a small tmpfs, where that may be mounted; test_durability.py has the same without one.
"""

import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from gradwire.v1 import files_pb2, service_pb2, snapshots_pb2
from tests.server.harness import WAIT, Id, Remote, command, op, refusal
from tests.server.test_process import connected, opened, process, ready

REFUSED = ("RESOURCE_EXHAUSTED", "STORAGE")
WITHHELD = ("UNAVAILABLE", "UNAVAILABLE")


class Disk:
    """Where a state directory is; `spoil` and `mend` it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / "state"


class Full(Disk):
    """A tmpfs, filled to the last byte."""

    def spoil(self) -> None:
        with open(self.root / "ballast", "wb", 0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def mend(self) -> None:
        (self.root / "ballast").unlink()


class Gone(Disk):
    """A volume that was unmounted: an empty folder in its place."""

    def spoil(self) -> None:
        self.state.rename(self.root / "aside")
        self.state.mkdir()

    def mend(self) -> None:
        assert not list(self.state.iterdir()), "something was begun anew where the volume was mounted"
        self.state.rmdir()
        (self.root / "aside").rename(self.state)


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[Any]]:
    """The ways to spoil a disk: one server goes through all of them, since starting it takes seconds."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield [Gone(tmp_path)]
        pytest.skip("a volume that is gone was tried; a full disk needs the right to mount a tmpfs")
    try:
        yield [Full(tmp_path), Gone(tmp_path)]
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def told(call: Callable[..., Any], *args: Any) -> tuple[str, str]:
    """How a call ended: ("OK", "") or its refusal."""
    try:
        call(*args, timeout=WAIT)
    except grpc.RpcError as error:
        return refusal(error)[:2]
    return "OK", ""


def flags(disk: Any, durability: str) -> list[str]:
    return ["--port=0", "--workers=1", f"--state-dir={disk.state}", f"--durability={durability}", "--snapshot-every=1"]


def more(session: Remote) -> Any:
    """The next batch, which adds 1."""
    batch = session.batch(command(op("add_", Id(1), 1.0)), first=next(session.seq))
    session.seq = itertools.count(batch.first_seq + 1)
    return batch


def until_ok(call: Callable[..., Any], *args: Any) -> None:
    """As a client does that is told to try again."""
    for _ in range(20):
        if told(call, *args) == ("OK", ""):
            return
    raise AssertionError("it was never taken")


def refuses_while_spoiled(disk: Any, session: Remote, logs: bool) -> tuple[int, Any]:
    """Spoil the disk: what cannot be kept is refused. How many batches were acknowledged, and one that was not, yet."""
    stub = session.stub
    save = snapshots_pb2.SaveSessionRequest(session_id=session.id)
    stub.SaveSession(save)
    disk.spoil()
    done, batch = 0, more(session)
    while told(stub.Run, batch) == ("OK", "") and done < 300:  # the log's last page may have room for some
        done, batch = done + 1, more(session)
    assert logs == (done < 300)
    if logs:  # it is not acknowledged, however often it is sent
        assert told(stub.Run, batch) == WITHHELD
    refused = (REFUSED, WITHHELD) if logs else (REFUSED,)
    assert told(stub.SaveSession, save) in refused
    assert told(stub.SaveSession, snapshots_pb2.SaveSessionRequest(session_id=session.id, name="x")) in refused
    saved = files_pb2.SaveFileRequest(session_id=session.id, name="x")
    assert told(stub.SaveFile, saved) in refused
    assert told(stub.OpenSession, service_pb2.OpenSessionRequest()) == (REFUSED if logs else ("OK", ""))
    assert told(stub.ServerInfo, service_pb2.ServerInfoRequest()) == ("OK", "")
    assert told(stub.ListSnapshots, snapshots_pb2.ListSnapshotsRequest()) == ("OK", "")
    return done, batch


@pytest.mark.parametrize("durability", ["log", "snapshot"])
def test_nothing_acknowledged_is_lost_by_a_disk_that_says_no(disks: list[Any], durability: str) -> None:
    logs, others = durability == "log", []
    with process(*flags(disks[0], durability)) as server, connected(ready(server)) as channel:
        session = opened(channel)
        session.run(command(op("zeros", [1000], outputs=[1])))
        for _ in range(5):
            session.stub.Run(more(session))
        done = 5
        for disk in disks:
            taken, batch = refuses_while_spoiled(disk, session, logs)
            disk.mend()
            until_ok(session.stub.Run, batch)
            for _ in range(3):
                session.stub.Run(more(session))
            done += taken + 4
            assert session.read(1)[0] == done
            until_ok(session.stub.SaveSession, snapshots_pb2.SaveSessionRequest(session_id=session.id))
            others.append(opened(channel))
            assert others[-1].create([1.0]) == 1
            if logs:
                session.stub.Run(more(session))
                done += 1
        server.kill()
        server.wait(WAIT)
        assert not [path for path in disks[0].state.rglob("*") if path.name.endswith(".new")]
    with process(*flags(disks[0], durability)) as server, connected(ready(server)) as channel:
        assert Remote(channel, session.opened).read(1)[0] == done
        for other in others if logs else ():
            assert Remote(channel, other.opened).read(1) == [1.0]
        server.terminate()
        assert server.wait(WAIT) == 0


def test_a_log_that_was_taken_away_is_not_written_to_unseen(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with process(*flags(disk, "log"), "--snapshot-every=0") as server, connected(ready(server)) as channel:
        session = opened(channel)
        session.run(command(op("zeros", [10], outputs=[1])))
        (log,) = disk.state.glob("sessions/*/1.log")
        log.unlink()
        assert told(session.stub.Run, more(session)) == WITHHELD

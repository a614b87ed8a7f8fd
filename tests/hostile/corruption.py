"""Corruption of stored files: `python -m tests.hostile.corruption` changes each byte of a small stored session.

After each change the session is restored. Either the restore is refused and names the file, or the session equals the
stored one. It is never a different session, and no other exception is raised.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gradwire.v1 import commands_pb2, service_pb2
from gradwire.v1 import snapshots_pb2 as pb
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import MIB, Limits
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.session.session import PendingCall, Session
from gradwire_server.storage import snapshot_files
from gradwire_server.storage.byte_view import byte_view
from gradwire_server.storage.checkpointer import Checkpointer
from gradwire_server.storage.instructions import StorageInstruction
from gradwire_server.storage.snapshot_encoder import SnapshotEncoder
from gradwire_server.worker.frames import KEEP, NUMBER, UPLOAD_BEGUN, UploadCall
from gradwire_server.worker.runtime import Runtime
from tests.server.harness import Id, command, op, payload

LIMITS = Limits(max_session_bytes=8 * MIB, max_bytes=64 * MIB).resolved()


class Wrong(AssertionError):
    """What must never be: a damage that was not noticed, or something other than a refusal."""


class Bench:
    """A worker without a process: it opens, calls, restores and drops sessions of a folder."""

    def __init__(self) -> None:
        self.runtime = Runtime(LIMITS, SharedCounters(1), checkpointer=Checkpointer(logs=True))
        self.number = 0
        self.ticket = 0

    def stop(self) -> None:
        """End when all is on disk."""
        assert self.runtime.checkpointer is not None
        self.runtime.checkpointer.stop(10)

    def do(self, method: str, raw: bytes, begins: bool = False) -> bytes:
        """Carry a call out, and wait for the disk where its answer does. Raises Refusal."""
        self.number += begins
        self.ticket += 1
        call = self.runtime.make_call(method, self.number, raw, self.ticket, None)
        steps = self.runtime.execute(call)
        try:
            while True:
                next(steps)
        except StopIteration as done:
            answer: bytes = done.value
        self.runtime.apply_deferred_releases(call.session)
        return answer if call.hold is None else _held(call, answer)

    def open(self, home: Path) -> None:
        """Open a session that is stored in the folder."""
        self.do("Open", self._order(home).pack(), begins=True)

    def restore(self, home: Path) -> Session:
        """Restore the stored session. Raises Refusal."""
        order = self._order(home)
        order.folder = str(home)
        self.do("Restore", order.pack(), begins=True)
        return self.runtime.sessions[self.number]

    def drop(self) -> None:
        """Close the session and keep its files."""
        self.do("Drop", KEEP)

    def run(self, first: int, *commands: service_pb2.Command) -> None:
        """A batch."""
        self.do("Run", service_pb2.RunRequest(writer=1, first_seq=first, commands=commands).SerializeToString())

    @staticmethod
    def _order(home: Path) -> StorageInstruction:
        return StorageInstruction(
            home=str(home), home_head=pb.SnapshotHead(session_digest=b"d" * 32).SerializeToString()
        )


def _held(call: PendingCall, answer: bytes) -> bytes:
    results: list[tuple[bytes, Exception | None]] = []
    done = threading.Event()

    def take(result: bytes, failure: Exception | None) -> None:
        results.append((result, failure))
        done.set()

    assert call.hold is not None
    call.hold(take, answer)
    if not done.wait(30):
        raise Wrong(f"{call.method} was never answered")
    if results[0][1] is not None:
        raise results[0][1]
    return results[0][0]


def store(home: Path) -> None:
    """Store a small session that has something of everything, a part of it in the log."""
    bench = Bench()
    bench.open(home)
    _write(bench, 1, 1)
    bench.do("Attach", NUMBER.pack(2))
    bench.do("Save", StorageInstruction().pack())
    _write(bench, 30, 8)
    data = bytes(range(48))
    answer = bench.do("BeginUpload", service_pb2.UploadStart(total_bytes=len(data)).SerializeToString())
    received, taker = UPLOAD_BEGUN.unpack_from(answer)
    transfer_id = answer[UPLOAD_BEGUN.size :]
    with bench.runtime.receiving(UploadCall(bench.number, transfer_id.decode(), taker, received), len(data)) as room:
        room[:] = data
    bench.do("KeepUpload", transfer_id)
    bench.drop()
    bench.stop()


def _write(bench: Bench, first_id: int, first_seq: int) -> None:
    """Commands of all kinds: seven seqs and some that come alone."""
    x, y, z, row, total, bad = range(first_id, first_id + 6)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    create = commands_pb2.CreateRequest(id=x, requires_grad=True, payload=payload(values), request_id=f"r{x}")
    bench.do("Create", create.SerializeToString())
    bench.run(
        first_seq,
        command(op("rand_like", Id(x), outputs=[y])),
        command(op("mul", Id(x), Id(y), outputs=[z])),
        command(op("select", Id(z), 0, 1, outputs=[row])),
        command(op("sum", Id(z), outputs=[total])),
        command(commands_pb2.BackwardRequest(tensors=[total], retain_graph=True)),
        command(op("mul", Id(x), Id(999), outputs=[bad])),
    )
    bench.run(first_seq + 6, command(op("add_", Id(y), 1.0)))
    bench.do("Op", op("exp", Id(row), request_id=f"e{x}").SerializeToString())
    bench.do("ManualSeed", commands_pb2.ManualSeedRequest(seed=x).SerializeToString())


def describe_session(session: Session) -> tuple[bytes, list[bytes]]:
    """All that a session is: its state, and its memories' bytes."""
    encoder = SnapshotEncoder(session)
    for _ in encoder.steps():
        pass
    return encoder.state.SerializeToString(deterministic=True), [byte_view(each).tobytes() for each in encoder.memories]


def changed(home: Path, seed: int, share: float = 1.0) -> Iterator[tuple[Path, int, bytes]]:
    """Each file, a byte's place, and what the file has when that byte is another."""
    rng = random.Random(seed)
    for path in sorted(home.iterdir()):
        whole = path.read_bytes()
        for place in range(len(whole)):
            if rng.random() < share:
                yield path, place, whole[:place] + bytes([whole[place] ^ rng.randrange(1, 256)]) + whole[place + 1 :]


def cut(home: Path, seed: int, share: float = 1.0) -> Iterator[tuple[Path, int, bytes]]:
    """Each file, a length, and what it has when it ends there."""
    rng = random.Random(seed)
    for path in sorted(home.iterdir()):
        whole = path.read_bytes()
        yield from ((path, size, whole[:size]) for size in range(len(whole)) if rng.random() < share)


def missing(home: Path, *_: Any) -> Iterator[tuple[Path, int, None]]:
    """Each file but the one that says that there is a session."""
    yield from ((path, 0, None) for path in sorted(home.iterdir()) if path.suffix != snapshot_files.SESSION)


def restore_each(home: Path, damages: Iterable[tuple[Path, int, bytes | None]]) -> Counter[str]:
    """Restore the session with each damage. Returns counts of outcomes. Raises Wrong."""
    bench = Bench()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "session"
        shutil.copytree(home, place)
        wanted = describe_session(bench.restore(place))
        bench.drop()
        found: Counter[str] = Counter()
        for path, where, content in damages:
            shutil.rmtree(place)
            shutil.copytree(home, place)
            if content is None:
                (place / path.name).unlink()
            else:
                (place / path.name).write_bytes(content)
            found[f"{path.suffix} {_outcome(bench, place, path.name, where, wanted)}"] += 1
    bench.stop()
    return found


def _outcome(bench: Bench, place: Path, name: str, where: int, wanted: Any) -> str:
    try:
        snapshot_files.head_of(place)
        session = bench.restore(place)
    except Refusal as refusal:
        if refusal.reason != "SNAPSHOT_DAMAGED" or name not in refusal.message:
            raise Wrong(f"byte {where} of {name}: {refusal.reason}: {refusal.message}") from None
        outcome = "refused by name"
    except Exception as error:
        raise Wrong(f"byte {where} of {name}: {error!r}") from error
    else:
        if describe_session(session) != wanted:
            raise Wrong(f"byte {where} of {name}: the restored session differs, without an error")
        outcome = "restored as it was"
    if bench.number in bench.runtime.sessions:
        bench.drop()
    return outcome


def main() -> None:
    """The long form: every byte."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "session"
        store(home)
        sizes = {path.name: path.stat().st_size for path in sorted(home.iterdir())}
        print(f"seed {given.seed}; bytes: {sizes}", flush=True)
        for what, damages in (("another byte", changed), ("cut short", cut), ("missing", missing)):
            found = restore_each(home, damages(home, given.seed))
            print(f"{what}: {', '.join(f'{count} {how}' for how, count in sorted(found.items()))}", flush=True)
    print(f"{time.monotonic() - began:.0f} s; never another session, never anything but a refusal")
    sys.exit(0)


if __name__ == "__main__":
    main()

"""Replay of random logs: `python -m tests.hostile.log_replay` replays logs and compares the restored sessions.

A session with a log receives random messages of messages.py; most of them are refused. Some allocations fail: in an op,
for an answer or for a record. Then the session is restored from its files, as after a crash. It must equal the original
session: graph, versions and random numbers.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from gradwire_engine.core.context import Account
from gradwire_engine.op.op import Op
from gradwire_server.common.errors import Refusal
from gradwire_server.session import batch, retry
from gradwire_server.session.batch import OutOfOrder
from gradwire_server.session.session import Session
from gradwire_server.storage import log_writer
from gradwire_server.storage.byte_view import byte_view
from gradwire_server.storage.instructions import StorageInstruction
from gradwire_server.storage.snapshot_encoder import SnapshotEncoder
from tests.hostile.corruption import Bench
from tests.hostile.dispatch import METHODS, Wrong
from tests.hostile.messages import Messages

# Where memory may be short, and how often: in the op, before it, for the answer, for the record. The last ends a call
# in its middle.
_PLACES: tuple[tuple[Any, str, float], ...] = (
    (Op, "compute", 0.03), (Account, "admit", 0.02), (batch, "serialized", 0.02), (log_writer, "packed", 0.03),
)  # fmt: skip
_SAVED = 0.01  # how often there is a snapshot between two messages


@contextmanager
def scarce_memory(seed: int) -> Iterator[None]:
    """Let allocations fail at random inside the block. Some second tries succeed."""
    rng = random.Random(seed)
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in _PLACES]
    free_memory = retry._free_memory

    def failing(real: Any, often: float) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            if rng.random() < often:
                raise MemoryError("injected")
            return real(*args, **named)

        return call

    try:
        for owner, name, often in _PLACES:
            setattr(owner, name, failing(getattr(owner, name), often))
        retry._free_memory = lambda session: rng.random() < 0.5
        yield
    finally:
        for owner, name, real in before:
            setattr(owner, name, real)
        retry._free_memory = free_memory


class Description:
    """Describes the observable state of a session as a list of lines. Arrays are described by their contents."""

    def __init__(self, session: Session) -> None:
        encoder = SnapshotEncoder(session)
        for _ in encoder.steps():
            pass
        self.state, self.memories = encoder.state, encoder.memories
        self.bytes: dict[int, int] = {}
        self.lines: list[str] = []
        for field, value in self.state.ListFields():
            if field.name not in ("memories", "arrays"):
                self._walk(field.name, value)

    def _walk(self, path: str, value: Any) -> None:
        if isinstance(value, Message):
            for field, inner in value.ListFields():
                # A gradient's place that a refused command made; answers that a refused batch acknowledged.
                if field.name in ("array", "scalar"):
                    self.lines.append(f"{path}.{field.name} {self._array(inner)}")
                elif field.name not in ("has_state", "answers", "answers_start"):
                    self._walk(f"{path}.{field.name}", inner)
        elif isinstance(value, (str, bytes)) or not hasattr(value, "__len__"):
            self.lines.append(f"{path} {value!r}")
        else:
            for place, inner in enumerate(value):
                self._walk(f"{path}[{place}]", inner)

    def _array(self, number: int) -> str:
        stored = self.state.arrays[number - 1]
        about = (stored.dtype, tuple(stored.shape))
        if 0 in stored.shape:
            return f"{about}"
        laid = (*about, tuple(stored.strides), stored.offset, stored.read_only)
        memory = self.bytes.setdefault(stored.memory, len(self.bytes))
        return f"{laid} of memory {memory}: {zlib.crc32(byte_view(self.memories[stored.memory - 1]).tobytes())}"


def describe_session(session: Session) -> list[str]:
    """What a session is."""
    return Description(session).lines


def replay_log(seed: int, count: int) -> Counter[str]:
    """Send messages, crash, and replay the log. Returns counts of refusals. Raises Wrong."""
    bench, messages = Bench(), Messages(seed)
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "session"
        bench.open(home)
        for request in messages.first():
            bench.do("Create", request.SerializeToString())
        with scarce_memory(seed):
            while sum(found.values()) < count:
                found[_one(bench, messages, home)] += 1
                if messages.rng.random() < _SAVED:
                    _save(bench)
        wanted = describe_session(bench.runtime.sessions[bench.number])
        bench.drop()
        if describe_session(bench.restore(home)) != wanted:
            raise Wrong(f"seed {seed}: after {count} messages the log leads to another session")
        bench.drop()
    bench.stop()
    return found


def _one(bench: Bench, messages: Messages, home: Path) -> str:
    """A message; the reason of its refusal, or ""."""
    while True:
        messages.seq = bench.runtime.sessions[bench.number].writers[1].applied + 1
        method, raw = messages.draw()
        if method in METHODS:
            break
    try:
        bench.do(method, raw)
    except OutOfOrder:
        return "SEQUENCE_GAP"
    except Refusal as refusal:
        if bench.runtime.sessions[bench.number].durability.broken is None:
            return refusal.reason
    else:
        return ""
    bench.drop()  # as the front does: what is in memory is ahead of the log
    with _full_memory():
        bench.restore(home)
    return "taken back"


def _save(bench: Bench) -> None:
    """A snapshot in between, upon which the log begins anew; there is none while a backward waits for its client."""
    with _full_memory(), suppress(Refusal):
        bench.do("Save", StorageInstruction().pack())


@contextmanager
def _full_memory() -> Iterator[None]:
    """Inside the block nothing is short."""
    held = [(owner, name, getattr(owner, name)) for owner, name, _ in _PLACES]
    for owner, name, failing in held:
        setattr(owner, name, failing.__closure__[1].cell_contents)
    try:
        yield
    finally:
        for owner, name, failing in held:
            setattr(owner, name, failing)


def main() -> None:
    """The long form."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--messages", type=int, default=600)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    found: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.seeds):
        found += replay_log(seed, given.messages)
    print(
        f"seeds from {given.first}: {given.seeds} logs of {given.messages} messages led where they were in "
        f"{time.monotonic() - began:.0f} s; {found.pop('')} applied, {found.pop('taken back', 0)} taken back, "
        f"{sum(found.values())} refused for {len(found)} reasons"
    )
    sys.exit(0)


if __name__ == "__main__":
    main()

"""What a worker counts for the metrics: commands by op, refusals by reason, times and sizes of calls.

The compute thread alone writes, and adds to one number at a time; whoever reads, from another thread, is at most a
moment behind. Nothing here is named by a client: ops are those of the registry, commands those of the contract.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from gradwire_server.common.errors import Refusal
from gradwire_server.session.arguments import CALLS

SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
COMMANDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 10_000)


class Histogram:
    """How many values fell below each bound, the last of all, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Another value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def told(self) -> dict[str, Any]:
        """As it travels."""
        return {"counts": list(self.counts), "total": self.total}


class Meter:
    """The numbers of one worker since it began."""

    def __init__(self) -> None:
        self.commands: Counter[tuple[str, str]] = Counter()  # by command and op
        self.calls: Counter[str] = Counter()  # of prepared ops, by op
        self.refusals: Counter[tuple[str, str, str]] = Counter()  # by command, op and reason
        self.queued = Histogram(SECONDS)
        self.computed = Histogram(SECONDS)
        self.sizes = Histogram(COMMANDS)

    def applied(self, which: str | None, request: Any, refusal: Refusal | None) -> None:
        """A command was carried out or refused. An op that there is none of counts as "" ."""
        op = request.op if which == "op" and request.op in CALLS else ""
        key = (which or "", op)
        self.commands[key] += 1
        if refusal is not None:
            self.refusals[which or "", op, refusal.reason] += 1

    def called(self, ops: Iterable[str]) -> None:
        """Calls of these prepared ops are about to be carried out."""
        self.calls.update(ops)

    def refused(self, op: str, refusal: Refusal) -> None:
        """A call of a prepared op was refused."""
        self.refusals["op", op, refusal.reason] += 1

    def told(self) -> dict[str, Any]:
        """As it travels. From any thread: a copy is made in one step."""
        commands = self.commands.copy()
        for op, count in self.calls.copy().items():
            commands["op", op] += count
        return {
            "commands": [[*key, count] for key, count in commands.items()],
            "refusals": [[*key, count] for key, count in self.refusals.copy().items()],
            "queued": self.queued.told(),
            "computed": self.computed.told(),
            "sizes": self.sizes.told(),
        }

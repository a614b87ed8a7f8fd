"""The meter: counts for a worker's metrics: commands by op, refusals by reason, times and sizes of calls.

Only the compute thread writes, one number at a time, so readers in other threads see values that are at most slightly
old. No label comes from a client: ops are those of the registry, commands those of the contract.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from gradwire_server.common.errors import Refusal
from gradwire_server.common.histogram import COMMANDS, SECONDS, Histogram
from gradwire_server.session.arguments import NAMED_OPS


class Meter:
    """Counters and histograms of one worker since its start."""

    def __init__(self) -> None:
        self.commands: Counter[tuple[str, str]] = Counter()  # by command and op
        self.calls: Counter[str] = Counter()  # of prepared ops, by op
        self.refusals: Counter[tuple[str, str, str]] = Counter()  # by command, op and reason
        self.queued = Histogram(SECONDS)
        self.computed = Histogram(SECONDS)
        self.sizes = Histogram(COMMANDS)

    def applied(self, which: str, request: Any, refusal: Refusal | None) -> None:
        """Count a command that was applied or refused. An unknown command or op counts as ""."""
        op = request.op if which == "op" and request.op in NAMED_OPS else ""
        self.commands[which, op] += 1
        if refusal is not None:
            self.refusals[which, op, refusal.reason] += 1

    def called(self, ops: Iterable[str]) -> None:
        """Count calls of prepared ops before they are executed."""
        self.calls.update(ops)

    def refused(self, op: str, refusal: Refusal) -> None:
        """Count a refused call of a prepared op."""
        self.refusals["op", op, refusal.reason] += 1

    def as_json(self) -> dict[str, Any]:
        """The counts as JSON-compatible values. Thread-safe: each counter is copied in one step."""
        commands = self.commands.copy()
        for op, count in self.calls.copy().items():
            commands["op", op] += count
        return {
            "commands": [[*key, count] for key, count in commands.items()],
            "refusals": [[*key, count] for key, count in self.refusals.copy().items()],
            "queued": self.queued.as_json(),
            "computed": self.computed.as_json(),
            "sizes": self.sizes.as_json(),
        }

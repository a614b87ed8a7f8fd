"""What a worker counts for the metrics: commands by op, refusals by reason, times and sizes of calls.

The compute thread alone writes, and adds to one number at a time; whoever reads, from another thread, is at most a
moment behind. Nothing here is named by a client: ops are those of the registry, commands those of the contract.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from gradwire_server.common.errors import Refusal
from gradwire_server.common.histogram import COMMANDS, SECONDS, Histogram
from gradwire_server.session.arguments import CALLS


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

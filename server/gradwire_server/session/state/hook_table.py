"""The hook table: holds a session's hooks, and its backwards that wait for the client to run one (hook_commands.py).

A waiting backward is a suspended generator of the engine.
"""

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gradwire_engine.autograd.backward_pass import BackwardPass
from gradwire_engine.autograd.checkpoints import Region, RegionStart
from gradwire_engine.graph.hooks import ExternalCallback
from gradwire_server.common.errors import Refusal

MAX_SUSPENDED = 4000
SUSPENDED_SECONDS = 3600.0


@dataclass(slots=True)
class SuspendedBackward:
    """A backward that waits for its client: the callback for its end, its number, and since when it waits."""

    run: BackwardPass
    finish: Callable[[Any], None]
    number: int = 0
    since: float = field(default_factory=time.monotonic)


class HookTable:
    """A session's hooks by number, while the graph refers to them, and its waiting backwards."""

    def __init__(self) -> None:
        self.asks: weakref.WeakValueDictionary[int, ExternalCallback] = weakref.WeakValueDictionary()
        self.suspended: dict[int, SuspendedBackward] = {}
        #: By number: starts of open checkpoints and packings, and checkpointed regions that may be recomputed.
        self.moments: dict[int, RegionStart] = {}
        self.regions: weakref.WeakValueDictionary[int, Region] = weakref.WeakValueDictionary()
        #: The region that a client computes again to read a value: its nodes alone refer to it otherwise.
        self.reading: Region | None = None
        self.next_number = 1  # of the next waiting backward

    def check_room(self) -> None:
        """Check that one more backward can wait. Raises Refusal: TENSOR_LIMIT."""
        if len(self.suspended) >= MAX_SUSPENDED:
            raise Refusal(
                "TENSOR_LIMIT",
                f"at most {MAX_SUSPENDED} backwards of a session wait for their hooks",
                limit=MAX_SUSPENDED,
            )

    def suspend(self, waiting: SuspendedBackward) -> int:
        """Hold a backward; return the number to resume it by, the same every time."""
        if not waiting.number:
            waiting.number, self.next_number = self.next_number, self.next_number + 1
        self.suspended[waiting.number] = waiting
        return waiting.number

    def tidy(self) -> None:
        """Give up backwards that were not resumed for SUSPENDED_SECONDS."""
        before = time.monotonic() - SUSPENDED_SECONDS
        for number in [number for number, each in self.suspended.items() if each.since < before]:
            self.suspended.pop(number).run.steps.close()

    def abandon_all(self) -> int:
        """Give up all waiting backwards; return their number."""
        count = len(self.suspended)
        while self.suspended:
            self.suspended.popitem()[1].run.steps.close()
        return count

    def clear(self) -> None:
        """Give up all waiting backwards and open checkpoints."""
        self.moments.clear()
        self.abandon_all()

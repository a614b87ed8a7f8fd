"""A session's hooks, and its backwards that wait for the client to run one (hook_commands.py).

While the client works a backward is a suspended generator of the engine, which this table keeps.
"""

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gradwire_engine import Backward, Gradients
from gradwire_engine.autograd.checkpoints import Moment, Region
from gradwire_engine.graph.hooks import Ask
from gradwire_server.common.errors import Refusal

MAX_SUSPENDED = 4000
SUSPENDED_SECONDS = 3600.0


@dataclass(slots=True)
class Suspended:
    """A backward that waits for its client, what to do when it is through, its number, and since when it waits."""

    run: Backward | Gradients
    finish: Callable[[Any], None]
    number: int = 0
    since: float = field(default_factory=time.monotonic)


class HookTable:
    """A session's hooks by number, as long as something can ask for them, and its backwards that wait."""

    def __init__(self) -> None:
        self.asks: weakref.WeakValueDictionary[int, Ask] = weakref.WeakValueDictionary()
        self.suspended: dict[int, Suspended] = {}
        #: By number: where checkpoints and packing began whose end has not come, and the checkpoints whose parts may be
        #: asked for again.
        self.moments: dict[int, Moment] = {}
        self.regions: weakref.WeakValueDictionary[int, Region] = weakref.WeakValueDictionary()
        self.next_number = 1  # of the next backward that waits

    def suspend(self, waiting: Suspended) -> int:
        """Keep a backward; the number to go on with it by, each time the same. Raises Refusal: TENSOR_LIMIT."""
        if len(self.suspended) >= MAX_SUSPENDED:
            raise Refusal(
                "TENSOR_LIMIT",
                f"at most {MAX_SUSPENDED} backwards of a session wait for their hooks",
                limit=MAX_SUSPENDED,
            )
        if not waiting.number:
            waiting.number, self.next_number = self.next_number, self.next_number + 1
        self.suspended[waiting.number] = waiting
        return waiting.number

    def tidy(self) -> None:
        """Give up the backwards that nobody has gone on with for an hour."""
        before = time.monotonic() - SUSPENDED_SECONDS
        for number in [number for number, each in self.suspended.items() if each.since < before]:
            self.suspended.pop(number).run.steps.close()

    def give_up(self) -> int:
        """Give up all backwards that wait; how many there were."""
        count = len(self.suspended)
        while self.suspended:
            self.suspended.popitem()[1].run.steps.close()
        return count

    def clear(self) -> None:
        """Give up all that wait."""
        self.moments.clear()
        self.give_up()

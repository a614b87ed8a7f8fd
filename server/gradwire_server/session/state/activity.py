"""Activity: what a session does, for its owner: its last refusals, and the seconds of its ops while a client watches.

Only the compute thread writes. Describe with `activity` reads, and each such request keeps the watch alive.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradwire_server.common.errors import Refusal

WATCH_SECONDS = 10.0  # a watch ends so long after the last request for it
MAX_REFUSALS = 100
MAX_MESSAGE = 400  # characters of a logged message
MAX_NAMES = 500  # names by kind; clients choose those of custom functions
OTHERS = "others"
_MOST_BEGUN = 5000  # counted ops in a second: each takes about a microsecond to count
_SHORT_SECONDS = 0.1  # so much is counted before any call is left out
REST = ""  # the kind of what is no command: decoding requests, serializing answers

_Names = dict[str, list[float]]


class OpTimes:
    """Wall seconds and calls by kind and name, estimated from a sample of the session's calls.

    Where ops are short, counting them costs a noticeable part of their time. So `choose` takes a call with such a
    probability that counting costs about half a percent, and a chosen call counts for those that are left out. Between
    `pause` and `resume`, when others compute, nothing is counted.
    """

    __slots__ = (
        "_active",
        "_began",
        "_begun",
        "_clock",
        "_counted",
        "_names",
        "_random",
        "_running",
        "_since",
        "_weight",
        "ends",
    )

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._names: dict[str, _Names] = {REST: {"": [0.0, 0.0]}}
        self._running = self._names[REST][""]
        self._since = self._began = clock()
        self._active = False
        self._weight = 1.0
        self._begun, self._counted = 0, 0.0  # ops, and seconds in which they were counted
        self._random = random.Random(0)
        #: When the watch ends, by the clock.
        self.ends = self._since + WATCH_SECONDS

    def choose(self) -> bool:
        """Begin a call; whether it is counted."""
        self.pause()
        part = min(1.0, _MOST_BEGUN * max(self._counted, _SHORT_SECONDS) / max(self._begun, 1))
        self._active = part == 1.0 or self._random.random() < part
        self._weight = 1.0 / part
        self._running = self._names[REST][""]
        self.resume()
        return self._active

    def begin(self, kind: str, name: str) -> float:
        """End what is running, begin another, and return the time. Only in a call that is counted."""
        now = self._clock()
        weight = self._weight
        self._running[0] += (now - self._since) * weight
        self._since = now
        names = self._names.get(kind)
        found = None if names is None else names.get(name)
        if found is None:
            found = self._added(kind, name)
        found[1] += weight
        self._begun += 1
        self._running = found
        return now

    def node(self, name: str) -> None:
        """Begin a node of a backward."""
        self.begin("backward", name)

    def ticking(self, names: Sequence[str]) -> Callable[[], float]:
        """A clock that is read once before each of these ops, and begins it."""
        each, begin = iter(names), self.begin
        return lambda: begin("op", next(each))

    def rest(self) -> None:
        """End the running command."""
        self.begin(REST, "")

    def resume(self) -> None:
        """Go on with what was running."""
        self._since = self._began = self._clock()

    def pause(self) -> None:
        """Stop the count while others compute."""
        if self._active:
            now = self._clock()
            self._running[0] += (now - self._since) * self._weight
            self._counted += now - self._began
            self._since = self._began = now

    def items(self) -> list[tuple[str, str, float, int]]:
        """Kind, name, seconds and calls, of each that took time."""
        self.pause()
        return [
            (kind, name, seconds, round(calls))
            for kind, names in self._names.items()
            for name, (seconds, calls) in names.items()
            if seconds > 0.0
        ]

    def _added(self, kind: str, name: str) -> list[float]:
        names = self._names.setdefault(kind, {})
        return names.setdefault(name if len(names) < MAX_NAMES else OTHERS, [0.0, 0.0])


@dataclass(slots=True)
class LoggedRefusal:
    """A refused command or call, by wall time in milliseconds."""

    at_unix_ms: int
    command: str
    op: str
    reason: str
    message: str


class Activity:
    """A session's last refusals, and its op times while it is watched."""

    __slots__ = ("_refusals", "op_times", "refused", "watched")

    def __init__(self) -> None:
        #: None while no client watches.
        self.watched: OpTimes | None = None
        #: The same during a call that is counted, else None.
        self.op_times: OpTimes | None = None
        self.refused = 0  # commands and calls in all
        self._refusals: deque[LoggedRefusal] | None = None  # made with the first: most sessions have none

    @property
    def refusals(self) -> Sequence[LoggedRefusal]:
        """The last refusals, oldest first."""
        return () if self._refusals is None else list(self._refusals)

    def log(self, command: str, op: str, refusal: Refusal) -> None:
        """Log a refusal of a command or call."""
        if self._refusals is None:
            self._refusals = deque(maxlen=MAX_REFUSALS)
        self.refused += 1
        message = refusal.message[:MAX_MESSAGE]
        self._refusals.append(LoggedRefusal(int(time.time() * 1000), command, op, refusal.reason, message))

    def forget(self) -> None:
        """Forget the refusals: those of a replay are not of this time."""
        self.refused, self._refusals = 0, None

    def watch(self) -> OpTimes:
        """Begin to watch, or keep the watch alive."""
        if self.watched is None:
            self.watched = OpTimes()
        self.watched.ends = time.monotonic() + WATCH_SECONDS
        return self.watched

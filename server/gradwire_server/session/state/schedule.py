"""The schedule: a session's waiting calls and measured time, by which its worker shares out the compute thread."""

from collections import deque
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

C = TypeVar("C")


class SchedulingState(Generic[C]):
    """What the scheduler and the offloader know of one session. `C` is the type of its calls.

    Only worker/scheduler.py and worker/offload.py write it, on the thread that computes. The session's commands read
    `turn_ends`; a replay sets it. Times are those of time.monotonic().

    Invariants:

    - Only the first call of `queue` may have begun. Between slices no call is in `queue` and in `parked`.
    - A session with calls in `queue` is runnable, throttled, awaits a future, or computes. A session whose op is
      offloaded has no turn; `offloaded` is true until its slice ends.
    - `used` is between 0 and the scheduler's maximum. `credit` above 0 is what is left of the session's turn. Below 0
      it was taken from other sessions, and the session skips turns.
    """

    __slots__ = (
        "awaited",
        "credit",
        "idle_since",
        "offloaded",
        "parked",
        "queue",
        "throttled",
        "turn_ends",
        "used",
        "waited",
    )

    def __init__(self) -> None:
        self.queue: deque[C] = deque()  # calls that wait for their turn, in order
        self.parked: list[C] = []  # batches that arrived before their predecessor
        self.turn_ends = 0.0  # when the current slice ends
        self.used = 0.0  # seconds computed, less idle time at a rate
        self.idle_since = 0.0
        self.credit = 0.0  # seconds
        self.awaited: Future[Any] | None = None  # what its first call waits for, such as a store's answer
        self.throttled = False  # whether it waits for its compute quota
        self.offloaded = False  # whether an op of it was offloaded in the current slice
        self.waited = 0.0  # seconds of the slice in which it did not compute

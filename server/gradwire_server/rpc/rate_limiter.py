"""The rate limiter: calls of somebody who sends very many wait here, not in gRPC's queue before everybody else's.

gRPC hands calls over one by one in the order in which they came, from all connections, which is what takes longest:
with a thousand calls open on one, the next one of anybody stood behind a thousand. A caller may have some hundred
calls begun in a second as they come. What goes beyond that waits by caller, and some are begun, from each caller
in turn, whenever gRPC has nothing more to hand over. None waits for another to be answered.

Many calls in a second are no flood where each waits for the one before. How many a caller has open only shows while
they wait, since those in gRPC's queue cannot be seen. So the first one beyond the allowance waits, and if few others
of the caller came until gRPC had no more, a number of calls of his go in as they come, until one waits again.

A caller is a principal, on whatever connections: a gateway's users share one. Without principals it is a connection.
"""

import asyncio
from collections import OrderedDict, deque

BURST = 16  # calls of a caller that are begun at once, and of all that wait in one go
RATE = 500.0  # and so many in a second
FEW = 16  # calls open at once that are no flood
TRUSTED = 100  # calls that go in as they come, after so few were open
_FEW_OF_SOME = 4  # the same, where gRPC may have more
_QUIET_SECONDS = 0.0005  # between looks at whether calls came; if none did, gRPC's queue counts as empty
_QUIET_LOOKS = 2  # one after the other: the event loop may have been too busy to be handed any before the first
_MOST_KNOWN = 10_000  # callers, before those are forgotten that have made up for theirs
_MOST_LOOKS = 20  # before some calls are begun all the same


class RateLimiter:
    """What callers have begun lately. Of the event loop alone."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}  # by caller: when it will have made up for what it began
        self._trusted: dict[str, int] = {}  # by caller: how many more calls go in as they come
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._came = self._seen = self._looks = self._quiet = 0

    def enter(self, caller: str) -> "asyncio.Future[None] | None":
        """A call has come; what it is to wait for, if anything."""
        self._came += 1
        if caller not in self._waiting and self._allows(caller):
            return None
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(_QUIET_SECONDS, self._look)
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        return turn

    def _allows(self, caller: str) -> bool:
        """Whether a caller may begin another call at once; then it is counted."""
        left = self._trusted.get(caller, 0)
        if left:
            self._trusted[caller] = left - 1
            return True
        now = asyncio.get_running_loop().time()
        made_up = max(now, self._begun.get(caller, 0.0)) + 1 / RATE
        if made_up - now > BURST / RATE:
            return False
        if len(self._begun) >= _MOST_KNOWN:
            self._begun = {each: when for each, when in self._begun.items() if when > now}
        self._begun[caller] = made_up
        return True

    def _look(self) -> None:
        """Begin some calls, if no more came since the last look."""
        self._looks += 1
        self._quiet = self._quiet + 1 if self._seen == self._came else 0
        if self._quiet >= _QUIET_LOOKS or self._looks >= _MOST_LOOKS:
            self._trust(FEW if self._quiet >= _QUIET_LOOKS else _FEW_OF_SOME)
            self._looks = self._quiet = 0
            for _ in range(BURST):
                self._begin_one()
        self._seen = self._came
        if self._waiting:
            asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._look)

    def _trust(self, few: int) -> None:
        """Let the calls of those go in who have no more than a few open."""
        if len(self._trusted) >= _MOST_KNOWN:
            self._trusted.clear()
        for caller, line in self._waiting.items():
            if len(line) <= few:
                self._trusted[caller] = TRUSTED
            else:
                self._trusted.pop(caller, None)

    def _begin_one(self) -> None:
        while self._waiting:
            caller, line = self._waiting.popitem(last=False)
            turn = line.popleft()
            if line:
                self._waiting[caller] = line  # behind the others
            if not turn.done():  # else its client has gone
                turn.set_result(None)
                return

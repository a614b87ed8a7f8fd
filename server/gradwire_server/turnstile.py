"""The turnstile: calls of a connection that sends very many wait here, not in gRPC's queue before everybody else's.

gRPC hands calls over one by one in the order in which they came, from all connections, which is what takes longest:
with a thousand calls open on one, the next one of anybody stood behind a thousand. A connection may have some hundred
calls begun in a second as they come. What goes beyond that waits by connection, and some are begun, from each
connection in turn, whenever gRPC has nothing more to hand over. None waits for another to be answered.
"""

import asyncio
from collections import OrderedDict, deque

BURST = 16  # calls of a connection that are begun at once, and of all that wait in one go
RATE = 500.0  # and so many in a second
_QUIET_SECONDS = 0.0005  # between looks at whether calls came; if none did, gRPC's queue counts as empty
_QUIET_LOOKS = 2  # one after the other: the event loop may have been too busy to be handed any before the first
_MOST_KNOWN = 10_000  # connections, before those are forgotten that have made up for theirs
_MOST_LOOKS = 20  # before some calls are begun all the same


class Turnstile:
    """What connections have begun lately. Of the event loop alone."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}  # by connection: when it will have made up for what it began
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._came = self._seen = self._looks = self._quiet = 0

    def enter(self, peer: str) -> "asyncio.Future[None] | None":
        """A call has come; what it is to wait for, if anything."""
        self._came += 1
        loop = asyncio.get_running_loop()
        now = loop.time()
        made_up = max(now, self._begun.get(peer, 0.0)) + 1 / RATE
        if made_up - now <= BURST / RATE and peer not in self._waiting:
            if len(self._begun) >= _MOST_KNOWN:
                self._begun = {each: when for each, when in self._begun.items() if when > now}
            self._begun[peer] = made_up
            return None
        if not self._waiting:
            loop.call_later(_QUIET_SECONDS, self._look)
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(peer, deque()).append(turn)
        return turn

    def _look(self) -> None:
        """Begin some calls, if no more came since the last look."""
        self._looks += 1
        self._quiet = self._quiet + 1 if self._seen == self._came else 0
        if self._quiet >= _QUIET_LOOKS or self._looks >= _MOST_LOOKS:
            self._looks = self._quiet = 0
            for _ in range(BURST):
                self._begin_one()
        self._seen = self._came
        if self._waiting:
            asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._look)

    def _begin_one(self) -> None:
        while self._waiting:
            peer, line = self._waiting.popitem(last=False)
            turn = line.popleft()
            if line:
                self._waiting[peer] = line  # behind the others
            if not turn.done():  # else its client has gone
                turn.set_result(None)
                return

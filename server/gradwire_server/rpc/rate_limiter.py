"""Rate limiter: delays the calls of a flooding caller, so they do not delay other callers' calls in gRPC's queue.

gRPC delivers calls one by one, in order of arrival, from all connections. Delivery is the slowest step. With a
thousand calls open on one connection, the next call of any caller waited behind all of them. A caller may begin RATE
calls a second, and BURST at once, on arrival. Further calls wait in a queue per caller. When gRPC's queue is empty,
the limiter begins some of them, one caller after the other. No call waits for another call's answer.

Many sequential calls in a second are no flood. Calls in gRPC's queue cannot be counted, so a caller's open calls only
show while they wait. So the first call beyond the allowance waits. If few calls of the caller have arrived when
gRPC's queue is empty, its next TRUSTED calls begin on arrival. After that the allowance applies again.

A caller is a principal, over all its connections: a gateway's users share one. Without authentication, a caller is a
connection.
"""

import asyncio
from collections import OrderedDict, deque

BURST = 16  # a caller's calls that begin at once; also the waiting calls that one poll begins
RATE = 500.0  # calls of a caller per second beyond the burst
FEW = 16  # most waiting calls of a caller that are no flood
TRUSTED = 100  # calls that begin on arrival after few were waiting
_FEW_IF_BUSY = 4  # as FEW, if gRPC's queue may not be empty
_POLL_SECONDS = 0.0005  # between polls; if no calls came, gRPC's queue counts as empty
_IDLE_POLLS = 2  # consecutive: before the first one, the event loop may have been too busy to receive calls
_MAX_CALLERS = 10_000  # callers remembered; then those with a full allowance are forgotten
_MAX_POLLS = 20  # after which waiting calls begin although more still come


class RateLimiter:
    """Recent calls by caller. Used only on the event loop."""

    def __init__(self) -> None:
        self._full_at: dict[str, float] = {}  # by caller: when its allowance is full again
        self._trusted: dict[str, int] = {}  # by caller: how many more calls begin on arrival
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._arrived = self._seen = self._polls = self._idle_polls = 0

    def enter(self, caller: str) -> "asyncio.Future[None] | None":
        """Register a call. Returns the future it must await, or None if it may begin."""
        self._arrived += 1
        if caller not in self._waiting and self._allows(caller):
            return None
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(_POLL_SECONDS, self._poll)
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        return turn

    def _allows(self, caller: str) -> bool:
        """Whether a caller may begin another call at once; counts the call if so."""
        left = self._trusted.get(caller, 0)
        if left:
            self._trusted[caller] = left - 1
            return True
        now = asyncio.get_running_loop().time()
        full_at = max(now, self._full_at.get(caller, 0.0)) + 1 / RATE
        if full_at - now > BURST / RATE:
            return False
        if len(self._full_at) >= _MAX_CALLERS:
            self._full_at = {each: when for each, when in self._full_at.items() if when > now}
        self._full_at[caller] = full_at
        return True

    def _poll(self) -> None:
        """Begin some waiting calls, if no more came since the last poll."""
        self._polls += 1
        self._idle_polls = self._idle_polls + 1 if self._seen == self._arrived else 0
        if self._idle_polls >= _IDLE_POLLS or self._polls >= _MAX_POLLS:
            self._trust(FEW if self._idle_polls >= _IDLE_POLLS else _FEW_IF_BUSY)
            self._polls = self._idle_polls = 0
            for _ in range(BURST):
                self._begin_one()
        self._seen = self._arrived
        if self._waiting:
            asyncio.get_running_loop().call_later(_POLL_SECONDS, self._poll)

    def _trust(self, few: int) -> None:
        """Trust the callers with at most `few` waiting calls."""
        if len(self._trusted) >= _MAX_CALLERS:
            self._trusted.clear()
        for caller, queue in self._waiting.items():
            if len(queue) <= few:
                self._trusted[caller] = TRUSTED
            else:
                self._trusted.pop(caller, None)

    def _begin_one(self) -> None:
        while self._waiting:
            caller, queue = self._waiting.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._waiting[caller] = queue  # to the end of the round
            if not turn.done():  # else its client cancelled it
                turn.set_result(None)
                return

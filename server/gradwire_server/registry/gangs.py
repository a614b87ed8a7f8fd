"""Gangs: sessions that a cluster places together. Counts those that were opened here, for the cluster's Director.

A Director reserves places for those that are missing. So one that was started again needs to know the others. `clock`
counts seconds.
"""

import hashlib
import itertools
import json
import time
from collections import OrderedDict
from collections.abc import Callable

from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal

#: Seconds for which a gang is reported after its newest session was opened. Sessions may ask so late.
REPORTED_SECONDS = 600.0
#: Gangs in one report, the newest ones. A report is made several times per second.
MOST_REPORTED = 1000
_LARGEST, _LONGEST_NAME = 1024, 256
_KEY_LENGTH = 24


def gang_of(request: service_pb2.OpenSessionRequest, principal: str) -> tuple[str, int]:
    """What names the gang of a new session in the cluster, and its size; "" and 0 for none.

    Principals' gangs are apart, whatever their names contain. Raises Refusal: ARGUMENT_VALUE.
    """
    if not request.gang:
        return "", 0
    if len(request.gang) > _LONGEST_NAME or not 1 <= request.gang_size <= _LARGEST:
        raise Refusal(
            "ARGUMENT_VALUE",
            f"a gang has 1 to {_LARGEST} sessions and a name of at most {_LONGEST_NAME} characters",
        )
    key = hashlib.sha256(json.dumps([principal, request.gang]).encode()).hexdigest()[:_KEY_LENGTH]
    return key, request.gang_size


class Gangs:
    """The gangs with sessions here, and the places that the cluster reserves for others."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: OrderedDict[str, tuple[int, float]] = OrderedDict()  # sessions, when one was opened last; by that
        #: By principal and gang: reserved places of the cluster, as they were told.
        self.reserved: dict[str, dict[str, int]] = {}

    def opened(self, gang: str, principal: str) -> None:
        """Count a new session."""
        count, _ = self._open.pop(gang, (0, 0.0))
        self._open[gang] = count + 1, self._clock()
        reserved = self.reserved.get(principal, {})
        if reserved.get(gang):
            reserved[gang] -= 1  # the place that it has taken

    def ended(self, gang: str) -> None:
        """Count a session no more."""
        count, at = self._open[gang]
        if count == 1:
            del self._open[gang]
        else:
            self._open[gang] = count - 1, at

    def clear(self) -> None:
        """Count no sessions, as the server ends."""
        self._open.clear()

    def reserved_for_others(self, principal: str, gang: str) -> int:
        """Places that are reserved for a principal's gangs besides one."""
        return sum(count for each, count in self.reserved.get(principal, {}).items() if each != gang)

    def report(self) -> dict[str, int]:
        """The sessions of gangs that were opened lately."""
        since = self._clock() - REPORTED_SECONDS
        newest = itertools.takewhile(lambda each: each[1][1] >= since, reversed(self._open.items()))
        return {gang: count for gang, (count, _) in itertools.islice(newest, MOST_REPORTED)}

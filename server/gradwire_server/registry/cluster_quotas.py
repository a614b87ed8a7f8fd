"""Quotas in a cluster: what each principal's sessions hold at the other servers counts against its limits here.

Each server reports its principals' totals with its load, and is told the sums of the other servers. So a limit holds
over all servers, except for what is allocated between two reports. Without answers, the last sums hold for a minute.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradwire_server.common.shared_counters import PrincipalTotals, SharedCounters
from gradwire_server.registry.principal_rows import PrincipalRows
from gradwire_server.registry.session_registry import SessionRegistry
from gradwire_server.worker_pool.worker import Worker

#: Seconds for which sums hold that nothing confirms. Then each server's sessions count alone.
HELD_SECONDS = 60.0
#: Seconds for which a principal's sessions elsewhere are not counted, after one of them was taken over from a server
#: that may still be counted: longer than a silent server is (cluster/placement.py), and two reports.
TAKEN_OVER_SECONDS = 5.0
_FIELDS = 5  # of what is told of a principal


class ClusterQuotas:
    """Exchanges what principals hold. `clock` counts seconds."""

    def __init__(
        self,
        counters: SharedCounters,
        rows: PrincipalRows,
        registry: SessionRegistry[Worker],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._counters = counters
        self._rows = rows
        self._registry = registry
        self._clock = clock
        self._computed: dict[str, int] = {}  # by principal, the microseconds elsewhere that were told last
        self._taken_over: dict[str, float] = {}  # by principal, until when its sessions elsewhere are not counted
        self._told = clock()

    def here(self) -> dict[str, list[int]]:
        """By principal: sessions, then the fields of PrincipalTotals, at this server. Empty without limits."""
        self._expire()
        if not (self._rows.wanted or self._registry.limits.max_principal_sessions):
            return {}
        totals = {name: self._counters.share_here(row) for name, row in self._rows.items()}
        found = self._registry.sessions_by_principal()
        return {name: [count, *totals.get(name, PrincipalTotals())] for name, count in found.items()}

    def take(self, elsewhere: Mapping[str, Sequence[Any]]) -> None:
        """Count what the other servers hold, by principal as in `here`. Principals that are left out hold nothing.

        The reserved places of a principal's gangs may follow, by gang.
        """
        self._registry.gangs.reserved = {name: told[_FIELDS] for name, told in elsewhere.items() if told[_FIELDS:]}
        elsewhere = {name: told[:_FIELDS] for name, told in elsewhere.items()}
        now = self._told = self._clock()
        self._taken_over = {name: until for name, until in self._taken_over.items() if until > now}
        counted = {name: told for name, told in elsewhere.items() if name not in self._taken_over}
        self._registry.elsewhere = {name: told[0] for name, told in counted.items()}
        for name, row in self._rows.items():
            computed = elsewhere[name][-1] if name in elsewhere else 0
            # Only the growth since the last sum: the servers that are counted change, and budgets compare totals.
            grown = max(0, computed - self._computed.get(name, computed))
            _, held, tensors, programs, _ = counted.get(name, (0,) * 5)
            total = self._counters.elsewhere(row).computed + grown
            self._counters.set_elsewhere(row, PrincipalTotals(held, tensors, programs, total))
        self._computed = {name: told[-1] for name, told in elsewhere.items()}

    def took_over(self, principal: str) -> None:
        """Count only this server's sessions of a principal for a while: the others' sums may contain a moved one."""
        self._taken_over[principal] = self._clock() + TAKEN_OVER_SECONDS
        self._registry.elsewhere.pop(principal, None)
        for name, row in self._rows.items():
            if name == principal:
                self._counters.set_elsewhere(row, PrincipalTotals(computed=self._counters.elsewhere(row).computed))

    def _expire(self) -> None:
        if self._clock() - self._told > HELD_SECONDS:
            self.take({})

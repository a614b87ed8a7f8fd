"""Usage: what each principal's sessions hold on each node, and for each node the sum of the others. Knows no Ray."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from gradwire_server.cluster.placement import SILENT_SECONDS


class Usage:
    """Totals by node and principal: sessions, bytes, tensors, programs, microseconds computed. `clock` counts seconds.

    What a silent node holds is not counted: its sessions continue at others. Computed time is the growth between a
    node's reports, so that it never falls, whatever nodes come and go.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reported: dict[str, float] = {}  # by node
        self._by_principal: dict[str, dict[str, list[int]]] = {}  # then by node
        self._computed: Counter[str] = Counter()  # by principal, over all nodes
        self._grown: dict[str, Counter[str]] = {}  # by node, then by principal: its part of `_computed`

    def report(self, node: str, totals: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
        """Take a node's totals by principal over. Returns the sums of the other nodes for these principals."""
        self._reported[node] = self._clock()
        grown = self._grown.setdefault(node, Counter())
        for principal, told in totals.items():
            before = self._by_principal.setdefault(principal, {}).get(node)
            # A principal's first report is where its growth begins; a server that was started again begins at 0.
            growth = 0 if before is None else told[-1] - before[-1] if told[-1] >= before[-1] else told[-1]
            self._computed[principal] += growth
            grown[principal] += growth
            self._by_principal[principal][node] = list(told)
        for principal in [name for name in grown if name not in totals]:
            self._forget(node, principal)
        return {principal: self._elsewhere(node, principal) for principal in totals}

    def sessions(self, principal: str) -> int:
        """A principal's sessions on all nodes."""
        since = self._clock() - SILENT_SECONDS
        nodes = self._by_principal.get(principal, {})
        return sum(told[0] for node, told in nodes.items() if self._reported[node] >= since)

    def remove(self, node: str) -> None:
        """Forget a node that has ended."""
        self._reported.pop(node, None)
        for principal in list(self._grown.get(node, ())):
            self._forget(node, principal)
        self._grown.pop(node, None)

    def _forget(self, node: str, principal: str) -> None:
        del self._grown[node][principal]
        nodes = self._by_principal[principal]
        del nodes[node]
        if not nodes:
            del self._by_principal[principal], self._computed[principal]

    def _elsewhere(self, node: str, principal: str) -> list[int]:
        since = self._clock() - SILENT_SECONDS
        found = [
            told
            for each, told in self._by_principal[principal].items()
            if each != node and self._reported[each] >= since
        ]
        held = [sum(column) for column in zip(*(told[:-1] for told in found), strict=True)] or [0, 0, 0, 0]
        return [*held, self._computed[principal] - self._grown[node][principal]]

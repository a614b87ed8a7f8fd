"""Placement: which node opens a new session. Knows what nodes reported, and no Ray. `clock` counts seconds.

A gang's sessions get their places at once, when the first of them asks. These are reserved until all have asked, but
not longer than some seconds. Sessions that ask later get places anew.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

#: Seconds after which a node that does not report gets no sessions.
SILENT_SECONDS = 3.0
# Seconds within which a placed session is in its node's reports.
_PLACED_SECONDS = 2.0
_RESERVED_SECONDS = 30.0  # for a gang's sessions to ask
_LATE_SECONDS = 600.0  # for a gang's other sessions, if some have asked in time
_MOST_GANGS = 10_000  # with reserved places at once, or with late sessions
_FULL = 0.9  # share of a node's bytes from which on others are preferred


@dataclass(frozen=True)
class Load:
    """What a node reports. `workers` are its cores, or its GPUs; `draining` nodes get no sessions."""

    sessions: int = 0
    workers: int = 1
    gpus: int = 0
    bytes: int = 0
    max_bytes: int = 0
    draining: bool = False
    device_types: tuple[str, ...] = ("cpu",)
    version: str = ""
    metrics: str = ""  # address of its metrics; "" if it serves none
    max_sessions: int = 0  # 0 is not known
    opened: int = 0  # sessions since the server began

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Load:
        """A report of a node, which may be of another version: fields that are not known here are left out."""
        known = {name: told[name] for name in (each.name for each in fields(cls)) if name in told}
        return cls(**{**known, "device_types": tuple(told.get("device_types", ("cpu",)))})

    @property
    def used(self) -> float:
        """Share of its bytes that sessions hold."""
        return self.bytes / self.max_bytes if self.max_bytes else 0.0


@dataclass
class _Node:
    load: Load
    reported: float
    placed: list[float] = field(default_factory=list)  # when sessions were placed that no report counts yet


class NoRoom(Exception):
    """A gang has more sessions than the nodes have room for."""


@dataclass
class _Gang:
    places: list[str]  # endpoints that none of its sessions was sent to yet
    until: float


@dataclass(frozen=True)
class _Late:
    count: int  # sessions of a gang that did not ask in time
    until: float


class Placement:
    """The nodes by endpoint."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._nodes: dict[str, _Node] = {}
        self._gangs: dict[str, _Gang] = {}  # the one that expires first is first
        self._late: dict[str, _Late] = {}  # the same
        self._reserved: Counter[str] = Counter()  # gangs' places, by endpoint

    def report(self, endpoint: str, load: Load) -> None:
        """Take a node's load over."""
        now = self._clock()
        node = self._nodes.setdefault(endpoint, _Node(load, now))
        # Placed sessions that the node has opened since are in its load.
        del node.placed[: max(0, load.opened - node.load.opened)]
        node.load, node.reported = load, now

    def remove(self, endpoint: str) -> None:
        """Forget a node that has ended."""
        self._nodes.pop(endpoint, None)

    def choose(self, asking: str, device_type: str = "") -> str:
        """Endpoint of the node with the most room; "" if none is known. Between equals the asking node wins.

        Room is sessions per worker. Nodes whose bytes are nearly used come last. With `device_type`, only nodes with
        such a device are considered; for "cpu", nodes without other devices come first.
        """
        now = self._clock()
        self._expire(now)
        chosen = self._emptiest(self._ready(now, device_type), now, asking, device_type)
        if chosen:
            self._nodes[chosen].placed.append(now)
        return chosen

    def choose_for_gang(self, asking: str, device_type: str, gang: str, size: int) -> str:
        """Endpoint for one of a gang's `size` sessions; "" if no node is known. Raises NoRoom if not all have room.

        Places are spread as by `choose`. A node that is lost meanwhile is replaced by another one. Sessions beyond
        `size`, such as those of repeated calls, are placed as any session.
        """
        now = self._clock()
        self._expire(now)
        if gang not in self._gangs:
            if not self._ready(now, device_type):
                return ""
            late = self._late.get(gang)
            self._reserve(now, asking, device_type, gang, size if late is None else late.count)
        places = self._gangs[gang].places
        if not places:
            return self.choose(asking, device_type)
        taken = places.pop(0)
        self._reserved[taken] -= 1
        if taken not in self._ready(now, device_type):
            taken = self._emptiest(self._with_room(now, device_type), now, asking, device_type)
            if not taken:
                raise NoRoom("a node was lost on which the gang had places, and no other node has room")
        self._nodes[taken].placed.append(now)
        return taken

    def _reserve(self, now: float, asking: str, device_type: str, gang: str, size: int) -> None:
        """Reserve places for a gang. Raises NoRoom, and reserves nothing then."""
        if len(self._gangs) >= _MOST_GANGS:
            raise NoRoom(f"{_MOST_GANGS} gangs are being placed, the limit")
        nodes = self._with_room(now, device_type)
        heap = [(self._crowded(endpoint, now, asking, device_type), endpoint) for endpoint in nodes]
        heapq.heapify(heap)
        places: list[str] = []
        while len(places) < size:
            if not heap:
                self._reserved -= Counter(places)
                raise NoRoom(f"the nodes have room for {len(places)} of the gang's {size} sessions")
            place = heap[0][1]
            self._reserved[place] += 1
            places.append(place)
            if self._has_room(place, now):
                heapq.heapreplace(heap, (self._crowded(place, now, asking, device_type), place))
            else:
                heapq.heappop(heap)
        self._late.pop(gang, None)
        # Neighbours are at the same node where that is possible: collectives send to neighbours.
        self._gangs[gang] = _Gang(sorted(places, key=lambda place: (place != asking, place)), now + _RESERVED_SECONDS)

    def _expire(self, now: float) -> None:
        """Free the places of gangs whose sessions do not ask."""
        while self._gangs and next(iter(self._gangs.values())).until < now:
            name = next(iter(self._gangs))
            places = self._gangs.pop(name).places
            self._reserved -= Counter(places)
            if places:
                self._late[name] = _Late(len(places), now + _LATE_SECONDS)
        while self._late and (len(self._late) > _MOST_GANGS or next(iter(self._late.values())).until < now):
            del self._late[next(iter(self._late))]

    def _ready(self, now: float, device_type: str) -> dict[str, _Node]:
        return {
            endpoint: node
            for endpoint, node in self._nodes.items()
            if not node.load.draining
            and now - node.reported <= SILENT_SECONDS
            and (not device_type or device_type in node.load.device_types)
        }

    def _with_room(self, now: float, device_type: str) -> dict[str, _Node]:
        """The nodes that may open one more session of a gang."""
        ready = self._ready(now, device_type)
        return {endpoint: node for endpoint, node in ready.items() if self._has_room(endpoint, now)}

    def _has_room(self, endpoint: str, now: float) -> bool:
        load = self._nodes[endpoint].load
        return load.used < _FULL and (not load.max_sessions or self._sessions(endpoint, now) < load.max_sessions)

    def _sessions(self, endpoint: str, now: float) -> int:
        """Sessions of a node, with those that no report counts yet and those that gangs will open."""
        node = self._nodes[endpoint]
        node.placed = [at for at in node.placed if now - at <= _PLACED_SECONDS]
        return node.load.sessions + len(node.placed) + self._reserved[endpoint]

    def _emptiest(self, among: Mapping[str, _Node], now: float, asking: str, device_type: str) -> str:
        return min(among, key=lambda each: self._crowded(each, now, asking, device_type), default="")

    def _crowded(
        self, endpoint: str, now: float, asking: str, device_type: str
    ) -> tuple[bool, bool, float, float, bool]:
        """Orders nodes: a session is placed at the one with the least."""
        load = self._nodes[endpoint].load
        sessions = self._sessions(endpoint, now) / max(1, load.workers)
        scarce = device_type == "cpu" and len(load.device_types) > 1
        return load.used >= _FULL, scarce, sessions, load.used, endpoint != asking

    def nodes(self) -> dict[str, tuple[Load, float]]:
        """Each node's load, and the seconds since its report."""
        now = self._clock()
        return {endpoint: (node.load, now - node.reported) for endpoint, node in sorted(self._nodes.items())}

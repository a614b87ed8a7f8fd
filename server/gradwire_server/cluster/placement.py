"""Placement: which node opens a new session. Knows what nodes reported, and no Ray. `clock` counts seconds.

A gang's sessions get their places at once, when the first of them asks. These are reserved until all have asked, but
not longer than some seconds. Nodes report the gangs' sessions that they opened. So places are reserved for the others
only, if sessions ask later, or another Director asks itself what its predecessor did.
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
_LEARNING_SECONDS = 1.0  # until all nodes have reported to a new Director
_RESERVED_SECONDS = 30.0  # for a gang's sessions to ask
_MOST_GANGS = 10_000  # that are being opened
_MOST_GANGS_OF_ONE = 1_000  # of one principal
_MOST_PLACES_OF_ONE = 2_048  # reserved places of one principal, twice the largest gang
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
    gangs: Mapping[str, int] = field(default_factory=dict)  # sessions of gangs that were opened some minutes ago
    max_principal_sessions: int = 0  # over all nodes; 0 is no limit

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


class Learning(Exception):
    """This is a new Director, to which not all nodes have reported yet."""


@dataclass
class _Gang:
    places: list[str]  # endpoints that none of its sessions was sent to yet
    until: float
    principal: str


class Placement:
    """The nodes by endpoint."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._nodes: dict[str, _Node] = {}
        self._gangs: dict[str, _Gang] = {}  # the one that expires first is first
        self._of_principal: dict[str, dict[str, _Gang]] = {}  # the same, by principal
        self._began = clock()
        self._reserved: Counter[str] = Counter()  # gangs' places, by endpoint

    def report(self, endpoint: str, load: Load) -> None:
        """Take a node's load over."""
        now = self._clock()
        node = self._nodes.setdefault(endpoint, _Node(load, now))
        # Placed sessions that the node has opened since are in its load.
        del node.placed[: max(0, load.opened - node.load.opened)]
        node.load, node.reported = load, now

    def load(self, endpoint: str) -> Load | None:
        """What a node last reported; None if it is not known."""
        node = self._nodes.get(endpoint)
        return None if node is None else node.load

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

    def choose_for_gang(
        self, asking: str, device_type: str, gang: str, size: int, principal: str = "", room: int | None = None
    ) -> str:
        """Endpoint for one of a gang's `size` sessions; "" if no node is known.

        Places are spread as by `choose`. A node that is lost meanwhile is replaced by another one. Sessions beyond
        `size`, such as those of repeated calls, are placed as any session. `room` is how many more sessions the
        principal may have, if it has a limit. Raises NoRoom if not all have room, and Learning.
        """
        now = self._clock()
        self._expire(now)
        if gang not in self._gangs:
            ready = self._ready(now, device_type)
            if not ready:
                return ""
            if now - self._began < _LEARNING_SECONDS:
                raise Learning
            opened = sum(node.load.gangs.get(gang, 0) for node in self._ready(now, "", draining=True).values())
            self._check_principal(principal, max(0, size - opened), room)
            self._reserve(now, asking, device_type, _Gang([], now + _RESERVED_SECONDS, principal), gang, size - opened)
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

    def reserved(self, principal: str) -> dict[str, int]:
        """The reserved places of a principal's gangs, by gang."""
        gangs = self._of_principal.get(principal, {})
        return {name: len(gang.places) for name, gang in gangs.items() if gang.places}

    def _check_principal(self, principal: str, size: int, room: int | None) -> None:
        """Check that a principal may reserve `size` places. Raises NoRoom."""
        if len(self._of_principal.get(principal, ())) >= _MOST_GANGS_OF_ONE:
            raise NoRoom(f"the principal opens {_MOST_GANGS_OF_ONE} gangs already, the limit")
        held = sum(self.reserved(principal).values())
        most = _MOST_PLACES_OF_ONE if room is None else min(room, _MOST_PLACES_OF_ONE)
        if held + size > most:
            may = f"its limit of sessions leaves {max(0, room)}" if room == most else f"the limit is {most}"
            raise NoRoom(
                f"the gang needs {size} places, {held} are reserved for other gangs of the same principal, and {may}"
            )

    def _reserve(self, now: float, asking: str, device_type: str, gang: _Gang, name: str, size: int) -> None:
        """Reserve `size` places for a gang. Raises NoRoom, and reserves nothing then."""
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
        # Neighbours are at the same node where that is possible: collectives send to neighbours.
        gang.places = sorted(places, key=lambda place: (place != asking, place))
        self._gangs[name] = self._of_principal.setdefault(gang.principal, {})[name] = gang

    def _expire(self, now: float) -> None:
        """Free the places of gangs whose sessions do not ask."""
        while self._gangs and next(iter(self._gangs.values())).until < now:
            name = next(iter(self._gangs))
            gang = self._gangs.pop(name)
            self._reserved -= Counter(gang.places)
            others = self._of_principal[gang.principal]
            del others[name]
            if not others:
                del self._of_principal[gang.principal]

    def _ready(self, now: float, device_type: str, draining: bool = False) -> dict[str, _Node]:
        """The nodes that report and have such a device; with `draining` also those that get no sessions."""
        return {
            endpoint: node
            for endpoint, node in self._nodes.items()
            if (draining or not node.load.draining)
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

"""Placement: which node opens a new session. Knows what nodes reported, and no Ray. `clock` counts seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

#: Seconds after which a node that does not report gets no sessions.
SILENT_SECONDS = 3.0
# Seconds within which a placed session is in its node's reports.
_PLACED_SECONDS = 2.0
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


class Placement:
    """The nodes by endpoint."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._nodes: dict[str, _Node] = {}

    def report(self, endpoint: str, load: Load) -> None:
        """Take a node's load over."""
        now = self._clock()
        node = self._nodes.setdefault(endpoint, _Node(load, now))
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
        ready = {
            endpoint: node
            for endpoint, node in self._nodes.items()
            if not node.load.draining
            and now - node.reported <= SILENT_SECONDS
            and (not device_type or device_type in node.load.device_types)
        }
        if not ready:
            return ""

        def crowded(endpoint: str) -> tuple[bool, bool, float, float, bool]:
            node = ready[endpoint]
            node.placed = [at for at in node.placed if now - at <= _PLACED_SECONDS]
            sessions = (node.load.sessions + len(node.placed)) / max(1, node.load.workers)
            scarce = device_type == "cpu" and len(node.load.device_types) > 1
            return node.load.used >= _FULL, scarce, sessions, node.load.used, endpoint != asking

        chosen = min(ready, key=crowded)
        ready[chosen].placed.append(now)
        return chosen

    def nodes(self) -> dict[str, tuple[Load, float]]:
        """Each node's load, and the seconds since its report."""
        now = self._clock()
        return {endpoint: (node.load, now - node.reported) for endpoint, node in sorted(self._nodes.items())}

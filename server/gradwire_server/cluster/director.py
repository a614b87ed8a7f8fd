"""Director: the actor that knows all nodes and places new sessions.

Nodes report to it several times per second. So a Director that Ray started again knows them after its first reports.
Nothing of it is stored. Data never passes through it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from gradwire_server.cluster.placement import Learning, Load, NoRoom, Placement
from gradwire_server.cluster.ray_process import NAMESPACE
from gradwire_server.cluster.usage import Usage

NAME = "director"


class Director:
    """A Ray actor; `director` makes it or finds it."""

    def __init__(self) -> None:
        self._placement = Placement()
        self._usage = Usage()

    def report(
        self, endpoint: str, load: dict[str, Any], usage: Mapping[str, Sequence[int]] | None = None
    ) -> dict[str, list[Any]]:
        """Take a node's load over, and what its principals hold.

        Returns what they hold on other nodes, each with the reserved places of its gangs, if the node knows of these.
        """
        self._placement.report(endpoint, Load.of(load))
        elsewhere: dict[str, list[Any]] = dict(self._usage.report(endpoint, usage or {}))
        if "gangs" in load:
            for principal, held in elsewhere.items():
                held.append(self._placement.reserved(principal))
        return elsewhere

    def place(self, asking: str, device_type: str = "") -> str:
        """Endpoint of the node for a new session; "" if none is known that has such a device."""
        return self._placement.choose(asking, device_type)

    def place_in_gang(self, asking: str, device_type: str, gang: str, size: int) -> tuple[str | None, str]:
        """Endpoint of the node for one of a gang's sessions, and why it is refused: "" if it is not.

        `gang` is JSON: the principal and the gang's name. None for the endpoint: ask again soon.
        """
        principal, name = json.loads(gang)
        load = self._placement.load(asking)
        most = 0 if load is None or not principal else load.max_principal_sessions
        room = most - self._usage.sessions(principal) if most else None
        try:
            return self._placement.choose_for_gang(asking, device_type, name, size, principal, room), ""
        except Learning:
            return None, ""
        except NoRoom as error:
            return "", str(error)

    def remove(self, endpoint: str) -> None:
        """Forget a node that has ended."""
        self._placement.remove(endpoint)
        self._usage.remove(endpoint)

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Each node's load without its gangs, and "silent": the seconds since its report."""
        found = self._placement.nodes()
        return {
            endpoint: {**asdict(replace(load, gangs={})), "silent": silent}
            for endpoint, (load, silent) in found.items()
        }


def director() -> Any:
    """The cluster's Director. Needs a connection to Ray."""
    import ray

    options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 0, "lifetime": "detached", "get_if_exists": True}
    return ray.remote(Director).options(name=NAME, namespace=NAMESPACE, **options).remote()

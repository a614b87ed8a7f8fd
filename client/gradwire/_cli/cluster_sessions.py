"""Sessions of all nodes of a cluster: asks each node that the first server names, with the user's own credentials."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from gradwire._base.errors import GradwireError
from gradwire._cli.admin import credentials_for, listed
from gradwire._transport.transport import Transport
from gradwire.v1 import service_pb2

#: Milliseconds without a report, after which a node gets no sessions, and is not asked.
SILENT_MS = 3000
_ANSWER_SECONDS = 3.0  # for a node besides the first
_MOST_ASKED = 32  # nodes at once


@dataclass
class Sessions:
    """Sessions by endpoint of their node, "" without a cluster, and number. `missed`: why a node's are not known."""

    sessions: dict[tuple[str, int], service_pb2.SessionSummary] = field(default_factory=dict)
    nodes: Sequence[service_pb2.ClusterNode] = ()
    missed: dict[str, str] = field(default_factory=dict)


class ClusterSessions:
    """The server that the user named, and connections to the nodes that it names."""

    def __init__(self, address: str, transport: Transport, options: argparse.Namespace) -> None:
        """`options` are those of admin.add_server. `transport` is closed by `close`."""
        self._address = address
        self._transport = transport
        self._options = options
        self._nodes: dict[str, Transport] = {}

    def query(self, principal: str = "", stored: bool = False) -> Sessions:
        """The sessions of all nodes. Raises GradwireError if the first server does not answer."""
        nodes: list[service_pb2.ClusterNode] = []
        here = list(listed(self._transport, principal, stored, nodes))
        found = Sessions(nodes=nodes)
        if not nodes:
            found.sessions = {("", each.number): each for each in here}
            return found

        def ask(node: service_pb2.ClusterNode) -> list[service_pb2.SessionSummary] | str:
            if node.endpoint == self._address:
                return here
            if node.silent_ms >= SILENT_MS:
                return "it is silent"
            try:
                transport = self._reach(node.endpoint)
                return list(listed(transport, principal, stored, timeout=_ANSWER_SECONDS, waits=()))
            except (GradwireError, OSError, ValueError) as error:
                return str(error)

        with ThreadPoolExecutor(min(len(nodes), _MOST_ASKED)) as pool:
            answers = list(pool.map(ask, nodes))
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, str):
                found.missed[node.endpoint] = answer
            else:
                found.sessions.update(((node.endpoint, each.number), each) for each in answer)
        return found

    def _reach(self, endpoint: str) -> Transport:
        """The transport to a node. With TLS it must prove the first server's name. Raises OSError, ValueError."""
        made = self._nodes.get(endpoint)
        if made is None:
            # A secret of the first server's owner is for that server only: each node has its own.
            address, credentials = credentials_for(endpoint, self._options)
            made = Transport(self._address if credentials.tls else address, credentials)
            if credentials.tls:
                made.servers.move(self._address, endpoint)
            self._nodes[endpoint] = made
        return made

    def close(self) -> None:
        """Close all connections."""
        for each in (self._transport, *self._nodes.values()):
            each.close()

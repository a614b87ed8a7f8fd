"""Nodes: fetches the reverse graph from the server, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradwire._proxy.handle import Handle
from gradwire.v1 import commands_pb2, service_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol

_MOST_NODES = 20_000


def fetch_nodes(
    session: SessionProtocol, tensors: Sequence[Handle], with_saved: bool = False
) -> tuple[list[int], list[commands_pb2.GraphNode]]:
    """The node ids of the tensors (0 for none), and the nodes behind them. Stops above 20,000 nodes."""
    nodes: list[commands_pb2.GraphNode] = []
    token = ""
    while True:
        request = commands_pb2.GraphRequest(
            tensors=[each._id for each in tensors], page_token=token, with_saved=with_saved
        )
        page = session.wait(service_pb2.Command(graph=request)).graph
        nodes.extend(page.nodes)
        token = page.next_page_token
        if not token or len(nodes) > _MOST_NODES:
            return list(page.roots), nodes

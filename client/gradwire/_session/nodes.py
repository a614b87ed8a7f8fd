"""The nodes of the reverse graph as the server tells them, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradwire._proxy.handle import Handle
from gradwire.v1 import commands_pb2, service_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import Session

_MOST_NODES = 20_000


def fetch_nodes(
    session: Session, tensors: Sequence[Handle], with_saved: bool = False
) -> tuple[list[int], list[commands_pb2.GraphNode]]:
    """The numbers of the tensors' nodes, 0 for one without, and the graph behind them, up to a limit of nodes."""
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

"""Graph walks: list the reverse graph behind tensors, nearest nodes first, which a client reads in pages.

The first page walks the graph once and keeps weak references. So later pages need no new walk and keep no node alive;
nodes that were freed meanwhile are left out.
"""

import re
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from gradwire_engine import Tensor
from gradwire_engine.graph.graph import AccumulateGrad, Node
from gradwire_server.common.errors import Refusal

AnyNode: TypeAlias = "Node | AccumulateGrad"
MAX_GRAPH_WALKS = 4
_DIGITS = re.compile(r"[0-9]{1,18}").fullmatch
_LEAF_IDS = 1 << 52  # above all op nodes' numbers, and exact as a JavaScript number


@dataclass
class GraphWalk:
    """A walk's nodes, in order, and the roots' ids."""

    nodes: "list[weakref.ref[AnyNode]]"
    roots: list[int]


class GraphWalks:
    """A session's walks that clients read in pages, and the numbers of leaf nodes."""

    def __init__(self) -> None:
        self.held: OrderedDict[str, GraphWalk] = OrderedDict()
        self.next_number = 1  # of a leaf's node or a walk
        self.leaf_ids: weakref.WeakKeyDictionary[AccumulateGrad, int] = weakref.WeakKeyDictionary()

    def node_id(self, node: AnyNode) -> int:
        """Number of a node, constant during its life."""
        if isinstance(node, Node):
            return node.seq + 1
        found = self.leaf_ids.get(node)
        if found is None:
            found = self.leaf_ids[node] = _LEAF_IDS + self._number()
        return found

    def _number(self) -> int:
        self.next_number += 1
        return self.next_number - 1

    def take(self, tensors: Iterable[Tensor]) -> tuple[str, GraphWalk]:
        """Walk the graph behind tensors; over MAX_SNAPSHOTS, drop the oldest walk."""
        starts = [tensor.grad_fn for tensor in tensors]
        roots = [0 if node is None else self.node_id(node) for node in starts]
        nodes = [weakref.ref(node) for node in _breadth_first([node for node in starts if node is not None])]
        key = str(self._number())
        self.held[key] = walk = GraphWalk(nodes, roots)
        if len(self.held) > MAX_GRAPH_WALKS:
            self.held.popitem(last=False)
        return key, walk

    def find(self, token: str) -> tuple[str, GraphWalk, int]:
        """Key, walk and position of a page token. Raises Refusal: ARGUMENT_VALUE."""
        key, _, position = token.partition(".")
        walk = self.held.get(key)
        if walk is None or not _DIGITS(position) or int(position) > len(walk.nodes):
            raise Refusal(
                "ARGUMENT_VALUE", "the page token is not of this session, or too old; ask for the first page again",
                argument="page_token",
            )  # fmt: skip
        return key, walk, int(position)

    def clear(self) -> None:
        """Forget the walks."""
        self.held.clear()


def _breadth_first(starts: list[AnyNode]) -> list[AnyNode]:
    found = dict.fromkeys(starts)
    order = list(found)
    for node in order:  # grows while it is walked
        for edge in node.edges:
            if edge is not None and edge[0] not in found:
                found[edge[0]] = None
                order.append(edge[0])
    return order

"""The Graph command: the reverse graph behind tensors, nearest nodes first, a page at a time.

The first page walks the graph once and keeps a list of weak references, so that paging neither walks again
nor keeps alive what the client meanwhile drops; nodes that are gone by then are left out.
"""

import re
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from gradwire.v1 import commands_pb2
from gradwire_engine.graph.graph import AccumulateGrad, Node
from gradwire_server.common.errors import Refusal
from gradwire_server.common.payload import TO_WIRE
from gradwire_server.session.specs import fill_spec

if TYPE_CHECKING:
    from gradwire_engine import Tensor
    from gradwire_server.session.session import Session

AnyNode: TypeAlias = "Node | AccumulateGrad"
DEFAULT_PAGE = 1000
MAX_PAGE = 10_000
MAX_SNAPSHOTS = 4
_DIGITS = re.compile(r"[0-9]{1,18}").fullmatch
_LEAF_IDS = 1 << 52  # above any op's number, below what a JavaScript number holds


@dataclass
class Snapshot:
    """A walk's nodes, in order, and the roots' ids."""

    nodes: "list[weakref.ref[AnyNode]]"
    roots: list[int]


class Snapshots:
    """A session's walks that a client is paging through, and the numbers of its leaves' nodes."""

    def __init__(self) -> None:
        self.held: OrderedDict[str, Snapshot] = OrderedDict()
        self.next_number = 1  # of a leaf's node or a walk
        self.leaf_ids: weakref.WeakKeyDictionary[AccumulateGrad, int] = weakref.WeakKeyDictionary()

    def node_id(self, node: AnyNode) -> int:
        """A number that names a node as long as it lives."""
        if isinstance(node, Node):
            return node.seq + 1
        found = self.leaf_ids.get(node)
        if found is None:
            found = self.leaf_ids[node] = _LEAF_IDS + self._number()
        return found

    def _number(self) -> int:
        self.next_number += 1
        return self.next_number - 1

    def take(self, tensors: "Iterable[Tensor]") -> tuple[str, Snapshot]:
        """Walk the graph behind tensors; the oldest walk that is still held makes room."""
        starts = [tensor.grad_fn for tensor in tensors]
        roots = [0 if node is None else self.node_id(node) for node in starts]
        nodes = [weakref.ref(node) for node in _breadth_first([node for node in starts if node is not None])]
        key = str(self._number())
        self.held[key] = snapshot = Snapshot(nodes, roots)
        if len(self.held) > MAX_SNAPSHOTS:
            self.held.popitem(last=False)
        return key, snapshot

    def find(self, token: str) -> tuple[str, Snapshot, int]:
        """The walk that a page token goes on with, and where. Raises Refusal: ARGUMENT_VALUE."""
        key, _, place = token.partition(".")
        snapshot = self.held.get(key)
        if snapshot is None or not _DIGITS(place) or int(place) > len(snapshot.nodes):
            raise Refusal(
                "ARGUMENT_VALUE", "the page token is not of this session, or too old; ask for the first page again",
                argument="page_token",
            )  # fmt: skip
        return key, snapshot, int(place)

    def clear(self) -> None:
        """Forget the walks."""
        self.held.clear()


def graph(session: "Session", request: commands_pb2.GraphRequest, answer: commands_pb2.GraphResponse | None) -> None:
    """Answer a page. Raises Refusal: TENSOR_NOT_FOUND, ARGUMENT_VALUE."""
    if request.page_size < 0:
        raise Refusal("ARGUMENT_VALUE", f"page_size is {request.page_size}, not 0 or more", argument="page_size")
    snapshots = session.snapshots
    if request.page_token:
        key, snapshot, place = snapshots.find(request.page_token)
    else:
        key, snapshot = snapshots.take(session.tensors(request.tensors))
        place = 0
    end = place + min(request.page_size or DEFAULT_PAGE, MAX_PAGE)
    if answer is not None:
        answer.roots.extend(snapshot.roots)
        for reference in snapshot.nodes[place:end]:
            node = reference()
            if node is not None:
                _fill(session, answer.nodes.add(), node, request.with_saved)
        if end < len(snapshot.nodes):
            answer.next_page_token = f"{key}.{end}"
    if end >= len(snapshot.nodes):
        snapshots.held.pop(key, None)


def _fill(session: "Session", message: commands_pb2.GraphNode, node: AnyNode, with_saved: bool) -> None:
    snapshots = session.snapshots
    message.id = snapshots.node_id(node)
    message.name = node.name
    message.freed = node.freed
    message.saved_bytes = node.saved_bytes()
    if isinstance(node, AccumulateGrad):
        fill_spec(message.leaf, node.variable, session.leaf_id(node))
    else:
        message.command = node.command
        message.retains_grad = any(reference() is not None for reference in (node.retained or {}).values())
        if with_saved:
            for name, value in node.saved_values():
                saved = message.saved.add(name=name, shape=value.array.shape)
                saved.dtype = TO_WIRE[value.array.dtype]  # type: ignore[assignment]
    for edge in node.edges:
        target = message.edges.add()
        if edge is not None:
            target.node = snapshots.node_id(edge[0])
            target.output = edge[1]


def _breadth_first(starts: list[AnyNode]) -> list[AnyNode]:
    found = dict.fromkeys(starts)
    order = list(found)
    for node in order:  # grows while it is walked
        for edge in node.edges:
            if edge is not None and edge[0] not in found:
                found[edge[0]] = None
                order.append(edge[0])
    return order

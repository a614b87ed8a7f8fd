"""Commands that show the reverse graph: a page of a walk of it (graph_walks.py), and the numbers that order it."""

from gradwire.v1 import commands_pb2
from gradwire_engine.autograd.listed_edges import listed_edges
from gradwire_engine.graph.graph import LAST, AccumulateGrad, Node
from gradwire_engine.graph.saved import saved_bytes, saved_values
from gradwire_engine.graph.tensor import set_version
from gradwire_server.common.errors import Refusal
from gradwire_server.common.payload import TO_WIRE
from gradwire_server.session.hook_commands import node_behind
from gradwire_server.session.session import Session
from gradwire_server.session.specs import fill_spec
from gradwire_server.session.state.graph_walks import AnyNode

DEFAULT_PAGE = 1000
MAX_PAGE = 10_000


def graph(session: Session, request: commands_pb2.GraphRequest, answer: commands_pb2.GraphResponse | None) -> None:
    """Answer a page. Raises Refusal: TENSOR_NOT_FOUND, ARGUMENT_VALUE."""
    if request.page_size < 0:
        raise Refusal("ARGUMENT_VALUE", f"page_size is {request.page_size}, not 0 or more", argument="page_size")
    graph_walks = session.graph_walks
    if request.page_token:
        key, walk, position = graph_walks.find(request.page_token)
    else:
        key, walk = graph_walks.take(session.tensors(request.tensors))
        position = 0
    end = position + min(request.page_size or DEFAULT_PAGE, MAX_PAGE)
    if answer is not None:
        answer.roots.extend(walk.roots)
        for reference in walk.nodes[position:end]:
            node = reference()
            if node is not None:
                _fill(session, answer.nodes.add(), node, request.with_saved)
        if end < len(walk.nodes):
            answer.next_page_token = f"{key}.{end}"
    if end >= len(walk.nodes):
        graph_walks.held.pop(key, None)


def _fill(session: Session, message: commands_pb2.GraphNode, node: AnyNode, with_saved: bool) -> None:
    graph_walks = session.graph_walks
    message.id = graph_walks.node_id(node)
    message.name = node.name
    message.freed = node.freed
    message.sequence = node.seq
    if isinstance(node, AccumulateGrad):
        fill_spec(message.leaf, node.variable, session.leaf_id(node))
        message.leaf.has_grad = node.variable.grad is not None
    else:
        message.saved_bytes = saved_bytes(node)
        message.command = node.command
        message.retains_grad = any(reference() is not None for reference in (node.retained or {}).values())
        if with_saved:
            for name, value in saved_values(node):
                saved = message.saved.add(name=name, shape=value.array.shape)
                saved.dtype = TO_WIRE[value.array.dtype]  # type: ignore[assignment]
    edges = [node.edges[place] for place in listed_edges(node)] if isinstance(node, Node) else node.edges
    for edge in edges:
        target = message.edges.add()
        if edge is not None:
            target.node = graph_walks.node_id(edge[0])
            target.output = edge[1]


def set_counters(
    session: Session, request: commands_pb2.SetCountersRequest, answer: commands_pb2.SetCountersResponse | None
) -> None:
    """Set a tensor's version or a node's sequence number, and tell both. Raises Refusal, EngineError."""
    if request.version >= LAST:  # so that changes to come can be counted
        raise Refusal("ARGUMENT_VALUE", "a tensor's version is set below 2^62", argument="version")
    target = session.tensor(request.tensor)
    named = request.node or request.HasField("sequence") or target.grad_fn is not None
    node = node_behind(session, target, request.node) if named else None
    if request.HasField("sequence"):
        if isinstance(node, AccumulateGrad) or request.sequence >= LAST:
            raise Refusal("ARGUMENT_VALUE", "a node of an op has a sequence number below 2^62", argument="sequence")
        node.seq = request.sequence  # type: ignore[union-attr]  # node_behind refuses a leaf
    if request.HasField("version"):
        set_version(target, request.version)
    if answer is not None:
        answer.version = target.storage.version
        answer.sequence = 0 if node is None else node.seq

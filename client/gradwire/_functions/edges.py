"""Gradient edges: points of the graph usable as inputs or outputs of grad and backward (autograd.graph.GradientEdge).

An edge is a tensor's position in the graph at the moment the edge was taken. It stays when the tensor is changed in
place. The server keeps it as a tensor with the same values and the history of that moment.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gradwire._base.errors import refuse
from gradwire._base.modes import enable_grad
from gradwire._graph.nodes import Node
from gradwire._proxy.memo import read_spec
from gradwire._proxy.results import new_proxy
from gradwire._tensor.tensor import Tensor
from gradwire.v1 import errors_pb2, hooks_pb2, service_pb2


class EdgeTensor(Tensor):
    """Tensor that represents an edge of a non-leaf; it accumulates no gradient."""

    __slots__ = ()


class GradientEdge(NamedTuple):
    """An output of a node, identified by the node and the output's number."""

    node: Node
    output_nr: int
    #: Tensor that keeps the edge alive if `get_gradient_edge` took it, else None.
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Current position of a tensor in the graph, which `autograd.grad` and `backward` accept instead of the tensor.

    The edge also keeps the tensor's values alive. Raises RuntimeError for a tensor that does not require grad.
    """
    if not tensor.requires_grad:
        raise refuse(
            "It is not possible to get the gradient edge of a Tensor that does not require gradients",
            errors_pb2.REASON_REQUIRES_GRAD,
        )
    if tensor.is_leaf:
        with enable_grad():
            made = tensor.view_as(tensor).grad_fn
        node = None if made is None else made.next_functions[0][0]
        if node is None:  # a view made under no_grad of a tensor that requires grad
            raise AssertionError("Expected gradient function to be set: the tensor is not in the graph")
        return GradientEdge(node, 0, tensor)
    edge_tensor = _edge_tensor_of(tensor)
    own = edge_tensor.grad_fn
    assert own is not None
    return GradientEdge(own, edge_tensor.output_nr, edge_tensor)


def tensor_at(edge: GradientEdge) -> Tensor:
    """Tensor that represents an edge.

    Raises RuntimeError if the edge was not taken by `get_gradient_edge`, is not a leaf's, and its tensor moved on.
    """
    if isinstance(edge.ownership_token, Tensor):
        return edge.ownership_token
    node = edge.node
    if node.name().endswith("AccumulateGrad"):
        leaf: Tensor = node.variable
        return leaf
    root: Any = node._root
    if node._node_id == 0 and root._edge is node._edge and root.output_nr == edge.output_nr:
        return root if isinstance(root, EdgeTensor) else _edge_tensor_of(root)
    raise refuse(
        f"the edge of {node.name()} is not where a tensor is that is known by now; take it from the tensor itself, by "
        "autograd.graph.get_gradient_edge, before that is changed in place"
    )


def _edge_tensor_of(tensor: Tensor) -> EdgeTensor:
    tensor._fresh()
    session = tensor._session
    number = next(session.ids)
    request = hooks_pb2.NameEdgeRequest(tensor=tensor._id, edge=number)
    edge_spec = session.wait(service_pb2.Command(name_edge=request), (number,)).name_edge.edge
    # The edge of the client's shadow graph is the tensor's: both have the same position.
    made: Tensor = new_proxy(session, number, read_spec(edge_spec), tensor._edge)
    return made._as_subclass(EdgeTensor)

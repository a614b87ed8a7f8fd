"""Places of the graph, to ask for gradients at or to begin from, without a tensor (autograd.graph.GradientEdge).

A place is where a tensor was when its edge was taken: it stays when the tensor is changed in place. The server keeps
it as a tensor on the same values with the history of that moment.
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
    """What stands for a place that is no leaf's; it collects no gradient."""

    __slots__ = ()


class GradientEdge(NamedTuple):
    """An output of a node: what the gradient of the tensor that it made goes by."""

    node: Node
    output_nr: int
    #: What keeps the place, where `get_gradient_edge` took it.
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The place of the graph where a tensor is now, for `autograd.grad` and `backward` in place of the tensor.

    It keeps the tensor's values, too. Raises RuntimeError for a tensor that requires no gradient.
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
        if node is None:  # a view made under no_grad of what requires grad
            raise AssertionError("Expected gradient function to be set: the tensor has no place in the graph")
        return GradientEdge(node, 0, tensor)
    place = _place_of(tensor)
    own = place.grad_fn
    assert own is not None
    return GradientEdge(own, place.output_nr, place)


def tensor_at(edge: GradientEdge) -> Tensor:
    """What stands for a place. Raises RuntimeError for one that is neither a leaf's nor where its tensor still is."""
    if isinstance(edge.ownership_token, Tensor):
        return edge.ownership_token
    node = edge.node
    if node.name().endswith("AccumulateGrad"):
        leaf: Tensor = node.variable
        return leaf
    root: Any = node._root
    if node._node_id == 0 and root._edge is node._edge and root.output_nr == edge.output_nr:
        return root if isinstance(root, EdgeTensor) else _place_of(root)
    raise refuse(
        f"the edge of {node.name()} is not where a tensor is that is known by now; take it from the tensor itself, by "
        "autograd.graph.get_gradient_edge, before that is changed in place"
    )


def _place_of(tensor: Tensor) -> EdgeTensor:
    tensor._fresh()
    session = tensor._session
    number = next(session.ids)
    request = hooks_pb2.NameEdgeRequest(tensor=tensor._id, edge=number)
    told = session.wait(service_pb2.Command(name_edge=request), (number,)).name_edge.edge
    # The client's own picture of the graph is the tensor's: both are at one place.
    made: Tensor = new_proxy(session, number, read_spec(told), tensor._edge)
    return made._as_subclass(EdgeTensor)

"""Node calls: `grad_fn(gradient)` applies one node of the graph, and returns the gradients of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire._base.errors import GradwireTypeError
from gradwire._base.modes import is_grad_enabled
from gradwire._base.refused import refusal
from gradwire._functions.saved_tensor_hooks import packing
from gradwire._graph.anomaly import explained
from gradwire._graph.hook_runner import Pass, run_hooks
from gradwire._graph.nodes import Node
from gradwire._graph.sparse_gradients import SparseGradients
from gradwire._proxy.handle import Handle
from gradwire._proxy.results import known_or_new
from gradwire.v1 import commands_pb2, service_pb2


def call_node(node: Node, gradients: tuple[Any, ...]) -> Any:
    """What a node makes of gradients of its results: one gradient, or a tuple with one per input.

    Hooks of the node do not run, and its saved values stay. In grad mode the gradients have a graph. An AccumulateGrad
    node adds to its leaf's gradient, and returns an empty tuple. Raises TypeError for a wrong number of gradients, and
    for a custom function's node, which cannot be called in PyTorch either.
    """
    for place, each in enumerate(gradients):
        if each is not None and not isinstance(each, Handle):
            raise GradwireTypeError(f"argument {place} is not a Variable")
    if node.name().endswith("AccumulateGrad"):
        return _accumulate(node, gradients)
    session = node._root._session
    create_graph = is_grad_enabled()
    near = {each._id: each for each in (node._root, *gradients) if each is not None}
    request = commands_pb2.GradientsRequest(
        outputs=[node._root._id],
        grad_outputs=[0 if each is None else each._id for each in gradients],
        retain_graph=True,
        create_graph=create_graph,
        answers_hooks=True,
        called_node=node._number(),
    )

    session.begin_backward()

    def through() -> tuple[Any, ...]:
        arrived: list[Any] = []

        def on_received(ids: Sequence[int]) -> None:
            """A called node passes nothing on."""

        def on_result(answer: Any) -> None:
            arrived.extend(known_or_new(session, message, near) for message in answer.gradients)

        with explained():
            answer = session.wait(service_pb2.Command(gradients=request)).gradients
            run_hooks(session, answer, create_graph, Pass(True, False, SparseGradients()), on_received, on_result)
        return tuple(arrived)

    made = packing(session, through) if create_graph else through()
    return made[0] if len(made) == 1 else made


def _accumulate(node: Node, gradients: tuple[Any, ...]) -> tuple[()]:
    if len(gradients) != 1:
        raise GradwireTypeError(f"expected 1 arguments, got {len(gradients)} instead")
    leaf = node.variable
    if leaf.__dict__.get("_held_hooks") is not None:
        raise refusal("a call of the AccumulateGrad node of a leaf with hooks", "call backward on the leaf instead")
    (gradient,) = gradients
    if gradient is None:
        return ()
    held = leaf.grad
    if held is None:
        leaf.grad = gradient.clone()
    elif is_grad_enabled():  # the sum may have a graph, so it is a new tensor
        leaf.grad = held + gradient
    else:
        held.add_(gradient)
    return ()

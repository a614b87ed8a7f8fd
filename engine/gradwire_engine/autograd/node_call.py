"""Node call: applies the formulas of one node to given gradients, as PyTorch does when a program calls `grad_fn`.

No hook of the node runs, nothing is passed on, and the node keeps its saved values. Only what makes saved values again
calls back: a checkpoint, and what unpacks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from gradwire_engine.autograd.backward_pass import BackwardPass, Way, refuse_freed
from gradwire_engine.autograd.buffer_reuse import own
from gradwire_engine.autograd.listed_edges import listed_edges
from gradwire_engine.core import dtypes
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.callbacks import CallbackRequest
from gradwire_engine.graph.graph import AccumulateGrad, FunctionNode, Node
from gradwire_engine.graph.hooks import CallbackKind, Hooks
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.declaration import Declaration
from gradwire_engine.ops.base.basic import fit


class NodeCall(BackwardPass):
    """A resumable call of a node: call `advance`, then `results`.

    Raises EngineError: ARGUMENT_TYPE for a number of gradients other than the node's results, and for a node whose
    formula is the program's; GRAPH_FREED; and the formulas' own errors.
    """

    def __init__(self, node: Node | AccumulateGrad, gradients: Sequence[Tensor | None], create_graph: bool) -> None:
        super().__init__(create_graph, True, False, False)
        if type(node) is FunctionNode or isinstance(node, AccumulateGrad):
            raise EngineError(Reason.ARGUMENT_TYPE, f"'{node.name}' object is not callable")
        outputs = node.outputs or (True,)
        # PyTorch does not count integer results at the end, such as indices.
        expected = max(place for place, output in enumerate(outputs) if output is not None) + 1
        if len(gradients) != expected:
            raise EngineError(Reason.ARGUMENT_TYPE, f"expected {expected} arguments, got {len(gradients)} instead")
        self.node = node
        self.made: list[Any] = [None] * len(node.edges)
        self.steps = self._apply(node, [self._taken(each) for each in gradients])

    def _apply(self, node: Node, gradients: list[Any]) -> Way:
        if all(gradient is None for gradient in gradients):
            return
        if node.freed:
            refuse_freed(node)
        hooks = node.hooks or Hooks()
        while hooks.again is not None:
            region = hooks.again
            yield CallbackRequest(CallbackKind.AGAIN, region.callback.number, [])
            if hooks.again is region:
                raise EngineError(Reason.RUNTIME, f"what {node.name} saved was not computed again")
        self.made = yield from self._results(node, hooks, gradients)

    def _pass_on(self, node: Node, place: int, gradient: Any) -> None:
        """Keep a formula's result. Results of ops that broadcast keep the gradient's shape and dtype, as in PyTorch."""
        meta = node.metas[place]
        if meta is None or self.node_results is None:
            return
        if cast("Declaration", node.op).promotes:
            into_real = gradient.dtype.kind == "c" and meta[1].kind != "c"
            meta = (gradient.shape, dtypes.real_part(gradient.dtype) if into_real else gradient.dtype)
        self.node_results[place] = fit(gradient, meta)

    def results(self) -> list[Tensor | None]:
        """The gradients of the node's inputs, one per listed edge; None where none is needed."""
        made, self.made = [self.made[place] for place in listed_edges(self.node)], []
        return [each if each is None or self.tensors else own(each) for each in made]

    def deliver(self) -> list[Tensor]:
        """No tensor receives a gradient."""
        return []

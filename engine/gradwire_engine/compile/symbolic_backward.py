"""Symbolic backward: traces the formulas of a backward pass, and the tensors that receive its gradients.

A pass on arrays is derived from the graph before it runs, because it visits the same nodes with the same formulas in
the same order each time. A pass on tensors (create_graph) needs no such derivation: its formulas consist of ops, which
report to the tracer. Only the tensors that receive its gradients must be recorded.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradwire_engine.compile.purity import peeks_function
from gradwire_engine.graph.graph import AccumulateGrad, Node
from gradwire_engine.graph.hooks import hooks_on
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.cost import LONG

if TYPE_CHECKING:
    from gradwire_engine.compile.tracing import Tracer


class Watch:
    """Tracing of a pass on tensors, whose ops report to the tracer themselves."""

    def __init__(self, tracer: Tracer, passage: Any, nodes: Iterable[Any]) -> None:
        self.tracer = tracer
        if passage.check_nan:
            tracer.fail("a backward that looks for nan")
        for node in nodes:
            if type(node) not in (Node, AccumulateGrad) or hooks_on(node):
                tracer.fail("a node that has hooks or is of another kind")
            elif type(node) is Node and node.work >= LONG:
                tracer.fail(f"the derivative of {node.op.name} takes so long that it is computed aside")

    def refuse_what_peeks(self, nodes: Iterable[Any]) -> None:
        """Fail if a formula may decide by values, or computes with a number that changes from run to run."""
        for node in nodes:
            if type(node) is not Node:
                continue
            if any(peeks_function(formula) for _, formula, _, _ in node.plan.formulas):
                self.tracer.fail(f"a derivative of {node.op.name} looks at values")
            if self.tracer.holds_number(node.saved):
                self.tracer.fail(f"a derivative of {node.op.name} is computed of a number of the run")

    def arrives(self, tensor: Tensor, gradient: Any) -> None:
        """Called before a tensor collects a gradient; does nothing."""

    def collected(self, tensor: Tensor) -> None:
        """Called after a tensor collected a gradient."""
        self.tracer.holds(tensor)

    def answered(self, places: Sequence[Any], results: Sequence[Tensor | None]) -> None:
        """Called with the results of torch.autograd.grad and their edges."""
        for result in results:
            if result is not None:
                self.tracer.register(result.array)

    def made_zeros(self, zeros: Any) -> None:
        """Called when zeros replace a missing gradient."""
        if type(zeros) is Tensor:  # zeros that are arrays were traced already
            self.tracer.created(zeros)


class Foresight(Watch):
    """Tracing of a pass on arrays, derived from the graph."""

    def __init__(
        self,
        tracer: Tracer,
        passage: Any,
        roots: Sequence[tuple[Any, Any]],
        counts: dict[Any, int],
        wanted: set[Any] | None,
        needed: set[Any] | None,
    ) -> None:
        super().__init__(tracer, passage, counts)
        self.to_leaves = passage.to_leaves
        self.goals = passage.goals
        self.wanted = wanted
        self.needed = needed
        self.pending: dict[Any, list[int | None]] = {}
        self.captured: dict[Any, int] = {}
        self.deliveries: list[tuple[Tensor, int]] = []
        for (node, index), gradient in roots:
            number = tracer.register(gradient)
            if number is not None:
                self._add(node, index, number)
        if tracer.failed is None:
            self._propagate(dict(counts))
        self._arriving = iter(self.deliveries)

    # The pass; the same order of nodes as in backward.py.

    def _add(self, node: Any, index: int, number: int) -> None:
        if self.goals is not None and node not in self.goals:
            return
        held = self.pending.setdefault(node, [])
        held.extend([None] * (index + 1 - len(held)))
        before = held[index]
        held[index] = number if before is None else self.tracer.sum(before, number)

    def _propagate(self, counts: dict[Any, int]) -> None:
        pending = self.pending
        ready = [(-node.seq, number, node) for number, node in enumerate(pending) if not counts[node]]
        heapq.heapify(ready)
        tie = len(ready)
        while ready:
            node = heapq.heappop(ready)[2]
            arrived = pending.get(node)
            if arrived is not None and self._stays(node, arrived):
                self._visit(node, pending.pop(node))
            for edge in node.edges:
                if edge is not None:
                    counts[edge[0]] -= 1
                    if not counts[edge[0]]:
                        tie += 1
                        heapq.heappush(ready, (-edge[0].seq, tie, edge[0]))

    def _stays(self, node: Any, arrived: list[int | None]) -> bool:
        """Store the gradients that end at this node; return whether its formulas run."""
        if self.wanted is not None and not self.to_leaves:
            self.captured.update(
                ((node, index), number)
                for index, number in enumerate(arrived)
                if number is not None and (node, index) in self.wanted
            )
        if type(node) is AccumulateGrad:
            if self.to_leaves and node.variable.requires_grad and arrived[0] is not None:
                self.deliveries.append((node.variable, arrived[0]))
            return False
        for index, reference in (node.retained or {}).items():
            tensor, number = reference(), arrived[index] if index < len(arrived) else None
            if tensor is not None and number is not None:
                self.deliveries.append((tensor, number))
        return self.needed is None or node in self.needed

    def _visit(self, node: Node, arrived: list[int | None]) -> None:
        tracer, goals = self.tracer, self.goals
        values = [tracer.operand(value) for value in node.saved]
        gradients: list[Any] = [None if number is None else tracer.ref(number) for number in arrived]
        if node.outputs is not None:
            gradients += [None] * (len(node.outputs) - len(gradients))
            for place, meta in enumerate(node.outputs):
                if meta is not None and gradients[place] is None:
                    gradients[place] = tracer.ref(tracer.constant(np.zeros(meta.shape, meta.dtype)))
        if gradients[0] is None:
            tracer.fail("no gradient arrives for a node's first result")
            return
        op = node.op
        for slot, formula, places, takes_all in node.plan.formulas:
            given = tuple(gradients) if takes_all else gradients[0]
            args = (given, *(values if places is None else [values[place] for place in places]))
            if op.list_place >= 0:
                self._spread(node, slot, formula, args)
                continue
            edge = node.edges[slot]
            if edge is not None and (goals is None or edge[0] in goals):
                name = op.params[op.tensor_places[slot]].name
                number = tracer.formula((op.name, name, formula), args, node.metas[slot])
                self._add(edge[0], edge[1], number)

    def _spread(self, node: Node, slot: int, formula: Any, args: Any) -> None:
        """Trace a formula of an op with a list input: it returns one gradient per item for the list."""
        op = node.op
        length = len(node.edges) - len(op.tensor_places) + 1
        if op.tensor_places[slot] == op.list_place:
            first, count = slot, length
        else:
            first, count = (slot if op.tensor_places[slot] < op.list_place else slot - 1 + length), 1
        single = op.tensor_places[slot] != op.list_place
        outs = self.tracer.spread((formula, single), args, node.metas[first : first + count])
        for place, number in enumerate(outs, first):
            edge = node.edges[place]
            if number >= 0 and edge is not None:
                self._add(edge[0], edge[1], number)

    # Results of the pass.

    def arrives(self, tensor: Tensor, gradient: Any) -> None:
        """Called before a tensor collects a gradient: trace it as a new array, an accumulation or a sum."""
        foreseen, number = next(self._arriving, (None, -1))
        if foreseen is not tensor:
            self.tracer.fail("a gradient that was not foreseen")
            return
        held, array = tensor.grad, gradient.array if type(gradient) is Tensor else gradient
        if held is None:
            self.tracer.own(number, array)
        elif tensor.node is None and held.array.flags.writeable:
            self.tracer.accumulate(held, number)
        else:
            self.tracer.name(array, number)  # the addition is an op on tensors, which reports itself

    def answered(self, places: Sequence[Any], results: Sequence[Tensor | None]) -> None:
        """Called with the results of torch.autograd.grad, each with its own array."""
        for place, result in zip(places, results, strict=True):
            number = self.captured.get(place)
            if result is not None and number is not None:
                self.tracer.own(number, result.array)

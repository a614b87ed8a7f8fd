"""Symbolic backward: traces the formulas of a backward pass, and the tensors that receive its gradients.

Before a pass on arrays runs, the same traversal (autograd/backward_pass.py) runs over symbolic values: registers of the
trace. So the trace has the formulas and sums in the order of the pass. A pass on tensors (create_graph) needs no
symbolic pass: its formulas consist of ops, which report to the tracer. Only the tensors that receive its gradients must
be recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from gradwire_engine.autograd.backward_pass import NEVER, BackwardPass
from gradwire_engine.autograd.listed_edges import edges_of
from gradwire_engine.compile.trace import Trace
from gradwire_engine.core.device import is_writable
from gradwire_engine.graph.callbacks import hooks_on
from gradwire_engine.graph.graph import AccumulateGrad, Meta, Node
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.cost import LONG


class BackwardTracer:
    """Tracing of a pass on tensors, whose ops report to the tracer themselves."""

    def __init__(self, trace: Trace, traced: BackwardPass, nodes: Iterable[Any]) -> None:
        self.trace = trace
        if traced.check_nan:
            trace.fail("a backward that looks for nan")
        for node in nodes:
            if type(node) not in (Node, AccumulateGrad) or hooks_on(node):
                trace.fail("a node that has hooks or is of another kind")
            elif type(node) is Node and node.work >= LONG:
                trace.fail(f"the derivative of {node.op.name} takes so long that it is offloaded")

    def refuse_value_reads(self, nodes: Iterable[Any]) -> None:
        """Fail if a formula may decide by values, or computes with a number that changes from run to run."""
        for node in nodes:
            if type(node) is not Node:
                continue
            if node.saving_plan.reads_values:
                self.trace.fail(f"a derivative of {node.op.name} reads values")
            if self.trace.contains_number(node.saved):
                self.trace.fail(f"a derivative of {node.op.name} is computed of a number of the run")

    def arrives(self, tensor: Tensor, gradient: Any) -> None:
        """Called before a tensor collects a gradient; does nothing."""

    def collected(self, tensor: Tensor) -> None:
        """Called after a tensor collected a gradient."""
        self.trace.grad_changed(tensor)

    def returned(self, places: Sequence[Any], results: Sequence[Tensor | None]) -> None:
        """Called with the results of torch.autograd.grad and their edges."""
        for result in results:
            if result is not None:
                self.trace.register(result.array)

    def made_zeros(self, zeros: Any) -> None:
        """Called when zeros replace a missing gradient."""
        if type(zeros) is Tensor:  # zeros that are arrays were traced already
            self.trace.created(zeros)


class Symbol:
    """A gradient of a symbolic pass: a register of the trace."""

    __slots__ = ("number", "trace")

    def __init__(self, trace: Trace, number: int) -> None:
        self.trace = trace
        self.number = number

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.trace.regs[self.number].shape

    @property
    def dtype(self) -> Any:
        """Dtype of the array."""
        return self.trace.regs[self.number].dtype

    def __add__(self, other: Symbol) -> Symbol:
        return Symbol(self.trace, self.trace.sum(self.number, other.number))


class _Untraceable(Exception):
    """Ends a symbolic pass; the trace has the reason."""


class _SymbolicPass(BackwardPass):
    """A backward pass over symbolic values: it traces the formulas instead of computing them."""

    symbolic = True

    def __init__(self, trace: Trace, traced: BackwardPass) -> None:
        super().__init__(create_graph=False, retain_graph=True, to_leaves=traced.to_leaves, check_nan=False)
        self.trace = trace
        self.goals = traced.goals
        self.alone = traced.alone  # which decides the order of leaves
        self.headroom = None
        self._unpack = lambda value, node, name: trace.operand(value)

    def run(self, roots: list[Any], counts: dict[Any, int], wanted: set[Any] | None, needed: set[Any] | None) -> None:
        """Run the pass; it meets no callbacks and does not pause."""
        with suppress(_Untraceable):
            for _ in self._traverse(roots, dict(counts), wanted, needed, NEVER):
                pass

    def _call(self, node: Node, slot: int, formula: Any, gradient: Any, values: list[Any]) -> Any:
        """Trace a formula. For an op with a list input, the result is one value per item, None where none is needed."""
        trace, op = self.trace, node.op
        given = tuple(map(self._operand, gradient)) if type(gradient) is tuple else self._operand(gradient)
        if (given[0] if type(given) is tuple else given) is None:
            trace.fail("no gradient arrives for a node's first result")
            raise _Untraceable
        args = (given, *values)
        if op.list_position < 0:
            what = op.name, op.params[op.tensor_positions[slot]].name, formula
            return Symbol(trace, trace.formula(what, args, node.metas[slot]))
        edges, single = edges_of(node, slot), op.tensor_positions[slot] != op.list_position
        outs = trace.spread((op.name, formula, single), args, node.metas[edges.start : edges.stop])
        symbols = [None if number < 0 else Symbol(trace, number) for number in outs]
        return symbols[0] if single else symbols

    def _operand(self, gradient: Symbol | None) -> Any:
        return None if gradient is None else self.trace.ref(gradient.number)

    def _zeros(self, meta: Meta) -> Symbol:
        return Symbol(self.trace, self.trace.zeros(meta.shape, meta.dtype))


class SymbolicBackward(BackwardTracer):
    """Tracing of a pass on arrays, derived from the graph."""

    def __init__(
        self,
        trace: Trace,
        traced: BackwardPass,
        roots: Sequence[tuple[Any, Any]],
        counts: dict[Any, int],
        wanted: set[Any] | None,
        needed: set[Any] | None,
    ) -> None:
        super().__init__(trace, traced, counts)
        symbols = []
        for place, gradient in roots:
            number = trace.register(gradient)
            if number is not None:
                symbols.append((place, Symbol(trace, number)))
        symbolic = _SymbolicPass(trace, traced)
        if trace.failed is None:
            symbolic.run(symbols, counts, wanted, needed)
        self.captured: dict[Any, Symbol] = symbolic.captured
        self._arriving: Iterator[tuple[Tensor, Symbol]] = iter(symbolic.deliveries)

    # Results of the pass.

    def arrives(self, tensor: Tensor, gradient: Any) -> None:
        """Called before a tensor collects a gradient: trace it as a new array, an accumulation or a sum."""
        expected = next(self._arriving, None)
        if expected is None or expected[0] is not tensor:
            self.trace.fail("a gradient that was not foreseen")
            return
        number = expected[1].number
        held, array = tensor.grad, gradient.array if type(gradient) is Tensor else gradient
        if held is None:
            self.trace.own(number, array)
        elif tensor.node is None and is_writable(held.array):
            self.trace.accumulate(held, number)
        else:
            self.trace.name(array, number)  # the addition is an op on tensors, which reports itself

    def returned(self, places: Sequence[Any], results: Sequence[Tensor | None]) -> None:
        """Called with the results of torch.autograd.grad, each with its own array."""
        for place, result in zip(places, results, strict=True):
            symbol = self.captured.get(place)
            if result is not None and symbol is not None:
                self.trace.own(symbol.number, result.array)

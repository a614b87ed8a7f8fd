"""Backward pass: walks the reverse graph once, newest node first, without recursion.

Without `create_graph` gradients are bare arrays. With it they are Tensors, so that the computation is recorded and can
be differentiated again. A third kind are symbolic values, which trace a pass (compile/symbolic_backward.py). One
traversal serves all three.

Leaves receive their gradients at the end: all of them, or none if anything fails. The walk yields requests for external
callbacks (graph/callbacks.py). Before each, its caller delivers what has arrived: a callback sees what PyTorch's would.
The walk pauses between two nodes when the context's interrupt is due.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from heapq import heappop, heappush
from time import monotonic
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from gradwire_engine.autograd import ready_queue
from gradwire_engine.autograd.buffer_reuse import own
from gradwire_engine.autograd.headroom import Headroom, needed
from gradwire_engine.autograd.listed_edges import edges_of, listed_edges
from gradwire_engine.autograd.saved_tensor_hooks import Packed, holds_packed
from gradwire_engine.core import dtypes
from gradwire_engine.core.context import CURRENT, PAUSE, Interrupt, Pause, grad_mode
from gradwire_engine.core.device import beside, cupy, is_writable, module_for, selected
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.index_bounds import knowing
from gradwire_engine.graph.callbacks import CallbackRequest, check_replaced, hooks_on, refuse_shape
from gradwire_engine.graph.graph import AccumulateGrad, FunctionNode, Meta, Node
from gradwire_engine.graph.hooks import CallbackKind, ExternalCallback, Hooks
from gradwire_engine.graph.saved import Saved, saved_integers
from gradwire_engine.graph.tensor import Tensor, retain_grad
from gradwire_engine.op.cost import LONG
from gradwire_engine.op.refusals import REFUSED, check_writable, explain_backward, refuse_changed
from gradwire_engine.op.workload import offload_formula
from gradwire_engine.ops.base.basic import add, copied, fit
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.shape.shape import clone

AnyNode: TypeAlias = "Node | AccumulateGrad"
Place: TypeAlias = "tuple[AnyNode, int]"
Answer: TypeAlias = "Sequence[Tensor | None] | None"
Way: TypeAlias = "Generator[CallbackRequest | Pause, Answer, None]"
_P = TypeVar("_P", bound="BackwardPass")
NEVER = Interrupt()
_QUICK = 256  # nodes discovered between two checks of the clock
_UNREACHED = 1 << 62  # edges into a node that the pass does not visit: more than it can follow


class Observer(Protocol):
    """Receives reports of a pass that is traced: compile/symbolic_backward.py."""

    def arrives(self, tensor: Tensor, gradient: Any) -> None:
        """Called before a tensor collects a gradient."""

    def collected(self, tensor: Tensor) -> None:
        """Called after a tensor collected a gradient."""

    def returned(self, places: Sequence[Place], results: Sequence[Tensor | None]) -> None:
        """Called with the results of torch.autograd.grad and their edges."""

    def made_zeros(self, zeros: Any) -> None:
        """Called when zeros replace a missing gradient."""


class BackwardPass:
    """One backward pass, to all leaves or to targets.

    `deliveries` has the gradients for tensors that retain theirs and, if `to_leaves`, for leaves. If not `to_leaves`,
    `captured` has the gradients that arrived at the targets. At an external callback the pass stops: `advance` returns
    the `CallbackRequest`, and its next call takes the answer. Who makes the callback calls `deliver` before.
    """

    symbolic = False  # whether gradients are symbolic values; then `_call` computes all formulas

    def __init__(self, create_graph: bool, retain_graph: bool | None, to_leaves: bool, check_nan: bool) -> None:
        self.create_graph = create_graph
        # Whether gradients are Tensors: to be recorded, or because they may have tangents (forward.py).
        self.tensors = create_graph or CURRENT.get().duals.active
        self._unpack: Callable[[Any, Node, str], Any] = _saved_tensor if self.tensors else _saved_value
        self.retain_graph = create_graph if retain_graph is None else retain_graph
        self.to_leaves = to_leaves
        self.check_nan = check_nan
        self.selects = cupy() is not None and not self.symbolic  # symbols have no device
        self.goals: set[AnyNode] | None = None
        self.pending: dict[AnyNode, list[Any]] = {}
        self.captured: dict[Place, Any] = {}
        self.deliveries: list[tuple[Tensor, Any]] = []
        self.node_results: list[Any] | None = None  # results of a node with hooks, before they are passed on
        self.collecting: Sequence[Tensor] = ()  # tensors that retain their gradient from the start of the pass
        self.used: Sequence[AnyNode] = ()  # nodes that the pass must reach
        self.alone = False  # whether external callbacks cannot be answered
        self.observer: Observer | None = None  # receives reports of the pass, for a tracer
        self.headroom = Headroom.of(CURRENT.get().account, self.tensors)
        self.steps: Way

    def advance(self, answer: Answer = None) -> Generator[None, None, CallbackRequest | None]:
        """Resume with the answer to the last request, and return the next; None at the end. Yields in pauses."""
        while True:
            try:
                with grad_mode(self.create_graph):
                    due = self.steps.send(answer)
            except StopIteration:
                return None
            if not isinstance(due, Pause):
                return due
            answer = None
            yield

    def through(self: _P) -> _P:
        """Run to the end without callbacks, ignoring pauses. Raises EngineError: NOT_SUPPORTED as `to_end`."""
        for _ in self.to_end():
            pass
        return self

    def to_end(self) -> Generator[None, None, None]:
        """Run to the end without callbacks; yields in pauses. Raises EngineError: NOT_SUPPORTED if one is needed."""
        self.alone = True
        due = yield from self.advance()
        if due is not None:
            self.steps.close()
            raise _no_callbacks(due.when.value)

    def _run(self, roots: list[tuple[Place, Any]], targets: Sequence[Place] | None) -> Way:
        """Propagate from the roots to the leaves, or as far as the targets need."""
        context = CURRENT.get()
        interrupt = context.interrupt or NEVER
        wanted = None if targets is None else set(targets)
        nodes, counts = yield from _discover([place[0] for place, _ in roots], interrupt)
        needed = None if wanted is None else _needed(nodes, wanted)
        if wanted is not None and needed is not None and self.to_leaves:
            # As in PyTorch: a non-leaf target's node runs, with its hooks; its results are dropped.
            needed.update(node for node, _ in wanted if isinstance(node, Node) and node in counts)
        alone = self.alone
        for node in nodes if needed is None else needed:
            if node.freed:
                refuse_freed(node)
            if alone and (node.hooks is not None or type(node) is AccumulateGrad):
                self._refuse_asking(node, True)
        for node, _ in (wanted or ()) if alone else ():
            self._refuse_asking(node, needed is not None and node in needed)
        for place, node in enumerate(self.used):
            if node not in counts:
                raise unused_input(place)
        for item in self.collecting:
            retain_grad(item)
        if wanted is not None and needed is not None:
            self.goals = needed.union(node for node, _ in wanted)
        if context.tracer is not None:
            self.observer = context.tracer.observe(self, roots, counts, wanted, needed)
        if self.goals is not None:
            for node in counts.keys() - self.goals:
                counts[node] = _UNREACHED
        if self.headroom is not None:
            self.headroom.roots = roots
        yield from self._traverse(roots, counts, wanted, needed, interrupt)

    def _traverse(
        self,
        roots: list[tuple[Place, Any]],
        counts: dict[AnyNode, int],
        wanted: set[Place] | None,
        needed: set[AnyNode] | None,
        interrupt: Interrupt,
    ) -> Way:
        """Visit each node when all its gradients have arrived, newer nodes first; uses up `counts`.

        This order, captures, deliveries and accumulation are the same for arrays, Tensors and symbolic values.
        """
        for (node, index), gradient in roots:
            self._add(node, index, gradient)
        push, pop = (heappush, heappop) if self.alone else (ready_queue.push, ready_queue.pop)
        ready: list[ready_queue.Entry] = []
        for tie, node in enumerate(self.pending):
            if not counts[node]:
                push(ready, (-node.seq, tie, node))
        tie = len(ready)
        pending, propagate = self.pending, self._propagate_selected if self.selects else self._propagate
        node_began = interrupt.node_began
        lone: AnyNode | None = None  # the only ready node; a chain of nodes bypasses the heap
        while ready or lone is not None:
            if lone is None:
                node = pop(ready)[2]
            else:
                node, lone = lone, None
            if monotonic() >= interrupt.at:
                yield from _pause(interrupt)
            if node_began is not None:
                node_began(node.name)
            hooks = node.hooks if type(node) is Node else hooks_on(node)
            if hooks is not None:
                yield from self._pass_hooked(node, hooks, wanted, needed)
            elif wanted is None and type(node) is Node and node.retained is None:
                if node in pending:
                    propagate(node, pending.pop(node))
            elif self._visit(node, wanted, needed):
                propagate(node, pending.pop(node))  # type: ignore[arg-type]
            for edge in node.edges:
                if edge is not None:
                    target = edge[0]
                    left = counts[target] - 1
                    if left:
                        counts[target] = left
                    elif lone is None and not ready:
                        lone = target
                    else:
                        if lone is not None:
                            tie += 1
                            push(ready, (-lone.seq, tie, lone))
                            lone = None
                        tie += 1
                        push(ready, (-target.seq, tie, target))

    # Nodes with callbacks.

    def _refuse_asking(self, node: AnyNode, passed: bool) -> None:
        """Refuse a node that needs a callback, before the pass begins. passed: whether its formulas run.

        Raises EngineError: NOT_SUPPORTED.
        """
        hooks = hooks_on(node)
        if hooks is None:
            return
        calls_back = any(hooks.tensor.values())
        if type(node) is AccumulateGrad:
            collects = self.to_leaves and node.variable.requires_grad
            calls_back = calls_back or (collects and bool(hooks))
        elif passed:
            calls_back = bool(hooks) or holds_packed(node.saved)  # type: ignore[union-attr]
        if calls_back:
            raise _no_callbacks(node.name)

    def _pass_hooked(self, node: AnyNode, hooks: Hooks, wanted: set[Place] | None, needed: set[AnyNode] | None) -> Way:
        """Run a node with hooks, in PyTorch's order. If no gradient arrived, its hooks are called with None."""
        if self.goals is not None and node not in self.goals:
            return
        gradients = self.pending.setdefault(node, [])
        runs = self.to_leaves or (needed is not None and node in needed)
        if runs:  # as in PyTorch: a target's gradient is captured before the hooks if its node runs, else after
            self._capture(node, gradients, wanted)
        replaced = False
        for index, callbacks in tuple(hooks.tensor.items()):  # a copy: a hook may register others
            gradients += [None] * (index + 1 - len(gradients))
            for callback in tuple(callbacks):
                replaced |= yield from self._replace(CallbackKind.TENSOR, callback, gradients, [index])
        if not runs:
            self._capture(node, gradients, wanted)
        if type(node) is AccumulateGrad:
            yield from self._reach_leaf(node, hooks, replaced)
            return
        self._retain(node, gradients)
        if needed is None or node in needed:
            assert isinstance(node, Node)
            yield from self._propagate_hooked(node, hooks, self.pending.pop(node))

    def _propagate_hooked(self, node: Node, hooks: Hooks, gradients: list[Any]) -> Way:
        nothing = all(gradient is None for gradient in gradients)
        while hooks.again is not None and not (nothing and type(node) is Node):
            region = hooks.again
            yield CallbackRequest(CallbackKind.AGAIN, region.callback.number, [])
            if hooks.again is region:
                raise EngineError(
                    Reason.RUNTIME, f"what {node.name} saved was not computed again: its checkpoint did not end"
                )
        outputs = node.outputs or (True,)
        gradients += [None] * (len(outputs) - len(gradients))
        everything = type(node) is FunctionNode  # as in PyTorch, hooks get None for what is no tensor
        places = [place for place, output in enumerate(outputs) if everything or output is not None]
        for callback in tuple(hooks.before):
            yield from self._replace(CallbackKind.BEFORE, callback, gradients, places)
        results = yield from self._results(node, hooks, gradients)
        for callback in tuple(hooks.after):
            others = [gradients[place] for place in places]
            yield from self._replace(CallbackKind.AFTER, callback, results, listed_edges(node), others)
        for place, (edge, result) in enumerate(zip(node.edges, results, strict=True)):
            if result is not None and edge is not None and node.metas[place] is not None:
                self._add(edge[0], edge[1], result)

    def _results(self, node: Node, hooks: Hooks, gradients: list[Any]) -> Generator[CallbackRequest, Answer, list[Any]]:
        """Results of a node's formulas, one per edge, not yet passed on."""
        results: list[Any] = [None] * len(node.edges)
        if type(node) is not FunctionNode:
            if any(gradient is not None for gradient in gradients):
                values = yield from self._unpacked(node, node.saved)
                self.node_results = results
                try:
                    propagate = self._propagate_selected if self.selects else self._propagate
                    propagate(node, gradients, values)
                finally:
                    self.node_results = None
            return results
        if hooks.formula is None:
            pairs = zip(gradients, node.metas, strict=True)
            return [None if one is None or meta is None else fit(one, meta) for one, meta in pairs]
        whole: Sequence[Any] = self._materialized(node, gradients) if node.materializes else gradients
        values = yield from self._unpacked(node, node.saved)
        saved = [_saved_tensor(value, node, "saved") for value in values]
        made = yield CallbackRequest(CallbackKind.FORMULA, hooks.formula.number, self._shown(whole), saved)
        if made is None or len(made) != len(node.edges):
            given = 0 if made is None else len(made)
            raise EngineError(
                Reason.RUNTIME,
                f"function {node.name} returned an incorrect number of gradients (expected {len(node.edges)}, got "
                f"{given})",
            )
        for place, gradient in enumerate(made):
            meta = node.metas[place]
            if gradient is not None and meta is not None:
                refuse_shape(node, place, gradient, meta)
                results[place] = fit(self._taken(gradient), meta)
                if self.check_nan:
                    _refuse_nan(node, place, results[place])
        if not self.retain_graph:
            node.free()
        return results

    def _unpacked(self, node: Node, saved: Sequence[Any]) -> Generator[CallbackRequest, Answer, Sequence[Any]]:
        """A node's saved values; packed values are requested for this pass and not stored in the node."""
        if node.freed:
            refuse_freed(node)
        values: list[Any] = []
        for value in saved:
            if type(value) is Packed:
                value = value.unpacked(node, (yield CallbackRequest(CallbackKind.UNPACK, value.callback.number, [])))
            elif type(value) is list:
                value = list((yield from self._unpacked(node, value)))
            values.append(value)
        return values

    def _reach_leaf(self, node: AccumulateGrad, hooks: Hooks, replaced: bool) -> Way:
        """Run the hooks of a leaf and its node, and let the leaf's gradient be delivered between them.

        replaced: whether a hook of the leaf has answered the gradient.
        """
        leaf: Tensor = node.variable
        gradients = self.pending.pop(node) or [None]  # no gradient came, or the client keeps it
        if not (self.to_leaves and leaf.requires_grad):
            return
        for callback in tuple(hooks.before):
            replaced |= yield from self._replace(CallbackKind.BEFORE, callback, gradients, [0])
        if gradients[0] is not None:
            gradient = gradients.pop()  # one name, as `own` expects
            if hooks.after and leaf.grad is None and not self.tensors:
                # The first gradient becomes `.grad` itself if it has no other holder, so later hooks see it change. The
                # session names a hook's answer until its next batch, which is no holder.
                owned = own(gradient)
                gradients.append(owned if replaced or owned.array is gradient else gradient)
                gradient = owned
                del owned
            elif hooks.after:
                gradients.append(gradient)
            self.deliveries.append((leaf, gradient))
            del gradient
            for callback in tuple(hooks.accumulated):
                yield CallbackRequest(CallbackKind.ACCUMULATED, callback.number, [], leaf=leaf)
        for callback in () if node.hooks is None else tuple(node.hooks.after):  # another hook may have added some
            yield CallbackRequest(CallbackKind.AFTER, callback.number, [], self._shown(gradients))

    def _replace(
        self,
        when: CallbackKind,
        callback: ExternalCallback,
        gradients: list[Any],
        places: Sequence[int],
        others: Sequence[Any] = (),
    ) -> Generator[CallbackRequest, Answer, bool]:
        """Call a hook with the gradients at these indices; replace them by its answer. Returns whether there is one."""
        for place in places:
            if isinstance(gradients[place], np.generic):  # a hook may change its argument in place
                gradients[place] = np.asarray(gradients[place])
        shown = self._shown([gradients[place] for place in places])
        made = yield CallbackRequest(when, callback.number, shown, self._shown(others))
        if made is not None:
            check_replaced(shown, made)
            for place, gradient in zip(places, made, strict=True):
                gradients[place] = self._taken(gradient)
        return made is not None

    def _shown(self, gradients: Sequence[Any]) -> list[Tensor | None]:
        return [_as_tensor(gradient) for gradient in gradients]

    def _taken(self, gradient: Tensor | None) -> Any:
        return gradient if gradient is None or self.tensors else gradient.array

    def deliver(self) -> list[Tensor]:
        """Assign or add the gradients to their tensors, and return these.

        Allocations come first, so a failure changes no tensor.
        """
        received: dict[int, Tensor] = {}
        ready: list[tuple[Tensor, Any]] = []
        self.deliveries.reverse()
        while self.deliveries:
            tensor, gradient = self.deliveries.pop()  # drops a reference, so that `own` can take the array over
            if gradient.shape != tensor.array.shape or (
                tensor.grad is not None and tensor.grad.array.shape != gradient.shape
            ):
                refuse_changed(tensor, gradient)
            if self.tensors:
                ready.append((tensor, gradient))
            elif tensor.grad is None:
                ready.append((tensor, gradient if type(gradient) is Tensor else own(gradient)))
            else:
                ready.append((tensor, gradient))
                check_writable(tensor.grad.array)
        with grad_mode(self.create_graph):
            for tensor, gradient in ready:
                if self.observer is not None:
                    self.observer.arrives(tensor, gradient)
                self._accumulate(tensor, gradient)
                if self.observer is not None:
                    self.observer.collected(tensor)
                received[id(tensor)] = tensor
        return list(received.values())

    def _visit(self, node: AnyNode, wanted: set[Place] | None, needed: set[AnyNode] | None) -> bool:
        """Store the gradients that end at this node; return whether its formulas must run."""
        gradients = self.pending.get(node)
        if gradients is None:
            return False
        self._capture(node, gradients, wanted)
        if type(node) is AccumulateGrad:
            del self.pending[node]
            if self.to_leaves and node.variable.requires_grad:  # the flag may have been cleared since
                self.deliveries.append((node.variable, gradients[0]))
            return False
        if node.retained is not None:
            self._retain(node, gradients)
        return needed is None or node in needed

    def _capture(self, node: AnyNode, gradients: list[Any], wanted: set[Place] | None) -> None:
        if wanted is not None and not self.to_leaves:
            for index, gradient in enumerate(gradients):
                if (node, index) in wanted and gradient is not None:
                    self.captured[node, index] = gradient

    def _retain(self, node: AnyNode, gradients: list[Any]) -> None:
        for index, reference in (node.retained or {}).items():
            tensor = reference()
            if tensor is not None and index < len(gradients) and gradients[index] is not None:
                self.deliveries.append((tensor, gradients[index]))

    def _propagate_selected(self, node: Node, gradients: list[Any], saved: Sequence[Any] | None = None) -> None:
        """`_propagate` with the gradients' device as the current one. Formulas know the bounds of saved integers."""
        given = next(each for each in gradients if each is not None)
        if type(given) is Tensor:
            with selected(str(given.device)):
                self._propagate(node, gradients, saved)
        elif type(given) is np.ndarray or saved is not None:
            with beside(given):
                self._propagate(node, gradients, saved)
        else:
            with beside(given), knowing(saved_integers(node)):
                self._propagate(node, gradients)

    def _propagate(self, node: Node, gradients: list[Any], saved: Sequence[Any] | None = None) -> None:
        plan = node.saving_plan
        values: list[Any] = []
        if plan.names:
            unpack = self._unpack
            kept = node.saved if saved is None else saved
            values = [
                value if type(value) is float else unpack(value, node, name)
                for value, name in zip(kept, plan.names, strict=True)
            ]
        gradient = gradients[0]
        whole = None
        if node.outputs is not None:
            whole = self._materialized(node, gradients, node.op.unfilled_outputs)
            gradient = whole[0]
        op, headroom = node.op, self.headroom
        if headroom is not None:
            if whole is not None or op.grows_back:
                headroom.reserve(node, gradients, self._alive)
            else:
                headroom.left = left = headroom.left - gradient.nbytes * op.most_back
                if left < 0:
                    headroom.count(node, gradients, self._alive)
        edges, goals, listed = node.edges, self.goals, op.list_position >= 0
        # Common case: each result is only passed on.
        plainly = not (listed or self.check_nan) and self.node_results is None
        by_call = self.symbolic or (node.work and not self.tensors)
        for slot, formula, places, takes_all in plan.formulas:
            edge = None
            if not listed:
                edge = edges[slot]
                if edge is None or (goals is not None and edge[0] not in goals):
                    continue
            try:
                if by_call:
                    args = values if places is None else [values[place] for place in places]
                    result = self._call(node, slot, formula, whole if takes_all else gradient, args)
                elif places is None:
                    result = formula(whole if takes_all else gradient, *values)
                else:
                    result = formula(whole if takes_all else gradient, *[values[place] for place in places])
            except REFUSED as error:
                raise explain_backward(node.op, gradient, values, error) from error
            if edge is not None and plainly:
                fitting = node.metas[slot]
                assert fitting is not None
                if result.dtype is not fitting[1] or result.shape != fitting[0]:
                    result = fit(result, fitting)
                target, index = edge
                if index or target in self.pending:
                    self._add(target, index, result)
                else:
                    self.pending[target] = [result]
                continue
            if self.check_nan:
                _refuse_nan(node, slot, result)
            if listed:
                self._spread(node, slot, result)
            else:
                self._pass_on(node, slot, result)
        if not self.retain_graph:
            node.free()

    def _alive(self) -> Iterator[Any]:
        """Pending and delivered gradients."""
        for waiting in self.pending.values():
            yield from waiting
        yield from self.node_results or ()
        yield from self.captured.values()
        for _, gradient in self.deliveries:
            if type(gradient) is not Tensor:
                yield gradient

    def _call(self, node: Node, slot: int, formula: Any, gradient: Any, values: list[Any]) -> Any:
        """Compute a formula that is not called directly. Overridden for symbolic values."""
        return self._offload(node, formula, gradient, values)

    def _offload(self, node: Node, formula: Any, gradient: Any, values: list[Any]) -> Any:
        """Compute a formula that may be expensive; see offload_formula."""
        room = 0
        if node.work >= LONG:
            room = needed(node, list(gradient) if type(gradient) is tuple else [gradient])
        return offload_formula(node, CURRENT.get(), gradient, lambda: formula(gradient, *values), room)

    def _spread(self, node: Node, slot: int, result: Any) -> None:
        """Pass on a formula's result, for an op with a list input: the list has one edge per item."""
        edges = edges_of(node, slot)
        parts = result if node.op.tensor_positions[slot] == node.op.list_position else (result,)
        for place, part in enumerate(parts, edges.start):
            self._pass_on(node, place, part)

    def _pass_on(self, node: Node, place: int, gradient: Any) -> None:
        edge, wanted = node.edges[place], node.metas[place]
        if self.node_results is not None:
            if wanted is not None:
                self.node_results[place] = fit(gradient, wanted)
        elif edge is not None and wanted is not None:
            self._add(edge[0], edge[1], fit(gradient, wanted))

    def _materialized(self, node: Node, gradients: list[Any], unfilled: Sequence[int] = ()) -> tuple[Any, ...]:
        """Gradients of all outputs: zeros for missing ones; None for unfilled and for non-differentiable outputs."""
        outputs = node.outputs or ()
        given = gradients + [None] * (len(outputs) - len(gradients))
        return tuple(
            gradient if gradient is not None or meta is None or place in unfilled else self._zeros(meta)
            for place, (gradient, meta) in enumerate(zip(given, outputs, strict=True))
        )

    def _zeros(self, meta: Meta) -> Any:
        admit(meta.shape, meta.dtype)
        with selected(meta.device):
            zeros = module_for(meta.device).zeros(meta.shape, meta.dtype)
        if self.tensors:
            zeros = Tensor(zeros)
        if self.observer is not None:
            self.observer.made_zeros(zeros)
        return zeros

    def _add(self, node: AnyNode, index: int, gradient: Any) -> None:
        if self.goals is not None and node not in self.goals:
            return
        held = self.pending.get(node)
        if held is None:
            held = self.pending[node] = [None] * (index + 1)
        elif len(held) <= index:
            held.extend([None] * (index + 1 - len(held)))
        if held[index] is None:
            held[index] = gradient
        elif self.selects and type(gradient) is not Tensor:
            with beside(gradient):
                held[index] = held[index] + gradient
        else:
            held[index] = held[index] + gradient

    def _accumulate(self, tensor: Tensor, gradient: Any) -> None:
        held: Any = tensor.grad
        if self.tensors and not self.create_graph and held is not None:
            add.in_place((held, gradient, 1))
        elif self.tensors:
            # A new tensor: the same gradient may go to several tensors, and may belong to the user.
            if held is not None:
                tensor.grad = held + gradient
            else:
                tensor.grad = copied(None, gradient) if tensor.node is None else clone(gradient)
        elif held is None:
            tensor.grad = gradient if type(gradient) is Tensor else Tensor(gradient)
        elif tensor.node is not None or not is_writable(held.array):
            # Only a leaf's gradient is accumulated in place; a retained gradient is a new tensor each time.
            tensor.grad = held + _as_tensor(gradient)
        else:
            array = gradient.array if type(gradient) is Tensor else gradient
            if self.selects:
                with beside(held.array):
                    held.array += array
            else:
                held.array += array
            held.storage.changed()


def _discover(
    starts: list[AnyNode], interrupt: Interrupt
) -> Generator[CallbackRequest | Pause, Answer, tuple[list[AnyNode], dict[AnyNode, int]]]:
    """Find all reachable nodes, and the number of edges into each; yields in pauses."""
    counts: dict[AnyNode, int] = dict.fromkeys(starts, 0)
    stack = list(counts)
    while stack:
        for _ in range(_QUICK):
            for edge in stack.pop().edges:
                if edge is not None:
                    target = edge[0]
                    if target in counts:
                        counts[target] += 1
                    else:
                        counts[target] = 1
                        stack.append(target)
            if not stack:
                break
        else:
            if monotonic() >= interrupt.at:
                yield from _pause(interrupt)
    return list(counts), counts


def _needed(nodes: list[AnyNode], wanted: set[Place]) -> set[AnyNode]:
    """Nodes whose formulas must run for gradients to reach the wanted edges."""
    users: dict[AnyNode, list[AnyNode]] = {}
    for node in nodes:
        for edge in node.edges:
            if edge is not None:
                users.setdefault(edge[0], []).append(node)
    needed: set[AnyNode] = set()
    waiting: list[AnyNode] = [node for node, _ in wanted]
    while waiting:
        for user in users.pop(waiting.pop(), ()):
            if user not in needed:
                needed.add(user)
                waiting.append(user)
    return needed


def unused_input(place: int) -> EngineError:
    return EngineError(
        Reason.UNUSED_INPUT,
        f"The differentiated Tensor at index {place} appears to not have been used in the graph. "
        "Set allow_unused=True if this is the desired behavior.",
        input=place,
    )


def _no_callbacks(what: str) -> EngineError:
    return EngineError(
        Reason.NOT_SUPPORTED,
        "this backward comes to a hook, a custom function or a checkpoint, which is the client's to run, but "
        "was asked for by a command that does not say that its client can",
        due=what,
    )


def _saved_value(value: Any, node: Node, name: str) -> Any:
    if type(value) is Saved:
        return value.value(node, name)
    return [_saved_value(item, node, name) for item in value] if type(value) is list else value


def _saved_tensor(value: Any, node: Node, name: str) -> Any:
    if type(value) is Saved:
        return value.tensor(node, name)
    return [_saved_tensor(item, node, name) for item in value] if type(value) is list else value


def _as_tensor(gradient: Any) -> Tensor | None:
    if gradient is None or type(gradient) is Tensor:
        return gradient
    return Tensor(np.asarray(gradient) if isinstance(gradient, np.generic) else gradient)


def _pause(interrupt: Interrupt) -> Way:
    """Pause when the interrupt is due, if others wait. Raises EngineError: CANCELLED, also during the pause."""
    if not interrupt.stopping():
        if not interrupt.pauses():
            return
        yield PAUSE
        if not interrupt.stopping():
            return
    raise cancelled()


def cancelled() -> EngineError:
    """The error of a backward that was cancelled."""
    return EngineError(Reason.CANCELLED, "backward was cancelled; no gradient has changed since its begin or last hook")


def _refuse_nan(node: Node, slot: int, result: Any) -> None:
    """Refuse a formula's result that contains nan. Every result is checked, so the error names the first such node."""
    for place, part in enumerate(result if isinstance(result, tuple | list) else (result,), slot):
        array = part.array if type(part) is Tensor else part
        if hasattr(array, "dtype") and dtypes.is_differentiable(array.dtype) and bool((array != array).any()):
            raise EngineError(
                Reason.RUNTIME,
                f"Function '{node.name}' returned nan values in its {place}th output.",
                node=node.name,
                output=place,
                made_by=node.name,
                made_by_command=node.command,
            )


def refuse_freed(node: AnyNode) -> None:
    """Refuse a use of a node whose saved values were freed. Always raises EngineError: GRAPH_FREED."""
    raise EngineError(
        Reason.GRAPH_FREED,
        "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
        "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
        "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access "
        f"saved tensors after calling backward. The node is {node.name}.",
        node=node.name,
    )

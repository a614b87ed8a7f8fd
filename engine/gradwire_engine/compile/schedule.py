"""Schedules: a trace, optimized to instructions that make no unused results.

Each instruction gets a kernel if its backend has one (kernels/registry.py). Formulas that return their gradient
unchanged are removed. Scaled updates and losses are fused with their inputs. For each register, the schedule knows
which memory it may share and the last use of that memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradwire_engine.compile import added_products, shared_weights
from gradwire_engine.compile.kernels import registry
from gradwire_engine.compile.kernels.registry import CrossEntropy, Kernel
from gradwire_engine.compile.trace import Instr, NumRef, Ref, Reg
from gradwire_engine.compile.tracing import Tracer
from gradwire_engine.core.device import CPU
from gradwire_engine.graph.graph import Node
from gradwire_engine.graph.tensor import Tensor

#: Last use of memory that outlives the run.
NEVER = 1 << 60


# Formulas that return the gradient unchanged.
_SAME = frozenset((("add", "input"), ("add", "other"), ("sub", "input"), ("addcmul", "input"), ("addcdiv", "input")))


class NotPlannable(Exception):
    """The run has results that a plan cannot make; the message names them."""


@dataclass(slots=True)
class Output:
    """An output of the run, or a gradient that an output retains.

    kind, number: "input" or "grad" with the input's index, or "array" with a register. The rest is for arrays.
    which: index of the first output that is the same tensor. freed_node: its graph node, which backward
    has freed. grad: index among the outputs of its gradient. retains: whether it retains its gradient. version: its
    count of in-place changes.
    """

    kind: str
    number: int
    which: int = 0
    requires_grad: bool = False
    freed_node: FreedNode | None = None
    grad: int | None = None
    retains: bool = False
    version: int = 0


class Schedule:
    """Instructions of a run, its results, and the last use of each register's memory."""

    def __init__(self, tracer: Tracer, outputs: Sequence[Tensor]) -> None:
        """Build the schedule of a trace. Raises NotPlannable."""
        if tracer.failed is not None:
            raise NotPlannable(tracer.failed)
        self.regs = tracer.regs
        self.device, self.hosted = tracer.device, tracer.hosted
        self.input_regs = tracer.input_regs
        self.shared = tracer.shared
        self.entry = tracer.entry
        self.nodes_made = tracer.nodes_made
        self.instrs = tracer.instrs
        self.changes = {
            place: tracer.changes[number] for place, number in enumerate(self.input_regs) if number in tracer.changes
        }
        self.grad_changes = {place: tracer.changes.get(number, 0) for place, number in self.entry.items()}
        self.final_grads = self._find_final_grads(tracer)
        #: Changes of inputs' gradients: the step, the input's index, and the register or None.
        self.grad_history = self._find_grad_history(tracer)
        self.outputs = self._find_outputs(tracer, outputs)
        self._merge_scaled_updates()
        self._alias()
        self.kernels: list[Kernel | None] = [registry.choose(tracer.backend, instr, self.regs) for instr in self.instrs]
        if self.device == CPU:
            self._merge_products()
        make_loss = registry.cross_entropy_of(tracer.backend)
        if make_loss is not None:
            self._fuse_losses(make_loss)
        self.roots = self._find_roots()
        self._own()
        self._merge_added_products()
        used = {number for instr in self.instrs for number in instr.reads()}
        #: Registers of gradients that are read before they are replaced, by the input's index.
        self.read_grads = {place: number for place, number in self.entry.items() if number in used}
        self.last = self._find_last_uses()

    # Results of the run.

    def _find_final_grads(self, tracer: Tracer) -> dict[int, int | None]:
        """Final registers of the inputs' gradients that change, or None, by input's index. Raises NotPlannable."""
        found: dict[int, int | None] = {}
        seen: set[int] = set()
        for place, tensor in enumerate(tracer.inputs):
            if id(tensor) not in tracer.grads or any(tensor is other for other in tracer.inputs[:place]):
                continue
            number, grad = tracer.grads[id(tensor)], tensor.grad
            if number is not None and grad is not None:
                if grad.node is not None or grad.view is not None or grad.requires_grad:
                    raise NotPlannable("a leaf's gradient has a history")
                roots = self.regs[number].roots
                known = {self.entry[place]} if place in self.entry else set()
                if number in known:  # it was there, and may be a view of an input
                    known.update(self.input_regs)
                if (roots & {*self.input_regs, *self.entry.values()}) - known or roots & seen:
                    raise NotPlannable("a leaf's gradient shares another tensor's memory")
                seen |= roots
            found[place] = number
        return found

    def _find_grad_history(self, tracer: Tracer) -> list[tuple[int, int, int | None]]:
        places = {id(tracer.inputs[place]): place for place in self.final_grads}
        return [(step, places[of], number) for step, of, number in tracer.grad_history if of in places]

    def _find_outputs(self, tracer: Tracer, outputs: Sequence[Tensor]) -> list[Output]:
        """The outputs, followed by the gradients that they retain. Raises NotPlannable."""
        given = {id(tensor) for tensor in tracer.inputs}
        kept = [tensor.grad for tensor in outputs if id(tensor) not in given and tensor.grad is not None]
        tensors = [*outputs, *kept]
        found = [self._output(tracer, tensor, tensors) for tensor in tensors]
        self.output_count = len(outputs)
        return found

    def _output(self, tracer: Tracer, tensor: Tensor, all: Sequence[Tensor]) -> Output:
        for place, given in enumerate(tracer.inputs):
            if given is tensor:
                return Output("input", place)
            if given.grad is tensor:
                return Output("grad", place)
        number = tracer.register_of(tensor)
        if number is None or tensor.view is not None:
            raise NotPlannable("an output is a view")
        ends = {*self.input_regs, *self.entry.values(), *(end for end in self.final_grads.values() if end is not None)}
        if any(self.regs[number].roots & self.regs[end].roots for end in ends):
            raise NotPlannable("an output shares the memory of an input or of its gradient")
        if tensor.node is not None and not _is_freed(tensor.node):
            raise NotPlannable("an output has a graph that backward has not passed")
        which = next(place for place, other in enumerate(all) if other is tensor)
        grad = tensor.grad
        held = None if grad is None else next((place for place, other in enumerate(all) if other is grad), None)
        if grad is not None and held is None:
            raise NotPlannable("a gradient of an output has a gradient")
        freed_node = None if tensor.node is None else FreedNode(tensor.node, tensor.node.seq - tracer.first_node)
        version = tensor.storage.version
        return Output("array", number, which, tensor.requires_grad, freed_node, held, tensor.retains_grad, version)

    def _made(self) -> list[int]:
        """Registers of the outputs."""
        return [output.number for output in self.outputs if output.kind == "array"]

    # Rewriting.

    def _replace(self, by: dict[int, int]) -> None:
        """Let registers stand for others, which may be replaced too."""
        if not by:
            return
        for old in reversed(by):  # a replaced register's own replacement was found before or after it
            while by[old] in by:
                by[old] = by[by[old]]
        for instr in self.instrs:
            if any(number in by for number in instr.reads()):
                instr.args = _substituted(instr.args, by)
        for output in self.outputs:
            if output.kind == "array":
                output.number = by.get(output.number, output.number)
        self.final_grads = {place: _replaced(number, by) for place, number in self.final_grads.items()}
        self.grad_history = [(step, place, _replaced(number, by)) for step, place, number in self.grad_history]

    def _count_uses(self) -> Counter[int | None]:
        """How often each register is read, and is a result of the run."""
        uses: Counter[int | None] = Counter(number for instr in self.instrs for number in instr.reads())
        uses.update(self._made())
        uses.update(self.final_grads.values())
        return uses

    def _merge_scaled_updates(self) -> None:
        """Fuse p -= rate * g into one instruction, so the product needs no memory."""
        uses = self._count_uses()
        for place, instr in enumerate(self.instrs):
            if instr.kind != "write" or instr.what.name not in ("add", "sub") or not place:
                continue
            target, other, alpha = instr.args
            product = self.instrs[place - 1]
            if type(other) is not Ref or alpha != 1 or type(alpha) is not int or product.outs != (int(other),):
                continue
            if product.kind != "op" or product.what.name != "mul" or uses[int(other)] != 1:
                continue
            array, factor = product.args
            if type(array) is not Ref and type(factor) is Ref:
                array, factor = factor, array
            is_update = type(array) is Ref and type(factor) in (float, NumRef) and int(array) != int(target)
            if is_update and self.regs[array].shape == self.regs[target].shape:
                instr.args = (target, array, factor)
                product.kind = "removed"
        self.instrs = [instr for instr in self.instrs if instr.kind != "removed"]

    def _merge_products(self) -> None:
        """Compute the gradient of a weight that is used several times in one product."""
        if all(instr.kind != "sum" for instr in self.instrs):
            return
        kept = [*self._made(), *(number for number in self.final_grads.values() if number is not None)]
        pairs = shared_weights.merge(self.instrs, self.kernels, self.regs, kept)
        self.instrs, self.kernels = [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def _merge_added_products(self) -> None:
        """Let the library add products to tensors, except where sessions must compute equal bits."""
        if self.device != CPU or self.shared or any(instr.kind == "exchange" for instr in self.instrs):
            return
        kept = [*self._made(), *(number for number in self.final_grads.values() if number is not None)]
        bound = (*self.input_regs, *self.entry.values())
        pairs = added_products.merge(self.instrs, self.kernels, self.regs, self.roots, kept, bound)
        self.instrs, self.kernels = [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def _alias(self) -> None:
        """Remove formulas that return the gradient unchanged."""
        replaced: dict[int, int] = {}
        for instr in self.instrs:
            if _returns_gradient(instr, self.regs):
                instr.kind = "removed"
                replaced[instr.outs[0]] = int(instr.args[0])
        self._replace(replaced)
        self.instrs = [instr for instr in self.instrs if instr.kind != "removed"]

    def _fuse_losses(self, make: Callable[[tuple[int, ...], Any], CrossEntropy]) -> None:
        """Fuse the gradient of cross entropy with class targets into one step from the log-probabilities."""
        for place, instr in enumerate(self.instrs):
            if instr.kind != "op" or instr.what.name != "_nll_loss" or not self._is_plain_loss(instr):
                continue
            logs, target = instr.args[:2]
            first = next((one for one in self.instrs if self._differentiates(one, instr)), None)
            if first is None or self._count_uses()[first.outs[0]] != 1:
                continue
            last = next((one for one in self.instrs if first.outs[0] in one.reads()), None)
            if (
                last is None
                or last.kind != "formula"
                or last.what[:2] != ("log_softmax", "input")
                or last.args[1] != logs
            ):
                continue
            state = make(self.regs[logs].shape, self.regs[logs].dtype)
            self.instrs[place] = Instr("loss", (state, instr.what), instr.args, instr.outs, instr.step)
            first.kind = "removed"
            at = self.instrs.index(last)
            self.kernels[at] = _loss_backward(state, first, last)
            self.instrs[at] = Instr("kernel", self.kernels[at], (first.args[0], logs, target), last.outs, last.step)
        self._drop_removed()

    def _is_plain_loss(self, instr: Instr) -> bool:
        logs, target, weight, reduction, ignored = instr.args
        if weight is not None or reduction != "mean" or type(logs) is not Ref or type(target) is not Ref:
            return False
        one, other = self.regs[logs], self.regs[target]
        made = any(
            int(logs) in maker.outs and kernel is not None
            for maker, kernel in zip(self.instrs, self.kernels, strict=True)
        )
        return bool(
            made and len(one.shape) == 2 and 0 not in one.shape and ignored < 0
            and other.dtype == np.int64 and other.shape == one.shape[:1]
        )  # fmt: skip

    def _differentiates(self, instr: Instr, loss: Instr) -> bool:
        if instr.kind != "formula" or instr.what[:2] != ("_nll_loss", "input"):
            return False
        return (
            tuple(instr.args[1:5]) == tuple(loss.args[1:5])
            and self.regs[instr.outs[0]].shape == self.regs[loss.args[0]].shape
        )

    def _drop_removed(self) -> None:
        kept = [pair for pair in zip(self.instrs, self.kernels, strict=True) if pair[0].kind != "removed"]
        self.instrs, self.kernels = [pair[0] for pair in kept], [pair[1] for pair in kept]

    def _find_roots(self) -> dict[int, frozenset[int]]:
        """For each register, the registers whose memory it may share."""
        roots = {number: reg.roots for number, reg in enumerate(self.regs)}
        for instr, kernel in zip(self.instrs, self.kernels, strict=True):
            for out in instr.outs:
                if out < 0:
                    continue
                own = frozenset((out,))
                if kernel is not None or instr.kind in ("own", "constant", "loss") or self.regs[out].fresh:
                    roots[out] = own
                else:
                    roots[out] = own.union(*[roots[read] for read in instr.reads()])
        return roots

    def _own(self) -> None:
        """Let a leaf take over its gradient's array if the array has no other use; else it is copied."""
        if not any(instr.kind == "own" for instr in self.instrs):
            return
        pairs = list(zip(self.instrs, self.kernels, strict=True))
        made_here = {out for instr in self.instrs if instr.kind != "constant" for out in instr.outs}
        # Results without a kernel, which may be expanded (stride 0).
        stretched = {out for instr, kernel in pairs if kernel is None for out in instr.outs}
        written = self._roots_of(target for instr in self.instrs for target in self._targets(instr))
        kept = self._roots_of([*self._made(), *(end for end in self.final_grads.values() if end is not None)])
        later: set[int] = set()  # what instructions behind the current one read
        taken: dict[int, int] = {}
        for instr in reversed(self.instrs):
            if instr.kind == "own":
                given, own = int(instr.args[0]), instr.outs[0]
                memory = self.roots[given]
                used = not memory.isdisjoint(later) or not memory.isdisjoint(kept)
                if memory <= made_here and not used and not (own in written and given in stretched):
                    instr.kind = "removed"
                    taken[own] = given
                    for uses in (written, kept, later):
                        if own in uses:
                            uses |= memory
            later |= self._roots_of(instr.reads())
        self._replace(taken)
        self._share_taken(taken)
        self._drop_removed()

    def _roots_of(self, numbers: Iterable[int]) -> set[int]:
        return set().union(*[self.roots[number] for number in numbers])

    def _share_taken(self, taken: dict[int, int]) -> None:
        """Let registers that may share the memory of a removed one share that of the array taken over."""
        for number, roots in self.roots.items():
            if not roots.isdisjoint(taken):
                self.roots[number] = roots.union(*[self.roots[taken[root]] for root in roots if root in taken])

    def writes_to(self, number: int) -> bool:
        """Whether an instruction writes to a register's memory."""
        return any(number in self.roots[target] for instr in self.instrs for target in self._targets(instr))

    @staticmethod
    def _targets(instr: Instr) -> tuple[int, ...]:
        """Registers that an instruction changes in place."""
        if instr.kind == "fused":
            return tuple(instr.what.group.targets)
        return tuple(instr.changes())

    def _find_last_uses(self) -> dict[int, int]:
        """For each root register, the index of the last instruction that uses its memory."""
        last: dict[int, int] = {}
        for place, instr in enumerate(self.instrs):
            for number in (*instr.reads(), *(out for out in instr.outs if out >= 0)):
                for root in self.roots[number]:
                    last[root] = place
        bound = {*self.input_regs, *self.entry.values()}
        kept = self._made()
        kept += [number for number in self.final_grads.values() if number is not None]
        for number in (*bound, *kept):
            for root in self.roots[number]:
                last[root] = NEVER
        return last


def _returns_gradient(instr: Instr, regs: Sequence[Reg]) -> bool:
    """Whether an instruction's result equals its first argument."""
    if instr.kind != "formula" or instr.what[:2] not in _SAME:
        return False
    given, out = instr.args[0], regs[instr.outs[0]]
    if type(given) is not Ref or (len(instr.args) > 1 and instr.args[1] != 1):
        return False
    return regs[given].shape == out.shape and regs[given].dtype == out.dtype


def _loss_backward(state: CrossEntropy, first: Instr, last: Instr) -> Kernel:
    """Kernel for the gradients of nll_loss and log_softmax in one step."""
    of_loss, of_logs, more, dim = first.what[2], last.what[2], first.args[2:], last.args[2]

    def run(out: Any, g: Any, logs: Any, target: Any) -> None:
        state.backward(out, g, logs, lambda: of_logs(of_loss(g, target, *more), logs, dim))

    return Kernel(run, [1])


class FreedNode:
    """A node that backward has freed, as a template for the outputs of later runs.

    place: its number, counted from the run's first node.
    """

    def __init__(self, node: Node, place: int) -> None:
        self.op, self.name, self.saving_plan, self.place = node.op, node.name, node.saving_plan, place

    def node(self, first: int) -> Node:
        """A node of the same name whose saved values are freed. first: number of the run's first node."""
        made = Node(self.op, self.name, self.saving_plan, (), (), (), first + self.place)
        made.freed = True
        return made


def _is_freed(node: Any) -> bool:
    """Whether a second backward would be refused, because this node or one behind it was freed."""
    seen = {node}
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if one.freed:
            return True
        for edge in one.edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                waiting.append(edge[0])
    return False


def _replaced(number: int | None, by: dict[int, int]) -> int | None:
    return None if number is None else by.get(number, number)


def _substituted(value: Any, by: dict[int, int]) -> Any:
    kind = type(value)
    if kind is Ref:
        return Ref(by.get(value, value))
    if kind in (list, tuple):
        return kind([_substituted(item, by) for item in value])
    return value

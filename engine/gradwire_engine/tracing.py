"""Tracing: what one run of a program computes, as a straight list of instructions on arrays.

While a context has a tracer every primitive op reports what it made of what. A backward is not watched but read off the
graph before it runs: it will visit the same nodes in the same order, with the same formulas, each time. What depends on
more than shapes, or would have to make graph nodes that outlive the run, ends the trace: `failed` says why, and the
program goes on being run op by op.
"""

from __future__ import annotations

import heapq
import types
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from gradwire_engine.composite import Composite
from gradwire_engine.graph import AccumulateGrad, Meta, Node, Saved
from gradwire_engine.hooks import hooks_on
from gradwire_engine.op import Op
from gradwire_engine.tensor import Tensor, edge_of


class Num(float):
    """A number that each run gives anew; `place` says which."""

    place: int

    @classmethod
    def at(cls, place: int, value: float) -> Num:
        """The number of that place in this run."""
        made = cls(value)
        made.place = place
        return made


def plain(values: Iterable[Any]) -> tuple[Any, ...]:
    """Values as NumPy is to see them: beside float32 it takes a float for one, but not what is derived of float."""
    return tuple([float(value) if type(value) is Num else value for value in values])


class NumRef(int):
    """Stands for a number in a template, by its place."""


class Ref(int):
    """Stands for an array in a template, by its register."""


class Reg:
    """An array of the run. `roots` are the registers whose memory it may share, its own number among them."""

    __slots__ = ("dtype", "fresh", "roots", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: Any, roots: frozenset[int], fresh: bool) -> None:
        self.shape = shape
        self.dtype = dtype
        self.roots = roots
        self.fresh = fresh  # whether it is known to have memory of its own, row-major


class Instr:
    """One instruction: `kind` and `what` say how to compute `outs` of `args`, a template."""

    __slots__ = ("args", "kind", "outs", "step", "what")

    def __init__(self, kind: str, what: Any, args: Any, outs: tuple[int, ...], step: int = 0) -> None:
        self.kind = kind
        self.what = what
        self.args = args
        self.outs = outs
        self.step = step  # of the program, for what is said when it fails

    def reads(self) -> list[int]:
        """The registers among its arguments."""
        return [int(item) for item in leaves(self.args) if type(item) is Ref]

    def __repr__(self) -> str:
        return f"{self.outs} = {self.kind} {self.what} {self.args}"


def leaves(value: Any) -> Iterable[Any]:
    """The items of nested lists and tuples."""
    if type(value) in (list, tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


class Tracer:
    """Notes one run on these inputs."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        self.inputs = list(inputs)
        self.failed: str | None = None
        self.step = 0
        self.regs: list[Reg] = []
        self.instrs: list[Instr] = []
        self.arrays: list[Any] = []  # of each register, where it is known; kept, so that an id names one array
        self._by_id: dict[int, int] = {}
        self._kept: list[Any] = []
        self.input_regs: list[int] = []
        #: Of an input with a gradient: the gradient's register.
        self.entry: dict[int, int] = {}
        #: Of tensors whose gradient changed: its register, or None.
        self.grads: dict[int, int | None] = {}
        self.changes: dict[int, int] = {}  # how often inputs' memory is written to, by register
        for place, tensor in enumerate(self.inputs):
            self._bind(place, tensor)

    plain = staticmethod(plain)

    def _bind(self, place: int, tensor: Tensor) -> None:
        if is_entangled(tensor) or type(tensor.array) is not np.ndarray:
            self.fail("an input has a history, is a view that requires a gradient, or is on a GPU")
        if not tensor.array.flags.c_contiguous or not tensor.array.flags.writeable:
            self.fail("an input is not row-major")
        self.input_regs.append(self._known(tensor.array, self._overlapping(tensor.array, self.input_regs)))
        if tensor.grad is not None:
            grad = tensor.grad.array
            if tensor.grad.node is not None or type(grad) is not np.ndarray or not grad.flags.c_contiguous:
                self.fail("a gradient has a history")
            self.entry[place] = self._known(grad, self._overlapping(grad, self.entry.values()))

    def _overlapping(self, array: Any, registers: Iterable[int]) -> list[int]:
        return [number for number in registers if np.may_share_memory(array, self.arrays[number])]

    def fail(self, why: str) -> None:
        """Give the trace up."""
        if self.failed is None:
            self.failed = why

    # Registers.

    def _known(self, array: Any, over: Iterable[int] = ()) -> int:
        """The register of an array; a new one if it has none."""
        number = self._by_id.get(id(array))
        if number is None:
            number = self._new(array.shape, array.dtype, over, bool(array.flags.c_contiguous))
            self.arrays[number] = array
            self._by_id[id(array)] = number
        return number

    def _new(self, shape: tuple[int, ...], dtype: Any, over: Iterable[int], fresh: bool) -> int:
        number = len(self.regs)
        roots = frozenset((number,)).union(*[self.regs[other].roots for other in over])
        self.regs.append(Reg(shape, dtype, roots, fresh and len(roots) == 1))
        self.arrays.append(None)
        return number

    def _operand(self, value: Any) -> Any:
        """A value as it stands in a template."""
        kind = type(value)
        if kind is Tensor:
            return self._ref(value.array)
        if kind is np.ndarray:
            return self._ref(value)
        if kind is Saved:
            return self._ref((value if value.leaf is None else value.leaf).array)
        if kind is Num:
            return NumRef(value.place)
        if kind is list or kind is tuple:
            return kind([self._operand(item) for item in value])
        if isinstance(value, (np.ndarray, np.generic)) or (hasattr(value, "__array_interface__") and kind is not Meta):
            self.fail("an array that no op made")
        return value

    def _ref(self, array: Any) -> Any:
        number = self._by_id.get(id(array))
        if number is None:
            self.fail("an array that no op made")
            return None
        return Ref(number)

    # What ops report.

    def applied(self, op: Op, args: tuple[Any, ...], made: Any) -> None:
        """An op made a tensor, or several, of its arguments."""
        if self.failed is not None:
            return
        flag = op.data_dependent
        if flag(*args) if callable(flag) else flag:
            self.fail(f"{op.name}: shapes follow from values")
        template = self._operand(args)
        results = made if type(made) in (list, tuple) else [made]
        self._emit("op", op, template, [tensor.array for tensor in results])

    def _append(self, instr: Instr) -> None:
        instr.step = self.step
        self.instrs.append(instr)

    def _emit(self, kind: str, what: Any, template: Any, results: Sequence[Any]) -> None:
        if self.failed is not None:
            return
        if any(type(array) is not np.ndarray for array in results):
            self.fail("a result that is on a GPU")
            return
        reads = [int(item) for item in leaves(template) if type(item) is Ref]
        outs = []
        for array in results:
            if id(array) in self._by_id:
                # The op answered an argument itself: a register of its own would be a second name of one array.
                self.fail("an op that answers its argument")
                return
            over = [number for number in reads if self._may_share(array, number)]
            outs.append(self._known(array, over))
        self._append(Instr(kind, what, template, tuple(outs)))

    def _may_share(self, array: Any, number: int) -> bool:
        other = self.arrays[number]
        return other is None or bool(np.may_share_memory(array, other))

    def wrote(self, op: Op, args: tuple[Any, ...], recorded: bool) -> None:
        """An op changed its first argument."""
        if self.failed is not None:
            return
        if recorded:
            self.fail(f"{op.name}_ is recorded")
            return
        template = self._operand(args)
        self._append(Instr("write", op, template, ()))
        self._count_change(template[0])

    def _count_change(self, target: Any) -> None:
        if type(target) is Ref:
            for root in self.regs[target].roots:
                self.changes[root] = self.changes.get(root, 0) + 1

    def mark(self) -> tuple[int, dict[int, int], str | None]:
        """The place in the trace, for `settle`."""
        return len(self.instrs), dict(self._by_id), self.failed

    def settle(
        self, mark: tuple[int, dict[int, int], str | None], op: Any, args: tuple[Any, ...], results: Sequence[Tensor]
    ) -> None:
        """A composite was called: what its parts have reported stands if it says all; else the call as a whole does."""
        tracked = any(tensor.requires_grad for tensor in results)
        if self.failed is None and not peeks(op) and all(id(tensor.array) in self._by_id for tensor in results):
            return
        if tracked:
            self.fail(f"{op.name} looks at values")
        else:
            count, self._by_id, self.failed = mark
            del self.instrs[count:]
        if self.failed is not None:
            return
        flag = op.data_dependent
        if flag(*args) if callable(flag) else flag:
            self.fail(f"{op.name}: shapes follow from values")
        self._emit("call", op, self._operand(args), [tensor.array for tensor in results])
        self._kept.append(results)

    def created(self, tensor: Tensor) -> None:
        """A leaf was made of values that stand in the program."""
        self._emit("constant", tensor.array.copy(), (), [tensor.array])

    # Backward.

    def backward(self, tensors: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> list[Tensor]:
        """Read off the graph what a backward will compute; the tensors that will receive a gradient."""
        if self.failed is not None:
            return []
        pending: dict[Any, list[int | None]] = {}
        roots = []
        for place, tensor in enumerate(tensors):
            gradient = gradients[place] if place < len(gradients) else None
            edge = edge_of(tensor)
            if edge is None or (gradient is not None and gradient.dtype != tensor.dtype):
                self.fail("a backward of something else")
                return []
            number = self._ones(tensor) if gradient is None else self._ref(gradient.array)
            if number is None:
                return []
            roots.append(edge[0])
            self._add(pending, edge[0], edge[1], int(number))
        deliveries = self._propagate(roots, pending)
        return [self._deliver(tensor, number) for tensor, number in deliveries] if self.failed is None else []

    def _ones(self, tensor: Tensor) -> int:
        number = self._new(tensor.shape, tensor.dtype, (), True)
        self._append(Instr("constant", np.ones(tensor.shape, tensor.dtype), (), (number,)))
        return number

    def _add(self, pending: dict[Any, list[int | None]], node: Any, index: int, number: int) -> None:
        held = pending.setdefault(node, [])
        held.extend([None] * (index + 1 - len(held)))
        before = held[index]
        if before is not None:
            one, other = self.regs[before], self.regs[number]
            if one.shape != other.shape or one.dtype != other.dtype:
                self.fail("gradients of two kinds are added")
            total = self._new(one.shape, one.dtype, (), True)
            self._append(Instr("sum", None, (Ref(before), Ref(number)), (total,)))
            number = total
        held[index] = number

    def _add_along(self, pending: dict[Any, list[int | None]], edge: Any, number: int) -> None:
        if edge is not None:
            self._add(pending, edge[0], edge[1], number)

    def _propagate(self, starts: list[Any], pending: dict[Any, list[int | None]]) -> list[tuple[Tensor, int]]:
        counts: dict[Any, int] = dict.fromkeys(starts, 0)
        stack = list(counts)
        while stack:
            node = stack.pop()
            if type(node) not in (Node, AccumulateGrad) or node.freed or node.retained or hooks_on(node):
                self.fail("a node that was freed, keeps its gradient, has hooks or is of another kind")
                return []
            for edge in node.edges:
                if edge is not None:
                    if edge[0] not in counts:
                        counts[edge[0]] = 0
                        stack.append(edge[0])
                    counts[edge[0]] += 1
        deliveries: list[tuple[Tensor, int]] = []
        ready = [(-node.seq, number, node) for number, node in enumerate(pending) if not counts[node]]
        heapq.heapify(ready)
        tie = len(ready)
        while ready:
            _, _, node = heapq.heappop(ready)
            arrived = pending.pop(node, None)
            if arrived is not None:
                if type(node) is AccumulateGrad:
                    if node.variable.requires_grad and arrived[0] is not None:
                        deliveries.append((node.variable, arrived[0]))
                else:
                    self._visit(node, arrived, pending)
            for edge in node.edges:
                if edge is not None:
                    counts[edge[0]] -= 1
                    if not counts[edge[0]]:
                        tie += 1
                        heapq.heappush(ready, (-edge[0].seq, tie, edge[0]))
        return deliveries

    def _visit(self, node: Node, arrived: list[int | None], pending: dict[Any, list[int | None]]) -> None:
        values = [self._operand(value) for value in node.saved]
        gradients: list[Any] = [None if number is None else Ref(number) for number in arrived]
        if node.outputs is not None:
            gradients += [None] * (len(node.outputs) - len(gradients))
            for place, meta in enumerate(node.outputs):
                if meta is not None and gradients[place] is None:
                    gradients[place] = Ref(self._new(meta.shape, meta.dtype, (), True))
                    zeros = np.zeros(meta.shape, meta.dtype)
                    self._append(Instr("constant", zeros, (), (int(gradients[place]),)))
        if gradients[0] is None:
            self.fail("no gradient arrives for a node's first result")
            return
        op = node.op
        for slot, formula, places, takes_all in node.plan.formulas:
            given = tuple(gradients) if takes_all else gradients[0]
            args = (given, *(values if places is None else [values[place] for place in places]))
            if op.list_place >= 0:
                self._spread(node, slot, formula, args, pending)
            elif node.edges[slot] is not None:
                name = op.params[op.tensor_places[slot]].name
                number = self._formula((op.name, name, formula), args, node.metas[slot])
                self._add_along(pending, node.edges[slot], number)

    def _formula(self, what: Any, args: Any, meta: Any) -> int:
        reads = [int(item) for item in leaves(args) if type(item) is Ref]
        number = self._new(meta[0], meta[1], reads, False)
        self._append(Instr("formula", what, args, (number,)))
        return number

    def _spread(self, node: Node, slot: int, formula: Any, args: Any, pending: dict[Any, list[int | None]]) -> None:
        """A formula of an op that takes a list: as many gradients as the list is long."""
        op = node.op
        length = len(node.edges) - len(op.tensor_places) + 1
        if op.tensor_places[slot] == op.list_place:
            first, count = slot, length
        else:
            first, count = (slot if op.tensor_places[slot] < op.list_place else slot - 1 + length), 1
        reads = [int(item) for item in leaves(args) if type(item) is Ref]
        outs = []
        for place in range(first, first + count):
            meta = node.metas[place]
            outs.append(-1 if meta is None else self._new(meta[0], meta[1], reads, False))
        single = op.tensor_places[slot] != op.list_place
        self._append(Instr("spread", (formula, single), args, tuple(outs)))
        for place, number in enumerate(outs, first):
            if number >= 0:
                self._add_along(pending, node.edges[place], number)

    def _deliver(self, tensor: Tensor, number: int) -> Tensor:
        self._kept.append(tensor)
        held = self.grads.get(id(tensor), self._entry_of(tensor))
        if held is not None:
            self._append(Instr("accumulate", None, (Ref(held), Ref(number)), ()))
            self._count_change(Ref(held))
            self.grads[id(tensor)] = held
            return tensor
        own = self._new(self.regs[number].shape, self.regs[number].dtype, (), True)
        self._append(Instr("own", None, (Ref(number),), (own,)))
        self.grads[id(tensor)] = own
        return tensor

    def _entry_of(self, tensor: Tensor) -> int | None:
        for place, given in enumerate(self.inputs):
            if given is tensor:
                return self.entry.get(place)
        return None

    def delivered(self, tensors: Iterable[Tensor]) -> None:
        """The backward has run: these tensors' gradients are the arrays that were foreseen."""
        for tensor in tensors:
            number, grad = self.grads.get(id(tensor)), tensor.grad
            if number is None or grad is None or type(grad.array) is not np.ndarray:
                self.fail("a gradient that was not foreseen")
                continue
            self._by_id[id(grad.array)] = number
            self.arrays[number] = grad.array
            self._kept.append(grad)

    def cleared(self, tensor: Tensor) -> None:
        """A tensor's gradient was set to None."""
        self._kept.append(tensor)
        self.grads[id(tensor)] = None

    def register_of(self, tensor: Tensor) -> int | None:
        """Where a tensor's array is."""
        return self._by_id.get(id(tensor.array))


def is_entangled(tensor: Tensor) -> bool:
    """Whether a tensor's place in a graph is not its own alone."""
    return tensor.node is not None or (tensor.view is not None and tensor.requires_grad)


def peeks(op: Any) -> bool:
    """Whether a composite, or a function that it calls, may look at arrays themselves, and so decide by values."""
    return type(op) is not Op and (not isinstance(op, Composite) or _peeks(op.function))


# Names by which a function comes at arrays, or draws random ones outside of an op.
_REVEALING = frozenset(("array", "storage", "host", "generator_for", "uniform_array", "normal_array"))


@cache
def _peeks(function: Any) -> bool:
    seen: set[Any] = set()
    waiting = [function]
    while waiting:
        one = waiting.pop()
        code = one.__code__
        if code in seen:
            continue
        seen.add(code)
        names = set(_names(code))
        if names & _REVEALING:
            return True
        for name in names:
            found = one.__globals__.get(name)
            if isinstance(found, Composite):
                found = found.function
            if isinstance(found, types.FunctionType) and found.__module__.startswith("gradwire_engine.ops"):
                waiting.append(found)
    return False


def _names(code: types.CodeType) -> Iterable[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)

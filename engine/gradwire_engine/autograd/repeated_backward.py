"""Repeated backward: the pass over a graph whose nodes were made by the same repeated calls as those of an earlier one.

The parts of repeated calls (op/repeated.py) and the edges between their nodes decide everything of a plain pass but
the values. So the second pass over such a graph notes its formulas, as a list of forwards of ops on arrays, in the
order of the ordinary pass. Later passes run the list. A formula whose noted ops give other bits than itself is called
as it is. Where anything is unusual, nothing has changed, and the ordinary pass runs. It alone can pause: noting ends,
and so does a list, when a pause is due.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from heapq import heapify, heappop, heappush
from time import monotonic
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

import numpy as np

from gradwire_engine.autograd.backward_pass import NEVER
from gradwire_engine.autograd.buffer_reuse import own
from gradwire_engine.autograd.headroom import needed as needed_back
from gradwire_engine.core.context import CURRENT, Context, Interrupt
from gradwire_engine.core.device import cupy
from gradwire_engine.graph.callbacks import hooks_on
from gradwire_engine.graph.graph import LAST, AccumulateGrad, Node
from gradwire_engine.graph.saved import Saved
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.admission import needed
from gradwire_engine.op.composite import Composite
from gradwire_engine.op.cost import LONG
from gradwire_engine.op.op import Op
from gradwire_engine.op.repeated import forward_of, is_repeatable, record
from gradwire_engine.ops.base.basic import fit
from gradwire_engine.ops.linalg.matrix import matrix_t

_MOST_NODES = 4096  # of a graph whose pass is noted
_MOST_KNOWN = 1 << 15  # nodes of all graphs that are known
_Key = tuple[Any, ...]
#: A forward, the registers of its arguments, and that of its result.
_Step = tuple[Callable[..., Any], tuple[int, ...], int]


#: What a formula of ops alone may refer to besides functions, and names by which it could tell arrays from tensors.
_PLAIN = (Op, int, float, complex, str, tuple, type(None), BuiltinFunctionType)
_OF_ARRAYS = frozenset(("array", "base", "data", "flags", "host", "item", "storage", "strides"))


class _Unusual(Exception):
    """The ordinary pass must run."""


class _Paused(Exception):
    """The pass must pause or stop, which only the ordinary pass can."""


class PassMemo:
    """The passes of a session over known graphs; the longest unused are forgotten."""

    def __init__(self) -> None:
        self._known: OrderedDict[_Key, NotedPass | int | None] = OrderedDict()
        self._nodes = 0

    def run(self, root: Tensor) -> list[Tensor] | None:
        """Add the gradients of a tensor to leaves, as `backward`; None if the ordinary pass must do it.

        Returns the tensors that received a gradient. Raises EngineError: MEMORY_LIMIT, as `backward`.
        """
        context = CURRENT.get()
        interrupt = context.interrupt or NEVER
        if interrupt.node_began is not None or context.duals.active or context.tracer is not None:
            return None
        if root.view is not None or type(root.node) is not Node or root.array.size != 1 or root.index:
            return None
        found = _graph(root.node)
        if found is None or (monotonic() >= interrupt.at and _is_due(interrupt)):
            return None
        key, nodes = found
        noted = self._known.get(key, 0)
        if isinstance(noted, NotedPass):
            self._known.move_to_end(key)
            return noted.run(nodes, context)
        if noted is not None:
            self._note(key, nodes, root, noted, context)
        return None

    def noted(self, root: Node) -> tuple[_Key, list[Any], NotedPass] | None:
        """What decides the pass from a node, the nodes in order of discovery, and the list; None without a list."""
        found = _graph(root)
        noted = None if found is None else self._known.get(found[0])
        return (*found, noted) if found is not None and isinstance(noted, NotedPass) else None

    def _note(self, key: _Key, nodes: list[Any], root: Tensor, seen: int, context: Context) -> None:
        """Count a graph; note its pass at the second time, or after a pause prevented that, at the fourth, eighth, …"""
        if not seen:
            self._nodes += len(nodes)
        self._known[key] = count = seen + 1
        while self._nodes > _MOST_KNOWN:
            oldest, _ = self._known.popitem(last=False)
            self._nodes -= _count(oldest)
        if count == 1 or count & (count - 1) or key not in self._known:
            return
        try:
            self._known[key] = _Noting(nodes, root, context).noted()
        except _Paused:
            return
        except Exception:  # noqa: BLE001 - the ordinary pass, which follows, raises its own errors
            self._known[key] = None


def _count(key: _Key) -> int:
    return int(key[0])


def _graph(root: Node) -> tuple[_Key, list[Any]] | None:
    """What decides a pass over the graph but values, and the nodes in order of discovery. None if it is unusual."""
    places: dict[Any, int] = {root: 0}
    nodes: list[Any] = [root]
    key: list[Any] = [0]
    numbers: list[int] = []
    falling, last = True, LAST
    for node in nodes:
        if len(nodes) > _MOST_NODES:
            return None
        if type(node) is Node:
            part = node.part
            if part is None or node.freed or node.hooks is not None or node.retained is not None:
                return None
            key.append(part)
            number = node.seq
            if number >= last:
                falling = False
            last = number
            numbers.append(number)
            for edge in node.edges:
                if edge is None:
                    key.append(None)
                else:
                    target = edge[0]
                    place = places.get(target)
                    if place is None:
                        place = places[target] = len(nodes)
                        nodes.append(target)
                    key.append(place)
        else:
            if type(node) is not AccumulateGrad or hooks_on(node) is not None:
                return None
            leaf = node.variable
            state = leaf.state
            if not leaf.requires_grad or leaf.view is not None or (state is not None and state.grad is not None):
                return None
            key.append(0)
            numbers.append(LAST)
    key[0] = len(nodes)
    if not falling:
        key.append(tuple(sorted(range(len(nodes)), key=numbers.__getitem__)))
    return tuple(key), nodes


class NotedPass:
    """The list of a pass: see the module's docstring.

    registers: constants at their places. loads: register, node, place and description of saved values. leaves: node and
    register of gradients, in the order of delivery. frees: nodes that drop their saved values. room: bytes that the
    pass takes.
    """

    __slots__ = ("frees", "leaves", "loads", "operations", "registers", "room", "steps")

    def __init__(self) -> None:
        self.registers: list[Any] = []
        self.loads: list[tuple[int, int, int, Any]] = []
        self.steps: list[_Step] = []
        self.leaves: list[tuple[int, int]] = []
        self.frees: list[int] = []
        self.room, self.operations = 0, 0.0

    def run(self, nodes: Sequence[Any], context: Context) -> list[Tensor] | None:
        """Run the pass over a graph with this key; None, with nothing changed, if the ordinary pass must run."""
        account = context.account
        if (account.limit and account.bytes + self.room > account.limit) or self.operations > account.operations:
            return None
        registers = self.registers.copy()
        for register, number, place, description in self.loads:
            saved = nodes[number].saved[place]
            if type(saved) is Saved:
                leaf = saved.leaf
                holder = saved if leaf is None else leaf
                if saved.version != holder.storage.version or saved.tangents is not None:
                    return None
                registers[register] = array = holder.array
                if (array.shape, array.strides, array.dtype) != description:  # of a leaf that was given other data
                    return None
            else:
                registers[register] = saved
        at, interrupt = registers.__getitem__, context.interrupt or NEVER
        try:
            for forward, places, out in self.steps:
                if monotonic() >= interrupt.at and _is_due(interrupt):
                    return None  # the ordinary pass can pause
                registers[out] = forward(np, *map(at, places))
        except Exception:  # noqa: BLE001 - the ordinary pass raises it again
            return None
        found = [(nodes[number].variable, registers[register]) for number, register in self.leaves]
        if not all(leaf.array.shape == gradient.shape for leaf, gradient in found):
            return None
        del at, registers
        for number in self.frees:
            nodes[number].free()
        return _deliver(found)


def _is_due(interrupt: Interrupt) -> bool:
    """Whether a pass whose interrupt asks to be checked must stop or pause."""
    return interrupt.stopping() or interrupt.pauses()


def _deliver(found: list[tuple[Tensor, Any]]) -> list[Tensor]:
    """Give leaves their first gradients, as BackwardPass.deliver; all allocations come first."""
    ready: list[tuple[Tensor, Tensor]] = []
    found.reverse()
    while found:
        leaf, gradient = found.pop()  # drops a reference, so that `own` can take the array over
        ready.append((leaf, own(gradient)))
    for leaf, made in ready:
        leaf.grad_state().grad = made
    return [leaf for leaf, _ in ready]


class _Noting:
    """Computes a pass by its formulas, without effect on the graph, and notes what it computes."""

    def __init__(self, nodes: list[Any], root: Tensor, context: Context) -> None:
        self._nodes, self._context = nodes, context
        self._made = NotedPass()
        self._values: list[Any] = []  # by register
        self._held: dict[int, Any] = {}  # constants by register
        self._pending: dict[Any, int] = {}  # registers of the gradients that arrived
        self._numbers = {node: number for number, node in enumerate(nodes)}
        shape, dtype = root.array.shape, root.array.dtype
        self._pending[nodes[0]] = self._step(lambda xp: np.ones(shape, dtype), ())

    def noted(self) -> NotedPass:
        """The pass. Raises _Unusual, _Paused, and what the formulas raise."""
        if cupy() is not None or self._values[0].dtype.kind != "f":
            raise _Unusual
        interrupt = self._context.interrupt or NEVER
        for node in self._order():
            if monotonic() >= interrupt.at and _is_due(interrupt):
                raise _Paused
            register = self._pending.pop(node)
            if type(node) is AccumulateGrad:
                self._made.leaves.append((self._numbers[node], register))
            else:
                self._propagate(node, register)
        made = self._made
        made.registers = [None] * len(self._values)
        for register, value in self._held.items():
            made.registers[register] = value
        return made

    # The order of BackwardPass._traverse.

    def _order(self) -> list[Any]:
        counts: dict[Any, int] = dict.fromkeys(self._nodes, 0)
        for node in self._nodes:
            for edge in node.edges:
                if edge is not None:
                    counts[edge[0]] += 1
        order: list[Any] = []
        ready: list[tuple[int, int, Any]] = [(-self._nodes[0].seq, 0, self._nodes[0])]
        heapify(ready)
        tie, lone = 1, None
        while ready or lone is not None:
            if lone is None:
                node = heappop(ready)[2]
            else:
                node, lone = lone, None
            order.append(node)
            for edge in node.edges:
                if edge is None:
                    continue
                target = edge[0]
                counts[target] -= 1
                if counts[target]:
                    continue
                if lone is None and not ready:
                    lone = target
                    continue
                if lone is not None:
                    tie += 1
                    heappush(ready, (-lone.seq, tie, lone))
                    lone = None
                tie += 1
                heappush(ready, (-target.seq, tie, target))
        return order

    # Registers and steps.

    def _step(self, forward: Callable[..., Any], places: tuple[int, ...]) -> int:
        """Note a step and compute it; return the register of its result. Raises _Unusual if memory is short."""
        value = forward(np, *[self._values[place] for place in places])
        self._made.room += int(getattr(value, "nbytes", 0))
        account = self._context.account
        if account.limit and account.bytes + self._made.room > account.limit:
            raise _Unusual
        out = self._register(value)
        self._made.steps.append((forward, places, out))
        return out

    def _register(self, value: Any) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def _constant(self, value: Any) -> int:
        register = self._register(value)
        self._held[register] = value
        return register

    def _propagate(self, node: Node, register: int) -> None:
        """Note a node's formulas."""
        op, plan, made = node.op, node.saving_plan, self._made
        if node.outputs is not None or op.list_position >= 0 or node.work >= LONG:
            raise _Unusual
        made.operations = max(made.operations, node.work)
        saved = [self._load(node, place, value, plan.names[place]) for place, value in enumerate(node.saved)]
        made.room += needed_back(node, [self._values[register]])
        for slot, formula, places, takes_all in plan.formulas:
            edge, meta = node.edges[slot], node.metas[slot]
            if edge is None or meta is None:
                continue
            if takes_all:
                raise _Unusual
            given = [register, *(saved if places is None else [saved[place] for place in places])]
            self._add(edge, self._formula(formula, meta, given))
        if plan.saves_tensors:
            made.frees.append(self._numbers[node])

    def _load(self, node: Node, place: int, value: Any, name: str) -> int:
        """The register of a saved value: an array, a number that may change, or a constant."""
        if type(value) is Saved:
            register = self._register(value.value(node, name))
        elif type(value) is float:
            register = self._register(value)
        elif isinstance(value, (list, np.ndarray, Tensor)):
            raise _Unusual
        else:
            return self._constant(value)
        held = self._values[register]
        description = (held.shape, held.strides, held.dtype) if isinstance(held, np.ndarray) else None
        self._made.loads.append((register, self._numbers[node], place, description))
        return register

    def _add(self, edge: Any, register: int) -> None:
        target, index = edge
        if index:
            raise _Unusual
        held = self._pending.get(target)
        self._pending[target] = register if held is None else self._step(_sum, (held, register))

    def _formula(self, formula: Callable[..., Any], meta: Any, given: list[int]) -> int:
        """The register of a formula's result, fitted to its input."""
        values = [self._values[register] for register in given]
        made = formula(*values)
        expected = fit(made, meta)
        # What a formula does by values and by numbers, which differ between passes, holds for this pass alone. NumPy's
        # numbers are results without dimensions.
        varies = getattr(formula, "reads_values", False) or any(
            isinstance(value, (float, np.generic)) for value in values
        )
        out = None
        if not varies and _is_of_ops(formula):
            out = self._by_ops(lambda *values: fit(formula(*values), meta), given, expected)
        elif made is not expected and type(made) is np.ndarray:
            called = self._step(_with_layout(formula, made), tuple(given))
            out = self._by_ops(lambda made: fit(made, meta), [called], expected)
        return self._step(lambda xp, *values: fit(formula(*values), meta), tuple(given)) if out is None else out

    def _by_ops(self, compute: Callable[..., Any], given: list[int], expected: Any) -> int | None:
        """Note the ops of a computation; None, with nothing noted, if they do not make what is expected."""
        steps = self._steps_of(compute, given)
        if steps is None:
            return None
        length, count, room, held = len(self._values), len(self._made.steps), self._made.room, dict(self._held)
        out = self._replayed(steps, given)
        if out is not None and same_bits(self._values[out], expected):
            return out
        self._made.room, self._held = room, held
        del self._values[length:], self._made.steps[count:]
        return None

    def _steps_of(self, compute: Callable[..., Any], given: list[int]) -> Any:
        """The ops that a computation applies to tensors, with its operands; None if they do not tell all."""
        values = [self._values[register] for register in given]
        tensors = [Tensor(value) if isinstance(value, np.ndarray) else value for value in values]
        context = replace(self._context, grad_enabled=False)
        made, recorder = record(context, lambda: compute(*tensors))
        return None if recorder.failed or type(made) is not Tensor else (tensors, recorder.calls, made)

    def _replayed(self, steps: Any, given: list[int]) -> int | None:
        """Note the ops of a formula as steps."""
        tensors, calls, result = steps
        operands = zip(tensors, given, strict=True)
        known = {id(each): register for each, register in operands if type(each) is Tensor}
        for op, args, made in calls:
            if not is_repeatable(op) or type(made) is not Tensor:
                return None
            places = []
            for each in args:
                if type(each) is Tensor:
                    if id(each) not in known:
                        return None
                    places.append(known[id(each)])
                elif isinstance(each, (Tensor, list, np.ndarray, np.generic)):
                    return None
                else:
                    places.append(self._constant(each))
            arrays = [self._values[place] for place in places]
            if op.may_grow:
                self._made.room += needed(op, arrays)
            known[id(made)] = self._step(forward_of(op, arrays), tuple(places))
        return known.get(id(result))


@cache
def _is_of_ops(formula: Any) -> bool:
    """Whether a formula surely computes by ops alone, so that it has no other way for arrays than for tensors."""
    seen: set[CodeType] = set()
    waiting = [formula]
    while waiting:
        one = waiting.pop()
        if one is matrix_t:  # a view of either
            continue
        if isinstance(one, Composite):
            one = one.function
        if not isinstance(one, FunctionType):
            if not isinstance(one, _PLAIN):
                return False
            continue
        if one.__code__ in seen:
            continue
        seen.add(one.__code__)
        names = set(_names_in(one.__code__))
        if names & _OF_ARRAYS:
            return False
        waiting += [one.__globals__[name] for name in names if name in one.__globals__]
        waiting += [cell.cell_contents for cell in one.__closure__ or ()]
    return True


def _names_in(code: CodeType) -> Iterator[str]:
    """The names and the texts that a function's code has, and those of the functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
        elif isinstance(constant, str):
            yield constant


def _with_layout(formula: Callable[..., Any], wanted: Any) -> Callable[..., Any]:
    """A formula as a step, whose results have the layout of this one; for others the ordinary pass runs."""
    shape, strides, dtype = wanted.shape, wanted.strides, wanted.dtype

    def run(xp: Any, *values: Any) -> Any:
        made = formula(*values)
        if type(made) is not np.ndarray or made.shape != shape or made.strides != strides or made.dtype is not dtype:
            raise _Unusual
        return made

    return run


def _sum(xp: Any, one: Any, other: Any) -> Any:
    return one + other


def same_bits(one: Any, other: Any) -> bool:
    """Whether two results have the same bits and layout."""
    return (
        type(one) is type(other)
        and one.dtype == other.dtype
        and one.shape == other.shape
        and one.strides == other.strides
        and one.tobytes() == other.tobytes()
    )

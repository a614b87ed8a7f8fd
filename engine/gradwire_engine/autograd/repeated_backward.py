"""Repeated backward: the pass over a graph that has the nodes and edges of an earlier one.

The second pass over such a graph notes its formulas, in the order of the ordinary pass, and delivers their gradients.
Later passes run the list. The results of a formula must have the layout of the noted ones. A list that has run often,
or is needed for a step, is made again: the formulas of nodes with a part become forwards of ops on arrays. The parts of
repeated calls (op/repeated.py) and the edges decide everything of them but the values. A formula whose noted ops give
other bits than itself is called as it is. Where anything is unusual, nothing has changed, and the ordinary pass runs.
It alone can pause: noting ends, and so does a list, when a pause is due.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, partial
from heapq import heapify, heappop, heappush
from time import monotonic
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

import numpy as np

from gradwire_engine.autograd.backward_pass import NEVER, edges_of
from gradwire_engine.autograd.buffer_reuse import own
from gradwire_engine.autograd.headroom import needed as needed_back
from gradwire_engine.autograd.saved_tensor_hooks import Packed
from gradwire_engine.core.context import CURRENT, Context, Interrupt
from gradwire_engine.core.device import cupy
from gradwire_engine.graph.callbacks import hooks_on
from gradwire_engine.graph.graph import LAST, AccumulateGrad, Node
from gradwire_engine.graph.saved import Saved
from gradwire_engine.graph.tensor import Storage, Tensor
from gradwire_engine.op.admission import needed
from gradwire_engine.op.composite import Composite
from gradwire_engine.op.cost import LONG
from gradwire_engine.op.op import Op
from gradwire_engine.op.refusals import shares_elements
from gradwire_engine.op.repeated import forward_of, is_repeatable, record
from gradwire_engine.ops.base.basic import fit
from gradwire_engine.ops.linalg.matrix import matrix_t

_MOST_NODES = 4096  # of a graph whose pass is noted
_MOST_KNOWN = 1 << 15  # nodes of all graphs that are known
_OFTEN = 24  # runs of a list until it is made again by ops, which takes as long as five passes
_MOST_ROOM = 64 << 20  # bytes of all gradients of a pass, which its noting holds at once
_LARGE = 1 << 15  # bytes of an array whose memory is given back during a pass
_MOST_MISSED = 8  # passes in a row that a list could not run, until it is forgotten
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
            if not noted.starts_at(root):
                return None
            if noted.runs == _OFTEN and not noted.by_ops:
                noted = self.by_ops(key, nodes, root, context)
            received = noted.run(nodes, context)
            if noted.missed >= _MOST_MISSED:
                self._known[key] = None  # what its nodes save varies too much
            return received
        return None if noted is None else self._note(key, nodes, root, noted, context)

    @staticmethod
    def graph(root: Tensor) -> tuple[_Key, list[Any]] | None:
        """What decides the pass from a result, and the nodes in order of discovery; None if it is unusual."""
        return _graph(root.node) if type(root.node) is Node else None

    def noted(self, key: _Key, nodes: list[Any], root: Tensor, context: Context, make: bool = True) -> NotedPass | None:
        """The list of a graph, made of ops. None without one. Raises what formulas raise.

        make: whether to make it now if none is known, which takes as long as five passes.
        """
        known = self._known.get(key, 0)
        if known is None or (isinstance(known, NotedPass) and not known.starts_at(root)):
            return None
        if not make and not (isinstance(known, NotedPass) and known.by_ops) and _shared(key, root) is None:
            return None
        if isinstance(known, int):
            known = _by_ops(key, nodes, root, context)
            self._add(key, len(nodes), known)
        return self.by_ops(key, nodes, root, context)

    def _note(self, key: _Key, nodes: list[Any], root: Tensor, seen: int, context: Context) -> list[Tensor] | None:
        """Count a graph; note and run its pass at the second time, or after a pause at the fourth, eighth, …"""
        count = seen + 1
        self._add(key, len(nodes), count)
        if count == 1 or count & (count - 1) or key not in self._known:
            return None
        try:
            noting = _Noting(nodes, root, context, False)
            self._known[key] = noted = noting.noted()
        except _Paused:
            return None
        except Exception:  # noqa: BLE001 - the ordinary pass, which follows, raises its own errors
            self._known[key] = None
            return None
        registers = noting.values
        del noting  # so that `own` can take gradients over
        return noted.deliver(nodes, registers)

    def _add(self, key: _Key, nodes: int, known: NotedPass | int) -> None:
        """Note what is known of a graph, and forget the longest unused ones if they are too many."""
        if key not in self._known:
            self._nodes += nodes
        self._known[key] = known
        while self._nodes > _MOST_KNOWN:
            oldest, _ = self._known.popitem(last=False)
            self._nodes -= _count(oldest)

    def by_ops(self, key: _Key, nodes: list[Any], root: Tensor, context: Context) -> NotedPass:
        """The list of a graph, made again by ops if that is possible."""
        noted = self._known[key]
        assert isinstance(noted, NotedPass)
        if noted.by_ops:
            return noted
        noted.by_ops = True  # not tried again
        if any(type(node) is Node and node.part is not None for node in nodes):
            try:
                self._known[key] = noted = _by_ops(key, nodes, root, context)
            except _Paused:
                noted.by_ops, noted.runs = False, 0
            except Exception:  # noqa: BLE001 - such as too little memory
                return noted
        return noted


#: Lists that are made of ops, by graph and by the root's description. All sessions of a process share them.
_SHARED: OrderedDict[_Key, NotedPass] = OrderedDict()
_MOST_SHARED = 256  # lists, and nodes of one
_MOST_HELD = 1 << 12  # bytes of a constant of a list that is shared


def _shared(key: _Key, root: Tensor) -> NotedPass | None:
    return _SHARED.get((key, root.array.shape, root.array.dtype))


def _by_ops(key: _Key, nodes: list[Any], root: Tensor, context: Context) -> NotedPass:
    """The list of a graph, made of ops: one of its own, of which another may have been made before."""
    made = _shared(key, root)
    if made is None:
        made = _Noting(nodes, root, context, True).noted()
        held = [getattr(each, "nbytes", 0) for each in made.registers]
        if len(nodes) <= _MOST_SHARED and max(held, default=0) <= _MOST_HELD:
            _SHARED[key, root.array.shape, root.array.dtype] = made
            if len(_SHARED) > _MOST_SHARED:
                _SHARED.popitem(last=False)
    found = copy(made)
    found.missed = found.runs = 0
    return found


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
            if node.freed or node.hooks is not None or node.retained is not None:
                return None
            key.append(_kind(node) if part is None else part)
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
                    key.append((place, edge[1]) if edge[1] else place)
        else:
            if type(node) is not AccumulateGrad or hooks_on(node) is not None:
                return None
            leaf = node.variable
            state = leaf.state
            if not leaf.requires_grad or leaf.view is not None or (state is not None and not is_plain(state.grad)):
                return None
            key.append(0)
            numbers.append(LAST)
    key[0] = len(nodes)
    if not falling:
        key.append(tuple(sorted(range(len(nodes)), key=numbers.__getitem__)))
    return tuple(key), nodes


def is_plain(gradient: Tensor | None) -> bool:
    """Whether a leaf has no gradient, or one of its own to which another can be added in place."""
    if gradient is None:
        return True
    if type(gradient) is not Tensor or gradient.node is not None or gradient.view is not None:
        return False
    flags = gradient.array.flags
    if type(gradient.storage) is not Storage or not flags.writeable or not gradient.array.size:
        return False
    return bool(flags.c_contiguous) or not shares_elements(gradient.array)  # the ordinary pass refuses the others


def _kind(node: Node) -> _Key:
    """What decides the formulas of a node without a part, but for what it has saved, and their work."""
    outputs = node.outputs
    shapes = None if outputs is None else tuple([None if one is None else (one.shape, one.dtype) for one in outputs])
    return node.saving_plan, node.metas, shapes, node.work


class NotedPass:
    """The list of a pass: see the module's docstring.

    registers: constants at their places. loads: register, node, place and description of saved values. leaves: node and
    register of gradients, in the order of delivery. ends: large values that are not needed after each step. frees:
    nodes that drop their saved values. room: bytes that the pass takes. missed: passes in a row that it could not run;
    runs: those that it could. by_ops: whether it is made of ops where that is possible. root: shape and dtype of the
    result, which its node alone does not tell.
    """

    __slots__ = (
        "by_ops", "ends", "frees", "leaves", "loads", "missed", "operations", "registers", "room", "root", "runs",
        "steps",
    )  # fmt: skip

    def __init__(self, root: tuple[tuple[int, ...], Any]) -> None:
        self.root = root
        self.registers: list[Any] = []
        self.loads: list[tuple[int, int, int, Any]] = []
        self.steps: list[_Step] = []
        self.ends: Sequence[tuple[int, ...]] = ()
        self.leaves: list[tuple[int, int]] = []
        self.frees: list[int] = []
        self.room, self.operations = 0, 0.0
        self.missed, self.runs, self.by_ops = 0, 0, False

    def starts_at(self, root: Tensor) -> bool:
        """Whether a result is described as that of the noted pass: its first gradient is then the same."""
        return self.root == (root.array.shape, root.array.dtype)

    def run(self, nodes: Sequence[Any], context: Context) -> list[Tensor] | None:
        """Run the pass over a graph with this key; None, with nothing changed, if the ordinary pass must run."""
        account = context.account
        if (account.limit and account.bytes + self.room > account.limit) or self.operations > account.operations:
            return None
        registers = self.registers.copy()
        at, interrupt = registers.__getitem__, context.interrupt or NEVER
        try:
            for register, number, place, description in self.loads:
                saved = nodes[number].saved[place]
                if type(saved) is Saved:
                    leaf = saved.leaf
                    holder = saved if leaf is None else leaf
                    if saved.version != holder.storage.version or saved.tangents is not None or saved.storage.left:
                        return None
                    array = holder.array
                    if (array.shape, array.strides, array.dtype) != description:
                        raise _Unusual  # such as a leaf that was given other data
                    registers[register] = array
                elif type(saved) is float is description:
                    registers[register] = saved
                else:
                    registers[register] = value = _loaded(saved, nodes[number])
                    if _described(value) != description:
                        raise _Unusual
            for (forward, places, out), ended in zip(self.steps, self.ends, strict=True):
                if monotonic() >= interrupt.at and _is_due(interrupt):
                    return None  # the ordinary pass can pause
                registers[out] = forward(np, *map(at, places))
                for each in ended:
                    registers[each] = None
        except Exception:  # noqa: BLE001 - the ordinary pass raises it again
            self.missed += 1
            return None
        self.missed, self.runs = 0, self.runs + 1
        del at
        return self.deliver(nodes, registers)

    def deliver(self, nodes: Sequence[Any], registers: list[Any]) -> list[Tensor] | None:
        """Give leaves the gradients of a pass that was computed. The registers are emptied."""
        found = [(nodes[number].variable, registers[register]) for number, register in self.leaves]
        if not all(_takes(leaf, gradient) for leaf, gradient in found):
            return None
        registers.clear()
        for number in self.frees:
            nodes[number].free()
        return _deliver(found)


def _is_due(interrupt: Interrupt) -> bool:
    """Whether a pass whose interrupt asks to be checked must stop or pause."""
    return interrupt.stopping() or interrupt.pauses()


def _takes(leaf: Tensor, gradient: Any) -> bool:
    """Whether a gradient can be delivered without an error."""
    held = leaf.grad
    if leaf.array.shape != gradient.shape:
        return False
    return held is None or (held.array.shape == gradient.shape and held.array.dtype == gradient.dtype)


def _deliver(found: list[tuple[Tensor, Any]]) -> list[Tensor]:
    """Give leaves their gradients, or add them, as BackwardPass.deliver; all allocations come first."""
    ready: list[tuple[Tensor, Any]] = []
    found.reverse()
    while found:
        leaf, gradient = found.pop()  # drops a reference, so that `own` can take the array over
        ready.append((leaf, own(gradient) if leaf.grad is None else gradient))
    for leaf, made in ready:
        held = leaf.grad
        if held is None:
            leaf.grad_state().grad = made
        else:
            held.array += made
            held.storage.changed()
    return [leaf for leaf, _ in ready]


class _Noting:
    """Computes a pass by its formulas, without effect on the graph, and notes what it computes."""

    def __init__(self, nodes: list[Any], root: Tensor, context: Context, by_ops: bool) -> None:
        """by_ops: whether to note ops instead of formulas."""
        shape, dtype = root.array.shape, root.array.dtype
        self._nodes, self._context, self._made = nodes, context, NotedPass((shape, dtype))
        self._made.by_ops = by_ops
        #: What was computed, by register.
        self.values: list[Any] = []
        self._held: dict[int, Any] = {}  # constants by register
        self._pending: dict[Any, list[int | None]] = {}  # registers of the gradients that arrived, by output
        self._numbers = {node: number for number, node in enumerate(nodes)}
        self._pending[nodes[0]] = [self._step(lambda xp: np.ones(shape, dtype), ())]

    def noted(self) -> NotedPass:
        """The pass. Raises _Unusual, _Paused, and what the formulas raise."""
        if cupy() is not None or self.values[0].dtype.kind != "f":
            raise _Unusual
        interrupt = self._context.interrupt or NEVER
        for node in self._order():
            if monotonic() >= interrupt.at and _is_due(interrupt):
                raise _Paused
            arrived = self._pending.pop(node)
            if type(node) is not AccumulateGrad:
                self._propagate(node, arrived)
            elif arrived[0] is not None:
                self._made.leaves.append((self._numbers[node], arrived[0]))
        made = self._made
        made.ends = self._ends()
        made.registers = [None] * len(self.values)
        for register, value in self._held.items():
            made.registers[register] = value
        return made

    def _ends(self) -> list[tuple[int, ...]]:
        """After each step, the registers of large arrays that no later one needs."""
        needed = {register for _, register in self._made.leaves} | set(self._held)
        found = []
        for _, places, out in reversed(self._made.steps):
            ended = {*places, out} - needed
            needed |= ended
            found.append(tuple([each for each in ended if getattr(self.values[each], "nbytes", 0) >= _LARGE]))
        return found[::-1]

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
        """Note a step and compute it; return the register of its result. Raises _Unusual if it takes much memory."""
        value = forward(np, *[self.values[place] for place in places])
        self._made.room += sum(
            [int(getattr(each, "nbytes", 0)) for each in (value if type(value) is list else [value])]
        )
        account = self._context.account
        if self._made.room > _MOST_ROOM or (account.limit and account.bytes + self._made.room > account.limit):
            raise _Unusual
        out = self._register(value)
        self._made.steps.append((forward, places, out))
        return out

    def _register(self, value: Any) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _constant(self, value: Any) -> int:
        register = self._register(value)
        self._held[register] = value
        return register

    def _propagate(self, node: Node, arrived: list[int | None]) -> None:
        """Note a node's formulas. arrived: the gradients of its results, by output."""
        op, plan, made = node.op, node.saving_plan, self._made
        if node.work >= LONG or node.work > self._context.account.operations:
            raise _Unusual
        made.operations = max(made.operations, node.work)
        saved = [self._load(node, place, value, plan.names[place]) for place, value in enumerate(node.saved)]
        made.room += needed_back(node, [None if each is None else self.values[each] for each in arrived])
        whole = self._materialized(node, arrived)
        for slot, formula, places, takes_all in plan.formulas:
            given = [*(whole if takes_all else whole[:1]), *(saved if places is None else [saved[at] for at in places])]
            if op.list_position >= 0 or takes_all or node.part is None or not made.by_ops:
                self._spread(node, slot, _taking(formula, len(whole)) if takes_all else formula, given)
                continue
            edge, meta = node.edges[slot], node.metas[slot]
            if edge is not None and meta is not None:
                self._add(edge, self._formula(formula, meta, given))
        if plan.saves_tensors:
            made.frees.append(self._numbers[node])

    def _materialized(self, node: Node, arrived: list[int | None]) -> list[int]:
        """Registers of the gradients of all results, as the ordinary pass gives them to formulas."""
        outputs = node.outputs or (None,)
        found = []
        for place, meta in enumerate(outputs):
            register = arrived[place] if place < len(arrived) else None
            if register is None and meta is not None and place not in node.op.unfilled_outputs:
                register = self._step(partial(_zeros, meta.shape, meta.dtype), ())
            elif register is None:
                register = self._constant(None)
            found.append(register)
        return found

    def _spread(self, node: Node, slot: int, formula: Callable[..., Any], given: list[int]) -> None:
        """Note a formula that is called as it is. Its result is one gradient, or a list of them for a list input."""
        op = node.op
        listed = op.list_position >= 0
        places = edges_of(node, slot) if listed else range(slot, slot + 1)
        if all(node.edges[place] is None for place in places):
            return
        many = listed and op.tensor_positions[slot] == op.list_position
        whole = self._step(_called(formula), tuple(given)) if many else -1
        for number, place in enumerate(places):
            edge, meta = node.edges[place], node.metas[place]
            if edge is None or meta is None:
                continue
            # Forwards of ops are for one layout; formulas take any.
            checked = self._made.by_ops
            if many:
                self._add(edge, self._fitted(partial(_item, number), meta, (whole,), checked))
            else:
                self._add(edge, self._fitted(formula, meta, tuple(given), checked))

    def _fitted(self, compute: Callable[..., Any], meta: Any, given: tuple[int, ...], checked: bool) -> int:
        """Note a computation whose result is fitted to an input. checked: whether its layout must be as now."""
        if not checked:
            return self._step(_fitting(compute, meta, None), given)
        wanted = fit(compute(*[self.values[place] for place in given]), meta)
        return self._step(_fitting(compute, meta, _described(wanted)), given)

    def _load(self, node: Node, place: int, value: Any, name: str) -> int:
        """The register of a saved value: of arrays, of what may vary, or a constant."""
        if isinstance(value, (np.ndarray, Tensor)):
            raise _Unusual
        if type(value) is Saved:
            register = self._register(value.value(node, name))
            held = self.values[register]
            description = held.shape, held.strides, held.dtype
        elif type(value) is float or type(value) is list or node.part is None:
            register = self._register(_loaded(value, node))
            description = _described(self.values[register])
        else:
            return self._constant(value)
        self._made.loads.append((register, self._numbers[node], place, description))
        return register

    def _add(self, edge: Any, register: int) -> None:
        target, index = edge
        held = self._pending.setdefault(target, [])
        held += [None] * (index + 1 - len(held))
        before = held[index]
        held[index] = register if before is None else self._step(_sum, (before, register))

    def _formula(self, formula: Callable[..., Any], meta: Any, given: list[int]) -> int:
        """The register of a formula's result, fitted to its input."""
        values = [self.values[register] for register in given]
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
        length, count, room, held = len(self.values), len(self._made.steps), self._made.room, dict(self._held)
        out = self._replayed(steps, given)
        if out is not None and same_bits(self.values[out], expected):
            return out
        self._made.room, self._held = room, held
        del self.values[length:], self._made.steps[count:]
        return None

    def _steps_of(self, compute: Callable[..., Any], given: list[int]) -> Any:
        """The ops that a computation applies to tensors, with its operands; None if they do not tell all."""
        values = [self.values[register] for register in given]
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
            arrays = [self.values[place] for place in places]
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


def _taking(formula: Callable[..., Any], count: int) -> Callable[..., Any]:
    """A formula of the gradients of all results as one of so many arguments before the others."""
    return lambda *values: formula(values[:count], *values[count:])


def _called(formula: Callable[..., Any]) -> Callable[..., Any]:
    return lambda xp, *values: formula(*values)


def _item(place: int, made: Sequence[Any]) -> Any:
    return made[place]


def _fitting(compute: Callable[..., Any], meta: Any, description: Any) -> Callable[..., Any]:
    """A computation as a step, whose result is fitted to an input. description: of the result; None for any."""
    shape, dtype = meta

    def run(xp: Any, *values: Any) -> Any:
        made = compute(*values)
        if made.dtype is not dtype or made.shape != shape:
            made = fit(made, meta)
        if description is not None and _described(made) != description:
            raise _Unusual
        return made

    return run


def _described(value: Any) -> Any:
    """All of a value that a list relies on: of arrays the layout, of others the type."""
    if isinstance(value, (np.ndarray, np.generic)):
        return type(value), value.shape, value.strides, value.dtype
    return tuple(map(_described, value)) if type(value) is list else type(value)


def _loaded(saved: Any, node: Node) -> Any:
    """A saved value that is no single tensor, as formulas get it. Raises _Unusual, EngineError: VERSION_CONFLICT."""
    if type(saved) is list:
        return [_loaded_item(each, node) for each in saved]
    if isinstance(saved, (np.ndarray, Tensor, Packed)):
        raise _Unusual
    return saved


def _loaded_item(saved: Any, node: Node) -> Any:
    if type(saved) is Saved and saved.tangents is None:
        return saved.value(node, "")
    if isinstance(saved, (Saved, np.ndarray, Tensor, Packed, list)):
        raise _Unusual
    return saved


def _zeros(shape: tuple[int, ...], dtype: Any, xp: Any) -> Any:
    return xp.zeros(shape, dtype)


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

"""Noting: computes a backward by its formulas, without effect on the graph, and notes what it computes.

The order is that of the ordinary pass. By ops, the formulas of nodes with a part become forwards of ops on arrays. A
formula whose noted ops give other bits than itself is called as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from heapq import heapify, heappop, heappush
from time import monotonic
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any, TypeAlias

import numpy as np

from gradwire_engine.autograd.backward_pass import NEVER
from gradwire_engine.autograd.headroom import needed as needed_back
from gradwire_engine.autograd.listed_edges import edges_of
from gradwire_engine.autograd.listed_sequences import plain_sum
from gradwire_engine.autograd.noted_pass import NotedPass, Stopped, Unusual, described, loaded, pauses, same_bits
from gradwire_engine.core.context import Account, Context
from gradwire_engine.graph.graph import AccumulateGrad, Node
from gradwire_engine.graph.saved import Saved
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.admission import needed
from gradwire_engine.op.composite import Composite
from gradwire_engine.op.cost import LONG
from gradwire_engine.op.op import Op
from gradwire_engine.op.repeated import forward_of, is_repeatable, may_repeat, record
from gradwire_engine.ops.base.basic import div, fit, mul
from gradwire_engine.ops.linalg.matrix import matrix_t

MOST_ROOM = 64 << 20  # bytes of all gradients of a pass, which its noting holds at once
_LARGE = 1 << 15  # bytes of an array whose memory is given back during a pass
#: The ops of a formula, and the source of its result.
_Recipe: TypeAlias = "tuple[list[_Applied], tuple[str, Any]]"
#: By op and input, the forward that is the formula if the other operand is a float, and the arguments after that.
_BY_NUMBERS: dict[tuple[Any, int], tuple[Any, tuple[Any, ...]]] = {
    (mul, 0): (mul.forward, ()), (mul, 1): (mul.forward, ()), (div, 0): (div.forward, (None,)),
}  # fmt: skip
#: What a formula of ops alone may refer to besides functions, and names by which it could tell arrays from tensors.
_PLAIN = (Op, int, float, complex, str, tuple, type(None), BuiltinFunctionType)
_OF_ARRAYS = frozenset(("array", "base", "data", "flags", "host", "item", "storage", "strides"))


def most_room(account: Account) -> int:
    """The bytes that a pass may count at most, to be noted now."""
    return min(MOST_ROOM, account.limit - account.bytes) if account.limit else MOST_ROOM


class Noting:
    """Computes a pass by its formulas, without effect on the graph, and notes what it computes."""

    def __init__(self, nodes: list[Any], root: Tensor, context: Context, by_ops: bool) -> None:
        """by_ops: whether to note ops instead of formulas."""
        shape, dtype = root.array.shape, root.array.dtype
        self.nodes, self._context, self._made = nodes, context, NotedPass((shape, dtype))
        self._made.by_ops = self._made.of_ops = by_ops
        #: What was computed, by register; None for what is not needed any more.
        self.values: list[Any] = []
        self._large: set[int] = set()  # registers of large arrays
        self._without_grad = replace(context, grad_enabled=False) if by_ops else context
        self._recipes: dict[Any, _Recipe] = {}
        self._most = most_room(context.account)
        self._held: dict[int, Any] = {}  # constants by register
        self._pending: dict[Any, list[int | None]] = {}  # registers of the gradients that arrived, by output
        self._numbers = {node: number for number, node in enumerate(nodes)}
        self._pending[nodes[0]] = [self._step(lambda xp: np.ones(shape, dtype), ())]

    def in_steps(self) -> Generator[None, None, NotedPass]:
        """The pass; yields in pauses. Raises Unusual, Stopped, and what the formulas raise."""
        if not may_repeat() or self.values[0].dtype.kind != "f":
            raise Unusual
        interrupt = self._context.interrupt or NEVER
        for node in self._order():
            if monotonic() >= interrupt.at and pauses(interrupt):
                yield
                if interrupt.stopping():
                    raise Stopped
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
        large = self._large
        if not large:
            return [()] * len(self._made.steps)
        needed = {register for _, register in self._made.leaves} | set(self._held)
        found = []
        for _, places, out in reversed(self._made.steps):
            ended = {*places, out} - needed
            needed |= ended
            found.append(tuple(ended & large))
        return found[::-1]

    # The order of BackwardPass._traverse.

    def _order(self) -> list[Any]:
        counts: dict[Any, int] = dict.fromkeys(self.nodes, 0)
        for node in self.nodes:
            for edge in node.edges:
                if edge is not None:
                    counts[edge[0]] += 1
        order: list[Any] = []
        ready: list[tuple[int, int, Any]] = [(-self.nodes[0].seq, 0, self.nodes[0])]
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
        """Note a step and compute it; return the register of its result. Raises Unusual if it takes much memory."""
        return self._computed(forward, places, forward(np, *[self.values[place] for place in places]))

    def _computed(self, forward: Callable[..., Any], places: tuple[int, ...], value: Any) -> int:
        """Note a step that was computed; return the register of its result. Raises Unusual if it takes much memory."""
        made, out = self._made, len(self.values)
        size = value.nbytes if type(value) is np.ndarray else _bytes_of(value)
        made.room += size
        if made.room > self._most:
            raise Unusual
        if size >= _LARGE:
            self._large.add(out)
        self.values.append(value)
        made.steps.append((forward, places, out))
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
        op, plan, made, values = node.op, node.saving_plan, self._made, self.values
        if node.work >= LONG or node.work > self._context.account.operations:
            raise Unusual
        made.operations = max(made.operations, node.work)
        names = plan.names
        saved = [self._load(node, place, value, names[place]) for place, value in enumerate(node.saved)]
        made.room += needed_back(node, [None if each is None else values[each] for each in arrived])
        whole = self._materialized(node, arrived)
        plainly = op.list_position < 0 and not made.by_ops
        for slot, formula, places, takes_all in plan.formulas:
            given = [*(whole if takes_all else whole[:1]), *(saved if places is None else [saved[at] for at in places])]
            if takes_all:
                formula = _taking(formula, len(whole))
            edge, meta = (node.edges[slot], node.metas[slot]) if op.list_position < 0 else (None, None)
            if plainly:
                if edge is not None and meta is not None:
                    result = formula(*[values[each] for each in given])
                    if result.dtype is not meta[1] or result.shape != meta[0]:
                        result = fit(result, meta)
                    self._add(edge, self._computed(_fitting(formula, meta, None), tuple(given), result))
            elif op.list_position >= 0 or takes_all or node.part is None or not made.by_ops:
                self._spread(node, slot, formula, given)
            elif edge is not None and meta is not None:
                self._add(edge, self._formula(formula, meta, given, _BY_NUMBERS.get((op, slot))))
        if plan.saves_tensors:
            made.frees.append(self._numbers[node])
        if not made.by_ops:  # else a register may have several uses
            for register in (*whole, *saved):
                values[register] = None

    def _materialized(self, node: Node, arrived: list[int | None]) -> list[int]:
        """Registers of the gradients of all results, as the ordinary pass gives them to formulas."""
        outputs = node.outputs
        if outputs is None:
            return arrived  # type: ignore[return-value]  # of one result, whose gradient has arrived
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
        return self._step(_fitting(compute, meta, described(wanted)), given)

    def _load(self, node: Node, place: int, value: Any, name: str) -> int:
        """The register of a saved value: of arrays, of what may vary, or a constant."""
        if type(value) is Saved:
            held: Any = value.value(node, name)
            description: Any = held.shape, held.strides, held.dtype
        elif isinstance(value, (np.ndarray, Tensor)):
            raise Unusual
        elif type(value) is float or isinstance(value, (list, np.generic)):
            held = loaded(value, node)
            description = described(held)
        else:
            register = self._constant(loaded(value, node))
            self._made.values.append((register, self._numbers[node], place, value))
            return register
        register = self._register(held)
        self._made.loads.append((register, self._numbers[node], place, description))
        return register

    def _add(self, edge: Any, register: int) -> None:
        target, index = edge
        held = self._pending.get(target)
        if held is None:
            held = self._pending[target] = [None] * (index + 1)
        elif len(held) <= index:
            held += [None] * (index + 1 - len(held))
        before = held[index]
        if before is None:
            held[index] = register
        else:
            held[index] = self._step(plain_sum, (before, register))
            if not self._made.by_ops:
                self.values[before] = self.values[register] = None

    def _formula(
        self,
        formula: Callable[..., Any],
        meta: Any,
        given: list[int],
        by_number: tuple[Any, tuple[Any, ...]] | None = None,
    ) -> int:
        """The register of a formula's result, fitted to its input. by_number: what it computes of a number."""
        values = [self.values[register] for register in given]
        made = formula(*values)
        expected = fit(made, meta)
        # What a formula does by values and by numbers, which differ between passes, holds for this pass alone. NumPy's
        # numbers are results without dimensions.
        varies = getattr(formula, "reads_values", False) or any(
            isinstance(value, (float, np.generic)) for value in values
        )
        out = None
        if by_number is not None and made is expected and _is_of_number(by_number, values):
            out = self._by_number(by_number[0], given, expected)
        elif not varies and _is_of_ops(formula):
            out = self._by_ops(lambda *values: fit(formula(*values), meta), (formula, meta), given, expected)
        elif made is not expected and type(made) is np.ndarray:
            called = self._step(_with_layout(formula, made), tuple(given))
            out = self._by_ops(lambda made: fit(made, meta), (fit, meta), [called], expected)
        return self._step(lambda xp, *values: fit(formula(*values), meta), tuple(given)) if out is None else out

    def _by_number(self, forward: Callable[..., Any], given: list[int], expected: Any) -> int | None:
        """Note the forward of a product or quotient; None, with nothing noted, if it does not make what is expected."""
        is_same = same_bits(forward(np, *[self.values[register] for register in given]), expected)
        return self._step(forward, tuple(given)) if is_same else None

    def _by_ops(self, compute: Callable[..., Any], name: Any, given: list[int], expected: Any) -> int | None:
        """Note the ops of a computation; None, with nothing noted, if they do not make what is expected.

        name: what is computed; of the same operands, but for values, it has the same ops.
        """
        length, count, room, held = len(self.values), len(self._made.steps), self._made.room, dict(self._held)
        key = name, tuple([_operand(self.values[register]) for register in given])
        recipe = self._recipes.get(key) or self._recipe(compute, given)
        out = None if recipe is None else self._followed(recipe, given)
        if recipe is not None and out is not None and same_bits(self.values[out], expected):
            self._recipes[key] = recipe
            return out
        self._made.room, self._held = room, held
        del self.values[length:], self._made.steps[count:]
        return None

    def _steps_of(self, compute: Callable[..., Any], given: list[int]) -> Any:
        """The ops that a computation applies to tensors, with its operands; None if they do not tell all."""
        values = [self.values[register] for register in given]
        tensors = [Tensor(value) if isinstance(value, np.ndarray) else value for value in values]
        made, recorder = record(self._without_grad, lambda: compute(*tensors))
        return None if recorder.failed or type(made) is not Tensor else (tensors, recorder.calls, made)

    def _recipe(self, compute: Callable[..., Any], given: list[int]) -> _Recipe | None:
        """The ops of a computation: each with its arguments, and where the result is; None if they do not tell all."""
        steps = self._steps_of(compute, given)
        if steps is None:
            return None
        tensors, calls, result = steps
        known = {id(each): ("given", place) for place, each in enumerate(tensors) if type(each) is Tensor}
        found = []
        for number, (op, args, made) in enumerate(calls):
            if not is_repeatable(op) or type(made) is not Tensor:
                return None
            sources: list[tuple[str, Any]] = []
            for each in args:
                if type(each) is Tensor:
                    if id(each) not in known:
                        return None
                    sources.append(known[id(each)])
                elif isinstance(each, (Tensor, list, np.ndarray, np.generic)):
                    return None
                else:
                    sources.append(("value", each))
            known[id(made)] = "made", number
            found.append(_Applied(op, tuple(sources)))
        return (found, known[id(result)]) if id(result) in known else None

    def _followed(self, recipe: _Recipe, given: list[int]) -> int:
        """Note the ops of a computation as steps; returns the register of the result."""
        calls, result = recipe
        made: list[int] = []

        def register(source: tuple[str, Any]) -> int:
            kind, which = source
            if kind == "value":
                return self._constant(which)
            return int(given[which] if kind == "given" else made[which])

        for call in calls:
            places = tuple([register(each) for each in call.sources])
            if call.op.may_grow or call.forward is None:
                arrays = [self.values[place] for place in places]
                if call.op.may_grow:
                    self._made.room += needed(call.op, arrays)
                if call.forward is None:
                    call.forward = forward_of(call.op, arrays)
            made.append(self._step(call.forward, places))
        return register(result)


class _Applied:
    """An op of a formula. sources: of its arguments: ("given", an operand), ("made", an earlier op) or ("value", one).

    forward: computes it on arrays like those of the first time; None before that.
    """

    __slots__ = ("forward", "op", "sources")

    def __init__(self, op: Op, sources: tuple[tuple[str, Any], ...]) -> None:
        self.op, self.sources = op, sources
        self.forward: Callable[..., Any] | None = None


def _is_of_number(by_number: tuple[Any, tuple[Any, ...]], values: Sequence[Any]) -> bool:
    """Whether these are a gradient in single or double precision, a float, and the arguments after that."""
    types = [*map(type, values[:2])]
    return types == [np.ndarray, float] and values[0].dtype.char in "fd" and tuple(values[2:]) == by_number[1]


def _operand(value: Any) -> Any:
    """All of an operand that decides the ops of a formula: of an array its layout, else the value."""
    if type(value) is np.ndarray:
        return value.shape, value.strides, value.dtype
    return type(value), repr(value) if isinstance(value, (int, str, tuple, float, complex, type(None))) else id(value)


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
            raise Unusual
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
        if description is not None and described(made) != description:
            raise Unusual
        return made

    return run


def _bytes_of(value: Any) -> int:
    return sum([int(getattr(each, "nbytes", 0)) for each in (value if type(value) is list else [value])])


def _zeros(shape: tuple[int, ...], dtype: Any, xp: Any) -> Any:
    return xp.zeros(shape, dtype)

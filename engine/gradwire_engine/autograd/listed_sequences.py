"""Runs of elementwise forwards in a list, computed by one call of machine code (compile/eager/sequences.py).

A repeated step knows the layout of all its arrays. So the operations are written down once, with places for what
differs between runs: addresses and numbers. Results that only the run itself needs share a few places of memory and are
no arrays. The bits are those of the forwards. Where the loop is not loaded or an array is laid out differently, the
forwards run.
"""

from __future__ import annotations

import logging
from array import array as packed
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import prod
from operator import itemgetter
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.errors import EngineError
from gradwire_engine.op.repeated import computed_by
from gradwire_engine.ops.base.basic import add, div, mul, neg, sub
from gradwire_engine.ops.base.loops import LEAST, Loop, Loops, address
from gradwire_engine.ops.base.sequences import NAME, UNARY, WORDS, code_of

log = logging.getLogger("gradwire.engine")
#: An array's shape, strides and dtype.
Layout: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...], Any]"
_FEWEST = 6  # forwards of a run: the call takes about as long as four of them
_MOST = 1 << 18  # elements of a run, which does not pause
_EXACT = 1 << 24  # integers below it are exact in float32
#: The bases of addresses before those of arrays: memory that a run takes, and the numbers.
_MEMORY, _NUMBERS, _FIRST = 0, 1, 2
#: Forwards by what they compute, and the constants that follow their operands.
_KNOWN: dict[Any, tuple[str, tuple[Any, ...]]] = {
    add.forward: ("add", (1,)),
    sub.forward: ("sub", (1,)),
    mul.forward: ("mul", ()),
    div.forward: ("div", (None,)),
    neg.forward: ("neg", ()),
}


def plain_sum(xp: Any, one: Any, other: Any) -> Any:
    """The sum of two gradients of one layout."""
    return one + other


#: What computes an array and a whole number as the forward computes the float that equals it.
_OF_WHOLE_NUMBERS = {computed_by(each): each.forward for each in (add, sub, mul, div)}
_KNOWN[plain_sum] = "add", ()
_KNOWN |= {computed: _KNOWN[forward] for computed, forward in _OF_WHOLE_NUMBERS.items()}
_DTYPES = dtypes.float32, dtypes.float64
_NUMBER = float, None  # stands for any float


class Registers(NamedTuple):
    """What is known of a list's registers.

    layouts: of arrays. numbers: the registers of floats that may vary. values: the constants, at their places.
    """

    layouts: Mapping[int, Layout]
    numbers: Collection[int]
    values: Sequence[Any]


class Forward(NamedTuple):
    """A forward of a list. ended: the registers that nobody needs after it."""

    compute: Callable[..., Any]
    places: tuple[int, ...]
    out: int
    ended: tuple[int, ...]


class _Operation(NamedTuple):
    """A forward that the loop computes. operands: registers, and whether each is one element. size: of the result."""

    name: str
    operands: tuple[tuple[int, bool], ...]
    out: int
    size: int
    dtype: Any


class Sequences:
    """Finds the sequences of a list, also for other results that stay."""

    __slots__ = ("_contexts", "_known", "_read")

    def __init__(
        self,
        forwards: Sequence[tuple[Callable[..., Any], Sequence[int], int]],
        contexts: Sequence[Any],
        known: Registers,
    ) -> None:
        """forwards: each with the registers of its arguments and of its result. contexts: in which each computes."""
        self._known, self._contexts = known, [id(each) for each in contexts]
        read = _Reading(known).operation
        self._read = [read(*each) for each in forwards]

    def divided(self, forwards: Sequence[Forward]) -> list[tuple[int, int, ListedSequence | None]]:
        """Divide the list into spans, from one place to before another: those with a sequence, and others.

        A span has one context.
        """
        found: list[tuple[int, int, ListedSequence | None]] = []
        shared = _shared(forwards)
        at = 0
        for (context, _), group in groupby(zip(self._contexts, _kinds(self._read), strict=True)):
            end = at + len(list(group))
            operations = [each for each in self._read[at:end] if each is not None]
            if len(operations) == end - at >= _FEWEST:
                found.append((at, end, ListedSequence(forwards[at:end], operations, self._known, shared)))
            elif found and found[-1][2] is None and self._contexts[at - 1] == context:
                found[-1] = found[-1][0], end, None
            else:
                found.append((at, end, None))
            at = end
        return found


def _kinds(read: Iterable[_Operation | None]) -> Iterator[tuple[str, int]]:
    """For each forward what is the same within a span: the dtype, and which part of a long span it is."""
    dtype, part, elements = "", 0, 0  # by its character: to NumPy, float64 equals None
    for each in read:
        now = "" if each is None else each.dtype.char
        elements = elements + each.size if each is not None and now == dtype else 0
        if elements > _MOST:
            part, elements = part + 1, 0
        dtype = now
        yield now, part


def _shared(forwards: Sequence[Forward]) -> set[int]:
    """The registers of arrays that only forwards of this list see, which show none of their memory."""
    ended = {register for each in forwards for register in each.ended}
    seen = {register for each in forwards if each.compute not in _KNOWN for register in each.places}
    return ended - seen


class _Reading:
    """Reads forwards. What it finds of one holds for all of the same layouts, of which a list has few."""

    def __init__(self, known: Registers) -> None:
        self._known = known
        self._kinds: dict[Any, tuple[str, tuple[bool, ...], int, Any] | None] = {}

    def operation(self, forward: Callable[..., Any], places: Sequence[int], out: int) -> _Operation | None:
        """A forward as an operation of the loop; None if the loop does not compute it."""
        if forward not in _KNOWN:
            return None
        layout = self._known.layouts.get(out)
        operands = tuple([self._told(place) for place in places])
        key = forward, layout, operands
        if key not in self._kinds:
            self._kinds[key] = None if layout is None else _kind(forward, layout, operands)
        kind = self._kinds[key]
        if kind is None:
            return None
        name, are_elements, size, dtype = kind
        return _Operation(name, tuple(zip(places, are_elements, strict=False)), out, size, dtype)

    def _told(self, register: int) -> Any:
        """All of an operand that matters: an array's layout, or the type and value of a constant."""
        layout = self._known.layouts.get(register)
        if layout is not None:
            return layout
        if register in self._known.numbers:
            return _NUMBER
        value = self._known.values[register]
        return (type(value), value) if type(value) in (float, int, type(None)) else None


def _kind(
    forward: Callable[..., Any], layout: Layout, operands: Sequence[Any]
) -> tuple[str, tuple[bool, ...], int, Any] | None:
    """Name, which operands are one element, size and dtype of a forward's operation; None if there is none."""
    name, constants = _KNOWN[forward]
    count = 1 if name in UNARY else 2
    shape, strides, dtype = layout
    size = prod(shape)
    if dtype not in _DTYPES or not 0 < size < LEAST or strides != _row_major(shape, dtype):
        return None
    if list(operands[count:]) != [(type(each), each) for each in constants]:
        return None
    kinds = [_is_element(each, size, dtype) for each in operands[:count]]
    if None in kinds or all(kinds) or (kinds[0] and forward in _OF_WHOLE_NUMBERS):
        return None
    return name, tuple(map(bool, kinds)), size, dtype


def _is_element(told: Any, size: int, dtype: Any) -> bool | None:
    """Whether an operand is one element instead of as many as the result has; None if it is neither."""
    if told is None or len(told) == 2:
        is_exact = told is not None and told[0] is int and -_EXACT < told[1] < _EXACT
        return True if is_exact or told == _NUMBER or (told is not None and told[0] is float) else None
    shape, strides, its = told
    if its is not dtype:
        return None
    steps = zip(shape, strides, _row_major(shape, dtype), strict=True)
    if prod(shape) == size and all(length == 1 or one == other for length, one, other in steps):
        return False
    repeats = all(length == 1 or not stride for length, stride in zip(shape, strides, strict=True))
    return True if repeats else None


def _row_major(shape: tuple[int, ...], dtype: Any) -> tuple[int, ...]:
    """The strides of a new array."""
    found, step = [], int(dtype.itemsize)
    for length in reversed(shape):
        found.append(step)
        step *= length
    return tuple(found[::-1])


class ListedSequence:
    """A run of forwards, written down for the loop.

    forwards: what it computes. dtype: of all its arrays.
    """

    __slots__ = (
        "_constants", "_ended", "_given", "_numbers", "_own", "_packed", "_rows", "_size", "_words", "dtype",
        "forwards",
    )  # fmt: skip

    def __init__(
        self, forwards: Sequence[Forward], operations: Sequence[_Operation], known: Registers, shared: Collection[int]
    ) -> None:
        """shared: registers of arrays that may show memory of one that is larger."""
        self.forwards, self.dtype = forwards, operations[0].dtype
        ended = {register for each in forwards for register in each.ended}
        writing = _Writing(operations, known, shared, ended)
        self._ended = tuple(ended - writing.within)
        layouts = known.layouts
        self._words, self._size = packed("q", writing.words), writing.size
        self._given = [(register, *layouts[register][:2]) for register in writing.given]
        self._own = [(register, layouts[register][0]) for register in writing.own]
        self._rows = [(register, at, *layouts[register][:2]) for register, at in writing.rows]
        varying = [register for register in writing.numbers if register in known.numbers]
        self._numbers = (
            itemgetter(*varying, *varying[:1]) if varying else None
        )  # of one register, too, it makes a tuple
        fixed = [float(known.values[register]) for register in writing.numbers if register not in known.numbers]
        self._constants = (*fixed, 0.0)  # so that there is one
        self._packed = Struct(f"={len(varying) + len(self._constants)}d").pack

    def run(self, registers: list[Any], loops: Loops | None) -> bool:
        """Compute the forwards; False, with nothing changed, if they must run."""
        loop = _loaded(loops, self.dtype)
        if loop is None:
            return False
        dtype = self.dtype
        memory = np.empty(self._size, dtype)
        varying = self._numbers(registers)[:-1] if self._numbers is not None else ()
        numbers = np.frombuffer(self._packed(*varying, *self._constants)).astype(dtype)
        bases = packed("q", (address(memory), address(numbers)))
        for register, shape, strides in self._given:
            given = registers[register]
            if type(given) is not np.ndarray or given.dtype is not dtype:
                return False
            if given.shape != shape or given.strides != strides:
                return False
            bases.append(address(given))
        made = {register: np.empty(shape, dtype) for register, shape in self._own}
        bases.extend(map(address, made.values()))
        table = packed("q", (0, self._words.buffer_info()[0], 1, bases.buffer_info()[0], 1))
        loop.entry(0, len(self.forwards), None, table.buffer_info()[0])
        for register, begin, shape, strides in self._rows:
            made[register] = np.ndarray(shape, dtype, memory, begin, strides)
        if loops is not None and loops.verifies and not self._agrees(registers, made, loops):
            return False
        for register, array in made.items():
            registers[register] = array
        for register in self._ended:
            registers[register] = None
        return True

    def _agrees(self, registers: Sequence[Any], made: Mapping[int, Any], loops: Loops) -> bool:
        """Whether results are those of the forwards, which is logged if they are not."""
        values = list(registers)
        for each in self.forwards:
            values[each.out] = each.compute(np, *[values[place] for place in each.places])
        try:
            for register, array in made.items():
                loops.check(NAME, array, values[register])
        except EngineError as error:
            log.error("a sequence of operations is left to NumPy: %s", error)
            return False
        return True


def _loaded(loops: Loops | None, dtype: Any) -> Loop | None:
    """The loop for a dtype; None if it is not loaded. Then it is loaded in the background."""
    if loops is None:
        return None
    found = loops.loaded(NAME, dtype.char)
    if found is None:
        loops.ask(NAME, dtype.char)
    return found if type(found) is Loop else None


class _Writing:
    """Writes operations down.

    words: of all operations. size: elements of memory that a run takes. within: registers of results that are no
    arrays. given: of arrays that come from before. numbers: of numbers, those that vary first. rows: of results within
    that memory, and the bytes where they begin. own: of results with memory of their own.
    """

    def __init__(
        self, operations: Sequence[_Operation], known: Registers, shared: Collection[int], ended: Collection[int]
    ) -> None:
        outs = dict.fromkeys(each.out for each in operations)
        self._item = int(operations[0].dtype.itemsize)
        self._sizes = {each.out: each.size for each in operations}
        self.within = {out for out in outs if out in ended}
        self.own = [out for out in outs if out not in ended and out not in shared]
        used = dict.fromkeys(register for each in operations for register, _ in each.operands)
        self.given = [register for register in used if register in known.layouts and register not in outs]
        varying = [register for register in used if register in known.numbers]
        fixed = [register for register in used if register not in known.layouts and register not in known.numbers]
        self.numbers = [*varying, *fixed]
        #: Bases and bytes of what has its place.
        self._places = {register: (_NUMBERS, place * self._item) for place, register in enumerate(self.numbers)}
        self._places |= {register: (_FIRST + place, 0) for place, register in enumerate((*self.given, *self.own))}
        self.rows: list[tuple[int, int]] = []
        self.words: list[int] = []
        self.size = 0
        self._free: dict[int, list[int]] = {}  # where memory can be used again, by elements
        last = {register: number for number, each in enumerate(operations) for register, _ in each.operands}
        for number, each in enumerate(operations):
            self._write(each, [register for register, _ in each.operands if last[register] == number])

    def _write(self, operation: _Operation, ended: Collection[int]) -> None:
        """Write an operation. ended: operands that no later one has, so that the result may take their memory."""
        places = [self._places[register] for register, _ in operation.operands]
        for register in dict.fromkeys(ended):
            if register in self.within:
                self._free.setdefault(self._sizes[register], []).append(self._places[register][1])
        if operation.out not in self._places:
            self._places[operation.out] = _MEMORY, self._begin_of(operation)
        code = code_of(operation.name, *[not is_element for _, is_element in operation.operands])
        other = places[1] if len(places) > 1 else (0, 0)
        words = (code, *places[0], *other, *self._places[operation.out], operation.size)
        assert len(words) == len(WORDS)
        self.words += words

    def _begin_of(self, operation: _Operation) -> int:
        """Where a result has its place in the memory."""
        free = self._free.get(operation.size)
        if free and operation.out in self.within:
            return free.pop()
        begin = self.size * self._item
        self.size += operation.size
        if operation.out not in self.within:
            self.rows.append((operation.out, begin))
        return begin

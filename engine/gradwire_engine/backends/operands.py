"""Primitives of oneDNN whose operands are the caller's arrays: reorders where layouts differ, and temporary memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradwire_engine.backends.onednn import FROM, SCRATCHPAD, TO, Call, Layout, Library, Memory, Primitive

ALIGNED = 64
# Bytes of temporary memory that each thread keeps, as BLAS does; more is freed.
_KEPT = 4 << 20


def address_of(array: Any) -> int:
    """Address of an array's first element."""
    return int(array.__array_interface__["data"][0])


def aligned_in(array: Any) -> int:
    """The first aligned address in an array of bytes."""
    address = address_of(array)
    return address + -address % ALIGNED


def whole(nbytes: int) -> int:
    """Bytes, rounded up to a multiple of the alignment."""
    return -(-nbytes // ALIGNED) * ALIGNED


class _Room(threading.local):
    """Temporary memory of each thread."""

    kept: tuple[int, int, Any] = 0, 0, None  # bytes, address, array

    def take(self, nbytes: int, lanes: int = 1) -> tuple[int, Any]:
        """The aligned address of so many bytes for each lane, and the array that holds them until the next call."""
        size, address, room = self.kept
        if size < lanes * nbytes:
            room = np.empty(lanes * nbytes + ALIGNED, np.uint8)
            address = aligned_in(room)
            if nbytes <= _KEPT:
                self.kept = lanes * nbytes, address, room
        return address, room


#: This thread's temporary memory.
ROOM = _Room()


class Operand(NamedTuple):
    """An argument of a primitive, its layout in the caller's array, and whether the primitive writes it."""

    number: int
    layout: Layout
    written: bool = False


class Prepared:
    """A primitive with its operands' layouts. Any thread may run it.

    nbytes: temporary memory of a run: reordered operands, and what the primitive needs.
    """

    def __init__(self, loaded: Library, primitive: Primitive, operands: Sequence[Operand]) -> None:
        self.library, self.primitive = loaded, primitive
        self.sides = [_Side(loaded, primitive, each) for each in operands]
        scratch = 0 if primitive.scratch is None else whole(primitive.scratch.nbytes)
        self.nbytes = sum(side.nbytes for side in self.sides) + scratch
        self._idle: list[Bound] = []

    def run(self, addresses: Sequence[int]) -> None:
        """Compute on operands at these addresses, in this thread."""
        try:
            bound = self._idle.pop()
        except IndexError:
            bound = Bound(self)
        self.library.use_one_thread()
        address, _held = ROOM.take(self.nbytes)
        bound.run(addresses, address)
        self._idle.append(bound)


class _Side:
    """An operand, the primitive's layout of it, and the reorder between the two."""

    def __init__(self, loaded: Library, primitive: Primitive, operand: Operand) -> None:
        self.operand, self.chosen = operand, primitive.layout(operand.number)
        pair = (self.chosen, operand.layout) if operand.written else (operand.layout, self.chosen)
        self.reorder = loaded.reorder(*pair)
        self.nbytes = 0 if self.reorder is None else whole(self.chosen.nbytes)


class Bound:
    """A primitive's calls with their memory, for one thread at a time."""

    def __init__(self, prepared: Prepared) -> None:
        loaded, primitive, memory = prepared.library, prepared.primitive, {}
        self.plain = [Memory(loaded, side.operand.layout) for side in prepared.sides]
        self.room: list[tuple[Memory, int]] = []
        before, after = [], []
        for side, plain in zip(prepared.sides, self.plain, strict=True):
            memory[side.operand.number] = plain
            if side.reorder is None:
                continue
            blocked = memory[side.operand.number] = Memory(loaded, side.chosen)
            self.room.append((blocked, side.nbytes))
            if side.operand.written:
                after.append(Call(loaded, side.reorder, {FROM: blocked, TO: plain}))
            else:
                before.append(Call(loaded, side.reorder, {FROM: plain, TO: blocked}))
        if primitive.scratch is not None:
            memory[SCRATCHPAD] = Memory(loaded, primitive.scratch)
            self.room.append((memory[SCRATCHPAD], primitive.scratch.nbytes))
        self.calls = [*before, Call(loaded, primitive, memory), *after]

    def program(self) -> list[int]:
        """The calls as numbers for machine code (compile/fusion/team_code.py), which sets the addresses."""
        places, begin = [], 0
        for memory, nbytes in self.room:
            places += [memory.handle.value or 0, begin]
            begin += nbytes
        calls = [number for call in self.calls for number in call.numbers()]
        operands = [memory.handle.value or 0 for memory in self.plain]
        return [len(operands), len(self.room), len(self.calls), *operands, *places, *calls]

    def run(self, addresses: Sequence[int], room: int) -> None:
        """Compute on these addresses; `room` is the temporary memory's."""
        for memory, address in zip(self.plain, addresses, strict=True):
            memory.point(address)
        for memory, nbytes in self.room:
            memory.point(room)
            room += nbytes
        for call in self.calls:
            call()

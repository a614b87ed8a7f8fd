"""Batch normalization in machine code: statistics per channel, the output, and the gradients of input, weight and bias.

An image's channel is a row of a loop. Sums per row are added over the images by NumPy, in double precision. The
gradients of one node need the same two sums: the first of them computes these for the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradwire_engine.compile.fusion.form import COLUMN, CYCLE, WHOLE, Loop
from gradwire_engine.compile.fusion.grouping import writes_of
from gradwire_engine.compile.fusion.kernel_cache import Kernel
from gradwire_engine.compile.schedule import Schedule
from gradwire_engine.compile.trace import Instr, Ref
from gradwire_engine.core.threads import POOL

Array = Any
_CODES = {np.dtype(np.float32): "f4", np.dtype(np.float64): "f8"}
_LEAST = 4096  # elements: on fewer, the calls take longer than NumPy's
_OUTPUT, _INPUT, _WEIGHT, _BIAS = "output", "input", "weight", "bias"
_LOOPS = {_OUTPUT: ("total", "squares", "apply"), _INPUT: ("dots", "slope"), _WEIGHT: ("dots",), _BIAS: ()}


@dataclass
class Sums:
    """The sums of one node's gradients: of g, and of g times the centred input, per channel."""

    of_g: Array = None
    of_products: Array = None


@dataclass
class BatchNorm:
    """An instruction of batch normalization, with what a plan needs to know of its call.

    what: "output", or whose gradient. sums: shared with the node's other gradients; computes: whether it is the first.
    """

    what: str
    instr: Instr
    dtype: str
    images: int
    channels: int
    length: int
    sums: Sums = field(default_factory=Sums)
    computes: bool = True

    @property
    def members(self) -> list[Instr]:
        """The instruction, as a group of one."""
        return [self.instr]

    @property
    def targets(self) -> tuple[int, ...]:
        """Registers that are changed in place: none."""
        return ()

    @property
    def outs(self) -> tuple[int, ...]:
        """Registers that are made."""
        return self.instr.outs

    def reads(self) -> list[int]:
        """Registers that are read."""
        return list(dict.fromkeys(map(int, self.instr.reads())))

    def loops(self) -> dict[str, Loop]:
        """The loops that it needs."""
        biased = self.what == _OUTPUT and self.instr.args[2] is not None
        names = [name for name in _LOOPS[self.what] if self.computes or name != "dots"]
        return {name: loop_of(name, self.dtype, biased) for name in names}


def batch_norms(steps: Schedule) -> list[tuple[int, BatchNorm]]:
    """The instructions of batch normalization that can be computed by kernels, with their places."""
    found: list[tuple[int, BatchNorm]] = []
    first: dict[tuple[int, ...], tuple[int, BatchNorm]] = {}
    for place, instr in enumerate(steps.instrs):
        made = _batch_norm(steps, instr)
        if made is None and _name(instr) == _BIAS:
            made = _of_the_same(steps, instr, place, found)
        if made is None:
            continue
        if made.what in (_INPUT, _WEIGHT):
            key = tuple(int(instr.args[at]) for at in (0, 1, *_statistics(made.what)))
            known = first.get(key)
            if known is not None and _unchanged(steps, known[0], place, key):
                made.sums, made.computes = known[1].sums, False
            else:
                first[key] = place, made
        found.append((place, made))
    return found


def _name(instr: Instr) -> str:
    if instr.kind == "op" and instr.what.name == "_batch_norm":
        return _OUTPUT
    is_gradient = instr.kind == "formula" and instr.what[0] == "_batch_norm"
    return str(instr.what[1]) if is_gradient else ""


def _statistics(what: str) -> tuple[int, int]:
    """Places of mean and scale in a gradient's arguments."""
    return (3, 4) if what == _INPUT else (2, 3)


def _batch_norm(steps: Schedule, instr: Instr) -> BatchNorm | None:
    what, regs = _name(instr), steps.regs
    if what not in (_OUTPUT, _INPUT, _WEIGHT) or any(out < 0 for out in instr.outs):
        return None
    arrays = instr.args[:-1]
    if any(type(item) is not Ref and item is not None for item in arrays) or type(instr.args[-1]) is not float:
        return None
    data = instr.args[0]
    if type(data) is not Ref or len(regs[data].shape) < 3:
        return None
    shape, dtype = regs[data].shape, regs[data].dtype
    if dtype not in _CODES or math.prod(shape) < _LEAST or math.prod(shape) == shape[1]:
        return None
    if what != _OUTPUT and (type(instr.args[1]) is not Ref or regs[instr.args[1]].shape != shape):
        return None
    numbers = [int(item) for item in arrays if item is not None] + list(instr.outs)
    sizes = {math.prod(shape), shape[1]}
    if any(regs[number].dtype != dtype or math.prod(regs[number].shape) not in sizes for number in numbers):
        return None
    return BatchNorm(what, instr, _CODES[dtype], shape[0], shape[1], math.prod(shape[2:]))


def _of_the_same(steps: Schedule, instr: Instr, place: int, found: Sequence[tuple[int, BatchNorm]]) -> BatchNorm | None:
    """The gradient of the bias, if another gradient of the node has computed its sum."""
    g = instr.args[0]
    for before, other in reversed(found):
        if other.computes and other.what in (_INPUT, _WEIGHT) and other.instr.args[0] == g:
            if len(instr.args) != 1 or not _unchanged(steps, before, place, (int(g),)):
                return None
            return BatchNorm(
                _BIAS, instr, other.dtype, other.images, other.channels, other.length, other.sums, False
            )  # fmt: skip
    return None


def _unchanged(steps: Schedule, first: int, last: int, numbers: Sequence[int]) -> bool:
    """Whether no instruction between the places writes to the memory of these registers."""
    roots = set().union(*[steps.roots[number] for number in numbers])
    return not any(
        steps.roots[number] & roots for instr in steps.instrs[first + 1 : last] for number in _changed(instr)
    )


def _changed(instr: Instr) -> list[int]:
    """Registers that an instruction may change in place; a composite may update statistics in its arguments."""
    if instr.kind == "call":
        return [int(number) for number in instr.reads()]
    return [number for number in writes_of(instr) if number not in instr.outs]


def loop_of(name: str, dtype: str, biased: bool) -> Loop:
    """A loop over the channels of all images. Operands that are written come last."""
    loop = Loop()

    def whole() -> int:
        return loop.load(loop.operand(dtype, WHOLE))

    def channel() -> int:
        return loop.load(loop.operand(dtype, CYCLE, 1))

    def result(value: int, index: str) -> None:
        loop.store(loop.operand(loop.dtype(value), index), value)

    x = whole()
    if name == "total":
        result(loop.reduce("sum", x), COLUMN)
        return loop
    centred = loop.binary("sub", x, channel())
    if name == "squares":
        result(loop.reduce("sum", loop.binary("mul", centred, centred)), COLUMN)
    elif name == "apply":
        made = loop.binary("mul", centred, channel())
        result(loop.binary("add", made, channel()) if biased else made, WHOLE)
    elif name == "dots":
        g = whole()
        result(loop.reduce("sum", g), COLUMN)
        result(loop.reduce("sum", loop.binary("mul", g, centred)), COLUMN)
    else:
        made = loop.binary("add", loop.binary("mul", centred, channel()), whole())
        result(loop.binary("mul", loop.binary("sub", made, channel()), channel()), WHOLE)
    return loop


class BatchNormCall:
    """A call of an instruction's kernels on the plan's arrays."""

    def __init__(self, group: BatchNorm, kernels: dict[str, Kernel], threads: Callable[[], int] = lambda: 1) -> None:
        """Use loaded kernels of the group's loops."""
        self.group, self._kernels, self._threads = group, kernels, threads
        # What the table says of each operand: the channels after which a cycle repeats.
        self._counts = {
            name: [group.channels if operand.index == CYCLE else 1 for operand in loop.operands]
            for name, loop in group.loops().items()
        }
        self._rows = np.zeros((2, group.images, group.channels), group.dtype)
        self._table = np.zeros(16, np.int64)
        self._table[0] = group.length
        self._values: Sequence[Array] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of temporary memory."""
        return int(self._rows.nbytes)

    @property
    def copied(self) -> int:
        """Bytes of copies of operands: none are kept."""
        return 0

    def bind(self, values: Sequence[Array], static: Container[int], number: Callable[[int, Any], Array]) -> None:
        """Set the plan's arrays, which each call reads again."""
        self._values = values

    def bind_again(self, values: Sequence[Array], dynamic: Container[int]) -> None:
        """Do nothing: each call reads the arrays."""

    def __call__(self) -> None:
        """Compute the instruction."""
        values, args = self._values, self.group.instr.args
        given = [np.ascontiguousarray(values[item]) if type(item) is Ref else item for item in args]
        made = [values[out] for out in self.group.outs]
        with np.errstate(all="ignore"):
            if self.group.what == _OUTPUT:
                self._normalize(given, made)
                return
            if self.group.computes:
                self._add_up(given)
            sums = self.group.sums
            if self.group.what == _INPUT:
                self._slope(given, made[0])
            elif self.group.what == _WEIGHT:
                made[0][...] = sums.of_products * given[3]
            else:
                made[0][...] = sums.of_g

    def _normalize(self, given: list[Any], made: list[Array]) -> None:
        x, weight, bias, eps = given
        output, mean, scale, variance = made
        count, dtype = x.size // x.shape[1], x.dtype.type
        self._run("total", x, self._rows[0])
        mean[...] = self._over_images(0) / count
        self._run("squares", x, mean, self._rows[0])
        variance[...] = self._over_images(0) / count
        np.divide(1, np.sqrt(variance + dtype(eps)), scale)
        factor = scale if weight is None else scale * weight
        self._run("apply", x, mean, factor, *([] if bias is None else [bias]), output)

    def _add_up(self, given: list[Any]) -> None:
        mean = given[_statistics(self.group.what)[0]]
        self._run("dots", given[1], mean, given[0], self._rows[0], self._rows[1])
        sums, dtype = self.group.sums, self._rows.dtype
        sums.of_g, sums.of_products = self._over_images(0).astype(dtype), self._over_images(1).astype(dtype)

    def _slope(self, given: list[Any], out: Array) -> None:
        g, x, weight, mean, scale, _ = given
        count, sums = x.size // x.shape[1], self.group.sums
        by = sums.of_products * (scale * scale / -count)
        self._run("slope", x, mean, by, g, sums.of_g / count, scale if weight is None else scale * weight, out)

    def _over_images(self, place: int) -> Array:
        return self._rows[place].sum(0, dtype=np.float64)

    def _run(self, name: str, *operands: Array) -> None:
        """Run a loop on these arrays."""
        table, group = self._table, self.group
        for place, (array, count) in enumerate(zip(operands, self._counts[name], strict=True)):
            table[1 + 2 * place] = array.__array_interface__["data"][0]
            table[2 + 2 * place] = count
        entry = self._kernels[name].entry
        assert entry is not None
        POOL.run(entry, group.images * group.channels, [None] * self._threads(), table.ctypes.data)

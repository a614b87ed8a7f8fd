"""Products that are added to a tensor, as p -= rate * p.grad adds a weight's gradient: the library adds them itself.

The product then needs no memory, and no pass reads it again. It is computed where the tensor changes, and until then
its factors stay. So they may not have more elements than the product, nor may results of which they are views. The
library adds the parts of a long sum one by one, so the result differs by rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gradwire_engine.compile.kernels.registry import Kernel
from gradwire_engine.compile.shared_weights import is_transpose, leave_unchanged
from gradwire_engine.compile.trace import Instr, NumRef, Ref, Reg

Array = Any
#: Elements of a product from which the pass that is saved counts. Smaller changes are fused with others.
_LEAST = 1 << 16
_FLOAT = np.dtype(np.float32)
_SIGNS = {"add": 1.0, "sub": -1.0}


def merge(
    instrs: Sequence[Instr],
    kernels: Sequence[Kernel | None],
    regs: Sequence[Reg],
    roots: Mapping[int, frozenset[int]],
    kept: Iterable[int],
    bound: Iterable[int] = (),
) -> list[tuple[Instr, Kernel | None]]:
    """The instructions with their kernels, where products that are only added to a tensor are part of that.

    roots: registers whose memory each register may share. kept: registers that are read after the run. bound: those of
    the inputs and their gradients, whose memory is not the plan's.
    """
    memory = _Memory(regs, roots, frozenset(bound))
    makers = {out: place for place, instr in enumerate(instrs) for out in instr.outs}
    uses = Counter([*kept, *[int(number) for instr in instrs for number in instr.reads()]])
    removed: set[int] = set()
    merged: dict[int, tuple[Instr, Kernel]] = {}
    for place, instr in enumerate(instrs):
        change = _change(instr)
        found = None if change is None else _maker(change.other, instrs, makers, uses)
        if change is None or found is None:
            continue
        first, views = found
        product, kernel = instrs[first], kernels[first]
        if kernel is None or kernel.added is None or not _is_worth(change, product, regs, memory):
            continue
        if not _may_move(instrs[first + 1 : place], product, change, roots):
            continue
        removed.update((first, *views))
        made = Instr("update", instr.what, (Ref(change.target), change.alpha, *product.args), (), instr.step)
        made.default = instr.default
        merged[place] = made, Kernel(_updating(kernel.added(bool(views)), change.sign))
    pairs = zip(instrs, kernels, strict=True)
    return [merged.get(place, pair) for place, pair in enumerate(pairs) if place not in removed]


class _Change(NamedTuple):
    """target += sign * alpha * other."""

    target: int
    other: int
    sign: float
    alpha: Any


def _change(instr: Instr) -> _Change | None:
    """What an instruction adds to a tensor; None for other instructions."""
    if instr.kind == "accumulate":
        target, other = instr.args
        return _Change(int(target), int(other), 1.0, 1.0)
    if instr.kind != "write" or instr.what.name not in _SIGNS:
        return None
    target, other, alpha = instr.args
    if type(target) is not Ref or type(other) is not Ref or type(alpha) not in (int, float, NumRef):
        return None
    return _Change(int(target), int(other), _SIGNS[instr.what.name], alpha)


def _maker(
    number: int, instrs: Sequence[Instr], makers: Mapping[int, int], uses: Mapping[int, int]
) -> tuple[int, list[int]] | None:
    """Where a register is made that has one use, and where it is transposed; None if another instruction reads it."""
    views: list[int] = []
    while True:
        place = makers.get(number)
        if place is None or uses[number] != 1:
            return None
        maker = instrs[place]
        if views or not is_transpose(maker):
            return place, views
        views.append(place)
        number = int(maker.args[0])


class _Memory(NamedTuple):
    """The memory of registers; see `merge`."""

    regs: Sequence[Reg]
    roots: Mapping[int, frozenset[int]]
    bound: frozenset[int]

    def elements(self, number: int) -> int:
        """Elements that stay in memory with a register: for a view of a result, all of the result's."""
        whole = [root for root in self.roots[number] - self.bound if len(self.roots[root]) == 1]
        return max(prod(self.regs[number].shape), sum(prod(self.regs[root].shape) for root in whole))


def _is_worth(change: _Change, product: Instr, regs: Sequence[Reg], memory: _Memory) -> bool:
    """Whether arrays of one shape and float32 are added, which are large beside the factors."""
    target, other = regs[change.target], regs[change.other]
    if target.shape != other.shape or target.dtype != _FLOAT or other.dtype != _FLOAT:
        return False
    size = prod(target.shape)
    return size >= max(_LEAST, sum(memory.elements(number) for number in product.reads()))


def _may_move(between: Sequence[Instr], product: Instr, change: _Change, roots: Mapping[int, frozenset[int]]) -> bool:
    """Whether a product is the same behind other instructions, and its factors are not in the target's memory."""
    factors: frozenset[int] = frozenset().union(*[roots[number] for number in product.reads()])
    return not roots[change.target] & factors and leave_unchanged(between, factors, roots.__getitem__)


def _updating(add: Callable[..., None], sign: float) -> Callable[..., None]:
    """The function of a kernel that adds a product."""

    def run(_: None, target: Array, alpha: Any, *operands: Any) -> None:
        add(target, sign * float(alpha), *operands)

    return run

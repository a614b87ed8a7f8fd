"""Linear layers of a plan on a GPU: their product and the addition of their bias as two instructions.

The addition then joins the group of what follows, such as an activation. Behind the product, a layer of more than two
dimensions is a view; the bias is added after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from gradwire_engine.compile.trace import Instr, Ref, Reg
from gradwire_engine.op.declaration import OPS

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_VIEWS = ("view", "_unsafe_view", "_fold", "reshape")


def split(
    instrs: Sequence[Instr], regs: list[Reg], roots: dict[int, frozenset[int]], leaving: Iterable[int]
) -> dict[int, list[Instr]]:
    """By the place of an instruction, those that replace it. Adds the products' registers to `regs` and `roots`.

    leaving: registers that are read after the run.
    """
    uses = Counter([*leaving, *(int(number) for instr in instrs for number in instr.reads())])
    replaced: dict[int, list[Instr]] = {}
    for place, instr in enumerate(instrs):
        if (
            instr.kind != "op"
            or instr.what.name != "_linear_addmm"
            or any(type(each) is not Ref for each in instr.args)
        ):
            continue
        (made,), (bias, rows, weight) = instr.outs, instr.args
        if regs[made].dtype not in _FLOATS or any(regs[each].dtype != regs[made].dtype for each in instr.args):
            continue
        product = _new(regs[made], regs, roots)
        first = _like(instr, "_linear_mm", (rows, weight), product)
        view = _only_view(instrs, place, made, uses, regs) if len(regs[bias].shape) < 2 else None
        if view is None:
            replaced[place] = [first, _like(instr, "add", (Ref(product), bias, 1), made)]
            continue
        shown = instrs[view]
        seen = _new(regs[shown.outs[0]], regs, roots, frozenset((product,)))
        moved = Instr("op", shown.what, (Ref(product), *shown.args[1:]), (seen,), shown.step)
        moved.default = shown.default
        roots[shown.outs[0]] = frozenset(shown.outs)
        replaced[place] = [first]
        replaced[view] = [moved, _like(shown, "add", (Ref(seen), bias, 1), shown.outs[0])]
    return replaced


def _new(like: Reg, regs: list[Reg], roots: dict[int, frozenset[int]], over: frozenset[int] = frozenset()) -> int:
    """A register of another one's shape and dtype, which may share the memory of those in `over`."""
    number = len(regs)
    roots[number] = over | {number}
    regs.append(Reg(like.shape, like.dtype, roots[number], not over))
    return number


def _like(instr: Instr, name: str, args: tuple[object, ...], out: int) -> Instr:
    made = Instr("op", OPS[name], args, (out,), instr.step)
    made.default = instr.default
    return made


def _only_view(instrs: Sequence[Instr], place: int, number: int, uses: Counter[int], regs: Sequence[Reg]) -> int | None:
    """The place of the view of a register that is its only use and keeps the last dimension; None if there is none.

    Nothing between may change the bias.
    """
    if uses[number] != 1:
        return None
    for later, instr in enumerate(instrs[place + 1 :], place + 1):
        if instr.kind != "op":
            return None
        if number in instr.reads():
            if instr.what.name not in _VIEWS or len(instr.args) != 2:
                return None
            shape = regs[instr.outs[0]].shape
            return later if shape and shape[-1] == regs[number].shape[-1] else None
    return None

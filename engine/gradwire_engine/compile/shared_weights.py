"""Gradients of a weight that is used several times, as in a recurrent layer: one product of all rows.

Each use gives a product of few rows, and the plan would add them one by one. The rows of all uses, one after the
other, give the same sum as one product, up to rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from gradwire_engine.compile.kernels.registry import Kernel
from gradwire_engine.compile.trace import Instr, Ref, Reg
from gradwire_engine.core.matrix_product import matrix_product

Array = Any
_LEAST_USES = 4
_MOST_ROWS = 64  # of a product: more of them are efficient alone
_MOST_ELEMENTS = 1 << 24  # of all rows, which the plan copies
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
#: Formulas of gradients that are products of g and the rows, or sums of g's rows.
_TRANSPOSED = ("_transposed", "input")
_PRODUCTS = {("_linear_addmm", "mat2"): 2, ("_linear_mm", "mat2"): 2, ("_linear_addmm", "input"): 1}


def merge(
    instrs: Sequence[Instr], kernels: Sequence[Kernel | None], regs: Sequence[Reg], kept: Iterable[int]
) -> list[tuple[Instr, Kernel | None]]:
    """The instructions with their kernels, without sums of products that one product can give.

    kept: registers that are read after the run.
    """
    makers = {instr.outs[0]: instr for instr in instrs if len(instr.outs) == 1}
    uses = Counter([*kept, *[int(number) for instr in instrs for number in instr.reads()]])
    order = {id(instr): place for place, instr in enumerate(instrs)}
    removed: set[int] = set()
    merged: dict[int, tuple[Instr, Kernel]] = {}
    for instr in reversed(instrs):
        if instr.kind != "sum" or id(instr) in removed:
            continue
        between, products = _addends(instr, makers, uses)
        products.sort(key=lambda each: order[id(each)])
        turned = sum(each.kind == "formula" for each in between)
        if turned not in (0, len(products)):
            continue
        found = _merged(instr, products, regs, turned > 0)
        if found is not None and _unchanged(instrs, products[0], instr, found[0], regs):
            removed.update(id(each) for each in (*between, *products))
            merged[id(instr)] = found
    pairs = zip(instrs, kernels, strict=True)
    return [merged.get(id(instr), (instr, kernel)) for instr, kernel in pairs if id(instr) not in removed]


def _addends(top: Instr, makers: dict[int, Instr], uses: Counter[int]) -> tuple[list[Instr], list[Instr]]:
    """What a sum adds, behind sums and transposes, which come first. None of their results may have another use."""
    between: list[Instr] = []
    addends: list[Instr] = []
    waiting = [int(number) for number in top.args]
    while waiting:
        number = waiting.pop()
        maker = makers.get(number)
        if maker is None or uses[number] != 1:
            return [], []
        if maker.kind == "sum" or is_transpose(maker):
            between.append(maker)
            waiting += [int(item) for item in maker.args]
        else:
            addends.append(maker)
    return between, addends


def is_transpose(instr: Instr) -> bool:
    """Whether an instruction is the transpose of a gradient."""
    return instr.kind == "formula" and tuple(instr.what[:2]) == _TRANSPOSED and len(instr.args) == 1


def leave_unchanged(instrs: Iterable[Instr], memory: frozenset[int], roots: Callable[[int], frozenset[int]]) -> bool:
    """Whether instructions change no register of this memory in place. roots: whose memory a register may share."""
    changed = (number for instr in instrs for number in (instr.reads() if instr.kind == "call" else instr.changes()))
    return not any(roots(number) & memory for number in changed)


def _unchanged(instrs: Sequence[Instr], first: Instr, top: Instr, made: Instr, regs: Sequence[Reg]) -> bool:
    """Whether nothing changes the operands in place where the products are moved over."""
    memory = frozenset().union(*[regs[number].roots for number in made.reads()])
    between = instrs[instrs.index(first) : instrs.index(top)]
    return leave_unchanged(between, memory, lambda number: regs[number].roots)


def _merged(top: Instr, products: Sequence[Instr], regs: Sequence[Reg], turned: bool) -> tuple[Instr, Kernel] | None:
    """One instruction instead of a sum of products; `turned`: of transposed ones. None if they do not suit."""
    if len(products) < _LEAST_USES or products[0].kind != "formula":
        return None
    name = tuple(products[0].what[:2])
    operands = _PRODUCTS.get(name)
    if operands is None or any(each.kind != "formula" or tuple(each.what[:2]) != name for each in products):
        return None
    out = regs[top.outs[0]]
    lists = [[each.args[place] for each in products] for place in range(operands)]
    shapes = []
    for items in lists:
        if any(type(item) is not Ref or regs[item].dtype != out.dtype for item in items):
            return None
        found = {regs[item].shape for item in items}
        if len(found) != 1 or len(next(iter(found))) != 2:
            return None
        shapes.append(found.pop())
    rest = {tuple(each.args[operands:]) for each in products}
    if out.dtype not in _FLOATS or rest - {(), (1,)} or not 0 < shapes[0][0] <= _MOST_ROWS:
        return None
    rows = shapes[0][0] * len(products)
    wanted = (shapes[0][1],) if operands == 1 else (shapes[1][1], shapes[0][1])[:: -1 if turned else 1]
    elements = rows * sum(shape[1] for shape in shapes)
    if out.shape != wanted or elements > _MOST_ELEMENTS or not elements or any(s[0] != shapes[0][0] for s in shapes):
        return None
    kernel = _kernel(rows, [shape[1] for shape in shapes], out.dtype, turned)
    return Instr("kernel", kernel, tuple(lists), top.outs, top.step), kernel


def _kernel(rows: int, widths: Sequence[int], dtype: Any, turned: bool) -> Kernel:
    """The product of all rows of the gradients and of the inputs; of the gradients alone, their sum."""
    gathered = [np.empty((rows, width), dtype) for width in widths]
    nbytes = sum(array.nbytes for array in gathered)
    ones = np.ones(rows, dtype)

    def add(out: Array, gradients: Sequence[Array]) -> None:
        np.matmul(ones, np.concatenate(gradients, 0, gathered[0]), out)

    def multiply(out: Array, gradients: Sequence[Array], inputs: Sequence[Array]) -> None:
        given = np.concatenate(gradients, 0, gathered[0])
        matrix_product(np, given.T, np.concatenate(inputs, 0, gathered[1]), out if turned else out.T)

    if len(widths) == 1:
        return Kernel(add, nbytes=nbytes)
    return Kernel(multiply, transposed=not turned, nbytes=nbytes)

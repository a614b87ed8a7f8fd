"""Tensor contractions: einsum, tensordot, kron. The contractions reduce to (batched) matmul."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.ops.base.basic import expand
from gradwire_engine.ops.base.checks import normalize_dims
from gradwire_engine.ops.linalg.matrix import matmul
from gradwire_engine.ops.reduce.reduce import sum as total
from gradwire_engine.ops.shape.shape import diagonal, permute, reshape

Ints = Any  # an int or a sequence of ints


def _refuse(message: str) -> None:
    raise EngineError(Reason.RUNTIME, f"einsum(): {message}")


class _Equation:
    """Labels of an einsum equation, per operand and of the output; "..." becomes the labels .0, .1 and so on."""

    def __init__(self, equation: str, operands: list[Any]) -> None:
        left, arrow, right = equation.replace(" ", "").partition("->")
        terms = left.split(",")
        if len(terms) != len(operands):
            more = "more" if len(operands) > len(terms) else "fewer"
            _refuse(f"{more} operands were provided than specified in the equation")
        hidden = [value.ndim - len(term.replace("...", "")) for term, value in zip(terms, operands, strict=True)]
        self.hidden = max([0, *(count for term, count in zip(terms, hidden, strict=True) if "..." in term)])
        self.inputs = [
            self._labels(term, value.ndim, place)
            for place, (term, value) in enumerate(zip(terms, operands, strict=True))
        ]
        self.output = self._labels(right, None, -1) if arrow else self._implied(terms)
        self._check_output()

    def _labels(self, term: str, ndim: int | None, place: int) -> list[str]:
        before, dots, after = term.partition("...")
        for label in before + after:
            if not (label.isascii() and label.isalpha()):
                _refuse(
                    f"invalid subscript given at index {term.index(label)} in the equation string, subscripts must be "
                    "in [a-zA-Z]"
                )
        count = self.hidden if ndim is None else ndim - len(before + after)
        if count < 0 or (ndim is not None and not dots and count):
            _refuse(
                f"the number of subscripts in the equation ({len(before + after)}) does not match the number of "
                f"dimensions ({ndim}) for operand {place}" + ("" if dots else " and no ellipsis was given")
            )
        return [*before, *(self._ellipsis(count) if dots else ()), *after]

    def _ellipsis(self, count: int) -> list[str]:
        return [f".{place}" for place in range(self.hidden - count, self.hidden)]

    def _implied(self, terms: list[str]) -> list[str]:
        letters = sorted(label for label in "".join(terms) if label.isalpha())
        return [*self._ellipsis(self.hidden), *(label for label in letters if letters.count(label) == 1)]

    def _check_output(self) -> None:
        known = {label for labels in self.inputs for label in labels}
        for label in self.output:
            if self.output.count(label) > 1:
                _refuse(f"output subscript {label} appears more than once in the output")
            if label not in known and label.isalpha():
                _refuse(f"output subscript {label} does not appear in the equation for any input operand")
        self.output = [label for label in self.output if label in known]


def _take_diagonals(value: Any, labels: list[str]) -> tuple[Any, list[str]]:
    """Replace the dimensions of each repeated label by their diagonal, which becomes the last dimension."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if value.shape[first] != value.shape[second]:
                _refuse(
                    f"subscript {label} is repeated for operand but the sizes don't match, "
                    f"{value.shape[second]} != {value.shape[first]}"
                )
            value = diagonal(value, 0, first, second)
            labels = [kept for place, kept in enumerate(labels) if place not in (first, second)] + [label]
    return value, labels


def _summed(value: Any, labels: list[str], kept: set[str]) -> tuple[Any, list[str]]:
    """Sum over the labels that are not in `kept`."""
    summed = tuple(place for place, label in enumerate(labels) if label not in kept)
    return (total(value, summed) if summed else value), [label for label in labels if label in kept]


def _reduced(value: Any, labels: list[str], kept: set[str]) -> tuple[Any, list[str]]:
    """Sum over the labels that are not in `kept`. As in PyTorch, dropping dimensions of size 1 keeps the dtype."""
    wide = {label for label, size in zip(labels, value.shape, strict=True) if size != 1}
    value, labels = _summed(value, labels, kept | (set(labels) - wide))
    left = [label for label in labels if label in kept]
    if left != labels:
        value = reshape(value, tuple(size for label, size in zip(labels, value.shape, strict=True) if label in kept))
    return value, left


def _arranged(value: Any, labels: list[str], *groups: list[str], sizes: dict[str, int]) -> Any:
    """Permute to the order of the groups' labels, expand sizes of 1, and merge each group into one dimension."""
    order = [label for group in groups for label in group]
    value = permute(value, tuple(labels.index(label) for label in order))
    full = tuple(sizes[label] for label in order)
    if tuple(value.shape) != full:
        value = expand(value, full)
    return reshape(value, tuple(math.prod(sizes[label] for label in group) for group in groups))


def _spread(value: Any, labels: list[str], *groups: Sequence[str | None]) -> Any:
    """Permute to the order of the groups' labels, with a dimension of size 1 for None; sum over the other labels."""
    order = [label for group in groups for label in group]
    other = [place for place, label in enumerate(labels) if label not in order]
    wide = tuple(place for place in other if value.shape[place] != 1)
    value = total(value, wide, keepdim=True) if wide else value
    value = permute(value, (*(labels.index(label) for label in order if label is not None), *other))
    sizes = iter(value.shape)
    return reshape(value, tuple(1 if label is None else next(sizes) for label in order))


def _multiplied(a: Any, la: list[str], b: Any, lb: list[str], needed: set[str]) -> tuple[Any, list[str]]:
    """Contract two operands over their shared labels that are not in `needed`."""
    shared = set(la) & set(lb)
    a, la = _reduced(a, la, needed | shared)
    b, lb = _reduced(b, lb, needed | shared)
    sizes: dict[str, int] = {}
    for value, labels in ((a, la), (b, lb)):
        for label, size in zip(labels, value.shape, strict=True):
            known = sizes.get(label, 1)
            if size != known and 1 not in (size, known):
                _refuse(
                    "operands do not broadcast with remapped shapes [original->remapped]: "
                    f"{list(a.shape)} and {list(b.shape)}"
                )
            sizes[label] = size if known == 1 else known
    batch = [label for label in la if label in shared and label in needed]
    inner = [label for label in la if label in shared and label not in needed]
    only_a, only_b = ([label for label in labels if label not in shared] for labels in (la, lb))
    summed = [label for label in inner if 1 not in (a.shape[la.index(label)], b.shape[lb.index(label)])]
    # The gradients of an outer product need less memory as matrix products, which need one dtype other than bool.
    outer = only_a and only_b and a.dtype == b.dtype and a.dtype != dtypes.bool_
    if not summed and not outer:
        left = _spread(a, la, batch, only_a, [None] * len(only_b))
        return left * _spread(b, lb, batch, [None] * len(only_a), only_b), [*batch, *only_a, *only_b]
    left = _arranged(a, la, batch, only_a, inner, sizes=sizes)
    right = _arranged(b, lb, batch, inner, only_b, sizes=sizes)
    if batch:
        made = matmul(left, right)
    else:
        made = matmul(reshape(left, left.shape[1:]), reshape(right, right.shape[1:]))
    labels = [*batch, *only_a, *only_b]
    return reshape(made, tuple(sizes[label] for label in labels)), labels


@composite(views="maybe")
def einsum(equation: str, operands: list[Array]) -> Any:
    """Sum of products over the labels that the output lacks, by Einstein's notation (torch.einsum).

    equation: such as "ij,jk->ik". A label repeated in one operand selects the diagonal. "..." stands for any further
    dimensions, which broadcast. Raises EngineError: RUNTIME for an equation that does not fit the operands.
    """
    if not operands:
        raise EngineError(
            Reason.ARGUMENT_VALUE, "einsum(): must specify the equation string and at least one operand", op="einsum"
        )
    parsed = _Equation(equation, operands)
    value, labels = _take_diagonals(operands[0], parsed.inputs[0])
    for place in range(1, len(operands)):
        following, its_labels = _take_diagonals(operands[place], parsed.inputs[place])
        needed = set(parsed.output).union(*parsed.inputs[place + 1 :])
        value, labels = _multiplied(value, labels, following, its_labels, needed)
    value, labels = _summed(value, labels, set(parsed.output))
    return permute(value, tuple(labels.index(label) for label in parsed.output))


@composite
def tensordot(a: Array, b: Array, dims: Ints = 2) -> Any:
    """Contract the last dims of a with the first of b, or two lists of dims (torch.tensordot).

    dims: a number; or a list, whose first half are dims of a and whose second half are dims of b.
    Raises EngineError: RUNTIME if the sizes differ.
    """
    if isinstance(dims, int):
        if dims < 0:
            raise EngineError(Reason.RUNTIME, f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise EngineError(Reason.RUNTIME, f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        over_a, over_b = tuple(range(a.ndim - dims, a.ndim)), tuple(range(dims))
    else:
        nested = len(dims) == 2 and not isinstance(dims[0], int)
        first, second = dims if nested else (dims[: len(dims) // 2], dims[len(dims) // 2 :])
        over_a = normalize_dims(first, a.ndim) if first else ()
        over_b = normalize_dims(second, b.ndim) if second else ()
    if len(over_a) != len(over_b):
        raise EngineError(Reason.RUNTIME, "both dimension lists should have same length")
    for i, j in zip(over_a, over_b, strict=True):
        if a.shape[i] == 1 != b.shape[j]:  # broadcast: the products with one element add up, in the same dtype
            b = total(b, (j,), True, dtype=b.dtype)
        elif b.shape[j] == 1 != a.shape[i]:
            a = total(a, (i,), True, dtype=a.dtype)
        elif a.shape[i] != b.shape[j]:
            raise EngineError(
                Reason.RUNTIME,
                f"contracted dimensions need to match, but first has size {a.shape[i]} in dim {i} and second has size "
                f"{b.shape[j]} in dim {j}",
            )
    free_a = tuple(axis for axis in range(a.ndim) if axis not in over_a)
    free_b = tuple(axis for axis in range(b.ndim) if axis not in over_b)
    inner = math.prod(a.shape[axis] for axis in over_a)
    left = reshape(permute(a, free_a + over_a), (math.prod(a.shape[axis] for axis in free_a), inner))
    right = reshape(permute(b, over_b + free_b), (inner, math.prod(b.shape[axis] for axis in free_b)))
    shape = (*(a.shape[axis] for axis in free_a), *(b.shape[axis] for axis in free_b))
    return reshape(matmul(left, right), shape)


@tensordot.overload("int")
def _(a: Array, b: Array, dims: int = 2) -> Any: ...


@tensordot.overload("dims")
def _(a: Array, b: Array, dims: Ints) -> Any: ...


@composite
def kron(input: Array, other: Array) -> Any:
    """Kronecker product: a block matrix of `other` times each element of the input (torch.kron)."""
    ndim = max(input.ndim, other.ndim)
    a = (1,) * (ndim - input.ndim) + tuple(input.shape)
    b = (1,) * (ndim - other.ndim) + tuple(other.shape)
    left = reshape(input, tuple(size for pair in zip(a, (1,) * ndim, strict=True) for size in pair))
    right = reshape(other, tuple(size for pair in zip((1,) * ndim, b, strict=True) for size in pair))
    return reshape(left * right, tuple(m * n for m, n in zip(a, b, strict=True)))

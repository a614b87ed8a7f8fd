"""Bounds of the integers that ops on a GPU read and make, so that an index is checked without waiting for the GPU.

Around an op, the bounds of its integer operands are known to its checks. What a check finds out is noted for the next
op. Results have bounds that follow from sizes, such as those of argmax, or from the operands, such as those of a
selection or a sum. `Declaration.bounds_results` declares them. See core/index_bounds.py.

Bounds must never be too narrow: an op with known bounds reads memory without a check. Where integers of a dtype would
wrap around, results have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.device import Array
from gradwire_engine.core.index_bounds import (
    IGNORED,
    Bounds,
    bounds_of_host,
    can_hold,
    knowing,
    known,
    limits_of,
    note_range,
    note_written,
)
from gradwire_engine.graph.tensor import Tensor


class Range(NamedTuple):
    """Integers from `least` to `most`, and IGNORED if `ignored`. Of IGNORED alone, `least` is above `most`."""

    least: int
    most: int
    ignored: bool = False

    def whole(self) -> Range:
        """The same integers without an exception."""
        return Range(min(self.least, IGNORED), max(self.most, IGNORED)) if self.ignored else self


class Operands:
    """The bounds of a call's operands before it. used: those that were asked for."""

    def __init__(self, given: Iterable[Tensor]) -> None:
        self._held = {id(each): known(each.storage, each.array) for each in given}
        self.used: list[Range] = []

    def __call__(self, value: Any) -> Range | None:
        """The range of an integer or of a tensor's integers; None if it is not known."""
        found = None
        if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
            found = Range(0, IGNORED, True) if value == IGNORED else Range(int(value), int(value))
        elif (bounds := self._held.get(id(value))) is not None:
            found = Range(bounds.least, bounds.most, bounds.ignored)
        elif id(value) in self._held and value.array.dtype.char in "bB":
            found = Range(*limits_of(value.array.dtype))
        if found is not None:
            self.used.append(found)
        return found

    def of_host(self, array: Array) -> Range | None:
        """The range of integers in host memory, if they are not too many to look at."""
        bounds = bounds_of_host(array)
        if bounds is None:
            return None
        self.used.append(Range(*bounds))
        return self.used[-1]

    def any_of(self, value: Any) -> Range | None:
        """The same without an exception; of a tensor of unknown integers, what its dtype holds."""
        found = self(value)
        if found is None and id(value) in self._held and value.array.dtype.kind in "iu":
            found = Range(*limits_of(value.array.dtype))
            self.used.append(found)
        return None if found is None else found.whole()


#: From an op's arguments and its operands' bounds to the bounds of each result; None for results without.
Rule: TypeAlias = Callable[[tuple[Any, ...], Operands], Sequence[Range | None]]


def _integers(value: Any) -> Iterator[Tensor]:
    """The tensors of integers or bools on a GPU among an op's arguments."""
    if type(value) is Tensor:
        if type(value.array) is not np.ndarray and value.array.dtype.kind in "iub":
            yield value
    elif type(value) is list:
        for item in value:
            yield from _integers(item)


def applied(op: Any, args: tuple[Any, ...], apply: Callable[[], Any]) -> Any:
    """What `apply`, an op's call, returns; notes what it shows about integers."""
    given = [tensor for place in op.tensor_positions for tensor in _integers(args[place])]
    rule = op.result_bounds if given or not op.bounds_of_integers else None
    if CURRENT.get().tracer is not None or not (given or rule is not None):
        return apply()
    versions = [each.storage.version for each in given]
    operands = Operands(given if rule is not None else ())
    target: Any = next((each for each in given if each is args[0]), None)
    before, version = (None, 0) if target is None else (target.storage.bounds, target.storage.version)
    with knowing((each.storage, each.array) for each in given) as learned:
        made = apply()
    for tensor, seen in zip(given, versions, strict=True) if learned else ():
        if tensor.storage.version == seen:
            _note_learned(tensor, learned)
    if rule is None:
        return made
    if target is not None and made is target:
        (found,) = rule(args, operands)
        if found is not None and _are_exact(target.array.dtype, found, operands.used):
            note_written(target.storage, target.array, before, version, *found)
    else:
        _note_results(made, rule(args, operands), args[op.tensor_positions[0]], operands)
    return made


def _note_learned(tensor: Tensor, learned: Sequence[Bounds]) -> None:
    array = tensor.array
    if not array.size or known(tensor.storage, array) is not None:
        return
    begin = int(array.data.ptr)
    for each in learned:
        if each.begin == begin and each.end == begin + array.nbytes and each.dtype == array.dtype:
            note_range(tensor.storage, array, each.least, each.most, each.ignored)


def _note_results(made: Any, ranges: Sequence[Range | None], source: Any, operands: Operands) -> None:
    results = made if isinstance(made, tuple | list) else (made,)
    for result, found in zip(results, ranges, strict=True):
        if found is None or type(result) is not Tensor or type(result.array) is np.ndarray:
            continue
        if type(source) is Tensor and result.storage is source.storage:
            continue  # a view
        if _are_exact(result.array.dtype, found, operands.used):
            note_range(result.storage, result.array, *found)


def _are_exact(dtype: Any, found: Range, used: Sequence[Range]) -> bool:
    """Whether a result's dtype holds what was computed with and what is made: no integer wrapped around."""
    return dtype.kind in "iub" and all(can_hold(dtype, *each) for each in (found, *used))


def note_value(made: Any, value: Any) -> None:
    """Note that a new tensor holds one value alone."""
    if type(made) is Tensor and isinstance(value, int) and type(made.array) is not np.ndarray:
        note_range(made.storage, made.array, *Operands(())(value))  # type: ignore[misc]


def note_positions(made: Any, least: int, most: int) -> None:
    """Note bounds of a tensor that was made by other means than an op."""
    if type(made) is Tensor and type(made.array) is not np.ndarray:
        note_range(made.storage, made.array, least, most)


# Rules: elements of operands.


def hull(ranges: Iterable[Range | None]) -> Range | None:
    """A range of all integers of some ranges; None if one is not known."""
    found = list(ranges)
    if not found or None in found:
        return None
    held = [each for each in found if each is not None]
    return Range(min(each.least for each in held), max(each.most for each in held), any(each.ignored for each in held))


def like_input(args: tuple[Any, ...], operands: Operands) -> list[Range | None]:
    """The result holds elements of the first operand."""
    return [operands(args[0])]


def joined(args: tuple[Any, ...], operands: Operands) -> list[Range | None]:
    """The result holds elements of the tensors of a list."""
    return [hull(map(operands, args[0]))]


def elements_of(*places: int, unless: int | None = None) -> Rule:
    """The result holds elements of the arguments at these places, unless another argument is true."""

    def rule(args: tuple[Any, ...], operands: Operands) -> list[Range | None]:
        return [None if unless is not None and args[unless] else hull(operands(args[place]) for place in places)]

    return rule


def elements_and(value: int) -> Rule:
    """The result holds elements of the first operand, and a value."""
    return lambda args, operands: [hull((operands(args[0]), operands(value)))]


def only(value: int) -> Rule:
    """The result holds a value alone."""
    return lambda args, operands: [operands(value)]


def copied(args: tuple[Any, ...], operands: Operands) -> list[Range | None]:
    """The result holds elements of the second operand, which may come from the host; a cast to bool makes others."""
    source = args[1]
    uploaded = type(source) is Tensor and type(source.array) is np.ndarray
    found = operands.of_host(source.array) if uploaded else operands(source)
    return [_cast(found, args[0].array.dtype)]


def converted(args: tuple[Any, ...], operands: Operands) -> list[Range | None]:
    """The result holds the first operand's elements, of another dtype."""
    source, dtype = args[0], args[1]
    if dtype.kind == "b" and type(source) is Tensor and source.array.dtype.kind != "b":
        return [Range(0, 1)]
    return [_cast(operands(source), dtype)]


def _cast(found: Range | None, dtype: Any) -> Range | None:
    return Range(0, 1) if found is not None and dtype.kind == "b" else found


# Rules: integers that ops compute.


def positions(dim: int, result: int = 0) -> Rule:
    """Result number `result` holds positions along the dimension that argument `dim` names; None: in the whole."""

    def rule(args: tuple[Any, ...], operands: Operands) -> list[Range | None]:
        shape, chosen = args[0].shape, args[dim]
        size = int(np.prod(shape)) if chosen is None or not shape else shape[chosen]
        return [None] * result + [Range(0, max(size, 1) - 1)]

    return rule


def values_and_positions(dim: int) -> Rule:
    """The first result holds elements of the first operand, the second their positions along a dimension."""
    rule = positions(dim)
    return lambda args, operands: [operands(args[0]), *rule(args, operands)]


def truth(args: tuple[Any, ...], operands: Operands) -> list[Range | None]:
    """The result is 0 or 1. Bools of unknown bytes may give others: memory of another dtype can be read as bools."""
    unknown = [each for each in args if type(each) is Tensor and each.array.dtype.kind == "b" and not operands(each)]
    return [None if unknown else Range(0, 1)]


def of_ranges(compute: Callable[..., tuple[int, int] | None]) -> Rule:
    """The results' bounds are computed from the ranges of all arguments. None stands for a missing argument."""

    def rule(args: tuple[Any, ...], operands: Operands) -> list[Range | None]:
        ranges = [None if each is None else operands.any_of(each) for each in args]
        if any(found is None and each is not None for found, each in zip(ranges, args, strict=True)):
            return [None]
        found = compute(*ranges)
        return [None if found is None else Range(*found)]

    return rule


def added(one: Range, other: Range, alpha: Range) -> tuple[int, int]:
    """Bounds of one + alpha * other."""
    least, most = multiplied(other, alpha)
    return one.least + least, one.most + most


def subtracted(one: Range, other: Range, alpha: Range) -> tuple[int, int]:
    """Bounds of one - alpha * other."""
    least, most = multiplied(other, alpha)
    return one.least - most, one.most - least


def multiplied(one: Range, other: Range) -> tuple[int, int]:
    """Bounds of one * other."""
    products = [a * b for a in (one.least, one.most) for b in (other.least, other.most)]
    return min(products), max(products)


def negated(one: Range) -> tuple[int, int]:
    """Bounds of -one."""
    return -one.most, -one.least


def magnitude(one: Range) -> tuple[int, int]:
    """Bounds of abs(one)."""
    return max(0, one.least, -one.most), max(one.most, -one.least)


def modulo(one: Range, other: Range) -> tuple[int, int] | None:
    """Bounds of one % other, for positive divisors."""
    if other.least <= 0:
        return None
    return (one.least, one.most) if one.least >= 0 and one.most < other.least else (0, other.most - 1)


def divided(one: Range, other: Range) -> tuple[int, int] | None:
    """Bounds of one // other, for positive divisors."""
    if other.least <= 0:
        return None
    quotients = [a // b for a in (one.least, one.most) for b in (other.least, other.most)]
    return min(quotients), max(quotients)


def larger(one: Range, other: Range) -> tuple[int, int]:
    """Bounds of maximum(one, other)."""
    return max(one.least, other.least), max(one.most, other.most)


def smaller(one: Range, other: Range) -> tuple[int, int]:
    """Bounds of minimum(one, other)."""
    return min(one.least, other.least), min(one.most, other.most)


def clamped(one: Range, least: Range | None = None, most: Range | None = None) -> tuple[int, int]:
    """Bounds of minimum(maximum(one, least), most)."""
    one = one if least is None else Range(*larger(one, least))
    return (one.least, one.most) if most is None else smaller(one, most)


def inverted(args: tuple[Any, ...], operands: Operands) -> list[Range | None]:
    """Bounds of ~one: of bools 1 - one, of integers -1 - one."""
    found = operands.any_of(args[0])
    if found is None:
        return [None]
    total = 1 if args[0].array.dtype.kind == "b" else -1
    return [Range(total - found.most, total - found.least)]


def masked(one: Range, other: Range) -> tuple[int, int] | None:
    """Bounds of one & other, if one of them is never negative."""
    limits = [each.most for each in (one, other) if each.least >= 0]
    return (0, min(limits)) if limits else None


def united(one: Range, other: Range) -> tuple[int, int] | None:
    """Bounds of one | other, and of one ^ other, if neither is ever negative."""
    return (0, (1 << max(one.most, other.most).bit_length()) - 1) if min(one.least, other.least) >= 0 else None


def quotient(args: tuple[Any, ...], operands: Operands) -> list[Range | None]:
    """Bounds of a division that rounds down; others make no integers, or are not told."""
    return list(of_ranges(divided)(args[:2], operands)) if args[2] == "floor" else [None]


def summed(args: tuple[Any, ...], operands: Operands) -> list[Range | None]:
    """The result holds sums of the first operand along dimensions, or all of it."""
    found, dim, shape = operands(args[0]), args[1], args[0].shape
    if found is None:
        return [None]
    dims = (dim,) if isinstance(dim, int) else tuple(dim or range(len(shape)))
    count, whole = prod(shape[each] for each in dims) if shape else 1, found.whole()
    return [Range(count * whole.least, count * whole.most)]


def running(args: tuple[Any, ...], operands: Operands) -> list[Range | None]:
    """The result holds running sums of the first operand along a dimension."""
    found, shape = operands(args[0]), args[0].shape
    if found is None:
        return [None]
    count, whole = shape[args[1]] if shape else 1, found.whole()
    return [Range(min(whole.least, count * whole.least), max(whole.most, count * whole.most))]

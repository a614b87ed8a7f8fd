"""Bounds of the integers that ops on a GPU read and make, so that an index is checked without waiting for the GPU.

Around an op, the bounds of its integer operands are known to its checks. What a check finds out is noted for the next
op. Some ops' results have bounds that follow from sizes, such as those of argmax, or from the operands, such as those
of a selection: `Declaration.bounds_results` declares them. See core/index_bounds.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.index_bounds import Bounds, knowing, known, note_range
from gradwire_engine.graph.tensor import Tensor


def _integers(value: Any) -> Iterator[Tensor]:
    """The integer tensors on a GPU among an op's arguments."""
    if type(value) is Tensor:
        if type(value.array) is not np.ndarray and value.array.dtype.kind in "iu":
            yield value
    elif type(value) is list:
        for item in value:
            yield from _integers(item)


def applied(op: Any, args: tuple[Any, ...], apply: Callable[[], Any]) -> Any:
    """What `apply`, an op's call, returns; notes what it shows about integers."""
    given = [tensor for place in op.tensor_positions for tensor in _integers(args[place])]
    rule = op.result_bounds
    if CURRENT.get().tracer is not None or not (given or rule is not None):
        return apply()
    versions = [each.storage.version for each in given]
    with knowing((each.storage, each.array) for each in given) as learned:
        made = apply()
    for tensor, version in zip(given, versions, strict=True) if learned else ():
        if tensor.storage.version == version:
            _note_learned(tensor, learned)
    if rule is not None:
        _note_results(made, rule(args), args[op.tensor_positions[0]])
    return made


def _note_learned(tensor: Tensor, learned: Sequence[Bounds]) -> None:
    array = tensor.array
    if not array.size or known(tensor.storage, array) is not None:
        return
    begin = int(array.data.ptr)
    for each in learned:
        if each.begin == begin and each.end == begin + array.nbytes and each.dtype == array.dtype:
            note_range(tensor.storage, array, each.least, each.most, each.ignored)


def _note_results(made: Any, ranges: Sequence[Bounds | tuple[int, int] | None], source: Any) -> None:
    results = made if isinstance(made, tuple | list) else (made,)
    for result, found in zip(results, ranges, strict=True):
        if found is None or type(result) is not Tensor or type(result.array) is np.ndarray:
            continue
        if type(source) is Tensor and result.storage is source.storage:
            continue  # a view, or the operand changed in place
        note_range(result.storage, result.array, *(found[4:] if isinstance(found, Bounds) else found))


def note_positions(made: Any, least: int, most: int) -> None:
    """Note bounds of a tensor that was made by other means than an op."""
    if type(made) is Tensor and type(made.array) is not np.ndarray:
        note_range(made.storage, made.array, least, most)


# Rules: from an op's arguments to the bounds of each result; None for results without.


def like_input(args: tuple[Any, ...]) -> list[Bounds | None]:
    """The result holds elements of the first operand."""
    source = args[0]
    if type(source) is not Tensor or type(source.array) is np.ndarray or source.array.dtype.kind not in "iu":
        return [None]
    return [known(source.storage, source.array)]


def joined(args: tuple[Any, ...]) -> list[tuple[int, int, bool] | None]:
    """The result holds elements of the tensors of a list."""
    found = [like_input((each,))[0] for each in args[0]]
    if not found or any(each is None for each in found) or len({each.array.dtype for each in args[0]}) > 1:
        return [None]
    bounds = [each for each in found if each is not None]
    least, most = min(each.least for each in bounds), max(each.most for each in bounds)
    return [(least, most, any(each.ignored for each in bounds))]


def positions(dim: int, result: int = 0) -> Callable[[tuple[Any, ...]], list[tuple[int, int] | None]]:
    """Result number `result` holds positions along the dimension that argument `dim` names; None: in the whole."""

    def rule(args: tuple[Any, ...]) -> list[tuple[int, int] | None]:
        shape, chosen = args[0].shape, args[dim]
        size = int(np.prod(shape)) if chosen is None or not shape else shape[chosen]
        return [None] * result + [(0, max(size, 1) - 1)]

    return rule

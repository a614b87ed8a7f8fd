"""What an op will take, told from its operands before it is computed: what would pass a quota is refused first.

An op tells it itself (`Op.sized_by`), or asks while it computes (`ops.checks.admit`), or makes views. Of any other it
is known that each result has at most one element for each that its operands broadcast to, or where they do not, for
each of theirs. A test holds the whole registry to that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from gradwire_engine import dtypes
from gradwire_engine.context import Account
from gradwire_engine.errors import EngineError, Reason

if TYPE_CHECKING:
    from gradwire_engine.op import Op

WIDEST = 16  # bytes of an element at most
_INDEX = dtypes.int64.itemsize


def admit(op: Op, account: Account, arrays: list[Any]) -> None:
    """Ask for what an op will take, its arguments given as arrays. Raises EngineError: MEMORY_LIMIT."""
    if op.view in (False, "maybe"):
        for operand in _operands(op, arrays):
            if operand.nbytes > account.limit:
                _refuse_stretched(op, account, operand)
    account.admit(foretell(op, arrays))


def admit_beyond(op: Op, account: Account, arrays: list[Any], held: int) -> None:
    """As `admit`, for a result that replaces what is held: only what it takes beyond that is asked for."""
    more = foretell(op, arrays) - held
    if more > 0:
        account.admit(more)


def foretell(op: Op, arrays: list[Any]) -> int:
    """At most the bytes of an op's results; 0 of views, and where it will refuse what it is given."""
    try:
        if op.sizes is not None:
            return op.sizes(*arrays)
        return 0 if op.view else _broadcast_bytes(op, arrays)
    except (IndexError, TypeError, AttributeError, ValueError, ZeroDivisionError, EngineError):
        return 0  # the op refuses it, in its own words


def sizes_of_shape(op: Op) -> Callable[..., int]:
    """The bytes of an op's result that has the shape which the op is given."""
    place, first = op.positions["shape"], op.tensor_places[0]
    return lambda *arrays: math.prod(arrays[place]) * int(arrays[first].itemsize)


def _broadcast_bytes(op: Op, arrays: list[Any]) -> int:
    shapes, widest, together = set(), 0, 0
    for operand in _operands(op, arrays):
        shapes.add(operand.shape)
        widest = max(widest, operand.itemsize)
        together += operand.size
    if not shapes:
        return 0
    try:
        count = math.prod(shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes))
    except ValueError:
        count = together
    if op.promotes:
        given = [arrays[place] for place in op.tensor_places if place != op.list_place]
        of_one = dtypes.result_type(*given, *(arrays[op.list_place] if op.list_place >= 0 else ()))
        # Of whole numbers floats may be made, and sums of bools.
        widest = of_one.itemsize if dtypes.category(of_one) >= dtypes.FLOAT else max(widest, _INDEX)
    elif not op.has_in_place:
        widest = max(widest, _INDEX)
    return count * widest * max(1, len(op.outputs))


def _operands(op: Op, arrays: list[Any]) -> Iterator[Any]:
    for place in op.tensor_places:
        value = arrays[place]
        for item in value if place == op.list_place else (value,):
            if hasattr(item, "dtype"):
                yield item


def _refuse_stretched(op: Op, account: Account, operand: Any) -> None:
    """A view that shows few bytes as more than there may be: to go through it is work that no tensor could ask for."""
    raise EngineError(
        Reason.MEMORY_LIMIT,
        f"out of memory: {op.name}() would go through {operand.nbytes} bytes, of a view of shape "
        f"{list(operand.shape)} that repeats them; {operand.nbytes} more bytes would pass the limit of {account.limit}",
        op=op.name,
        limit=account.limit,
        requested=operand.nbytes,
    )

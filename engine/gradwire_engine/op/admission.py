"""Admission: estimates an op's memory from its operands, and refuses it before it exceeds a quota.

The size of results comes from `Declaration.sized_by`, or from `ops.base.checks.admit` during the computation; views
take none. For all other ops, each result has at most one element per element of the operands' broadcast shape. If
they do not broadcast, the bound is their total number of elements. A test checks this for the whole registry.

A call also takes temporary memory; `Declaration.works_in` declares it. The default for a formula is the size of its
largest gradient. `make memory` compares these estimates with measurements of the whole registry.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.context import Account
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.cost import alike, of_one_shape

if TYPE_CHECKING:
    from gradwire_engine.op.declaration import Declaration

_INDEX = dtypes.int64.itemsize


def admit(op: Declaration, account: Account, arrays: list[Any]) -> None:
    """Check that the account has room for an op on these arrays. Raises EngineError: MEMORY_LIMIT."""
    if op.list_alone and op.promotes and op.view is False and op.sizes is None and op.work is None:
        first = alike(arrays[op.list_position])
        if first is not None and first.nbytes <= account.limit:
            account.admit(math.prod(first.shape) * first.itemsize * max(1, len(op.outputs)))  # what `needed` tells
            return
    if op.view in (False, "maybe"):
        for operand in _operands(op, arrays):
            if operand.nbytes > account.limit:
                _refuse_expanded(op, account, operand)
    account.admit(needed(op, arrays))


def result_bytes(op: Declaration, arrays: list[Any]) -> int:
    """Upper bound of the bytes of an op's results; 0 for views, and for arguments that the op will refuse."""
    try:
        if op.sizes is not None:
            return op.sizes(*arrays)
        return 0 if op.view else _broadcast_bytes(op, arrays)
    except (IndexError, TypeError, AttributeError, ValueError, ZeroDivisionError, EngineError):
        return 0  # the op raises its own error for these arguments


def needed(op: Declaration, arrays: list[Any]) -> int:
    """Upper bound of a call's peak bytes: results and temporary memory."""
    work = op.work
    one = of_one_shape(arrays) if op.promotes and op.view is False and op.sizes is None else None
    if one is not None and one.dtype.kind == "f" and one.itemsize > 2 and not callable(work):
        results: int = one.size * one.itemsize * max(1, len(op.outputs))  # what is computed below
        return results if work is None else results + int(work * max(results, one.nbytes))
    results = result_bytes(op, arrays)
    if work is None and _are_plain(op, arrays):
        return results
    if op.widens:
        halves = [operand for operand in _operands(op, arrays) if dtypes.is_half(operand.dtype)]
        if halves:  # computed in float32: operands and results are twice as large
            results += 2 * (results + sum(int(operand.nbytes) for operand in halves))
    if work is None and not op.promotes:
        return results
    try:
        if work is None:
            return results + _cast_bytes(op, arrays)
        if callable(work):
            return results + int(work(*arrays))
        largest = max((operand.nbytes for operand in _operands(op, arrays)), default=0)
        return results + int(work * max(results, largest)) + (_cast_bytes(op, arrays) if op.promotes else 0)
    except (IndexError, TypeError, AttributeError, ValueError, ZeroDivisionError, EngineError):
        return results


def _are_plain(op: Declaration, arrays: list[Any]) -> bool:
    """Whether all operands have the same float or complex dtype, no half type: nothing is cast or widened."""
    first = None
    for operand in _operands(op, arrays):
        dtype = operand.dtype
        if first is None:
            first = dtype
            if dtype.kind not in "fc" or dtype.itemsize == 2:
                return False
        elif dtype is not first:
            return False
    return True


def _cast_bytes(op: Declaration, arrays: list[Any]) -> int:
    """Bytes that promotion copies: operands whose dtype differs from the common dtype."""
    operands = list(_operands(op, arrays))
    dtype = operands[0].dtype if operands else None
    if dtype is None or (dtypes.category(dtype) >= dtypes.FLOAT and all(one.dtype == dtype for one in operands)):
        return 0
    common = dtypes.result_type(*operands)
    if op.promotes != "same" and dtypes.category(common) < dtypes.FLOAT:
        common = dtypes.default()
    return sum(int(one.size) * common.itemsize for one in operands if one.dtype != common)


def _broadcast_bytes(op: Declaration, arrays: list[Any]) -> int:
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
        given = [arrays[place] for place in op.tensor_positions if place != op.list_position]
        of_one = dtypes.result_type(*given, *(arrays[op.list_position] if op.list_position >= 0 else ()))
        # An op may turn integers into floats, and sum bools as int64.
        widest = of_one.itemsize if dtypes.category(of_one) >= dtypes.FLOAT else max(widest, _INDEX)
    elif not op.has_in_place:
        widest = max(widest, _INDEX)
    return count * widest * max(1, len(op.outputs))


def _operands(op: Declaration, arrays: list[Any]) -> Iterator[Any]:
    for place in op.tensor_positions:
        value = arrays[place]
        for item in value if place == op.list_position else (value,):
            if hasattr(item, "dtype"):
                yield item


def _refuse_expanded(op: Declaration, account: Account, operand: Any) -> None:
    """Refuse an expanded view larger than the limit: reading it is more work than any tensor within the limit needs."""
    raise EngineError(
        Reason.MEMORY_LIMIT,
        f"out of memory: {op.name}() would read {operand.nbytes} bytes of an expanded view of shape "
        f"{list(operand.shape)}; {operand.nbytes} more bytes would pass the limit of {account.limit}",
        op=op.name,
        limit=account.limit,
        requested=operand.nbytes,
    )

"""Overlap of `out=` with operands: refused as in PyTorch, whose results would depend on the order of writes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from gradwire._base.errors import refuse
from gradwire._proxy.handle import Handle

# Functions that read elements elsewhere than they write, and so take no operand as output either.
_NO_OVERLAP = frozenset(["cat", "concat", "concatenate", "gather", "hstack", "index_select", "stack", "take", "vstack"])
# Functions that do not check: reductions, products and parts of matrices. Here their results are written last.
_UNCHECKED = frozenset((
    "all", "amax", "amin", "any", "argmax", "argmin", "bmm", "cummax", "cummin", "diag", "dot", "kron",
    "log_softmax", "logsumexp", "matmul", "max", "mean", "median", "min", "mm", "mode", "mv", "nanmean",
    "nanmedian", "nansum", "norm", "prod", "softmax", "std", "sum", "tril", "triu", "var", "vdot",
))  # fmt: skip


class _Layout(NamedTuple):
    """Where a tensor's elements are: bytes from the start of the memory to the first and behind the last, and steps."""

    first: int
    end: int
    steps: tuple[tuple[int, int], ...]
    dense: bool


def refuse_overlap(op: str, target: Any, given: tuple[Any, ...]) -> None:
    """Refuse an output on memory that an operand shares only partly. Raises RuntimeError.

    Only what shares the output's storage is looked at, and as in PyTorch only if its elements leave no gaps.
    """
    if op in _UNCHECKED or op.startswith(("linalg.", "fft.")):
        return
    written = None
    operands: list[Any] = [each for value in given for each in (value if type(value) in (list, tuple) else (value,))]
    for each in operands:
        if not isinstance(each, Handle) or each._storage is not target._storage:
            continue
        if each is not target:
            written = written or _layout(target)
            read = _layout(each)
            overlaps = written.dense and read.dense and written.first < read.end and read.first < written.end
            if not overlaps or (read == written and op not in _NO_OVERLAP):
                continue
        elif op not in _NO_OVERLAP or 0 in target._spec.shape:
            continue
        raise refuse(
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
            "memory location. Please clone() the tensor before performing the operation."
        )


def _layout(tensor: Any) -> _Layout:
    size, first = tensor.dtype.itemsize, tensor.storage_offset()
    steps = tuple((each, step) for each, step in zip(tensor.shape, tensor.stride(), strict=True) if each != 1)
    reached = 1 + sum((each - 1) * step for each, step in steps)
    count = math.prod(tensor.shape)
    return _Layout(first * size, (first + reached) * size, steps, count == reached)

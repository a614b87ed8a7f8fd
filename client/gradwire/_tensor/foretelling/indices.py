"""Indices: ops that the server refuses for an index out of range, and their calls whose indices are known to fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire._proxy.handle import Handle
from gradwire._tensor.known_values.bounds import are_indices


def _of_rows(args: tuple[Any, ...]) -> bool:
    """embedding: rows of a table."""
    indices, table = args[:2]
    return isinstance(table, Handle) and bool(table._spec.shape) and are_indices(indices, table._spec.shape[0])


def _of_classes(args: tuple[Any, ...]) -> bool:
    """cross_entropy, nll_loss: columns of scores."""
    scores, classes = args[:2]
    return isinstance(scores, Handle) and len(scores._spec.shape) == 2 and are_indices(classes, scores._spec.shape[1])


_INDEXING: dict[str, Callable[[tuple[Any, ...]], bool]] = {
    "cross_entropy": _of_classes,
    "embedding": _of_rows,
    "nll_loss": _of_classes,
}


def has_indices(op: str) -> bool:
    """Whether an op is foretold only if its indices are known to be in range."""
    return op in _INDEXING


def are_in_range(op: str, args: tuple[Any, ...]) -> bool:
    """Whether the client knows that the indices of a call of such an op are in range."""
    return len(args) > 1 and _INDEXING[op](args)

"""Answers of compiled functions: nested containers of tensors and plain values, told apart from what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradwire import _ops
from gradwire._handle import Handle
from gradwire._tensor import Tensor


class Place:
    """Stands for a tensor in a remembered answer: which of the results it is."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Places:
    """The places of an answer's tensors, in order."""

    def __init__(self, results: Iterable[Handle]) -> None:
        self._next = iter(range(len(list(results))))

    def place(self, _: Handle) -> Place:
        """The place of the next tensor of the answer."""
        return Place(next(self._next))


def map_tensors(value: Any, change: Callable[[Any], Any], kind: type[Any] = Handle) -> Any:
    """The same containers with every tensor changed."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, tuple):
        items = [map_tensors(item, change, kind) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [map_tensors(item, change, kind) for item in value]
    if isinstance(value, dict):
        return {name: map_tensors(item, change, kind) for name, item in value.items()}
    return value


def join_pieces(pieces: Sequence[Any]) -> Any:
    """One answer of several of the same make: their tensors one after the other along the first dimension."""
    columns: list[list[Tensor]] = []
    for piece in pieces:
        column: list[Tensor] = []
        map_tensors(piece, column.append)
        columns.append(column)
    rows = iter([_ops.cat(list(row)) for row in zip(*columns, strict=True)])
    return map_tensors(pieces[-1], lambda _: next(rows))


def is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(map(is_plain, value.values()))
    return isinstance(value, (Handle, int, float, complex, str, bytes, type(None)))

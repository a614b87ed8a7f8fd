"""Answers of compiled functions: separates the structure of nested containers from the tensors in them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from gradwire._base import dtypes
from gradwire._compile.value_snapshots import PLAIN
from gradwire._proxy.handle import Handle
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor

_CONSTANT = (*PLAIN, dtypes.dtype, dtypes.device, dtypes.Size, range, slice)


class TensorPlaceholder:
    """Placeholder for a tensor in a stored answer: the number of the result."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


def map_tensors(value: Any, change: Callable[[Any], Any], kind: type[Any] = Handle) -> Any:
    """Copy the containers with `change` applied to every tensor.

    A list or dict that occurs twice stays one object in the copy.
    """
    return _map(value, change, kind, {})


def _map(value: Any, change: Callable[[Any], Any], kind: type[Any], done: dict[int, Any]) -> Any:
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, tuple) and type(value) is not dtypes.Size:
        items = [_map(item, change, kind, done) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if id(value) in done and isinstance(value, (list, dict)):
        return done[id(value)]
    if isinstance(value, list):
        done[id(value)] = made = []
        made.extend([_map(item, change, kind, done) for item in value])
        return made
    if isinstance(value, dict):
        done[id(value)] = found = OrderedDict() if type(value) is OrderedDict else {}
        for name, item in value.items():
            found[name] = _map(item, change, kind, done)
        return found
    return value


def tensors_of(value: Any) -> list[Any]:
    """The tensors of an answer, in order."""
    found: list[Any] = []
    map_tensors(value, found.append)
    return found


def join_pieces(pieces: Sequence[Any]) -> Any:
    """Join answers of the same structure: concatenate their tensors along the first dimension."""
    columns: list[list[Tensor]] = [tensors_of(piece) for piece in pieces]
    rows = iter([ops.cat(list(row)) for row in zip(*columns, strict=True)])
    return map_tensors(pieces[-1], lambda _: next(rows))


def find_obstacle(answer: Any, outside: Collection[int]) -> str | None:
    """Say why a replay cannot rebuild an answer; None if it can.

    `outside` are the ids of objects that existed before the call.
    """
    waiting = [answer]
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, (Handle, np.generic)) or type(value) in _CONSTANT:
            continue
        kind = type(value)
        if kind not in (tuple, list, dict, OrderedDict) and not (isinstance(value, tuple) and hasattr(kind, "_fields")):
            return f"it returns an object ({kind.__name__}) that is not a tensor, number or plain container of these"
        if not isinstance(value, tuple) and id(value) in outside:
            return "it returns a container that was there before the call"
        if id(value) in seen and not isinstance(value, tuple):
            continue
        seen.add(id(value))
        if isinstance(value, dict) and not all(type(name) in PLAIN for name in value):
            return "it returns a dictionary with keys that are no numbers or texts"
        waiting.extend([*value.keys(), *value.values()] if isinstance(value, dict) else value)
    return None

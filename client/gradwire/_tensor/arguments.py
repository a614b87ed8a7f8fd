"""Arguments: converts an op's arguments to the memo's key and to the message.

Both conversions walk the values in the same order. Values that change between calls (tensor ids, floats) go into
`values`, all others into the key. The message takes the values from an iterator, so a template can be made of it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradwire._base.dtypes import BY_PYTHON, device, dtype
from gradwire._base.errors import two_sessions
from gradwire._proxy.handle import Handle
from gradwire._proxy.results import refresh
from gradwire._tensor.indexing import Index
from gradwire._tensor.overrides import OverriddenError, overriding
from gradwire._transport import wire
from gradwire.v1 import types_pb2 as pb

_OPEN, _CLOSE = object(), object()
_INT64 = range(-(1 << 63), 1 << 63)
_SCALARS = (bool, int, str, type(None))


class MixedListError(TypeError):
    """A list of tensors and other values, which may be sizes."""


# The largest number of float16, and those of wider dtypes that do not hold all finite numbers.
MOST_HALF = 65504.0
_MOST = {"bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}


def magnitude(value: float) -> Any:
    """What stands in the memo's key for a float. A call with one that a dtype does not hold may be refused."""
    largest = next((name for name, most in _MOST.items() if abs(value) <= most), None)
    return largest or (float if math.isnan(value) or math.isinf(value) else "float64")


class Operands:
    """Arguments of one call: the memo's key, the varying values, the edges of tensors that require grad."""

    __slots__ = ("edges", "key", "session", "values")

    def __init__(self, key: list[Any], values: list[wire.Value], edges: list[Any], session: Any) -> None:
        self.key = key
        self.values = values
        self.edges = edges
        self.session = session

    def add(self, op: str, value: Any) -> None:
        """Walk one argument. Raises TypeError for a value that no op takes."""
        kind = type(value)
        if kind in _SCALARS:
            self.key.append(kind)
            self.key.append(value)
        elif isinstance(value, Handle):
            self._add_tensor(op, value)
        elif isinstance(value, float):
            self.key.append(float if kind is not float or -MOST_HALF <= value <= MOST_HALF else magnitude(value))
            self.values.append(float(value))
        elif isinstance(value, (list, tuple)):
            self._add_list(op, value)
        elif kind is Index:
            self._add_index(op, value.items)
        elif isinstance(value, slice):
            self.key.extend((slice, value.start, value.stop, value.step))
        elif isinstance(value, (dtype, device, type)) or value is Ellipsis:
            self.key.append(value)
        elif kind is complex:
            # The text distinguishes values that == does not: 0.0 == -0.0, and NaN equals nothing.
            self.key.extend((complex, repr(value)))
        elif isinstance(value, (np.number, np.bool_)):
            self.add(op, value.item())
        else:
            raise (OverriddenError if overriding(value) else TypeError)(
                f"{op}(): an argument of type {kind.__name__} is neither a tensor nor a value that ops take"
            )

    def _add_index(self, op: str, items: tuple[Any, ...]) -> None:
        """Walk an index. One whole number is the common case."""
        if len(items) == 1 and type(items[0]) is int:
            self.key.extend((Index, _OPEN, int, items[0], _CLOSE))
            return
        self.key.append(Index)
        self._add_list(op, items)

    def _add_tensor(self, op: str, value: Handle) -> None:
        if value._session is not self.session:
            if self.session is not None:
                raise two_sessions(op, self.session, value._session)
            self.session = value._session
        if value._storage is not None and value._storage.changes != value._changes_seen:
            refresh(value)
        self.key.append(value._spec)
        self.values.append(value._id)
        if value._edge is not None:
            self.edges.append(value._edge)

    def _add_list(self, op: str, value: Any) -> None:
        self.key.append(_OPEN)
        for item in value:
            self.add(op, item)
        self.key.append(_CLOSE)


def write_argument(message: pb.Argument, value: Any, values: Iterator[wire.Value]) -> None:
    """Write one argument into the message; take ids and floats from `values`."""
    if isinstance(value, Handle):
        message.tensor = _as_id(next(values))
    elif value is None:
        message.none.SetInParent()
    elif isinstance(value, (bool, np.bool_)):
        message.boolean = bool(value)
    elif isinstance(value, (int, np.integer)):
        message.integer = _checked_int(int(value))
    elif isinstance(value, (float, np.floating)):
        message.float = next(values)
    elif isinstance(value, (complex, np.complexfloating)):
        message.complex.real, message.complex.imag = float(value.real), float(value.imag)
    elif isinstance(value, (str, device)):
        message.string = str(value)
    elif isinstance(value, dtype):
        message.dtype = value.code  # type: ignore[assignment]
    elif isinstance(value, type):
        message.dtype = BY_PYTHON[value].code  # type: ignore[assignment]
    elif isinstance(value, Index):
        message.index.SetInParent()
        for item in value.items:
            _write_index_item(message.index.items.add(), item, values)
    else:
        _write_list(message, value, values)


def _write_list(message: pb.Argument, items: Any, values: Iterator[wire.Value]) -> None:
    if any(isinstance(item, Handle) for item in items):
        for place, item in enumerate(items):
            if not isinstance(item, Handle):
                raise MixedListError(
                    f"expected Tensor as element {place} in a list of tensors, but got {type(item).__name__}"
                )
        message.tensors.ids.extend([_as_id(next(values)) for _ in items])
    elif any(isinstance(item, float) for item in items):
        message.floats.values.extend([next(values) if isinstance(item, float) else float(item) for item in items])
    else:
        message.integers.SetInParent()
        message.integers.values.extend([_checked_int(operator.index(item)) for item in items])


def _write_index_item(message: pb.IndexItem, item: Any, values: Iterator[wire.Value]) -> None:
    if isinstance(item, Handle):
        message.tensor = _as_id(next(values))
    elif item is None:
        message.new_axis = True
    elif item is Ellipsis:
        message.ellipsis = True
    elif isinstance(item, slice):
        message.slice.SetInParent()
        if item.start is not None:
            message.slice.start = item.start
        if item.stop is not None:
            message.slice.stop = item.stop
        if item.step is not None:
            message.slice.step = item.step
    elif isinstance(item, bool):
        message.boolean = item
    else:
        message.integer = item


def _as_id(value: wire.Value) -> int:
    return int(value)


def _checked_int(value: int) -> int:
    if value not in _INT64:
        raise RuntimeError("Overflow when unpacking long long")
    return value

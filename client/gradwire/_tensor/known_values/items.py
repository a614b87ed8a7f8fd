"""Items: the first item of a small tensor that is read brings the values of all, and of sums with whole numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gradwire._base.dtypes import int64
from gradwire._tensor.batching import BATCHING
from gradwire._tensor.known_values.drawn import drawn_values
from gradwire._tensor.known_values.known import Known, uncounted_writes

if TYPE_CHECKING:
    from gradwire._proxy.handle import Handle
    from gradwire._proxy.storage_state import StorageState

#: Reads all values of a tensor in order; `values.py` registers it, which is above this module.
READ: list[Callable[[Handle], list[Any]]] = []
# Most items whose values are read at once.
_MOST_ITEMS = 1024
# Most that a sum of an item adds and still is known without reading it.
_MOST_ADDED = 1 << 31
_INT64 = range(-(1 << 63), 1 << 63)


class ItemValues:
    """The values of a small tensor. They hold while its storage is unchanged."""

    __slots__ = ("_changes", "_spec", "_writes", "storage", "values")

    def __init__(self, source: Handle, storage: StorageState) -> None:
        self.storage = storage
        self._changes = storage.changes
        self._spec = source._spec  # which a change of sizes changes
        self._writes = uncounted_writes(source)
        self.values: list[Any] | None = drawn_values(source)

    def hold(self, source: Handle) -> bool:
        """Whether no value was written since."""
        return (
            self.storage.changes == self._changes
            and source._spec is self._spec
            and uncounted_writes(source) == self._writes
        )


class Item(Known):
    """An item of a small tensor plus a whole number, by its place in the order of rows."""

    __slots__ = ("_added", "_items", "_place", "_source")

    def __init__(self, tensor: Handle, source: Handle, items: ItemValues, place: int, added: int = 0) -> None:
        super().__init__(tensor)
        self._source = source
        self._items = items
        self._place = place
        self._added = added

    def value(self) -> Any:
        """The item's value; the first one reads all."""
        items = self._items
        if not items.hold(self._source):
            return None
        if items.values is None:
            items.values = READ[0](self._source)
        value = items.values[self._place]
        if not self._added:
            return value
        value += self._added
        return value if value in _INT64 else None

    def plus(self, added: int, tensor: Handle) -> Item:
        """The same of a tensor that is the sum of this one and a whole number."""
        return Item(tensor, self._source, self._items, self._place, self._added + added)


def note_items(source: Handle, items: Sequence[Handle]) -> None:
    """Note that these are the items of an iteration over a tensor."""
    if len(source._spec.shape) != 1:
        return
    values = _values_of(source, items[0]) if items else None
    if values is not None:
        for place, each in enumerate(items):
            each._known = Item(each, source, values, place)


def note_item(source: Handle, index: Sequence[Any], made: Handle) -> None:
    """Note that a tensor without dimensions is x[index], for an index of whole numbers."""
    shape = source._spec.shape
    if len(index) != len(shape) or any(type(each) is not int for each in index):
        return
    values = _values_of(source, made)
    if values is None:
        return
    place = 0
    for each, size in zip(index, shape, strict=True):
        place = place * size + each % size
    made._known = Item(made, source, values, place)


def _values_of(source: Handle, item: Handle) -> ItemValues | None:
    """The values of which an item of a tensor is one; None if they are not read together."""
    spec, storage = source._spec, source._storage
    if not 1 < math.prod(spec.shape) <= _MOST_ITEMS or BATCHING or spec.tangents:
        return None
    if storage is None or item._storage is not storage or item._spec.shape:
        return None
    values: ItemValues | None = getattr(source, "_item_values", None)
    if values is None or values.storage is not storage or not values.hold(source):
        values = source._item_values = ItemValues(source, storage)
    return values


def note_sum(source: Any, added: int, made: Any) -> None:
    """Note that a tensor is an item plus a whole number. Indices of slices are such sums."""
    known = source._known
    if type(known) is not Item or BATCHING or not -_MOST_ADDED < added < _MOST_ADDED:
        return
    whole = source._spec.dtype is int64 and type(made) is type(source) and made._spec.dtype is int64
    if whole and known.holds(source):
        made._known = known.plus(added, made)

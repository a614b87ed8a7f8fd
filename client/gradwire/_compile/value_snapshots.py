"""Value snapshots: detect changes of values.

A snapshot holds a value, a function that fetches items from it, and the names to fetch. To detect a change, fetch again
and compare the items.
"""

from __future__ import annotations

import abc
import decimal
import struct
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gradwire._proxy.handle import Handle

Fetch = Callable[[Any, Any], tuple[Any, ...]]

#: Item for a name that is not set.
MISSING = types.SimpleNamespace()
PLAIN = frozenset((int, bool, str, bytes, type(None), type(...), float, complex))


class ValueSnapshot:
    """Snapshot of a value: `fetch(value, labels)` returned `items`."""

    __slots__ = ("fetch", "items", "labels", "value")

    def __init__(self, value: Any, fetch: Fetch, labels: Any = None) -> None:
        self.value = value
        self.fetch = fetch
        self.labels = labels
        self.items = fetch(value, labels)


class Same:
    """Wrapper in a tuple for an object compared by identity. It keeps the object alive so its id is not reused."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def plain(value: Any) -> Any:
    """Number or text in a form that compares its type and all its bits."""
    kind = type(value)
    if kind is float:
        return (float, struct.pack("d", value))
    if kind is complex:
        return (complex, struct.pack("dd", value.real, value.imag))
    return (kind, value)


def same_items(some: Iterable[Any], others: Iterable[Any]) -> bool:
    """Whether two sequences hold the same objects, or numbers and texts with the same bits."""
    some, others = tuple(some), tuple(others)
    return len(some) == len(others) and all(map(same_item, some, others))


def same_item(one: Any, other: Any) -> bool:
    """Whether two items are the same object, or numbers or texts with the same bits."""
    return one is other or (type(one) in PLAIN and type(other) in PLAIN and plain(one) == plain(other))


# Fetches.


def of_kind(value: Any, _: Any) -> tuple[Any, ...]:
    return (type(value),)


def of_list(value: Any, _: Any) -> tuple[Any, ...]:
    return tuple(list.__iter__(value))


def of_tuple(value: Any, _: Any) -> tuple[Any, ...]:
    return tuple(tuple.__iter__(value))


def of_deque(value: Any, _: Any) -> tuple[Any, ...]:
    return (value.maxlen, *deque.__iter__(value))


def of_set(value: Any, _: Any) -> tuple[Any, ...]:
    """Elements of a set; iteration order counts."""
    return tuple((set if isinstance(value, set) else frozenset).__iter__(value))


def of_dict(value: Any, _: Any) -> tuple[Any, ...]:
    if isinstance(value, OrderedDict):
        keys = tuple(OrderedDict.__iter__(value))
        return (*keys, *(dict.__getitem__(value, key) for key in keys))
    return (*dict.keys(value), *dict.values(value))


def of_names(value: Any, labels: Any) -> tuple[Any, ...]:
    """Values of a dictionary under the given names."""
    return tuple([dict.get(value, name, MISSING) for name in labels])


def of_count(value: Any, labels: Any) -> tuple[Any, ...]:
    """How many names a dictionary has besides the given ones."""
    return (len(value) - len(labels & value.keys()),)


def of_class(value: Any, labels: Any) -> tuple[Any, ...]:
    """A class's own attributes of the given names."""
    held = value.__dict__
    return tuple([held.get(name, MISSING) for name in labels])


def of_class_count(value: Any, labels: Any) -> tuple[Any, ...]:
    """How many attributes of its own a class has besides those of the given names."""
    return of_count(value.__dict__, labels)


def of_class_names(value: Any, _: Any) -> tuple[Any, ...]:
    return tuple(value.__dict__)


def of_bases(value: Any, _: Any) -> tuple[Any, ...]:
    return tuple(value.__mro__)


def of_function(value: Any, _: Any) -> tuple[Any, ...]:
    return (value.__code__, value.__defaults__, value.__kwdefaults__, id(value.__globals__))


def of_code(value: Any, _: Any) -> tuple[Any, ...]:
    """Identity of a function that did not run: its code."""
    return (value.__code__,)


def of_attributes(value: Any, labels: Any) -> tuple[Any, ...]:
    """Attributes of a class of this package, inherited ones included."""
    return tuple([getattr(value, name, MISSING) for name in labels])


def of_cells(value: Any, labels: Any) -> tuple[Any, ...]:
    """Contents of a function's cells of the given names."""
    found = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=False))
    return tuple([_contents(found.get(name)) for name in labels])


def _contents(cell: Any) -> Any:
    try:
        return MISSING if cell is None else cell.cell_contents
    except ValueError:  # a name that is bound later
        return MISSING


def of_method(value: Any, _: Any) -> tuple[Any, ...]:
    return (value.__func__, value.__self__)


def of_partial(value: Any, _: Any) -> tuple[Any, ...]:
    return (value.func, value.args, value.keywords)


def of_wrapped(value: Any, _: Any) -> tuple[Any, ...]:
    """A static method or class method."""
    return (value.__func__,)


def of_property(value: Any, _: Any) -> tuple[Any, ...]:
    return (value.fget, value.fset, value.fdel)


def of_builtin(value: Any, _: Any) -> tuple[Any, ...]:
    """A method written in C, and what it is bound to."""
    return (value.__name__, value.__self__)


def of_slots(value: Any, labels: Any) -> tuple[Any, ...]:
    return tuple([_slot(value, member) for member in labels])


def _slot(value: Any, member: Any) -> Any:
    try:
        return member.__get__(value)
    except AttributeError:
        return MISSING


def of_bytes(value: Any, _: Any) -> tuple[Any, ...]:
    return (getattr(value, "typecode", ""), bytes(value))


def of_text(value: Any, _: Any) -> tuple[Any, ...]:
    """Value of an instance of a number or text subclass, as the base type."""
    kinds: tuple[Any, ...] = (bool, int, float, complex, str, bytes)
    base = next(each for each in kinds if isinstance(value, each))
    return (base.__add__(value, base()) if base in (str, bytes) else base(base.__pos__(value)),)


def of_array(value: Any, _: Any) -> tuple[Any, ...]:
    if value.dtype.hasobject:
        return (value.dtype.str, str(value.shape), str(value.strides), *value.ravel().tolist())
    if not isinstance(value, np.ndarray):
        return (value.dtype.str, value.tobytes())
    return (value.dtype.str, str(value.shape), str(value.strides), value.flags.num, np.ndarray.tobytes(value))


def of_context(value: Any, _: Any) -> tuple[Any, ...]:
    try:
        return (value.get(),)
    except LookupError:
        return (MISSING,)


def of_decimal(value: Any, _: Any) -> tuple[Any, ...]:
    """A decimal and the thread's context, on which its arithmetic depends."""
    return (repr(value), repr(decimal.getcontext()))


def of_local(value: Any, _: Any) -> tuple[Any, ...]:
    """This thread's attributes of a threading.local."""
    return of_dict(value.__dict__, None)


def of_proxy(value: Any, _: Any) -> tuple[Any, ...]:
    return (*value.keys(), *value.values())


def of_guard(value: Any, _: Any) -> tuple[Any, ...]:
    return (value.__guard__(),)


def of_tensor(value: Handle, labels: Any) -> tuple[Any, ...]:
    """A tensor's description without values and gradient, and the attributes set on it."""
    held = value.__dict__
    view = held.get("_view")
    return (
        value._fresh(),  # type: ignore[attr-defined]
        value._id,
        value._retained is None,
        None if view is None else view.base,
        *[held.get(name, MISSING) for name in labels],
    )


def of_shown(value: Any, labels: Any) -> tuple[Any, ...]:
    """Descriptive attributes of a function or class, of the given names."""
    return tuple([getattr(value, name, MISSING) for name in labels])


def of_abstract(_value: Any, _: Any) -> tuple[Any, ...]:
    """State of the registries of abstract classes."""
    return (abc.get_cache_token(),)


def of_numpy(_value: Any, _: Any) -> tuple[Any, ...]:
    """This thread's NumPy error handling and print options."""
    return (*np.geterr().values(), str(np.geterrcall()), str(np.get_printoptions()))


def of_steps(value: Any, _: Any) -> tuple[Any, ...]:
    """Step count of each of an optimizer's parameters, relative to the first."""
    counts = [state["step"] for state in value.state.values() if isinstance(state.get("step"), (int, float))]
    return tuple([count - counts[0] for count in counts])

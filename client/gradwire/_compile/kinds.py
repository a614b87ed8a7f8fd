"""Kinds of values: which values are immutable, how to take snapshots of others, and which code reads attributes."""

from __future__ import annotations

import array
import contextvars
import functools
import re
import sys
import threading
import types
import typing
from collections import deque
from typing import Any

import numpy as np

from gradwire._base import dtypes
from gradwire._compile import value_snapshots as snapshots
from gradwire._compile.purity import TRUSTED, is_a, module_of, per_class
from gradwire._proxy.handle import Handle

# Descriptive attributes of functions and classes that can be assigned.
OF_FUNCTIONS = (
    "__name__",
    "__qualname__",
    "__doc__",
    "__module__",
    "__annotations__",
    "__defaults__",
    "__kwdefaults__",
)
OF_CLASSES = ("__name__", "__qualname__")
PASSIVE = frozenset(("__dict__", "__weakref__", "_abc_impl", "__abstractmethods__"))
_FIXED: tuple[type[Any], ...] = (
    types.CodeType, types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType,
    types.MethodDescriptorType, types.ClassMethodDescriptorType, types.GenericAlias,
    types.UnionType, type(NotImplemented), range, slice, np.dtype, np.ufunc, re.Pattern, typing.TypeVar,
    dtypes.dtype, dtypes.device, type(typing.Any), type(typing.List[int]),  # noqa: UP006
)  # fmt: skip
_FIXED_MODULES = ("datetime", "uuid", "fractions", "pathlib", "zoneinfo", "ipaddress", "typing")


def is_special(name: str, held: Any) -> bool:
    """Whether a class attribute is one that Python calls implicitly, as `len` calls `__len__`."""
    return name.startswith("__") and (callable(held) or hasattr(type(held), "__get__")) and name not in PASSIVE


def dict_of(value: Any) -> Any:
    """`__dict__` of an object, bypassing its class's own attribute lookup; None without one."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


def is_fixed(value: Any) -> bool:
    """Whether a value is immutable, so that its identity suffices."""
    kind = type(value)
    if kind.__name__ == "_ArrayFunctionDispatcher" and not str(value.__module__).startswith("numpy.random"):
        return True
    if is_a(value, _FIXED) or module_of(kind) in _FIXED_MODULES:
        return True
    return module_of(kind).partition(".")[0] == "_collections" and kind.__name__ == "_tuplegetter"


def fetch_of(value: Any) -> snapshots.Fetch | None:
    """Fetch for a value of a built-in or NumPy type; None for other types."""
    return _FETCHES.get(type(value)) or (snapshots.of_array if is_a(value, np.generic) else None)


def content_of(value: Any) -> snapshots.Fetch | None:
    """Fetch for the content of an object whose class derives from a container, number or text; None for others."""
    if is_a(value, Handle):
        return None
    for kind, fetch in _CONTENTS.items():
        if is_a(value, kind):
            return fetch
    return None


#: Fetches of the built-in containers, which most of what a walk finds are.
CONTAINERS: dict[type[Any], snapshots.Fetch] = {
    list: snapshots.of_list, tuple: snapshots.of_tuple, dict: snapshots.of_dict, set: snapshots.of_set,
    frozenset: snapshots.of_set,
}  # fmt: skip
_CONTENTS: dict[Any, snapshots.Fetch] = {
    **CONTAINERS, deque: snapshots.of_deque, bytearray: snapshots.of_bytes,
    np.ndarray: snapshots.of_array, int: snapshots.of_text, float: snapshots.of_text, complex: snapshots.of_text,
    str: snapshots.of_text, bytes: snapshots.of_text,
}  # fmt: skip
_FETCHES: dict[type[Any], snapshots.Fetch] = {
    **{kind: fetch for kind, fetch in _CONTENTS.items() if fetch is not snapshots.of_text},
    types.MethodType: snapshots.of_method,
    functools.partial: snapshots.of_partial,
    functools.partialmethod: snapshots.of_partial,
    staticmethod: snapshots.of_wrapped,
    classmethod: snapshots.of_wrapped,
    property: snapshots.of_property,
    types.MappingProxyType: snapshots.of_proxy,
    contextvars.ContextVar: snapshots.of_context,
    threading.local: snapshots.of_local,
    array.array: snapshots.of_bytes,
}


def title_of(kind: type[Any]) -> str:
    return kind.__name__ if module_of(kind) == "builtins" else f"{module_of(kind)}.{kind.__name__}"


@functools.cache
def tensor_names() -> frozenset[str]:
    """Attributes of Tensor for which the class returns the same object each time."""
    from gradwire._tensor.tensor import Tensor

    return frozenset(name for name in dir(Tensor) if getattr(Tensor, name, 0) is getattr(Tensor, name, 1))


@functools.cache
def operators() -> frozenset[str]:
    """Names of `tensor_names` that Python calls implicitly, so no instruction names them."""
    from gradwire._tensor.tensor import Tensor

    return frozenset(
        name
        for name in tensor_names()
        if name.startswith("__") and is_a(getattr(Tensor, name), types.FunctionType) and name != "__init_subclass__"
    )


@per_class
def is_ours(kind: type[Any]) -> bool:
    return module_of(kind).partition(".")[0] == "gradwire"


@per_class
def is_trusted_class(kind: type[Any]) -> bool:
    module = sys.modules.get(module_of(kind))
    return is_ours(kind) or TRUSTED[getattr(module, "__file__", None) or "<frozen"]


@per_class
def foreign_bases(kind: type[Any]) -> str:
    """Which attributes of such objects trusted code reads: "all", those of a "module", or "none"."""
    found = "none"
    for base in kind.__mro__:
        if module_of(base) == "builtins" or base in (typing.Generic, typing.Protocol):
            continue
        if module_of(base) == "gradwire.nn._module":
            found = "module"
        elif base.__name__ != "ABC" and is_trusted_class(base):
            return "all"
    return found

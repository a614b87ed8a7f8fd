"""Purity: lists the code whose results depend on its arguments alone, which a compiled function may use unseen.

It is an allow list: a call that uses other code runs uncompiled.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import operator
import os
import sys
import types
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numpy as np

from gradwire._base.call_site import INTERNAL, PACKAGE

_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_SITE = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_NUMPY = os.path.dirname(os.path.abspath(np.__file__)) + os.sep

#: Modules of the standard library whose Python code depends only on its arguments.
_TRUSTED_LIBRARY = (
    "_collections_abc.py", "_py_abc.py", "_weakrefset.py", "abc.py", "bisect.py", "collections", "contextlib.py",
    "copy.py", "copyreg.py", "dataclasses.py", "enum.py", "fractions.py", "functools.py", "graphlib.py", "heapq.py",
    "importlib", "keyword.py", "numbers.py", "operator.py", "re", "reprlib.py", "sre_compile.py", "sre_parse.py",
    "textwrap.py", "types.py", "typing.py", "weakref.py",
)  # fmt: skip
_DISTRUSTED_NUMPY = ("random", "npyio", "_npyio", "memmap", "_datasource", "format", "testing")
#: Parts of this package that read files, clocks or other programs.
_DISTRUSTED_HERE = tuple(
    os.path.join(*parts)
    for parts in (
        ("_cli",), ("_io", "files.py"), ("_session", "saved_files.py"), ("_session", "saving.py"),
        ("_session", "snapshots.py"), ("_session", "timings.py"), ("_transport", "progress_bars.py"),
        ("_transport", "status.py"), ("utils", "data"),
    )
)  # fmt: skip
#: Functions of trusted modules that read or write any attribute of their arguments.
READS_ALL = frozenset(
    ("copy", "deepcopy", "asdict", "astuple", "replace", "fields", "getattr", "setattr", "delattr", "hasattr", "vars",
     "dir", "__dict__", "__getattribute__", "__setattr__", "__delattr__", "__getstate__", "__setstate__", "__reduce__",
     "__get__", "__set__", "__delete__", "get_type_hints",
     "__reduce_ex__", "attrgetter", "methodcaller")
)  # fmt: skip
#: Ids of such functions, which identify them under any name.
_READERS = frozenset(
    map(id, (getattr, setattr, delattr, hasattr, vars, dir, operator.attrgetter, operator.methodcaller, copy.copy,
             copy.deepcopy, dataclasses.asdict, dataclasses.astuple, dataclasses.replace, dataclasses.fields))
)  # fmt: skip
#: Methods of str that read attributes named in the text, as in "{0.width}".
FORMATS = ("format", "format_map")
#: Attributes of functions, cells and frames that give access to names no instruction of the call looks up.
LEADS_ELSEWHERE = frozenset(
    ("__globals__", "__closure__", "cell_contents", "__subclasses__", "gi_frame", "cr_frame", "ag_frame", "tb_frame",
     "f_locals", "f_globals", "f_builtins", "f_back")
)  # fmt: skip

_PURE_BUILTINS = frozenset(
    ("abs", "all", "any", "ascii", "bin", "callable", "chr", "delattr", "dir", "divmod", "format", "getattr", "hasattr",
     "hex", "isinstance", "issubclass", "iter", "len", "locals", "max", "min", "next", "oct", "ord", "pow", "repr",
     "round", "setattr", "sorted", "sum", "vars", "__build_class__")
)  # fmt: skip
_PURE_MODULES = frozenset(
    ("math", "cmath", "_operator", "operator", "itertools", "_functools", "functools", "_bisect", "_heapq",
     "_collections", "_struct", "_string", "_sre", "_abc", "_typing", "_statistics", "binascii", "unicodedata", "zlib")
)  # fmt: skip
#: Types whose methods use the object alone. Its content is compared by a guard, or it was made in the call.
_PURE_OWNERS: tuple[type[Any], ...] = (
    list, dict, set, frozenset, tuple, str, bytes, bytearray, int, float, complex, range, slice, memoryview, property,
    BaseException, types.MappingProxyType, types.GeneratorType, types.FunctionType, np.ndarray, np.generic, np.dtype,
    np.ufunc, type({}.keys()), type({}.values()), type({}.items()), type(sys.flags), types.GenericAlias,
)  # fmt: skip
_PURE_OWNER_MODULES = ("collections", "itertools", "re", "functools", "types", "decimal", "datetime", "_contextvars")
_IMPURE_METHODS = frozenset(
    ("now", "today", "utcnow", "__subclasses__", "set", "reset", "cache_clear", "run", "tofile", "dump", "fromfile")
)


class _Trusted(dict[str, bool]):
    """Whether the Python code of a source file is known to depend only on its arguments, per file name."""

    def __missing__(self, filename: str) -> bool:
        self[filename] = answer = _is_trusted(filename)
        return answer


def _is_trusted(filename: str) -> bool:
    if filename.startswith("<frozen importlib"):
        return True
    if filename.startswith("<frozen "):
        filename = _LIBRARY + filename[len("<frozen ") : -1].replace(".", os.sep) + ".py"
    full = os.path.abspath(filename)
    if full.startswith(PACKAGE):
        return True
    if full.startswith(_NUMPY):
        rest = full[len(_NUMPY) :]
        return not any(part.removesuffix(".py") in _DISTRUSTED_NUMPY for part in rest.split(os.sep))
    if full.startswith(_LIBRARY) and not any(site in full for site in _SITE):
        return full[len(_LIBRARY) :].split(os.sep)[0] in _TRUSTED_LIBRARY
    return False


class _Library(dict[str, bool]):
    """Whether a source file is installed rather than the user's own, per file name."""

    def __missing__(self, filename: str) -> bool:
        full = os.path.abspath(filename)
        self[filename] = answer = (
            filename.startswith("<frozen")
            or full.startswith((_LIBRARY, PACKAGE))
            or any(site in full for site in _SITE)
        )
        return answer


TRUSTED = _Trusted()
LIBRARY = _Library()


@cache
def is_distrusted_here(filename: str) -> bool:
    """Whether a file of this package reads state outside the program: files, clocks, other programs."""
    return INTERNAL[filename] and os.path.abspath(filename)[len(PACKAGE) :].startswith(_DISTRUSTED_HERE)


Answer = TypeVar("Answer")


def per_class(ask: Callable[[type[Any]], Answer]) -> Callable[[type[Any]], Answer]:
    """Cache a function's result per class, for as long as the class lives."""
    held: weakref.WeakKeyDictionary[type[Any], Answer] = weakref.WeakKeyDictionary()

    def asked(kind: type[Any]) -> Answer:
        try:
            return held[kind]
        except (KeyError, TypeError):
            answer = ask(kind)
        with contextlib.suppress(TypeError):  # a class whose metaclass is not hashable
            held[kind] = answer
        return answer

    return asked


def is_a(value: Any, kinds: Any) -> bool:
    """Like isinstance, but check type(value) only: an object's `__class__` may claim another class."""
    answer: bool = issubclass(type(value), kinds)
    return answer


def module_of(kind: type[Any]) -> str:
    """Module name of a class; empty if `__module__` is no text, as for some classes written in C."""
    module = kind.__module__
    return module if isinstance(module, str) else ""


def reads_all(value: Any) -> bool:
    """Whether a value is a function that reads or writes attributes given by name, or all attributes."""
    if id(value) in _READERS:
        return True
    if is_a(value, (types.WrapperDescriptorType, types.MethodWrapperType)):
        return value.__name__ in READS_ALL
    if is_a(value, (types.BuiltinFunctionType, types.MethodDescriptorType)) and value.__name__ in FORMATS:
        text = getattr(value, "__self__", None)
        return not isinstance(text, str) or "." in text
    return False


def is_outside(function: Any) -> bool:
    """Whether a function written in C opens files or reads the system's state."""
    module = getattr(function, "__module__", None)
    return module in ("io", "_io", "posix", "nt", "time") and function.__name__ not in ("fspath", "text_encoding")


def is_pure(function: Any) -> bool:
    """Whether the result of a function or bound method written in C depends only on its arguments."""
    owner, name = getattr(function, "__self__", None), function.__name__
    if name in _IMPURE_METHODS:
        return False
    if owner is None or isinstance(owner, types.ModuleType):
        module = str(getattr(function, "__module__", None) or getattr(owner, "__name__", ""))
        if module == "builtins":
            return name in _PURE_BUILTINS
        return module in _PURE_MODULES or _is_numpys(module)
    kind = owner if isinstance(owner, type) else type(owner)
    if isinstance(owner, kind) and module_of(kind) == "_contextvars":
        return bool(name == "get")
    return bool(issubclass(kind, _PURE_OWNERS)) or _is_plain_type(kind) or module_of(kind) in _PURE_OWNER_MODULES


def _is_numpys(module: str) -> bool:
    return module.partition(".")[0] == "numpy" and not module.startswith("numpy.random")


@per_class
def _is_plain_type(kind: type[Any]) -> bool:
    """Whether objects of a class have no state hidden from Python."""
    return kind is object or kind is type or issubclass(kind, type) or has_plain_layout(kind)


#: Bases written in C whose contents a snapshot fetches.
_BASES: tuple[type[Any], ...] = (
    object, list, dict, set, frozenset, tuple, str, bytes, int, float, complex, bytearray, type, BaseException,
    types.SimpleNamespace, types.ModuleType,
)  # fmt: skip


@per_class
def has_plain_layout(kind: type[Any]) -> bool:
    """Whether a class adds to its built-in base only a `__dict__` and slots visible from Python."""
    from collections import OrderedDict, defaultdict, deque

    at: Any = kind
    while at not in _BASES and at not in (deque, OrderedDict, defaultdict, np.ndarray):
        base = at.__base__
        if base is None:
            return False
        held = at.__dict__
        shown = ("__dict__" in held) + ("__weakref__" in held)
        shown += sum(isinstance(each, types.MemberDescriptorType) for each in held.values())
        if at.__basicsize__ - base.__basicsize__ > 8 * shown or isinstance(
            held.get("__new__"), types.BuiltinFunctionType
        ):
            return False
        if base in (BaseException, Exception) or (isinstance(base, type) and issubclass(base, BaseException)):
            return True
        at = base
    return True

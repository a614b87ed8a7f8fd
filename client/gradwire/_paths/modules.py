"""Modules made of the tables: each name is found in its home, answered, or refused when it is used."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from gradwire._base.absent import absent
from gradwire._base.dtypes import ABSENT
from gradwire._base.refused import refused
from gradwire._paths.reexports import REEXPORTS
from gradwire._paths.refusals import ANSWERS, REASONS, REFUSED, VALUES

_PATHS = frozenset(
    parent
    for path in (*REEXPORTS, *ANSWERS, *REFUSED, *VALUES)
    for parent in (path.rsplit(".", cut)[0] for cut in range(path.count(".") + 1))
)


def is_path(path: str) -> bool:
    """Whether the tables have a module of that path, without the leading `torch.`."""
    return path in _PATHS


def submodules(path: str) -> set[str]:
    """Names of the modules directly below a path, "" for the root, that the tables have."""
    start = f"{path}." if path else ""
    return {each[len(start) :].partition(".")[0] for each in _PATHS if each.startswith(start)}


def attribute(path: str, name: str) -> Any:
    """What `torch.<path>.<name>` is: something of a home, an answer, a refused stand-in, or a submodule.

    Raises AttributeError if the tables have no such name.
    """
    for home in REEXPORTS.get(path, "").split():
        found = _of_home(home, name)
        if found is not None:
            return found
    if name in VALUES.get(path, {}):
        return VALUES[path][name]
    answers = ANSWERS.get(path, {})
    if name in answers:
        return _answering(name, answers[name])
    if name in REFUSED.get(path, "").split():
        return refused(f"{path}.{name}".lstrip("."), _reason(path))
    if f"{path}.{name}".lstrip(".") in _PATHS:
        return import_module(f"gradwire.{path}.{name}".replace("..", "."))
    raise AttributeError(f"module 'gradwire.{path}' has no attribute '{name}'", name=name)


def of_root(name: str) -> Any:
    """What `torch.<name>` is by the tables; None if they have no such name."""
    if name in ABSENT:
        return ABSENT[name]
    try:
        return attribute("", name)
    except AttributeError:
        return None


def _of_home(home: str, name: str) -> Any:
    """A name of a home of `REEXPORTS`; None if it has none. Modules' own imports do not count."""
    given, is_pair, there = home.partition("=")
    if is_pair:
        if given != name:
            return None
        module, _, name = there.rpartition(".")
        return getattr(import_module(f"gradwire.{module}"), name) if name else import_module("gradwire")
    module_path = "gradwire" if home == "." else f"gradwire.{home}"
    found = getattr(import_module(module_path), name, None)
    return None if isinstance(found, ModuleType) and f"{module_path}.{name}" not in sys.modules else found


def _reason(path: str) -> str:
    """Why the names of a path are refused: the reason of the longest prefix that has one."""
    while path not in REASONS:
        path = path.rpartition(".")[0]
    return REASONS[path]


def _answering(name: str, answer: Any) -> Any:
    def answering(*args: Any, **kwargs: Any) -> Any:
        return answer

    answering.__name__ = answering.__qualname__ = name
    return answering


class TableModule(ModuleType):
    """A module of PyTorch's without a file here. It is a package, so its submodules can be imported."""

    def __init__(self, path: str) -> None:
        super().__init__(f"gradwire.{path}", f"torch.{path}, made of gradwire's tables of PyTorch's module paths.")
        self.__path__: list[str] = []
        self.__dict__["_path"] = path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'", name=name)
        try:
            found = attribute(self.__dict__["_path"], name)
        except AttributeError:
            raise absent(self.__name__, name, lambda: dir(self)) from None
        self.__dict__[name] = found
        return found

    def __dir__(self) -> list[str]:
        path = self.__dict__["_path"]
        names = {*ANSWERS.get(path, ()), *VALUES.get(path, ()), *REFUSED.get(path, "").split(), *submodules(path)}
        for home in REEXPORTS.get(path, "").split():
            given, is_pair, _ = home.partition("=")
            module = None if is_pair or home == "." else import_module(f"gradwire.{home}")
            names |= {given} if module is None else set(getattr(module, "__all__", vars(module)))
        return sorted({name for name in names if name != "."} | set(self.__dict__))

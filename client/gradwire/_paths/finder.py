"""Finder of `gradwire.*` modules without a file: those of the tables, else an error that says what there is."""

from __future__ import annotations

import importlib.abc
import pkgutil
import sys
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

from gradwire._paths.modules import TableModule, is_path, submodules


class AbsentModuleError(ModuleNotFoundError):
    """A module of PyTorch's that gradwire lacks."""


class _Loader(importlib.abc.Loader):
    """Makes a module of the tables."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module that the tables describe."""
        return TableModule(spec.name.removeprefix("gradwire."))

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: names are found when they are used."""


_LOADER = _Loader()


def find(name: str) -> ModuleSpec | None:
    """Spec of the module `gradwire.…`. An import of a module that is missing raises `AbsentModuleError`."""
    if is_path(name.removeprefix("gradwire.")):
        return ModuleSpec(name, _LOADER, is_package=True)
    if is_import_statement():
        raise missing(name)
    return None


def missing(name: str) -> AbsentModuleError:
    """The error for an import of a missing module: it names the nearest one there is, and its submodules."""
    path = name.partition(".")[2]
    parent = path.rpartition(".")[0]
    while parent and f"gradwire.{parent}" not in sys.modules and not is_path(parent):
        parent = parent.rpartition(".")[0]
    shown = f"torch.{parent}" if parent else "torch"
    there = sorted(each for each in {*submodules(parent), *_files(parent)} if not each.startswith("_"))
    has = f"Modules of {shown} here: {', '.join(there)}." if there else f"{shown} has no submodules here."
    return AbsentModuleError(f"gradwire has no module 'torch.{path}'. {has}", name=name)


def _files(path: str) -> list[str]:
    """Submodules of a package of gradwire that are files."""
    package: Any = sys.modules.get(f"gradwire.{path}" if path else "gradwire")
    return [each.name for each in pkgutil.iter_modules(getattr(package, "__path__", ()))]


def is_import_statement() -> bool:
    """Whether the import system asks for a module to load it. `importlib.util.find_spec` only asks whether it exists.

    Called by a finder's `find_spec`: the import system's frames are below it, without source files.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_import_system(frame):
        frame = frame.f_back
    while frame is not None and _is_import_system(frame):
        if frame.f_code.co_name == "_find_and_load":
            return True
        frame = frame.f_back
    return False


def _is_import_system(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith("<frozen importlib._bootstrap")

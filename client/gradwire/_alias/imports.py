"""Alias: makes `torch` another name of gradwire, in this process and in the Python processes it starts."""

from __future__ import annotations

import importlib
import importlib.abc
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Folder with a sitecustomize module, which Python imports before a child's program starts.
_SITE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_site")


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder and loader that give gradwire's module for each name under `torch`."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Spec that loads gradwire's existing module; None if gradwire has no such module."""
        top, _, rest = fullname.partition(".")
        if top != "torch":
            return None
        ours = f"gradwire.{rest}" if rest else "gradwire"
        try:
            module = importlib.import_module(ours)
        except ModuleNotFoundError as missing:
            if missing.name is None or not (ours + ".").startswith(missing.name + "."):
                raise
            return None
        return ModuleSpec(fullname, self, loader_state=(module, module.__spec__))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return gradwire's module unchanged."""
        return spec.loader_state[0]  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec, which the import just replaced.

        Also alias its loaded submodules. Importing such a submodule separately would overwrite the parent's attribute
        of the same name: `autograd.gradcheck` is a function.
        """
        spec = module.__spec__
        assert spec is not None
        module.__spec__ = spec.loader_state[1]
        for name, loaded in tuple(sys.modules.items()):
            if name.startswith(f"{module.__name__}."):
                sys.modules.setdefault(f"torch{name.removeprefix('gradwire')}", loaded)


def alias_torch() -> None:
    """Make `import torch` and its submodules import gradwire's modules in this process."""
    sys.meta_path.insert(0, _Alias())


def alias_torch_in_children() -> None:
    """Make `import torch` import gradwire in the Python processes that this process starts.

    It sets environment variables, which multiprocessing's spawn and forkserver and subprocesses inherit. Python's
    options -E, -I and -S disable it.
    """
    os.environ["GRADWIRE_ALIAS_TORCH"] = "1"
    before = os.environ.get("PYTHONPATH", "")
    if _SITE not in before.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_SITE, before)))

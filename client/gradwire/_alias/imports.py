"""alias: makes `torch` another name of gradwire, in this process and in the Python processes it starts."""

from __future__ import annotations

import importlib
import importlib.abc
import os
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution
from types import ModuleType
from typing import Any

from gradwire._base.errors import GradwireRuntimeError

# Folder with a sitecustomize module, which Python imports before a child's program starts.
_SITE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_site")

# The old package that comes with PyTorch: PyTorch's own would import PyTorch's internals.
_FUNCTORCH = ("functorch", "functorch.experimental")


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder and loader that give gradwire's module for each name under `torch`."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Spec that loads gradwire's existing module.

        For a missing one an import statement raises ModuleNotFoundError, which says what there is;
        `importlib.util.find_spec` gets None.
        """
        top, _, rest = fullname.partition(".")
        if fullname in _FUNCTORCH:
            module = importlib.import_module("gradwire.func._functorch")
            return ModuleSpec(fullname, self, loader_state=(module, module.__spec__))
        if top != "torch":
            return None
        ours = f"gradwire.{rest}" if rest else "gradwire"
        try:
            module = importlib.import_module(ours)
        except ModuleNotFoundError as missing:
            if missing.name is None or not (ours + ".").startswith(missing.name + "."):
                raise
            finder = importlib.import_module("gradwire._paths.finder")
            if finder.is_import_statement():
                raise finder.missing(fullname) from None
            return None
        return ModuleSpec(fullname, self, loader_state=(module, module.__spec__))

    def find_distributions(self, context: Any) -> Iterable[Distribution]:
        """The distribution "torch", of which libraries ask the version."""
        if context.name is None or context.name.lower() == "torch":
            yield importlib.import_module("gradwire._alias.distribution").AliasedDistribution()

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
        if spec.name == "torch":
            # Libraries choose their backend by the name of the module of a tensor's class.
            importlib.import_module("gradwire._tensor.tensor").Tensor.__module__ = "torch"
        for name, loaded in tuple(sys.modules.items()):
            if name.startswith(f"{module.__name__}."):
                sys.modules.setdefault(f"torch{name.removeprefix('gradwire')}", loaded)
        if spec.name == "torch":
            module.__name__ = "torch"  # libraries compare it, and build paths of functions to replace with it


def alias() -> None:
    """Make `import torch` and its submodules import gradwire's modules in this process.

    `torch.__version__`, which is `gradwire.__version__` then, is the release of PyTorch that gradwire follows. Raises
    RuntimeError if PyTorch is imported already.
    """
    if any(isinstance(finder, _Alias) for finder in sys.meta_path):
        return
    gradwire = importlib.import_module("gradwire")
    if sys.modules.get("torch", gradwire) is not gradwire:
        raise GradwireRuntimeError("PyTorch is imported already: call gradwire.alias() before anything imports torch")
    sys.meta_path.insert(0, _Alias())
    version = importlib.import_module("gradwire.torch_version").__version__
    gradwire.__version__ = importlib.import_module("gradwire.version").__version__ = version  # type: ignore[attr-defined]


def alias_in_children() -> None:
    """Make `import torch` import gradwire in the Python processes that this process starts.

    It sets environment variables, which multiprocessing's spawn and forkserver and subprocesses inherit. Python's
    options -E, -I and -S disable it.
    """
    os.environ["GRADWIRE_ALIAS_TORCH"] = "1"
    before = os.environ.get("PYTHONPATH", "")
    if _SITE not in before.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_SITE, before)))

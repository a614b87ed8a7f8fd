"""`torch` as another name of gradwire: in this process, and in the Python processes that it starts."""

from __future__ import annotations

import importlib
import importlib.abc
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Python looks for a sitecustomize there before a child's program begins.
_SITE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_site")


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds gradwire's module for each name under `torch`."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """A spec whose module is the one that there is; None where there is no counterpart."""
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
        """The module as it is."""
        return spec.loader_state[0]  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        """Nothing but to give it its own spec back, which importing has just replaced.

        What is loaded below it is aliased with it: an import of its own would set the module over what its parent has
        of that name, as `autograd.gradcheck` is a function.
        """
        spec = module.__spec__
        assert spec is not None
        module.__spec__ = spec.loader_state[1]
        for name, loaded in tuple(sys.modules.items()):
            if name.startswith(f"{module.__name__}."):
                sys.modules.setdefault(f"torch{name.removeprefix('gradwire')}", loaded)


def alias_torch() -> None:
    """Let `import torch` and its submodules mean gradwire's in this process."""
    sys.meta_path.insert(0, _Alias())


def alias_torch_in_children() -> None:
    """Let it mean that too in the Python processes that this one starts, in whatever way.

    By the environment, which multiprocessing's spawn and forkserver and a subprocess inherit; not by -E, -I and -S.
    """
    os.environ["GRADWIRE_ALIAS_TORCH"] = "1"
    before = os.environ.get("PYTHONPATH", "")
    if _SITE not in before.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_SITE, before)))

"""SciPy's modules, loaded with their first use, without those parts of NumPy that SciPy only names.

SciPy says `from numpy import *`, which loads all packages of NumPy: f2py, polynomials, its tests' helpers. These take a
third of the time of the first decomposition or transform, and 8 MiB. They are put off until something uses them.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType

import numpy as np

# Masked arrays are not among them: SciPy asks whether an argument is one, and threads may do so at once.
_UNUSED = ("ctypeslib", "f2py", "polynomial", "testing")


def scipy_module(name: str) -> ModuleType:
    """The module of SciPy of this name ("linalg")."""
    if "scipy" not in sys.modules:
        for each in _UNUSED:
            _put_off(each)
    return importlib.import_module(f"scipy.{name}")


def _put_off(name: str) -> None:
    """Make a package of NumPy load when one of its attributes is first used, unless it is loaded."""
    full = f"numpy.{name}"
    spec = None if full in sys.modules else find_spec(full)
    if spec is None or spec.loader is None:
        return
    spec.loader = LazyLoader(spec.loader)
    module = sys.modules[full] = module_from_spec(spec)
    spec.loader.exec_module(module)
    setattr(np, name, module)  # as after an import

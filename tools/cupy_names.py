"""Writes tests/gpu/cupy_names.json: which functions CuPy has, and what parameters they take. Needs CuPy, but no GPU.

    pip install 'cupy-cuda12x[ctk]' && python tools/cupy_names.py

The stand-in for CuPy in tests/gpu offers nothing else, so that code which would fail on a GPU for calling what
CuPy lacks fails without one.
"""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from types import ModuleType
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "tests" / "gpu" / "cupy_names.json"
MODULES = (
    "cupy",
    "cupy.fft",
    "cupy.lib.stride_tricks",
    "cupy.linalg",
    "cupyx",
    "cupyx.scipy.fft",
    "cupyx.scipy.linalg",
    "cupyx.scipy.special",
)


def parameters(function: Any) -> list[str] | None:
    """The parameters' names; None where any are taken or no signature is known."""
    if type(function).__name__ == "ufunc":
        return ["out", "dtype", "casting"]
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    return None if any(each.kind is each.VAR_KEYWORD for each in found.values()) else list(found)


def names(module: ModuleType) -> dict[str, list[str] | None]:
    """A module's public functions."""
    public = [name for name in dir(module) if not name.startswith("_")]
    return {
        name: parameters(getattr(module, name))
        for name in public
        if callable(getattr(module, name)) and not isinstance(getattr(module, name), type)
    }


def main() -> None:
    """Write the file anew."""
    cupy = importlib.import_module("cupy")
    found: dict[str, Any] = {name: names(importlib.import_module(name)) for name in MODULES}
    found["ndarray"] = [name for name in dir(cupy.ndarray) if not name.startswith("_")]
    found["version"] = cupy.__version__
    TARGET.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

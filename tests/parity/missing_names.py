"""Missing names: PyTorch's public functions, methods and classes that gradwire lacks, by module.

`python -m tests.parity.missing_names` prints them; `--write` renews missing_names.json, with which a test compares.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

from gradwire._base.refused import RefusedClass

REPORT = Path(__file__).with_suffix(".json")
MODULES = (
    "torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.linalg",
    "torch.fft", "torch.special", "torch.optim", "torch.optim.lr_scheduler", "torch.autograd", "torch.autograd.graph",
    "torch.autograd.functional", "torch.func", "torch.utils.data", "torch.distributions",
)  # fmt: skip


def both(path: str) -> tuple[Any, Any]:
    """PyTorch's module or class of a path, and gradwire's."""
    if path == "torch.Tensor":
        return importlib.import_module("torch").Tensor, importlib.import_module("gradwire").Tensor
    return importlib.import_module(path), importlib.import_module(path.replace("torch", "gradwire", 1))


def missing(path: str) -> list[str]:
    """Public names of a module that gradwire lacks. Modules and what is imported from elsewhere do not count."""
    theirs, ours = both(path)
    return [name for name in dir(theirs) if _counts(theirs, name) and not _has(ours, name)]


def _counts(module: Any, name: str) -> bool:
    value = getattr(module, name, None)
    if name.startswith("_") or isinstance(value, ModuleType):
        return False
    home = getattr(value, "__module__", None) or "torch"
    return home.startswith("torch") if inspect.isclass(value) or inspect.isfunction(value) else True


def _has(module: Any, name: str) -> bool:
    return hasattr(module, name) and not isinstance(getattr(module, name), RefusedClass)


def report() -> dict[str, list[str]]:
    """The missing names of all modules."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {path: missing(path) for path in MODULES}


def main() -> None:
    """Print the report, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    found = report()
    if parser.parse_args().write:
        REPORT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return
    for path, names in found.items():
        print(f"{path}: {len(names)} missing\n  {' '.join(names)}")


if __name__ == "__main__":
    main()

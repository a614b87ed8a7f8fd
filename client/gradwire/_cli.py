"""The `gradwire` command: `gradwire run script.py` and `gradwire bench` here, others (serve) by entry points.

A program that says `import torch` runs unmodified: for its time `torch` and its submodules are gradwire's.
"""

from __future__ import annotations

import argparse
import importlib
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points

from gradwire._version import __version__

_GROUP = "gradwire.commands"
_MODULES = (
    "", "autograd", "autograd.anomaly_mode", "autograd.function", "autograd.functional", "autograd.grad_mode", "cuda",
    "fft", "linalg", "nn", "nn.functional", "nn.init", "nn.parameter", "nn.modules", "nn.utils", "optim",
    "optim.lr_scheduler", "special", "utils", "utils.checkpoint", "utils.hooks",
)  # fmt: skip


def alias_torch() -> None:
    """Let `import torch` and its submodules mean gradwire's in this process."""
    for name in _MODULES:
        ours = f"gradwire.{name}" if name else "gradwire"
        try:
            module = importlib.import_module(ours)
        except ModuleNotFoundError as missing:
            if missing.name != ours:
                raise
            continue
        sys.modules[f"torch.{name}" if name else "torch"] = module


def run(arguments: Sequence[str]) -> int:
    """Run a program with `torch` aliased."""
    parser = argparse.ArgumentParser(
        prog="gradwire run", description="Run a Python program in which `import torch` means gradwire."
    )
    parser.add_argument("--address", help="the server, host:port; else GRADWIRE_ADDRESS, else an embedded one")
    parser.add_argument("script", help="the program")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args(arguments)
    if options.address:
        os.environ["GRADWIRE_ADDRESS"] = options.address
    alias_torch()
    sys.argv = [options.script, *options.args]
    sys.path.insert(0, os.path.dirname(os.path.abspath(options.script)))
    runpy.run_path(options.script, run_name="__main__")
    return 0


def bench(arguments: Sequence[str]) -> int:
    """Measure a server. Loaded when it is asked for."""
    from gradwire import _bench

    return _bench.main(arguments)


_OURS: dict[str, Callable[[Sequence[str]], int]] = {"run": run, "bench": bench}


def _others() -> dict[str, EntryPoint]:
    return {found.name: found for found in entry_points(group=_GROUP)}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command's entry point; the answer is its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    others = _others()
    parser = argparse.ArgumentParser(prog="gradwire", description="Gradients over the wire.", add_help=False)
    parser.add_argument("-h", "--help", action="store_true", help="show this message")
    parser.add_argument("--version", action="version", version=f"gradwire {__version__}")
    parser.add_argument(
        "command", nargs="?", choices=[*_OURS, *sorted(others)], help="what to do; it has its own --help"
    )
    options = parser.parse_args(given[:1])
    if options.command is None or options.help:
        parser.print_help()
        return 0
    if options.command in _OURS:
        return _OURS[options.command](given[1:])
    command: Callable[[list[str]], int | None] = others[options.command].load()
    return command(given[1:]) or 0


if __name__ == "__main__":
    sys.exit(main())

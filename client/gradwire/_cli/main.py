"""The `gradwire` command: `gradwire run script.py`, `bench`, `top` and `sessions` here, others (serve) by entry points.

A program that says `import torch` runs unmodified: for its time `torch` and its submodules are gradwire's.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points

from gradwire._alias.imports import alias, alias_in_children
from gradwire._base.tracebacks import install
from gradwire._base.version import __version__

_GROUP = "gradwire.commands"


def run(arguments: Sequence[str]) -> int:
    """Run a program with `torch` aliased."""
    parser = argparse.ArgumentParser(
        prog="gradwire run", description="Run a Python program in which `import torch` means gradwire."
    )
    parser.add_argument("--address", help="the server, host:port; else GRADWIRE_ADDRESS, else an embedded one")
    parser.add_argument("--nproc", type=_ranks, default=0, help="start so many ranks of a distributed program")
    parser.add_argument(
        "--max-restarts", "--max_restarts", type=_count, default=0, metavar="N",
        help="start all ranks again after one of them failed, at most so many times",
    )  # fmt: skip
    parser.add_argument("script", help="the program")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args(arguments)
    if options.max_restarts and not options.nproc:
        parser.error("--max-restarts needs --nproc: it starts ranks again")
    if not os.path.exists(options.script):  # a folder or archive with a __main__.py runs too
        parser.error(f"there is no file {options.script}")
    if options.address:
        os.environ["GRADWIRE_ADDRESS"] = options.address
    if options.nproc:
        from gradwire._cli.launch import launch

        return launch(options.nproc, [options.script, *options.args], options.max_restarts)
    alias()
    alias_in_children()
    install()
    sys.argv = [options.script, *options.args]
    sys.path.insert(0, os.path.dirname(os.path.abspath(options.script)))
    runpy.run_path(options.script, run_name="__main__")
    return 0


def _ranks(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if not 0 < number <= 1024:
        raise argparse.ArgumentTypeError(f"{text!r} ranks; allowed: 1 to 1024")
    return number


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) > 1000:
        raise argparse.ArgumentTypeError(f"{text!r} restarts; allowed: 0 to 1000")
    return int(text)


def bench(arguments: Sequence[str]) -> int:
    """Measure a server. Loaded when it is asked for."""
    from gradwire._cli import bench as _bench

    return _bench.main(arguments)


def top(arguments: Sequence[str]) -> int:
    """Show who uses a server."""
    from gradwire._cli import top as _top

    return _top.main(arguments)


def sessions(arguments: Sequence[str]) -> int:
    """List the sessions of a server or cluster, or end one."""
    from gradwire._cli import sessions as _sessions

    return _sessions.main(arguments)


_OURS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "run": (run, "run a program in which `import torch` means gradwire"),
    "bench": (bench, "measure a server"),
    "top": (top, "show the sessions of a server or cluster, live"),
    "sessions": (sessions, "list the sessions of a server or cluster, or end one"),
}
# Help for gradwire's own commands among the entry points; other packages' commands are listed by name only.
_KNOWN = {
    "serve": "serve tensors and gradients over gRPC",
    "studio": "serve a running server to browsers",
    "token": "make a token for a server's users",
    "cluster": "run servers on several machines",
}


def _others() -> dict[str, EntryPoint]:
    return {found.name: found for found in entry_points(group=_GROUP)}


def _help(others: dict[str, EntryPoint]) -> str:
    """The commands, a line each."""
    descriptions = {name: what for name, (_, what) in _OURS.items()}
    descriptions |= {name: _KNOWN.get(name, "") for name in sorted(others)}
    width = max(map(len, descriptions))
    return "\n".join(f"  {name:{width}}  {what}".rstrip() for name, what in descriptions.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """The command's entry point; the answer is its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    others = _others()
    parser = argparse.ArgumentParser(
        prog="gradwire",
        description="Gradients over the wire: PyTorch's semantics, computed by a server.",
        epilog=f"commands, each with --help:\n{_help(others)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="store_true", help="show this message")
    parser.add_argument("--version", action="version", version=f"gradwire {__version__}")
    parser.add_argument(
        "command", nargs="?", choices=[*_OURS, *sorted(others)], metavar="COMMAND", help="what to do, of those below"
    )
    options = parser.parse_args(given[:1])
    if options.command is None or options.help:
        parser.print_help()
        return 0
    if options.command in _OURS:
        return _OURS[options.command][0](given[1:])
    command: Callable[[list[str]], int | None] = others[options.command].load()
    return command(given[1:]) or 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks`: the commands. Imports no NumPy before BLAS's environment is set."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

from gradwire_server.common import blas

if TYPE_CHECKING:
    from benchmarks.measure import Result

ONLY = "--only takes a part (torch, tcp, unary, sessions, neighbour, memory) or rows (W1, W2 eager, W3, RTT, W4)"
OUTPUT = Path("benchmarks/results")
Command = Callable[[argparse.Namespace], int]


def environment(threads: int) -> None:
    """As many threads for NumPy's BLAS as for PyTorch, and the kernels that the server would take."""
    os.environ.update(blas.wanted(threads))


def has_torch(threads: int) -> bool:
    """Whether PyTorch can be compared with; sets its threads."""
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed, and much is compared with it: pip install torch==2.13.0\n")
        return False
    import torch

    torch.set_num_threads(threads)
    return True


def compared(command: Command) -> Command:
    """Make a command that needs PyTorch fail without it, before it imports what it measures."""

    @wraps(command)
    def run(options: argparse.Namespace) -> int:
        return command(options) if has_torch(options.threads) else 1

    return run


def table(
    options: argparse.Namespace,
    results: Iterable[Result],
    nothing: str = "nothing was measured",
    summary: Callable[[list[Result]], str] | None = None,
) -> int:
    """Print each result when it is measured, then the summary, and save them in the command's file.

    Returns 1, with the message `nothing`, if there is no result.
    """
    from benchmarks import report

    about = report.surroundings()
    print(report.heading(about))
    print(report.header(), flush=True)
    measured = []
    for result in results:
        measured.append(result)
        print(report.row(result), flush=True)
    if not measured:
        print(nothing)
        return 1
    if summary is not None:
        print(f"\n{summary(measured)}")
    report.save(options.json or OUTPUT / f"{options.command}.json", measured, about)
    return 0


def suite(options: argparse.Namespace) -> int:
    """W1 to W4, round trips, sessions and memory: the default."""
    from benchmarks.suite import measure

    with_torch = has_torch(options.threads)
    if options.address:
        import gradwire

        gradwire.connect(options.address)
    results = measure(options.only, options.turns, with_torch)
    return table(options, results, f"there is no {options.only!r}; {ONLY}")


@compared
def ops(options: argparse.Namespace) -> int:
    """The table of ops."""
    from benchmarks.ops import measure, rows, summary
    from gradwire_engine.core.threads import POOL

    POOL.threads = options.threads
    results = (measure(*row, turns=options.turns) for row in rows(options.only))
    return table(options, results, f"no op's row contains {options.only!r}", summary)


@compared
def small(options: argparse.Namespace) -> int:
    """One small op and its backward, the engine in process."""
    from benchmarks.small import measure

    return table(options, measure(options.turns))


@compared
def varying(options: argparse.Namespace) -> int:
    """Loops whose indices, sizes and numbers vary, such as data sets and reinforcement learning."""
    from benchmarks.varying import measure

    return table(options, measure(options.only, options.turns), f"no loop's row contains {options.only!r}")


@compared
def derivatives(options: argparse.Namespace) -> int:
    """Steps of derivatives of derivatives and of batch norm: planned, step by step, PyTorch's; by CPU time."""
    from benchmarks.derivatives import measure

    return table(options, measure(options.turns))


@compared
def draws(options: argparse.Namespace) -> int:
    """Random numbers on the CPU with each algorithm, the engine in process beside PyTorch; by CPU time."""
    from benchmarks import report
    from benchmarks.draws import HEADER, measure

    print(report.heading(report.surroundings()))
    print(HEADER, flush=True)
    for row in measure(options.turns):
        print(row, flush=True)
    return 0


@compared
def convolutions(options: argparse.Namespace) -> int:
    """Convolutions with and without oneDNN, the engine in process beside PyTorch; by CPU time."""
    from benchmarks import report
    from benchmarks.convolutions import HEADER, measure
    from gradwire_engine.core.threads import POOL

    POOL.threads = options.threads
    print(report.heading(report.surroundings()))
    print(HEADER, flush=True)
    for row in measure(options.turns):
        print(row, flush=True)
    return 0


@compared
def models(options: argparse.Namespace) -> int:
    """Training steps of whole models: eager and compiled, beside PyTorch in process."""
    from benchmarks.models import measure, summary

    results = measure(options.only, options.turns, cpu=options.cpu, warm=options.warm)
    return table(options, results, f"no model's name contains {options.only!r}", summary)


def first_steps(options: argparse.Namespace) -> int:
    """The first steps of compiled models, with an empty kernel cache and with a full one; no PyTorch."""
    from benchmarks.first_steps import measure

    return table(options, measure(options.only, options.warm), f"no model's name contains {options.only!r}")


def tricks(options: argparse.Namespace) -> int:
    """What each trick saves: a workload with it and without it, by CPU time."""
    from benchmarks.tricks import measure

    results = measure(options.only, options.turns)
    return table(options, results, f"there is no {options.only!r}; --only takes engine or grpc")


def profile(options: argparse.Namespace) -> int:
    """Where a workload's time goes in the client and in the server, by py-spy."""
    from benchmarks import report
    from benchmarks.profile import main as take

    print(report.heading(report.surroundings()))
    take(options.workload, options.seconds)
    return 0


def setting(options: argparse.Namespace) -> int:
    """What a setting of the server costs, by CPU time: `setting --flag=--metrics=0`."""
    from benchmarks import report
    from benchmarks.setting import measure, told

    flags = options.flag or ["--metrics=0"]
    print(report.heading(report.surroundings()))
    print(told(flags, measure(flags, options.turns)))
    return 0


def web(options: argparse.Namespace) -> int:
    """The web gateway beside direct gRPC, or what watching costs a session; needs the extra [web] and httpx."""
    from benchmarks.web import measure, measure_watching

    return table(options, (measure_watching if options.watching else measure)(options.turns))


@compared
def gate(options: argparse.Namespace) -> int:
    """Compare ratios with the committed ones; fails where one has grown worse beyond tolerance."""
    from benchmarks import report
    from benchmarks.gate import COMMITTED, check, update

    print(report.heading(report.surroundings()))
    print(report.header(), flush=True)

    def show(result: Result) -> None:
        print(report.row(result), flush=True)

    if options.update:
        update(options.only, show)
        print(f"\nwritten to {COMMITTED}")
        return 0
    complaints, unknown = check(options.only, show)
    if unknown:
        print(f"\nnot judged, for {COMMITTED.name} does not have them (gate --update): {'; '.join(unknown)}")
    print("\n" + ("\n".join(complaints) or "no ratio has grown worse"))
    return bool(complaints)


def common(turns: int = 9, threads: int = 0) -> argparse.ArgumentParser:
    """The options that several commands have; one parser per command, since commands share a parent's defaults."""
    made = argparse.ArgumentParser(add_help=False)
    made.add_argument("--only", default="", help="only rows whose name contains this")
    made.add_argument("--turns", type=int, default=turns, help="pairs of turns per row")
    threads = threads or min(2, blas.cores())
    made.add_argument("--threads", type=int, default=threads, help="threads of PyTorch, BLAS and the engine")
    made.add_argument("--json", type=Path, help=f"where to write the results; else in {OUTPUT}")
    return made


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = made.add_subparsers(dest="command")
    made.epilog = ONLY
    added = commands.add_parser("suite", parents=[common()], help=suite.__doc__, epilog=ONLY)
    added.add_argument("--address", help="a server that is running; else the embedded one")
    added.set_defaults(run=suite)
    commands.add_parser("ops", parents=[common()], help=ops.__doc__).set_defaults(run=ops)
    commands.add_parser("small", parents=[common()], help=small.__doc__).set_defaults(run=small)
    commands.add_parser("varying", parents=[common()], help=varying.__doc__).set_defaults(run=varying)
    commands.add_parser("derivatives", parents=[common()], help=derivatives.__doc__).set_defaults(run=derivatives)
    commands.add_parser("draws", parents=[common()], help=draws.__doc__).set_defaults(run=draws)
    commands.add_parser("convolutions", parents=[common()], help=convolutions.__doc__).set_defaults(run=convolutions)
    added = commands.add_parser("models", parents=[common()], help=models.__doc__)
    added.add_argument("--cpu", action="store_true", help="CPU time of client and server instead of the wall clock")
    added.add_argument("--warm", type=float, default=10.0, help="seconds of compiled steps before the first turn")
    added.set_defaults(run=models)
    added = commands.add_parser("first-steps", parents=[common()], help=first_steps.__doc__)
    added.add_argument("--warm", type=float, default=12.0, help="seconds of steps after the first")
    added.set_defaults(run=first_steps)
    commands.add_parser("tricks", parents=[common(200, 1)], help=tricks.__doc__).set_defaults(run=tricks)
    added = commands.add_parser("web", parents=[common()], help=web.__doc__)
    added.add_argument("--watching", action="store_true", help="what Studio's page of a session costs that session")
    added.set_defaults(run=web)
    added = commands.add_parser("gate", help=gate.__doc__)
    added.add_argument("--only", default="", help="only the parts whose name contains this: ops, small, torch, tcp")
    added.add_argument("--update", action="store_true", help="commit to what is measured now")
    added.add_argument("--threads", type=int, default=1, help="threads of PyTorch, BLAS and the engine")
    added.set_defaults(run=gate)
    added = commands.add_parser("profile", help=profile.__doc__)
    added.add_argument("workload", choices=("W1", "W2", "W2c", "W3", "W3c", "RTT"), help="c is compiled")
    added.add_argument("--seconds", type=float, default=10.0, help="how long to sample")
    added.set_defaults(run=profile, threads=blas.cores())
    added = commands.add_parser("setting", help=setting.__doc__)
    added.add_argument("--flag", action="append", help="of `gradwire serve`, by default --metrics=0; may be repeated")
    added.add_argument("--turns", type=int, default=40, help="pairs of turns")
    added.set_defaults(run=setting, threads=1)
    return made


def main() -> int:
    """Run the command that was asked for."""
    given = sys.argv[1:]
    if not given or (given[0].startswith("--") and given[0] != "--help"):
        given = ["suite", *given]
    options = parser().parse_args(given)
    environment(options.threads)
    return int(options.run(options))


if __name__ == "__main__":
    raise SystemExit(main())

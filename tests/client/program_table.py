"""Runs the programs with PyTorch and with gradwire and prints a table: what they print, and what they cost.

`python -m tests.client.program_table` runs all, `--only TEXT` those whose path has the text. A program agrees if its
words are equal and its numbers differ by at most 0.1 %, or by 2 in the last printed digit. One thread computes on each
side. CPU time is that of client and server together. Imports are not counted. A program runs `--turns` times with each
library in turn, and its fastest runs are compared.

A machine may be quiet for minutes only. `--part 2/5` runs the second fifth of the programs. With `--rows FILE` the rows
are kept in a file, a JSON list on each line. `--part 0/1 --rows FILE` runs none, and prints the medians of all rows.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.client.program_runs import Ran, ran

FOLDER = Path(__file__).with_name("programs")
PROGRAMS = sorted(
    str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("*.py") if not path.stem.startswith("_")
)
_NUMBER = re.compile(r"(?<![\w.])([-+]?\d+\.\d*(?:e[-+]?\d+)?|[-+]?\d+e[-+]?\d+)", re.ASCII)
# Of programs in double precision: a norm at zero or a divergence doubles the last digits, or single precision occurs.
_TOLERANCES = {"autograd_tutorial": 1e-6, "architectures": 1e-7, "basics": 1e-6}


class Row(NamedTuple):
    """A program: whether it agrees, what stopped it or where it differs, and the ratios of elapsed and CPU time."""

    name: str
    verdict: str
    reason: str
    torch_cpu: float = math.nan
    elapsed: float = math.nan
    cpu: float = math.nan


def difference(name: str, expected: str, found: str) -> str | None:
    """The first line of a program that differs, or None. Programs in subfolders compute in single precision."""
    single = "/" in name
    tolerance = 1e-3 if single else _TOLERANCES.get(name, 1e-10)
    theirs, ours = (re.sub(r"0x[0-9a-f]+", "0x", each).splitlines() for each in (expected, found))
    for line, other in zip(theirs, ours, strict=False):
        one, two = _NUMBER.split(line), _NUMBER.split(other.replace("gradwire", "torch"))
        equal = [word.split() for word in one[::2]] == [word.split() for word in two[::2]]
        if not equal or not all(map(lambda a, b: _near(a, b, tolerance, single), one[1::2], two[1::2])):
            return f"{other[:200]!r} is not {line[:200]!r}"
    return None if len(theirs) == len(ours) else f"{len(ours)} lines instead of {len(theirs)}"


def _near(one: str, two: str, tolerance: float, single: bool) -> bool:
    """Whether numbers agree, relatively, or in single precision but for 2 in the last printed digit."""
    mantissa, _, exponent = one.partition("e")
    step = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return math.isclose(float(one), float(two), rel_tol=tolerance, abs_tol=2.01 * step if single else tolerance)


def _server_cpu(process: int) -> float:
    """CPU time of a process on Linux, its ended threads included, without its children (the compiler process)."""
    return time.clock_gettime((~process << 3) | 2)  # the id that clock_getcpuclockid(3) gives


def _with_gradwire(program: Path, address: str, process: int) -> Ran:
    before = _server_cpu(process)
    done = ran(program, "gradwire", address)
    return done._replace(cpu=done.cpu + _server_cpu(process) - before)


def row(name: str, address: str, process: int, turns: int) -> Row:
    """Run one program with both libraries."""
    program = FOLDER / f"{name}.py"
    theirs, ours = [], []
    for _ in range(turns):
        theirs.append(ran(program))
        ours.append(_with_gradwire(program, address, process))
        if theirs[-1].status or ours[-1].status:
            break
    if theirs[-1].status:
        return Row(name, "PyTorch stops", _last_line(theirs[-1].errors))
    if ours[-1].status:
        reason = "time limit" if ours[-1].status == -14 else _last_line(ours[-1].errors)
        return Row(name, "stopped", reason)
    found = difference(name, theirs[0].output, ours[0].output)
    best = [min(getattr(each, field) for each in side) for field in ("elapsed", "cpu") for side in (ours, theirs)]
    return Row(
        name,
        "equal" if found is None else "differs",
        (found or "")[:150],
        best[3],
        best[0] / best[1],
        best[2] / best[3],
    )


def _last_line(errors: str) -> str:
    return (errors.strip().splitlines() or ["no message"])[-1][:150]


def rows(chosen: list[str], turns: int) -> Iterator[Row]:
    """A row per program, all computed by one server."""
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    from gradwire._transport.embedded import EmbeddedServer

    server = EmbeddedServer()
    try:
        for program in chosen:
            yield row(program, server.address, server._process.pid, turns)
    finally:
        server.stop()


def _part(text: str) -> tuple[int, int]:
    """The number of a part, from 1, and of all parts."""
    number, _, parts = text.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and int(number) <= int(parts) and int(parts)):
        raise argparse.ArgumentTypeError(f"a part is given as 2/5, not {text!r}")
    return int(number), int(parts)


def summary(table: list[Row]) -> str:
    """Counts of the verdicts, and medians and quartiles of the ratios of the programs that ended on both sides."""
    counts = {verdict: sum(each.verdict == verdict for each in table) for verdict in ("equal", "differs", "stopped")}
    lines = [f"{len(table)} programs: " + ", ".join(f"{number} {verdict}" for verdict, number in counts.items())]
    ended = [each for each in table if each.verdict in ("equal", "differs")]
    for field, name in (("elapsed", "elapsed"), ("cpu", "CPU")) if len(ended) > 1 else ():
        lower, median, upper = statistics.quantiles([getattr(each, field) for each in ended], method="inclusive")
        lines.append(f"{name}: median {median:.2f} × PyTorch's, quartiles {lower:.2f} and {upper:.2f}")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="run programs whose name has this text; several with commas")
    parser.add_argument("--turns", type=int, default=1, help="runs with each library")
    parser.add_argument("--part", type=_part, default=(1, 1), help="a part of these programs, as 2/5")
    parser.add_argument("--rows", type=Path, help="a file to which the rows are added")
    options = parser.parse_args()
    number, parts = options.part
    chosen = [name for name in PROGRAMS if any(text in name for text in options.only.split(","))]
    chosen = chosen[number - 1 :: parts] if number else []
    print("| program | result | PyTorch's CPU s | elapsed × | CPU × | |\n| --- | --- | --- | --- | --- | --- |")
    table = []
    for each in rows(chosen, options.turns) if chosen else ():
        table.append(each)
        print(
            f"| {each.name} | {each.verdict} | {each.torch_cpu:.2f} | {each.elapsed:.2f} | {each.cpu:.2f} "
            f"| {each.reason.replace('|', '/')} |",
            flush=True,
        )
        if options.rows is not None:
            with options.rows.open("a") as file:
                file.write(json.dumps(each) + "\n")
    if options.rows is not None:
        table = list({name: Row(name, *rest) for name, *rest in map(json.loads, options.rows.open())}.values())
    print("\n" + summary(table))


if __name__ == "__main__":
    main()

"""Steps, large values and memory by language, in one run against one server over TCP.

    python -m benchmarks.languages [--measure steps bulk memory] [--turns 7] [--only Go Rust] [--local-stream]

Every language has a program that gets the server's address as its argument. It reads lines "mode count". It answers
each with a line: the seconds that the work took, without its preparation. It ends with its input. Python's is in
python_side.py. The sides take turns. A language without its toolchain is left out.

| mode | count | work |
| --- | --- | --- |
| unary | steps | steps of W2, each by over 20 single calls of the generated stub |
| stream | steps | steps of W2 by lazy tensors; then read the last loss |
| program | steps | steps of W2, each a run of a traced program; then read the last loss |
| repeated | steps | one run that repeats the program; then read the last loss |
| upload | MiB | make a float32 tensor from an array by the SDK, and wait until the server has made it |
| bare-upload | MiB | send as many bytes by the stub's `Upload`, in chunks of limits.chunk_bytes |
| download | MiB | read a float32 tensor into an array by the SDK |
| bare-download | MiB | receive as many bytes by the stub's `Download`; TypeScript and Java fill an array |
| memory | steps | steps like those of `stream`, with sizes 8-8-4 and a batch of 4 |
| live | 0 | collect garbage; the answer is the bytes that live, of TypeScript and Java |

W2 is the network 64-256-10 with a batch of 128. A session of the bare stub asks for a lease of an hour. Only the
stub's call counts in the bare modes: `Read` comes before it, and `Create` and `Release` after it. An SDK's large values
may take 1.5 times the bare call. The memory of a side after 100,000 steps may exceed that after 10,000 by 5 % and
2 MiB: the live memory of TypeScript and Java, the resident memory of the others. So may the resident memory of the
server with its workers. Otherwise the exit status is 1. The resident memory of TypeScript and Java depends on when
their runtimes collect garbage.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import hear, process, tell

ROOT = Path(__file__).resolve().parents[1]
MODES = {"unary": 5, "stream": 40, "program": 80, "repeated": 80}  # and the steps of a turn
DIRECTIONS, MIB, MOST_RATIO = ("upload", "download"), 64, 1.5
FEW, MANY = 10_000, 100_000  # steps after which the memory of a side is compared
GROWTH, GROWTH_BYTES = 0.05, 2 << 20
SERVE = ("-m", "gradwire_server", "--port=0", "--log-format=json", "--log-level=warning")

Sides = dict[str, subprocess.Popen[str]]


@dataclass(frozen=True)
class Language:
    """How a language's side is built and run. "{folder}" in a command is a place for what is built."""

    name: str
    tool: str
    path: str  # below client/
    build: tuple[str, ...]
    command: tuple[str, ...]
    has_live: bool = False  # whether it has the mode "live"

    @contextmanager
    def running(self, folder: str, address: str) -> Iterator[subprocess.Popen[str]]:
        """Build the side and start it. It answers a line of mode and steps with the seconds that they took."""
        place = ROOT / "client" / self.path
        build, command = ([word.format(folder=folder) for word in each] for each in (self.build, self.command))
        subprocess.run(build, cwd=place, check=True, stdout=subprocess.DEVNULL)
        started = subprocess.Popen(
            [*command, address], cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            yield started
        finally:
            started.communicate()


_NODE = ("node", "--expose-gc", "dist/bench/w2.js")
_JAVA = 'exec java -cp "target/test-classes:target/classes:$(cat {folder}/classpath)" io.github.gradwire.W2 "$0"'
_CPP = "cmake -S . -B build/release -DCMAKE_BUILD_TYPE=Release && cmake --build build/release --target gradwire_w2 -j 2"
LANGUAGES = (
    Language("Go", "go", "go", ("go", "build", "-o", "{folder}/w2", "./internal/w2"), ("{folder}/w2",)),
    Language("TypeScript", "node", "typescript", ("npm", "run", "build"), _NODE, has_live=True),
    Language(
        "Rust",
        "cargo",
        "rust",
        ("cargo", "build", "-q", "--release", "--example", "w2"),
        ("target/release/examples/w2",),
    ),
    Language(
        "Java",
        "mvn",
        "java",
        ("mvn", "-q", "-B", "test-compile", "dependency:build-classpath", "-Dmdep.outputFile={folder}/classpath"),
        ("sh", "-c", _JAVA),
        has_live=True,
    ),
    Language("C++", "grpc_cpp_plugin", "cpp", ("sh", "-c", _CPP), ("build/release/examples/gradwire_w2",)),
)


def answer(side: subprocess.Popen[str], mode: str, count: int) -> float:
    """The seconds that a side takes."""
    tell(side, f"{mode} {count}")
    return float(hear(side))


def resident(process_id: int) -> int:
    """Bytes of resident memory of a process, with its children: the server's sessions are in its workers."""
    children = Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()
    return sum(map(resident, map(int, children)), _own(process_id))


def _own(process_id: int) -> int:
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise SystemExit(f"process {process_id} has ended")


def table(head: str, sides: Sides, rows: dict[str, list[str]]) -> None:
    """Print a table with a column for each side."""
    print(f"| {head} | " + " | ".join(sides) + " |\n| --- |" + " --- |" * len(sides))
    for name, cells in rows.items():
        print(f"| {name} | " + " | ".join(cells) + " |")


def steps(sides: Sides, turns: int) -> None:
    """Measure steps of W2 by mode."""
    seconds: dict[tuple[str, str], list[float]] = {(side, mode): [] for side in sides for mode in MODES}
    for turn in range(-2, turns):  # two turns to warm up
        for mode, count in MODES.items():
            for side, each in sides.items():
                taken = answer(each, mode, count) / count
                if turn >= 0:
                    seconds[side, mode].append(taken)
    print(f"ms per step: median (at best) of {turns} turns")
    cells = {}
    for mode in MODES:
        taken_by = [seconds[side, mode] for side in sides]
        cells[mode] = [f"{statistics.median(took) * 1e3:.2f} ({min(took) * 1e3:.2f})" for took in taken_by]
    table("mode", sides, cells)


def bulk(sides: Sides, turns: int) -> list[str]:
    """Measure large values, by the SDK and by the bare call. Returns what takes too long."""
    wrong: list[str] = []
    cells: dict[str, list[str]] = {}
    for direction in DIRECTIONS:
        modes = (direction, f"bare-{direction}")
        names = (*modes, f"{direction}, ratio")
        cells.update((name, []) for name in names)
        for side, each in sides.items():
            taken = [[answer(each, mode, MIB) for mode in modes] for _ in range(turns + 2)][2:]
            ours, bare = (statistics.median(took) for took in zip(*taken, strict=True))
            for name, cell in zip(names, (f"{ours * 1e3:.0f}", f"{bare * 1e3:.0f}", f"{ours / bare:.2f}"), strict=True):
                cells[name].append(cell)
            if ours / bare > MOST_RATIO:
                wrong.append(f"{side}: {direction} takes {ours / bare:.2f} times the bare call")
    print(f"ms for {MIB} MiB: median of {turns} turns")
    table("large values", sides, cells)
    return wrong


def _mebibytes(sizes: list[int]) -> list[str]:
    return [f"{size / 2**20:.1f}" for size in sizes]


def memory(sides: Sides, server: int) -> list[str]:
    """Measure the memory of sides after a few and many steps, and how much the server's grew. Returns what grows."""
    wrong: list[str] = []
    heads = [f"{kind}, after {count:,} steps" for kind in ("resident", "live", "server") for count in (FEW, MANY)]
    rows: dict[str, list[str]] = {head: [] for head in heads}
    living = {language.name for language in LANGUAGES if language.has_live}
    for side, each in sides.items():
        sizes, servers, lives = [], [], []
        for count in (FEW, MANY - FEW):
            answer(each, "memory", count)
            sizes.append(resident(each.pid))
            servers.append(resident(server))
            if side in living:
                lives.append(int(answer(each, "live", 0)))
        cells = [*_mebibytes(sizes), *(_mebibytes(lives) or ["-", "-"]), *_mebibytes(servers)]
        for row, cell in zip(rows.values(), cells, strict=True):
            row.append(cell)
        for name, (few, many) in ((side, lives or sizes), (f"the server of {side}", servers)):
            if many > few * (1 + GROWTH) + GROWTH_BYTES:
                wrong.append(f"{name}: its memory grew from {few / 2**20:.1f} to {many / 2**20:.1f} MiB")
    print("MiB of memory")
    table("memory", sides, rows)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = ("steps", "bulk", "memory")
    parser.add_argument("--measure", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--only", nargs="+", metavar="LANGUAGE", help="languages beside Python")
    parser.add_argument("--local-stream", action="store_true", help="let streams use the server's Unix socket")
    given = parser.parse_args()
    os.environ["GRADWIRE_LOCAL_STREAM"] = "1" if given.local_stream else "0"
    os.environ["GRADWIRE_SHARED_MEMORY"] = "0"  # other languages send bytes only
    wrong = []
    with ExitStack() as stack:
        server = stack.enter_context(process(*SERVE, own_threads=True))
        address = json.loads(hear(server))["address"]
        sides = {"Python": stack.enter_context(process("-m", "benchmarks.python_side", address))}
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for language in LANGUAGES:
            if shutil.which(language.tool) and (not given.only or language.name in given.only):
                sides[language.name] = stack.enter_context(language.running(folder, address))
        print(f"load {os.getloadavg()[0]:.1f}")
        if "steps" in given.measure:
            steps(sides, given.turns)
        if "bulk" in given.measure:
            wrong += bulk(sides, given.turns)
        if "memory" in given.measure:
            wrong += memory(sides, server.pid)
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()

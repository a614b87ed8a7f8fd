"""Where a workload's time goes, by sampling its processes while it runs: `python -m benchmarks profile W1`.

py-spy notes so many times a second which function holds the interpreter lock, in the client and in the server. Samples
are counted twice: by that function, and by layer, the innermost of LAYERS on its stack, so that NumPy called by a
formula counts as the engine's. What a process computes without the lock (matrix products, gRPC's own threads) is the
rest of its processor time, which is given beside.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.processes import pipe
from gradwire._cli.workloads import LARGE, SMALL, Run, chain, round_trip, training

RATE = 500
# A frame of py-spy is "function (path:line)"; the first layer whose pattern is found in the path has it.
LAYERS = {
    "engine: backward": r"gradwire_engine/(backward|graph)\.py",
    "engine: ops": r"gradwire_engine/",
    "server: decode, bind, answer": r"gradwire_server/(batch|arguments|commands|wire|payload|specs|session)\.py",
    "server: front and hand-over": r"gradwire_server/",
    "client: proxies and calls": r"gradwire/(_tensor|_operators|_call|_ops|_memo|_arguments|_place|_ghost)\.py",
    "client: session and wire": r"gradwire/_",
    "the workload itself": r"(benchmarks|_workloads)",
    "gRPC": r"(grpc/|cygrpc)",
    "asyncio": r"asyncio/",
}
WORKLOADS: dict[str, Callable[[Any], Run]] = {
    "W1": chain,
    "W2": lambda t: training(t, 128, SMALL, 50),
    "W2c": lambda t: training(t, 128, SMALL, 50, compiled=True),
    "W3": lambda t: training(t, 512, LARGE, 5),
    "W3c": lambda t: training(t, 512, LARGE, 5, compiled=True),
    "RTT": round_trip,
}


def layer(stack: list[str]) -> str:
    """The layer of the innermost frame that belongs to one."""
    for frame in reversed(stack):
        for name, pattern in LAYERS.items():
            if re.search(pattern, frame):
                return name
    return "elsewhere"


def read(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Samples by layer and by function, of py-spy's collapsed stacks."""
    layers: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        layers[layer(frames)] += int(count)
        functions[re.sub(r":\d+\)$", ")", frames[-1])] += int(count)
    return layers, functions


def record(pid: int, seconds: float, output: Path) -> subprocess.Popen[str]:
    """Start sampling a process."""
    found = shutil.which("py-spy", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if found is None:
        raise SystemExit("py-spy is not installed: pip install py-spy")
    command = [found, "record", "--nonblocking", "--gil", "--full-filenames", f"--rate={RATE}"]
    command += [f"--duration={seconds:g}", "--format=raw", f"--output={output}", f"--pid={pid}"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def table(title: str, counts: Counter[str], runs: int, most: int) -> str:
    """The largest counts as milliseconds of one run and as shares."""
    total = sum(counts.values())
    lines = [f"{title}: {total / RATE / runs * 1e3:.2f} ms a run"]
    for name, count in counts.most_common(most):
        lines.append(f"  {count / RATE / runs * 1e3:9.3f} ms {count / total:6.1%}  {name}")
    return "\n".join(lines)


def processor_seconds(pid: int) -> float:
    """Processor time that a process has taken."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def main(workload: str, seconds: float) -> None:
    """Run a workload against an embedded server for so long, and print where both processes were."""
    import gradwire

    run = WORKLOADS[workload](gradwire)
    for _ in range(3):
        run()
    pids = {"client": os.getpid(), "server": int(gradwire.current_session()._embedded._process.pid)}
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / name for name in pids}
        recordings = [record(pids[name], seconds, path) for name, path in paths.items()]
        ended = threading.Thread(target=lambda: [each.wait() for each in recordings])
        ended.start()
        before = {name: processor_seconds(pid) for name, pid in pids.items()}
        start, count = time.perf_counter(), 0
        while ended.is_alive():
            run()
            count += 1
        elapsed = time.perf_counter() - start
        taken = {name: (processor_seconds(pid) - before[name]) / count for name, pid in pids.items()}
        for each in recordings:
            if each.returncode != 0:
                raise SystemExit(f"py-spy: {pipe(each.stderr).read().strip()}")
        print(f"{workload}: {count} runs while sampled, {elapsed / count * 1e3:.2f} ms each\n")
        for name, path in paths.items():
            # py-spy samples for `seconds`, within the time that the runs took
            layers, functions = read(path)
            runs = max(1, round(count * seconds / elapsed))
            print(f"{name}: {taken[name] * 1e3:.2f} ms of processor time a run")
            print(table("with the interpreter lock, by layer", layers, runs, 12))
            print(table("with the interpreter lock, by function", functions, runs, 15), end="\n\n")

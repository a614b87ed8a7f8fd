"""Where a workload's time goes, by sampling its processes while it runs: `python -m benchmarks profile W1`.

py-spy samples RATE times a second which function holds the interpreter lock, in the client and in the server. Each
sample is counted twice: by function, and by layer (`layer`), so NumPy called by a formula counts as the engine's. The
rest of a process's processor time is work without the lock: matrix products, and gRPC's own threads.
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
# A frame of py-spy is "function (path:line)". Layers that are no package of gradwire, by a pattern of the path.
# The workload's own frames come first: its file is part of the client's package.
LAYERS = {
    "the workload itself": r"(/benchmarks/|gradwire/_cli/workloads\.py)",
    "gRPC": r"(/grpc/|cygrpc)",
    "asyncio": r"/asyncio/",
}
PACKAGE = re.compile(r".*/gradwire(_engine|_server)?/(?:(\w+)/)?(?:\w+/)*\w+\.py")
WORKLOADS: dict[str, Callable[[Any], Run]] = {
    "W1": chain,
    "W2": lambda t: training(t, 128, SMALL, 50),
    "W2c": lambda t: training(t, 128, SMALL, 50, compiled=True),
    "W3": lambda t: training(t, 512, LARGE, 5),
    "W3c": lambda t: training(t, 512, LARGE, 5, compiled=True),
    "RTT": round_trip,
}


def layer(stack: list[str]) -> str:
    """The layer of the innermost frame that belongs to one: a package of the engine, server or client, or of LAYERS."""
    for frame in reversed(stack):
        for name, pattern in LAYERS.items():
            if re.search(pattern, frame):
                return name
        found = PACKAGE.search(frame)
        if found is not None:
            product, package = found.groups()
            return f"{(product or '_client')[1:]}: {package or 'top level'}"
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

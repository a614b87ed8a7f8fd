"""Where a workload's time goes, by sampling its processes while it runs: `python -m benchmarks profile W1`.

py-spy stops the client and the server so many times a second and notes the stacks of the threads that run. Samples are
counted twice: by the function that runs (self), and by the layer, which is the innermost of the packages in LAYERS
on the stack, so that NumPy called by a formula counts as the engine's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.processes import pipe
from gradwire._workloads import LARGE, SMALL, Run, chain, round_trip, training

RATE = 250
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
    command = [found, "record", "--full-filenames", f"--rate={RATE}"]
    command += [f"--duration={seconds:g}", "--format=raw", f"--output={output}", f"--pid={pid}"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def table(title: str, counts: Counter[str], seconds: float, runs: int, most: int) -> str:
    """The largest counts as milliseconds of one run and as shares."""
    total = sum(counts.values())
    lines = [f"{title}: busy {total / RATE / seconds:.0%} of the time, {total / RATE / runs * 1e3:.2f} ms a run"]
    for name, count in counts.most_common(most):
        lines.append(f"  {count / RATE / runs * 1e3:9.3f} ms {count / total:6.1%}  {name}")
    return "\n".join(lines)


def main(workload: str, seconds: float) -> None:
    """Run a workload against an embedded server for so long, and print where both processes were."""
    import gradwire

    run = WORKLOADS[workload](gradwire)
    session = gradwire.current_session()
    for _ in range(3):
        run()
    server: int = session._embedded._process.pid
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / name for name in ("client", "server")}
        pids = {"client": os.getpid(), "server": server}
        recordings = [record(pids[name], seconds, path) for name, path in paths.items()]
        watchers = [threading.Thread(target=each.wait) for each in recordings]
        for watcher in watchers:
            watcher.start()
        while any(watcher.is_alive() for watcher in watchers):
            run()
            count += 1
        for each in recordings:
            if each.returncode != 0:
                raise SystemExit(f"py-spy: {pipe(each.stderr).read().strip()}")
        print(f"{workload}: {count} runs in about {seconds:g} s, {seconds / count * 1e3:.2f} ms each, sampled\n")
        for name, path in paths.items():
            layers, functions = read(path)
            print(table(f"{name}, by layer", layers, seconds, count, 12))
            print(table(f"{name}, by function", functions, seconds, count, 15), end="\n\n")

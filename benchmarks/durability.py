"""What storing sessions costs: `python -m benchmarks.durability`.

A snapshot's rate against that of a plain file of the same bytes, written and flushed in the same folder; and training
steps with a state directory and with a log against those of a server that stores nothing. Ratios of interleaved turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

import gradwire
from gradwire._cli.workloads import SMALL, training

_MODES = {"nothing stored": (), "state directory": ("--snapshot-every=0",), "log": ("--durability=log",)}


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator[str]:
    """A server with one worker; its address."""
    command = [sys.executable, "-m", "gradwire_server", "--port=0", "--workers=1", "--log-format=json", *flags]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True, cwd=folder
    ) as process:
        assert process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline())["address"])
        finally:
            process.terminate()


def seconds(run: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def snapshots(root: Path, megabytes: int, turns: int) -> None:
    """A session of so many megabytes in ten tensors, stored, against a plain file."""
    with serving(root, f"--state-dir={root / 'state'}", "--snapshot-every=0") as address:
        session = gradwire.connect(address)
        tensors = [gradwire.rand(megabytes * (1 << 20) // 40) for _ in range(10)]
        session.sync()
        raw = np.random.default_rng(0).bytes(megabytes << 20)

        def plain() -> None:
            with (root / "plain").open("wb", buffering=0) as file:
                for start in range(0, len(raw), 1 << 20):
                    file.write(raw[start : start + (1 << 20)])
                os.fsync(file.fileno())

        rates = [(megabytes / seconds(lambda: session.save("one")), megabytes / seconds(plain)) for _ in range(turns)]
        ratio = statistics.median(ours / theirs for ours, theirs in rates)
        ours, theirs = (statistics.median(each) for each in zip(*rates, strict=True))
        print(f"snapshot of {megabytes} MiB: {ours:.0f} MiB/s, plain file {theirs:.0f} MiB/s, ratio {ratio:.2f}")
        start = time.perf_counter()
        restored = gradwire.restore("one", address)
        restored.sync()
        print(f"restored at {megabytes / (time.perf_counter() - start):.0f} MiB/s")
        restored.close()
        del tensors
        session.close()


def steps(root: Path, turns: int, reads: int) -> None:
    """W2 steps, the loss read once in so many."""
    with ExitStack() as stack:
        runs = {}
        for name, flags in _MODES.items():
            place = () if name == "nothing stored" else (f"--state-dir={root / name.replace(' ', '-')}-{reads}",)
            address = stack.enter_context(serving(root, *place, *flags))
            session = gradwire.connect(address)
            stack.callback(session.close)
            with session:
                runs[name] = (session, training(gradwire, 128, SMALL, reads))
                runs[name][1]()
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(turns):
            for name, (session, run) in runs.items():
                with session:
                    times[name].append(seconds(lambda run=run: [run() for _ in range(20 // reads)]) / 20)
        base = times["nothing stored"]
        for name, each in times.items():
            ratio = statistics.median(ours / theirs for ours, theirs in zip(each, base, strict=True))
            print(
                f"W2 step, loss read every {reads}: {name}: {statistics.median(each) * 1e3:.2f} ms, ratio {ratio:.2f}"
            )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--megabytes", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        snapshots(Path(folder), options.megabytes, max(3, options.turns // 3))
        for reads in (20, 1):
            steps(Path(folder), options.turns, reads)


if __name__ == "__main__":
    main()

"""All figures of several ranks: collectives beside MPI and gloo, training as on one worker, lost ranks, divided steps.

    python -m benchmarks.distributed                      # takes about three minutes; MPI is OpenMPI, with mpirun
    python -m benchmarks.distributed --only collectives   # or some parts

Times are the least and the median in milliseconds. Gradwire, MPI and gloo take turns. Ranks that train are compared
after 50 steps: their weights with each other, bit for bit, and with those of one worker. The exit status is 1 if
something is not as it is to be.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

TURNS = 3
KILLS, RANKS = 5, 4
STEPS = 50
SIZES = (1, 2, 4)  # numbers of ranks
DTYPES = ("float32", "float64")
BATCH = 32
SECONDS = 120.0
MISSED: list[str] = []  # what is not as it is to be
_SCRIPT = os.path.abspath(__file__)
_COLLECTIVES = os.path.join(os.path.dirname(_SCRIPT), "collectives.py")
_RUN = (sys.executable, "-m", "gradwire", "run")


def output(*command: str, **variables: str) -> str:
    """What a program prints. Raises CalledProcessError with what it says about its failure."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        done.check_returncode()
    return done.stdout


# Ranks.


def training(dtype: Any, wraps: Any) -> tuple[Any, list[Any], Any, Any]:
    """A step of a network with Adam, its parameters, and the whole batch."""
    import gradwire
    from gradwire import nn

    gradwire.manual_seed(3)
    data, labels = gradwire.randn(BATCH, 16, dtype=dtype), gradwire.arange(BATCH) % 4
    model = wraps(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).to(dtype))
    optimizer = gradwire.optim.Adam(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, list(model.parameters()), data, labels


def told(parameters: list[Any]) -> dict[str, Any]:
    """The weights and their hash."""
    weights = [each.detach().numpy() for each in parameters]
    digest = hashlib.sha256(b"".join(each.tobytes() for each in weights)).hexdigest()
    return {"digest": digest, "weights": [value for each in weights for value in each.flatten().tolist()]}


def train() -> None:
    """Train as a rank of any number, each with its part of the batch; print the weights."""
    import gradwire
    from gradwire import distributed as dist
    from gradwire.nn.parallel import DistributedDataParallel

    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    part = slice(rank * (BATCH // size), (rank + 1) * (BATCH // size))
    found = {}
    for dtype in DTYPES:
        for how in ("eager", "compiled"):
            step, parameters, data, labels = training(getattr(gradwire, dtype), DistributedDataParallel)
            made: Any = gradwire.compile(step) if how == "compiled" else step
            x, y = data[part].clone(), labels[part].clone()
            for _ in range(STEPS):
                made(x, y)
            found[f"{how}, {dtype}"] = told(parameters)
            if how == "compiled":
                assert "as a plan" in made.describe()[1], made.describe()
    dist.destroy_process_group()
    print(json.dumps(found))


def divide() -> None:
    """Train by `compile(step, data_parallel=N)`; print the weights, and whether the workers' copies differ."""
    import gradwire
    from gradwire._transport.embedded import EmbeddedServer

    server = EmbeddedServer(max(SIZES))
    gradwire.connect(server.address)
    found = {}
    for dtype in DTYPES:
        for size in SIZES:
            step, parameters, x, y = training(getattr(gradwire, dtype), lambda model: model)
            divided: Any = gradwire.compile(step, data_parallel=size) if size > 1 else step
            for _ in range(STEPS):
                divided(x, y)
            found[f"{size} {dtype}"] = told(parameters)
            if size > 1:
                found[f"{size} {dtype}"]["differing"] = divided._workers.differing(parameters)
                divided.close()
    server.stop()
    print(json.dumps(found))


def wait() -> None:
    """Wait for rank 1, which does nothing; print when its loss is known."""
    import gradwire
    from gradwire import distributed as dist

    dist.init_process_group()
    value = gradwire.ones(3)
    dist.all_reduce(value)
    value.tolist()
    print("met", os.getpid(), flush=True)
    if dist.get_rank() == 1:
        time.sleep(SECONDS)
    try:
        dist.all_reduce(value)
        value.tolist()
    except dist.DistBackendError as error:
        print("told", time.time(), error.reason, flush=True)


# Figures.


def verdict(holds: bool, bound: str) -> str:
    """Tells whether something is as it is to be."""
    if not holds:
        MISSED.append(bound)
    return f"({bound}: {'yes' if holds else 'NO'})"


def collectives() -> None:
    """All-reduces and steps of gradwire, and those of the others that are installed."""
    ways = [("gradwire", (*_RUN, "--nproc", "2", _COLLECTIVES))]
    if shutil.which("mpirun"):
        mpirun = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2")
        ways.append(("MPI", (*mpirun, sys.executable, _COLLECTIVES, "--mpi")))
    else:
        print(f"no mpirun {verdict(False, 'MPI is compared')}")
    if importlib.util.find_spec("torch"):
        torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29531")
        ways.append(("gloo", (sys.executable, *torchrun, _COLLECTIVES, "--gloo")))
    medians: dict[str, dict[str, list[float]]] = {}
    for turn in range(TURNS):
        for name, command in ways:
            for line in output(*command).splitlines():
                what, _, figures = line.removeprefix("[rank0] ").rpartition(": ")
                if what:
                    print(f"{name}, turn {turn + 1}: {what}: {figures} ms", flush=True)
                    if "16 MiB" in what:
                        medians.setdefault(what, {}).setdefault(name, []).append(float(figures.split()[1]))
    for what, found in medians.items():
        for name in sorted(found.keys() - {"gradwire"}):
            ratios = [ours / theirs for ours, theirs in zip(found["gradwire"], found[name], strict=True)]
            bound = verdict(statistics.median(ratios) <= 1.5, "at most 1.5") if name == "MPI" else ""
            shown = ", ".join(f"{each:.2f}" for each in ratios)
            print(f"{what}, medians by {name}'s: {shown}; their median {statistics.median(ratios):.2f} {bound}")


def compared(weights: dict[str, Any], alone: dict[str, Any], equal: bool, what: str) -> None:
    """Print how far weights are from one worker's."""
    apart = max(abs(a - b) for a, b in zip(alone["weights"], weights["weights"], strict=True))
    bound = verdict(equal and apart <= 1e-6, "equal, and at most 1e-6")
    replicas = "equal bit for bit" if equal else "DIFFER"
    print(f"{what}: replicas {replicas}; weights differ from one worker's by at most {apart:.1e} {bound}", flush=True)


def trained() -> None:
    """The weights of 2 and 4 ranks beside those of one, and those of divided steps beside the undivided one's."""
    found: dict[int, list[Any]] = {}
    for size in SIZES:
        lines = output(*_RUN, "--nproc", str(size), _SCRIPT, "--train").splitlines()
        found[size] = [json.loads(line[line.index("{") :]) for line in lines if "{" in line]
        assert len(found[size]) == size
    for size in SIZES[1:]:
        for way, alone in found[1][0].items():
            equal = len({each[way]["digest"] for each in found[size]}) == 1
            compared(found[size][0][way], alone, equal, f"DDP of {size} ranks, {way}, {STEPS} steps")
    divided = json.loads(output(sys.executable, _SCRIPT, "--divide").splitlines()[-1])
    for dtype in DTYPES:
        for size in SIZES[1:]:
            one = divided[f"{size} {dtype}"]
            what = f"compile(data_parallel={size}), {dtype}, {STEPS} steps"
            compared(one, divided[f"1 {dtype}"], not one["differing"], what)


def divided_steps() -> None:
    """Times of divided steps."""
    print(output(sys.executable, "-m", "benchmarks.data_parallel"), end="", flush=True)


def losses() -> None:
    """Seconds until the last of three ranks knows that a fourth was killed."""
    from gradwire._transport.embedded import EmbeddedServer

    server = EmbeddedServer(2)
    heard = []
    for number in range(KILLS):
        shared = {"MASTER_ADDR": f"kill {number}", "WORLD_SIZE": str(RANKS), "GRADWIRE_ADDRESS": server.address}
        ranks = [
            subprocess.Popen(
                [*_RUN, _SCRIPT, "--wait"], env={**os.environ, **shared, "RANK": str(rank)}, stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(RANKS)
        ]  # fmt: skip
        numbers = [int(rank.stdout.readline().split()[1]) for rank in ranks if rank.stdout is not None]
        time.sleep(0.3)
        killed = time.time()
        os.kill(numbers[1], signal.SIGKILL)
        told = [ranks[rank].communicate(timeout=SECONDS)[0].split() for rank in range(RANKS) if rank != 1]
        ranks[1].communicate(timeout=SECONDS)
        assert all(each[2] == "GROUP_BROKEN" for each in told)
        heard.append(max(float(each[1]) for each in told) - killed)
    server.stop()
    shown = ", ".join(f"{each:.2f}" for each in heard)
    print(f"from a rank's SIGKILL until {RANKS - 1} others know: {shown} s {verdict(max(heard) <= 1, 'at most 1 s')}")


def main() -> int:
    """Print all figures; the exit status."""
    began = time.time()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
    parts: dict[str, Callable[[], None]] = {
        "training": trained, "losses": losses, "divided": divided_steps, "collectives": collectives
    }  # fmt: skip
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts), help="parts to measure")
    chosen = parser.parse_args().only
    for name, measure in parts.items():
        if name in chosen:
            measure()
    missed = ", ".join(MISSED) or "nothing"
    print(f"load {os.getloadavg()[0]:.1f}; took {time.time() - began:.0f} s; not as it is to be: {missed}")
    return bool(MISSED)


if __name__ == "__main__":
    if "--train" in sys.argv:
        train()
    elif "--divide" in sys.argv:
        divide()
    elif "--wait" in sys.argv:
        wait()
    else:
        raise SystemExit(main())

"""All figures of several ranks: collectives beside MPI and gloo, training as on one worker, lost ranks, divided steps.

    python -m benchmarks.distributed            # takes about three minutes; MPI needs mpirun and mpi4py

Times are the least and the median in milliseconds. Gradwire, MPI and gloo take turns. Ranks that train are compared
after 50 steps: their weights with each other, bit for bit, and with those of one worker.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

TURNS = 3
KILLS = 5
STEPS = 50
BATCH = 32
SECONDS = 120.0
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


def train(compiles: bool) -> None:
    """Train as a rank of any number, each with its part of the batch; print the weights."""
    import gradwire
    from gradwire import distributed as dist
    from gradwire import nn
    from gradwire.nn.parallel import DistributedDataParallel

    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    gradwire.manual_seed(3)
    data, labels = gradwire.randn(BATCH, 16, dtype=gradwire.float64), gradwire.arange(BATCH) % 4
    layers = [nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)]
    model = DistributedDataParallel(nn.Sequential(*layers).double())
    optimizer = gradwire.optim.Adam(model.parameters(), lr=0.01)
    part = slice(rank * (BATCH // size), (rank + 1) * (BATCH // size))
    x, y = data[part].clone(), labels[part].clone()

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    made: Any = gradwire.compile(step) if compiles else step
    for _ in range(STEPS):
        made(x, y)
    weights = [each.detach().numpy() for each in model.parameters()]
    digest = hashlib.sha256(b"".join(each.tobytes() for each in weights)).hexdigest()
    dist.destroy_process_group()
    print(json.dumps({"digest": digest, "weights": [value for each in weights for value in each.flatten().tolist()]}))


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


def collectives() -> None:
    """All-reduces and steps of gradwire, and those of the others that are installed."""
    ways = [("gradwire", (*_RUN, "--nproc", "2", _COLLECTIVES))]
    if shutil.which("mpirun") and importlib.util.find_spec("mpi4py"):
        mpirun = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2")
        ways.append(("MPI", (*mpirun, sys.executable, _COLLECTIVES, "--mpi")))
    if importlib.util.find_spec("torch"):
        torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29531")
        ways.append(("gloo", (sys.executable, *torchrun, _COLLECTIVES, "--gloo")))
    medians: dict[str, list[float]] = {}
    for turn in range(TURNS):
        for name, command in ways:
            for line in output(*command).splitlines():
                what, _, figures = line.removeprefix("[rank0] ").rpartition(": ")
                if what:
                    print(f"{name}, turn {turn + 1}: {what}: {figures} ms", flush=True)
                    if "16 MiB" in what:
                        medians.setdefault(name, []).append(float(figures.split()[1]))
    for name in medians.keys() - {"gradwire"}:
        pairs = zip(medians["gradwire"], medians[name], strict=True)
        ratios = ", ".join(f"{ours / theirs:.2f}" for ours, theirs in pairs)
        print(f"all-reduce of 16 MiB, median by {name}'s: {ratios}", flush=True)


def training() -> None:
    """The weights of 2 and 4 ranks beside those of one."""
    for compiles in (False, True):
        how = ["--train", *(["--compiled"] if compiles else [])]
        found: dict[int, list[Any]] = {}
        for size in (1, 2, 4):
            lines = output(*_RUN, "--nproc", str(size), _SCRIPT, *how).splitlines()
            found[size] = [json.loads(line[line.index("{") :]) for line in lines if "{" in line]
        alone = found[1][0]["weights"]
        for size in (2, 4):
            equal = len(found[size]) == size and len({each["digest"] for each in found[size]}) == 1
            scale = max(map(abs, alone))
            apart = max(abs(a - b) for a, b in zip(alone, found[size][0]["weights"], strict=True)) / scale
            print(
                f"DDP of {size} ranks, {'compiled' if compiles else 'eager'}, {STEPS} steps: replicas "
                f"{'equal bit for bit' if equal else 'DIFFER'}; weights differ from one worker's by {apart:.1e}",
                flush=True,
            )


def losses() -> None:
    """Seconds until the last of two ranks knows that a third was killed."""
    from gradwire._transport.embedded import EmbeddedServer

    server = EmbeddedServer(2)
    heard = []
    for number in range(KILLS):
        shared = {"MASTER_ADDR": f"kill {number}", "WORLD_SIZE": "3", "GRADWIRE_ADDRESS": server.address}
        ranks = [
            subprocess.Popen(
                [*_RUN, _SCRIPT, "--wait"], env={**os.environ, **shared, "RANK": str(rank)}, stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(3)
        ]  # fmt: skip
        numbers = [int(rank.stdout.readline().split()[1]) for rank in ranks if rank.stdout is not None]
        time.sleep(0.3)
        killed = time.time()
        os.kill(numbers[1], signal.SIGKILL)
        told = [ranks[rank].communicate(timeout=SECONDS)[0].split() for rank in (0, 2)]
        ranks[1].communicate(timeout=SECONDS)
        assert all(each[2] == "GROUP_BROKEN" for each in told)
        heard.append(max(float(each[1]) for each in told) - killed)
    server.stop()
    print(f"from a rank's SIGKILL until all others know: {', '.join(f'{each:.2f}' for each in heard)} s", flush=True)


def main() -> None:
    """Print all figures."""
    began = time.time()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
    training()
    losses()
    print(output(sys.executable, "-m", "benchmarks.data_parallel"), end="", flush=True)
    collectives()
    print(f"load {os.getloadavg()[0]:.1f}; took {time.time() - began:.0f} s")


if __name__ == "__main__":
    if "--train" in sys.argv:
        train("--compiled" in sys.argv)
    elif "--wait" in sys.argv:
        wait()
    else:
        main()

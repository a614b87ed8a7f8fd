"""Measure collectives between ranks, and the all-reduce of MPI and of PyTorch's gloo on the same machine.

    gradwire run --nproc 2 benchmarks/collectives.py
    mpirun -n 2 python benchmarks/collectives.py --mpi       # needs mpi4py
    torchrun --nproc-per-node 2 benchmarks/collectives.py --gloo

For ranks at several servers, set RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and GRADWIRE_ADDRESS for each of them.

Prints the least and the median time in milliseconds. Each all-reduce begins after a barrier. Ours ends when the client
has an answer; of 16 MiB it is the server's, for the client gets no values.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

FLOATS = 4 << 20  # 16 MiB


def report(name: str, repeat: int, prepare: Callable[[], Any], work: Callable[[], Any], prints: bool) -> None:
    """Time `work`, after `prepare`."""
    times = []
    for _ in range(repeat):
        prepare()
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1e3)
    times.sort()
    if prints:
        print(f"{name}: {times[0]:.2f} {times[repeat // 2]:.2f}", flush=True)


def by_mpi() -> None:
    """MPI's own figures."""
    import numpy as np
    from mpi4py import MPI  # type: ignore[import-not-found]

    world = MPI.COMM_WORLD
    given = np.ones(FLOATS, np.float32)
    taken = np.empty_like(given)
    report("MPI: all-reduce of 16 MiB", 25, world.Barrier, lambda: world.Allreduce(given, taken), world.rank == 0)


def by_gloo() -> None:
    """The figures of PyTorch's gloo."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    given = torch.ones(FLOATS)
    work = partial(dist.all_reduce, given, dist.ReduceOp.SUM)
    report("gloo: all-reduce of 16 MiB", 25, dist.barrier, work, dist.get_rank() == 0)
    dist.destroy_process_group()


def by_gradwire() -> None:
    """The figures of the ranks' server."""
    import gradwire
    from gradwire import distributed as dist
    from gradwire import nn
    from gradwire.nn.parallel import DistributedDataParallel

    dist.init_process_group()
    prints = dist.get_rank() == 0
    large, small = gradwire.ones(FLOATS), gradwire.ones(4)

    def summed(tensor: Any) -> None:
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        gradwire.sync()

    report("all-reduce of 16 MiB", 25, dist.barrier, lambda: summed(large), prints)
    report("all-reduce of 16 bytes", 50, dist.barrier, lambda: summed(small), prints)
    plain = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    data, labels = gradwire.randn(128, 64), gradwire.randint(0, 10, (128,))

    def train(model: Any, optimizer: Any) -> None:
        for _ in range(20):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data), labels).backward()
            optimizer.step()
        gradwire.sync()

    for name, model in (("without", plain), ("with", DistributedDataParallel(plain))):
        optimizer = gradwire.optim.SGD(model.parameters(), lr=0.01)
        train(model, optimizer)

        def twenty(model: Any = model, optimizer: Any = optimizer) -> None:
            train(model, optimizer)

        report(f"20 steps of a 64-256-10 MLP {name} DDP", 15, dist.barrier, twenty, prints)
    dist.destroy_process_group()


if __name__ == "__main__":
    (by_mpi if "--mpi" in sys.argv else by_gloo if "--gloo" in sys.argv else by_gradwire)()

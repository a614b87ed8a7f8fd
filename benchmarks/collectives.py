"""Measure collectives between ranks, and the all-reduce of MPI and of PyTorch's gloo on the same machine.

    gradwire run --nproc 2 benchmarks/collectives.py
    mpirun -n 2 python benchmarks/collectives.py --mpi       # OpenMPI
    torchrun --nproc-per-node 2 benchmarks/collectives.py --gloo

For ranks at several servers, set RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and GRADWIRE_ADDRESS for each of them.

Prints the least and the median time in milliseconds. An all-reduce begins after a barrier. Ours ends when the client
has an answer; of 16 MiB it is the server's, for the client gets no values. So one call alone has a round trip, and ten
in a row share it, as a training's do. Each call combines float32 in place, of ranks that began with other values. The
values are checked at the end.
"""

import ctypes
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

FLOATS = 4 << 20  # 16 MiB
ONE, IN_A_ROW = "all-reduce of 16 MiB", "all-reduces of 16 MiB in a row, each"
ROW = 10  # calls in a row
WARM, REPEAT = 20, 40  # calls that are not timed, and those that are


def report(
    name: str, repeat: int, prepare: Callable[[], Any], work: Callable[[], Any], prints: bool, calls: int = 1
) -> None:
    """Time `work`, after `prepare`; it makes some calls."""
    times = []
    for _ in range(WARM + repeat):
        prepare()
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1e3 / calls)
    times = sorted(times[WARM:])
    if prints:
        print(f"{name}: {times[0]:.2f} {times[repeat // 2]:.2f}", flush=True)


def expected(size: int) -> float:
    """Each value after all sums: of 1, 2, … at first, then of equal ones. Exact in float32 for two ranks."""
    return float(size * (size + 1) // 2 * size ** (WARM + REPEAT - 1))


def by_mpi() -> None:
    """MPI's own figures. OpenMPI's library is called directly."""
    import numpy as np

    mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)

    def constant(name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))

    def call(name: str, *arguments: Any) -> None:
        status = getattr(mpi, name)(*arguments)
        assert not status, f"{name} has failed: {status}"

    world, in_place = constant("ompi_mpi_comm_world"), ctypes.c_void_p(1)
    rank, size = ctypes.c_int(), ctypes.c_int()
    call("MPI_Init", None, None)
    call("MPI_Comm_rank", world, ctypes.byref(rank))
    call("MPI_Comm_size", world, ctypes.byref(size))
    values = np.full(FLOATS, rank.value + 1, np.float32)

    def reduced(operation: str) -> None:
        about = FLOATS, constant("ompi_mpi_float"), constant(f"ompi_mpi_op_{operation}"), world
        call("MPI_Allreduce", in_place, ctypes.c_void_p(values.ctypes.data), *about)

    def in_a_row() -> None:
        for _ in range(ROW):
            reduced("max")

    def barrier() -> None:
        call("MPI_Barrier", world)

    report(ONE, REPEAT, barrier, partial(reduced, "sum"), rank.value == 0)
    report(IN_A_ROW, REPEAT, barrier, in_a_row, rank.value == 0, ROW)
    assert (values == expected(size.value)).all(), values
    call("MPI_Finalize")


def by_gloo() -> None:
    """The figures of PyTorch's gloo."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    values = torch.full((FLOATS,), dist.get_rank() + 1.0)

    def in_a_row() -> None:
        for _ in range(ROW):
            dist.all_reduce(values, dist.ReduceOp.MAX)

    work = partial(dist.all_reduce, values, dist.ReduceOp.SUM)
    report(ONE, REPEAT, dist.barrier, work, dist.get_rank() == 0)
    report(IN_A_ROW, REPEAT, dist.barrier, in_a_row, dist.get_rank() == 0, ROW)
    assert bool((values == expected(dist.get_world_size())).all()), values
    dist.destroy_process_group()


def by_gradwire() -> None:
    """The figures of the ranks' server."""
    import gradwire
    from gradwire import distributed as dist
    from gradwire import nn
    from gradwire.nn.parallel import DistributedDataParallel

    dist.init_process_group()
    prints = dist.get_rank() == 0
    large, small = gradwire.full((FLOATS,), dist.get_rank() + 1.0), gradwire.zeros(4)

    def summed(tensor: Any) -> None:
        dist.all_reduce(tensor, dist.ReduceOp.SUM)
        gradwire.sync()

    def in_a_row() -> None:
        for _ in range(ROW):
            dist.all_reduce(large, dist.ReduceOp.MAX)
        gradwire.sync()

    report(ONE, REPEAT, dist.barrier, lambda: summed(large), prints)
    report(IN_A_ROW, REPEAT, dist.barrier, in_a_row, prints, ROW)
    assert (large == expected(dist.get_world_size())).all().item()
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

"""torch.distributed and DistributedDataParallel: the same programs on gradwire and on PyTorch's gloo give the same."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import gradwire
from gradwire import distributed as dist
from gradwire._transport.embedded import EmbeddedServer
from tests.ports import free_port

RANKS = Path(__file__).parent / "ranks"
SECONDS = 200
HEARD = 1.0  # seconds until all ranks hear of a lost one, of which 0.7 are the grace of its connection
KILLS = 5  # on a busy machine one of them may be late
SOON = 20.0  # long before a lease ends, or a call gives up


@pytest.fixture(scope="module")
def workers() -> Iterator[str]:
    """A server of two workers."""
    server = EmbeddedServer(2)
    yield server.address
    server.stop()


def clean(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GRADWIRE_", "RANK", "WORLD"))}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}


def launched(size: int, *arguments: str, address: str = "") -> tuple[int, str, str]:
    """Status and output of `gradwire run --nproc`."""
    command = [sys.executable, "-m", "gradwire", "run", "--nproc", str(size), *arguments]
    environment = clean(**({"GRADWIRE_ADDRESS": address} if address else {}))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.returncode, done.stdout, done.stderr


def results(text: str) -> list[Any]:
    found = [json.loads(line.partition("] ")[2]) for line in text.splitlines() if "] {" in line]
    return sorted(found, key=lambda each: each["rank"])


def by_gradwire(size: int, *arguments: str, address: str) -> list[Any]:
    status, out, err = launched(size, *arguments, address=address)
    assert status == 0, err
    return results(out)


@cache
def by_pytorch(size: int, *arguments: str) -> list[Any]:
    """The ranks' results with PyTorch and gloo."""
    pytest.importorskip("torch")
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size)}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(RANKS / "forked.py"), str(size), folder, *arguments]
        done = subprocess.run(
            command, env=clean(**shared), capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        said = [Path(folder, str(rank)).read_text("utf-8") for rank in range(size)]
    return sorted((json.loads(out.splitlines()[-1]) for out in said), key=lambda each: each["rank"])


def test_every_collective_is_as_gloos(workers: str) -> None:
    script = str(RANKS / "collectives.py")
    ours, theirs = by_gradwire(3, script, address=workers), by_pytorch(3, script)
    for mine, other in zip(ours, theirs, strict=True):
        for name, expected in other.items():
            assert mine[name] == expected, name
        assert set(mine) == set(other)


def test_large_tensors_are_reduced_again_and_again_with_pytorchs_bits(workers: str) -> None:
    script = str(RANKS / "repeated.py")
    ours, theirs = by_gradwire(2, script, address=workers), by_pytorch(2, script)
    assert ours == theirs


TRAINING = str(RANKS / "training.py")
LOSSES = ("losses", "modules", "unused", "static")
COMPILED = ("compiled/plain:50", "compiled/kept:50", "compiled/mixed:50", "compiled/sync:50")
AS_PYTORCH = ("accumulate:5", "unused:5", "buffers:5", *(f"losses/{way}:3" for way in LOSSES))
AS_ALONE = (
    "begin:50",
    "sampler:50",
    "sync:50",
    "compiled/accumulate:5",
)  # ranks of "begin" begin with other weights, and have those of rank 0


def of_way(ranks: list[Any], way: str) -> list[Any]:
    return [each["ways"][way] for each in ranks]


@pytest.fixture(scope="module")
def two_ranks(workers: str) -> list[Any]:
    """What two ranks of gradwire found in all ways."""
    return by_gradwire(2, TRAINING, *AS_PYTORCH, *AS_ALONE, address=workers)


@pytest.fixture(scope="module")
def one_rank(workers: str) -> list[Any]:
    return by_gradwire(1, TRAINING, "plain:50", "buffers:50", address=workers)


@pytest.mark.parametrize("way", ["accumulate", "compiled/accumulate", "unused", "buffers"])
def test_training_is_as_pytorchs_and_replicas_are_equal(two_ranks: list[Any], way: str) -> None:
    ours, theirs = of_way(two_ranks, way), of_way(by_pytorch(2, TRAINING, *AS_PYTORCH), way.removeprefix("compiled/"))
    for mine, other in zip(ours, theirs, strict=True):
        assert mine["weights"] == pytest.approx(other["weights"], rel=1e-9, abs=1e-9)
        assert mine["unset"] == other["unset"]
    if way != "buffers":  # whose running statistics are each rank's own after the last forward, as in PyTorch
        assert ours[0]["digest"] == ours[1]["digest"]


@pytest.mark.parametrize("way", LOSSES)
def test_gradients_of_several_losses_and_modules_are_averaged_as_by_pytorch(two_ranks: list[Any], way: str) -> None:
    pytorchs = by_pytorch(2, TRAINING, *AS_PYTORCH)
    ours, theirs = (of_way(each, f"losses/{way}") for each in (two_ranks, pytorchs))
    for mine, other in zip(ours, theirs, strict=True):
        for what in ("weights", "gradients"):
            assert mine[what] == pytest.approx(other[what], rel=1e-9, abs=1e-9)
        assert mine["unset"] == other["unset"]
    assert ours[0]["weights"] == ours[1]["weights"]


def check_weights(several: list[Any], alone: list[Any], of_one: str) -> None:
    """All ranks have the same weights, which are those of one worker's training `of_one`, if any."""
    assert len({each["digest"] for each in several}) == 1
    if of_one:
        assert several[0]["weights"] == pytest.approx(of_way(alone, of_one)[0]["weights"], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("way", "of_one"), [("begin", ""), ("sampler", "plain"), ("sync", "buffers")])
def test_ranks_give_the_weights_of_one_worker(two_ranks: list[Any], one_rank: list[Any], way: str, of_one: str) -> None:
    check_weights(of_way(two_ranks, way), one_rank, of_one)


def test_ranks_with_compiled_steps_give_the_weights_of_one_worker(workers: str, one_rank: list[Any]) -> None:
    """Also with batch normalization over all ranks; and if rank 0 runs step by step what others run as a plan."""
    several = by_gradwire(4, TRAINING, *COMPILED, address=workers)
    check_weights(of_way(several, "compiled/plain"), one_rank, "plain")
    check_weights(of_way(several, "compiled/kept"), one_rank, "plain")
    check_weights(of_way(several, "compiled/sync"), one_rank, "buffers")
    check_weights(of_way(several, "compiled/mixed"), one_rank, "")


def killed(ranks: "list[subprocess.Popen[str]]", kill: Callable[[list[int]], None]) -> list[str]:
    """Starts of `waiting.py`, of which rank 1 is lost as `kill` does, given the ranks' processes; what 0 and 2 say."""
    return lost(ranks, kill)[1]


def lost(ranks: "list[subprocess.Popen[str]]", kill: Callable[[list[int]], None]) -> tuple[float, list[str]]:
    """The same, and the seconds until the last of them was told."""
    try:
        numbers = []
        for rank in ranks:
            assert rank.stdout is not None
            met, number = rank.stdout.readline().split()
            assert met == "met"
            numbers.append(int(number))
        time.sleep(0.3)  # so that the others wait for it, as a rule
        began, said, seconds = time.time(), [], 0.0
        kill(numbers)
        for rank in (ranks[0], ranks[2]):
            word, when, reason, *message = rank.communicate(timeout=SECONDS)[0].split()
            assert (word, reason) == ("told", "GROUP_BROKEN")
            seconds = max(seconds, float(when) - began)
            assert seconds < SOON
            said.append(" ".join(message))
        return seconds, said
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate(timeout=SECONDS)


def test_a_killed_rank_tells_the_others_within_a_second(workers: str) -> None:
    measured = []
    while not measured or (measured[-1] >= HEARD and len(measured) < KILLS):
        shared = {"MASTER_ADDR": f"killed {len(measured)}", "WORLD_SIZE": "3", "GRADWIRE_ADDRESS": workers}
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "gradwire", "run", str(RANKS / "waiting.py")],
                env=clean(**shared, RANK=str(rank)), stdout=subprocess.PIPE, text=True,
            )
            for rank in range(3)
        ]  # fmt: skip
        seconds, said = lost(ranks, lambda numbers: os.kill(numbers[1], signal.SIGKILL))
        measured.append(seconds)
        for message in said:
            assert "rank 1 of group" in message and "no connection" in message
    assert measured[-1] < HEARD, measured


def test_the_first_failure_ends_all_ranks_and_is_the_status(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os, sys, time\nprint('begins')\nsys.exit(7) if os.environ['RANK'] == '1' else time.sleep(1000)\n"
    )
    status, out, err = launched(3, str(tmp_path / "script.py"))
    assert status == 7
    assert "rank 1 failed with exit status 7" in err
    assert {"[rank0] begins", "[rank1] begins"} <= set(out.splitlines()) | {"[rank0] begins"}


RESUMING = """
import os, signal, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
folder, kills = sys.argv[1], int(sys.argv[2])
dist.init_process_group()
rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(3, 2).double())
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
path, begin = folder + "/checkpoint", 0
if os.path.exists(path):
    state = torch.load(path)
    model.load_state_dict(state["model"]); optimizer.load_state_dict(state["optimizer"]); begin = state["step"]
print("begins at", begin, flush=True)
for step in range(begin, 6):
    if rank == 1 and attempt < kills and step == 2 + attempt * 2:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    model(torch.full((1, 3), rank + step + 1.0, dtype=torch.float64)).square().sum().backward()
    optimizer.step()
    if rank == 0 and step % 2 == 1:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, path)
    dist.barrier()
print("ends with", [value.hex() for each in model.parameters() for value in each.flatten().tolist()], flush=True)
"""


def test_ranks_that_start_again_continue_from_their_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(RESUMING)
    ends = []
    for kills in (0, 2):
        folder = tmp_path / str(kills)
        folder.mkdir()
        status, out, err = launched(2, "--max-restarts", "2", str(tmp_path / "script.py"), str(folder), str(kills))
        assert status == 0, err
        lines = sorted(out.splitlines())
        assert [each for each in lines if "begins" in each] == sorted(
            f"[rank{rank}] begins at {2 * attempt}" for rank in range(2) for attempt in range(kills + 1)
        )
        ends.append([each for each in lines if "ends with" in each])
        if kills:
            assert "rank 1 was ended by signal 9; all ranks are restarted; 1 left" in err
    assert len(ends[0]) == 2 and ends[0] == ends[1]


def test_ranks_start_again_a_limited_number_of_times(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import os; print(os.environ['GRADWIRE_RUN_ID'], flush=True); os._exit(9)\n")
    status, out, err = launched(1, "--max_restarts", "2", str(tmp_path / "script.py"))
    assert status == 9
    assert len(set(out.split())) == 4 and out.count("[rank0]") == 3  # each start has another name for its groups
    assert "rank 0 failed with exit status 9; the other ranks are ended" in err
    for given in (["--max-restarts", "-1"], ["--max-restarts", "x"]):
        assert launched(1, *given, str(tmp_path / "script.py"))[0] == 2
    command = [sys.executable, "-m", "gradwire", "run", "--max-restarts", "1", str(tmp_path / "script.py")]
    done = subprocess.run(command, env=clean(), capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 2 and "--max-restarts needs --nproc" in done.stderr


def test_children_of_a_failed_rank_are_ended(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os, subprocess\n"
        "print(subprocess.Popen(['sleep', '300'], stdout=subprocess.DEVNULL).pid, flush=True)\n"
        "os._exit(5)\n"
    )
    status, out, _ = launched(1, "--max-restarts", "1", str(tmp_path / "script.py"))
    assert status == 5
    children = [int(line.split()[1]) for line in out.splitlines()]
    assert len(children) == 2
    until = time.monotonic() + SECONDS
    while left := [each for each in children if is_alive(each)]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    """Whether a process runs. In a container, one that has ended may stay without a parent that notes it."""
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_spawned_processes_share_a_server(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import torch, torch.distributed as dist, torch.multiprocessing as mp\n"
        "def work(rank, size):\n"
        "    dist.init_process_group('nccl', init_method='tcp://127.0.0.1:1', rank=rank, world_size=size)\n"
        "    value = torch.tensor([rank + 1.0])\n"
        "    dist.all_reduce(value)\n"
        "    assert value.item() == 3, value\n"
        "    dist.destroy_process_group()\n"
        "if __name__ == '__main__':\n"
        "    mp.spawn(work, args=(2,), nprocs=2)\n"
        "    print('done')\n"
    )
    command = [sys.executable, "-m", "gradwire", "run", str(tmp_path / "script.py")]
    done = subprocess.run(command, env=clean(), capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_a_rank_without_a_common_server_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRADWIRE_ADDRESS", raising=False)
    code = (
        "import gradwire.distributed as d\n"
        "try: d.init_process_group('gloo', rank=0, world_size=2)\n"
        "except RuntimeError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=clean(), capture_output=True, text=True, timeout=SECONDS)
    assert "gradwire run --nproc 2" in done.stdout, done.stderr


@pytest.fixture
def alone(deferring: gradwire.Session) -> Iterator[None]:
    """A group of this process alone."""
    dist.init_process_group("gloo", rank=0, world_size=1)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def test_collectives_are_deferred_and_their_errors_come_late(alone: None, deferring: gradwire.Session) -> None:
    value = gradwire.ones(3)
    before = len(deferring.memo)
    for _ in range(3):
        dist.all_reduce(value, op=dist.ReduceOp.AVG)
    assert len(deferring.memo) == before + 1
    assert value.tolist() == [1, 1, 1]
    dist.group.WORLD.leave()
    with pytest.raises(dist.DistBackendError, match="in no group"):
        dist.all_reduce(gradwire.ones(2))


def test_an_object_that_only_pickle_could_send_is_refused(alone: None) -> None:
    held: list[Any] = [None]
    with pytest.raises(TypeError, match="nothing is pickled"):
        dist.all_gather_object(held, object())
    given = {"a": (1, 2.5, {3, 4}), 5: b"six", "t": gradwire.arange(3), "c": 1 + 2j}
    dist.all_gather_object(held, given)
    assert held[0]["a"] == given["a"] and held[0][5] == b"six" and held[0]["c"] == 1 + 2j
    assert held[0]["t"].tolist() == [0, 1, 2]
    for shape in ((), (2, 3), (0,)):
        dist.all_gather_object(held, gradwire.full(shape, 1.5, dtype=gradwire.bfloat16))
        assert held[0].dtype is gradwire.bfloat16 and held[0].shape == shape and bool((held[0] == 1.5).all())


def test_parameters_that_no_loss_uses_are_refused_at_the_next_forward(alone: None) -> None:
    model = gradwire.nn.Sequential(gradwire.nn.Linear(2, 2), gradwire.nn.Linear(2, 2))
    wrapped = gradwire.nn.parallel.DistributedDataParallel(model)
    wrapped(gradwire.ones(1, 2))
    model[0](gradwire.ones(1, 2)).sum().backward()
    with pytest.raises(RuntimeError, match=r"find_unused_parameters=True.*(\n.*)*1\.weight, 1\.bias"):
        wrapped(gradwire.ones(1, 2))
    with pytest.raises(RuntimeError, match="doesn't have any parameters that require a gradient"):
        gradwire.nn.parallel.DistributedDataParallel(gradwire.nn.ReLU())
    for use in (wrapped.join, lambda: wrapped.register_comm_hook(None, None)):
        with pytest.raises(NotImplementedError, match="gradwire does not support"):
            use()


def test_modules_are_averaged_in_the_order_in_which_all_ranks_made_them(
    alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One backward may reach several. In another order on each rank, gradients of one shape would be exchanged."""
    wrapped = [gradwire.nn.parallel.DistributedDataParallel(gradwire.nn.Linear(2, 2)) for _ in range(12)]
    averaged: list[Any] = []
    monkeypatch.setattr(type(wrapped[0]), "_average", lambda self, places: averaged.append(self))
    value = gradwire.ones(1, 2)
    for each in reversed(wrapped):
        value = each(value)
    value.sum().backward()
    assert [wrapped.index(each) for each in averaged] == list(range(12))


def test_a_late_backward_of_parameters_that_counted_as_unused_is_refused(alone: None) -> None:
    """Their gradients would be each rank's own, without a word."""
    heads = gradwire.nn.ModuleList([gradwire.nn.Linear(2, 2), gradwire.nn.Linear(2, 2)])
    heads.forward = lambda x: [each(x).sum() for each in heads]
    wrapped = gradwire.nn.parallel.DistributedDataParallel(heads, find_unused_parameters=True)
    one, other = wrapped(gradwire.ones(1, 2))
    one.backward()
    with pytest.raises(RuntimeError, match=r"did not reach the parameters 1\.weight, 1\.bias"):
        other.backward()
    with wrapped.no_sync():
        for each in wrapped(gradwire.ones(1, 2)):
            each.backward()
    sum(wrapped(gradwire.ones(1, 2))).backward()

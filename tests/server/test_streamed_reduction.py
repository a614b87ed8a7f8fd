"""Streamed reductions: equal to the reduction of whole tensors, bit for bit, for any ranks, dtypes and layouts."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from gradwire_engine import Account, Tensor
from gradwire_engine.core.reduction import reduce_into
from gradwire_server.common.errors import Refusal
from gradwire_server.common.shared_files import location
from gradwire_server.session.state import (
    direct_reduction,
    group_table,
    rank_counters,
    shared_tensors,
    streamed_reduction,
)
from gradwire_server.session.state.cancel_token import CancelToken
from gradwire_server.session.state.durability import Durability
from gradwire_server.session.state.group_table import GroupTable, Membership, PeerMemory, RankMemory
from gradwire_server.session.state.process_memory import ProcessMemory
from gradwire_server.session.state.streamed_reduction import LEAST, StreamedReduction, streams

Joined = list[tuple[GroupTable, Membership]]
SLOT = 1 << 16


class Channel:
    """A front that only notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def ask(self, session: int, do: str, **fields: Any) -> Any:
        raise AssertionError(do)

    def tell(self, session: int, do: str, **fields: Any) -> None:
        self.told.append(do)


@pytest.fixture(autouse=True)
def waits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give way at once, for the ranks are threads of one process. Slots are small."""
    monkeypatch.setattr(streamed_reduction, "_CHUNK", SLOT)
    monkeypatch.setattr(streamed_reduction, "_SIZE", rank_counters.HEADER + SLOT * streamed_reduction._SLOTS)
    monkeypatch.setattr(direct_reduction, "_PART", SLOT)
    monkeypatch.setattr(rank_counters, "_YIELD_SECONDS", 0.0)


@pytest.fixture(params=["rings", "reading"])
def join(request: pytest.FixtureRequest) -> Iterator[Callable[[int], Joined]]:
    """Ranks of a group. Those of another process than this one cannot be read."""
    made: Joined = []
    reads = request.param == "reading"

    def of(size: int) -> Joined:
        for rank in range(size):
            account = Account()
            groups = GroupTable(rank + 1, account, CancelToken(), Durability())
            groups.channel = Channel()
            made.append((groups, Membership("g", 1, rank, size, RankMemory(account))))
        for _, member in made:
            member.peers = [PeerMemory(location(each.memory.fd)) for _, each in made]
            member.processes = [os.getpid()] * size if reads else list(range(size))
        return made

    yield of
    for groups, member in made:
        assert member.direct in (None, reads)
        member.close()
        assert groups.account.bytes == 0


def together(ranks: Joined, name: str, tensors: list[list[Any]], ahead: bool = True) -> None:
    """Reduce in place, each rank in a thread."""
    reduced(ranks, name, [list(map(Tensor, arrays)) for arrays in tensors], ahead)


def reduced(ranks: Joined, name: str, tensors: list[list[Tensor]], ahead: bool = True) -> None:
    """The same of the engine's tensors."""
    made = [
        StreamedReduction(groups, member, name, given, "", 0)
        for (groups, member), given in zip(ranks, tensors, strict=True)
    ]

    def run(reduction: StreamedReduction) -> None:
        if ahead:
            reduction.read_ahead()
        try:
            wait(reduction)
        finally:
            reduction.end()

    def wait(reduction: StreamedReduction) -> None:
        for _ in reduction.run():
            time.sleep(0.0005)

    with ThreadPoolExecutor(len(ranks)) as pool:
        for each in [pool.submit(run, reduction) for reduction in made]:
            each.result(60)


def values(rank: int, size: int, dtype: Any, seed: int = 0) -> Any:
    made = np.random.default_rng([rank, seed]).standard_normal(size) * 3
    return (made > 0) if dtype == "bool" else made.astype(dtype)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("sum", "float32"), ("avg", "float64"), ("avg", "float16"), ("product", "complex64"), ("min", "float32"),
        ("max", "int16"), ("bxor", "uint8"), ("bor", "bool"),
    ],
)  # fmt: skip
def test_all_ranks_get_the_bits_of_the_order_of_ranks(
    join: Callable[[int], Joined], size: int, name: str, dtype: str
) -> None:
    ranks = join(size)
    for turn, count in enumerate((3 * SLOT // np.dtype(dtype).itemsize + 7, 5, SLOT, 1)):
        given = [values(rank, count, dtype, turn) for rank in range(size)]
        given[0][0] = True
        wanted = np.empty_like(given[0])
        reduce_into(name, given, wanted)
        kept = [[each.copy()] for each in given]
        together(ranks, name, kept, ahead=turn != 2)
        for (found,) in kept:
            assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize(
    ("name", "dtype"), [("sum", "float32"), ("avg", "float64"), ("avg", "float16"), ("product", "complex64")]
)
def test_tensors_that_are_reduced_again_are_mapped_and_have_the_same_bits(
    join: Callable[[int], Joined], monkeypatch: pytest.MonkeyPatch, size: int, name: str, dtype: str
) -> None:
    monkeypatch.setattr(shared_tensors, "LEAST", SLOT)
    ranks = join(size)
    counts = (3 * SLOT // np.dtype(dtype).itemsize + 7, 5, SLOT)  # the second one stays where it is
    tensors = [[Tensor(values(rank, count, dtype, count)) for count in counts] for rank in range(size)]
    for turn in range(4):
        given = [[each.array.copy() for each in rank] for rank in tensors]
        reduced(ranks, name, tensors, ahead=turn != 2)
        for place in range(len(counts)):
            wanted = np.empty_like(given[0][place])
            reduce_into(name, [each[place] for each in given], wanted)
            assert all(each[place].array.tobytes() == wanted.tobytes() for each in tensors)
        for rank, each in enumerate(tensors):
            each[0].array[...] = values(rank, counts[0], dtype, turn)
            each[0].storage.changed()
    moved = [[groups.shared_tensors.file_of(each.array) is not None for each in tensors[0]] for groups, _ in ranks[:1]]
    assert moved == [[True, False, True] if ranks[0][1].direct else [False] * 3]
    assert all(bool(member.mapped._held) == bool(member.direct) for _, member in ranks)
    reduced(ranks, name, [[Tensor(values(rank, 9, dtype))] for rank in range(size)])
    assert not any(member.mapped._held for _, member in ranks)


def test_several_tensors_that_are_not_dense_share_memory_or_are_empty(join: Callable[[int], Joined]) -> None:
    ranks = join(2)

    def layouts(rank: int) -> list[list[Any]]:
        base = values(rank, 300_000, "float32")
        square = values(rank, 90_000, "float32", 1).reshape(300, 300)
        return [
            [base[:7], base[7:100_000], base[100_000:100_000], base[200_000:]],  # apart, of one array
            [square.T, base[::2]],
            [base, base],
            [base[:200_000], base[100_000:]],
            [np.empty((0, 3), np.float32), np.array(rank + 1, np.float32)],
        ]

    for one, two in zip(layouts(0), layouts(1), strict=True):
        wanted = [a + b for a, b in zip(one, two, strict=True)]
        if np.shares_memory(one[0], one[1]) and one[0].size < one[1].size + one[0].size:
            wanted = [each.copy() for each in wanted]
        together(ranks, "sum", [one, two])
        for a, b, both in zip(one, two, wanted, strict=True):
            assert a.tobytes() == both.tobytes()
            assert b.tobytes() == both.tobytes()


def test_shared_memory_is_counted_and_does_not_grow_with_the_tensors(join: Callable[[int], Joined]) -> None:
    ranks = join(2)
    for count in (10, 3_000_000):
        together(ranks, "sum", [[np.ones(count, np.float32)] for _ in ranks])
        assert all(4 * SLOT <= groups.account.bytes <= 5 * SLOT for groups, _ in ranks)


def begun(
    ranks: Joined, about: list[str], numbers: list[list[float]], timeouts: Sequence[int] = (0, 0)
) -> list[StreamedReduction]:
    return [
        StreamedReduction(groups, member, "sum", [Tensor(np.array(given, np.float32))], said, timeout)
        for (groups, member), said, given, timeout in zip(ranks, about, numbers, timeouts, strict=True)
    ]


def test_values_are_read_before_the_ranks_have_met_and_no_tensor_changes(join: Callable[[int], Joined]) -> None:
    ranks = join(2)
    together(ranks, "sum", [[np.ones(5, np.float32)] for _ in ranks])  # they find out whether they can read
    reads = bool(ranks[0][1].direct)
    reductions = begun(ranks, ["a", "a"], [[1, 2], [10, 20]])
    for each in reductions:
        each.read_ahead()
    for each, given in zip(reductions, ([1, 2], [10, 20]), strict=True):
        assert each._flat.arrays[0].tolist() == given
        assert (each._direct is not None) == reads
    if reads:
        assert [each._direct._ahead for each in reductions if each._direct] == [1, 1]


def direct(join: Callable[[int], Joined], size: int = 2) -> Joined:
    """Ranks that have found out that they read each other's tensors."""
    ranks = join(size)
    together(ranks, "sum", [[np.ones(5, np.float32)] for _ in ranks])
    if not ranks[0][1].direct:
        pytest.skip("they pass values through rings")
    for _, member in ranks:
        member.begun += 1
    return ranks


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("leaves", ["broken", "late", "closed", "stopped"])
def test_a_rank_that_leaves_early_gives_no_value_that_it_has_afterwards(
    join: Callable[[int], Joined], monkeypatch: pytest.MonkeyPatch, leaves: str, mapped: bool
) -> None:
    ranks = direct(join)
    if mapped:
        monkeypatch.setattr(shared_tensors, "LEAST", 1)
        # To move at once.
        monkeypatch.setattr(shared_tensors, "_is_seen", lambda *_: True)
    early, other = begun(ranks, ["a", "a"], [[1.0] * 8, [10.0] * 8], [1 if leaves == "late" else 0, 0])
    assert [bool(groups.shared_tensors._files) for groups, _ in ranks] == [mapped, mapped]
    for each in (early, other):
        each.read_ahead()
    ranks[1][0].cancel_token.at = -math.inf  # other sessions wait for this rank's worker, so it pauses
    steps, others_steps = early.run(), other.run()
    next(others_steps)
    next(steps)  # it has all results, and waits for the other one to read them
    if leaves == "broken":
        ranks[0][1].broken = Refusal("GROUP_BROKEN", "the client is gone")
    ranks[0][0].cancel_token.closed = leaves == "closed"
    time.sleep(0.01)
    if leaves == "stopped":
        steps.close()  # type: ignore[attr-defined]
    else:
        with pytest.raises(Refusal):
            list(steps)
    early.end()
    early._flat.arrays[0][...] = -777  # its session goes on
    with pytest.raises(Refusal, match="rank 0 has left the collective") as refused:
        list(others_steps)
    assert refused.value.reason == "GROUP_BROKEN"
    assert -777 not in other._flat.arrays[0]
    assert other._flat._tensors[0].storage.version == 1  # its values have changed
    other.end()


def test_a_rank_does_not_begin_in_a_group_that_is_broken(join: Callable[[int], Joined]) -> None:
    ranks = join(2)
    reductions = begun(ranks, ["a", "a"], [[1.0], [10.0]])
    ranks[1][1].broken = Refusal("GROUP_BROKEN", "rank 0 was cancelled")
    with pytest.raises(Refusal, match="rank 0 was cancelled"):
        list(reductions[1].run())
    assert reductions[1]._flat.arrays[0].tolist() == [10]
    for each in reductions:
        each.end()


def test_values_that_were_read_ahead_of_a_rank_that_left_are_dropped(join: Callable[[int], Joined]) -> None:
    ranks = direct(join)
    left, other = begun(ranks, ["a", "a"], [[1.0] * 4, [10.0] * 4])
    left.end()
    other.read_ahead()
    assert other._direct is not None
    assert other._direct._ahead == 0
    with pytest.raises(Refusal, match="rank 0 has left the collective"):
        list(other.run())
    assert not set(other._flat.arrays[0].tolist()) & {1.0, 11.0}
    other.end()


def test_copies_are_counted_until_the_end(join: Callable[[int], Joined]) -> None:
    ranks = join(2)
    before = [groups.account.bytes for groups, _ in ranks]
    square = np.ones((300, 300), np.float32).T[:, :200]
    made = [StreamedReduction(groups, member, "sum", [Tensor(square)], "", 0) for groups, member in ranks]
    ring = streamed_reduction._SIZE
    for (groups, _), held in zip(ranks, before, strict=True):
        assert groups.account.bytes - held >= ring + square.nbytes
    for each in made:
        each.end()
    for (groups, _), held in zip(ranks, before, strict=True):
        assert groups.account.bytes - held < ring + square.nbytes


@pytest.mark.parametrize("differs", ["tensors", "place"])
def test_a_rank_that_is_at_another_collective_is_not_read(join: Callable[[int], Joined], differs: str) -> None:
    ranks = join(2)
    for _, member in ranks:
        member.direct = True  # they found it out before
        member.streamed = 1
        member.memory.region(group_table.RING, streamed_reduction._SIZE)
    if differs == "place":
        ranks[0][1].begun = 7
    about = ["a", "b" if differs == "tensors" else "a"]
    for each in begun(ranks, about, [[1, 2], [10, 20]]):
        each.read_ahead()
        assert each._direct is not None
        assert each._direct._ahead == 0
    for _, member in ranks:
        member.direct = None


def waiting(ranks: Joined, timeout: int = 0) -> Iterator[None]:
    """Rank 0's reduction, whose other rank has a ring and gives no values."""
    made = [
        StreamedReduction(groups, member, "sum", [Tensor(np.ones(2 * SLOT, np.float32))], "", timeout)
        for groups, member in ranks
    ]
    return made[0].run()


def test_a_wait_ends_when_the_group_breaks_or_its_time_is_over(join: Callable[[int], Joined]) -> None:
    ranks = join(2)
    groups, member = ranks[0]
    steps = waiting(ranks)
    next(steps)
    awaited = groups.cancel_token.awaited
    assert awaited is not None
    assert not awaited.done()
    next(steps)  # a cancelled command waits: the other rank cannot go on without it
    member.broken = Refusal("GROUP_BROKEN", "rank 1 is gone")
    assert awaited.done()
    with pytest.raises(Refusal, match="rank 1 is gone"):
        next(steps)
    member.broken = None
    steps = waiting(ranks, timeout=1)
    with pytest.raises(Refusal, match=r"waited 0\.001 s"):
        list(steps)


def test_a_session_that_ends_breaks_the_group(join: Callable[[int], Joined]) -> None:
    ranks = join(2)
    steps = waiting(ranks)
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    channel = ranks[0][0].channel
    assert isinstance(channel, Channel)
    assert channel.told == ["abandon"]


def test_a_rank_whose_memory_is_gone_breaks_the_group(
    join: Callable[[int], Joined], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = direct(join)

    def gone(self: ProcessMemory, address: int, into: Any) -> None:
        raise OSError(3, "No such process")

    monkeypatch.setattr(ProcessMemory, "read", gone)
    with pytest.raises(Refusal, match="rank 0 cannot read another rank's tensors") as refused:
        list(waiting(ranks))
    assert refused.value.reason == "GROUP_BROKEN"
    assert ranks[0][0].channel.told == ["abandon"]  # type: ignore[union-attr]


def test_a_process_is_read_only_where_it_has_what_is_expected() -> None:
    there = np.arange(4)
    memory = ProcessMemory(os.getpid())
    assert memory.has(there.ctypes.data, np.arange(4))
    assert not memory.has(there.ctypes.data, np.arange(1, 5))
    assert not memory.has(8, there)
    found = np.ones(3)
    with pytest.raises(OSError, match="Bad address"):
        memory.read(8, found)
    assert not found.any()
    memory.close()
    with pytest.raises(OSError, match="Invalid argument"):
        ProcessMemory(0)


def test_a_process_that_has_ended_is_not_read() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        memory = ProcessMemory(process.pid)
        assert not memory.has(8, np.arange(4))
        assert process.stdin is not None
        process.stdin.close()
    with pytest.raises(OSError, match="No such process"):
        memory.read(8, np.ones(1))
    memory.close()


def test_only_ranks_of_one_server_with_a_worker_and_a_core_each_stream(
    join: Callable[[int], Joined], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_reduction, "_KEEPS_ORDER", True)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    member = join(2)[0][1]
    member.processes = [7, 8]
    assert streams(member, LEAST)
    assert not streams(member, LEAST - 1)
    member.processes = [7, 7]
    assert not streams(member, LEAST)
    member.processes, member.nodes = [7, 8], [0, 1]
    assert not streams(member, LEAST)
    member.nodes = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1})
    assert not streams(member, LEAST)

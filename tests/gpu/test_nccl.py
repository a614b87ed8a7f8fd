"""Collectives by NCCL: on its stand-in, since ranks of one process have one GPU. None of this has run on GPUs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import service_pb2 as s
from gradwire_engine.core import nccl
from gradwire_engine.core.dtypes import BY_NAME
from gradwire_server.common.errors import Refusal
from gradwire_server.session.state.gpu_exchange import GpuExchange
from tests.gpu import stand_in
from tests.gpu.nccl_stand_in import Event, Stream, World
from tests.server.harness import LIMITS, Id, Running, op
from tests.server.test_collectives import Rank, refused, together

SECONDS = 30.0


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with stand_in.installed():
        yield


@pytest.fixture
def world(gpu: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """NCCL, and as many GPUs as there are ranks."""
    made = World()
    for name, value in (("nccl", made.module()), ("Stream", Stream), ("Event", Event)):
        monkeypatch.setattr(stand_in.CUPY.cuda, name, value, raising=False)
    numbers = iter(range(100))
    monkeypatch.setattr(nccl, "identity", lambda device: f"GPU {next(numbers)}")
    nccl.library.cache_clear()
    yield made
    nccl.library.cache_clear()


@pytest.fixture
def make(world: World) -> Iterator[Callable[..., list[Rank]]]:
    server = Running(LIMITS)
    made: list[Rank] = []

    def of(size: int) -> list[Rank]:
        ranks = [Rank(server, rank, size, f"group {len(made)}") for rank in range(size)]
        made.extend(ranks)
        together(ranks, Rank.join)
        return ranks

    yield of
    for each in made:
        each.end()
    server.stop()


def on_gpu(rank: Rank, values: Any, device: str = "cuda:0") -> int:
    there = next(rank.ids)
    rank.stub.Op(op("to", Id(rank.make(values)), named={"device": device}, session_id=rank.session, outputs=[there]))
    return there


CASES = [
    ("ALL_REDUCE", "SUM", "float32", (7, 0)),
    ("ALL_REDUCE", "AVG", "float64", (8, 4)),
    ("ALL_REDUCE", "PRODUCT", "int32", (2, 1)),
    ("ALL_REDUCE", "MAX", "int64", (4, 2)),
    ("ALL_REDUCE", "SUM", "bool", (1, 2)),
    ("ALL_REDUCE", "BAND", "bool", (1, 3)),
    ("ALL_REDUCE", "SUM", "complex64", (7, 0)),
    ("REDUCE", "SUM", "float32", (7, 0)),
    ("REDUCE_SCATTER", "SUM", "float32", (7, 0)),
    ("BROADCAST", "", "complex64", (1,)),
    ("ALL_GATHER", "", "bool", (1,)),
]


def values_of(dtype: str, rank: int) -> Any:
    drawn = np.random.default_rng(rank).random((4, 3)) * 9 - 4
    return (drawn + 1j * drawn[::-1] if dtype == "complex64" else drawn > 0 if dtype == "bool" else drawn).astype(dtype)


@pytest.mark.parametrize(("kind", "reduction", "dtype", "encoding"), CASES)
def test_a_collective_of_gpus_gives_the_hosts_values(
    make: Any, world: World, kind: str, reduction: str, dtype: str, encoding: tuple[int, ...]
) -> None:
    def values(ranks: list[Rank], place: Callable[[Rank, Any], int]) -> list[Any]:
        def work(rank: Rank) -> Any:
            given = [place(rank, part) for part in np.split(values_of(dtype, rank.rank), 2)]
            fields: dict[str, Any] = {"op": f"REDUCE_OP_{reduction}"} if reduction else {}
            taken: list[int] = []
            if kind in ("REDUCE", "BROADCAST"):
                fields["peer"] = 1
            elif kind in ("ALL_GATHER", "REDUCE_SCATTER"):
                size = 24 if kind == "ALL_GATHER" else 6
                taken = [place(rank, np.zeros(size, dtype))]
            for _ in range(2):
                rank.ask(kind, inputs=given, outputs=taken, **fields)
            return [rank.read(number).tolist() for number in (*given, *taken)]

        return together(ranks, work)

    by_host = values(make(2), lambda rank, array: rank.make(array))
    assert not world.notes
    assert values(make(2), on_gpu) == by_host
    calls = [each for number, each in world.notes if number == 0]
    assert len(calls) == (4 if kind in ("ALL_REDUCE", "REDUCE", "BROADCAST") else 2)
    assert calls[0][2 : 2 + len(encoding)] == encoding  # after name and number of elements
    assert [each for number, each in world.notes if number == 1] == calls


@pytest.mark.parametrize(
    ("dtype", "reduction", "found"),
    [
        ("bfloat16", "sum", (9, 1, 0)), ("float16", "avg", (6, 1, 4)), ("complex128", "avg", (8, 2, 4)),
        ("uint8", "product", (1, 1, 1)), ("bfloat16", None, (1, 2, 0)), ("int16", None, (1, 2, 0)),
        ("int16", "sum", None), ("complex64", "product", None), ("float32", "max", None), ("int32", "band", None),
        ("bool", "bxor", None), ("bool", "product", (1, 1, 3)),
    ],
)  # fmt: skip
def test_a_dtype_and_reduction_are_ncclS_or_go_by_the_host(dtype: str, reduction: str | None, found: Any) -> None:
    made = nccl.encoding(BY_NAME[dtype], reduction)
    assert found == (None if made is None else (made.type, made.per_element, made.op))


def summed(rank: Rank, number: int) -> Any:
    rank.ask("ALL_REDUCE", op="REDUCE_OP_SUM", inputs=[number])
    return rank.read(number).tolist()


@pytest.mark.parametrize("why", ["mixed", "one GPU", "old", "missing"])
def test_values_go_by_the_host_where_not_all_ranks_have_a_gpu_of_their_own(
    make: Any, world: World, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    ranks = make(2)
    if why == "one GPU":
        monkeypatch.setattr(nccl, "identity", lambda device: "GPU 0")
    elif why == "old":
        world.version = 20900
    elif why == "missing":
        monkeypatch.delattr(stand_in.CUPY.cuda, "nccl")

    def work(rank: Rank) -> list[Any]:
        made = []
        for number in range(3):  # the first time the ranks find out, then they know
            give = rank.make if why == "mixed" and rank.rank else lambda array: on_gpu(rank, array)
            made.append(summed(rank, give(np.full(3, rank.rank + number, np.float32))))
        return made

    assert together(ranks, work) == [[[1.0 + 2 * number] * 3 for number in range(3)]] * 2
    assert not world.notes


@pytest.mark.parametrize(
    ("offers", "suits"), [(["a", "b"], True), (["a", "a"], False), (["a", None], False), ([None, None], False)]
)
def test_gpus_suit_if_each_rank_has_another_one(offers: list[str | None], suits: bool) -> None:
    member: Any = SimpleNamespace(by_host=False)
    exchange = GpuExchange(None, member, None)  # type: ignore[arg-type]
    assert exchange.suits([None if each is None else {"gpu": each} for each in offers]) is suits
    assert member.by_host is not suits


def test_ranks_that_disagree_are_refused_before_nccl_is_called(make: Any, world: World) -> None:
    ranks = make(2)
    numbers = {rank: on_gpu(rank, np.ones(2 + rank.rank, np.float32)) for rank in ranks}
    for _ in range(2):
        told = together(ranks, lambda rank: refused(lambda: summed(rank, numbers[rank])))
        assert {reason for reason, _ in told} == {"COLLECTIVE_MISMATCH"}
    assert not world.notes
    assert together(ranks, lambda rank: summed(rank, on_gpu(rank, np.ones(2, np.float32)))) == [[2, 2]] * 2
    assert len(world.notes) == 2


def test_a_strided_tensor_and_an_empty_one_are_exchanged(make: Any, world: World) -> None:
    def work(rank: Rank) -> Any:
        whole = on_gpu(rank, np.arange(6, dtype=np.float32).reshape(2, 3))
        turned = next(rank.ids)
        rank.stub.Op(op("t", Id(whole), session_id=rank.session, outputs=[turned]))
        empty = on_gpu(rank, np.zeros(0, np.float32))
        rank.ask("ALL_REDUCE", op="REDUCE_OP_SUM", inputs=[turned, empty])
        return rank.read(whole).tolist()

    assert together(make(2), work) == [[[0, 2, 4], [6, 8, 10]]] * 2
    assert len(world.notes) == 2


def first(world: World, ranks: list[Rank]) -> dict[Rank, int]:
    """A tensor of each rank, after one sum."""
    numbers = {rank: on_gpu(rank, np.ones(2, np.float32)) for rank in ranks}
    together(ranks, lambda rank: summed(rank, numbers[rank]))
    return numbers


@pytest.mark.parametrize("cause", ["cancelled", "ended", "late", "error"])
def test_a_rank_that_does_not_take_part_breaks_the_group_and_aborts(make: Any, world: World, cause: str) -> None:
    ranks = make(2)
    one, two = ranks
    numbers = first(world, ranks)
    before = one.version(numbers[one])
    world.deaf.add(1)  # its call reaches nobody

    def work(rank: Rank) -> tuple[str, str]:
        fields = {"timeout_ms": 500} if cause == "late" and rank is one else {}
        return refused(lambda: rank.ask("ALL_REDUCE", op="REDUCE_OP_SUM", inputs=[numbers[rank]], **fields))

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(work, rank) for rank in ranks]
        other = Rank(one.server, 0, 1)
        assert other.read(other.make(np.ones(2, np.float32))).tolist() == [1, 1]  # others compute meanwhile
        time.sleep(0.2)
        other.end()
        if cause == "cancelled":
            two.stub.Cancel(s.CancelRequest(session_id=two.session))
        elif cause == "ended":
            two.end()
        elif cause == "error":
            world.error = "unhandled system error"
        told = [each.result(SECONDS) for each in waiting]
    assert told[0][0] == {"error": "RUNTIME", "late": "RUNTIME"}.get(cause, "GROUP_BROKEN")
    if cause == "error":
        assert "unhandled system error" in told[0][1]
    deadline = time.monotonic() + SECONDS
    while set(world.aborted) != {0, 1} and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(world.aborted) == {0, 1}
    assert refused(lambda: one.ask("BARRIER"))[0] == "GROUP_BROKEN"
    assert one.version(numbers[one]) > before  # NCCL may have written some values
    threads = [each for each in threading.enumerate() if each.name == "gradwire-nccl"]
    for each in threads:
        each.join(SECONDS)
        assert not each.is_alive()


def test_leaving_a_group_ends_its_thread_and_a_new_group_has_a_new_communicator(make: Any, world: World) -> None:
    ranks = make(2)
    first(world, ranks)
    together(ranks, lambda rank: rank.ask("LEAVE"))
    for each in [each for each in threading.enumerate() if each.name == "gradwire-nccl"]:
        each.join(SECONDS)
        assert not each.is_alive()
    assert sorted(world.aborted) == [0, 1]
    together(ranks, Rank.join)
    assert together(ranks, lambda rank: summed(rank, on_gpu(rank, np.ones(2, np.float32)))) == [[2, 2]] * 2
    assert len({key[0] for key in world.meetings}) >= 2


def test_an_exchange_after_an_abort_is_refused_at_once(world: World) -> None:
    alone = nccl.Communicator("cuda:0", 1, 0, (1, *([-1] * 127)))
    alone.exchange([], SECONDS).result(SECONDS)
    alone.abort()
    time.sleep(0.2)  # its thread has ended
    with pytest.raises(nccl.Aborted):
        alone.exchange([], SECONDS).result(1)


@pytest.mark.parametrize("cause", ["aborted", "late"])
def test_who_waits_is_told_while_nccl_connects_ranks_of_which_one_is_gone(world: World, cause: str) -> None:
    alone = nccl.Communicator("cuda:0", 2, 0, (2, *([-1] * 127)))
    launched: list[int] = []
    waiting = alone.exchange([lambda comm, stream: launched.append(stream)], 0.3 if cause == "late" else SECONDS)
    time.sleep(0.1)
    assert not waiting.done()
    if cause == "aborted":
        alone.abort()
    with pytest.raises(nccl.Aborted, match="in time" if cause == "late" else "aborted"):
        waiting.result(3)  # NCCL itself would wait for 10 seconds
    late = threading.Thread(target=world.meet, args=(((2, *([-1] * 127)), "init"), 1, 2, None, 10))
    late.start()
    late.join()
    for each in [each for each in threading.enumerate() if each.name == "gradwire-nccl"]:
        each.join(SECONDS)
        assert not each.is_alive()
    assert not launched  # the tensors may be of other use by then
    assert world.aborted == [0]


def test_the_time_limit_of_connecting_ends_no_later_exchange(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its timer may have begun to run as it is stopped."""
    monkeypatch.setattr(threading.Timer, "cancel", lambda timer: None)
    alone = nccl.Communicator("cuda:0", 1, 0, (4, *([-1] * 127)))
    alone.exchange([], 0.2).result(SECONDS)
    time.sleep(0.5)
    alone.exchange([], SECONDS).result(SECONDS)
    alone.abort()


def test_a_group_that_breaks_after_its_ranks_have_met_begins_no_exchange(world: World) -> None:
    member: Any = SimpleNamespace(broken=Refusal("GROUP_BROKEN", "rank 1 is gone"), gpus=None)
    with pytest.raises(Refusal, match="rank 1 is gone"):
        GpuExchange(None, member, None).begin([{"gpu": "a", "id": []}])  # type: ignore[arg-type]
    assert member.gpus is None

"""Collectives between sessions: values, disagreements, deaths and limits; of one worker, two, and three servers."""

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest

from gradwire.v1 import collectives_pb2 as g
from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import programs_pb2 as p
from gradwire.v1 import service_pb2 as s
from gradwire.v1 import types_pb2 as t
from gradwire_engine import Account
from gradwire_engine.core.reduction import reduce_into
from gradwire_server.common.shared_files import location
from gradwire_server.session.collectives.exchange import Exchange
from gradwire_server.session.state.cancel_token import CancelToken
from gradwire_server.session.state.durability import Durability
from gradwire_server.session.state.group_table import GroupTable, Membership, PeerMemory, RankMemory
from tests.server.harness import LIMITS, Id, Running, op, refusal, until
from tests.server.peers import Node

SECONDS = 30.0
_NUMBERS = {
    np.dtype(name): t.Dtype.Value(f"DTYPE_{name.upper()}")
    for name in ("float32", "float64", "int64", "int32", "uint8", "bool", "complex64")
}


class Rank:
    """A session, by unary calls."""

    def __init__(self, server: Running, rank: int, size: int, group: str = "g") -> None:
        self.server, self.stub = server, server.stub
        self.rank, self.size, self.group = rank, size, group
        self.session = self.stub.OpenSession(s.OpenSessionRequest()).session_id
        self.ids = iter(range(1, 1000))

    def ask(self, kind: str, group: str = "", timeout: float = SECONDS, **fields: Any) -> g.CollectiveResponse:
        request = g.CollectiveRequest(
            session_id=self.session, kind=f"COLLECTIVE_KIND_{kind}", group=group or self.group, **fields
        )
        answer: g.CollectiveResponse = self.stub.Collective(request, timeout=timeout)
        return answer

    def join(self, group: str = "", **fields: Any) -> None:
        self.ask("JOIN", group, rank=self.rank, size=self.size, **fields)

    def make(self, values: Any) -> int:
        array = np.asarray(values)
        payload = t.Payload(dtype=_NUMBERS[array.dtype], shape=array.shape, data=array.tobytes())
        number = next(self.ids)
        self.stub.Create(c.CreateRequest(session_id=self.session, id=number, payload=payload))
        return number

    def ones(self, size: int) -> int:
        number = next(self.ids)
        self.stub.Op(op("ones", [size], session_id=self.session, outputs=[number]))
        return number

    def read(self, number: int) -> Any:
        payload = self.stub.Read(c.ReadRequest(session_id=self.session, tensor=number)).payload
        dtype = next(dtype for dtype, wire in _NUMBERS.items() if wire == payload.dtype)
        return np.frombuffer(payload.data, dtype).reshape(payload.shape)

    def version(self, number: int) -> int:
        answer = self.stub.Describe(c.DescribeRequest(session_id=self.session, tensors=[number]))
        return int(answer.tensors[0].version)

    def held(self) -> int:
        return int(self.stub.Describe(c.DescribeRequest(session_id=self.session)).bytes)

    def end(self) -> None:
        self.stub.CloseSession(s.CloseSessionRequest(session_id=self.session))


def together(ranks: "list[Rank]", work: Callable[[Rank], Any]) -> list[Any]:
    """What `work` returns for each rank, all at once."""
    with ThreadPoolExecutor(len(ranks)) as pool:
        return [each.result(SECONDS) for each in [pool.submit(work, rank) for rank in ranks]]


def refused(call: Callable[[], Any]) -> tuple[str, str]:
    """Reason and message of a refused call."""
    with pytest.raises(grpc.RpcError) as error:
        call()
    return refusal(error.value)[1], str(error.value.details())


@pytest.fixture(scope="module", params=["one-thread", "two-workers", "three-servers"])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Running]]:
    if request.param == "three-servers":
        root = tmp_path_factory.mktemp("groups")
        running: list[Running] = [Node(root, f"127.0.0.1:{1 + index}") for index in range(3)]
    else:
        running = [Running(LIMITS, 2 if request.param == "two-workers" else 0)]
    yield running
    for each in running:
        each.stop()


@pytest.fixture
def ranks_server(servers: list[Running]) -> Running:
    return servers[0]


@pytest.fixture
def make(servers: list[Running]) -> Iterator[Callable[..., list[Rank]]]:
    made: list[Rank] = []

    def of(size: int, joined: bool = True) -> list[Rank]:
        ranks = [Rank(servers[rank % len(servers)], rank, size) for rank in range(size)]
        made.extend(ranks)
        if joined:
            together(ranks, Rank.join)
        return ranks

    yield of
    for rank in made:
        rank.end()


REDUCTIONS = [
    ("SUM", "float32", lambda all_: sum(all_[1:], all_[0])),
    ("AVG", "float64", lambda all_: sum(all_[1:], all_[0]) / len(all_)),
    ("PRODUCT", "int64", lambda all_: np.prod(all_, axis=0)),
    ("MIN", "int32", lambda all_: np.min(all_, axis=0)),
    ("MAX", "uint8", lambda all_: np.max(all_, axis=0)),
    ("BAND", "int64", np.bitwise_and.reduce),
    ("BOR", "bool", np.logical_or.reduce),
    ("BXOR", "uint8", np.bitwise_xor.reduce),
    ("SUM", "complex64", lambda all_: sum(all_[1:], all_[0])),
]


@pytest.mark.parametrize(("op", "dtype", "expected"), REDUCTIONS)
def test_a_reduction_is_the_same_on_all_ranks(make: Any, op: str, dtype: str, expected: Any) -> None:
    ranks = make(3)
    values = [(np.random.default_rng(rank).random((4, 5)) * 9 - 2).astype(dtype) for rank in range(3)]
    numbers = {rank: rank.make(value) for rank, value in zip(ranks, values, strict=True)}
    together(ranks, lambda rank: rank.ask("ALL_REDUCE", op=f"REDUCE_OP_{op}", inputs=[numbers[rank]]))
    found = [rank.read(numbers[rank]) for rank in ranks]
    assert len({each.tobytes() for each in found}) == 1
    np.testing.assert_array_equal(found[0], np.asarray(expected(values)).astype(dtype))
    assert [rank.version(numbers[rank]) for rank in ranks] == [1, 1, 1]


def test_half_precision_is_summed_in_float32() -> None:
    sources = [np.array([value], np.float16) for value in (2048.0, 1.0, 1.0)]
    out = np.empty(1, np.float16)
    reduce_into("sum", sources, out)
    assert out[0] == 2050  # in float16, 2048 + 1 is 2048


def test_values_move_as_the_kinds_say(make: Any) -> None:
    ranks = make(3)

    def work(rank: Rank) -> list[Any]:
        mine = rank.make(np.arange(3, dtype=np.float32) + 10 * rank.rank)
        zeros = [rank.make(np.zeros(3, np.float32)) for _ in range(3)]
        one = rank.make(np.zeros(1, np.float32))
        rank.ask("BARRIER")
        rank.ask("ALL_GATHER", inputs=[mine], outputs=zeros)
        gathered = [rank.read(each).tolist() for each in zeros]
        rank.ask("REDUCE_SCATTER", op="REDUCE_OP_SUM", inputs=[mine], outputs=[one])
        scattered = rank.read(one).tolist()
        rank.ask("ALL_TO_ALL", inputs=[mine], outputs=[zeros[0]])
        exchanged = rank.read(zeros[0]).tolist()
        rank.ask("SCATTER", peer=2, inputs=[mine] if rank.rank == 2 else [], outputs=[one])
        part = rank.read(one).tolist()
        rank.ask("GATHER", peer=1, inputs=[one], outputs=[zeros[1]] if rank.rank == 1 else [])
        collected = rank.read(zeros[1]).tolist()
        rank.ask("REDUCE", peer=0, op="REDUCE_OP_MAX", inputs=[one])
        greatest = rank.read(one).tolist()
        rank.ask("BROADCAST", peer=1, inputs=[mine])
        return [gathered, scattered, exchanged, part, collected, greatest, rank.read(mine).tolist()]

    rows = [[0.0, 1, 2], [10.0, 11, 12], [20.0, 21, 22]]
    for number, found in enumerate(together(ranks, work)):
        gathered, scattered, exchanged, part, collected, greatest, last = found
        assert gathered == rows
        assert scattered == [30.0 + 3 * number]
        assert exchanged == [row[number] for row in rows]
        assert part == [20.0 + number]
        assert collected == ([20, 21, 22] if number == 1 else rows[1])
        assert greatest == ([22] if number == 0 else [20.0 + number])
        assert last == rows[1]


def test_several_and_strided_tensors_of_any_size(make: Any) -> None:
    ranks = make(2)

    def work(rank: Rank) -> list[Any]:
        large = rank.ones(300_000)
        square, empty = rank.make(np.arange(12.0, dtype=np.float32).reshape(3, 4)), rank.make(np.zeros(0, np.float32))
        turned = next(rank.ids)
        rank.stub.Op(op("transpose", Id(square), 0, 1, session_id=rank.session, outputs=[turned]))
        rank.ask("ALL_REDUCE", op="REDUCE_OP_SUM", inputs=[large, turned, empty])
        return [rank.version(square), rank.read(square).tolist(), rank.version(large)]

    for version, values, other in together(ranks, work):
        assert (version, other) == (1, 1)
        assert values == (2 * np.arange(12.0).reshape(3, 4)).tolist()


def test_messages_arrive_in_order_by_tag_and_from_any_rank(make: Any) -> None:
    ranks = make(3)

    def work(rank: Rank) -> Any:
        if rank.rank < 2:
            for number in range(3):
                value = rank.make(np.array([rank.rank * 10 + number], np.int64))
                rank.ask("SEND", peer=2, inputs=[value], tag=number % 2)
            return None
        got = rank.make(np.zeros(1, np.int64))
        found = []
        for peer, tag in ((0, 1), (0, 0), (0, 0), (1, 0)):
            rank.ask("RECV", peer=peer, outputs=[got], tag=tag)
            found.append(int(rank.read(got)[0]))
        for tag in (0, 1):
            sender = rank.ask("RECV", any_peer=True, outputs=[got], tag=tag).peer
            found.append((sender, int(rank.read(got)[0])))
        return found

    assert together(ranks, work)[2] == [1, 0, 2, 10, (1, 12), (1, 11)]


def test_a_message_of_another_shape_is_refused_where_it_is_received(make: Any) -> None:
    one, two = make(2)
    one.ask("SEND", peer=1, inputs=[one.make(np.zeros(3, np.float32))])
    reason, message = refused(lambda: two.ask("RECV", peer=0, outputs=[two.make(np.zeros(4, np.float32))]))
    assert reason == "COLLECTIVE_MISMATCH" and "float32 [3]" in message and "float32 [4]" in message
    together([one, two], lambda rank: rank.ask("BARRIER"))  # the group is whole


DISAGREEMENTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "shape": ({"make": np.zeros((2, 3), np.float32)}, {"make": np.zeros((3, 2), np.float32)}),
    "dtype": ({"make": np.zeros(2, np.float32)}, {"make": np.zeros(2, np.float64)}),
    "op": ({"op": "REDUCE_OP_SUM"}, {"op": "REDUCE_OP_MAX"}),
    "kind": ({}, {"kind": "BROADCAST", "op": 0}),
    "root": ({"kind": "BROADCAST", "op": 0}, {"kind": "BROADCAST", "op": 0, "peer": 1}),
    "number": ({"make": np.zeros(2, np.float32)}, {"make": np.zeros(2, np.float32), "twice": True}),
}


@pytest.mark.parametrize("what", DISAGREEMENTS)
def test_ranks_that_disagree_are_all_refused_and_the_group_goes_on(make: Any, what: str) -> None:
    ranks = make(3)
    numbers = {}

    def work(rank: Rank) -> tuple[str, str]:
        given: dict[str, Any] = {"op": "REDUCE_OP_SUM", **DISAGREEMENTS[what][int(rank.rank == 1)]}
        numbers[rank] = rank.make(given.pop("make", np.ones(2, np.float32)))
        inputs = [numbers[rank]] * (2 if given.pop("twice", False) else 1)
        return refused(lambda: rank.ask(given.pop("kind", "ALL_REDUCE"), inputs=inputs, **given))

    found = together(ranks, work)
    assert {reason for reason, _ in found} == {"COLLECTIVE_MISMATCH"}
    assert all("rank 1 calls" in message for _, message in found)
    assert all(rank.version(numbers[rank]) == 0 for rank in ranks)
    assert together(ranks, lambda rank: rank.ask("BARRIER")) == [g.CollectiveResponse()] * 3


def test_what_one_rank_cannot_do_is_refused_on_all(make: Any) -> None:
    ranks = make(2)

    def work(rank: Rank) -> tuple[str, str]:
        return refused(lambda: rank.ask(
            "ALL_REDUCE", op="REDUCE_OP_SUM", inputs=[rank.make(np.ones(2, np.float32)) if rank.rank else 777]
        ))  # fmt: skip

    found = together(ranks, work)
    assert [reason for reason, _ in found] == ["TENSOR_NOT_FOUND"] * 2
    assert "rank 0 cannot take part" in found[1][1]
    together(ranks, lambda rank: rank.ask("BARRIER"))


def test_a_refused_collective_lets_a_slow_rank_read_the_one_before(
    make: Any, ranks_server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that was refused goes on at once. It must not write where another rank still reads its values."""
    if ranks_server.workers:
        pytest.skip("what the slow rank does is changed in this process only")
    ranks = make(2)
    take = Exchange._take
    members: dict[int, Membership] = {}

    def slow(self: Any) -> Iterator[None]:
        members.setdefault(self.member.rank, self.member)
        if self.member is members.get(1) and self.member.begun == 2:
            while 0 not in members or members[0].begun < 4:  # rank 0 has written the values of its third collective
                yield
        yield from take(self)

    monkeypatch.setattr(Exchange, "_take", slow)
    numbers = [rank.make(np.full(1000, 1.0 + rank.rank, np.float32)) for rank in ranks]

    def work(rank: Rank) -> bytes:
        number = numbers[rank.rank]
        rank.ask("ALL_REDUCE", op="REDUCE_OP_SUM", inputs=[number])
        found = rank.read(number)
        assert refused(lambda: rank.ask("ALL_REDUCE", inputs=[number]))[0] == "ARGUMENT_VALUE"
        rank.ask("ALL_REDUCE", op="REDUCE_OP_MAX", inputs=[rank.make(np.full(1000, 50.0, np.float32))])
        return bytes(found)

    assert together(ranks, work) == [np.full(1000, 3, np.float32).tobytes()] * 2


def test_plans_that_were_crossed_are_refused_at_once(make: Any) -> None:
    ranks = make(2)
    together(ranks, lambda rank: rank.join("other"))
    both = [planned(ranks, summing(group)) for group in ("g", "other")]

    def crossed(rank: Rank) -> str:
        """The reason that the one of two plans is refused which the other rank runs second."""
        return refused(both[rank.rank][rank.rank].run)[0]

    assert together(ranks, crossed) == ["COLLECTIVE_MISMATCH"] * 2


def test_groups_that_were_crossed_are_refused_at_once(make: Any) -> None:
    ranks = make(2)
    for name in ("a", "b"):
        together(ranks, lambda rank, name=name: rank.join(name))
    found = together(ranks, lambda rank: refused(lambda: rank.ask("BARRIER", "ab"[rank.rank])))
    assert [reason for reason, _ in found] == ["COLLECTIVE_MISMATCH"] * 2
    assert "groups a, b in different orders" in found[0][1]


def test_a_session_that_ends_tells_all_others(make: Any) -> None:
    """Else they would wait for the deadline of their calls."""
    ranks = make(3)

    def work(rank: Rank) -> str:
        if rank.rank == 2:
            time.sleep(0.3)  # so that the others wait, as a rule
            rank.end()
            return ""
        if rank.rank == 1:
            value = rank.make(np.zeros(1, np.float32))
            reason, message = refused(lambda: rank.ask("RECV", peer=0, outputs=[value]))
        else:
            reason, message = refused(lambda: rank.ask("BARRIER"))
        assert "rank 2 of group 'g' is gone: its session ended" in message
        return reason

    assert together(ranks, work) == ["GROUP_BROKEN", "GROUP_BROKEN", ""]
    assert refused(lambda: ranks[0].ask("BARRIER"))[0] == "GROUP_BROKEN"
    together(ranks[:2], lambda rank: rank.ask("JOIN", rank=rank.rank, size=2))  # the name is free again
    together(ranks[:2], lambda rank: rank.ask("BARRIER"))


def test_a_rank_that_is_late_or_cancelled_breaks_the_group(make: Any) -> None:
    ranks = make(2)
    reason, message = refused(lambda: ranks[0].ask("BARRIER", timeout_ms=100))
    assert reason == "DEADLINE_EXCEEDED" and "waited 0.1 s for ranks 1, at barrier" in message
    reason, message = refused(lambda: ranks[1].ask("BARRIER"))
    assert reason == "GROUP_BROKEN" and "rank 0 of group 'g' waited" in message
    ranks = make(2)
    waiting = threading.Timer(0.3, lambda: ranks[0].stub.Cancel(s.CancelRequest(session_id=ranks[0].session)))
    waiting.start()
    assert refused(lambda: ranks[0].ask("BARRIER"))[0] == "CANCELLED"
    reason, message = refused(lambda: ranks[1].ask("BARRIER"))
    assert reason == "GROUP_BROKEN" and "the command of rank 0 was stopped: cancelled" in message


def test_a_program_that_fails_before_its_collective_breaks_the_group(make: Any) -> None:
    ranks = make(2)
    step = g.CollectiveRequest(kind="COLLECTIVE_KIND_ALL_REDUCE", group="g", op="REDUCE_OP_SUM", inputs=[1])
    raw = p.Program(
        inputs=[p.ProgramInput(dtype=t.DTYPE_FLOAT32, shape=[2]), p.ProgramInput(dtype=t.DTYPE_FLOAT32, shape=[2])],
        steps=[
            p.ProgramStep(op=op("inverse", Id(2), outputs=[3])),
            p.ProgramStep(collective=step),
        ],
        outputs=[1],
    ).SerializeToString()
    name = hashlib.sha256(raw).digest()

    def work(rank: Rank) -> tuple[str, str]:
        if rank.rank == 0:
            return refused(lambda: rank.ask("BARRIER"))
        rank.stub.RegisterProgram(p.RegisterProgramRequest(session_id=rank.session, hash=name, program=raw))
        inputs = [rank.make(np.ones(2, np.float32)) for _ in range(2)]
        run = p.RunProgramRequest(session_id=rank.session, hash=name, inputs=inputs)
        return refused(lambda: rank.stub.RunProgram(run, timeout=SECONDS))

    found = together(ranks, work)
    assert found[0][0] == "GROUP_BROKEN" and "rank 1 left out a collective" in found[0][1]
    assert found[1][0] != "GROUP_BROKEN"


def summing(group: str = "g") -> bytes:
    """A program that doubles its input, sums it over the ranks of a group, and adds one."""
    total = g.CollectiveRequest(kind="COLLECTIVE_KIND_ALL_REDUCE", group=group, op="REDUCE_OP_SUM", inputs=[2])
    return p.Program(
        inputs=[p.ProgramInput(dtype=t.DTYPE_FLOAT32, shape=[2])],
        steps=[
            p.ProgramStep(op=op("mul", Id(1), 2.0, outputs=[2])),
            p.ProgramStep(collective=total),
            p.ProgramStep(op=op("add", Id(2), 1.0, outputs=[3])),
        ],
        outputs=[3],
    ).SerializeToString()


class Planned:
    """A rank's program, of which `run` returns the output."""

    def __init__(self, rank: Rank, raw: bytes) -> None:
        self.rank, self.raw, self.hash = rank, raw, hashlib.sha256(raw).digest()
        self.register()
        self.value = rank.make(np.full(2, rank.rank + 1, np.float32))

    def register(self) -> p.RegisterProgramResponse:
        request = p.RegisterProgramRequest(session_id=self.rank.session, hash=self.hash, program=self.raw)
        return self.rank.stub.RegisterProgram(request)

    def run(self, timeout: float = SECONDS) -> list[float]:
        made = next(self.rank.ids)
        session = self.rank.session
        run = p.RunProgramRequest(session_id=session, hash=self.hash, inputs=[self.value], outputs=[made])
        self.rank.stub.RunProgram(run, timeout=timeout)
        return list(self.rank.read(made).tolist())


def planned(ranks: "list[Rank]", raw: bytes) -> list[Planned]:
    """The program at all ranks, after two runs; each one has a plan."""
    made = [Planned(rank, raw) for rank in ranks]

    def twice(rank: Rank) -> int:
        for _ in range(2):
            assert made[rank.rank].run() == [7, 7]
        return made[rank.rank].register().planned_runs

    assert together(ranks, twice) == [1, 1]
    return made


@pytest.mark.parametrize("cause", ["cancelled", "deadline", "ended", "disagrees"])
def test_a_plan_that_waits_for_other_ranks_ends_with_what_ends_the_collective(
    make: Any, ranks_server: Running, cause: str
) -> None:
    ranks = make(2)
    one, two = ranks
    first, second = planned(ranks, summing())
    if cause == "deadline":
        with pytest.raises(grpc.RpcError) as error:
            first.run(timeout=2)
        assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        time.sleep(0.5)  # the client's clock comes first, as a rule
        assert refused(second.run)[0] == "GROUP_BROKEN"
        return
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(refused, first.run)
        other = Rank(ranks_server, 0, 1)  # computes meanwhile
        assert other.read(other.make(np.ones(2, np.float32))).tolist() == [1, 1]
        time.sleep(0.2)
        other.end()
        assert not waiting.done()
        if cause == "cancelled":
            one.stub.Cancel(s.CancelRequest(session_id=one.session))
        elif cause == "ended":
            two.end()
        else:
            assert refused(lambda: two.ask("BARRIER"))[0] == "COLLECTIVE_MISMATCH"
        reason, _ = waiting.result(SECONDS)
    expected = {"cancelled": "CANCELLED", "disagrees": "COLLECTIVE_MISMATCH"}.get(cause, "GROUP_BROKEN")
    assert reason == expected
    if cause == "disagrees":  # the group is whole
        assert together(ranks, lambda rank: (first, second)[rank.rank].run()) == [[7, 7]] * 2
    elif cause == "cancelled":
        assert refused(second.run)[0] == "GROUP_BROKEN"


def test_ranks_that_cannot_form_a_group_are_refused(make: Any) -> None:
    one, two = make(2, joined=False)
    assert refused(lambda: one.ask("BARRIER")) == ("GROUP_BROKEN", "this session is in no group 'g'")
    assert refused(lambda: one.ask("JOIN", rank=2, size=2))[0] == "ARGUMENT_VALUE"
    assert refused(lambda: one.ask("JOIN", rank=0, size=5000))[0] == "ARGUMENT_VALUE"
    assert refused(lambda: one.ask("JOIN", "a\nb", rank=0, size=1))[0] == "ARGUMENT_VALUE"
    reason, message = refused(lambda: one.ask("JOIN", rank=0, size=2, timeout_ms=100))
    assert reason == "DEADLINE_EXCEEDED" and "for ranks 1 to join" in message
    found = together([one, two], lambda rank: refused(lambda: rank.ask("JOIN", rank=0, size=2)))
    assert {reason for reason, _ in found} == {"COLLECTIVE_MISMATCH"}
    assert "rank 0 of group 'g' has joined already" in found[0][1]
    found = together([one, two], lambda rank: refused(lambda: rank.ask("JOIN", rank=rank.rank, size=2 + rank.rank)))
    assert {reason for reason, _ in found} == {"COLLECTIVE_MISMATCH"}
    together([one, two], Rank.join)
    reason, message = refused(one.join)
    assert reason == "ARGUMENT_VALUE" and "is rank 0 of group 'g' already" in message


def test_memory_is_counted_limited_and_given_back(make: Any, servers: list[Running]) -> None:
    ranks = make(2)
    most = 1_000_000 if len(servers) == 1 else 2_200_000  # with what comes from the other server

    def work(rank: Rank) -> list[int]:
        value = rank.ones(100_000)
        before = rank.held()
        for _ in range(3):
            rank.ask("ALL_REDUCE", op="REDUCE_OP_AVG", inputs=[value])
        during = rank.held()
        rank.ask("LEAVE")
        return [before, during, rank.held()]

    for before, during, after in together(ranks, work):
        assert 2 * 400_000 <= during - before < most
        assert after == before


def test_other_sessions_compute_while_ranks_wait(make: Any, ranks_server: Running) -> None:
    one, two = make(2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.ask, "BARRIER")
        time.sleep(0.1)
        others = [Rank(ranks_server, 0, 1) for _ in range(3)]  # some of them in the same worker
        for other in others:
            assert other.read(other.make(np.ones(2, np.float32))).tolist() == [1, 1]
            other.end()
        assert not waiting.done()
        two.ask("BARRIER")
        waiting.result(SECONDS)


def test_a_file_that_its_process_has_closed_is_not_taken_for_the_one_that_got_its_number() -> None:
    memory = RankMemory(Account())
    where = location(memory.fd)
    PeerMemory(where).close()
    memory.close()
    other = os.memfd_create("other")
    try:
        os.dup2(other, where[1])
        with pytest.raises(FileNotFoundError, match="has closed the file"):
            PeerMemory(where)
        table = GroupTable(1, Account(), CancelToken(), Durability())
        table.joined["g"] = Membership("g", 7, 0, 2, RankMemory(Account()))
        message = {"sender": 1, "tag": 0, "about": "of float32 [2]", "size": 8, "file": where}
        found = table.take(7, message)
        assert found is not None and "has closed the file" in found.message
        found = table.take(7, {**message, "file": location(other)})  # it has no bytes
        assert found is not None and "lacks 8 bytes" in found.message
        assert not table.joined["g"].inbox
        table.clear()
    finally:
        os.close(where[1])
        if other != where[1]:
            os.close(other)


@pytest.mark.parametrize(("op", "dtype"), [("SUM", "float32"), ("AVG", "complex64"), ("MIN", "int64")])
def test_a_large_reduction_has_the_bits_of_the_ranks_order(make: Any, op: str, dtype: str) -> None:
    ranks = make(4)
    values = [(np.random.default_rng(rank).random(40_001) * 99 - 50).astype(dtype) for rank in range(4)]
    expected = np.empty_like(values[0])
    reduce_into(op.lower(), values, expected)

    def work(rank: Rank) -> bytes:
        parts = [rank.make(part) for part in np.array_split(values[rank.rank], 7)]
        rank.ask("ALL_REDUCE", op=f"REDUCE_OP_{op}", inputs=parts)
        return b"".join(rank.read(part).tobytes() for part in parts)

    assert together(ranks, work) == [expected.tobytes()] * 4


def test_a_broken_group_s_memory_is_given_back_at_once(make: Any) -> None:
    ranks = make(2)
    values = [rank.ones(100_000) for rank in ranks]
    before = ranks[0].held()
    together(ranks, lambda rank: rank.ask("ALL_REDUCE", op="REDUCE_OP_SUM", inputs=[values[rank.rank]]))
    assert ranks[0].held() > before
    ranks[1].end()
    until(lambda: ranks[0].held() == before, "the memory")


def test_random_orders_of_collectives_and_messages_agree(make: Any) -> None:
    ranks = make(4)

    def work(rank: Rank) -> list[Any]:
        random, mine, found = np.random.default_rng(7), np.random.default_rng(rank.rank), []
        for _ in range(25):
            kind, size = random.choice(["ALL_REDUCE", "BROADCAST", "SEND"]), int(random.integers(1, 2000))
            root = int(random.integers(4))
            value = rank.make(mine.random(size).astype(np.float32))
            if kind == "SEND":
                peer = (rank.rank + 1) % 4
                got = rank.make(np.zeros(size, np.float32))
                rank.ask("SEND", peer=peer, inputs=[value])
                rank.ask("RECV", peer=(rank.rank - 1) % 4, outputs=[got])
                rank.ask("ALL_REDUCE", op="REDUCE_OP_SUM", inputs=[got])
                value = got
            elif kind == "BROADCAST":
                rank.ask(kind, peer=root, inputs=[value])
            else:
                rank.ask(kind, op="REDUCE_OP_SUM", inputs=[value])
            found.append(rank.read(value).tobytes())
        return found

    assert len({tuple(each) for each in together(ranks, work)}) == 1


def test_a_killed_worker_tells_the_ranks_of_others(ranks_server: Running) -> None:
    """Ranks of the killed worker are gone; those of others get the reason, long before their calls' deadline."""
    if not ranks_server.workers:
        pytest.skip("the worker is a thread")
    ranks = [Rank(ranks_server, rank, 4) for rank in range(4)]
    together(ranks, Rank.join)
    entries = ranks_server.backend.registry.entries
    homes = [entries[rank.session].worker for rank in ranks]
    assert len(set(homes)) == 2
    dead = homes[3]
    left = [rank for rank, home in zip(ranks, homes, strict=True) if home is not dead]
    with ThreadPoolExecutor(len(left)) as pool:
        waiting = [pool.submit(refused, lambda rank=rank: rank.ask("BARRIER")) for rank in left]
        time.sleep(0.3)  # so that they wait, as a rule
        os.kill(dead._process.pid, signal.SIGKILL)
        for each in waiting:
            reason, message = each.result(SECONDS)
            assert reason == "GROUP_BROKEN" and "was ended by signal 9" in message
    for rank in left:
        rank.end()


@pytest.mark.parametrize("turn", range(4))
def test_a_worker_killed_amid_reductions_of_mapped_tensors_leaves_the_other_ranks_whole(
    ranks_server: Running, turn: int
) -> None:
    """The survivor has read memory that the killed worker shared. It hears why, and its session goes on."""
    if not ranks_server.workers:
        pytest.skip("the worker is a thread")
    entries = ranks_server.backend.registry.entries
    ranks = [Rank(ranks_server, 0, 2, group=f"killed {turn}")]
    homes = [entries[ranks[0].session].worker]

    def opened_elsewhere() -> bool:
        """Whether there is a session of another worker, which may have to start again first."""
        other = Rank(ranks_server, 1, 2, group=f"killed {turn}")
        homes[1:] = [entries[other.session].worker]
        if homes[1] is homes[0]:
            other.end()
            return False
        ranks.append(other)
        return True

    until(opened_elsewhere)
    together(ranks, Rank.join)
    numbers = together(ranks, lambda rank: rank.ones(1 << 22))  # 16 MiB, which move at the second reduction
    reduced: list[int] = []

    def reduce(rank: Rank) -> None:
        rank.ask("ALL_REDUCE", op="REDUCE_OP_SUM", inputs=[numbers[rank.rank]])
        reduced.append(rank.rank)

    for _ in range(3):
        together(ranks, reduce)
    with ThreadPoolExecutor(2) as pool:
        lost = pool.submit(lambda: [reduce(ranks[1]) for _ in range(1000)])
        left = pool.submit(refused, lambda: [reduce(ranks[0]) for _ in range(1000)])
        until(lambda: len(reduced) > 6 + 2 * turn)
        time.sleep(0.003 * turn)  # to hit another part of a reduction
        os.kill(homes[1]._process.pid, signal.SIGKILL)
        reason, message = left.result(SECONDS)
        assert lost.exception(SECONDS) is not None
    assert reason == "GROUP_BROKEN" and ("was ended by signal 9" in message or "No such process" in message)
    assert ranks[0].read(ranks[0].make(np.arange(3.0))).tolist() == [0, 1, 2]
    ranks[0].end()

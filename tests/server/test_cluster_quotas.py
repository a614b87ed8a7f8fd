"""Quotas of a cluster: a principal's limits count what its sessions hold at all servers."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import grpc
import pytest

from gradwire.v1 import service_pb2 as s
from gradwire_server.auth.tokens import Tokens
from gradwire_server.cluster.placement import SILENT_SECONDS
from gradwire_server.cluster.usage import Usage
from gradwire_server.common.limits import KIB, MIB, Limits
from gradwire_server.common.shared_counters import PrincipalTotals, SharedCounters
from gradwire_server.registry.cluster_quotas import HELD_SECONDS, TAKEN_OVER_SECONDS, ClusterQuotas
from gradwire_server.registry.gangs import gang_of
from gradwire_server.registry.principal_rows import PrincipalRows
from gradwire_server.registry.session_registry import SessionRegistry
from gradwire_server.worker_pool.worker import Worker
from tests.server.harness import Clock, Running, refused, running
from tests.server.test_principals import House
from tests.server.test_quotas import FULL_BYTES, make, opened, over

LIMITS = Limits(max_principal_bytes=1000, max_principal_compute_seconds=1.0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


# The Director's side.


def test_a_node_is_told_what_the_others_hold(clock: Clock) -> None:
    usage = Usage(clock)
    assert usage.report("a", {"alice": [1, 10, 2, 0, 100], "bob": [1, 1, 1, 1, 0]}) == {
        "alice": [0, 0, 0, 0, 0], "bob": [0, 0, 0, 0, 0],
    }  # fmt: skip
    assert usage.report("b", {"alice": [2, 30, 3, 1, 0]}) == {"alice": [1, 10, 2, 0, 0]}
    assert usage.report("a", {"alice": [1, 10, 2, 0, 100]}) == {"alice": [2, 30, 3, 1, 0]}, "of bob nothing is asked"
    usage.remove("b")
    assert usage.report("a", {"alice": [1, 10, 2, 0, 100]}) == {"alice": [0, 0, 0, 0, 0]}


def test_a_silent_node_s_sessions_are_not_counted(clock: Clock) -> None:
    usage = Usage(clock)
    usage.report("b", {"alice": [2, 30, 3, 1, 0]})
    clock.now += SILENT_SECONDS + 0.1
    assert usage.report("a", {"alice": [1, 0, 0, 0, 0]})["alice"][:2] == [0, 0]


def test_computed_time_only_grows_whatever_nodes_come_and_go(clock: Clock) -> None:
    usage = Usage(clock)
    found: list[int] = []

    def told() -> None:
        found.append(usage.report("a", {"alice": [1, 0, 0, 0, 5000]})["alice"][-1])

    usage.report("b", {"alice": [1, 0, 0, 0, 700]})
    told()
    usage.report("b", {"alice": [1, 0, 0, 0, 1000]})
    told()
    clock.now += SILENT_SECONDS + 0.1  # b is silent, then back
    told()
    usage.report("b", {"alice": [1, 0, 0, 0, 1100]})
    told()
    usage.report("b", {"alice": [1, 0, 0, 0, 50]})  # started again
    told()
    usage.remove("b")
    told()
    assert found == [0, 300, 300, 400, 450, 450]


def test_what_is_forgotten_leaves_nothing(clock: Clock) -> None:
    usage = Usage(clock)
    for number in range(100):
        usage.report("a", {f"p{number}": [1, 1, 1, 1, number]})
    usage.report("a", {})
    usage.remove("a")
    assert not (usage._by_principal or usage._computed or usage._grown or usage._reported)


# A server's side.


class Node:
    """A server's counters, without a server: one principal, alice, with some sessions."""

    def __init__(self, clock: Clock) -> None:
        self.counters = SharedCounters(2)
        self.rows = PrincipalRows(LIMITS, self.counters)
        self.registry: SessionRegistry[Worker] = SessionRegistry(LIMITS, clock)
        self.registry._owners["alice"] = 2
        self.row = self.rows.of("alice", lambda _: True)
        self.quotas = ClusterQuotas(self.counters, self.rows, self.registry, clock)

    def take(self, *told: int) -> PrincipalTotals:
        """What is counted after the other servers' sums were told."""
        self.quotas.take({"alice": told} if told else {})
        return self.counters.share(self.row)


def test_workers_see_what_is_held_elsewhere_and_report_only_what_is_here(clock: Clock) -> None:
    node = Node(clock)
    node.counters.set_share(1, node.row, PrincipalTotals(5, 1, 1, 10))
    assert node.take(3, 100, 20, 3, 0) == PrincipalTotals(105, 21, 4, 10)
    assert node.quotas.here() == {"alice": [2, 5, 1, 1, 10]}
    assert node.registry.elsewhere == {"alice": 3}
    assert node.take() == PrincipalTotals(5, 1, 1, 10)


def test_time_computed_elsewhere_before_the_first_report_is_not_charged(clock: Clock) -> None:
    node = Node(clock)
    assert [node.take(1, 0, 0, 0, told).computed for told in (9000, 9500, 200, 300)] == [0, 500, 500, 600]


def test_sums_hold_for_a_minute_without_the_director(clock: Clock) -> None:
    node = Node(clock)
    node.take(3, 100, 20, 3, 0)
    clock.now += HELD_SECONDS - 1
    node.quotas.here()
    assert node.counters.share(node.row).bytes == 100
    clock.now += 2
    node.quotas.here()
    assert node.counters.share(node.row).bytes == 0 and not node.registry.elsewhere


def test_a_session_that_was_taken_over_is_not_counted_twice(clock: Clock) -> None:
    node = Node(clock)
    node.take(3, 100, 20, 3, 0)
    node.quotas.took_over("alice")
    assert node.counters.share(node.row).bytes == 0 and not node.registry.elsewhere
    assert node.take(3, 100, 20, 3, 0).bytes == 0
    clock.now += TAKEN_OVER_SECONDS + 0.1
    assert node.take(3, 100, 20, 3, 0).bytes == 100


def test_a_reused_row_has_nothing_of_the_principal_before(clock: Clock) -> None:
    node = Node(clock)
    node.take(3, 100, 20, 3, 0)
    node.rows._reclaim(lambda _: False)
    assert node.rows.of("bob", lambda _: True) == node.row
    assert node.counters.share(node.row) == PrincipalTotals()


@pytest.fixture
def limited(house: House) -> Iterator[Running]:
    with running(0, tokens=Tokens(house.path), max_principal_sessions=3, max_principal_bytes=MIB) as started:
        yield started


def test_a_server_refuses_what_passes_a_limit_together_with_the_others(limited: Running, house: House) -> None:
    alice, bob = house.metadata("alice"), house.metadata("bob")
    first = opened(limited, alice)

    async def take(elsewhere: Mapping[str, Sequence[int]]) -> None:
        limited.backend.cluster_quotas.take(elsewhere)

    limited.do(take({"alice": [2, 768 * KIB, 0, 0, 0]}))
    assert over(limited, first, alice, 512 * KIB) == FULL_BYTES
    make(limited, first, alice, 128 * KIB)
    refusal = refused(limited.stub.OpenSession, s.OpenSessionRequest(), metadata=alice)
    assert refusal[:2] == ("RESOURCE_EXHAUSTED", "SESSION_LIMIT")
    make(limited, opened(limited, bob), bob, 512 * KIB)
    limited.do(take({}))
    make(limited, opened(limited, alice), alice, 512 * KIB)
    assert limited.backend.cluster_quotas.here()["alice"][:2] == [2, 640 * KIB]


def test_reserved_places_of_other_gangs_count_to_the_limit(limited: Running, house: House) -> None:
    alice = house.metadata("alice")
    keys = [gang_of(s.OpenSessionRequest(gang=name, gang_size=3), "alice")[0] for name in "gh"]

    async def take(*told: object) -> None:
        limited.backend.cluster_quotas.take({"alice": [0, 0, 0, 0, 0, *told]})

    def open_in(gang: str) -> str:
        request = s.OpenSessionRequest(gang=gang, gang_size=3 if gang else 0)
        return limited.stub.OpenSession(request, metadata=alice).session_id

    limited.do(take({keys[0]: 2}))
    open_in("")
    with pytest.raises(grpc.RpcError, match="has 1 sessions, and its limit is 3; 2 more are reserved for its gangs"):
        open_in("h")
    open_in("g")  # takes one of the places
    assert limited.backend.registry.gangs.reserved == {"alice": {keys[0]: 1}}
    refused(limited.stub.OpenSession, s.OpenSessionRequest(), metadata=alice)
    limited.do(take({}))
    open_in("")
    limited.do(take())
    assert limited.backend.registry.gangs.reserved == {}


def test_nothing_is_reported_without_limits() -> None:
    asyncio.run(_reports_nothing())


async def _reports_nothing() -> None:
    limits, counters, clock = Limits(), SharedCounters(1), Clock()
    registry: SessionRegistry[Worker] = SessionRegistry(limits, clock)
    registry._owners["alice"] = 2
    assert ClusterQuotas(counters, PrincipalRows(limits, counters), registry, clock).here() == {}

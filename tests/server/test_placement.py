"""Placement of sessions on nodes, by a clock that the test moves; and the socket between a server and its node."""

import asyncio
import json
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gradwire.v1 import service_pb2
from gradwire_server.auth.principals import CALLER
from gradwire_server.cluster.director import Director
from gradwire_server.cluster.node import Node
from gradwire_server.cluster.placement import SILENT_SECONDS, Learning, Load, NoRoom, Placement
from gradwire_server.common.errors import Refusal
from gradwire_server.registry import placement as client
from gradwire_server.registry.gangs import MOST_REPORTED, REPORTED_SECONDS, gang_of
from gradwire_server.registry.placement import GangRefused, PlacementClient
from gradwire_server.registry.session_registry import SessionRegistry
from gradwire_server.registry.thread_backend import InProcessBackend
from tests.server.harness import LIMITS, Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def three(clock: Clock) -> Placement:
    return placement(clock)


def placement(clock: Clock, **load: Any) -> Placement:
    """A Director's places, some seconds after it began, with three nodes."""
    found = Placement(clock)
    clock.now += 2
    for name in "abc":
        found.report(f"{name}:1", Load(workers=2, **load))
    return found


def test_sessions_are_spread_evenly_between_reports(three: Placement) -> None:
    chosen = [three.choose("a:1") for _ in range(200)]
    counts = sorted(chosen.count(f"{name}:1") for name in "abc")
    assert counts == [66, 67, 67]


def test_sessions_are_spread_evenly_over_seconds_of_reports(three: Placement, clock: Clock) -> None:
    """Nodes report what they hold: placed sessions appear there, and are then counted twice for a while."""
    held = dict.fromkeys(("a:1", "b:1", "c:1"), 0)
    for number in range(200):
        held[three.choose("b:1")] += 1
        clock.now += 0.03
        if number % 17 == 0:
            for endpoint, sessions in held.items():
                three.report(endpoint, Load(sessions=sessions, workers=2))
    assert max(held.values()) - min(held.values()) <= 0.1 * 200 / 3


def test_more_workers_get_more_sessions(three: Placement) -> None:
    three.report("c:1", Load(workers=6))
    chosen = [three.choose("a:1") for _ in range(100)]
    assert chosen.count("c:1") == 60


def test_a_full_node_comes_last(three: Placement) -> None:
    three.report("a:1", Load(workers=2, bytes=95, max_bytes=100))
    three.report("b:1", Load(workers=2, sessions=50))
    three.report("c:1", Load(workers=2, sessions=60))
    assert three.choose("a:1") == "b:1"
    for name in "bc":
        three.remove(f"{name}:1")
    assert three.choose("b:1") == "a:1"


def test_between_equals_the_asking_node_opens_the_session(three: Placement) -> None:
    assert three.choose("b:1") == "b:1"
    assert three.choose("b:1") != "b:1"


def test_a_session_gets_a_node_with_the_device_that_it_needs(three: Placement) -> None:
    three.report("c:1", Load(sessions=50, device_types=("cpu", "cuda")))
    assert three.choose("a:1", "cuda") == "c:1"
    assert three.choose("a:1", "tpu") == ""
    three.report("a:1", Load(sessions=90)), three.report("b:1", Load(sessions=90))
    assert three.choose("a:1", "cpu") == "a:1", "devices are left to those who need them"
    assert three.choose("a:1") == "c:1"


def test_a_report_of_a_newer_version_is_read() -> None:
    assert Load.of({"sessions": 2, "colour": "red", "device_types": ["cpu", "cuda"]}) == Load(
        sessions=2, device_types=("cpu", "cuda")
    )


def test_silent_and_draining_nodes_get_no_sessions(three: Placement, clock: Clock) -> None:
    clock.now += SILENT_SECONDS + 0.1
    assert three.choose("a:1") == ""
    three.report("b:1", Load())
    three.report("c:1", Load(draining=True))
    assert {three.choose("a:1") for _ in range(5)} == {"b:1"}
    assert [round(age, 1) for _, age in three.nodes().values()] == [3.1, 0.0, 0.0]


# Gangs.


def places(placement: Placement, gang: str, size: int, asking: str = "a:1") -> list[str]:
    return [placement.choose_for_gang(asking, "", gang, size) for _ in range(size)]


def test_a_gang_is_spread_and_neighbours_are_at_one_node(three: Placement) -> None:
    assert places(three, "g", 6) == ["a:1", "a:1", "b:1", "b:1", "c:1", "c:1"]
    three.report("c:1", Load(workers=8))
    assert places(three, "h", 6, asking="c:1").count("c:1") >= 4


def test_a_gang_has_room_for_all_or_is_refused(three: Placement, clock: Clock) -> None:
    for name, sessions in zip("abc", (9, 8, 10), strict=True):
        three.report(f"{name}:1", Load(workers=2, sessions=sessions, max_sessions=10))
    with pytest.raises(NoRoom, match="room for 3 of the gang's 4 sessions"):
        three.choose_for_gang("a:1", "", "four", 4)
    assert sorted(places(three, "three", 3)) == ["a:1", "b:1", "b:1"]  # what the refused one took is free again
    with pytest.raises(NoRoom, match="room for 0 of the gang's 1 sessions"):
        three.choose_for_gang("a:1", "", "one", 1)
    three.report("c:1", Load(workers=2, bytes=95, max_bytes=100))
    clock.now += 2.5
    with pytest.raises(NoRoom):  # a node whose bytes are nearly used has no room
        three.choose_for_gang("a:1", "", "four", 4)


def test_sessions_that_were_opened_are_not_counted_twice(three: Placement) -> None:
    for name in "abc":
        three.report(f"{name}:1", Load(workers=2, max_sessions=4, opened=7))
    assert len(places(three, "g", 6)) == 6
    for name in "abc":
        three.report(f"{name}:1", Load(workers=2, max_sessions=4, opened=9, sessions=2))
    assert len(places(three, "h", 6)) == 6
    with pytest.raises(NoRoom):
        three.choose_for_gang("a:1", "", "i", 1)


def test_two_gangs_that_ask_in_turns_do_not_share_places(three: Placement) -> None:
    for name in "abc":
        three.report(f"{name}:1", Load(workers=2, max_sessions=2))
    taken = [three.choose_for_gang("a:1", "", gang, 3) for _ in range(3) for gang in ("g", "h")]
    assert sorted(taken) == sorted(["a:1", "b:1", "c:1"] * 2)
    with pytest.raises(NoRoom):
        three.choose_for_gang("a:1", "", "i", 1)


def test_places_that_no_session_takes_are_free_after_a_while(three: Placement, clock: Clock) -> None:
    def report() -> None:
        for name in "abc":
            three.report(f"{name}:1", Load(workers=2, max_sessions=1))

    report()
    three.choose_for_gang("a:1", "", "g", 3)
    with pytest.raises(NoRoom):
        three.choose_for_gang("a:1", "", "h", 1)
    clock.now += 31
    report()
    assert len(set(places(three, "h", 3))) == 3


def test_a_lost_node_s_places_move_and_later_calls_are_ordinary(three: Placement, clock: Clock) -> None:
    assert three.choose_for_gang("a:1", "", "g", 3) == "a:1"
    three.remove("b:1")
    assert {three.choose_for_gang("a:1", "", "g", 3) for _ in range(2)} <= {"a:1", "c:1"}
    assert three.choose_for_gang("a:1", "", "g", 3) in ("a:1", "c:1")
    assert three.choose_for_gang("a:1", "cuda", "h", 2) == ""
    three.choose_for_gang("a:1", "", "i", 4)
    for name in "ac":
        three.report(f"{name}:1", Load(draining=True))
    with pytest.raises(NoRoom, match="a node was lost"):
        three.choose_for_gang("a:1", "", "i", 4)


def test_a_node_that_returns_has_the_places_that_gangs_reserved_there(three: Placement) -> None:
    three.choose_for_gang("a:1", "", "g", 6)
    three.remove("b:1")
    three.report("b:1", Load(workers=2, max_sessions=3))
    three.remove("a:1")
    three.remove("c:1")
    with pytest.raises(NoRoom, match="room for 1 of"):
        three.choose_for_gang("b:1", "", "h", 2)


def test_late_sessions_of_a_gang_need_room_for_themselves_only(three: Placement, clock: Clock) -> None:
    def report(sessions: int, gang: str = "g") -> None:
        for name in "ab":
            three.report(f"{name}:1", Load(max_sessions=1, sessions=sessions, gangs={gang: sessions}))
        three.report("c:1", Load(max_sessions=1))

    report(0)
    assert len({three.choose_for_gang("a:1", "", "g", 3) for _ in range(2)}) == 2
    clock.now += 31
    report(1)
    assert three.choose_for_gang("a:1", "", "g", 3) == "c:1"
    with pytest.raises(NoRoom):
        three.choose_for_gang("a:1", "", "h", 1)
    clock.now += 31
    report(0)
    assert len(set(places(three, "h", 3))) == 3


def test_a_new_director_learns_the_gangs_that_are_being_opened(three: Placement, clock: Clock) -> None:
    first = [three.choose_for_gang("a:1", "", "g", 6) for _ in range(4)]
    assert first == ["a:1", "a:1", "b:1", "b:1"]
    new = Placement(clock)
    new.report("a:1", Load(workers=2, max_sessions=2, sessions=2, gangs={"g": 2}))
    with pytest.raises(Learning):  # the others may have some of its sessions
        new.choose_for_gang("a:1", "", "g", 6)
    clock.now += 1.1
    for name, sessions in zip("abc", (2, 2, 0), strict=True):
        load = Load(workers=2, max_sessions=2, sessions=sessions, draining=name == "b", gangs={"g": sessions})
        new.report(f"{name}:1", load)
    assert [new.choose_for_gang("a:1", "", "g", 6) for _ in range(2)] == ["c:1", "c:1"]
    for name in "abc":
        new.report(f"{name}:1", Load(workers=2, max_sessions=3, sessions=2, gangs={"g": 2}))
    assert new.choose_for_gang("a:1", "", "g", 6) == "a:1", "the gang is whole: another session is placed as any"
    clock.now += 31
    for name in "abc":
        new.report(f"{name}:1", Load(workers=2, max_sessions=2, sessions=2, gangs={"g": 2}))
    assert new.choose_for_gang("a:1", "", "g", 6) == "a:1", "nothing is reserved where nothing is missing"


def test_nothing_is_left_of_gangs_in_the_end(three: Placement, clock: Clock) -> None:
    for index in range(50):
        three.choose_for_gang("a:1", "", f"gang {index}", 2, f"principal {index % 3}")
    clock.now += 31
    three.choose("a:1")
    assert not three._gangs and not three._of_principal and not +three._reserved


def test_reserved_places_count_to_the_limit_of_their_principal(three: Placement, clock: Clock) -> None:
    def ask(gang: str, size: int, principal: str = "alice", room: int | None = 8) -> str:
        return three.choose_for_gang("a:1", "", gang, size, principal, room)

    assert ask("g", 6)
    with pytest.raises(NoRoom, match=r"needs 4 places, 5 are reserved for other gangs .* limit of sessions leaves 8"):
        ask("h", 4)
    assert three.reserved("alice") == {"g": 5}
    assert ask("h", 3) and ask("i", 4, "bob")
    assert three.reserved("alice") == {"g": 5, "h": 2}
    with pytest.raises(NoRoom, match="leaves 0"):
        ask("j", 1, room=-3)
    clock.now += 31
    for name in "abc":
        three.report(f"{name}:1", Load(workers=2))
    assert ask("k", 8)


def test_a_principal_without_a_limit_cannot_reserve_all_places(three: Placement) -> None:
    for gang in ("g", "h"):
        three.choose_for_gang("a:1", "", gang, 1024, "alice")
    with pytest.raises(NoRoom, match=r"needs 3 places, 2046 are reserved .* and the limit is 2048"):
        three.choose_for_gang("a:1", "", "i", 3, "alice")
    assert three.choose_for_gang("a:1", "", "i", 3, "bob")
    for index in range(1000):
        three.choose_for_gang("a:1", "", f"one {index}", 1, "carol")
    with pytest.raises(NoRoom, match="opens 1000 gangs already"):
        three.choose_for_gang("a:1", "", "one more", 1, "carol")


def test_a_large_gang_is_placed_in_time(clock: Clock) -> None:
    """The Director is one thread, and a front waits for it for 0.8 seconds."""
    placement = Placement(clock)
    clock.now += 2
    for index in range(500):
        placement.report(f"n{index}:1", Load(max_sessions=1000))
    began = time.process_time()
    placement.choose_for_gang("n0:1", "", "g", 1024)
    assert time.process_time() - began < 0.4


def test_the_director_tells_why_a_gang_is_refused() -> None:
    director = Director()

    def ask(gang: str, size: int) -> tuple[str | None, str]:
        return director.place_in_gang("a:1", "", json.dumps(["alice", gang]), size)

    load = {"sessions": 0, "workers": 1, "max_sessions": 6, "max_principal_sessions": 5, "gangs": {}}
    assert ask("g", 2) == ("", "")
    director.report("a:1", load)
    assert ask("g", 2) == (None, ""), "it is new, and does not know all nodes"
    director._placement._began -= 2
    assert ask("g", 7)[1].startswith("the gang needs 7 places, 0 are reserved") and ask("g", 2) == ("a:1", "")
    assert director.report("a:1", load, {"alice": [0, 1, 2, 3, 4]}) == {"alice": [0, 0, 0, 0, 0, {"g": 1}]}
    assert director.report("b:1", {}, {"alice": [3, 0, 0, 0, 0]}) == {"alice": [0, 1, 2, 3, 0]}, "of a node of before"
    assert "limit of sessions leaves 2" in ask("h", 2)[1] and ask("h", 1) == ("b:1", "")
    assert director.nodes()["a:1"]["gangs"] == {}


def test_a_refused_gang_is_told_to_the_client(tmp_path: Path) -> None:
    async def use(asking: PlacementClient) -> None:
        with pytest.raises(GangRefused, match="no room"):
            await asking.choose("", "g", 3)
        backend = InProcessBackend(LIMITS)
        backend.placement = asking
        wrong = [("g", 0), ("g", 1025), ("g" * 257, 2)]
        for gang, size, reason in [("g", 3, "SESSION_LIMIT"), *((*each, "ARGUMENT_VALUE") for each in wrong)]:
            request = service_pb2.OpenSessionRequest(follows_endpoint=True, gang=gang, gang_size=size)
            with pytest.raises(Refusal) as refused:
                await backend._endpoint_for(request)
            assert refused.value.reason == reason

    received = asyncio.run(_with_node(tmp_path / "socket", {"refused": "no room"}, use))
    asked = [each for each in received if "place" in each]
    name = CALLER.get().name
    key, _ = gang_of(service_pb2.OpenSessionRequest(gang="g", gang_size=3), name)
    assert [(each["gang"], each["size"]) for each in asked] == [("g", 3), (json.dumps([name, key]), 3)]


def test_gangs_that_are_opened_here_are_reported(clock: Clock) -> None:
    registry: SessionRegistry[None] = SessionRegistry(replace(LIMITS, max_sessions=2000), clock)

    def opened(gang: str) -> Any:
        return registry.open(service_pb2.OpenSessionRequest(gang=gang, gang_size=3), lambda: None)

    key, _ = gang_of(service_pb2.OpenSessionRequest(gang="g", gang_size=3), CALLER.get().name)
    one, _, _ = opened("g"), opened("g"), opened("")
    assert registry.gangs.report() == {key: 2}
    registry.remove(one)
    assert registry.gangs.report() == {key: 1}
    clock.now += REPORTED_SECONDS + 1
    others = [opened(f"other {index}") for index in range(MOST_REPORTED + 1)]
    assert len(registry.gangs.report()) == MOST_REPORTED and key not in registry.gangs.report()
    for each in others:
        registry.remove(each)
    assert list(registry.gangs._open) == [key]
    registry.empty()
    assert not registry.gangs._open


def test_a_director_that_does_not_answer_is_not_asked_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    node, asked = object.__new__(Node), []
    node._director_away_until = 0.0

    def get(answer: str, timeout: float) -> str:
        asked.append(answer)
        if answer == "none":
            raise ray.exceptions.GetTimeoutError
        return answer

    monkeypatch.setattr(ray, "get", get)
    told = [node._told(partial(str, each), "here") for each in ("a", "none", "b", "c")]
    assert told == ["a", "here", "here", "here"]
    assert asked == ["a", "none"]
    node._director_away_until -= 10
    assert node._told(lambda: "d", "here") == "d"


# A server's side of the socket.


def test_questions_do_not_pile_up_if_nothing_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_ANSWER_SECONDS", 0.02)

    async def ask() -> int:
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()
            await ended.wait()
            writer.close()

        server = await asyncio.start_unix_server(serve, tmp_path / "socket")
        asking = PlacementClient(str(tmp_path / "socket"), "a:1")
        asking.start(lambda: {"sessions": 3})
        while asking._writer is None:
            await asyncio.sleep(0.01)
        for _ in range(40):
            await asyncio.gather(*(asking.choose("", "g" * 200, 2) for _ in range(100)))
        held = asking._writer.transport.get_write_buffer_size()
        await asking.stop()
        ended.set()
        server.close()
        return held

    assert asyncio.run(ask()) < 1 << 17


async def _with_node(path: Path, answers: dict[str, Any], use: Any) -> list[dict[str, Any]]:
    """Run `use` with a client of a socket that answers so; what the socket received."""
    received: list[dict[str, Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            received.append(json.loads(line))
            if "load" not in received[-1] and answers:
                writer.write(json.dumps({**received[-1], **answers}).encode() + b"\n")
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    asking = PlacementClient(str(path), "a:1")
    asking.start(lambda: {"sessions": 3})
    while asking._writer is None:
        await asyncio.sleep(0.01)
    await use(asking)
    await asking.stop()
    server.close()
    return received


@pytest.mark.parametrize(("endpoint", "chosen"), [("b:1", "b:1"), ("a:1", ""), ("", "")])
def test_a_server_asks_for_the_node_of_a_session(tmp_path: Path, endpoint: str, chosen: str) -> None:
    async def use(asking: PlacementClient) -> None:
        assert await asking.choose() == chosen

    received = asyncio.run(_with_node(tmp_path / "socket", {"endpoint": endpoint}, use))
    assert {"load": {"sessions": 3}} in received
    assert {"place": 1, "device_type": ""} in received


def test_administrators_see_the_nodes_of_the_cluster(tmp_path: Path) -> None:
    placement = Placement()
    load = Load(3, 2, 1, 5, 9, draining=True, device_types=("cpu", "cuda"), version="1.2.3", metrics="b:9464")
    placement.report("b:1", load)
    # A field that this version does not know is left out.
    found = {name: {**asdict(load), "silent": 0.25, "new": 1} for name, (load, _) in placement.nodes().items()}
    answers: list[service_pb2.ListSessionsResponse] = []

    async def use(asking: PlacementClient) -> None:
        backend = InProcessBackend(LIMITS)
        backend.placement = asking
        requests = [service_pb2.ListSessionsRequest(nodes=nodes) for nodes in (True, False)]
        answers.extend([await backend.list_sessions(each) for each in requests])

    asyncio.run(_with_node(tmp_path / "socket", {"found": found}, use))
    assert list(answers[0].nodes) == [
        service_pb2.ClusterNode(
            endpoint="b:1",
            sessions=3,
            workers=2,
            gpus=1,
            bytes=5,
            max_bytes=9,
            draining=True,
            silent_ms=250,
            device_types=("cpu", "cuda"),
            version="1.2.3",
            metrics="b:9464",
        )
    ]
    assert not answers[1].nodes


def test_what_principals_hold_is_exchanged(tmp_path: Path) -> None:
    taken = asyncio.Event()

    class Exchange:
        def here(self) -> dict[str, list[int]]:
            return {"alice": [1, 2, 3, 4, 5]}

        def take(self, elsewhere: Any) -> None:
            assert elsewhere == {"alice": [9, 8, 7, 6, 5]}
            taken.set()

    async def exchange() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            told = json.loads(await reader.readline())
            assert told == {"load": {"sessions": 3}, "usage": {"alice": [1, 2, 3, 4, 5]}}
            writer.write(json.dumps({"elsewhere": {"alice": [9, 8, 7, 6, 5]}}).encode() + b"\n")
            await taken.wait()
            writer.close()

        server = await asyncio.start_unix_server(serve, tmp_path / "socket")
        asking = PlacementClient(str(tmp_path / "socket"), "a:1")
        asking.start(lambda: {"sessions": 3}, Exchange())
        await asyncio.wait_for(taken.wait(), 60)
        await asking.stop()
        server.close()

    asyncio.run(exchange())


def test_a_session_is_opened_here_if_the_node_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_ANSWER_SECONDS", 0.05)

    async def use(asking: PlacementClient) -> None:
        assert await asking.choose() == ""

    asyncio.run(_with_node(tmp_path / "socket", {}, use))
    assert asyncio.run(PlacementClient(str(tmp_path / "none"), "a:1").choose()) == ""

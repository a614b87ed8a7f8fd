"""A worker's messages about groups: answers find their futures, news reach the session that they are about."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from gradwire_server.common.errors import Refusal
from gradwire_server.worker.group_channel import GroupChannel


class Groups:
    """A session's groups, which note what they are told."""

    def __init__(self, refusal: Refusal | None = None) -> None:
        self.told: list[Any] = []
        self.refusal = refusal

    def mark_broken(self, group: int, refusal: Refusal) -> None:
        self.told.append((group, refusal.reason))

    def take(self, group: int, message: Any) -> Refusal | None:
        self.told.append((group, message))
        return self.refusal


@pytest.fixture
def sent() -> list[tuple[int, Any]]:
    return []


@pytest.fixture
def groups() -> Groups:
    return Groups()


@pytest.fixture
def channel(sent: list[tuple[int, Any]], groups: Groups) -> GroupChannel:
    sessions: Any = {7: SimpleNamespace(groups=groups)}
    return GroupChannel(lambda session, raw: sent.append((session, json.loads(raw))), sessions)


def received(channel: GroupChannel, **message: Any) -> None:
    channel.receive(json.dumps(message).encode())


def test_answers_in_any_order_find_the_request(channel: GroupChannel, sent: list[tuple[int, Any]]) -> None:
    one, other = channel.ask(7, "join", group="g"), channel.ask(7, "arrive", group=3)
    assert sent == [(7, {"do": "join", "token": 1, "group": "g"}), (7, {"do": "arrive", "token": 2, "group": 3})]
    received(channel, token=2, refusal=["GROUP_BROKEN", "rank 1 is gone", {"rank": "1"}])
    received(channel, token=1, answer={"group": 3})
    assert one.result(0) == {"group": 3}
    with pytest.raises(Refusal, match="rank 1 is gone") as refused:
        other.result(0)
    assert (refused.value.reason, refused.value.metadata) == ("GROUP_BROKEN", {"rank": "1"})
    received(channel, token=1, answer={})  # late: nobody waits
    received(channel, token=9, answer={})


def test_the_news_of_a_broken_group_reach_the_session(channel: GroupChannel, groups: Groups) -> None:
    received(channel, session=7, group=3, refusal=["GROUP_BROKEN", "rank 0 is gone", {}])
    received(channel, session=8, group=3, refusal=["GROUP_BROKEN", "rank 0 is gone", {}])  # it has ended
    assert groups.told == [(3, "GROUP_BROKEN")]


@pytest.mark.parametrize("refused", [False, True])
def test_the_sender_hears_whether_its_values_were_taken(
    refused: bool, channel: GroupChannel, groups: Groups, sent: list[tuple[int, Any]]
) -> None:
    groups.refusal = Refusal("MEMORY_LIMIT", "full") if refused else None
    received(channel, session=7, group=3, number=5, message={"tag": 1})
    expected = {"refusal": ["MEMORY_LIMIT", "full", {}]} if refused else {}
    assert sent == [(7, {"do": "took", "message": 5, **expected})]
    assert groups.told == [(3, {"tag": 1})]


def test_values_for_a_session_that_ended_are_refused(channel: GroupChannel, sent: list[tuple[int, Any]]) -> None:
    received(channel, session=8, group=3, number=5, message={})
    ((_, told),) = sent
    assert told["refusal"][0] == "GROUP_BROKEN"

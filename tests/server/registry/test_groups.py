"""Groups at the front: they form when all ranks have joined, and a rank that does not fit is refused by name."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from gradwire_server.registry.groups import Groups


class Worker:
    """A worker that keeps what it is told."""

    alive = True

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def tell(self, method: str, raw: bytes) -> None:
        assert method == "Group"
        self.told.append(json.loads(raw))


class Front:
    """The groups of three sessions, of two principals."""

    def __init__(self) -> None:
        self.worker: Any = Worker()
        owners = {1: "ada", 2: "ada", 3: "bob"}
        self.entries: dict[int, Any] = {number: _Entry(number, owner, self.worker) for number, owner in owners.items()}
        self.groups = Groups(self.entries.get)

    def join(self, session: int, rank: int, size: int = 2, group: str = "g") -> list[dict[str, Any]]:
        """Join, and take what the worker was told since."""
        fields = {"do": "join", "token": session, "group": group, "rank": rank, "size": size}
        fields |= {"timeout": 60_000, "grace": 20, "file": [10 + session, 20 + session, 30 + session]}
        self.groups.received(self.worker, session, json.dumps(fields).encode())
        told, self.worker.told = self.worker.told, []
        return told  # type: ignore[no-any-return]


class _Entry(SimpleNamespace):
    def __init__(self, number: int, owner: str, worker: Any) -> None:
        super().__init__(number=number, owner=owner, worker=worker, id=str(number))

    __hash__ = object.__hash__  # type: ignore[assignment]


def within(use: Any) -> None:
    async def whole() -> None:
        use(Front())

    asyncio.run(whole())


def test_a_group_forms_when_all_ranks_have_joined() -> None:
    def use(front: Front) -> None:
        assert front.join(1, 0) == []
        assert front.join(3, 1) == []  # another principal's group of the same name
        told = front.join(2, 1)
        assert [(each["token"], each["answer"]["files"]) for each in told] == [
            (1, [[11, 21, 31], [12, 22, 32]]), (2, [[11, 21, 31], [12, 22, 32]])
        ]  # fmt: skip

    within(use)


@pytest.mark.parametrize(
    ("rank", "size", "why"), [(0, 2, "has joined already"), (1, 3, "says that group 'g' has 3 ranks")]
)
def test_a_rank_that_does_not_fit_breaks_the_group_before_it_forms(rank: int, size: int, why: str) -> None:
    def use(front: Front) -> None:
        front.join(1, 0)
        told = front.join(2, rank, size)
        assert sorted(each["token"] for each in told if "token" in each) == [1, 2]
        assert all(each["refusal"][0] in ("COLLECTIVE_MISMATCH", "GROUP_BROKEN") for each in told)
        assert why in next(each["refusal"][1] for each in told if each.get("token") == 2)
        assert front.join(1, 0) == []  # the name is free

    within(use)


def test_a_message_about_an_ended_group_is_refused() -> None:
    def use(front: Front) -> None:
        front.groups.received(front.worker, 1, json.dumps({"do": "arrive", "token": 4, "group": 9}).encode())
        ((told,)) = front.worker.told
        assert (told["token"], told["refusal"][0]) == (4, "GROUP_BROKEN")

    within(use)


def test_a_message_to_a_rank_that_is_gone_is_refused_to_its_sender() -> None:
    """Also if the receiver's worker ended and never tells that it took the message."""

    def use(front: Front) -> None:
        front.join(1, 0)
        (group,) = {each["answer"]["group"] for each in front.join(2, 1)}
        sent = {"do": "send", "token": 5, "group": group, "to": 1, "timeout": 0, "message": {}}
        front.groups.received(front.worker, 1, json.dumps(sent).encode())
        front.groups.session_ended(front.entries[2], "its worker was ended by signal 9")
        refused = [each for each in front.worker.told if each.get("token") == 5]
        assert [each["refusal"][0] for each in refused] == ["GROUP_BROKEN"]
        assert not front.groups._relayed

    within(use)


def test_a_rank_whose_stream_comes_and_goes_is_gone_after_the_last_grace_only() -> None:
    """A grace that began at an earlier loss of connection must not end a rank that was connected since."""

    async def whole() -> None:
        front = Front()
        front.join(1, 0)
        front.join(2, 1)
        loop, entry = asyncio.get_running_loop(), front.entries[1]
        front.groups.stream_opened("1")
        front.groups.stream_closed("1", entry)
        first = front.groups._graces["1"]
        front.groups.stream_opened("1")
        assert first.cancelled() and not front.groups._graces
        front.groups.stream_closed("1", entry)
        second = front.groups._graces["1"]
        assert second.when() >= first.when()
        ended = loop.create_future()
        front.worker.tell = lambda *_: ended.done() or ended.set_result(loop.time())
        assert await asyncio.wait_for(ended, 30) >= second.when() - 0.001
        assert not front.groups._graces

    asyncio.run(whole())

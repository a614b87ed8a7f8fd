"""Templates: steps that are found by their bytes are those that parsing finds, whatever the bytes are."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2
from gradwire_server.common.errors import Refusal
from gradwire_server.session import batch
from gradwire_server.session.prepared.templates import Found, Templates
from tests.server.harness import command
from tests.server.session.test_repeated_steps import Side, seen
from tests.server.session.test_steps import SEED, Pair


class Loop(Pair):
    """A pair whose batches have several steps; `found` counts those that bytes told and that ran whole."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int = SEED) -> None:
        super().__init__(seed, monkeypatch)
        self.found: list[int] = []
        run = batch.run_found

        def counted(session: Any, writer: Any, found: Found, released: Any) -> Any:
            done = yield from run(session, writer, found, released)
            self.found.append(done)
            return done

        monkeypatch.setattr(batch, "run_found", counted)

    def batch(self, count: int = 3) -> list[service_pb2.Command]:
        """Several steps, whose tensors the last command releases."""
        parts = [self.commands() for _ in range(count)]
        ids = [each for part in parts for each in part[-1].release.tensors]
        return [*(one for part in parts for one in part[:-1]), command(c.ReleaseRequest(tensors=ids), quiet=True)]

    def raw(self, commands: list[service_pb2.Command]) -> bytes:
        """The bytes of the next batch of both sides."""
        request = service_pb2.RunRequest(writer=1, first_seq=self.plain.seq + 1, commands=commands)
        return request.SerializeToString()

    def apply(self, raw: bytes) -> Any:
        """Apply bytes on both sides, and compare what comes back and the states."""
        answers: list[Any] = []
        for side in self.sides:
            side.ticket += 1
            try:
                answers.append(side.apply(raw))
            except (Refusal, DecodeError, batch.OutOfOrder) as error:
                answers.append(repr(error))
            side.seq = side.session.writers[1].applied
        assert answers[0] == answers[1]
        assert seen(self.plain) == seen(self.joining)
        return answers[0]


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    """A loop whose step has a template."""
    made = Loop(monkeypatch)
    for _ in range(12):
        made.step(made.batch())
        if made.found:
            return made
    raise AssertionError("no step was found")


def test_all_steps_of_a_batch_are_found(loop: Loop) -> None:
    loop.found.clear()
    for count in (1, 2, 7):
        loop.step(loop.batch(count))
    whole = len(loop.joining.session.templates._held[0].known.kinds)
    assert loop.found == [whole] * 10


def test_other_commands_stand_between_steps(loop: Loop) -> None:
    loop.found.clear()
    commands = loop.batch(3)
    length = (len(commands) - 1) // 3
    read = command(c.ReadRequest(tensor=2), quiet=False)
    graph = command(c.DescribeRequest(tensors=[2]), quiet=False)
    answer = loop.step([read, *commands[:length], read, *commands[length : 2 * length], graph, *commands[2 * length :]])
    assert len(loop.found) == 3
    assert [each.seq - loop.plain.seq for each in service_pb2.RunResponse.FromString(answer).results]


def test_a_step_that_is_cut_is_not_found(loop: Loop) -> None:
    loop.found.clear()
    commands = loop.batch(2)
    for cut in range(1, len(commands) - 1, 3):
        loop.step([*commands[:cut], command(c.ReleaseRequest(), quiet=True)])
        loop.step([*commands[cut:-1], commands[-1]])
        commands = loop.batch(2)


@pytest.mark.parametrize("seed", range(60))
def test_changed_bytes_are_what_parsing_makes_of_them(loop: Loop, seed: int) -> None:
    pick = random.Random(seed)
    raw = bytearray(loop.raw(loop.batch(2)))
    for _ in range(pick.randrange(1, 4)):
        raw[pick.randrange(len(raw))] = pick.choice([0, 1, 2, 8, 0x32, 0x7F, 0x80, 0xFF, pick.randrange(256)])
    if pick.random() < 0.1:
        del raw[pick.randrange(len(raw)) :]
    loop.apply(bytes(raw))
    loop.apply(loop.raw(loop.batch(2)))


@pytest.mark.parametrize("seed", range(60))
def test_ids_that_are_exchanged_are_seen(loop: Loop, seed: int) -> None:
    pick = random.Random(seed)
    commands = loop.batch(2)
    raw = loop.raw(commands)
    ids = [*commands[-1].release.tensors, 1, 2, 3, 4, 5, 6, 1 << 60]
    one, other = (each.to_bytes(8, "little") for each in pick.sample(ids, 2))
    count = raw.count(one)
    places = [place for place in range(len(raw)) if raw.startswith(one, place)]
    assert len(places) >= count
    if places:
        place = pick.choice(places)
        raw = raw[:place] + other + raw[place + 8 :]
    loop.apply(raw)
    loop.apply(loop.raw(loop.batch(2)))


def test_fields_in_another_order_are_parsed(loop: Loop) -> None:
    raw = loop.raw(loop.batch(2))
    head = service_pb2.RunRequest(writer=1, first_seq=loop.plain.seq + 1).SerializeToString()
    assert raw.startswith(head)
    loop.apply(raw[len(head) :] + head)


def test_a_replaced_op_ends_templates(loop: Loop) -> None:
    number = loop.program.plan[0][0]
    again = [each for each in loop.program.prepared if each.prepare.number == number]
    loop.found.clear()
    loop.step([*again, *loop.batch(2)])
    assert not any(loop.found)
    assert not loop.joining.session.templates._held
    for _ in range(12):
        loop.step(loop.batch())
    assert loop.found[-1]


def test_another_writer_has_other_ops(loop: Loop) -> None:
    loop.both(lambda side: side.session.attach(2))
    loop.found.clear()
    request = service_pb2.RunRequest(writer=2, first_seq=1, commands=loop.batch(2))
    answer = loop.apply(request.SerializeToString())
    assert not any(loop.found)
    assert service_pb2.RunResponse.FromString(answer).results


@pytest.mark.parametrize("failing", range(0, 8, 3))
def test_the_rest_of_a_step_runs_after_a_failure(loop: Loop, failing: int) -> None:
    step = loop.joining.session.templates._held[0].known.list
    assert step is not None
    place = [number for number, item in enumerate(step._items) if item.context is not None][failing]
    item = step._items[place]

    def fail(*args: Any) -> Any:
        raise MemoryError

    step._items[place] = (
        item._replace(writer=fail) if item.writer else item._replace(parts=((fail, *item.parts[0][1:]),))
    )
    loop.found.clear()
    loop.step(loop.batch(2))
    assert all(0 < each < len(loop.joining.session.templates._held[0].known.kinds) for each in loop.found)


def test_a_batch_that_was_applied_is_answered_again(loop: Loop) -> None:
    raw = loop.raw(loop.batch(2))
    first = loop.apply(raw)
    states = [seen(side) for side in loop.sides]
    assert loop.apply(raw) == first
    assert [seen(side) for side in loop.sides] == states


def test_a_batch_of_which_a_part_was_applied_runs_the_rest(loop: Loop) -> None:
    commands = loop.batch(2)
    raw = loop.raw(commands)
    part = loop.raw(commands[:3])
    loop.apply(part)
    loop.apply(raw)


def test_templates_are_few() -> None:
    assert Templates().split(b"\x32\x05abc") == (b"\x32\x05abc", [])


def test_a_side_without_templates_parses(loop: Loop) -> None:
    assert isinstance(loop.plain, Side)
    assert not loop.plain.session.templates._held

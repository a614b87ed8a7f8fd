"""Early releases: an id is released after its last use in the batch, never before a command that may tell of it."""

from __future__ import annotations

import struct

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import programs_pb2 as p
from gradwire.v1 import service_pb2
from gradwire_server.session import early_releases
from tests.server.harness import Id, command, op


def calls(*words: int) -> service_pb2.Command:
    return service_pb2.Command(calls=c.Calls(count=1, words=struct.pack(f"<{len(words)}Q", *words)))


def release(*ids: int, quiet: bool = True) -> service_pb2.Command:
    return command(c.ReleaseRequest(tensors=ids), quiet=quiet)


PADDING = [calls(1, 999)] * 8


def last_uses(commands: list[service_pb2.Command]) -> dict[int, list[int]]:
    return early_releases.last_uses(commands, [each.WhichOneof("command") or "" for each in commands])


def test_each_kind_of_use_counts() -> None:
    commands = [
        calls(7, 20, 21),
        command(c.BackwardRequest(tensors=[22]), quiet=True),
        command(c.GradRequest(tensor=23, id=24), quiet=True),
        command(c.SetGradRequest(tensor=25, grad=26), quiet=True),
        command(c.CreateRequest(id=27), quiet=True),
        command(p.RunProgramRequest(inputs=[28], outputs=[29], named=[{"name": "x", "id": 30}]), quiet=True),
        *PADDING,
        release(20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30),
    ]
    assert last_uses(commands) == {0: [20, 21], 1: [22], 2: [23, 24], 3: [25, 26], 4: [27], 5: [28, 29, 30]}


def test_the_last_use_decides() -> None:
    assert last_uses([calls(1, 20), calls(1, 20), *PADDING, release(20)]) == {1: [20]}


def test_ids_that_the_batch_does_not_use_are_released_at_its_end() -> None:
    assert last_uses([*PADDING, release(20)]) == {}


def test_a_read_uses_its_tensor_only() -> None:
    read = command(c.ReadRequest(tensor=20), quiet=False)
    assert last_uses([calls(1, 30), calls(1, 20), read, *PADDING, release(30, 20)]) == {0: [30], 2: [20]}


def test_nothing_is_released_before_other_commands_and_answers() -> None:
    described = command(c.DescribeRequest(tensors=[20]), quiet=False)
    other = command(op("mul", Id(20), 2.0, outputs=[21]), quiet=True)
    answered = command(c.BackwardRequest(tensors=[20]), quiet=False)
    for each in (described, other, answered):
        assert last_uses([calls(1, 30), each, *PADDING, release(30)]) == {1: [30]}
        commands = [calls(1, 30), each, calls(1, 31), each, calls(1, 32), *PADDING, release(30, 31, 32, 33)]
        assert last_uses(commands) == {3: [31, 30], 4: [32]}


def test_a_short_batch_with_a_backward_is_searched() -> None:
    backward = command(c.BackwardRequest(tensors=[21]), quiet=True)
    assert last_uses([calls(1, 20), backward, release(20, 21)]) == {0: [20], 1: [21]}


def test_only_a_quiet_release_at_the_end_of_a_long_batch_is_early() -> None:
    assert last_uses([calls(1, 20), *PADDING, release(20, quiet=False)]) == {}
    assert last_uses([calls(1, 20), release(20)]) == {}
    assert last_uses([calls(1, 20), *PADDING]) == {}
    assert last_uses([]) == {}


def test_words_that_are_cut_are_refused_elsewhere() -> None:
    cut = service_pb2.Command(calls=c.Calls(count=1, words=b"\1\2\3"))
    assert last_uses([cut, *PADDING, release(20)]) == {}

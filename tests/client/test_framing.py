"""How buffered commands are framed: calls of prepared ops that follow each other, and are alike, are one command."""

import gradwire
from gradwire._session.framing import framed_commands, places_of_others
from gradwire.v1 import service_pb2

OTHER = b"\x32\x02\x08\x01"


def counts(calls):
    """The calls of each command; 0 for another command."""
    data = [bytes([place]) * 16 if call else OTHER for place, call in enumerate(calls)]
    framed = framed_commands(tuple(data), tuple(calls))
    commands = service_pb2.RunRequest.FromString(b"".join(framed)).commands
    assert b"".join(each.calls.words for each in commands) == b"".join(one for one in data if one is not OTHER)
    return [each.calls.count for each in commands]


def test_calls_are_joined_as_long_as_their_kind_lasts():
    assert counts([]) == []
    assert counts([2, 2, 2]) == [3]
    assert counts([0, 2, 2, 1, 2, 0, 0, 1, 1]) == [0, 2, 1, 1, 0, 0, 2]


def test_the_places_of_other_commands_are_told():
    assert places_of_others([]) == []
    assert places_of_others([0, 2, 1, 0, 0, 2, 0]) == [0, 3, 4, 6]


def test_a_call_without_operands_is_a_command_of_its_own(deferring):
    def step():
        return gradwire.ones(2) * 2.0 + gradwire.zeros(2)

    for _ in range(4):
        step()
    deferring.sync()
    deferring.check_at = 1 << 30
    made = step()
    calls = [call for _, _, call in deferring.buffer if call]
    assert calls == [1, 2, 1, 2]
    assert made.tolist() == [2.0, 2.0]

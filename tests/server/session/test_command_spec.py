"""A command's spec: its messages and facts are the contract's, and it finds the ids that a request makes."""

import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1.command_facts import FACTS
from gradwire_server.session.command_spec import CommandSpec, Handler
from gradwire_server.session.commands import COMMANDS


def spec(name: str) -> CommandSpec:
    handler: Handler = lambda session, request, answer: None  # noqa: E731 - a handler that is never called
    return CommandSpec(name, handler)


def test_messages_and_facts_are_found_by_the_name() -> None:
    op = spec("op")
    assert (op.request, op.response, op.facts) == (c.OpRequest, c.OpResponse, FACTS["op"])
    assert (op.cancellable, op.logged, op.planned) == (True, True, None)


def test_a_command_that_the_contract_does_not_have_is_no_command() -> None:
    with pytest.raises(KeyError, match="teleport"):
        spec("teleport")


def test_new_ids_are_one_or_many_or_none() -> None:
    assert list(spec("create").new_ids(c.CreateRequest(id=7))) == [7]
    assert list(spec("op").new_ids(c.OpRequest(outputs=[3, 4]))) == [3, 4]
    assert list(spec("read").new_ids(c.ReadRequest(tensor=7))) == []


def test_commands_whose_refusal_keeps_effects_are_declared() -> None:
    declared = {name for name, each in COMMANDS.items() if each.refusal_keeps_effects}
    assert declared == {"run_program", "resume_backward", "checkpoint"}

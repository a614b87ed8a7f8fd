"""CommandSpec: what the server knows about one command. commands.py has the table.

Facts that clients share stand in the contract, as options of Command's fields (options.proto).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from gradwire.v1 import service_pb2
from gradwire.v1.command_facts import FACTS, CommandFacts
from gradwire_server.common.errors import Refusal
from gradwire_server.session.scope import TensorScope
from gradwire_server.session.session import Session

#: Takes the session, the request and the response to fill, which is None for a quiet command. One that raises has
#: changed nothing, unless its spec says `refusal_keeps_effects`. An expensive command returns steps: it is done when
#: they are exhausted, and other sessions may compute between them.
Handler: TypeAlias = Callable[[Session, Any, Any], Iterator[None] | None]
#: The handler of a command that may be a step of a program: takes a session, or the scope of the program's run.
StepHandler: TypeAlias = Callable[[TensorScope, Any, Any], Iterator[None] | None]
#: Tells a plan's tracer of a step; takes the tracer, the scope of the step's slots, and the request.
Report: TypeAlias = Callable[[Any, Any, Any], None]

_REQUESTS: Any = service_pb2.Command.DESCRIPTOR.fields_by_name
_RESPONSES: Any = service_pb2.Result.DESCRIPTOR.fields_by_name


@dataclass(frozen=True, slots=True)
class Planned:
    """How a command is reported to a plan's tracer, around its handler. What a handler computes reports itself."""

    before: Report | None = None
    after: Report | None = None


@dataclass(slots=True, eq=False)
class CommandSpec:
    """A command: its handler, how batches, logs and plans treat it, and its facts and messages in the contract."""

    name: str
    handler: Handler
    #: Whether a cancelled batch leaves it out.
    cancellable: bool = True
    #: Whether a unary call of it is logged. A batch is logged whole.
    logged: bool = True
    #: Whether its refusal may leave effects. Such a refusal has `began` set, and a replay repeats the effects.
    refusal_keeps_effects: bool = False
    #: None if no plan can hold it: a program with it runs step by step.
    planned: Planned | None = None
    #: Called with each refusal of the command, and with that of a program before such a step.
    refused: Callable[[Session, Any, Refusal], None] | None = None
    facts: CommandFacts = field(init=False)
    request: type[Message] = field(init=False)
    response: type[Message] = field(init=False)

    def __post_init__(self) -> None:
        self.facts = FACTS[self.name]
        self.request = GetMessageClass(_REQUESTS[self.name].message_type)
        self.response = GetMessageClass(_RESPONSES[self.name].message_type)

    @property
    def step_handler(self) -> StepHandler:
        """The handler for a program's step. Only for commands whose facts have `is_step`, except ops."""
        return self.handler  # type: ignore[return-value]  # commands.py gives steps handlers that take any TensorScope

    def new_ids(self, request: Any) -> Sequence[int]:
        """The ids that a request gives to new tensors."""
        if not self.facts.makes:
            return ()
        ids = getattr(request, self.facts.makes)
        return (ids,) if type(ids) is int else ids

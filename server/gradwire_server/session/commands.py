"""Commands: the table of handlers, one for each command, the same for unary calls and batches.

A handler takes the session, the request and the response to fill, which is None for a quiet command. A handler that
raises has changed nothing. batch.py does what all commands have in common.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from google.protobuf.message import Message

from gradwire.v1 import commands_pb2, hooks_pb2, programs_pb2
from gradwire_server.session.arguments import CALLS
from gradwire_server.session.graph_commands import graph
from gradwire_server.session.hook_commands import (
    checkpoint,
    name_edge,
    record,
    register_hook,
    remove_hook,
    resume_backward,
)
from gradwire_server.session.interpreter import run_program
from gradwire_server.session.programs import register_program
from gradwire_server.session.saved_tensor_hooks import pack_saved, saved_value
from gradwire_server.session.session import Session
from gradwire_server.session.tensor_commands import (
    create,
    describe,
    grad,
    manual_seed,
    op,
    read,
    release,
    run_backward,
    run_gradients,
    run_retain_grad,
    run_set_data,
    run_set_grad,
    run_set_requires_grad,
)

#: An expensive command returns steps: it is done when they are exhausted, and other sessions may compute between them.
Handler: TypeAlias = "Callable[[Session, Any, Any], Iterator[None] | None]"

HANDLERS: dict[str, Handler] = {
    "create": create,
    "op": op,
    "backward": run_backward,
    "retain_grad": run_retain_grad,
    "grad": grad,
    "gradients": run_gradients,
    "set_grad": run_set_grad,
    "set_requires_grad": run_set_requires_grad,
    "set_data": run_set_data,
    "manual_seed": manual_seed,
    "describe": describe,
    "read": read,
    "release": release,
    "graph": graph,
    "register_program": register_program,
    "run_program": run_program,
    "register_hook": register_hook,
    "remove_hook": remove_hook,
    "resume_backward": resume_backward,
    "record_function": record,
    "checkpoint": checkpoint,
    "name_edge": name_edge,
    "pack_saved": pack_saved,
    "saved_value": saved_value,
}


def new_ids(which: str, request: Any) -> Sequence[int]:
    """The ids that a command's request gives to new tensors."""
    if which == "op":
        call = CALLS.get(request.op)
        return () if call is not None and call.in_place else request.outputs
    if which in ("create", "grad"):
        return (request.id,)
    if which == "name_edge":
        return (request.edge,)
    if which == "run_program":
        return request.outputs  # type: ignore[no-any-return]
    return request.results if which == "gradients" else ()


def method_of(which: str) -> str:
    """RPC name of a command: RetainGrad for "retain_grad"."""
    return "".join(part.capitalize() for part in which.split("_"))


MESSAGES: dict[str, tuple[str, type[Message], type[Message]]] = {
    method_of(which): (
        which,
        getattr(module, f"{method_of(which)}Request"),
        getattr(module, f"{method_of(which)}Response"),
    )
    for which in HANDLERS
    for module in (commands_pb2, hooks_pb2, programs_pb2)
    if hasattr(module, f"{method_of(which)}Request")
}

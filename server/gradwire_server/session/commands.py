"""Commands: the table of all commands, the same for unary calls, batches and programs.

batch.py does what all commands have in common. `calls` has no row: it is a run of prepared ops (prepared/calls.py).
"""

from collections.abc import Iterator
from typing import Any

from gradwire_server.session.collectives.handler import collective, left_out, trace_collective
from gradwire_server.session.command_spec import CommandSpec, Planned
from gradwire_server.session.graph_commands import graph, set_counters
from gradwire_server.session.hook_commands import (
    checkpoint,
    name_edge,
    record,
    register_hook,
    remove_hook,
    resume_backward,
)
from gradwire_server.session.interpreter import run_program
from gradwire_server.session.prepared.calls import prepare
from gradwire_server.session.program_files import load_program, save_program
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


def _run_program(session: Session, request: Any, answer: Any) -> Iterator[None]:
    return run_program(session, request, answer, COMMANDS)


_CREATED = Planned(after=lambda tracer, scope, request: tracer.created(scope.tensor(request.id)))
_GRAD_SET = Planned(after=lambda tracer, scope, request: tracer.grad_changed(scope.tensor(request.tensor)))
_FLAGGED = Planned(
    before=lambda tracer, scope, request: tracer.requires_grad_set(scope.tensor(request.tensor), request.requires_grad)
)

_SPECS = (
    CommandSpec("create", create, planned=_CREATED),
    CommandSpec("op", op, planned=Planned()),
    CommandSpec("backward", run_backward, planned=Planned()),
    CommandSpec("retain_grad", run_retain_grad, planned=Planned()),
    CommandSpec("grad", grad, planned=Planned()),
    CommandSpec("gradients", run_gradients, planned=Planned()),
    CommandSpec("set_grad", run_set_grad, planned=_GRAD_SET),
    CommandSpec("set_requires_grad", run_set_requires_grad, planned=_FLAGGED),
    CommandSpec("set_data", run_set_data),
    CommandSpec("manual_seed", manual_seed),
    # The answer holds nothing that a restored session must know. That of read and graph does: a transfer, a page.
    CommandSpec("describe", describe, logged=False),
    CommandSpec("read", read),
    # Clients rely on released ids being free again, and on prepared ops being registered.
    CommandSpec("release", release, cancellable=False),
    CommandSpec("prepare", prepare, cancellable=False),
    CommandSpec("graph", graph),
    CommandSpec("register_program", register_program),
    CommandSpec("run_program", _run_program, refusal_keeps_effects=True),
    CommandSpec("load_program", load_program),
    CommandSpec("save_program", save_program),
    CommandSpec("register_hook", register_hook),
    CommandSpec("remove_hook", remove_hook),
    CommandSpec("resume_backward", resume_backward, refusal_keeps_effects=True),
    CommandSpec("record_function", record),
    CommandSpec("checkpoint", checkpoint, refusal_keeps_effects=True),
    CommandSpec("name_edge", name_edge),
    CommandSpec("pack_saved", pack_saved),
    CommandSpec("saved_value", saved_value),
    CommandSpec("set_counters", set_counters),
    CommandSpec(
        "collective",
        collective,
        planned=Planned(after=trace_collective),
        refused=lambda session, request, why: left_out(session.groups, request, why),
    ),
)
#: By name: the field of Command.
COMMANDS = {spec.name: spec for spec in _SPECS}
#: By RPC: RetainGrad for "retain_grad". Commands that come only in batches have none.
BY_METHOD = {spec.facts.method: spec for spec in _SPECS if spec.facts.has_rpc}

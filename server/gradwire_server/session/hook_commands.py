"""Hook commands: suspend a backward where the client must run a hook or custom function, and resume it.

The answer to the command that reached a hook names the hook. The client sends the hook's result as another command. So
hooks need only ordinary commands, each applied once, over any kind of call.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gradwire.v1 import hooks_pb2, types_pb2
from gradwire_engine import EngineError, Tensor
from gradwire_engine.autograd.backward_pass import BackwardPass
from gradwire_engine.autograd.checkpoints import Region, RegionStart
from gradwire_engine.autograd.functions import record_function
from gradwire_engine.graph.callbacks import CallbackRequest, hook_accumulated, hook_tensor, hooks_of
from gradwire_engine.graph.hooks import CallbackKind, ExternalCallback
from gradwire_engine.graph.tensor import at_edge
from gradwire_server.common.errors import Refusal, began, refusal_of
from gradwire_server.session.scope import TensorScope
from gradwire_server.session.session import Session
from gradwire_server.session.specs import fill_spec
from gradwire_server.session.state.hook_table import MAX_SUSPENDED, SuspendedBackward

_MAX_NAME = 200
_KINDS = {
    CallbackKind.TENSOR: types_pb2.HOOK_KIND_TENSOR,
    CallbackKind.BEFORE: types_pb2.HOOK_KIND_BEFORE,
    CallbackKind.AFTER: types_pb2.HOOK_KIND_AFTER,
    CallbackKind.ACCUMULATED: types_pb2.HOOK_KIND_ACCUMULATED,
    CallbackKind.FORMULA: types_pb2.HOOK_KIND_FUNCTION,
    CallbackKind.AGAIN: types_pb2.HOOK_KIND_CHECKPOINT,
    CallbackKind.UNPACK: types_pb2.HOOK_KIND_UNPACK,
}


def pass_through(
    scope: TensorScope, run: BackwardPass, asks: bool, finish: Callable[[Any], None], answer: Any
) -> Iterator[None]:
    """Run a backward to its end, or to the next hook that the client must run. Raises Refusal, EngineError."""
    if asks and answer is not None:
        yield from _advance(scope, SuspendedBackward(run, finish), None, answer)
    else:
        yield from run.to_end()
        finish(answer)


def resume_backward(
    session: Session, request: hooks_pb2.ResumeBackwardRequest, answer: hooks_pb2.ResumeBackwardResponse | None
) -> Iterator[None]:
    """Resume or abandon a suspended backward."""
    session.enter(session.grad_context)
    waiting = session.hooks.suspended.get(request.backward)
    if request.abandon:
        if waiting is not None:
            del session.hooks.suspended[request.backward]
            waiting.run.steps.close()
        return
    if waiting is None:
        raise _not_suspended(session, request.backward)
    if answer is None:
        raise Refusal("ARGUMENT_VALUE", "a backward is not resumed by a quiet command", argument="quiet")
    given = [session.tensor(tensor_id) if tensor_id else None for tensor_id in request.gradients]
    del session.hooks.suspended[request.backward]
    waiting.since = time.monotonic()
    try:
        with _begun(session, "ResumeBackward"):
            yield from _advance(session, waiting, given if request.replaces else None, answer)
    except Refusal:
        waiting.run.steps.close()  # a replay did not run it
        raise


@contextmanager
def _begun(session: Session, method: str) -> Iterator[None]:
    """Mark refusals in the block as `began`: what the command did before the block remains.

    A refusal also prevents a retry, which would not find what the command ended. A replay raises it at once.
    """
    if session.cancel_token.repeated() is not None:
        raise began(session.cancel_token.refusal())
    try:
        yield
    except Exception as error:  # noqa: BLE001 - becomes a refusal; the unforeseen is logged
        cancelled = isinstance(error, EngineError) and error.reason.name == "CANCELLED"
        raise began(session.cancel_token.refusal() if cancelled else refusal_of(error, method)) from None


def _not_suspended(session: Session, number: int) -> Refusal:
    if 0 < number < session.hooks.next_number:
        return Refusal(
            "CANCELLED",
            f"backward {number} no longer waits: it completed or was abandoned. A backward is abandoned by its client, "
            "by the server's end, or after an hour without an answer. Gradients that arrived before its last hook call "
            "stay; it may have freed a part of its graph",
            backward=number,
        )
    return Refusal("ARGUMENT_VALUE", f"no backward {number} waits in this session", argument="backward")


def _advance(
    scope: TensorScope, waiting: SuspendedBackward, given: Sequence[Tensor | None] | None, answer: Any
) -> Iterator[None]:
    due = yield from waiting.run.advance(given)
    if due is None:
        waiting.finish(answer)
        return
    # A refusal comes before gradients change: a client is not told of those that have changed then.
    scope.check_room(len(due.gradients) + len(due.others) + 1)
    scope.hooks.check_room()
    answer.accumulated.extend(scope.ids_of(waiting.run.deliver()))
    call = answer.due
    call.backward = scope.hooks.suspend(waiting)
    call.hook = due.number
    call.kind = _KINDS[due.when]
    _describe_call(scope, due, call)


def _describe_call(scope: TensorScope, due: CallbackRequest, call: types_pb2.HookCall) -> None:
    """Give ids to a hook's tensors; the client releases them."""
    for tensors, specs in ((due.gradients, call.gradients), (due.others, call.others)):
        for item in tensors:
            spec = specs.add()
            if item is not None:
                same_as = scope.id_of(item)
                fill_spec(spec, item, scope.bind(0, item))
                spec.same_as = same_as
    if due.leaf is not None:
        fill_spec(call.leaf, due.leaf, scope.id_of(due.leaf) or scope.bind(0, due.leaf))


def ask_for(session: Session, number: int) -> ExternalCallback:
    """Create the callback for the client's hook of that number. Raises Refusal: ARGUMENT_VALUE, TENSOR_LIMIT."""
    asks = session.hooks.asks
    if not number or number in asks:
        raise Refusal("ARGUMENT_VALUE", f"{number} is no number for a new hook", argument="hook")
    if len(asks) >= session.max_tensors:
        raise Refusal("TENSOR_LIMIT", f"a session has at most {session.max_tensors} hooks", limit=session.max_tensors)
    asks[number] = made = ExternalCallback(number, session.dropped_hook_queue(number))
    return made


def register_hook(
    session: Session, request: hooks_pb2.RegisterHookRequest, answer: hooks_pb2.RegisterHookResponse | None
) -> None:
    """Register a client's hook on a tensor or a node."""
    source = session.tensor(request.tensor)
    kind = request.kind
    ask = ask_for(session, request.hook)
    if kind == types_pb2.HOOK_KIND_TENSOR:
        hook_tensor(source, ask)
    elif kind == types_pb2.HOOK_KIND_ACCUMULATED:
        hook_accumulated(source, ask)
    elif kind in (types_pb2.HOOK_KIND_BEFORE, types_pb2.HOOK_KIND_AFTER):
        node = node_behind(session, source, request.node)
        hooks_of(node).add(CallbackKind.BEFORE if kind == types_pb2.HOOK_KIND_BEFORE else CallbackKind.AFTER, ask)
    else:
        raise Refusal("ARGUMENT_VALUE", f"{kind} is no kind of hook that can be registered", argument="kind")


def node_behind(session: Session, source: Tensor, number: int) -> Any:
    """The node of that number behind a tensor; 0 for the tensor's own node. Raises Refusal: ARGUMENT_VALUE."""
    start = source.grad_fn
    seen: dict[Any, None] = {} if start is None else {start: None}
    waiting = list(seen)
    for node in waiting:  # grows while it is walked
        if not number or session.graph_walks.node_id(node) == number:
            return node
        for edge in node.edges:
            if edge is not None and edge[0] not in seen:
                seen[edge[0]] = None
                waiting.append(edge[0])
    raise Refusal("ARGUMENT_VALUE", f"no node {number} is behind the tensor", argument="node")


def remove_hook(
    session: Session, request: hooks_pb2.RemoveHookRequest, answer: hooks_pb2.RemoveHookResponse | None
) -> None:
    """Remove a hook."""
    ask = session.hooks.asks.get(request.hook)
    if ask is not None:
        ask.remove()


def record(
    session: Session, request: hooks_pb2.RecordFunctionRequest, answer: hooks_pb2.RecordFunctionResponse | None
) -> None:
    """Record tensors as a custom function's results."""
    if not 0 < len(request.name) <= _MAX_NAME or not request.name.isprintable():
        raise Refusal("ARGUMENT_VALUE", f"a node's name has 1 to {_MAX_NAME} printable characters", argument="name")

    def optional(ids: Sequence[int]) -> list[Tensor | None]:
        return [session.tensor(tensor_id) if tensor_id else None for tensor_id in ids]

    outputs = optional(request.outputs)
    record_function(
        request.name,
        ask_for(session, request.hook) if request.hook else None,
        optional(request.inputs),
        outputs,
        optional(request.saved),
        session.tensors(request.dirty),
        session.tensors(request.non_differentiable),
        not request.keeps_undefined,
    )
    if answer is not None:
        for tensor_id, item in zip(request.outputs, outputs, strict=True):
            if item is not None:
                fill_spec(answer.outputs.add(), item, tensor_id)


def name_edge(session: Session, request: hooks_pb2.NameEdgeRequest, answer: hooks_pb2.NameEdgeResponse | None) -> None:
    """Give an id to a tensor's current graph edge."""
    session.check_new(request.edge)
    made = at_edge(session.tensor(request.tensor))
    edge_id = session.bind(request.edge, made)
    if answer is not None:
        fill_spec(answer.edge, made, edge_id)


def checkpoint(
    session: Session, request: hooks_pb2.CheckpointRequest, answer: hooks_pb2.CheckpointResponse | None
) -> None:
    """Mark the begin or end of a checkpointed region, whose nodes save nothing."""
    table, number, mark = session.hooks, request.hook, request.mark
    generator = session.grad_context.generator
    region = table.regions.get(number)
    if mark in (hooks_pb2.CHECKPOINT_MARK_BEGIN_AGAIN, hooks_pb2.CHECKPOINT_MARK_END_AGAIN) and region is None:
        raise Refusal("ARGUMENT_VALUE", f"checkpoint {number} awaits no recomputation", argument="hook")
    if mark in (hooks_pb2.CHECKPOINT_MARK_BEGIN, hooks_pb2.CHECKPOINT_MARK_BEGIN_AGAIN):
        if number in table.moments or (mark == hooks_pb2.CHECKPOINT_MARK_BEGIN and region is not None):
            raise Refusal("ARGUMENT_VALUE", f"checkpoint {number} has begun already", argument="hook")
        if len(table.moments) >= MAX_SUSPENDED:
            raise Refusal("TENSOR_LIMIT", f"at most {MAX_SUSPENDED} checkpoints are open at once", limit=MAX_SUSPENDED)
        again = region if mark == hooks_pb2.CHECKPOINT_MARK_BEGIN_AGAIN else None
        table.moments[number] = RegionStart(generator, again, not request.random_goes_on)
        return
    if mark not in (hooks_pb2.CHECKPOINT_MARK_END, hooks_pb2.CHECKPOINT_MARK_END_AGAIN):
        raise Refusal("ARGUMENT_VALUE", f"there is no checkpoint mark {mark}", argument="mark")
    moment = table.moments.pop(number, None)
    if moment is None:
        raise Refusal("ARGUMENT_VALUE", f"checkpoint {number} has not begun", argument="hook")
    # A refusal ends the region too: clients send its end once, and the random generator must continue from there.
    moment.end(again=mark == hooks_pb2.CHECKPOINT_MARK_END_AGAIN)
    with _begun(session, "Checkpoint"):
        outputs = session.tensors(request.outputs)
        if mark == hooks_pb2.CHECKPOINT_MARK_END:
            table.regions[number] = Region(ask_for(session, number), moment, outputs)
        elif outputs and region is not None:
            region.refill(moment, outputs)

"""Hook runner: runs hooks during a backward; the server suspends the backward until the client sends the result.

A hook runs in the thread that called backward(), which waits anyway. The hook issues ordinary commands.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeAlias

from gradwire._base.errors import refuse
from gradwire._base.modes import set_grad_enabled
from gradwire._base.refused import refusal
from gradwire._base.signals import deliver
from gradwire._graph.sparse_gradients import SparseGradients
from gradwire._proxy.handle import UNKNOWN, Handle
from gradwire._proxy.memo import read_spec
from gradwire._proxy.results import known_or_new, mark_gradients, new_proxy
from gradwire._proxy.shadow_graph import ReachableNodes
from gradwire._transport.transport import SIGNAL_CHECK_SECONDS
from gradwire.v1 import commands_pb2, errors_pb2, hooks_pb2, service_pb2, types_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import HookCallback, SessionProtocol

#: The answers of a backward, each to its hook call or with its result.
Answer: TypeAlias = "commands_pb2.BackwardResponse | commands_pb2.GradientsResponse | hooks_pb2.ResumeBackwardResponse"
_OF_NODES = (types_pb2.HOOK_KIND_BEFORE, types_pb2.HOOK_KIND_AFTER)
# Hooks may run backwards that reach hooks. This many nested levels share a thread's stack, as in PyTorch.
_LEVELS_PER_STACK = 30
_DEPTH: ContextVar[int] = ContextVar("gradwire_hook_depth", default=0)


class Pass:
    """One backward pass in which the client takes part, with the callbacks that its hooks queued for its end.

    keeps_graph: whether saved values stay. to_leaves: whether all leaves receive their gradients. sparse: the sparse
    gradients that it makes. roots: where it begins. targets: where it ends, if not at all leaves. captures: whether it
    returns the gradients there (autograd.grad). reachable: what the client knows of its graph. held: what must stay
    until its results are made.
    """

    _numbers = itertools.count()

    def __init__(
        self,
        keeps_graph: bool,
        to_leaves: bool,
        sparse: SparseGradients,
        roots: Sequence[Handle] = (),
        targets: Sequence[Handle] = (),
        captures: bool = False,
        reachable: ReachableNodes | None = None,
    ) -> None:
        self.number = next(self._numbers)
        self.roots = roots
        self.targets = targets
        self.captures = captures
        self.reachable = reachable
        self.sparse = sparse
        self.keeps_graph = keeps_graph
        self.to_leaves = to_leaves
        self.at_end: list[Callable[[Pass], None]] = []
        self.held: list[Any] = []


CURRENT_PASS: ContextVar[Pass | None] = ContextVar("gradwire_pass", default=None)


#: Whether a checkpoint's function is running, to be computed again in backward.
IN_CHECKPOINT: ContextVar[bool] = ContextVar("gradwire_in_checkpoint", default=False)
#: The op at which a checkpoint that is computed again ends; "" before it, None outside.
LAST_AGAIN: ContextVar[str | None] = ContextVar("gradwire_last_op_of_checkpoint", default=None)


class HookArguments:
    """The arguments of a hook call. `others`: for AFTER the outputs' gradients, for a function its saved values."""

    __slots__ = ("gradients", "leaf", "others")

    def __init__(self, gradients: tuple[Any, ...], others: tuple[Any, ...], leaf: Any) -> None:
        self.gradients = gradients
        self.others = others
        self.leaf = leaf


def run_hooks(
    session: SessionProtocol,
    answer: Answer,
    create_graph: bool,
    this: Pass,
    on_received: Callable[[Sequence[int]], None],
    on_result: Callable[[Answer], None] | None = None,
) -> None:
    """Run all hooks of a backward from its first answer on until it ends, then pass its last answer to `on_result`.

    `on_received` gets the ids of tensors whose gradient has changed, before each hook and at the end. An exception of a
    hook ends the backward, also on the server. Callbacks for the end run after `on_result`.
    """
    while True:
        on_received(answer.accumulated)
        if not answer.HasField("due"):
            break
        call = answer.due
        request = hooks_pb2.ResumeBackwardRequest(backward=call.backward)
        token = CURRENT_PASS.set(this)
        try:
            made = _run(session, call, create_graph)
            if made is not None:
                request.replaces = True
                request.gradients.extend([0 if each is None else each._id for each in made])
            answer = session.wait(service_pb2.Command(resume_backward=request)).resume_backward
        except BaseException:
            request = hooks_pb2.ResumeBackwardRequest(backward=call.backward, abandon=True)
            session.abandon(service_pb2.Command(resume_backward=request))
            raise
        finally:
            CURRENT_PASS.reset(token)
    if on_result is not None:
        on_result(answer)
    token = CURRENT_PASS.set(this)
    try:
        for call_at_end in this.at_end:  # one may queue others
            call_at_end(this)
    finally:
        CURRENT_PASS.reset(token)


def _run(session: SessionProtocol, call: types_pb2.HookCall, create_graph: bool) -> Sequence[Any] | None:
    runner = session.hooks.get(call.hook)
    near: dict[int, Any] = getattr(runner, "near", dict)()
    gradients, others = (
        [known_or_new(session, spec, near) for spec in specs] for specs in (call.gradients, call.others)
    )
    leaf = None
    if call.HasField("leaf"):
        leaf = session.watched.get(call.leaf.id)
        if leaf is None:
            leaf = new_proxy(session, call.leaf.id, read_spec(call.leaf))
            mark_gradients([leaf], UNKNOWN)
    if runner is None:
        raise refuse(
            "this backward reaches a hook or custom function that only another client of the session can run",
            errors_pb2.REASON_NOT_SUPPORTED,
        )
    hook_arguments = HookArguments(tuple(gradients), tuple(others), leaf)
    if call.kind in _OF_NODES and all(each is None for each in gradients):
        _refuse_without_dense()
    with _deeper() as depth, set_grad_enabled(create_graph):
        if depth % _LEVELS_PER_STACK:
            return runner(hook_arguments)
        return _on_a_new_stack(runner, hook_arguments)


def _refuse_without_dense() -> None:
    """Refuse a node's hook that gets no gradient where it may have to get a sparse one, which the server lacks."""
    current = CURRENT_PASS.get()
    if current is not None and current.sparse:
        raise refusal("autograd with hooks of a node that a sparse gradient reaches", "use Tensor.register_hook")


@contextmanager
def _deeper() -> Iterator[int]:
    """Count the nested hooks, this one included."""
    token = _DEPTH.set(_DEPTH.get() + 1)
    try:
        yield _DEPTH.get()
    finally:
        _DEPTH.reset(token)


def _on_a_new_stack(runner: HookCallback, hook_arguments: HookArguments) -> Sequence[Any] | None:
    """Run the hook in another thread while this one waits: Python's recursion limit is per thread."""
    outcome: list[Sequence[Any] | None] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(runner(hook_arguments))
        except BaseException as error:  # noqa: BLE001 it goes on in the thread that waits
            failed.append(error)

    thread = threading.Thread(target=copy_context().run, args=(run,), name="gradwire-hooks", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(SIGNAL_CHECK_SECONDS)
        deliver()
    if failed:
        raise failed[0]
    return outcome[0]

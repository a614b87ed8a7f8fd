"""Saved-tensor hooks: let the user's Python keep saved values (torch.autograd.graph.saved_tensors_hooks).

While hooks are active, the client asks after every recorded op which values its nodes saved. The pack hook gets these
values and the server drops them. In backward the server requests them by calling the unpack hook like any other hook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gradwire._base.errors import refuse
from gradwire._base.modes import GRAD_ENABLED, no_grad
from gradwire._graph import commands
from gradwire._graph.hooks import HeldHooks, HookOfTensor
from gradwire._graph.saved_tensors import unpacker
from gradwire._proxy.handle import handles_in
from gradwire._proxy.memo import read_spec
from gradwire._proxy.results import new_proxy
from gradwire._proxy.shadow_graph import hold_hooks
from gradwire._tensor.batching import BATCHING, DISPATCH
from gradwire._tensor.call import _call
from gradwire._transport.wire import Value
from gradwire.v1 import hooks_pb2, service_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol

_T = TypeVar("_T")


class Pair(NamedTuple):
    """The two active hooks.

    named: whether `pack` gets a second argument: the op's argument or result that is the value, or None.
    """

    pack: Callable[..., Any]
    unpack: Callable[[Any], Any]
    named: bool = False


#: Active hooks of this thread or task; None if saved values stay on the server.
CURRENT: ContextVar[Pair | None] = ContextVar("gradwire_saved_tensors_hooks", default=None)
#: Message of the error for using hooks; None if hooks are allowed.
DISABLED: ContextVar[str | None] = ContextVar("gradwire_saved_tensors_hooks_disabled", default=None)


@contextmanager
def in_force(pair: Pair | None) -> Iterator[None]:
    """Activate these hooks, or none, inside the context."""
    token = CURRENT.set(pair)
    BATCHING.append(token)
    try:
        yield
    finally:
        BATCHING.remove(token)  # another thread's may be the last
        CURRENT.reset(token)


def _saved_tensors_hooks_is_enabled() -> bool:
    """Whether hooks may be activated (torch._C._autograd)."""
    return DISABLED.get() is None


def check_enabled() -> None:
    """Raise RuntimeError inside disable_saved_tensors_hooks, with the message given there."""
    why = DISABLED.get()
    if why is not None:
        raise refuse(why)


@contextmanager
def disabled(error_message: str) -> Iterator[None]:
    """Inside, activating hooks raises RuntimeError with this message; so does entering this while hooks are active."""
    token = DISABLED.set(error_message)
    try:
        if CURRENT.get() is not None:
            check_enabled()
        yield
    finally:
        DISABLED.reset(token)


def without_saved_tensors_hooks() -> AbstractContextManager[None]:
    """What a transform of functions in reverse mode runs in: as PyTorch's, it refuses hooks."""
    return disabled(
        "torch.func.{grad, vjp, jacrev, hessian} don't yet support saved tensor hooks. Please open an issue with your "
        "use case."
    )


def packing(
    session: SessionProtocol, apply: Callable[[], _T], changed: Sequence[Any] = (), inputs: Sequence[Any] = ()
) -> _T:
    """Call `apply`, which records nodes, and pack the values they save if hooks are active.

    The nodes are found from the tensors that `apply` returns, or from `changed` if it returns none. `inputs` are
    further tensors that may be what was saved.
    """
    pair = CURRENT.get()
    if pair is None or not GRAD_ENABLED.get():
        return apply()
    number = next(session.ids)

    def begin(values: Sequence[Value]) -> service_pb2.Command:
        return _command(int(values[0]), hooks_pb2.PACK_STEP_BEGIN, (), ())

    commands.run(session, "pack_saved", (), [number], begin)
    hooks: list[int] = []
    done = False
    try:
        with in_force(None):
            made = apply()
        found = [each for each in (*handles_in(made), *changed) if each is not None and each._spec.requires_grad]
        near = {each._id: each for each in (*found, *inputs)} if found and pair.named else {}
        outputs = list(near) or [each._id for each in found]
        if outputs:
            done = not _shown_to(pair, session, number, outputs, hooks, near)
            if not done:
                session.wait(_command(number, hooks_pb2.PACK_STEP_KEEP, outputs, hooks))
                done = True
                if pair.named:
                    _hold(session, found, hooks)
        return made
    except BaseException:
        for hook in hooks:
            session.hooks.pop(hook, None)
        raise
    finally:
        if not done:
            session.abandon(_command(number, hooks_pb2.PACK_STEP_KEEP, (), ()))


def _shown_to(
    pair: Pair,
    session: SessionProtocol,
    number: int,
    outputs: Sequence[int],
    hooks: list[int],
    near: Mapping[int, Any],
) -> list[int]:
    """Pass each saved value to the pack hook; return the numbers under which the unpack hook is called.

    `near` are the tensors by id that may be a value, for hooks that ask for them.
    """
    shown = session.wait(_command(number, hooks_pb2.PACK_STEP_SHOW, outputs, ())).pack_saved.values
    values = [(new_proxy(session, spec.id, read_spec(spec)), near.get(spec.same_as)) for spec in shown]
    values.reverse()
    while values:
        value, name = values.pop()
        with no_grad():
            packed = pair.pack(value, name) if pair.named else pair.pack(value)
        del value
        hook = next(session.ids)
        session.hooks[hook] = unpacker(session, pair.unpack, packed)
        hooks.append(hook)
    return hooks


def _hold(session: SessionProtocol, made: Sequence[Any], hooks: Sequence[int]) -> None:
    """Let the nodes of an op's results hold what was packed, in place of the session: it goes with the graph.

    So does the base of a view that was changed in place: its new history leads to the op by itself.
    """
    bases = [view.base for each in made if (view := each.__dict__.get("_view")) is not None]
    nodes = {id(each._edge): each._edge for each in (*made, *bases) if each._spec.grad_fn}
    if not hooks or not nodes or not all(nodes.values()):
        return
    held = HeldHooks()
    session.hook_holders.add(held)
    for hook in hooks:
        session.hooks[hook] = HookOfTensor(held, session.hooks[hook])
    for node in nodes.values():
        hold_hooks(node, held)


def _command(number: int, step: Any, outputs: Sequence[int], hooks: Sequence[int]) -> service_pb2.Command:
    request = hooks_pb2.PackSavedRequest(number=number, step=step, outputs=outputs, hooks=hooks)
    return service_pb2.Command(pack_saved=request)


def _dispatch(op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any) -> Any:
    """Call an op that may record nodes and pack its saved values; NotImplemented for other ops."""
    if CURRENT.get() is None or not GRAD_ENABLED.get():
        return NotImplemented
    tensors = [*handles_in(args), *handles_in([value for _, value in kwargs])]
    if not any(each._spec.requires_grad or each._storage is not None for each in tensors):
        return NotImplemented
    return packing(tensors[0]._session, lambda: _call(op, args, kwargs, result), inputs=tensors)


DISPATCH.append(_dispatch)

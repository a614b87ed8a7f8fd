"""Checkpoints: recompute a part of a graph in backward instead of keeping its saved values (torch.utils.checkpoint).

The server frees the saved values of the part's nodes. When backward reaches the part, the client calls the function
again. Its commands make the same values again on the server, with the same random numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from gradwire._base.errors import GradwireError, GradwireValueError, refuse
from gradwire._base.modes import enable_grad, is_grad_enabled
from gradwire._base.wiring import wired
from gradwire._dispatch.modes import MODES, only
from gradwire._functions.backward import grad
from gradwire._functions.create import zeros
from gradwire._functions.saved_tensor_hooks import check_enabled, in_force
from gradwire._graph import commands
from gradwire._graph.hook_runner import CURRENT_PASS, IN_CHECKPOINT, LAST_AGAIN, HookArguments
from gradwire._proxy.handle import Handle
from gradwire._session.sessions import current_session
from gradwire._tensor.batching import REGION, restored, without_casts
from gradwire._transport.wire import Value
from gradwire.autograd.function import Function
from gradwire.utils import _selective_checkpoints
from gradwire.utils._early_stop import Progress, StoppedEarly, not_counting, note_unclear
from gradwire.utils._selective_checkpoints import (
    CheckpointPolicy,
    Selection,
    SelectiveCheckpointContext,
    _CachedTorchDispatchMode,  # noqa: F401
    _CachingTorchDispatchMode,  # noqa: F401
)
from gradwire.v1 import hooks_pb2, service_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol

__all__ = [
    "CheckpointPolicy",
    "SelectiveCheckpointContext",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "noop_context_fn",
    "set_checkpoint_early_stop",
]

_EXPLICITLY = (
    "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. use_reentrant=False is what "
    "happens here, whatever it says."
)

_INCOMPATIBLE = (
    "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` parameter to "
    ".backward(). To resolve this error, you can either set use_reentrant=False, or call .backward() without passing "
    "the `inputs` argument."
)

_ONLY_WITHOUT = "Passing `context_fn` or `debug` is only supported when use_reentrant=False."

_Context = AbstractContextManager[Any]
_STOPS_EARLY: ContextVar[bool | None] = ContextVar("gradwire_checkpoint_early_stop", default=None)


def noop_context_fn() -> tuple[_Context, _Context]:
    """No contexts, neither for the forward nor for computing it again."""
    return nullcontext(), nullcontext()


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Callable[..., Any] | Sequence[Any], allow_cache_entry_mutation: bool = False
) -> tuple[_Context, _Context]:
    """Contexts for a checkpoint that keeps some results (torch.utils.checkpoint.create_selective_checkpoint_contexts).

    In the first call `policy(context, op, *args, **kwargs)` is asked about each op, an overload of `torch.ops.aten`. A
    list names the ops to keep. What is kept is not computed again; views, in-place ops and random numbers always are.
    Each op waits for the server. An op of gradwire that PyTorch makes of several is asked about as such, and kept as
    one. Backward passes the region once. Changing a kept result in place is refused, unless
    `allow_cache_entry_mutation`. Raises TypeError if it is neither a function nor a list, ValueError for a list of
    anything but overloads of ops.
    """
    for each in policy_fn_or_list if isinstance(policy_fn_or_list, list) else ():
        if not isinstance(each, wired("OpOverload")):
            raise ValueError(_no_overload(each))
    if not (callable(policy_fn_or_list) or isinstance(policy_fn_or_list, list)):
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    policy = policy_fn_or_list if callable(policy_fn_or_list) else partial(_listed, tuple(policy_fn_or_list))
    selection = Selection(policy, allow_cache_entry_mutation)
    return selection, selection.again


def _listed(kept: Sequence[Any], context: SelectiveCheckpointContext, op: Any, *args: Any, **kwargs: Any) -> Any:
    """The policy of a list of ops."""
    return CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE


def _no_overload(op: Any) -> str:
    """What is wrong with an item of a list of ops."""
    message = f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}. "
    if isinstance(op, wired("OpOverloadPacket")):
        message += (
            "Please update the OpOverloadPacket to a specific OpOverload. For example, if you have "
            "`torch.ops.aten.mm`, change it to `torch.ops.aten.mm.default`."
        )
    return message


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[_Context, _Context]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, which is called again in backward rather than keeping what backward needs.

    Works like PyTorch's with `use_reentrant=False`. The second call ends behind the last op that may save a value. With
    `use_reentrant` it refuses what that form of PyTorch's refuses: `autograd.grad`, `backward(inputs=)`, and a backward
    where nothing requires a gradient. `context_fn` makes a context for each of the two calls. Backward raises
    RuntimeError if the second call makes other nodes, or an argument's tensor was changed in place.
    """
    if use_reentrant is None:
        warnings.warn(_EXPLICITLY, UserWarning, stacklevel=2)
    if use_reentrant and (context_fn is not noop_context_fn or debug):
        raise GradwireValueError(_ONLY_WITHOUT)
    first, again = context_fn()
    if not is_grad_enabled():
        with first:
            return function(*args, **kwargs)
    check_enabled()
    note_unclear()
    stops = early_stop if _STOPS_EARLY.get() is None else bool(_STOPS_EARLY.get())
    if isinstance(first, Selection) and again is first.again:
        inputs = _Watch.of(list(_handles((args, kwargs))))
        check = (lambda: None) if inputs is None else inputs.check
        call_it = partial(function, *args, **kwargs)
        return _selective_checkpoints.run(call_it, first, check, stops, preserve_rng_state)
    session = next((each._session for each in _handles((args, kwargs))), None) or current_session()
    number = next(session.ids)
    region = REGION.get()

    progress = Progress()
    # A context may be entered only once, a mode more often.
    progress.unclear = not stops or not (isinstance(again, nullcontext) or hasattr(again, "__torch_dispatch__"))

    def call(context: _Context, begin: int, end: int, counting: _Context) -> Any:
        outputs: list[Handle] = []
        stopped_early = False
        _mark(session, number, begin, (), preserve_rng_state)
        try:
            with context, in_force(None), counting:
                token = IN_CHECKPOINT.set(not use_reentrant)
                last = LAST_AGAIN.set(None if use_reentrant or begin == hooks_pb2.CHECKPOINT_MARK_BEGIN else "")
                try:
                    result = function(*args, **kwargs)
                except StoppedEarly as stopped:
                    result = stopped.live
                    stopped_early = True
                finally:
                    LAST_AGAIN.reset(last)
                    IN_CHECKPOINT.reset(token)
            outputs = [each for each in _handles(result) if each._session is session]
        finally:
            try:
                _mark(session, number, end, outputs, preserve_rng_state)
            except GradwireError as error:
                if stopped_early:
                    raise _EndedTooEarly from error
                raise
            this = CURRENT_PASS.get()
            if this is not None:
                this.held.extend(each._edge for each in outputs)  # a derivative of the gradients may reach hooks
        return result

    def run(hook_arguments: HookArguments) -> None:
        this = CURRENT_PASS.get()
        if use_reentrant and this is not None and not this.to_leaves:
            raise refuse(_INCOMPATIBLE)
        with enable_grad():
            if watch is not None:
                watch.check()
            with restored(region):
                compute_again()

    def compute_again() -> None:
        marks = hooks_pb2.CHECKPOINT_MARK_BEGIN_AGAIN, hooks_pb2.CHECKPOINT_MARK_END_AGAIN
        if progress.may_stop(bool(MODES.get()) or hasattr(again, "__torch_dispatch__")):
            try:
                call(again, *marks, progress.stopping())
            except _EndedTooEarly:
                progress.unclear = True
            else:
                return
        call(again, *marks, not_counting())

    session.hooks[number] = run
    watch = _Watch.of([each for each in _handles((args, kwargs)) if each._session is session])
    try:
        with without_casts():  # the second call makes the same casts
            result = call(first, hooks_pb2.CHECKPOINT_MARK_BEGIN, hooks_pb2.CHECKPOINT_MARK_END, progress.counting())
    except BaseException:
        session.hooks.pop(number, None)
        raise
    return _needless(result, args) if use_reentrant else result


class _EndedTooEarly(Exception):
    """A second call ended early, and the server misses a value."""


class _Needless(Function):
    """The results of a checkpoint in which nothing requires a gradient. PyTorch refuses it when backward reaches it."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Any) -> Any:
        return tuple(each.clone() for each in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise refuse("none of output has requires_grad=True, this checkpoint() is not necessary")


def _needless(result: Any, args: tuple[Any, ...]) -> Any:
    """The results of a reentrant checkpoint: they require a gradient if an argument does, whatever was computed."""
    parts = list(result) if isinstance(result, tuple) else [result]
    made = [each for each in parts if isinstance(each, Handle)]
    given = [each for each in args if isinstance(each, Handle) and each._spec.requires_grad]
    floating = [each for each in made if each._spec.dtype.is_floating_point or each._spec.dtype.is_complex]
    if not given or not floating or any(each._spec.requires_grad for each in made):
        return result
    shown = dict(zip(map(id, floating), _Needless.apply(len(floating), *floating, *given), strict=True))
    parts = [shown.get(id(each), each) for each in parts]
    return tuple(parts) if isinstance(result, tuple) else parts[0]


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Inside, checkpoints stop being computed again as soon as all is there, or never do.

    It overrides their argument `early_stop`.
    """
    token = _STOPS_EARLY.set(enable)
    try:
        yield
    finally:
        _STOPS_EARLY.reset(token)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Call functions, or a Sequential's modules, in a row; each of so many segments but the last is a checkpoint."""
    if use_reentrant is None:
        warnings.warn(_EXPLICITLY, UserWarning, stacklevel=2)
        use_reentrant = False
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = len(steps) // segments

    def run(part: Sequence[Any], value: Any) -> Any:
        for step in part:
            value = step(value)
        return value

    for place in range(segments - 1):
        part = steps[place * size : (place + 1) * size]
        input = checkpoint(run, part, input, use_reentrant=use_reentrant, **kwargs)
    return run(steps[(segments - 1) * size :], input)


class _Watch:
    """Whether a part's inputs are unchanged: computed again from others it would have other gradients.

    A node saves an empty view of each, which shares its version. After an in-place change, a gradient through the node
    is refused. Nothing waits for a version.
    """

    def __init__(self, total: Any, probe: Any) -> None:
        self.total = total
        self.probe = probe

    @classmethod
    def of(cls, inputs: Sequence[Any]) -> _Watch | None:
        """Watch inputs from now on; None for no inputs."""
        seen = [each for each in inputs if not each.is_inference()]
        if not seen:
            return None
        with enable_grad(), in_force(None), only(()):
            probe = zeros((), device=seen[0].device, requires_grad=True)
            total = probe
            for each in seen:
                part = (each.detach().unsqueeze(0)[:0] * probe).sum()
                total = total + (part.real if part.is_complex() else part).to(probe)
        return cls(total, probe)

    def check(self) -> None:
        """Raise RuntimeError if an input was changed in place since."""
        with only(()):
            grad([self.total], [self.probe], retain_graph=True)


def _handles(value: Any) -> Iterator[Handle]:
    """The tensors in a value, in tuples, lists and dictionaries."""
    if isinstance(value, Handle):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        parts: Iterable[Any] = value.values() if isinstance(value, dict) else value
        for each in parts:
            yield from _handles(each)


def _mark(session: SessionProtocol, number: int, mark: Any, outputs: Sequence[Handle], keeps_random: bool) -> None:
    """Tell the server where the part begins or ends."""
    session.draws.in_backward = True

    def build(values: Sequence[Value]) -> service_pb2.Command:
        hook, *ids = [int(value) for value in values]
        request = hooks_pb2.CheckpointRequest(hook=hook, mark=mark, outputs=ids, random_goes_on=not keeps_random)
        return service_pb2.Command(checkpoint=request)

    values = [number, *[each._id for each in outputs]]
    if mark in (hooks_pb2.CHECKPOINT_MARK_BEGIN, hooks_pb2.CHECKPOINT_MARK_END):
        commands.run(session, "checkpoint", (mark, len(outputs), keeps_random), values, build)
    else:
        session.wait(build(values))

"""Hooks: registers hooks of tensors and nodes (torch.Tensor.register_hook) on the server; hook_runner runs them."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from gradwire._base.errors import GradwireTypeError, refuse
from gradwire._graph import commands
from gradwire._graph.hook_runner import CURRENT_PASS, HookArguments
from gradwire._graph.sparse_gradients import SparseGradients, fitting, is_sparse
from gradwire._proxy.handle import Handle
from gradwire._proxy.shadow_graph import Leaf, hold_hooks
from gradwire._transport.wire import Value
from gradwire.v1 import errors_pb2, hooks_pb2, service_pb2, types_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import HookCallback, SessionProtocol

Hook: TypeAlias = "Callable[..., Any]"
_NO_GRADIENT = "cannot register a hook on a tensor that doesn't require gradient"
_TENSOR = types_pb2.HOOK_KIND_TENSOR
_BEFORE = types_pb2.HOOK_KIND_BEFORE
_AFTER = types_pb2.HOOK_KIND_AFTER
_ACCUMULATED = types_pb2.HOOK_KIND_ACCUMULATED


class RemovableHandle:
    """The handle of a registered hook; `remove()` removes it (torch.utils.hooks.RemovableHandle).

    As a context manager it removes the hook at the end of the block.
    """

    _numbers = itertools.count()

    def __init__(self, remove: Callable[[], None]) -> None:
        self.id = next(self._numbers)
        #: Gives the dictionary that has the hook, as PyTorch's weak reference does.
        self.hooks_dict_ref: Callable[[], dict[int, Any] | None] = partial(_same, None)
        self._remove: Callable[[], None] | None = remove

    def remove(self) -> None:
        """Remove the hook. A second call does nothing."""
        remove, self._remove = self._remove, None
        if remove is not None:
            remove()

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def add_hook(
    hooks: dict[int, Any], hook: Any, first: bool = False, marks: Sequence[dict[int, bool]] = ()
) -> RemovableHandle:
    """Keep a hook in a dictionary, in order, until its handle removes it; `first` puts it before the others.

    `marks` are dictionaries that note the hook's number as long as it is kept.
    """
    # Partial functions, which copies and pickles of a module take along with its hooks.
    handle = RemovableHandle(_nothing)
    number = handle.id
    handle._remove = partial(_forget, (hooks, *marks), number)
    handle.hooks_dict_ref = partial(_same, hooks)
    for mark in marks:
        mark[number] = True
    before = dict(hooks) if first else {}
    if first:
        hooks.clear()
    hooks[number] = hook
    hooks.update(before)
    return handle


def _nothing() -> None:
    """What the handle of a removed hook does."""


def _same(hooks: dict[int, Any] | None) -> dict[int, Any] | None:
    return hooks


def _forget(dictionaries: Sequence[dict[int, Any]], number: int) -> None:
    for each in dictionaries:
        each.pop(number, None)


def hook_tensor(tensor: Handle, hook: Hook) -> RemovableHandle:
    """Call `hook(gradient)` when backward has a tensor's gradient. Raises RuntimeError unless it requires grad."""
    if not tensor._spec.requires_grad:
        raise refuse(_NO_GRADIENT, errors_pb2.REASON_REQUIRES_GRAD)

    place = weakref.ref(tensor)

    def run(hook_arguments: HookArguments) -> Sequence[Any] | None:
        known, current = place(), CURRENT_PASS.get()
        if current is not None and current.sparse and known is not None:
            sparse = current.sparse.of(known)
            if sparse is not None:
                return _replaced_sparse(known, sparse, hook_arguments.gradients[0], current.sparse, hook)
        return _replaced(hook_arguments.gradients, [hook(hook_arguments.gradients[0])], hook)

    return _register(tensor, _TENSOR, run)


def _replaced_sparse(leaf: Handle, sparse: Any, dense: Any, held: SparseGradients, hook: Hook) -> Sequence[Any] | None:
    """Call a hook with a leaf's gradient of which the server has no part, or only `dense`."""
    if dense is not None:
        held.replace(leaf, None)
        whole = dense + sparse
        return _replaced([whole], [hook(whole)], hook) or [whole]
    made = hook(sparse)
    if made is not None:
        name = getattr(hook, "__name__", type(hook).__name__)
        if not is_sparse(made):
            if isinstance(made, Handle):
                raise refuse(f"hook '{name}' has changed the type of value (was sparse, got dense)")
            raise GradwireTypeError(f"expected Variable, but hook returned '{type(made).__name__}'")
        _check_like(sparse._v, made._v, name, shapes=False)
        held.replace(leaf, fitting(made, leaf, f"hook '{name}' has changed the size of value"))
    return None


def hook_accumulated(leaf: Handle, hook: Hook) -> RemovableHandle:
    """Call `hook(leaf)`, which returns the leaf or None, after a leaf's gradient was accumulated.

    Raises RuntimeError for a non-leaf.
    """
    if not leaf._spec.requires_grad:
        raise refuse(_NO_GRADIENT, errors_pb2.REASON_REQUIRES_GRAD)
    if not leaf._spec.is_leaf:
        raise refuse(
            "post accumulate grad hooks cannot be registered on non-leaf tensors", errors_pb2.REASON_REQUIRES_GRAD
        )

    def run(hook_arguments: HookArguments) -> None:
        answer = hook(hook_arguments.leaf)
        if answer is not None and answer is not hook_arguments.leaf:
            if isinstance(answer, Handle):
                raise refuse("Tensor post accumulate grad hooks should return None.")
            raise GradwireTypeError(f"expected Variable, but hook returned '{type(answer).__name__}'")

    run.needs_dense = True  # type: ignore[attr-defined] # `sparse_gradients` asks
    leaf.is_leaf  # type: ignore[attr-defined] # noqa: B018 refuses a view that was left behind
    return _register(leaf, _ACCUMULATED, run)


class HeldHooks:
    """Hooks that tensors hold: a leaf and its edge, or the node of another tensor. So do the graphs that lead there.

    The session has none of them, so a hook that refers to its tensor is garbage as soon as nothing else refers to
    either.
    """

    def __init__(self) -> None:
        self.calls: dict[int, HookCallback] = {}

    def __deepcopy__(self, memo: Any) -> HeldHooks:
        return HeldHooks()  # hooks stay with their tensor, as in PyTorch

    def __reduce__(self) -> Any:
        return HeldHooks, ()


class HookOfTensor:
    """A hook as the session has it, until the server drops it."""

    def __init__(self, held: HeldHooks, run: HookCallback, after: bool = False) -> None:
        """after: whether it is called after a leaf's gradient was accumulated, which changes none."""
        self._held = weakref.ref(held)
        self._after = after
        held.calls[id(self)] = run

    def __call__(self, hook_arguments: HookArguments) -> Sequence[Any] | None:
        held = self._held()
        if held is not None:
            return held.calls[id(self)](hook_arguments)
        if self._after:
            return None
        raise refuse(
            "this backward reaches a hook or custom function whose tensors are gone; keep a tensor that leads to it",
            errors_pb2.REASON_NOT_SUPPORTED,
        )

    def near(self) -> dict[int, Any]:
        """The tensors that the hook's arguments may be."""
        held = self._held()
        found: dict[int, Any] = {} if held is None else getattr(held.calls[id(self)], "near", dict)()
        return found

    def __del__(self) -> None:
        held = self._held()
        if held is not None:
            held.calls.pop(id(self), None)


def hold(tensor: Handle, run: HookCallback, after: bool = False) -> HookCallback:
    """What the session calls, for a hook of a tensor's own node: the tensor holds the hook itself.

    Where only the server knows the tensor's history, the session holds it: `run`.
    """
    edge = tensor._edge
    if type(edge) is Leaf:
        held = tensor.__dict__.setdefault("_held_hooks", HeldHooks())
        edge.hooks = held
    elif edge:
        held = HeldHooks()
        hold_hooks(edge, held)
    else:
        return run
    made = HookOfTensor(held, run, after)
    tensor._session.hook_holders.add(held)
    return made


def hook_before(root: Handle, node: int, hook: Hook) -> RemovableHandle:
    """Call `hook(grad_outputs)` before backward executes node `node` of the graph of `root` (0: its own node)."""

    def run(hook_arguments: HookArguments) -> Sequence[Any] | None:
        return _replaced(hook_arguments.gradients, hook(hook_arguments.gradients), hook)

    return _register(root, _BEFORE, run, node)


def hook_after(root: Handle, node: int, hook: Hook) -> RemovableHandle:
    """Call `hook(grad_inputs, grad_outputs)` after backward executed node `node` of the graph of `root`."""

    def run(hook_arguments: HookArguments) -> Sequence[Any] | None:
        return _replaced(hook_arguments.gradients, hook(hook_arguments.gradients, hook_arguments.others), hook)

    return _register(root, _AFTER, run, node)


def _register(tensor: Handle, kind: Any, run: Any, node: int = 0) -> RemovableHandle:
    tensor.is_leaf  # type: ignore[attr-defined] # noqa: B018 refuses a view that was left behind
    if tensor._edge is None:  # a view made under no_grad of a tensor that requires grad: it never receives a gradient
        return RemovableHandle(lambda: None)
    session = tensor._session
    number = next(session.ids)

    def build(values: Sequence[Value]) -> service_pb2.Command:
        request = hooks_pb2.RegisterHookRequest(hook=int(values[0]), tensor=int(values[1]), kind=kind, node=node)
        return service_pb2.Command(register_hook=request)

    session.hooks[number] = run if node else hold(tensor, run, kind == _ACCUMULATED)
    try:
        commands.run(session, "register_hook", (kind, node, tensor._spec), [number, tensor._id], build)
    except BaseException:
        session.hooks.pop(number, None)
        raise
    place = weakref.ref(session)
    return RemovableHandle(lambda: _remove(place(), number))


def _remove(session: SessionProtocol | None, number: int) -> None:
    """Remove a hook on the server. Calls before its answer still run, as PyTorch finishes the current list."""

    def build(values: Sequence[Value]) -> service_pb2.Command:
        return service_pb2.Command(remove_hook=hooks_pb2.RemoveHookRequest(hook=int(values[0])))

    if session is not None and number in session.hooks:
        commands.run(session, "remove_hook", (), [number], build)


def _replaced(given: Sequence[Any], answer: Any, hook: Hook) -> Sequence[Any] | None:
    """The gradients that a hook returned, or None to keep the given ones. Raises TypeError, RuntimeError."""
    if answer is None:
        return None
    made = tuple(answer) if isinstance(answer, (tuple, list)) else (answer,)
    name = getattr(hook, "__name__", type(hook).__name__)
    if len(made) == 1 == len(given) and made[0] is None:
        return None
    if len(made) != len(given):
        raise refuse(
            f"hook '{name}' has returned an incorrect number of values (got {len(made)}, but expected {len(given)})"
        )
    for old, new in zip(given, made, strict=True):
        if new is None:
            continue
        if not isinstance(new, Handle):
            raise GradwireTypeError(f"expected Variable, but hook returned '{type(new).__name__}'")
        if old is None:
            raise refuse("can't replace a None gradient with a non-None value")
        _check_like(old, new, name)
    return made


def _check_like(old: Handle, new: Handle, name: str, shapes: bool = True) -> None:
    before, after = old._spec, new._spec
    if before.dtype is not after.dtype:
        raise refuse(
            f"hook '{name}' has changed the type of value (was {before.dtype} got {after.dtype})",
            errors_pb2.REASON_DTYPE,
        )
    if before.device != after.device:
        raise refuse(f"hook '{name}' has changed the device of value", errors_pb2.REASON_DEVICE_MISMATCH)
    if shapes and before.shape != after.shape:
        raise refuse(f"hook '{name}' has changed the size of value", errors_pb2.REASON_SHAPE)

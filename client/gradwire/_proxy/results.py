"""Results: creates and updates proxies from the answers of commands."""

from __future__ import annotations

import weakref
from collections import namedtuple
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from gradwire._base.modes import is_inference_mode_enabled
from gradwire._base.refused import refusal
from gradwire._proxy.dual_levels import DUAL_LEVELS, note_dual, set_tangent_edges
from gradwire._proxy.handle import PRESENT, UNKNOWN, Handle, ViewOf
from gradwire._proxy.memo import Spec, read_spec
from gradwire._proxy.shadow_graph import Edge, Leaf, NodeHooks, held_by, unknown_node, unneeded_edge
from gradwire._proxy.storage_state import StorageState
from gradwire._proxy.transforms import unbatched
from gradwire.v1 import commands_pb2, service_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol
    from gradwire.v1 import types_pb2

_MIRROR = (
    "one of x and x.conj() was changed in place. In PyTorch the other changes with it, and here it does not. Call "
    "conj() after the change, or conj_physical() for a copy"
)
#: The class of new proxies. Tensor registers itself here, because its package is above this one.
TENSOR_CLASS: list[type[Any]] = [Handle]


def new_proxy(session: SessionProtocol, tensor_id: int, spec: Spec, edge: Edge | None = None) -> Any:
    """The proxy of a tensor. A leaf that requires grad gets its edge here."""
    made = object.__new__(TENSOR_CLASS[0])
    fill_proxy(made, session, tensor_id, spec, edge)
    made._received = True
    if edge is None and spec.requires_grad:
        if spec.is_leaf:
            watch_leaf(made)
        else:
            made._edge = unknown_node(session)
    return made


def known_or_new(session: SessionProtocol, message: types_pb2.TensorSpec, near: Mapping[int, Any]) -> Any:
    """The proxy of a tensor in an answer: the existing proxy if there is one, else a new one; None without an id.

    `near` maps ids to proxies that the tensor may be, besides the watched ones. Two proxies of one leaf would be two
    leaves of the shadow graph. A backward through one would not mark the other's gradient.
    """
    if not message.id:
        return None
    if message.same_as:
        known = near.get(message.same_as)
        known = session.watched.get(message.same_as) if known is None else known
        if known is not None:
            session.released.append(message.id)
            return known
    made = new_proxy(session, message.id, read_spec(message))
    if message.base:
        base = near.get(message.base)
        base = session.watched.get(message.base) if base is None else base
        if base is not None:
            made.__dict__["_view"] = ViewOf(base, share_storage(made, base).version)
    return made


def fill_proxy(made: Any, session: SessionProtocol, tensor_id: int, spec: Spec, edge: Edge | None = None) -> None:
    """Set the attributes of a new proxy."""
    made._id = tensor_id
    made._session = session
    made._spec = spec
    made._grad = None
    made._retained = None
    made._storage = None
    made._known = None
    made._received = False
    made._changes_seen = 0
    made._edge = edge
    if spec.tangents:
        note_dual(made)
    if session.recorder is not None:
        session.recorder.add_handle(made)


def watch_leaf(leaf: Handle) -> None:
    """Give a leaf that requires grad its edge, and register it in the session by its id."""
    leaf._edge = Leaf(leaf)
    leaf._edge.hooks = leaf.__dict__.get("_held_hooks")  # of the time before its flag was cleared and set again
    leaf._session.watched[leaf._id] = leaf


def watch_retained(tensor: Handle) -> None:
    """Mark a non-leaf that retains its gradient, and register it in the session by its id."""
    tensor._retained = Leaf(tensor)
    tensor._session.watched[tensor._id] = tensor
    if tensor._edge:  # an empty node is known only to the server, which then reports the gradients
        tensor._edge.append(tensor._retained)


def new_result(
    session: SessionProtocol, tensor_id: int, spec: Spec, edges: Sequence[Edge], args: Sequence[Any], place: int = 0
) -> Any:
    """The proxy of an op's result: its node has the inputs' edges, and a view shares its base's storage.

    `place` is the result's index among the op's results.
    """
    source = None
    if spec.is_view:
        source = args[0] if isinstance(args[0], Handle) else _source(args, place)
    recorded = spec.requires_grad and not spec.is_leaf
    made = object.__new__(TENSOR_CLASS[0])
    fill_proxy(made, session, tensor_id, spec)
    if recorded:
        made._edge = list(edges)
        if len(edges) > 2 and type(edges[-1]) is NodeHooks and not spec.output_nr:
            # Of several results with nodes of their own, a view leads to its base, and others to some of the inputs.
            if source is not None:
                made._edge = [source._edge]
            elif place:
                made._edge = unknown_node(session)
    elif spec.requires_grad and not (source is not None and source._spec.requires_grad):
        watch_leaf(made)
    if spec.tangents:
        set_tangent_edges(made, edges, args)
    if source is not None:
        storage = share_storage(made, source)
        storage.dual = storage.dual or bool(spec.tangents)
        held = source.__dict__.get("_view")
        base = source if held is None else held.base
        view = made.__dict__["_view"] = ViewOf(base, storage.version)
        view.tracked = held is not None and held.tracked
        if not recorded and spec.requires_grad is not base._spec.requires_grad and _may_require(spec):
            made._spec = spec.with_requires_grad(base._spec.requires_grad)
    return made


def _may_require(spec: Spec) -> bool:
    """Whether tensors of this kind can require a gradient."""
    return spec.is_leaf and not spec.inference and (spec.dtype.is_floating_point or spec.dtype.is_complex)


def _source(args: Sequence[Any], place: int) -> Handle | None:
    """The base of a view: the first tensor argument, or the element `place` of the first tensor list."""
    for value in args:
        if isinstance(value, Handle):
            return value
        if isinstance(value, (list, tuple)) and place < len(value) and isinstance(value[place], Handle):
            shown: Handle = value[place]
            return shown
    return None


def share_storage(made: Handle, source: Handle) -> StorageState:
    """Let a tensor share its source's storage, and so its version."""
    storage = source._storage
    if storage is None:
        storage = source._storage = StorageState(source._spec)
        source._changes_seen = storage.changes
    made._storage = storage
    made._changes_seen = storage.changes
    for name in ("_memory", "_negated"):
        if name in source.__dict__:
            made.__dict__[name] = source.__dict__[name]
    return storage


def mirror(made: Any, source: Any) -> Any:
    """Note that a result is a copy where PyTorch has a view, conjugated or negated. Returns the result.

    After an in-place change of one, the other is refused.
    """
    mine, other = unbatched(made), unbatched(source)
    if mine is not other:
        storages = [each._storage or share_storage(each, each) for each in (other, mine)]
        storages[0].mirrored(storages[1])
        view = other.__dict__.get("_view")
        if view is not None and view.item is not None and not storages[0].moved:
            storages[1].part = weakref.ref(storages[0]), view.item
    return made


def update_strides(target: Handle, spec: Spec, edges: list[Edge], recorded: bool) -> None:
    """Update a proxy after an in-place change of sizes and strides. No value was written, so its base is unchanged."""
    expect_other_gradient(target)
    if target._storage is not None:
        target._storage.moved = True
    view: ViewOf | None = target.__dict__.get("_view")
    if view is not None:
        view.steps = ()
    if not recorded or not edges or spec.is_leaf:
        update_in_place(target, spec, edges, False, values=False)
        return
    storage = target._storage
    if storage is None:
        storage = target._storage = StorageState(target._spec)
    storage.version += 1
    storage.changes += 1
    target._changes_seen = storage.changes
    _set_node(target, edges)
    target._spec = spec
    if view is not None:
        view.version = storage.version


def update_in_place(target: Handle, spec: Spec, edges: list[Edge], recorded: bool, values: bool = True) -> None:
    """Update a proxy after an in-place op. A recorded op gives the proxy and its views a new history.

    values: whether it wrote values, of which other storages may hold copies.
    If the target is a view, its base is updated at once, then the view. `refresh` updates other tensors of the storage
    at their next use.
    """
    session = target._session
    session.in_place_writes += 1
    if is_inference_mode_enabled():
        session.untracked_writes += 1  # views that are made there are not told from other tensors
    storage = target._storage
    if storage is not None:
        if not values:
            storage.version += 1
            storage.changes += 1
        elif storage.mirrors is None:
            storage.written()
        else:
            of: ViewOf | None = target.__dict__.get("_view")
            storage.written(item=None if of is None else of.item)
        target._changes_seen = storage.changes
    recorded = bool(recorded and edges and not spec.is_leaf)
    view: ViewOf | None = target.__dict__.get("_view")
    if view is not None and storage is not None:
        if recorded:
            old = view.base._edge
            _set_node(target, None)
            view.base._spec = view.base._spec.recorded("CopySlices")
            _set_node(view.base, edges if old is None else [old, *edges])
            view.base._changes_seen = storage.changes
        _update_view(target, view, storage)
    elif recorded:
        _set_node(target, edges)
    if spec.tangents or target._spec.tangents:
        _change_tangents(target, storage)
    target._spec = spec


def _change_tangents(target: Handle, storage: StorageState | None) -> None:
    """Note that an in-place op changed a tensor's tangents; those of its base and views are unknown then."""
    if storage is not None:
        storage.dual = True
        view: ViewOf | None = target.__dict__.get("_view")
        if view is not None:
            view.base._changes_seen = -1  # so that its next use refreshes it


def describe_tangents(stale: Handle) -> None:
    """Ask the server for the tangents of a tensor, after an in-place op on another tensor of its storage."""
    request = commands_pb2.DescribeRequest(tensors=[stale._id])
    answer = stale._session.wait(service_pb2.Command(describe=request)).describe.tensors[0]
    stale._spec = stale._spec.with_tangents(read_spec(answer).tangents)
    if stale._spec.tangents:
        note_dual(stale)
        stale.__dict__["_tangent_edges"] = [unknown_node(stale._session)]


def _set_node(tensor: Handle, edges: list[Edge] | None) -> None:
    """Set a tensor's node. A retained gradient moves to the new node."""
    retained = tensor._retained
    if retained is not None:
        if isinstance(tensor._edge, list) and retained in tensor._edge:
            tensor._edge.remove(retained)
        if edges is not None:
            edges.append(retained)
    if edges is not None and tensor._edge:
        edges += held_by(tensor._edge)
    tensor._edge = edges


def refresh(stale: Handle) -> None:
    """Update a tensor after an in-place op, or a changed flag, on another tensor of its storage."""
    storage = stale._storage
    assert storage is not None
    if storage.stale:
        raise refusal("Tensor.conj as a view", _MIRROR)
    stale._changes_seen = storage.changes
    view: ViewOf | None = stale.__dict__.get("_view")
    if storage.dual and DUAL_LEVELS.get():
        describe_tangents(stale)
    if view is not None:
        _update_view(stale, view, storage)
        if storage.left and stale._spec.grad_fn:
            stale._edge = unknown_node(stale._session)


def _update_view(stale: Handle, view: ViewOf, storage: StorageState) -> None:
    spec, base = stale._spec, view.base
    if view.version != storage.version and (spec.grad_fn or base._spec.requires_grad):
        if spec.origin:
            stale._spec = spec.left_behind()
            return
        view.version = storage.version
        stale._spec = spec.recorded("AsStridedBackward0")
        _set_node(stale, [unneeded_edge() if base._edge is None else base._edge])
    elif spec.is_leaf and not isinstance(stale._edge, Leaf) and (spec.dtype.is_floating_point or spec.dtype.is_complex):
        stale._spec = spec.with_requires_grad(base._spec.requires_grad)


@cache
def return_type(op: str, names: tuple[str, ...]) -> type[Any]:
    """The named tuple of an op with several results: torch.return_types.max."""
    op = op.replace(".", "_")
    made: type[Any] = namedtuple(op, names)  # type: ignore[misc]

    def shown(self: Any) -> str:
        parts = ",\n".join(f"{name}={value!r}" for name, value in zip(names, self, strict=True))
        return f"torch.return_types.{op}(\n{parts})"

    made.__repr__ = shown  # type: ignore[method-assign]
    return made


def pack_results(op: str, made: tuple[Any, ...], result: Any) -> Any:
    """The results in the op's return form: one tensor, a bool, a tuple or a named tuple."""
    if result is None:
        return made[0]
    if result == "bool":
        return bool(made[0].item())
    if result == "tuple":
        return made
    if len(made) == 1:
        return made[0]
    if len(made) < len(result):  # optional results were not requested: unique(return_counts=True)
        return made
    return return_type(op, tuple(result))(*made)


def expect_other_gradient(target: Handle) -> None:
    """Note that a tensor's sizes or dtype change, so that its gradient, which keeps its own, may be unlike it."""
    if target._grad is PRESENT:
        target._grad = UNKNOWN


def is_like_its_tensor(target: Handle, grad: Handle) -> bool:
    """Whether a tensor's gradient has its dtype, sizes and device, and is row-major, as backward makes gradients."""
    mine, its = target._spec, grad._spec
    alike = mine.dtype is its.dtype and mine.shape == its.shape and mine.device_name == its.device_name
    return alike and not its.strides


def unnamed_gradient(target: Handle, grad: Any) -> Any:
    """State of a tensor with this gradient, without its proxy: PRESENT if the gradient is as backward makes them."""
    if not isinstance(grad, Handle):
        return grad
    return PRESENT if is_like_its_tensor(target, grad) and not grad._spec.requires_grad else UNKNOWN


def mark_gradients(owners: Sequence[Any], state: Any) -> None:
    """Set the gradient state of tensors that received a gradient.

    A leaf's gradient accumulates in place, so an existing proxy of it stays valid. A non-leaf's gradient is new. A leaf
    that no longer requires grad receives none.
    """
    for owner in owners:
        owner._grad = after_backward(owner, owner._grad, state)


def after_backward(owner: Any, before: Any, state: Any) -> Any:
    """A tensor's gradient state after a backward, from its state `before`."""
    if not owner._spec.requires_grad:
        return before
    if state is PRESENT and before is not None and owner._spec.is_leaf:
        note_accumulated(before)
    if state is UNKNOWN or before is UNKNOWN:
        return UNKNOWN
    return state if before is None or not owner._spec.is_leaf else before


def note_accumulated(grad: Any) -> None:
    """Note that backward added to a gradient in place: conjugates of it are out of date."""
    if isinstance(grad, Handle) and grad._storage is not None and grad._storage.mirrors is not None:
        grad._storage.outdate_mirrors()


def mark_gradients_unknown(owners: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Mark the tensors' gradients as UNKNOWN; return (tensor, earlier state) pairs."""
    before = [(owner, owner._grad) for owner in owners]
    for owner, _ in before:
        owner._grad = UNKNOWN
    return before

"""Tensor: an array, the storage it shares, and its place in the reverse graph.

Views and detached tensors share a `Storage`: a version counter, and bytes that are counted once. The last reference
to the storage releases the bytes. Values saved for backward refer to their storage, so their bytes stay counted.
"""

from __future__ import annotations

import weakref
from enum import Enum
from typing import TYPE_CHECKING, Any

from gradwire_engine.core.context import CURRENT, Account, Context
from gradwire_engine.core.device import Array, device_of
from gradwire_engine.core.dtypes import DType, is_differentiable, name_of
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.index_bounds import UNKNOWABLE, Bounds, note
from gradwire_engine.graph.graph import AccumulateGrad

if TYPE_CHECKING:
    from gradwire_engine.graph.graph import Edge, Node
    from gradwire_engine.graph.hooks import Hooks
    from gradwire_engine.graph.protocols import GraphOp


class Storage:
    """A version counter and bytes that tensors share.

    version: in-place changes. history: in-place changes, and changes of flags on the base; a view that is behind
    updates itself. owner: another storage whose bytes stay counted (x.data). bounds: of integers on a GPU,
    or UNKNOWABLE if another storage changes the same memory (core/index_bounds.py).
    """

    __slots__ = ("account", "bounds", "history", "nbytes", "owner", "version")
    inference = False
    #: Whether a tensor of it left the graph in place (`leave_graph`).
    left = False

    def __init__(self, nbytes: int, account: Account, owner: Storage | None = None) -> None:
        self.version = 0
        self.history = 0
        self.nbytes = nbytes
        self.account = account
        self.owner: Storage | None = None
        self.bounds: Bounds | None = None
        if owner is not None:
            self.borrow(owner)
        account.bytes += nbytes

    def __del__(self) -> None:
        self.account.bytes -= self.nbytes

    def borrow(self, owner: Storage) -> None:
        """Keep another storage's bytes counted. Either may now change them, each with its own version."""
        self.owner = owner
        self.bounds = owner.bounds = UNKNOWABLE

    def changed(self) -> None:
        """Note that the bytes were changed in place."""
        self.version += 1
        self.history += 1


class InferenceStorage(Storage):
    """Storage made in inference mode: its version is not checked, so its tensors may not be saved for backward."""

    __slots__ = ()
    inference = True


class LeftStorage(Storage):
    """Storage of a tensor that left the graph in place."""

    __slots__ = ()
    left = True


class ViewStep:
    """One op between a base and a view: its arguments without the input, and the input's shape and dtype.

    Steps form a linked list that starts at the view. They hold no tensors, so intermediate views may be collected.
    """

    __slots__ = ("args", "before", "dtype", "op", "shape")

    def __init__(self, before: ViewStep | None, op: GraphOp, args: tuple[Any, ...], source: Array) -> None:
        self.before = before
        self.op = op
        self.args = args
        self.shape = source.shape
        self.dtype = source.dtype


class ViewOrigin(Enum):
    """How a view was made, if in-place changes of it may not be recorded."""

    MULTIPLE = "multiple"
    NO_GRAD = "no_grad"
    INFERENCE = "inference"
    FUNCTION = "function"


class ViewOf:
    """A view's relation to its base: the ops between them, and the storage version at which they were recorded.

    flagged: requires_grad was set on the view itself, which makes it a leaf. A view that has neither node nor flag
        requires grad when its base does, though no gradient flows through it.
    seen: the storage's history at the last update.
    written: an item of the view was written, and the view was not read since. As in PyTorch, that changed another
        view, the item. The next read updates this view; if its base has left the graph by then, so does the view.
    """

    __slots__ = ("base", "flagged", "last", "origin", "seen", "source", "version", "written")
    #: The base's array at which the steps begin; if the base has another array now, the steps do not apply.
    source: Array | None

    def __init__(
        self, base: Tensor, last: ViewStep, origin: ViewOrigin | None, source: Array | None, storage: Storage
    ) -> None:
        """storage: the view's, which is another than the base's if the view between them was given other data."""
        self.base = base
        self.source = source
        self.last = last
        self.origin = origin
        self.flagged = False
        self.written = False
        self.version = storage.version
        self.seen = storage.history

    def new_node(self, view: Tensor) -> Node:
        """Node that makes the view from the base's present values. Implemented in op/rebase.py, which knows the ops."""
        raise NotImplementedError


class GradState:
    """Gradient state, which only leaves and tensors with a retained gradient have."""

    __slots__ = ("accumulator", "grad", "hooks", "retains_grad")

    def __init__(self) -> None:
        self.grad: Tensor | None = None
        self.accumulator: weakref.ref[AccumulateGrad] | None = None
        self.retains_grad = False
        self.hooks: Hooks | None = None


class Tensor:
    """An array that ops record (torch.Tensor). Made by ops and by `tensor`; do not replace `array`."""

    __slots__ = ("__weakref__", "array", "index", "node", "requires_grad", "state", "storage", "view")
    array: Array
    storage: Storage
    requires_grad: bool
    node: Node | None
    index: int
    view: ViewOf | None
    state: GradState | None

    def __init__(
        self,
        array: Array,
        requires_grad: bool = False,
        storage: Storage | None = None,
        context: Context | None = None,
    ) -> None:
        self.array = array
        if storage is None:
            context = context or CURRENT.get()
            made = InferenceStorage if context.inference else Storage
            base = array.base
            storage = made(array.nbytes if base is None else _base_bytes(array, base), context.account)
        self.storage = storage
        self.requires_grad = requires_grad
        self.node = None
        self.index = 0
        self.view = None
        self.state = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        return self.array.shape  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.array.ndim  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.array.size  # type: ignore[no-any-return]

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.array.dtype  # type: ignore[no-any-return]

    @property
    def device(self) -> str:
        """Canonical device name."""
        return device_of(self.array)

    @property
    def is_leaf(self) -> bool:
        """Whether no node made it (torch.Tensor.is_leaf)."""
        return self.grad_fn is None

    @property
    def grad_fn(self) -> Node | None:
        """The node that made it; None for a leaf."""
        if self.view is not None and self.view.seen != self.storage.history:
            refresh(self)
        return self.node

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient."""
        return None if self.state is None else self.state.grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self.grad_state().grad = value

    @property
    def retains_grad(self) -> bool:
        """Whether it is a non-leaf that keeps its gradient."""
        return self.state is not None and self.state.retains_grad and self.node is not None

    def grad_state(self) -> GradState:
        """The gradient state, created on first use."""
        if self.state is None:
            self.state = GradState()
        return self.state

    def note_bounds(self, source: Tensor) -> None:
        """Note the bounds of the integers that were copied to a GPU from a tensor in host memory."""
        note(self.storage, self.array, source.array)

    def __repr__(self) -> str:
        return f"Tensor(shape={self.shape}, dtype={name_of(self.dtype)}, grad_fn={self.grad_fn})"


def _base_bytes(array: Array, base: Any) -> int:
    """Bytes that a view of an array keeps allocated: all of its base."""
    return int(getattr(base, "nbytes", array.nbytes))


def tensor(array: Array, requires_grad: bool = False) -> Tensor:
    """Make a leaf that takes ownership of an array. Raises EngineError: REQUIRES_GRAD for integer and bool dtypes."""
    if requires_grad and not is_differentiable(array.dtype):
        raise EngineError(
            Reason.REQUIRES_GRAD, "Only Tensors of floating point and complex dtype can require gradients"
        )
    return Tensor(array, requires_grad)


class EdgeTensor(Tensor):
    """An edge of the graph as a tensor: the values and the node of the tensor there. Retains no gradient."""

    __slots__ = ()


def at_edge(source: Tensor) -> EdgeTensor:
    """The edge of the graph at which a tensor is now. Raises EngineError: REQUIRES_GRAD for a leaf."""
    node = source.grad_fn
    if node is None:
        raise EngineError(Reason.REQUIRES_GRAD, "a leaf has no node in the graph")
    made = EdgeTensor(source.array, True, source.storage)
    made.node, made.index = node, source.index
    return made


def detach_from_base(view: Tensor) -> None:
    """Make a view a base of its own, when its base has no other holder; later views of it have it as base."""
    view.view = None


def detach(source: Tensor) -> Tensor:
    """A leaf on the same storage that requires no gradient and shares the version counter."""
    return Tensor(source.array, storage=source.storage)


#: Nodes whose results left the graph in place, each with the indices of these results. As in PyTorch, ops that saved
#: one as their input refuse their backward (saved.py).
LEFT: weakref.WeakKeyDictionary[Node, set[int]] = weakref.WeakKeyDictionary()


def leave_graph(target: Tensor) -> Tensor:
    """Make a tensor a leaf that requires no gradient (torch.Tensor.detach_). Raises EngineError: RUNTIME for a view."""
    if target.view is not None:
        raise EngineError(Reason.RUNTIME, "Can't detach views in-place. Use detach() instead.")
    if target.node is not None:
        LEFT.setdefault(target.node, set()).add(target.index)
        if type(target.storage) is Storage:
            target.storage.__class__ = LeftStorage
    set_gradient_edge(target, None, 0)
    target.requires_grad = False
    target.storage.history += 1
    CURRENT.get().duals.drop(target)
    return target


def data(source: Tensor) -> Tensor:
    """A leaf on the same storage with a version counter of its own (torch.Tensor.data)."""
    return Tensor(source.array, storage=borrowed(source.storage))


def set_data(target: Tensor, source: Tensor) -> None:
    """Give `target` the values of `source`, with its own version counter (x.data = y). Raises EngineError: DTYPE."""
    if target.requires_grad and not is_differentiable(source.dtype):
        raise EngineError(
            Reason.DTYPE, "data set to a tensor that requires gradients must be floating point or complex dtype"
        )
    bare = target.array is source.array and target is not source  # x.data: a detached x with its own version counter
    version = 0 if bare else target.storage.version
    target.array = source.array
    target.storage = borrowed(source.storage)
    target.storage.version = version


def set_version(target: Tensor, version: int) -> None:
    """Let the tensor's bytes count as changed that often. Backward then trusts values that were saved at that version.

    Raises EngineError: RUNTIME for an inference tensor, which counts no versions.
    """
    if target.storage.inference:
        raise EngineError(Reason.RUNTIME, "Inference tensors do not track version counter.")
    target.storage.version = version
    if target.storage.bounds is not UNKNOWABLE:
        target.storage.bounds = None  # they may be of other values at the same version


def borrowed(storage: Storage) -> Storage:
    """Storage with its own version counter, for bytes that another storage counts."""
    made = InferenceStorage if storage.inference else Storage
    return made(0, storage.account, owner=storage.owner or storage)


def refresh(view: Tensor) -> None:
    """Update a view's node after an in-place change: it now derives from the base's present node.

    Raises EngineError: RUNTIME if the view's origin forbids that it follow its base.
    """
    held = view.view
    assert held is not None
    late = held.written and held.base.node is None
    held.written = False
    if (view.node is not None or held.base.requires_grad) and (late or held.version != view.storage.version):
        if held.origin is not None:
            refuse_origin(view, held.origin, "its base or another view of its base has been")
        set_gradient_edge(view, held.new_node(view), 0)
        held.version = view.storage.version
    update_requires_grad(view)
    held.seen = view.storage.history


def outdated(view: Tensor, held: ViewOf) -> bool:
    """Whether a view is outdated: its base changed, and the view may not or cannot follow."""
    changed = held.version != view.storage.version and (held.origin is not None or left_behind(view, held))
    return changed and (view.node is not None or held.base.requires_grad)


def left_behind(view: Tensor, held: ViewOf) -> bool:
    """Whether a view can no longer follow its base, because the base's memory or dtype was replaced."""
    base = held.base
    return held.source is not base.array and (view.storage is not base.storage or view.dtype != base.dtype)


def check_base(view: Tensor, held: ViewOf) -> None:
    """Check that a view can still follow its base. Raises EngineError: RUNTIME."""
    if left_behind(view, held):
        raise EngineError(
            Reason.RUNTIME,
            "the data of this view's base was replaced after the view was made, so the view cannot follow its base. "
            "Make the view again, or use detach().",
        )


def refuse_origin(view: Tensor, origin: ViewOrigin, what: str) -> None:
    """Refuse to record an in-place change of a view of this origin, of its base, or of another view of it.

    Always raises EngineError: RUNTIME, with PyTorch's message.
    """
    mode = "in inference mode" if origin is ViewOrigin.INFERENCE else "in no_grad mode"
    where = "in normal mode" if origin is ViewOrigin.INFERENCE else "with grad mode enabled"
    who = f"A view was created {mode} and {what} modified inplace {where}."
    if view.node is not None:
        name = view.node.name.rpartition("Backward")[0]
        who = f"Output {view.index} of {name} is a view and {what} modified inplace."
        if origin in (ViewOrigin.NO_GRAD, ViewOrigin.INFERENCE):
            who = (
                f"Output {view.index} of {name} is a view of a view which was created {mode} and {what} modified "
                f"inplace {where}."
            )
    if origin is ViewOrigin.FUNCTION:
        why = (
            "This view was created inside a custom Function (or because an input was returned as-is) and the autograd "
            "logic to handle view+inplace would override the custom backward associated with the custom Function, "
            "leading to incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the "
            "custom Function."
        )
    elif origin is ViewOrigin.MULTIPLE:
        why = (
            "This view is the output of a function that returns multiple views. Such functions do not allow the output "
            "views to be modified inplace. You should replace the inplace operation by an out-of-place one."
        )
    else:
        block = "inference_mode" if origin is ViewOrigin.INFERENCE else "no_grad"
        why = (
            "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by "
            f"moving both the view and the inplace either both inside the {block} block (if you don't want the inplace "
            "to be tracked) or both outside (if you want the inplace to be tracked)."
        )
    raise EngineError(Reason.RUNTIME, f"{who} {why}", shape=list(view.shape))


def node_without_refresh(tensor: Tensor) -> Node | None:
    """The node of a tensor, without a refusal: an outdated view keeps its old node. Does not count as a read."""
    held = tensor.view
    if held is not None and (outdated(tensor, held) or (held.written and held.base.node is not None)):
        update_requires_grad(tensor)
        return tensor.node
    return tensor.grad_fn


def update_requires_grad(view: Tensor) -> None:
    """Set a view's requires_grad from its own node or flag, or from its base."""
    held = view.view
    assert held is not None
    view.requires_grad = (
        view.node is not None
        or held.flagged
        or (held.base.requires_grad and is_differentiable(view.dtype) and not view.storage.inference)
    )


def set_gradient_edge(changed: Tensor, node: Node | None, index: int) -> None:
    """Give a tensor changed in place its new node; a retained gradient moves to that node."""
    old = changed.node
    if changed.state is not None and changed.state.retains_grad:
        if old is not None and old.retained is not None:
            old.retained.pop(changed.index, None)
        if node is not None:
            node.retain(index, changed)
    changed.node, changed.index = node, index


def edge_of(source: Tensor) -> Edge | None:
    """Edge for a tensor's gradient: its node, a leaf's AccumulateGrad, or None."""
    if source.view is not None and source.view.seen != source.storage.history:
        refresh(source)
    if source.node is not None:
        return source.node, source.index
    if not source.requires_grad or (source.view is not None and not source.view.flagged):
        return None
    state = source.grad_state()
    node = state.accumulator() if state.accumulator is not None else None
    if node is None:
        node = AccumulateGrad(source)
        state.accumulator = weakref.ref(node)
    return node, 0


def retain_grad(source: Tensor) -> None:
    """Keep this non-leaf's gradient in backward (torch.Tensor.retain_grad); no effect on a leaf.

    Raises EngineError: REQUIRES_GRAD if it does not require grad.
    """
    node = source.grad_fn  # read first: it updates a view's flags
    if not source.requires_grad:
        raise EngineError(Reason.REQUIRES_GRAD, "can't retain_grad on Tensor that has requires_grad=False")
    if node is not None:
        source.grad_state().retains_grad = True
        node.retain(source.index, source)


def set_requires_grad(target: Tensor, flag: bool) -> None:
    """Set a leaf's flag (torch.Tensor.requires_grad_). Raises EngineError: REQUIRES_GRAD if it may not be set."""
    if target.grad_fn is not None:
        if flag:
            return
        raise EngineError(
            Reason.REQUIRES_GRAD,
            "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
            "subgraph that doesn't require differentiation use var_no_grad = var.detach().",
        )
    if flag and not is_differentiable(target.dtype):
        raise EngineError(Reason.REQUIRES_GRAD, "only Tensors of floating point dtype can require gradients")
    if flag and target.storage.inference and not CURRENT.get().inference:
        raise EngineError(
            Reason.REQUIRES_GRAD, "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed."
        )
    target.requires_grad = flag
    if target.view is None:
        target.storage.history += 1
    else:
        target.view.flagged = flag
        update_requires_grad(target)


def set_grad(target: Tensor, grad: Tensor | None) -> None:
    """Assign `.grad`.

    Raises EngineError: SHAPE, DTYPE, DEVICE_MISMATCH if `grad` differs from the tensor; RUNTIME if it is the tensor.
    """
    if grad is None:
        if target.state is not None:
            target.state.grad = None
        return
    if grad is target:
        raise EngineError(Reason.RUNTIME, "can't assign Variable as its own grad")
    if grad.dtype != target.dtype:
        raise EngineError(
            Reason.DTYPE,
            f"assigned grad has data of a different type: expected {name_of(target.dtype)}, got {name_of(grad.dtype)}",
        )
    if grad.device != target.device:
        raise EngineError(
            Reason.DEVICE_MISMATCH,
            f"assigned grad has data located on a different device: expected {target.device}, got {grad.device}",
        )
    if grad.shape != target.shape:
        raise EngineError(
            Reason.SHAPE,
            f"assigned grad has data of a different size: expected {list(target.shape)}, got {list(grad.shape)}",
        )
    target.grad = grad

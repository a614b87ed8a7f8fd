"""The tensor: an array, the storage it shares, and its place in the reverse graph.

A `Storage` is what views and detached tensors share: the version counter, and the bytes counted once for
all of them, given back when the last holder goes. Holding a tensor's storage keeps its bytes counted, so
values saved for backward are counted without further care.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from gradwire_engine.context import CURRENT, Account
from gradwire_engine.device import Array, device_of
from gradwire_engine.dtypes import DType, is_differentiable, name_of
from gradwire_engine.errors import EngineError, Reason

if TYPE_CHECKING:
    from gradwire_engine.graph import AccumulateGrad, Edge, Node
    from gradwire_engine.op import Op


class Storage:
    """A version counter and bytes that tensors share.

    `version` counts in-place changes. `history` counts those that a graph recorded: a view whose
    `history` is older derives its node anew. `owner` keeps another storage's bytes counted (x.data).
    """

    __slots__ = ("account", "history", "nbytes", "owner", "version")

    def __init__(self, nbytes: int, account: Account, owner: Storage | None = None) -> None:
        self.version = 0
        self.history = 0
        self.nbytes = nbytes
        self.account = account
        self.owner = owner
        account.bytes += nbytes

    def __del__(self) -> None:
        self.account.bytes -= self.nbytes


class Step:
    """One op on the way from a base to a view: its arguments but for the input, and which of its results it is.

    Steps form a list that starts at the view. They hold no tensors, so the views in between may go.
    """

    __slots__ = ("args", "before", "op", "output")

    def __init__(self, before: Step | None, op: Op, args: tuple[Any, ...], output: int) -> None:
        self.before = before
        self.op = op
        self.args = args
        self.output = output


class ViewOf:
    """How a view follows from its base: the ops to apply again, and the history they were applied to.

    `borrows` its requires_grad from the base: a view made under no_grad says True, though nothing flows through it.
    """

    __slots__ = ("base", "borrows", "history", "last")

    def __init__(self, base: Tensor, last: Step, borrows: bool) -> None:
        self.base = base
        self.last = last
        self.borrows = borrows
        self.history = base.storage.history


class GradState:
    """What only leaves and tensors with a retained gradient have."""

    __slots__ = ("accumulator", "grad", "retains_grad")

    def __init__(self) -> None:
        self.grad: Tensor | None = None
        self.accumulator: weakref.ref[AccumulateGrad] | None = None
        self.retains_grad = False


class Tensor:
    """An array that ops record (torch.Tensor). Made by ops and by `tensor`; `array` is not to be replaced."""

    __slots__ = ("__weakref__", "array", "index", "node", "requires_grad", "state", "storage", "view")
    array: Array
    storage: Storage
    requires_grad: bool
    node: Node | None
    index: int
    view: ViewOf | None
    state: GradState | None

    def __init__(self, array: Array, requires_grad: bool = False, storage: Storage | None = None) -> None:
        self.array = array
        self.storage = Storage(_held_bytes(array), CURRENT.get().account) if storage is None else storage
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
        if self.view is not None and self.view.history != self.storage.history:
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
        """The gradient state, made on first use."""
        if self.state is None:
            self.state = GradState()
        return self.state

    def __repr__(self) -> str:
        return f"Tensor(shape={self.shape}, dtype={name_of(self.dtype)}, grad_fn={self.grad_fn})"


def _held_bytes(array: Array) -> int:
    """What an array keeps in memory: of a part of a larger one, or one stretched over few values, all of that one."""
    base = array.base
    return int(array.nbytes if base is None else getattr(base, "nbytes", array.nbytes))


def tensor(array: Array, requires_grad: bool = False) -> Tensor:
    """A leaf around an array, which it takes over. Raises EngineError: REQUIRES_GRAD for integer dtypes."""
    if requires_grad and not is_differentiable(array.dtype):
        raise EngineError(
            Reason.REQUIRES_GRAD, "Only Tensors of floating point and complex dtype can require gradients"
        )
    return Tensor(array, requires_grad)


def detach(source: Tensor) -> Tensor:
    """A leaf on the same storage that requires no gradient and shares the version counter."""
    return Tensor(source.array, storage=source.storage)


def data(source: Tensor) -> Tensor:
    """A leaf on the same storage with a version counter of its own (torch.Tensor.data)."""
    return Tensor(source.array, storage=_borrowed(source.storage))


def set_data(target: Tensor, source: Tensor) -> None:
    """Make `target` hold `source`'s values from now on, at its own version (x.data = y). Raises EngineError: DTYPE."""
    if target.requires_grad and not is_differentiable(source.dtype):
        raise EngineError(
            Reason.DTYPE, "data set to a tensor that requires gradients must be floating point or complex dtype"
        )
    version = target.storage.version
    target.array = source.array
    target.storage = _borrowed(source.storage)
    target.storage.version = version


def _borrowed(storage: Storage) -> Storage:
    """A version counter of its own on bytes that another storage counts."""
    return Storage(0, storage.account, owner=storage.owner or storage)


def refresh(view: Tensor) -> None:
    """Derive a view's node from its base's present history: an in-place op has rewritten it since."""
    from gradwire_engine.context import grad_mode

    held = view.view
    assert held is not None
    steps = []
    step: Step | None = held.last
    while step is not None:
        steps.append(step)
        step = step.before
    with grad_mode(True):
        fresh = held.base
        for step in reversed(steps):
            made = step.op(fresh, *step.args)
            fresh = made[step.output] if isinstance(made, tuple | list) else made
    move_to(view, fresh.node, fresh.index)
    view.requires_grad = fresh.requires_grad
    held.borrows = False
    held.history = view.storage.history


def move_to(changed: Tensor, node: Node | None, index: int) -> None:
    """Give a tensor that was rewritten in place its new node; one that retains its gradient does so there."""
    old = changed.node
    if changed.state is not None and changed.state.retains_grad:
        if old is not None and old.retained is not None:
            old.retained.pop(changed.index, None)
        if node is not None:
            node.retain(index, changed)
    changed.node, changed.index = node, index


def edge_of(source: Tensor) -> Edge | None:
    """Where a tensor's gradient goes: its node, a leaf's AccumulateGrad, or None."""
    from gradwire_engine.graph import AccumulateGrad

    if source.view is not None and source.view.history != source.storage.history:
        refresh(source)
    if source.node is not None:
        return source.node, source.index
    if not source.requires_grad or (source.view is not None and source.view.borrows):
        return None
    state = source.grad_state()
    node = state.accumulator() if state.accumulator is not None else None
    if node is None:
        node = AccumulateGrad(source)
        state.accumulator = weakref.ref(node)
    return node, 0


def retain_grad(source: Tensor) -> None:
    """Keep this non-leaf's gradient in the next backward (torch.Tensor.retain_grad); nothing for a leaf.

    Raises EngineError: REQUIRES_GRAD if it does not require grad.
    """
    node = source.grad_fn  # asked first: it brings a view's flags up to date
    if not source.requires_grad:
        raise EngineError(Reason.REQUIRES_GRAD, "can't retain_grad on Tensor that has requires_grad=False")
    if node is not None:
        source.grad_state().retains_grad = True
        node.retain(source.index, source)


def set_requires_grad(target: Tensor, flag: bool) -> None:
    """Set a leaf's flag (torch.Tensor.requires_grad_). Raises EngineError: REQUIRES_GRAD where it may not be set."""
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
    target.requires_grad = flag
    if target.view is not None:
        target.view.borrows = False


def set_grad(target: Tensor, grad: Tensor | None) -> None:
    """Assign `.grad`. Raises EngineError: SHAPE, DTYPE, DEVICE_MISMATCH if `grad` does not go with the tensor."""
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

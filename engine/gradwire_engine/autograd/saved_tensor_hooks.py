"""Saved-tensor hooks: the client keeps the saved values of new nodes, and returns them in backward.

As with checkpoints, sequence numbers tell which nodes are new. A returned value is checked for shape, dtype and device
only; it gets the graph node of the original value.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gradwire_engine.autograd.checkpoints import made_since
from gradwire_engine.core import dtypes
from gradwire_engine.core.device import device_of
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.callbacks import hooks_of
from gradwire_engine.graph.graph import AccumulateGrad, Node
from gradwire_engine.graph.hooks import ExternalCallback
from gradwire_engine.graph.saved import Saved
from gradwire_engine.graph.tensor import Tensor, edge_of

if TYPE_CHECKING:
    from gradwire_engine.core.dtypes import DType

_CHANGED_BY_PACK = (
    "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not be "
    "modified by in-place operations as this can lead to unexpected side-effects. Please open an issue if you need to "
    "perform in-place operations on the input to a pack hook."
)
_PACKED_ALREADY = (
    "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of hooks is "
    "allowed at a time."
)


class Packed:
    """Placeholder in a node for a value that `callback` returns; keeps the node, shape, dtype and device."""

    __slots__ = ("callback", "device", "dtype", "index", "node", "output", "requires_grad", "shape")
    node: Node | AccumulateGrad | None

    def __init__(self, saved: Saved, callback: ExternalCallback) -> None:
        array = _array(saved)
        self.callback = callback
        self.shape: tuple[int, ...] = array.shape
        self.dtype: DType = array.dtype
        self.device = device_of(array)
        self.output, self.requires_grad = saved.output, saved.requires_grad
        self.node, self.index = saved.node, saved.index
        if saved.leaf is not None:
            edge = edge_of(saved.leaf)
            self.node, self.index = (None, 0) if edge is None else edge

    def unpacked(self, owner: Node, given: Sequence[Tensor | None] | None) -> Saved:
        """The saved value, rebuilt from the one returned tensor.

        Raises EngineError: RUNTIME, SHAPE, DTYPE, DEVICE_MISMATCH.
        """
        tensor = given[0] if given is not None and len(given) == 1 else None
        if tensor is None:
            raise EngineError(Reason.RUNTIME, f"unpack_hook must return one tensor for a value saved by {owner.name}")
        self._check(owner, tensor)
        saved = Saved(Tensor(tensor.array, storage=tensor.storage), self.output)
        saved.requires_grad, saved.index = self.requires_grad, self.index
        if type(self.node) is AccumulateGrad:
            saved.leaf = Tensor(tensor.array, True, tensor.storage)
            saved.leaf.grad_state().accumulator = weakref.ref(self.node)
        else:
            saved.node, saved.leaf = self.node, None  # type: ignore[assignment]
        return saved

    def _check(self, owner: Node, tensor: Tensor) -> None:
        for what, was, made, reason in (
            ("size", list(self.shape), list(tensor.shape), Reason.SHAPE),
            ("type", dtypes.name_of(self.dtype), dtypes.name_of(tensor.dtype), Reason.DTYPE),
            ("device", self.device, tensor.device, Reason.DEVICE_MISMATCH),
        ):
            if was != made:
                raise EngineError(
                    reason, f"unpack_hook has changed the {what} of a value saved by {owner.name}: was {was}, is {made}"
                )


def packable(first: int, outputs: Iterable[Tensor]) -> list[Tensor]:
    """Saved values of the nodes behind `outputs` since sequence number `first`, as leaves on the same storage.

    Values that were changed in place since are omitted; backward refuses them.
    """
    return [
        Tensor(_array(saved), storage=(saved if saved.leaf is None else saved.leaf).storage)
        for node in made_since(first, outputs)
        for saved in _saved_of(node.saved)
    ]


def pack(first: int, outputs: Sequence[Tensor], callbacks: Sequence[ExternalCallback]) -> None:
    """Replace the values that `packable` listed by callbacks. Raises EngineError: RUNTIME if their number changed."""
    nodes = made_since(first, outputs)
    if sum(len(list(_saved_of(node.saved))) for node in nodes) != len(callbacks):
        raise EngineError(Reason.RUNTIME, _CHANGED_BY_PACK)
    left = iter(callbacks)
    for node in nodes:
        if any(True for _ in _saved_of(node.saved)):
            node.saved = tuple([_replaced(value, left) for value in node.saved])
            hooks_of(node)  # so that backward treats it as a node with hooks


def pack_value(node: Node, name: str, several: bool, callbacks: Sequence[ExternalCallback | None]) -> None:
    """Replace the tensors of a saved value by callbacks; None leaves one as it is.

    name: the value's, among those of the formulas; for others all values. several: whether it is a list.
    Raises EngineError: RUNTIME for another number, a tensor that is packed, that is None, or that was changed in place.
    """
    names = node.saving_plan.names
    place = names.index(name) if name in names else None
    value = list(node.saved) if place is None else node.saved[place]
    parts = value if several else [value]
    if len(parts) != len(callbacks):
        raise EngineError(Reason.RUNTIME, f"{node.name} saved {len(parts)} tensors, not {len(callbacks)}")
    for part, callback in zip(parts, callbacks, strict=True):
        if callback is None:
            continue
        if type(part) is Packed:
            raise EngineError(Reason.RUNTIME, _PACKED_ALREADY)
        if part is None:
            raise EngineError(Reason.RUNTIME, "Calling register_hooks on a saved tensor with value None is forbidden")
        if not _is_current(part):
            raise EngineError(Reason.RUNTIME, _CHANGED_BY_PACK)
    made = [part if one is None else Packed(part, one) for part, one in zip(parts, callbacks, strict=True)]
    if place is None:
        node.saved = tuple(made)
    else:
        node.saved = (*node.saved[:place], made if several else made[0], *node.saved[place + 1 :])
    hooks_of(node)  # so that backward treats it as a node with hooks


def holds_packed(saved: Sequence[Any]) -> bool:
    """Whether any of these values, or values in lists, is packed."""
    return any(type(each) is Packed or (type(each) is list and holds_packed(each)) for each in saved)


def _replaced(value: Any, left: Iterator[ExternalCallback]) -> Any:
    if type(value) is list:
        return [_replaced(each, left) for each in value]
    return Packed(value, next(left)) if type(value) is Saved and _is_current(value) else value


def _saved_of(values: Sequence[Any]) -> Iterator[Saved]:
    for value in values:
        if type(value) is list:
            yield from _saved_of(value)
        elif type(value) is Saved and _is_current(value):
            yield value


def _is_current(saved: Saved) -> bool:
    return saved.version == (saved if saved.leaf is None else saved.leaf).storage.version


def _array(saved: Saved) -> Any:
    return (saved if saved.leaf is None else saved.leaf).array

"""What a backward asks outside: hooks of tensors and nodes, formulas that are not the engine's, values to make anew.

The engine runs nobody else's code. It keeps numbers: an `Ask` stands for something outside that is to be called. When
backward comes to one it yields what is `Due`, and goes on when it is answered: a backward that waits holds no thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.graph import AccumulateGrad, Fit, Node
from gradwire_engine.graph.tensor import Tensor, edge_of

if TYPE_CHECKING:
    from collections.abc import MutableSequence


class Ask:
    """Something outside, by its number. When nothing can ask for it any more the number is appended to `gone`."""

    __slots__ = ("__weakref__", "gone", "holder", "number")

    def __init__(self, number: int, gone: MutableSequence[int]) -> None:
        self.number = number
        self.gone = gone
        self.holder: weakref.ref[Hooks] | None = None

    def remove(self) -> None:
        """Let nothing ask for it any more."""
        hooks = None if self.holder is None else self.holder()
        if hooks is not None:
            hooks.remove(self)

    def __del__(self) -> None:
        self.gone.append(self.number)


class When(Enum):
    """When a hook is called, as seen from its node, and which other things are asked for."""

    TENSOR = "tensor"  # with the gradient of one output, before all else
    BEFORE = "before"  # with the gradients of all outputs, before the node's formulas
    AFTER = "after"  # with what the formulas made, and the gradients they made it of
    ACCUMULATED = "accumulated"  # with a leaf, after its gradient was added to
    FORMULA = "formula"  # what the formulas of this node make, which only the outside knows
    AGAIN = "again"  # what this node saved, which was not kept
    UNPACK = "unpack"  # one value that this node saved, which the outside has


@dataclass(slots=True)
class Due:
    """A question: what is due, and the gradients to give it. AFTER gives those of inputs, with `others` of outputs.

    A FORMULA is given, as `others`, the values it saved. The answer is a list of as many gradients as are wanted (for
    AFTER and FORMULA one per edge, for UNPACK the value), or None where nothing is to change.
    """

    when: When
    number: int
    gradients: list[Tensor | None]
    others: list[Tensor | None] = field(default_factory=list)
    leaf: Tensor | None = None


class Hooks:
    """A node's, or a leaf's. Those of a tensor are kept by the number of the output that it is."""

    __slots__ = ("__weakref__", "accumulated", "after", "again", "before", "formula", "tensor")

    def __init__(self) -> None:
        self.tensor: dict[int, list[Ask]] = {}
        self.before: list[Ask] = []
        self.after: list[Ask] = []
        self.accumulated: list[Ask] = []
        self.formula: Ask | None = None
        self.again: Any = None

    def __bool__(self) -> bool:
        return bool(
            any(self.tensor.values()) or self.before or self.after or self.accumulated or self.formula or self.again
        )

    def add(self, when: When, ask: Ask, index: int = 0) -> None:
        """Hold a hook; `index` tells which output's, for one of kind TENSOR."""
        held = self.tensor.setdefault(index, []) if when is When.TENSOR else self._of(when)
        held.append(ask)
        ask.holder = weakref.ref(self)

    def remove(self, ask: Ask) -> None:
        """Take a hook away."""
        for held in (*self.tensor.values(), self.before, self.after, self.accumulated):
            held[:] = [each for each in held if each is not ask]

    def _of(self, when: When) -> list[Ask]:
        return {When.BEFORE: self.before, When.AFTER: self.after, When.ACCUMULATED: self.accumulated}[when]


def hook_tensor(source: Tensor, ask: Ask) -> None:
    """Ask with the gradient of a tensor (torch.Tensor.register_hook): of the values it has now, if they are changed in
    place later. Raises EngineError: REQUIRES_GRAD."""
    edge = edge_of(source)
    if edge is None:
        raise EngineError(Reason.REQUIRES_GRAD, "cannot register a hook on a tensor that doesn't require gradient")
    node, index = edge
    hooks = _leaf_hooks(source) if type(node) is AccumulateGrad else hooks_of(node)
    hooks.add(When.TENSOR, ask, index)


def hook_accumulated(leaf: Tensor, ask: Ask) -> None:
    """Ask when a leaf's gradient was added to (torch.Tensor.register_post_accumulate_grad_hook).

    Raises EngineError: REQUIRES_GRAD.
    """
    edge = edge_of(leaf)
    if edge is None:
        raise EngineError(
            Reason.REQUIRES_GRAD,
            "cannot register a post accumulate grad hook on a tensor that doesn't require gradient",
        )
    if type(edge[0]) is not AccumulateGrad:
        raise EngineError(Reason.REQUIRES_GRAD, "post accumulate grad hooks cannot be registered on non-leaf tensors")
    _leaf_hooks(leaf).add(When.ACCUMULATED, ask)


def hooks_of(node: Any) -> Hooks:
    """A node's hooks, made on first use."""
    if node.hooks is None:
        node.hooks = Hooks()
    return node.hooks  # type: ignore[no-any-return]


def hooks_on(node: Any) -> Hooks | None:
    """A node's hooks, if any; a leaf's node has its own and the leaf's."""
    own: Hooks | None = node.hooks
    if type(node) is not AccumulateGrad:
        return own
    state = node.variable.state
    leafs: Hooks | None = None if state is None else state.hooks
    if own is None or leafs is None:
        return own or leafs
    both = Hooks()
    both.tensor, both.accumulated = leafs.tensor, leafs.accumulated
    both.before, both.after = own.before, own.after
    return both


def _leaf_hooks(leaf: Tensor) -> Hooks:
    """The hooks of a leaf itself: its node may go and be made again."""
    state = leaf.grad_state()
    if state.hooks is None:
        state.hooks = Hooks()
    return state.hooks


def check_replaced(old: Sequence[Tensor | None], new: Sequence[Tensor | None]) -> None:
    """Whether what a hook answered may stand for what it was given.

    Raises EngineError: SHAPE, DTYPE, DEVICE_MISMATCH, RUNTIME.
    """
    if len(old) != len(new):
        raise EngineError(
            Reason.RUNTIME, f"hook has returned an incorrect number of values (got {len(new)}, but expected {len(old)})"
        )
    for before, after in zip(old, new, strict=True):
        if before is None:
            if after is not None:
                raise EngineError(Reason.RUNTIME, "can't replace a None gradient with a non-None value")
        elif after is not None:
            if before.shape != after.shape:
                raise EngineError(
                    Reason.SHAPE,
                    f"hook has changed the size of value: was {list(before.shape)}, is {list(after.shape)}",
                )
            if before.dtype != after.dtype:
                raise EngineError(
                    Reason.DTYPE,
                    f"hook has changed the type of value (was {dtypes.name_of(before.dtype)} got "
                    f"{dtypes.name_of(after.dtype)})",
                )
            if before.device != after.device:
                raise EngineError(Reason.DEVICE_MISMATCH, "hook has changed the device of value")


def refuse_shape(node: Node, place: int, gradient: Tensor, wanted: Fit) -> None:
    """Refuse what a formula from outside made for an input, if it cannot be. Raises EngineError: SHAPE."""
    shape = wanted[0]
    given = gradient.shape
    tail = given[len(given) - len(shape) :]
    if len(given) < len(shape) or any(one not in (1, other) for one, other in zip(shape, tail, strict=True)):
        raise EngineError(
            Reason.SHAPE,
            f"Function {node.name} returned an invalid gradient at index {place} - got {list(given)} but expected "
            f"shape compatible with {list(shape)}",
        )

"""Callbacks of backward: registers and finds hooks, requests callbacks, and checks their answers.

When backward reaches a callback, it yields a `CallbackRequest` and resumes with the answer. So a waiting backward
occupies no thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.graph import AccumulateGrad, Fit, Node
from gradwire_engine.graph.hooks import CallbackKind, ExternalCallback, Hooks
from gradwire_engine.graph.tensor import Tensor, edge_of


@dataclass(slots=True)
class CallbackRequest:
    """A request for a callback, with its gradients: for AFTER those of inputs, with those of outputs in `others`.

    For FORMULA, `others` has the saved values. The answer is a list: one gradient per edge for AFTER and FORMULA,
    the value for UNPACK, else one per given gradient. None changes nothing.
    """

    when: CallbackKind
    number: int
    gradients: list[Tensor | None]
    others: list[Tensor | None] = field(default_factory=list)
    leaf: Tensor | None = None


def hook_tensor(source: Tensor, callback: ExternalCallback) -> None:
    """Register a hook for a tensor's gradient (torch.Tensor.register_hook).

    It belongs to the tensor's present values, also after a later in-place change. Raises EngineError: REQUIRES_GRAD.
    """
    edge = edge_of(source)
    if edge is None:
        raise EngineError(Reason.REQUIRES_GRAD, "cannot register a hook on a tensor that doesn't require gradient")
    node, index = edge
    hooks = _leaf_hooks(source) if type(node) is AccumulateGrad else hooks_of(node)
    hooks.add(CallbackKind.TENSOR, callback, index)


def hook_accumulated(leaf: Tensor, callback: ExternalCallback) -> None:
    """Register a hook called after a leaf's gradient is accumulated (register_post_accumulate_grad_hook).

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
    _leaf_hooks(leaf).add(CallbackKind.ACCUMULATED, callback)


def hooks_of(node: Any) -> Hooks:
    """A node's hooks, created on first use."""
    if node.hooks is None:
        node.hooks = Hooks()
    return node.hooks  # type: ignore[no-any-return]


def hooks_on(node: Any) -> Hooks | None:
    """A node's hooks, or None; for AccumulateGrad, its own and the leaf's together."""
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
    """Hooks stored on a leaf itself, because its node may be collected and created again."""
    state = leaf.grad_state()
    if state.hooks is None:
        state.hooks = Hooks()
    return state.hooks


def check_replaced(old: Sequence[Tensor | None], new: Sequence[Tensor | None]) -> None:
    """Check that a hook's answer may replace its gradients: same count, shapes, dtypes and devices.

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
    """Check that an external formula's gradient can be reduced to the input's shape. Raises EngineError: SHAPE."""
    shape = wanted[0]
    given = gradient.shape
    tail = given[len(given) - len(shape) :]
    if len(given) < len(shape) or any(one not in (1, other) for one, other in zip(shape, tail, strict=True)):
        raise EngineError(
            Reason.SHAPE,
            f"Function {node.name} returned an invalid gradient at index {place} - got {list(given)} but expected "
            f"shape compatible with {list(shape)}",
        )

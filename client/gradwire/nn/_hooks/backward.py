"""Full backward hooks of modules: inputs and outputs pass additional nodes, whose hooks receive the gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from gradwire._base.errors import refuse
from gradwire._base.modes import is_grad_enabled
from gradwire._functions.create import zeros
from gradwire._tensor.tensor import Tensor
from gradwire.autograd.function import hand_on

_NODE = "BackwardHookFunctionBackward"
_NO_INPUTS = (
    "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require "
    "gradients."
)


class BackwardHooks:
    """The hooks of one call of a module. It keeps the gradients from the outputs' node for the inputs'."""

    def __init__(
        self, module: Any, hooks: Sequence[Callable[..., Any]], pre_hooks: Sequence[Callable[..., Any]]
    ) -> None:
        self.module = module
        self.hooks = hooks
        self.pre_hooks = pre_hooks
        self.count = 0
        #: Which of the inputs are tensors behind a node; None if no input requires a gradient.
        self.inputs: list[int] | None = None
        self.kinds: list[tuple[Any, Any, Any, bool]] = []  # of these: shape, dtype, device, requires_grad
        self.grad_outputs: tuple[Any, ...] | None = None

    def take(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The module's arguments, behind a node if one of them requires a gradient."""
        self.count = len(args)
        made, places, node = _behind_a_node(args)
        if node is not None:
            self.inputs = places
            self.kinds = [
                (each.shape, each.dtype, each.device, each.requires_grad) for each in (args[place] for place in places)
            ]
            node.register_hook(self._at_inputs)
        return made

    def give(self, result: Any) -> Any:
        """The module's result, behind a node."""
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received "
                f"{type(result)}",
                stacklevel=4,
            )
        several = isinstance(result, tuple)
        made, places, node = _behind_a_node(result if several else (result,))
        if node is not None:
            node.register_hook(lambda _, gradients: self._at_outputs(places, len(made), gradients))
        return made if several else made[0]

    def _at_outputs(self, places: list[int], count: int, gradients: tuple[Any, ...]) -> Any:
        grad_outputs = _spread(places, count, gradients)
        for hook in self.pre_hooks:
            answer = _as_tuple(hook(self.module, grad_outputs))
            if answer is None:
                continue
            if len(answer) != count:
                raise refuse(
                    f"Backward pre hook returned an invalid number of grad_output, got {len(answer)}, but expected "
                    f"{count}"
                )
            grad_outputs = answer
        self.grad_outputs = grad_outputs
        if self.inputs is None and self.hooks:
            warnings.warn(_NO_INPUTS, UserWarning, stacklevel=2)
            for hook in self.hooks:
                answer = _as_tuple(hook(self.module, (None,) * self.count, grad_outputs))
                if answer is not None and any(each is not None for each in answer):
                    raise refuse(
                        "Backward hook for Modules where no input requires gradient should always return None or None "
                        "for all gradients."
                    )
            self.grad_outputs = None
        return tuple(grad_outputs[place] for place in places)

    def _at_inputs(self, gradients: tuple[Any, ...], _: Any) -> Any:
        if self.grad_outputs is None:  # this gradient came by another way than the module's result
            return None
        assert self.inputs is not None
        # As in PyTorch an input that no gradient came for has one of zeros.
        filled = [
            zeros(shape, dtype=dtype, device=device) if gradient is None else gradient
            for gradient, (shape, dtype, device, _) in zip(gradients, self.kinds, strict=True)
        ]
        grad_inputs = _spread(self.inputs, self.count, filled)
        for hook in self.hooks:
            answer = _as_tuple(hook(self.module, grad_inputs, self.grad_outputs))
            if answer is None:
                continue
            if len(answer) != len(grad_inputs):
                raise refuse(
                    f"Backward hook returned an invalid number of grad_input, got {len(answer)}, but expected "
                    f"{len(grad_inputs)}"
                )
            grad_inputs = answer
        self.grad_outputs = None
        missing = [
            not kind[3] or (gradient is None and grad_inputs[place] is zero)
            for gradient, zero, place, kind in zip(gradients, filled, self.inputs, self.kinds, strict=True)
        ]
        return tuple(None if none else grad_inputs[place] for none, place in zip(missing, self.inputs, strict=True))


def _as_tuple(answer: Any) -> tuple[Any, ...] | None:
    if answer is None or isinstance(answer, tuple):
        return answer
    return tuple(answer) if isinstance(answer, list) else (answer,)


def _behind_a_node(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int], Any]:
    """The values, the tensors among them behind one node; their places; the node, None if none requires a gradient."""
    places = [place for place, each in enumerate(values) if isinstance(each, Tensor)]
    if not is_grad_enabled() or not any(values[place].requires_grad for place in places):
        return values, places, None
    made = list(values)
    node = None
    for place, each in zip(places, hand_on(_NODE, [values[place] for place in places]), strict=True):
        made[place] = each
        node = node or each.grad_fn
    return (type(values)(*made) if hasattr(values, "_fields") else tuple(made)), places, node


def _spread(places: list[int], count: int, gradients: Sequence[Any]) -> tuple[Any, ...]:
    """One gradient per value, None for those that are no tensors."""
    spread: list[Any] = [None] * count
    for place, gradient in zip(places, gradients, strict=True):
        spread[place] = gradient
    return tuple(spread)

"""The states of several modules as one: stack_module_state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradwire._base.errors import refuse
from gradwire._tensor.ops import stack

if TYPE_CHECKING:  # gradwire.nn is loaded where a module is made, not for vmap
    from gradwire.nn._module import Module


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of modules of one class, stacked by path, and their buffers (torch.func.stack_module_state).

    The stacked parameters are new leaves. Raises RuntimeError for no module, or of several classes.
    """
    if not models:
        raise refuse("stack_module_state: Expected at least one model, got 0.")
    if len({type(model) for model in models}) > 1:
        raise refuse("stack_module_state: Expected all models to be of the same class.")
    if len({model.training for model in models}) > 1:
        raise refuse("stack_module_state: Expected all models to have the same training/eval mode.")
    for name, held in models[0].named_parameters():
        if any(dict(model.named_parameters())[name].requires_grad is not held.requires_grad for model in models):
            raise refuse("Expected parameters from each model to have the same .requires_grad")
    params = {
        name: stack([dict(model.named_parameters())[name].detach() for model in models]).requires_grad_(
            held.requires_grad
        )
        for name, held in models[0].named_parameters()
    }
    buffers = {
        name: stack([dict(model.named_buffers())[name].detach() for model in models])
        for name, _ in models[0].named_buffers()
    }
    return params, buffers

"""A module as a function of its parameters: functional_call, and the states of several modules as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gradwire._base.errors import GradwireTypeError, GradwireValueError, refuse
from gradwire._tensor.ops import stack
from gradwire._tensor.tensor import Tensor

if TYPE_CHECKING:  # gradwire.nn imports gradwire.func
    from gradwire.nn._module import Module


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call the module with tensors in the place of its parameters and buffers (torch.func.functional_call).

    The tensors are given by path in a dict, or in several that share no path. A parameter that the module holds under
    several paths is replaced under all, unless `tie_weights` is False. With `strict` every path must be given, and no
    other: RuntimeError. The module has its own tensors back afterwards, whatever happens.
    """
    given = _joined(parameter_and_buffer_dicts)
    places = _places(module)
    if strict:
        missing, unexpected = (
            [path for path in places if path not in given],
            [path for path in given if path not in places],
        )
        if missing or unexpected:
            raise refuse(
                f"functional_call of {type(module).__name__}: Missing key(s): {', '.join(missing) or 'none'}; "
                f"Unexpected key(s): {', '.join(unexpected) or 'none'}"
            )
    wanted = _tied(places, given) if tie_weights else {path: each for path, each in given.items() if path in places}
    if args is None:
        args = ()
    elif not isinstance(args, tuple):
        args = (args,)
    before = {path: places[path][0][places[path][1]] for path in wanted}
    try:
        for path, each in wanted.items():
            held, name = places[path]
            held[name] = each
        return module(*args, **(kwargs or {}))
    finally:
        for path, each in before.items():
            held, name = places[path]
            held[name] = each


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of modules of one class, stacked by path, and their buffers (torch.func.stack_module_state).

    The stacked parameters are leaves of their own. Raises RuntimeError for no module, or of several classes.
    """
    if not models:
        raise refuse("stack_module_state: Expected at least one model, got 0.")
    if len({type(model) for model in models}) > 1:
        raise refuse("stack_module_state: Expected all models to be of the same class.")
    if len({model.training for model in models}) > 1:
        raise refuse("stack_module_state: Expected all models to have the same training/eval mode.")
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


def _joined(dicts: Any) -> dict[str, Tensor]:
    if isinstance(dicts, Mapping):
        dicts = (dicts,)
    if not isinstance(dicts, Sequence) or not all(isinstance(each, Mapping) for each in dicts):
        raise GradwireValueError("Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts")
    joined: dict[str, Tensor] = {}
    for each in dicts:
        twice = [path for path in each if path in joined]
        if twice:
            raise GradwireValueError(
                f"{twice[0]} appears in multiple dictionaries; behavior of functional call is ambiguous"
            )
        joined.update(each)
    for path, value in joined.items():
        if not isinstance(value, Tensor):
            raise GradwireTypeError(f"{path} should be a Tensor, but got {type(value).__name__}")
    return joined


def _places(module: Module) -> dict[str, tuple[dict[str, Any], str]]:
    """Each path with the dictionary that holds the tensor, and its name there."""
    places: dict[str, tuple[dict[str, Any], str]] = {}
    for path, holder in module.named_modules(remove_duplicate=False):
        lead = f"{path}." if path else ""
        for held in (holder._parameters, holder._buffers):
            places.update({lead + name: (held, name) for name, each in held.items() if each is not None})
    return places


def _tied(places: dict[str, tuple[dict[str, Any], str]], given: dict[str, Tensor]) -> dict[str, Tensor]:
    """What goes where, each tensor under every path of the one it replaces. Raises ValueError for two in one place."""
    chosen: dict[int, Tensor] = {}
    for path, (held, name) in places.items():
        if path in given and chosen.setdefault(id(held[name]), given[path]) is not given[path]:
            raise GradwireValueError(f"functional_call got multiple values for the tied parameter {path!r}")
    return {path: chosen[id(held[name])] for path, (held, name) in places.items() if id(held[name]) in chosen}

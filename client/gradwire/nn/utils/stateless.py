"""A module as a function of its parameters (torch.func.functional_call; here under its old name)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradwire._base.errors import GradwireTypeError, GradwireValueError, refuse
from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import Module

__all__ = ["functional_call"]


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
    other: RuntimeError. Afterwards the module has its own tensors again, also after an exception.
    """
    given = _joined(parameter_and_buffer_dicts)
    owners = _tensor_owners(module)
    if strict:
        missing, unexpected = (
            [path for path in owners if path not in given],
            [path for path in given if path not in owners],
        )
        if missing or unexpected:
            raise refuse(
                f"functional_call of {type(module).__name__}: Missing key(s): {', '.join(missing) or 'none'}; "
                f"Unexpected key(s): {', '.join(unexpected) or 'none'}"
            )
    wanted = _tied(owners, given) if tie_weights else {path: each for path, each in given.items() if path in owners}
    if args is None:
        args = ()
    elif not isinstance(args, tuple):
        args = (args,)
    before = {path: owners[path][0][owners[path][1]] for path in wanted}
    try:
        for path, each in wanted.items():
            held, name = owners[path]
            held[name] = each
        return module(*args, **(kwargs or {}))
    finally:
        for path, each in before.items():
            held, name = owners[path]
            held[name] = each


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


def _tensor_owners(module: Module) -> dict[str, tuple[dict[str, Any], str]]:
    """Each path with the dictionary that holds the tensor, and its name there."""
    owners: dict[str, tuple[dict[str, Any], str]] = {}
    for path, holder in module.named_modules(remove_duplicate=False):
        lead = f"{path}." if path else ""
        for held in (holder._parameters, holder._buffers):
            owners.update({lead + name: (held, name) for name, each in held.items() if each is not None})
    return owners


def _tied(owners: dict[str, tuple[dict[str, Any], str]], given: dict[str, Tensor]) -> dict[str, Tensor]:
    """The replacements: each tensor under every path of the tensor it replaces. Raises ValueError for two in one
    place."""
    chosen: dict[int, Tensor] = {}
    for path, (held, name) in owners.items():
        if path in given and chosen.setdefault(id(held[name]), given[path]) is not given[path]:
            raise GradwireValueError(f"functional_call got multiple values for the tied parameter {path!r}")
    return {path: chosen[id(held[name])] for path, (held, name) in owners.items() if id(held[name]) in chosen}

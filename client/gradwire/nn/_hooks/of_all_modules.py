"""Hooks of all modules (torch.nn.modules.module): called around every module's forward, before its own hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire._base.refused import refused
from gradwire._graph.hooks import RemovableHandle, add_hook

__all__ = ["register_module_forward_hook", "register_module_forward_pre_hook"]

#: Hooks by number, which `Module.__call__` reads.
PRE_HOOKS: dict[int, Callable[..., Any]] = {}
HOOKS: dict[int, Callable[..., Any]] = {}

_WHY = "register the hook with each module"
register_module_backward_hook = refused("nn.modules.module.register_module_backward_hook", _WHY)
register_module_buffer_registration_hook = refused("nn.modules.module.register_module_buffer_registration_hook", _WHY)
register_module_full_backward_hook = refused("nn.modules.module.register_module_full_backward_hook", _WHY)
register_module_full_backward_pre_hook = refused("nn.modules.module.register_module_full_backward_pre_hook", _WHY)
register_module_module_registration_hook = refused("nn.modules.module.register_module_module_registration_hook", _WHY)
register_module_parameter_registration_hook = refused(
    "nn.modules.module.register_module_parameter_registration_hook", _WHY
)


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, args)` before each forward of any module; a result other than None replaces the arguments."""
    return add_hook(PRE_HOOKS, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after each forward of any module; a result other than None replaces the output.

    `with_kwargs`: it is called with the named arguments, too. `always_call` is refused.
    """
    if always_call:
        raise refused("nn.modules.module.register_module_forward_hook(always_call=True)", _WHY)()
    if with_kwargs:
        return add_hook(HOOKS, hook)
    return add_hook(HOOKS, lambda module, args, kwargs, output: hook(module, args, output))

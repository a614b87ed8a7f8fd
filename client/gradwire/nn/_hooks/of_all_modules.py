"""Hooks of all modules (torch.nn.modules.module): called for every module, before its own hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire._graph.hooks import RemovableHandle, add_hook

__all__ = [
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

#: Hooks by number, which `Module.__call__` reads.
PRE_HOOKS: dict[int, Callable[..., Any]] = {}
HOOKS: dict[int, Callable[..., Any]] = {}
BACKWARD_PRE_HOOKS: dict[int, Callable[..., Any]] = {}
BACKWARD_HOOKS: dict[int, Callable[..., Any]] = {}
#: Numbers of forward hooks that get the named arguments, and of those that are called where forward raises, too.
WITH_KWARGS: dict[int, bool] = {}
ALWAYS_CALLED: dict[int, bool] = {}
#: Hooks of registrations by kind.
REGISTRATIONS: dict[str, dict[int, Callable[..., Any]]] = {"buffer": {}, "module": {}, "parameter": {}}


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, args)` before each forward of any module; a result other than None replaces the arguments."""
    return add_hook(PRE_HOOKS, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after each forward of any module; a result other than None replaces the output.

    `with_kwargs`: it is called with the named arguments, too. `always_call`: also where forward raises.
    """
    marks = [each for each, wanted in ((WITH_KWARGS, with_kwargs), (ALWAYS_CALLED, always_call)) if wanted]
    return add_hook(HOOKS, hook, marks=marks)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` when backward has passed any module.

    A result other than None replaces the gradients of the inputs.
    """
    return add_hook(BACKWARD_HOOKS, hook)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_output)` before backward passes any module; its result replaces them."""
    return add_hook(BACKWARD_PRE_HOOKS, hook)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """As `register_module_full_backward_hook`, which has taken its place."""
    return register_module_full_backward_hook(hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, buffer)` when a module registers a buffer; a result replaces the buffer."""
    return add_hook(REGISTRATIONS["buffer"], hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, submodule)` when a module registers a module; a result replaces the submodule."""
    return add_hook(REGISTRATIONS["module"], hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, param)` when a module registers a parameter; a result replaces the parameter."""
    return add_hook(REGISTRATIONS["parameter"], hook)


def registered(kind: str, module: Any, name: str, value: Any) -> Any:
    """What a module registers: the value, or what the last hook that returned something gave."""
    for hook in list(REGISTRATIONS[kind].values()):
        changed = hook(module, name, value)
        if changed is not None:
            value = changed
    return value

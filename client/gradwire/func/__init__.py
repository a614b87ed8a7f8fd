"""Transforms of functions: derivatives, batches, and modules as functions of their parameters (torch.func)."""

from typing import TYPE_CHECKING, Any

from gradwire._base.wiring import names_of_paths
from gradwire.func._derivatives import (
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    value_and_grad,
    vjp,
)
from gradwire.func._functionalize import functionalize
from gradwire.func._module_calls import stack_module_state
from gradwire.func._rearrange import rearrange
from gradwire.func._vmap import vmap

if TYPE_CHECKING:
    from gradwire.func._make_functional import replace_all_batch_norm_modules_
    from gradwire.nn.utils.stateless import functional_call

__all__ = [
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "rearrange",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "value_and_grad",
    "vjp",
    "vmap",
]


def __getattr__(name: str) -> Any:
    # Loads gradwire.nn, which vmap and the derivatives do without.
    if name == "functional_call":
        from gradwire.nn.utils.stateless import functional_call

        return functional_call
    if name == "replace_all_batch_norm_modules_":
        from gradwire.func._make_functional import replace_all_batch_norm_modules_

        return replace_all_batch_norm_modules_
    return names_of_paths(__name__)(name)


def __dir__() -> list[str]:
    return [*globals(), "functional_call", "replace_all_batch_norm_modules_"]

"""The old package `functorch`: torch.func's transforms with its warning, and functional modules.

Programs see it as `functorch` and `functorch.experimental` after `gradwire.alias()`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from gradwire import func
from gradwire._base.wiring import wired
from gradwire.func import _make_functional
from gradwire.func._make_functional import (
    FunctionalModule,
    FunctionalModuleWithBuffers,
    replace_all_batch_norm_modules_,
)
from gradwire.torch_version import __version__

#: A package, so that `functorch.experimental` can be imported.
__path__: list[str] = []


def _deprecated(function: Callable[..., Any], instead: str = "") -> Any:
    name = function.__name__
    text = (
        f"We've integrated functorch into PyTorch. As the final step of the integration, `functorch.{name}` is "
        "deprecated as of PyTorch 2.0 and will be deleted in a future version of PyTorch >= 2.3. Please use "
        f"`{instead or f'torch.func.{name}'}` instead; see the PyTorch 2.0 release notes and/or the `torch.func` "
        "migration guide for more details https://pytorch.org/docs/main/func.migrating.html"
    )

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(text, FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    return called


vmap = _deprecated(func.vmap, "torch.vmap")
grad = _deprecated(func.grad)
grad_and_value = _deprecated(func.grad_and_value)
vjp = _deprecated(func.vjp)
jvp = _deprecated(func.jvp)
jacrev = _deprecated(func.jacrev)
jacfwd = _deprecated(func.jacfwd)
hessian = _deprecated(func.hessian)
functionalize = _deprecated(func.functionalize)
make_functional = _deprecated(_make_functional.make_functional, "torch.func.functional_call")
make_functional_with_buffers = _deprecated(_make_functional.make_functional_with_buffers, "torch.func.functional_call")


def make_fx(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """torch.fx.experimental.proxy_tensor.make_fx."""
    return wired("make_fx")(f, *args, **kwargs)


combine_state_for_ensemble = _deprecated(_make_functional.combine_state_for_ensemble, "torch.func.stack_module_state")

__all__ = [
    "FunctionalModule",
    "FunctionalModuleWithBuffers",
    "__version__",
    "combine_state_for_ensemble",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "make_functional",
    "make_functional_with_buffers",
    "replace_all_batch_norm_modules_",
    "vjp",
    "vmap",
]

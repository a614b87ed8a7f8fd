"""skip_init: a module whose parameters have no drawn values."""

from __future__ import annotations

import inspect
from typing import Any

from gradwire._functions.random import get_rng_state, set_rng_state
from gradwire.nn._module import Module


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Module:
    """Make a module, leaving its parameters and buffers unspecified (torch.nn.utils.skip_init).

    The generator stays where it is, as in PyTorch. Raises RuntimeError for a class that is no
    module's, or that takes no `device`.
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    state = get_rng_state()
    made = module_cls(*args, **kwargs)
    set_rng_state(state)
    return made

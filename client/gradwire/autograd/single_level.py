"""Functions that the rules of transforms call (torch.autograd.function._SingleLevelFunction).

They ask no rule themselves. PyTorch lets them record one level; here their node stands for every level.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from gradwire._base.errors import refuse
from gradwire._proxy.transforms import TRANSFORM
from gradwire.autograd.function import Function

#: Whether a rule may call such a function in this thread.
ALLOWED: ContextVar[bool] = ContextVar("gradwire_single_level_allowed", default=False)
#: Whether the forward of one is under way in this thread.
IN_FORWARD: ContextVar[bool] = ContextVar("gradwire_single_level_forward", default=False)


class _SingleLevelFunction(Function):
    """A function whose call is recorded as it is, under transforms too."""

    generate_vmap_rule = True

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call the function. Raises RuntimeError under a transform whose rule did not allow it."""
        if TRANSFORM.get() is not None and not ALLOWED.get():
            raise refuse(
                "Attempted to call _SingleLevelFunction.apply under a functorch transform (vmap, grad, jvp, ...) "
                "outside of enable_single_level_autograd_function"
            )
        token = IN_FORWARD.set(True)
        try:
            return cls._apply_by_rules(args, kwargs)
        finally:
            IN_FORWARD.reset(token)

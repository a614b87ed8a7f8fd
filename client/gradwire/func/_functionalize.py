"""functionalize: a function without in-place changes, and if asked without views (torch.func.functionalize).

Transforms here take in-place changes, so the function is called as it is. Only a dispatch mode, such as that of
make_fx, can tell the difference: it sees the ops without them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradwire._base.errors import refuse
from gradwire._dispatch.functional import functional_call
from gradwire._dispatch.modes import MODES
from gradwire._proxy.transforms import Transform

_REMOVALS = ("mutations", "mutations_and_views")


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """The function, whose in-place changes of inputs and of tensors it made stay what they are (torch.func).

    In a trace of `make_fx`, ops that make new tensors stand for the changes, and a copy into each changed input.
    With "mutations_and_views", copies stand for views. Raises RuntimeError for another `remove`.
    """
    if remove not in _REMOVALS:
        raise refuse(
            f"functionalize(f, remove='mutations'): received an invalid argument for remove={remove}. Valid options "
            "are remove='mutations' and remove='mutations_and_views'"
        )

    @functools.wraps(func)
    def functionalized(*args: Any, **kwargs: Any) -> Any:
        with Transform(differentiates=False):
            if MODES.get():
                return functional_call(func, args, kwargs, remove == "mutations_and_views")
            return func(*args, **kwargs)

    return functionalized

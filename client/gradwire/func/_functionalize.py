"""functionalize: a function as it is, since transforms here take in-place changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire._base.errors import refuse
from gradwire._proxy.transforms import Transform

_REMOVALS = ("mutations", "mutations_and_views")


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """The function, whose in-place changes of inputs and of tensors it made stay what they are (torch.func).

    Raises RuntimeError for another `remove` than "mutations" or "mutations_and_views".
    """
    if remove not in _REMOVALS:
        raise refuse(
            f"functionalize(f, remove='mutations'): received an invalid argument for remove={remove}. Valid options "
            "are remove='mutations' and remove='mutations_and_views'"
        )

    def functionalized(*args: Any, **kwargs: Any) -> Any:
        with Transform(differentiates=False):
            return func(*args, **kwargs)

    functionalized.__name__ = getattr(func, "__name__", "functionalized")
    functionalized.__doc__ = func.__doc__
    return functionalized

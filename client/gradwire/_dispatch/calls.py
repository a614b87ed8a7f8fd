"""Calls of ATen's overloads, which the active modes see."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from gradwire._base.wiring import wired
from gradwire._dispatch import modes
from gradwire._dispatch.kernels import kernel
from gradwire._dispatch.overloads import Choice, normal_call


@cache
def overload_of(name: str, overload: str) -> Any:
    """The one object `torch.ops.aten.<name>.<overload>`."""
    return getattr(getattr(wired("ops").aten, name), overload)


def aten(full: str, *args: Any, compute: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
    """Call "name.overload" of ATen through the active modes. `compute` computes it, else its kernel does."""
    name, _, overload = full.partition(".")
    return shown(name, normal_call(name, overload, args, kwargs), compute)


def shown(name: str, choice: Choice, compute: Callable[[], Any] | None) -> Any:
    """Call an overload with these arguments through the active modes."""
    overload, args, kwargs = choice
    if compute is None:

        def compute() -> Any:
            return kernel(name, overload)(*args, **kwargs)

    return modes.show(overload_of(name, overload), args, kwargs, compute)


def call_overload(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an overload that user code has: in a mode, it is for the next outer mode, and then computes."""
    name, overload = func._qualname.removeprefix("aten::"), func._overloadname

    def compute() -> Any:
        return kernel(name, overload)(*args, **kwargs)

    if not modes.MODES.get() and not modes.is_shown():
        return compute()
    return modes.called(func, *normal_call(name, overload, args, kwargs)[1:], compute)

"""Calls of ATen's overloads, which the active modes see."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

from gradwire._base.wiring import wired
from gradwire._dispatch import modes
from gradwire._dispatch.kernels import kernel
from gradwire._dispatch.overloads import Choice, choose, normal_call
from gradwire._dispatch.saved_values import is_left_out, saved_arguments, saved_results
from gradwire._dispatch.schemas import schemas
from gradwire._proxy.handle import Handle


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

    saved = saved_arguments(name, overload, args)
    _show_detached([each for each in saved if each._spec.requires_grad])
    if is_left_out(name, saved):
        with modes.only(()):
            return compute()
    made = modes.show(overload_of(name, overload), args, kwargs, compute)
    _show_detached(saved_results(name, overload, made))
    return made


def _show_detached(values: Iterable[Any]) -> None:
    """Let modes see that the values are detached."""
    for each in values:
        modes.show(overload_of("detach", "default"), (each,), {}, partial(kernel("detach", "default"), each))


def call_overload(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an overload that user code has: in a mode, it is for the next outer mode, and then computes."""
    name, overload = func._qualname.removeprefix("aten::"), func._overloadname

    def compute() -> Any:
        return kernel(name, overload)(*args, **kwargs)

    if not modes.MODES.get() and not modes.is_shown_any():
        return compute()
    if modes.is_shown(func, args, kwargs):
        return modes.called(func, args, kwargs, compute)
    return modes.called(func, *normal_call(name, overload, args, kwargs)[1:], compute)


def call_packet(packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an op of ATen by the overload that takes these arguments. NotImplemented if none is known."""
    name = packet._qualname.removeprefix("aten::")
    for overload, schema in schemas().get(name, {}).items():
        listed = list(args)
        for place, parameter in enumerate(schema[: len(listed)]):
            if parameter.kind.startswith("T?[]") and isinstance(
                listed[place], Handle
            ):  # a tensor for a list: its items
                listed[place] = list(aten("unbind.int", listed[place]))
        names = [each.name for each in schema if not each.is_keyword]
        given = [*zip(names, listed, strict=False), *kwargs.items()]
        if len(listed) <= len(names) and (choice := choose(name, given, {}, overload)) is not None:
            return call_overload(overload_of(name, choice.overload), choice.args, choice.kwargs)
    return NotImplemented

"""Questions about `__torch_function__` (torch.overrides)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gradwire._base.refused import refused
from gradwire._tensor.overrides import overriding
from gradwire._tensor.tensor import Tensor

__all__ = [
    "TorchFunctionMode",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
]

_WHY = "calls are not intercepted by modes; a class with __torch_function__ is"
TorchFunctionMode = refused("overrides.TorchFunctionMode", _WHY)
BaseTorchFunctionMode = refused("overrides.BaseTorchFunctionMode", _WHY)
get_ignored_functions = refused("overrides.get_ignored_functions", _WHY)
get_overridable_functions = refused("overrides.get_overridable_functions", _WHY)
get_testing_overrides = refused("overrides.get_testing_overrides", _WHY)
resolve_name = refused("overrides.resolve_name", _WHY)


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether an argument's class overrides functions, by `__torch_function__`."""
    return any(overriding(each) for each in relevant_args)


def has_torch_function_unary(tensor: Any) -> bool:
    """The same for one argument."""
    return overriding(tensor)


def has_torch_function_variadic(*args: Any) -> bool:
    """The same for several arguments."""
    return has_torch_function(args)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Call the first override among the arguments. Raises TypeError if every one returns NotImplemented."""
    holders = [each for each in relevant_args if overriding(each)]
    kinds = tuple({type(each): None for each in holders})
    for holder in holders:
        made = type(holder).__torch_function__(public_api, kinds, args, kwargs)
        if made is not NotImplemented:
            return made
    name = getattr(public_api, "__name__", str(public_api))
    raise TypeError(f"no implementation found for '{name}' on types that implement __torch_function__: {list(kinds)}")


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a tensor, or its class has `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """Decorator of a function whose arguments, those that `dispatcher` returns, may override it."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(called, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        called.__name__ = getattr(function, "__name__", "called")
        return called

    return decorate

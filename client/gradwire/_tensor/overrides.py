"""Overrides: a function called with an object whose class has `__torch_function__` calls that instead."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from gradwire._proxy.handle import Handle


class OverriddenError(TypeError):
    """An argument is no tensor and no value that ops take, but its class overrides functions."""


def overriding(value: Any) -> bool:
    """Whether a value's class overrides functions. Tensors do not, whatever their class."""
    return hasattr(type(value), "__torch_function__") and not isinstance(value, Handle)


def disabled_override(func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
    """A `__torch_function__` that calls the function itself (torch._C._disabled_torch_function_impl)."""
    return func(*args, **(kwargs or {}))


def _among(values: Any) -> list[Any]:
    """The values that override functions, also those in lists."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found.extend(_among(value))
        elif overriding(value):
            found.append(value)
    return found


def _functions(op: str, as_method: bool) -> list[Any]:
    """What a program may have called to apply an op: the public function and the method, the likelier one first."""
    facade = sys.modules["gradwire"]
    owner: Any = facade
    *path, name = op.split(".")
    for each in path:
        owner = getattr(owner, each, None)
    found = [
        getattr(owner, name, getattr(facade.nn.functional, name, None)),
        getattr(facade.Tensor, name, None),
    ]
    return [each for each in (reversed(found) if as_method else found) if each is not None]


def call_override(op: str, args: Sequence[Any], kwargs: Sequence[tuple[str, Any]], as_method: bool) -> Any:
    """The result of the first override that does not return NotImplemented. Raises TypeError if there is none."""
    holders = _among([*args, *(value for _, value in kwargs)])
    kinds = tuple({type(each): None for each in holders})
    refused: Exception | None = None
    for function in _functions(op, as_method):
        for holder in holders:
            try:
                made = type(holder).__torch_function__(function, kinds, tuple(args), dict(kwargs))
            except NotImplementedError as error:
                refused = error
            else:
                if made is not NotImplemented:
                    return made
    if refused is not None:
        raise refused
    raise TypeError(f"no implementation found for '{op}' on types that implement __torch_function__: {list(kinds)}")

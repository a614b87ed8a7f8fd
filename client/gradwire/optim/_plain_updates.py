"""Plain updates: which optimizers run this package's code alone, so that a recording need not watch their updates."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from gradwire._base.call_site import INTERNAL
from gradwire._base.watching import WATCHER
from gradwire._proxy.handle import Handle
from gradwire._tensor.batching import BATCHING
from gradwire._tensor.tensor import Tensor
from gradwire.nn._parameter import Parameter

if TYPE_CHECKING:
    from gradwire.optim._optimizer import Optimizer

_PLAIN = (int, float, bool, str, type(None))
_OF_ALL_CLASSES = frozenset({"__dict__", "__weakref__"})


def runs_unwatched(optimizer: Optimizer) -> bool:
    """Whether a recording watches this thread, and the optimizer's update and zero_grad call no code of the user."""
    if WATCHER.profile is None or BATCHING or any(callable(each) for each in optimizer.__dict__.values()):
        return False
    if not is_of_package(type(optimizer)):
        return False
    for group in optimizer.param_groups:
        for name, option in group.items():
            if not (_are_plain(option) if name == "params" else _is_plain(option)):
                return False
    return all(_are_plain(state.values()) for state in optimizer.state.values())


def is_of_package(kind: type[Any]) -> bool:
    """Whether all that an optimizer's class can call is this package's."""
    return all(map(_is_ours, kind.__mro__[:-1]))


def _is_ours(kind: type[Any]) -> bool:
    """Whether all that a class can call, its bases left out, is this package's."""
    return all(_calls_ours(member) for name, member in kind.__dict__.items() if name not in _OF_ALL_CLASSES)


def _calls_ours(member: Any) -> bool:
    """Whether a class's member is a function of this package's that wraps none of the user's, or plain."""
    if isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    while isinstance(member, types.FunctionType):
        within = member.__dict__.get("__wrapped__")
        if within is None or not INTERNAL[member.__code__.co_filename]:
            return INTERNAL[member.__code__.co_filename]
        member = within
    return type(member) in (*_PLAIN, tuple, dict, list)


def _is_plain(option: Any) -> bool:
    return _are_plain(option) if type(option) in (list, tuple) else _is_plain_value(option)


def _are_plain(values: Any) -> bool:
    return all(map(_is_plain_value, values))


def _is_plain_value(value: Any) -> bool:
    return type(value) in (Tensor, Parameter) if isinstance(value, Handle) else type(value) in _PLAIN

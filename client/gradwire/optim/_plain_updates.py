"""Plain updates: which optimizers run this package's code alone, so that a recording need not watch their updates."""

from __future__ import annotations

import sys
import types
from operator import is_
from typing import Any

from gradwire._base.call_site import INTERNAL
from gradwire._base.watching import WATCHER
from gradwire._proxy.handle import Handle
from gradwire._tensor.batching import BATCHING
from gradwire._tensor.tensor import Tensor
from gradwire.nn._parameter import Parameter

#: What PyTorch keeps as tensors of one element, and is a number here: the corrections are computed with it.
NUMBERS = ("step", "mu_product", "eta", "mu")
_PLAIN = (int, float, bool, str, type(None))
# Members of classes of this package when all of them were this package's.
_SEEN: dict[type[Any], tuple[Any, ...]] = {}
_OF_ALL_CLASSES = frozenset({"__dict__", "__weakref__"})


def runs_unwatched(optimizer: Any) -> bool:
    """Whether a recording watches this thread, and the optimizer's update and zero_grad call no code of the user."""
    if WATCHER.profile is None or BATCHING or not is_of_package(optimizer):
        return False
    for group in optimizer.param_groups:
        if not (_are_plain(group["params"]) and has_plain_options(group)):
            return False
    return all(_are_plain(state.values()) for state in optimizer.state.values())


def is_of_package(optimizer: Any) -> bool:
    """Whether all that an optimizer can call is this package's."""
    if any(callable(each) and name != "_scheduled_step" for name, each in optimizer.__dict__.items()):
        return False
    return all(map(_is_ours, type(optimizer).__mro__[:-1]))


def has_plain_options(group: dict[str, Any]) -> bool:
    """Whether the options of a group are plain values or tensors, or lists of these."""
    return all(_is_plain(option) for name, option in group.items() if name != "params")


def has_own_methods() -> bool:
    """Whether the methods of tensors are this package's, and none was replaced by the user's."""
    return _is_ours(Tensor) and _is_ours(Parameter)


def _is_ours(kind: type[Any]) -> bool:
    """Whether all that a class can call, its bases left out, is this package's."""
    members, seen = kind.__dict__, _SEEN.get(kind)
    if seen is not None and len(seen) == len(members) and all(map(is_, members.values(), seen)):
        return True
    found = all(_calls_ours(member) for name, member in members.items() if name not in _OF_ALL_CLASSES)
    if found and INTERNAL[getattr(sys.modules.get(kind.__module__), "__file__", None) or ""]:
        _SEEN[kind] = tuple(members.values())
    return found


def _calls_ours(member: Any) -> bool:
    """Whether a class's member is a function of this package's that wraps none of the user's, or plain."""
    if isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    if isinstance(member, property):
        return all(each is None or _calls_ours(each) for each in (member.fget, member.fset, member.fdel))
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

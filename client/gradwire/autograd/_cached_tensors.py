"""Cached tensors: those that a cache holds beside the program (torch._C._add_cached_tensor).

PyTorch leaves the cache's references out where it asks whether a gradient has only one holder. The server decides that
for itself, so here the set only answers whether a tensor is in it.
"""

from __future__ import annotations

import weakref

from gradwire._base.errors import refuse
from gradwire._proxy.handle import Handle


class _Cached:
    """The tensors by the ids of their objects, and whether questions about them are answered."""

    enabled = False

    def __init__(self) -> None:
        self.tensors: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()


_STATE = _Cached()


def set_cached_tensors_enabled(enabled: bool) -> None:
    """Whether tensors count as cached from now on (torch._C._set_cached_tensors_enabled)."""
    _STATE.enabled = bool(enabled)


def add_cached_tensor(tensor: Handle) -> None:
    """Add a tensor; a second time changes nothing. Raises RuntimeError unless enabled (torch._C._add_cached_tensor)."""
    _check_enabled()
    _STATE.tensors[id(tensor)] = tensor


def remove_cached_tensor(tensor: Handle) -> None:
    """Take a tensor out, however often it was added. Raises RuntimeError unless enabled."""
    _check_enabled()
    _STATE.tensors.pop(id(tensor), None)


def is_cached_tensor(tensor: Handle) -> bool:
    """Whether a tensor was added and not taken out, while they count (torch._C._is_cached_tensor)."""
    return _STATE.enabled and id(tensor) in _STATE.tensors


def _check_enabled() -> None:
    if not _STATE.enabled:
        raise refuse("cached tensors are not enabled: call _set_cached_tensors_enabled(True) first")

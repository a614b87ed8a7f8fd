"""Versions that a program sets: changes in place that backward is not to see (torch.autograd, for experts alone)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from gradwire._base.errors import GradwireTypeError, refuse
from gradwire._graph import commands
from gradwire._proxy.handle import Handle


def unsafe_set_version_counter(tensors: Sequence[Any], versions: Sequence[int]) -> None:
    """Let tensors count as changed that often. Backward then uses what they hold, as if it had been saved.

    Raises RuntimeError for a number below 0, for another number of versions, and for inference tensors.
    """
    if len(tensors) != len(versions):
        raise refuse(f"tensors_len={len(tensors)}, versions_len={len(versions)}: there is one version for each tensor")
    for version in versions:
        if version < 0:
            raise refuse(f"Cannot set a version_counter to a value below 0: {version}")
    for tensor, version in zip(tensors, versions, strict=True):
        commands.counters(tensor, version=version)


class unsafe_preserve_version_counter:
    """At the end of the block, tensors have the versions that they had when this was made.

    Backward then trusts values that the block changed: its gradients are silently wrong unless the block restored what
    was saved (torch.autograd._unsafe_preserve_version_counter).
    """

    def __init__(self, tensors: Any) -> None:
        self.tensors = (tensors,) if isinstance(tensors, Handle) else tensors
        if not isinstance(self.tensors, tuple):
            raise GradwireTypeError("Expected a tensor or a tuple of tensors")
        self.prev_versions = tuple(each._version for each in self.tensors)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        unsafe_set_version_counter(self.tensors, self.prev_versions)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with its calls in such a block."""

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.tensors):
                return function(*args, **kwargs)

        return called

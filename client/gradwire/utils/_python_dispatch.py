"""Dispatch modes: classes whose `__torch_dispatch__` is called for each op (torch.utils._python_dispatch).

A mode sees the ATen ops that the client's calls stand for. What the server computes in backward it does not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gradwire._base.refused import refusal
from gradwire._dispatch import intercept, modes
from gradwire._proxy.handle import Handle
from gradwire.utils._selective_checkpoints import with_region

__all__ = [
    "BaseTorchDispatchMode",
    "TorchDispatchMode",
    "is_in_any_mode_without_ignore_compile_internals",
    "is_in_torch_dispatch_mode",
    "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type",
    "return_and_correct_aliasing",
    "transform_subclass",
]

_INTERCEPT = intercept._dispatch  # loading it registers it


class TorchDispatchMode:
    """Base of modes: inside `with mode:`, each op calls `mode.__torch_dispatch__(func, types, args, kwargs)`.

    `func` is the overload of ATen, such as `torch.ops.aten.add.Tensor`. It computes when it is called, with only the
    outer modes active. What the method returns is the op's result.
    """

    supports_higher_order_operators = False

    def __init__(self, _dispatch_key: Any = None) -> None:
        if _dispatch_key is not None:
            raise refusal("utils._python_dispatch.TorchDispatchMode", "no dispatch keys")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines no __torch_dispatch__(func, types, args, kwargs)")

    def __enter__(self) -> Any:
        modes.enter(self)
        return self

    def __exit__(self, *exc: object) -> None:
        modes.leave()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """A new mode, to be entered."""
        return cls(*args, **kwargs)

    @classmethod
    def is_infra_mode(cls) -> bool:
        """False: PyTorch's own modes come after all others there."""
        return False


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that computes each op as it is."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode() -> Any:
    """The innermost active mode, or None."""
    active = _get_current_dispatch_mode_stack()
    return active[-1] if active else None


def _get_current_dispatch_mode_stack() -> list[Any]:
    """The active modes, the innermost last. A selective checkpoint is one of them."""
    return with_region(modes.MODES.get())


def _len_torch_dispatch_stack() -> int:
    return len(_get_current_dispatch_mode_stack())


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Whether a mode is active."""
    return bool(_get_current_dispatch_mode_stack())


is_in_any_mode_without_ignore_compile_internals = is_in_torch_dispatch_mode


def _push_mode(mode: Any) -> None:
    """Make a mode the innermost one."""
    modes.enter(mode)


def _pop_mode(k: Any = None) -> Any:
    """Take the innermost mode away, and return it."""
    return modes.leave()


@contextmanager
def _pop_mode_temporarily(k: Any = None) -> Iterator[Any]:
    """Inside, the innermost mode is not active. Gives the mode."""
    *rest, mode = modes.MODES.get()
    with modes.only(tuple(rest)):
        yield mode


@contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """Inside, no mode is active. Gives those that were."""
    active = list(modes.MODES.get())
    with modes.only(()):
        yield active


@contextmanager
def _disable_infra_modes() -> Iterator[list[Any]]:
    """Does nothing: there are no modes of PyTorch's own."""
    yield []


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether a tensor's class has `__tensor_flatten__` and `__tensor_unflatten__`."""
    return isinstance(t, Handle) and is_traceable_wrapper_subclass_type(type(t))


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Whether a class has `__tensor_flatten__` and `__tensor_unflatten__`."""
    return issubclass(t, Handle) and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def transform_subclass(t: Any, callback: Callable[[str, Any], Any], *_: Any, **__: Any) -> Any:
    """A wrapper with `callback(name, tensor)` for each of its tensors."""
    names, context = t.__tensor_flatten__()
    made = {name: callback(name, getattr(t, name)) for name in names}
    return type(t).__tensor_unflatten__(made, context, t.size(), t.stride())


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """The result of an op: for an op that writes in place, the argument that it wrote."""
    name = func._qualname.rpartition("::")[2]
    if name.endswith("_") and not name.endswith("__") and args and isinstance(args[0], Handle):
        return args[0]
    return out

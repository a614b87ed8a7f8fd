"""torch.autograd.grad_mode: whether operations are recorded."""

from __future__ import annotations

from contextvars import ContextVar

from gradwire._base.modes import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = [
    "enable_grad",
    "enforce_grad_layout_policy",
    "inference_mode",
    "no_grad",
    "set_grad_enabled",
    "set_multithreading_enabled",
]

_MULTITHREADED: ContextVar[bool] = ContextVar("gradwire_multithreaded_backward", default=True)


class set_multithreading_enabled:
    """Whether backward may use several threads, from now on or for a `with` block (torch.autograd.grad_mode).

    The server decides that: the answer of `is_multithreading_enabled` is all that changes.
    """

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self.prev = _MULTITHREADED.get()
        _MULTITHREADED.set(bool(mode))

    def __enter__(self) -> None:
        _MULTITHREADED.set(bool(self.mode))

    def __exit__(self, *exc: object) -> None:
        _MULTITHREADED.set(self.prev)

    def clone(self) -> set_multithreading_enabled:
        """Another one of the same mode."""
        return type(self)(self.mode)


class enforce_grad_layout_policy:
    """Whether gradients must have their tensors' strides, in PyTorch (torch.autograd.enforce_grad_layout_policy).

    The mode has no effect: gradients have the strides with which backward computes them. Values do not depend on it.
    """

    def __init__(self, enable: bool) -> None:
        self.enable = bool(enable)

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, *exc: object) -> None:
        """End the block."""


def is_multithreading_enabled() -> bool:
    """What `set_multithreading_enabled` was called with last in this thread (torch.autograd)."""
    return _MULTITHREADED.get()

"""Grad modes on the engine's context, as context managers."""

from contextvars import Token
from dataclasses import replace
from typing import Any

from gradwire_engine import Context, grad_mode
from gradwire_engine.core.context import CURRENT


def is_grad_enabled() -> bool:
    """Whether ops are recorded."""
    return CURRENT.get().grad_enabled


def is_inference_mode_enabled() -> bool:
    """Whether ops make inference tensors."""
    return CURRENT.get().inference


def no_grad() -> Any:
    """Record nothing inside."""
    return grad_mode(False)


def enable_grad() -> Any:
    """Record inside."""
    return grad_mode(True)


class set_grad_enabled:
    """Set the mode at once; as a context manager, restore it at the end of the block."""

    def __init__(self, mode: bool) -> None:
        self._before = CURRENT.get().grad_enabled
        _set(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _set(self._before)


def _set(enabled: bool) -> None:
    CURRENT.set(replace(CURRENT.get(), grad_enabled=enabled))


class inference_mode:
    """Inside, results can never join a graph."""

    def __init__(self, mode: bool = True) -> None:
        self._mode = mode
        self._tokens: list[Token[Context]] = []

    def __enter__(self) -> None:
        inside = replace(CURRENT.get(), inference=self._mode, grad_enabled=not self._mode)
        self._tokens.append(CURRENT.set(inside))

    def __exit__(self, *exc: object) -> None:
        CURRENT.reset(self._tokens.pop())

"""Controls of compilation (torch.compiler). gradwire.compile records commands, so most have nothing to change."""

from __future__ import annotations

from typing import Any

from gradwire._compile.compile import compile as compile

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "reset",
    "set_stance",
]


def is_compiling() -> bool:
    """False: functions run as Python while their commands are recorded."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def disable(fn: Any = None, recursive: bool = True, **options: Any) -> Any:
    """Return the function unchanged; without one, a decorator that does so."""
    return fn if fn is not None else lambda given: given


def allow_in_graph(fn: Any) -> Any:
    """Return the function unchanged."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """Return the function unchanged."""
    return fn


def reset() -> None:
    """Do nothing: recordings belong to their functions and are freed with them."""


def cudagraph_mark_step_begin() -> None:
    """Do nothing: there are no CUDA graphs."""


def list_backends(*args: Any) -> list[str]:
    """The one way of compiling here."""
    return ["gradwire"]


class set_stance:
    """Context manager and decorator without effect: a recording falls back by its own guards."""

    def __init__(self, stance: str = "default", **options: Any) -> None:
        self.stance = stance

    def __enter__(self) -> set_stance:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __call__(self, fn: Any) -> Any:
        """Return the function unchanged."""
        return fn

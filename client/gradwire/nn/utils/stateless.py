"""A module called with other tensors as its parameters, under its old name; it is gradwire.func.functional_call."""

from typing import Any

__all__ = ["functional_call"]  # noqa: F822


def __getattr__(name: str) -> Any:
    # Found when it is asked for: gradwire.func imports the modules, so they cannot import it.
    if name == "functional_call":
        from gradwire.func import functional_call

        return functional_call
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

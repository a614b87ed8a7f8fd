"""An error inside a module names the module's path, what it expects and what it received."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradwire._base.errors import GradwireError
from gradwire._tensor.tensor import Tensor
from gradwire.nn._parameter import qualified_name

if TYPE_CHECKING:
    from gradwire.nn._module import Module

# Refusals caused by a module's inputs; others (a lost connection, a limit) are no module's.
_GIVEN = {
    "ARGUMENT_TYPE",
    "ARGUMENT_VALUE",
    "DEVICE_MISMATCH",
    "DIM_OUT_OF_RANGE",
    "DTYPE",
    "INDEX_OUT_OF_RANGE",
    "NOT_SUPPORTED",
    "RUNTIME",
    "SHAPE",
}


def blame(module: Module, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Add the module to an error's text, if the inputs caused the error and no module below has added itself."""
    if isinstance(error, GradwireError):
        if error.late or error.reason not in _GIVEN:
            return
    elif not (
        type(error) in (ValueError, TypeError, RuntimeError, NotImplementedError, AssertionError, IndexError)
        and type(module).__module__.startswith("gradwire.nn.")
    ):
        return
    if not error.args or not isinstance(error.args[0], str) or getattr(error, "_blamed", False):
        return
    path = qualified_name(module)
    kind = type(module).__name__
    where = f"{path} ({kind})" if path else kind
    given = ", ".join(_described(value) for value in (*args, *kwargs.values()))
    expected = module._expects()
    said = f"expected input of shape {expected}, got {given}" if expected else f"called with {given or 'nothing'}"
    error.args = (f"{error.args[0]}\n  in {where}: {said}", *error.args[1:])
    error._blamed = True  # type: ignore[attr-defined]


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)} {value.dtype.name}"
    if isinstance(value, (tuple, list)) and len(value) <= 4:
        return f"{type(value).__name__} of " + ", ".join(_described(each) for each in value)
    return type(value).__name__ if not isinstance(value, (int, float, bool, str, type(None))) else repr(value)

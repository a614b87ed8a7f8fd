"""`out=`: a result that is written into a tensor that is there already."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from gradwire._errors import GradwireTypeError, refuse
from gradwire._handle import Handle
from gradwire._modes import GRAD_ENABLED, no_grad

if TYPE_CHECKING:
    from gradwire._tensor import Tensor


def _into(op: str, out: Any, made: Tensor) -> Tensor:
    """Give `out` the values of what an op has made; the answer is `out`.

    One of another shape is resized, with a warning unless it was empty. Raises RuntimeError where gradients would have
    to pass, and where the result's dtype does not fit; TypeError for what is no tensor.
    """
    if not isinstance(out, Handle):
        raise GradwireTypeError(f"{op}(): argument 'out' must be Tensor, not {type(out).__name__}")
    target: Any = out
    if GRAD_ENABLED.get() and (made.requires_grad or target.requires_grad):
        raise refuse(
            f"{op}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    if target.dtype is not made.dtype:
        from gradwire._functions import can_cast

        if not can_cast(made.dtype, target.dtype):
            raise refuse(
                f"result type {made.dtype.title} can't be cast to the desired output type {target.dtype.title}"
            )
    if target.shape != made.shape:
        if target.numel():
            warnings.warn(
                f"An output with one or more elements was resized since it had shape {list(target.shape)}, which does "
                f"not match the required output shape {list(made.shape)}.",
                UserWarning,
                stacklevel=3,
            )
        target.data = made.to(target.dtype)
        return target  # type: ignore[no-any-return]
    with no_grad():
        target.copy_(made)
    return target  # type: ignore[no-any-return]

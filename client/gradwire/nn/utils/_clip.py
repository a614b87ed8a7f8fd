"""Functions of all gradients or parameters together: clipping, and laying them end to end."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable

from gradwire._base.modes import no_grad
from gradwire._functions.create import zeros
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    held = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [param.grad for param in held if param.grad is not None]


@no_grad()
def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all tensors as if they were one vector; zero for none.

    With `error_if_nonfinite` raises RuntimeError for a norm that is infinite or nan, which costs a read. Like
    torch.nn.utils.get_total_norm.
    """
    held = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not held:
        return zeros(())
    each = [ops.linalg_vector_norm(tensor, norm_type) for tensor in held]
    total = ops.linalg_vector_norm(ops.stack(each), norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale all gradients by max_norm / total_norm where that is below 1; torch.nn.utils.clip_grads_with_norm_."""
    grads = _gradients(parameters)
    if not grads:
        return
    factor = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor)


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients so that their common norm is at most `max_norm`; returns the norm before.

    With `error_if_nonfinite` raises RuntimeError for a norm that is infinite or nan, which costs a read. Like
    torch.nn.utils.clip_grad_norm_.
    """
    held = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    total = get_total_norm(_gradients(held), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(held, max_norm, total)
    return total


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """As clip_grad_norm_, which has taken its place; a FutureWarning says so."""
    warnings.warn("clip_grad_norm is now deprecated in favor of clip_grad_norm_.", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite)


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every element of every gradient to [-clip_value, clip_value]; torch.nn.utils.clip_grad_value_."""
    for grad in _gradients(parameters):
        grad.clamp_(-clip_value, clip_value)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters as one vector, in order; torch.nn.utils.parameters_to_vector."""
    return ops.cat([param.reshape(-1) for param in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Set parameters to the values of a vector, in order; torch.nn.utils.vector_to_parameters.

    Raises TypeError for a non-tensor, RuntimeError for a vector that is too short.
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected gradwire.Tensor, but got: {type(vec).__name__}")
    start = 0
    for param in parameters:
        param.data = vec.detach()[start : start + param.numel()].reshape(param.shape).clone()
        start += param.numel()

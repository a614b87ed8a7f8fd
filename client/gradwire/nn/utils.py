"""What is done to all gradients or parameters at once: clipping, and laying them end to end."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gradwire import _ops
from gradwire._create import zeros
from gradwire._modes import no_grad
from gradwire._tensor import Tensor

__all__ = ["clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "vector_to_parameters"]


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    held = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [param.grad for param in held if param.grad is not None]


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients so that their common norm is at most `max_norm`; returns the norm before.

    With `error_if_nonfinite` raises RuntimeError for a norm that is infinite or nan, which costs a read. Answers to
    torch.nn.utils.clip_grad_norm_.
    """
    grads = _gradients(parameters)
    if not grads:
        return zeros(())
    total = _ops.linalg_vector_norm(_ops.stack([_ops.linalg_vector_norm(grad, norm_type) for grad in grads]), norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped."
        )
    factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor)
    return total


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every element of every gradient to [-clip_value, clip_value]; torch.nn.utils.clip_grad_value_."""
    for grad in _gradients(parameters):
        grad.clamp_(-clip_value, clip_value)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters as one vector, in order; torch.nn.utils.parameters_to_vector."""
    return _ops.cat([param.reshape(-1) for param in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Give parameters the values of a vector, in order; torch.nn.utils.vector_to_parameters.

    Raises RuntimeError for a vector that is too short.
    """
    start = 0
    for param in parameters:
        param.data = vec.detach()[start : start + param.numel()].reshape(param.shape).clone()
        start += param.numel()

"""Gradients of convolutions as functions (torch.nn.grad): by the input, or by the weight, of a given gradient.

A convolution is linear in both, so each is the derivative at zeros. The results are parts of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradwire._base.errors import refuse
from gradwire._base.modes import enable_grad, is_grad_enabled
from gradwire._functions.create import zeros
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.autograd import grad
from gradwire.nn._functional.of_torch import convolution

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]

_CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: ops.conv1d, 2: ops.conv2d, 3: ops.conv3d}


def _differentiated(
    computed: Callable[..., Tensor],
    by_input: bool,
    size: Sequence[int],
    other: Tensor,
    grad_output: Tensor,
    *how: Any,
) -> Any:
    """The gradient by the operand of this size; `other` is the other operand, `how` stride, padding and so on."""
    keeps_graph = is_grad_enabled()
    with enable_grad():
        wanted = zeros(tuple(size), dtype=other.dtype, device=other.device, requires_grad=True)
        made = computed(*((wanted, other) if by_input else (other, wanted)), None, *how)
        if made.shape != grad_output.shape:
            raise refuse(
                f"Expected grad_output of shape {list(made.shape)}, that of the convolution, but got "
                f"{list(grad_output.shape)}"
            )
        (found,) = grad(made, wanted, grad_output, create_graph=keeps_graph)
    return found


def _function(dims: int, by_input: bool) -> Callable[..., Tensor]:
    computed = _CONVOLUTIONS[dims]
    if by_input:

        def conv_input(
            input_size: Sequence[int],
            weight: Tensor,
            grad_output: Tensor,
            stride: Any = 1,
            padding: Any = 0,
            dilation: Any = 1,
            groups: int = 1,
        ) -> Any:
            how = (stride, padding, dilation, groups)
            return _differentiated(computed, True, input_size, weight, grad_output, *how)

        return conv_input

    def conv_weight(
        input: Tensor,
        weight_size: Sequence[int],
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        how = (stride, padding, dilation, groups)
        return _differentiated(computed, False, weight_size, input, grad_output, *how)

    return conv_weight


conv1d_input, conv1d_weight = _function(1, True), _function(1, False)
conv2d_input, conv2d_weight = _function(2, True), _function(2, False)
conv3d_input, conv3d_weight = _function(3, True), _function(3, False)


def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of a convolution by input, weight and bias; None for those that `output_mask` leaves out (ATen's)."""
    if input.ndim - 2 not in _CONVOLUTIONS:
        raise refuse(f"convolution_backward takes an input of 3 to 5 dimensions, and this one has {input.ndim}")
    how = (stride, padding, dilation, transposed, output_padding, groups)
    by_input, by_weight, by_bias = output_mask
    summed: Tensor | None = grad_output.sum([0, *range(2, input.ndim)]) if by_bias else None
    return (
        _differentiated(convolution, True, input.shape, weight, grad_output, *how) if by_input else None,
        _differentiated(convolution, False, weight.shape, input, grad_output, *how) if by_weight else None,
        summed,
    )

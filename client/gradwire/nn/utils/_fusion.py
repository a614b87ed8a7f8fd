"""A batch norm in eval mode taken into the layer before it."""

from __future__ import annotations

import copy
from typing import Any

from gradwire._functions.create import ones_like, zeros_like
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import Module
from gradwire.nn._parameter import Parameter


def _scaled(
    weight: Tensor, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float, gamma: Any, beta: Any, axis: int
) -> tuple[Parameter, Parameter]:
    """The weights of a layer equal to layer and norm."""
    gamma = ones_like(mean) if gamma is None else gamma
    beta = zeros_like(mean) if beta is None else beta
    bias = zeros_like(mean) if bias is None else bias
    factor = gamma * ops.rsqrt(var + eps)
    shape = [1] * weight.ndim
    shape[axis] = -1
    fused = (weight * factor.reshape(shape)).to(weight.dtype)
    shifted = (bias - mean) * factor + beta
    return (
        Parameter(fused, weight.requires_grad),
        Parameter(shifted.to(bias.dtype), bias.requires_grad),
    )


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a convolution with a batch norm in it; `transpose` for a transposed one."""
    return _scaled(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a linear layer with a batch norm in it."""
    return _scaled(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def _copied(layer: Module, bn: Module, kind: str) -> Any:
    if layer.training or bn.training:
        raise AssertionError(f"Fusion only for eval! ({kind} and batch norm must be in eval mode)")
    return copy.deepcopy(layer)


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of a convolution with the batch norm after it in it. Raises AssertionError in training mode."""
    fused = _copied(conv, bn, "conv")
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of a linear layer with the batch norm after it in it. Raises AssertionError in training mode."""
    fused = _copied(linear, bn, "linear")
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused

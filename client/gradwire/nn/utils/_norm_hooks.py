"""weight_norm and spectral_norm as they were before parametrizations: a hook computes the weight."""

from __future__ import annotations

import warnings
from typing import Any

import gradwire.nn.functional as F
from gradwire._base.modes import no_grad
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import Module
from gradwire.nn._parameter import Parameter, is_lazy
from gradwire.nn.utils.parametrizations import _row_dim, as_matrix, norm_except


class _WeightNormHook:
    def __init__(self, name: str, dim: int) -> None:
        self.name = name
        self.dim = dim

    def compute(self, module: Module) -> Tensor:
        direction = getattr(module, self.name + "_v")
        made: Tensor = direction * (getattr(module, self.name + "_g") / norm_except(direction, self.dim))
        return made

    def __call__(self, module: Module, args: Any) -> None:
        setattr(module, self.name, self.compute(module))


class _SpectralNormHook:
    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        self.name = name
        self.n_power_iterations = n_power_iterations
        self.dim = dim
        self.eps = eps

    def compute(self, module: Module, iterate: bool) -> Tensor:
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = as_matrix(weight, self.dim)
        if iterate:
            with no_grad():
                fixed = matrix.detach()
                for _ in range(self.n_power_iterations):
                    v = F.normalize(ops.mv(fixed.transpose(0, 1), u), dim=0, eps=self.eps)
                    u = F.normalize(ops.mv(fixed, v), dim=0, eps=self.eps)
            setattr(module, self.name + "_u", u)
            setattr(module, self.name + "_v", v)
        made: Tensor = weight / ops.dot(u, ops.mv(matrix, v))
        return made

    def __call__(self, module: Module, args: Any) -> None:
        setattr(module, self.name, self.compute(module, module.training))


def _weight(module: Module, name: str, kind: type, noun: str) -> Parameter:
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, kind) and getattr(hook, "name", None) == name:
            raise RuntimeError(f"Cannot register two {noun} hooks on the same parameter {name}")
    weight = module._parameters[name]
    assert weight is not None
    if is_lazy(weight):
        raise ValueError(f"A module for {noun} can't have uninitialized parameters. Call its forward first.")
    del module._parameters[name]
    return weight


def _taken_off(module: Module, name: str, kind: type, noun: str) -> Any:
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, kind) and getattr(hook, "name", None) == name:
            del module._forward_pre_hooks[number]
            return hook
    raise ValueError(f"{noun} of '{name}' not found in {module}")


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Train a weight's length (`<name>_g`) and direction (`<name>_v`) apart. A FutureWarning names the newer function.

    Raises RuntimeError the second time, KeyError for a name that the module has not.
    """
    warnings.warn(
        "`nn.utils.weight_norm` is deprecated in favor of `nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    weight = _weight(module, name, _WeightNormHook, "weight_norm")
    hook = _WeightNormHook(name, -1 if dim is None else dim)
    module.register_parameter(name + "_g", Parameter(norm_except(weight.detach(), hook.dim)))
    module.register_parameter(name + "_v", Parameter(weight.detach()))
    setattr(module, name, hook.compute(module))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Undo weight_norm: the weight is a parameter of its present value. Raises ValueError where there is none."""
    hook = _taken_off(module, name, _WeightNormHook, "weight_norm")
    value = hook.compute(module).detach()
    delattr(module, name)
    delattr(module, name + "_g")
    delattr(module, name + "_v")
    setattr(module, name, Parameter(value))
    return module


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight (then `<name>_orig`) by its largest singular value, estimated at each forward in training.

    Raises ValueError for no iterations, RuntimeError the second time, KeyError for a name that the module has not.
    """
    if n_power_iterations <= 0:
        raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
    weight = _weight(module, name, _SpectralNormHook, "spectral_norm")
    hook = _SpectralNormHook(name, n_power_iterations, _row_dim(module, dim), eps)
    with no_grad():
        rows, columns = as_matrix(weight.detach(), hook.dim).shape
        u = F.normalize(weight.new_empty(rows).normal_(), dim=0, eps=eps)
        v = F.normalize(weight.new_empty(columns).normal_(), dim=0, eps=eps)
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.detach())
    module.register_buffer(name + "_u", u)
    module.register_buffer(name + "_v", v)
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Undo spectral_norm: the weight is a parameter of its present value. Raises ValueError where there is none."""
    hook = _taken_off(module, name, _SpectralNormHook, "spectral_norm")
    with no_grad():
        value = hook.compute(module, False).detach()
    delattr(module, name)
    for suffix in ("_u", "_v", "_orig"):
        delattr(module, name + suffix)
    module.register_parameter(name, Parameter(value))
    return module

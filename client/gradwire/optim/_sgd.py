"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from typing import Any

from gradwire._compile.recorder import varying
from gradwire._functions.create import zeros_like
from gradwire._graph.sparse_gradients import is_sparse
from gradwire._tensor.tensor import Tensor
from gradwire.optim._optimizer import Optimizer, Params, rate_of, refuse_negative, refuse_unsupported


class SGD(Optimizer):
    """param -= lr * (grad + weight_decay * param), with momentum: lr times a decaying sum of these.

    The sum is buf = momentum * buf + (1 - dampening) * grad, begun with the first gradient; `nesterov` looks one step
    ahead; `maximize` ascends. Raises ValueError for options below zero. Like torch.optim.SGD.
    """

    _is_alike = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        refuse_negative("learning rate", lr)
        refuse_negative("momentum value", momentum)
        refuse_negative("weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        refuse_unsupported(differentiable, fused, foreach)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def _initial_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        # With dampening, the first step differs from the others.
        if group["momentum"] == 0 or group["dampening"] != 0:
            return {}
        return {"momentum_buffer": zeros_like(param)}

    def _begin_state(self, param: Tensor, group: dict[str, Any]) -> bool:
        # The first buffer is the gradient itself, whose zeros may be negative.
        return group["momentum"] == 0 or bool(self.state.get(param))

    def _update(self, group: dict[str, Any]) -> None:
        momentum, weight_decay = group["momentum"], group["weight_decay"]
        for param in group["params"]:
            grad = param.grad
            if grad is None:
                continue
            if group["maximize"]:
                grad = -grad
            if is_sparse(grad):
                if weight_decay != 0:
                    raise RuntimeError("add(sparse, dense) is not supported: weight_decay needs dense gradients")
                grad = grad.to_dense()  # PyTorch's buffer is sparse, and has the same numbers
            if weight_decay != 0:
                grad = grad.add(param, alpha=weight_decay)
            if momentum != 0:
                state = self.state[param]
                buffer = state.get("momentum_buffer")
                if buffer is None:
                    state["momentum_buffer"] = buffer = grad.detach().clone()
                else:
                    buffer.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
                grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
            param.add_(grad, alpha=varying(param, ("lr", id(group)), lambda ahead: -rate_of(group)))

"""Optimizers that divide each element's step by the root of what its gradients were: Adagrad, RMSprop, Adadelta; Rprop.

Rprop uses only the gradients' signs, and makes an element's step longer while its sign is the same.
"""

from __future__ import annotations

from typing import Any

from gradwire._compile.recorder import counting, varying
from gradwire._compile.symbolic import key_of
from gradwire._functions.create import full_like, zeros_like
from gradwire._graph.sparse_gradients import is_sparse
from gradwire._tensor.tensor import Tensor
from gradwire.optim._optimizer import (
    Optimizer,
    Params,
    decayed,
    plus,
    rate_of,
    refuse_negative,
    refuse_unsupported,
    stored,
)


def _rate(param: Tensor, group: dict[str, Any]) -> float:
    return varying(param, ("lr", id(group)), lambda ahead: -rate_of(group))


class Adagrad(Optimizer):
    """param -= lr / (1 + (step - 1) * lr_decay) * grad / (sqrt(sum of grad²) + eps). Like torch.optim.Adagrad.

    A sparse gradient changes only the elements that it stores. Raises ValueError for options below zero; a step raises
    RuntimeError for a sparse gradient with weight_decay.
    """

    _by_elements = _is_alike = True
    _takes_sparse = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        refuse_negative("learning rate", lr)
        refuse_negative("lr_decay value", lr_decay)
        refuse_negative("weight_decay value", weight_decay)
        refuse_negative("initial_accumulator_value value", initial_accumulator_value)
        refuse_negative("epsilon value", eps)
        refuse_unsupported(differentiable, fused, foreach)
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param] = self._initial_state(param, group)

    def _initial_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        begun = self.defaults["initial_accumulator_value"]  # as in PyTorch, which leaves out a group's own
        return {"step": 0, "sum": full_like(param.detach(), complex(begun, begun) if param.is_complex() else begun)}

    def _update(self, group: dict[str, Any]) -> None:
        for param, given in self._gradients(group):
            grad = decayed(param, given, group)
            state = self.state[param]
            if not state:  # a parameter that was added later
                state.update(self._initial_state(param, group))
            state["step"] += 1
            counting(param, state, "step")

            def size(ahead: int, state: dict[str, Any] = state) -> Any:
                return -rate_of(group) / (1 + (state["step"] + ahead - 1) * group["lr_decay"])

            total: Tensor = state["sum"].addcmul_(grad, grad, value=1)
            divisor = plus(total.sqrt(), group["eps"])
            param.addcdiv_(grad, divisor, value=varying(param, ("size", id(group), key_of(state["step"])), size))
        for param in group["params"]:
            if is_sparse(param.grad):
                self._update_sparsely(param, group)

    def _update_sparsely(self, param: Tensor, group: dict[str, Any]) -> None:
        if group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        state = self.state[param]
        if not state:
            state.update(self._initial_state(param, group))
        state["step"] += 1
        places, values = stored(param.grad, group)
        if not values.numel():
            return
        state["sum"].index_put_(places, values**2, accumulate=True)
        rate = rate_of(group) / (1 + (state["step"] - 1) * group["lr_decay"])
        divisor = state["sum"][places].sqrt() + group["eps"]
        param.index_put_(places, values / divisor * -rate, accumulate=True)


class RMSprop(Optimizer):
    """param -= lr * grad / (sqrt(v) + eps), v the decaying mean of grad². Like torch.optim.RMSprop.

    `centered` subtracts the square of the mean gradient from v; `momentum` sums the steps up. Raises ValueError for
    options below zero.
    """

    _by_elements = _is_alike = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        refuse_negative("learning rate", lr)
        refuse_negative("epsilon value", eps)
        refuse_negative("momentum value", momentum)
        refuse_negative("weight_decay value", weight_decay)
        refuse_negative("alpha value", alpha)
        refuse_unsupported(differentiable, None, foreach)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any]) -> None:
        alpha, eps, momentum = group["alpha"], group["eps"], group["momentum"]
        for param, given in self._gradients(group):
            grad = decayed(param, given, group)
            state = self.state[param]
            if not state:
                state.update(self._initial_state(param, group))
            state["step"] += 1
            counting(param, state, "step")
            square: Tensor = state["square_avg"].mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
            if group["centered"]:
                mean = state["grad_avg"].lerp_(grad, 1 - alpha)
                square = square.addcmul(mean, mean, value=-1)
            divisor = plus(square.sqrt(), eps)
            if momentum > 0:
                buffer = state["momentum_buffer"].mul_(momentum).addcdiv_(grad, divisor)
                param.add_(buffer, alpha=_rate(param, group))
            else:
                param.addcdiv_(grad, divisor, value=_rate(param, group))

    def _initial_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state: dict[str, Any] = {"step": 0, "square_avg": zeros_like(param)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros_like(param)
        if group["centered"]:
            state["grad_avg"] = zeros_like(param)
        return state


class Adadelta(Optimizer):
    """param -= lr * sqrt(u + eps) / sqrt(v + eps) * grad, v and u the decaying means of grad² and of the steps².

    Raises ValueError for options out of range. Like torch.optim.Adadelta.
    """

    _by_elements = _is_alike = True

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        refuse_negative("learning rate", lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        refuse_negative("epsilon value", eps)
        refuse_negative("weight_decay value", weight_decay)
        refuse_unsupported(differentiable, None, foreach)
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _initial_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {"step": 0, "square_avg": zeros_like(param), "acc_delta": zeros_like(param)}

    def _update(self, group: dict[str, Any]) -> None:
        rho, eps = group["rho"], group["eps"]
        for param, given in self._gradients(group):
            grad = decayed(param, given, group)
            state = self.state[param]
            if not state:
                state.update(self._initial_state(param, group))
            state["step"] += 1
            counting(param, state, "step")
            square = state["square_avg"].mul_(rho).addcmul_(grad, grad, value=1 - rho)
            former, divisor = state["acc_delta"].add(eps).sqrt_(), (square + eps).sqrt_()
            change = former / divisor * grad if former.requires_grad else former.div_(divisor).mul_(grad)
            state["acc_delta"].mul_(rho).addcmul_(change, change, value=1 - rho)
            param.add_(change, alpha=_rate(param, group))


class Rprop(Optimizer):
    """Each element has a separate step, longer while its gradient keeps its sign, shorter when the sign changes.

    `etas` are the factors for shorter and longer, `step_sizes` the least and the greatest step. Raises ValueError for
    options out of range. Like torch.optim.Rprop.
    """

    _by_elements = _is_alike = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        refuse_negative("learning rate", lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        refuse_unsupported(differentiable, None, foreach)
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _initial_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {"step": 0, "prev": zeros_like(param), "step_size": full_like(param.detach(), float(group["lr"]))}

    def _update(self, group: dict[str, Any]) -> None:
        shorter, longer = group["etas"]
        least, greatest = group["step_sizes"]
        for param, grad in self._gradients(group):
            state = self.state[param]
            if not state:
                state.update(self._initial_state(param, group))
            state["step"] += 1
            counting(param, state, "step")
            agreement = grad * state["prev"]
            factor = full_like(grad, 1.0).masked_fill_(agreement > 0, longer).masked_fill_(agreement < 0, shorter)
            state["step_size"].mul_(factor).clamp_(least, greatest)
            # An element whose sign has changed does not move, and the next step does not compare its sign.
            kept = grad.masked_fill(agreement < 0, 0.0)
            param.addcmul_(kept.sign(), state["step_size"], value=-1)
            state["prev"].copy_(kept)

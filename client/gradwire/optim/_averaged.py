"""ASGD: gradient descent with a decaying rate, and the average of the parameters over the steps."""

from __future__ import annotations

from typing import Any

from gradwire._compile.recorder import counting, varying
from gradwire._functions.create import tensor, zeros_like
from gradwire.optim._optimizer import Optimizer, Params, decayed, refuse_negative, refuse_unsupported


class ASGD(Optimizer):
    """param = param * (1 - lambd * eta) - eta * grad, eta = lr / (1 + lambd * lr * step) ** alpha.

    `ax` in the state is the average of the parameter from step t0 on. Raises ValueError for options below zero. Like
    torch.optim.ASGD.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        refuse_negative("learning rate", lr)
        refuse_negative("weight_decay value", weight_decay)
        refuse_unsupported(differentiable, None, foreach)
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any]) -> None:
        for param, given in self._gradients(group):
            grad = decayed(param, given, group)
            state = self.state[param]
            if not state:
                state.update(step=0, eta=tensor(float(group["lr"])), ax=zeros_like(param.detach()))
            state["step"] += 1
            counting(param, state, "step")
            kind = (id(group), state["step"])

            def share(ahead: int, state: dict[str, Any] = state) -> float:
                return 1 / max(1, state["step"] + ahead - 1 - group["t0"])

            def rate(ahead: int, state: dict[str, Any] = state) -> float:
                lr = float(group["lr"])
                return float(lr / (1 + group["lambd"] * lr * (state["step"] + ahead)) ** group["alpha"])

            # A step uses the rate that the step before computed from its own lr, so the rate is a tensor.
            eta = state["eta"]
            param.mul_(1 - group["lambd"] * eta)
            param.addcmul_(grad, eta, value=-1)
            state["ax"].lerp_(param, varying(param, ("share", kind), share))
            eta.fill_(varying(param, ("rate", kind), rate))

"""ASGD: gradient descent with a decaying rate, and the average of the parameters over the steps."""

from __future__ import annotations

from typing import Any

from gradwire._functions.create import zeros_like
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
                state.update(step=0, eta=float(group["lr"]), mu=1.0, ax=zeros_like(param.detach()))
            state["step"] += 1
            param.mul_(1 - group["lambd"] * state["eta"])
            param.add_(grad, alpha=-state["eta"])
            if state["mu"] == 1:
                state["ax"].copy_(param)
            else:
                state["ax"].add_(param.sub(state["ax"]).mul_(state["mu"]))
            step, lr = state["step"], float(group["lr"])
            state["eta"] = lr / (1 + group["lambd"] * lr * step) ** group["alpha"]
            state["mu"] = 1 / max(1, step - group["t0"])

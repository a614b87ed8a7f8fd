"""ASGD: gradient descent with a decaying rate, and the average of the parameters over the steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from gradwire._compile.recorder import counting, varying
from gradwire._compile.symbolic import key_of, larger
from gradwire._functions.create import zeros_like
from gradwire._tensor.tensor import Tensor
from gradwire.optim._optimizer import (
    Optimizer,
    Params,
    decayed,
    rate_of,
    refuse_negative,
    refuse_unsupported,
    rounded_to_default,
)

Number: TypeAlias = Callable[[int], Any]


class ASGD(Optimizer):
    """param = param * (1 - lambd * eta) - eta * grad, eta = lr / (1 + lambd * lr * step) ** alpha.

    `ax` in the state is the average of the parameter from step t0 on. Raises ValueError for options below zero. Like
    torch.optim.ASGD.
    """

    _by_elements = _is_alike = True

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

    def _initial_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": 0,
            "eta": rounded_to_default(float(group["lr"])),
            "mu": 1.0,
            "ax": zeros_like(param.detach()),
        }

    def _update(self, group: dict[str, Any]) -> None:
        for param, given in self._gradients(group):
            grad = decayed(param, given, group)
            state = self.state[param]
            if not state:
                state.update(self._initial_state(param, group))
            rate, share, advance = _schedule(group, state)
            advance(1)
            state["step"] += 1
            counting(param, state, "step", advance)
            kind = (id(group), key_of(state["step"]), key_of(rate(0)), key_of(share(0)))

            def kept(ahead: int, rate: Number = rate) -> Any:
                return 1 - group["lambd"] * rate(ahead)

            def by_grad(ahead: int, rate: Number = rate) -> Any:
                return -rate(ahead)

            param.mul_(varying(param, ("kept", kind), kept))
            param.add_(grad, alpha=varying(param, ("by_grad", kind), by_grad))
            by_share, average = varying(param, ("share", kind), share), state["ax"]
            if average.dtype is param.dtype:
                average.lerp_(param, by_share)
            else:  # the parameter was cast since
                average.add_(param.sub(average).mul_(by_share))


def _schedule(group: dict[str, Any], state: dict[str, Any]) -> tuple[Number, Number, Callable[[int], None]]:
    """Rate and share of the average in the step so many steps ahead, and what moves the state on by steps.

    A step uses the rate and the share that the step before computed, from the options that it had.
    """
    used: dict[str, Any] = {}

    def eta(step: Any) -> Any:
        lr = rate_of(group)
        return rounded_to_default(lr / (1 + group["lambd"] * lr * step) ** group["alpha"])

    def mu(step: Any) -> Any:
        return rounded_to_default(1 / larger(1, step - group["t0"]))

    def advance(updates: int) -> None:
        if updates:
            done = state["step"] + updates
            used["eta"] = state["eta"] if updates == 1 else eta(done - 1)
            used["mu"] = state["mu"] if updates == 1 else mu(done - 1)
            state.update(eta=eta(done), mu=mu(done))

    def rate(ahead: int) -> Any:
        return eta(state["step"] + ahead - 1) if ahead else used["eta"]

    def share(ahead: int) -> Any:
        return mu(state["step"] + ahead - 1) if ahead else used["mu"]

    return rate, share, advance

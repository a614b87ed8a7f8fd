"""Adam's relatives: Adamax (largest gradient), NAdam (Nesterov's momentum), RAdam (rectified while v is unsure)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from gradwire._compile.recorder import counting, varying
from gradwire._compile.symbolic import key_of, larger, less_or_equal, select
from gradwire._functions.create import zeros_like
from gradwire._graph.sparse_gradients import is_sparse
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.optim._optimizer import (
    Optimizer,
    Params,
    decayed,
    kept_in,
    plus,
    rate_of,
    refuse_betas,
    refuse_negative,
    refuse_rates,
    refuse_unsupported,
    rounded_to_default,
    stored,
    to_save,
)

# Of repetitions ahead.
_Number: TypeAlias = Callable[[int], Any]


class Adamax(Optimizer):
    """param -= lr / (1 - beta1**step) * m / u, u being the decaying greatest |grad|. Like torch.optim.Adamax.

    Raises ValueError for options out of range.
    """

    _by_elements = _is_alike = True

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        refuse_negative("learning rate", lr)
        refuse_negative("epsilon value", eps)
        refuse_betas(betas)
        refuse_negative("weight_decay value", weight_decay)
        refuse_unsupported(differentiable, None, foreach)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _initial_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {"step": 0, "exp_avg": zeros_like(param), "exp_inf": zeros_like(param)}

    def _update(self, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        for param, given in self._gradients(group):
            grad = decayed(param, given, group)
            state = self.state[param]
            if not state:
                state.update(self._initial_state(param, group))
            state["step"] += 1
            counting(param, state, "step")

            def size(ahead: int, state: dict[str, Any] = state) -> Any:
                return -rate_of(group) / (1 - beta1 ** (state["step"] + ahead))

            mean = state["exp_avg"].lerp_(grad, 1 - beta1)
            greatest = ops.maximum(state["exp_inf"].mul_(beta2), plus(grad.abs(), group["eps"]))
            greatest = kept_in(state, "exp_inf", greatest)
            param.addcdiv_(mean, greatest, value=varying(param, ("size", id(group), key_of(state["step"])), size))


class _Moments(Optimizer):
    """What keeps the means of the gradient and of its square, and decays weights in either way."""

    _by_elements = _is_alike = True

    def _initial_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {"step": 0, "exp_avg": zeros_like(param), "exp_avg_sq": zeros_like(param)}

    def _begin(self, param: Tensor, grad: Tensor, group: dict[str, Any]) -> tuple[dict[str, Any], Tensor]:
        """The parameter's state, one step later but for its means, and the gradient with its decay."""
        state = self.state[param]
        if not state:
            state.update(self._initial_state(param, group))
        state["step"] += 1
        if group["weight_decay"] != 0 and group["decoupled_weight_decay"]:
            kept = varying(param, ("decay", id(group)), lambda ahead: 1 - rate_of(group) * group["weight_decay"])
            param.mul_(kept)
            return state, grad
        return state, decayed(param, grad, group)

    @staticmethod
    def _moved(state: dict[str, Any], grad: Tensor, betas: tuple[float, float]) -> tuple[Tensor, Tensor]:
        """The means with a gradient more."""
        beta1, beta2 = betas
        mean: Tensor = state["exp_avg"].lerp_(grad, 1 - beta1)
        square: Tensor = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        return mean, square


class NAdam(_Moments):
    """Adam with Nesterov's look ahead; `momentum_decay` makes the momentum grow towards beta1.

    Raises ValueError for options out of range. Like torch.optim.NAdam.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        refuse_negative("learning rate", lr)
        refuse_negative("epsilon value", eps)
        refuse_betas(betas)
        refuse_negative("weight_decay value", weight_decay)
        refuse_negative("momentum_decay value", momentum_decay)
        refuse_unsupported(differentiable, None, foreach)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _initial_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        begun = super()._initial_state(param, group)
        return {"step": begun.pop("step"), "mu_product": 1.0, **begun}  # PyTorch's order

    def _update(self, group: dict[str, Any]) -> None:
        for param, given in self._gradients(group):
            state, grad = self._begin(param, given, group)
            momentum, product = _momenta(group, state)
            state["mu_product"] = _times(state["mu_product"], momentum(0))

            def also(updates: int, state: dict[str, Any] = state, product: _Number = product) -> None:
                state["mu_product"] = product(updates)

            counting(param, state, "step", also)
            beta2 = group["betas"][1]
            kind = (id(group), key_of(state["step"]), key_of(state["mu_product"]))

            def left(ahead: int, state: dict[str, Any] = state, beta2: float = beta2) -> Any:
                return 1 - beta2 ** (state["step"] + ahead)

            def by_grad(ahead: int, momentum: _Number = momentum, product: _Number = product) -> Any:
                return -rate_of(group) * (1 - momentum(ahead)) / (1 - product(ahead))

            def by_mean(ahead: int, momentum: _Number = momentum, product: _Number = product) -> Any:
                following = momentum(ahead + 1)
                return -rate_of(group) * following / (1 - product(ahead) * following)

            mean, square = self._moved(state, grad, group["betas"])
            divisor = plus((square / varying(param, ("left", kind), left)).sqrt_(), group["eps"])
            param.addcdiv_(grad, divisor, value=varying(param, ("grad", kind), by_grad))
            param.addcdiv_(to_save(mean), divisor, value=varying(param, ("mean", kind), by_mean))


def _momenta(group: dict[str, Any], state: dict[str, Any]) -> tuple[_Number, _Number]:
    """The momentum so many steps from this one, and the product of all of them up to there.

    Both go on from the state's numbers, which a program may have changed.
    """

    def momentum(ahead: int) -> Any:
        return group["betas"][0] * (1.0 - 0.5 * 0.96 ** ((state["step"] + ahead) * group["momentum_decay"]))

    def product(ahead: int) -> Any:
        value = state["mu_product"]
        for further in range(1, ahead + 1):
            value = _times(value, momentum(further))
        return value

    return momentum, product


def _times(product: Any, momentum: Any) -> Any:
    return rounded_to_default(rounded_to_default(product) * rounded_to_default(momentum))


class RAdam(_Moments):
    """Adam that divides only once enough gradients are known, and rectifies its first such steps.

    Raises ValueError for options out of range. Like torch.optim.RAdam.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        refuse_negative("learning rate", lr)
        refuse_negative("epsilon value", eps)
        refuse_betas(betas)
        refuse_negative("weight_decay value", weight_decay)
        refuse_unsupported(differentiable, None, foreach)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        for param, given in self._gradients(group):
            state, grad = self._begin(param, given, group)
            counting(param, state, "step")
            kind = (id(group), key_of(state["step"]))

            def size(ahead: int, state: dict[str, Any] = state) -> Any:
                step = state["step"] + ahead
                return -rate_of(group) / (1 - beta1**step) * _rectification(beta2, step)[0]

            def share(ahead: int, state: dict[str, Any] = state) -> Any:
                return _rectification(beta2, state["step"] + ahead)[1]

            # A step divides by sqrt(v) + eps or by 1, which is its power 1 or 0: so every step has the same ops.
            mean, square = self._moved(state, grad, group["betas"])
            divisor = plus(square.sqrt(), group["eps"]).pow(varying(param, ("share", kind), share))
            param.addcdiv_(to_save(mean), divisor, value=varying(param, ("size", kind), size))


def _rectification(beta2: float, step: Any) -> tuple[Any, Any]:
    """RAdam's factor for a step, and the power of sqrt(v) + eps that it divides by."""
    longest = 2 / (1 - beta2) - 1
    if longest <= 5:
        return 1.0, 0.0
    left = 1 - beta2**step
    length = longest - 2 * step * beta2**step / left
    is_short = less_or_equal(length, 5)

    def factor() -> Any:
        known = larger(length, 5)  # the formula of a step that is not rectified has no root of a negative number
        rectified = (known - 4) * (known - 2) * longest / ((longest - 4) * (longest - 2) * known)
        return rectified**0.5 * left**0.5

    return select(is_short, lambda: 1.0, factor), select(is_short, lambda: 0.0, lambda: 1.0)


class SparseAdam(Optimizer):
    """Adam for sparse gradients: only the elements that a gradient stores change, they and their averages.

    Raises ValueError for options out of range and for complex parameters; a step raises RuntimeError for a dense
    gradient. Like torch.optim.SparseAdam.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        refuse_rates(lr)
        if not lr > 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        refuse_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        places = [
            [at, place]
            for at, group in enumerate(self.param_groups)
            for place, param in enumerate(group["params"])
            if param.is_complex()
        ]
        if places:
            raise ValueError(f"Complex params at indices {places}: SparseAdam does not support complex parameters")

    def _update(self, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        for param in group["params"]:
            if (given := param.grad) is None:
                continue
            if not is_sparse(given):
                raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
            state = self.state[param]
            if not state:
                state.update(step=0, exp_avg=zeros_like(param), exp_avg_sq=zeros_like(param))
            state["step"] += 1
            places, values = stored(given, group)
            if not values.numel():
                continue
            mean, square = (state[name][places] for name in ("exp_avg", "exp_avg_sq"))
            changes = (values - mean) * (1 - beta1), (values**2 - square) * (1 - beta2)
            for name, change in zip(("exp_avg", "exp_avg_sq"), changes, strict=True):
                state[name].index_put_(places, change, accumulate=True)
            size = rate_of(group) * (1 - beta2 ** state["step"]) ** 0.5 / (1 - beta1 ** state["step"])
            divisor = (square + changes[1]).sqrt() + group["eps"]
            param.index_put_(places, (mean + changes[0]) / divisor * -size, accumulate=True)

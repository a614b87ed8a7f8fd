"""Adam and AdamW: steps by running means of the gradient and of its square."""

from __future__ import annotations

from typing import Any

from gradwire._base.errors import refuse
from gradwire._compile.recorder import counting, varying
from gradwire._compile.symbolic import key_of
from gradwire._functions.create import zeros_like
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.optim._optimizer import (
    Optimizer,
    Params,
    kept_in,
    plus,
    rate_of,
    refuse_betas,
    refuse_negative,
    refuse_unsupported,
    to_save,
)
from gradwire.v1 import errors_pb2

# PyTorch's names of dtypes in the refusal of another one.
_C_NAMES = {"float16": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double"}


def _refuse_cast(mean: Tensor, grad: Tensor) -> None:
    """Refuse a gradient of another dtype than the state has, as of a parameter that was cast between two steps."""
    if grad.dtype is not mean.dtype:
        kept, given = (_C_NAMES.get(each.dtype.name, each.dtype.name) for each in (mean, grad))
        raise refuse(f"expected dtype {kept} for `end` but got dtype {given}", errors_pb2.REASON_DTYPE)


def _refuse_over_lists(name: str, value: Any, over_lists: bool) -> None:
    if over_lists and isinstance(value, Tensor):
        raise ValueError(f"{name} as a Tensor is not supported for capturable=False and foreach=True")


def _refuse_mixed(betas: tuple[Any, Any], over_lists: bool) -> None:
    """Refuse betas of two kinds, and tensors of them where PyTorch's steps over lists do."""
    if not any(all(isinstance(beta, kind) for beta in betas) for kind in (float, Tensor)):
        raise ValueError("betas must be either both floats or both Tensors")
    for place, beta in enumerate(betas):
        _refuse_over_lists(f"betas[{place}]", beta, over_lists)
        if isinstance(beta, Tensor) and beta.numel() != 1:
            raise ValueError(f"Tensor betas[{place}] must be 1-element")


class Adam(Optimizer):
    """param -= lr * m / (sqrt(v) + eps), m and v being the bias-corrected means of grad and grad².

    `betas` are their decays. `weight_decay` adds to the gradient, or with `decoupled_weight_decay` shrinks the
    parameter itself. `amsgrad` divides by the largest v so far. `maximize` ascends. Raises ValueError for options out
    of range. Like torch.optim.Adam.
    """

    _by_elements = _is_alike = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        over_lists = bool(foreach) and not capturable
        _refuse_over_lists("lr", lr, over_lists)
        refuse_negative("learning rate", lr)
        refuse_negative("epsilon value", eps)
        refuse_betas(betas)
        refuse_negative("weight_decay value", weight_decay)
        _refuse_mixed(betas, over_lists)
        refuse_unsupported(differentiable, fused, foreach)
        defaults = {
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any]) -> None:
        for param, grad in self._gradients(group):
            self._update_one(param, grad, group)

    def _update_one(self, param: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        state = self.state[param]
        if not state:
            state.update(self._initial_state(param, group))
        state["step"] += 1
        counting(param, state, "step")
        # Parameters that have made as many steps share their numbers.
        kind = (id(group), key_of(state["step"]))
        if group["weight_decay"] != 0:
            if group["decoupled_weight_decay"]:
                param.mul_(varying(param, ("decay", kind), lambda ahead: 1 - rate_of(group) * group["weight_decay"]))
            else:
                grad = grad.add(param, alpha=group["weight_decay"])
        _refuse_cast(state["exp_avg"], grad)
        mean: Tensor = state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
        square: Tensor = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        if group["amsgrad"]:
            square = kept_in(state, "max_exp_avg_sq", ops.maximum(state["max_exp_avg_sq"], square))
        root = varying(param, ("root", kind), lambda ahead: (1 - beta2 ** (state["step"] + ahead)) ** 0.5)
        size = varying(param, ("size", kind), lambda ahead: -rate_of(group) / (1 - beta1 ** (state["step"] + ahead)))
        divisor = plus(square.sqrt() / root, group["eps"])
        param.addcdiv_(to_save(mean), divisor, value=size)

    def _initial_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        # A plain number, where PyTorch keeps a tensor: the corrections are computed here.
        state: dict[str, Any] = {"step": 0, "exp_avg": zeros_like(param), "exp_avg_sq": zeros_like(param)}
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_like(param)
        return state


class AdamW(Adam):
    """Adam with weight decay applied directly to the parameters. Like torch.optim.AdamW."""

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

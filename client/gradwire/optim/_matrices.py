"""Optimizers that see a gradient as a matrix: Adafactor by means of rows and columns, Muon by orthogonal steps."""

from __future__ import annotations

import math
from typing import Any

from gradwire._base import dtypes
from gradwire._compile.recorder import counting, varying
from gradwire._compile.symbolic import key_of, smaller
from gradwire._functions.create import zeros_like
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.optim._optimizer import Optimizer, Params, rate_of, refuse_rates


class Adafactor(Optimizer):
    """Adam without momentum, with the squares of gradients kept as means of rows and of columns.

    A step's size is relative to the parameter's: its root mean square, at least eps[1], times min(lr, step**-0.5).
    `beta2_decay`: the power of the step that is the weight of new squares. `d`: the greatest root mean square of an
    update before it is scaled. `eps[0]`: the least root of a square, by default the dtype's precision. Raises
    ValueError for options out of range. Like torch.optim.Adafactor (Shazeer & Stern, 2018).
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        refuse_rates(lr)
        _refuse_below(0.0, "Learning rate", lr)
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None:
            _refuse_below(0.0, "epsilon1", eps[0])
        _refuse_below(0.0, "epsilon2", eps[1])
        _refuse_below(1, "Clipping threshold d", d)
        _refuse_below(0.0, "weight_decay", weight_decay)
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def _update(self, group: dict[str, Any]) -> None:
        for param, grad in self._gradients(group):
            state = self.state[param]
            if not state:
                state.update(self._initial_state(param, group))
            state["step"] += 1
            counting(param, state, "step")
            kind = (id(group), key_of(state["step"]))
            eps = dtypes.finfo(param.dtype).eps if group["eps"][0] is None else group["eps"][0]

            def share(ahead: int, state: dict[str, Any] = state) -> Any:
                return (state["step"] + ahead) ** group["beta2_decay"]

            def rate(ahead: int, state: dict[str, Any] = state) -> Any:
                return smaller(rate_of(group), (state["step"] + ahead) ** -0.5)

            root = param.numel() ** 0.5
            size = ops.clamp(param.norm(2) / root, min=group["eps"][1]).mul_(varying(param, ("rate", kind), rate))
            if group["weight_decay"] != 0:
                kept = varying(param, ("kept", kind), lambda ahead: 1 - rate_of(group) * group["weight_decay"])
                param.mul_(kept)
            squares = _squares(state, grad, varying(param, ("share", kind), share), eps)
            update = squares.clamp_(min=eps * eps).rsqrt_().mul_(grad)
            excess = ops.clamp(update.norm(2) / (root * group["d"]), min=1.0)
            param.sub_(update * (size / excess))

    def _initial_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        like = param.detach()
        if param.ndim <= 1:
            return {"step": 0, "variance": zeros_like(like)}
        return {
            "step": 0,
            "row_var": zeros_like(like.narrow(-1, 0, 1).contiguous()),
            "col_var": zeros_like(like.narrow(-2, 0, 1).contiguous()),
        }


def _squares(state: dict[str, Any], grad: Tensor, share: float, eps: float) -> Any:
    """The running mean of the gradient's squares; of a matrix, the product of those of its rows and columns."""
    square = grad * grad
    if grad.ndim <= 1:
        return state["variance"].lerp_(square, share).clone()
    rows = state["row_var"].lerp_(square.mean(-1, keepdim=True), share)
    columns = state["col_var"].lerp_(square.mean(-2, keepdim=True), share)
    return (rows @ columns).div_(rows.mean(-2, keepdim=True).clamp_(min=eps))


class Muon(Optimizer):
    """Momentum whose steps are made orthogonal matrices, nearly, by Newton-Schulz iterations in bfloat16.

    For matrices only: ValueError for another parameter, and for options out of range. `adjust_lr_fn`: "original" scales
    the rate by the root of rows over columns, if above 1; "match_rms_adamw" by 0.2 times the root of the greater size.
    Like torch.optim.Muon (Jordan et al., 2024).
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        refuse_rates(lr)
        _refuse_below(0.0, "Learning rate", lr)
        _refuse_below(0.0, "momentum", momentum)
        _refuse_below(0.0, "weight decay", weight_decay)
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)
        for param in self._params():
            if param.ndim != 2:
                raise ValueError(
                    f"Muon only supports 2D parameters whereas we found a parameter with size: {param.size()}"
                )

    def _initial_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {"momentum_buffer": zeros_like(param.detach())}

    def _update(self, group: dict[str, Any]) -> None:
        momentum, key = group["momentum"], id(group)
        for param, grad in self._gradients({"maximize": False, **group}):
            state = self.state[param]
            if not state:
                state.update(self._initial_state(param, group))
            mean = state["momentum_buffer"].lerp_(grad, 1 - momentum)
            update = _orthogonal(ops.lerp(grad, mean, momentum) if group["nesterov"] else mean, group)
            scale = _scale(group["adjust_lr_fn"], *param.shape)

            def size(ahead: int, scale: float = scale) -> Any:
                return -rate_of(group) * scale

            param.mul_(varying(param, ("kept", key), lambda ahead: 1 - rate_of(group) * group["weight_decay"]))
            param.add_(update.to(param.dtype), alpha=varying(param, ("size", key, scale), size))


def _scale(adjust: str | None, rows: int, columns: int) -> float:
    if adjust == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))


def _orthogonal(matrix: Tensor, group: dict[str, Any]) -> Any:
    """U Vᴴ of a matrix U S Vᴴ, nearly, by an odd polynomial of degree 5 that moves singular values towards 1."""
    if group["ns_steps"] >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(group["ns_coefficients"]) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = group["ns_coefficients"]
    is_tall = matrix.shape[0] > matrix.shape[1]
    made = matrix.bfloat16()
    made = made.T if is_tall else made
    made = made / made.norm().clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = made @ made.T
        made = ops.addmm(made, ops.addmm(gram, gram, gram, beta=b, alpha=c), made, beta=a)
    return made.T if is_tall else made


def _refuse_below(least: float, name: str, value: float) -> None:
    if not value >= least:
        raise ValueError(f"{name} should be >= {least:g} but is: {value}")

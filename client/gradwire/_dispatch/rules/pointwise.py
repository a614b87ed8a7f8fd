"""Rules of ops on single elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gradwire._dispatch.calls import aten
from gradwire._proxy.handle import Handle

Tensor = Any
_SELU = (1.6732632423543772, 1.0507009873554805)


def _rdiv(call: Any, input: Any, other: Any, rounding_mode: str | None = None) -> Any:
    """A quotient. A number over a tensor is its reciprocal times the number."""
    end = "_" if call.op.endswith("_") else ""
    if rounding_mode is not None:
        return aten(f"div{end}.Tensor_mode", input, other, rounding_mode=rounding_mode, compute=call.compute)
    if isinstance(input, Handle):
        return aten(f"div{end}.Tensor", input, other, compute=call.compute)
    return aten("mul.Tensor", aten("reciprocal.default", other), input)


def _commuted(call: Any, input: Any, other: Any, alpha: Any = 1) -> Any:
    """A sum or product, whose tensor comes first."""
    if isinstance(input, Handle):
        return NotImplemented
    if alpha != 1:
        return NotImplemented
    return aten(f"{call.op}.Tensor", other, input, compute=call.compute)


def _rsub(call: Any, input: Tensor, other: Any, alpha: Any = 1) -> Any:
    form = "Tensor" if isinstance(other, Handle) else "Scalar"
    extra = (alpha,) if form == "Scalar" else ()
    named = {} if form == "Scalar" else {"alpha": alpha}
    return aten(f"rsub.{form}", input, other, *extra, **named, compute=call.compute)


def _sub(call: Any, input: Any, other: Any, alpha: Any = 1) -> Any:
    if isinstance(input, Handle) or alpha != 1:
        return NotImplemented
    return aten("rsub.Scalar", other, input, compute=call.compute)


def _square(call: Any, input: Tensor) -> Any:
    return aten(f"pow{'_' if call.op.endswith('_') else ''}.{_power(call)}", input, 2, compute=call.compute)


def _power(call: Any) -> str:
    return "Scalar" if call.op.endswith("_") else "Tensor_Scalar"


def _relu6(call: Any, input: Tensor) -> Any:
    end = "_" if call.op.endswith("_") else ""
    return aten(f"hardtanh{end}.default", input, 0, 6, compute=call.compute)


def _hardtanh(call: Any, input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """The dispatcher shows bounds of -1 and 1, too."""
    return call.shown(f"{call.op}.default", (input, min_val, max_val), {})


def _elu(call: Any, input: Tensor, alpha: float = 1.0) -> Any:
    return call.shown(f"{call.op}.default", (input, alpha), {})


def _selu(call: Any, input: Tensor) -> Any:
    end = "_" if call.op.endswith("_") else ""
    return aten(f"elu{end}.default", input, *_SELU, compute=call.compute)


def _logsigmoid(call: Any, input: Tensor) -> Any:
    """One of the two results is only for PyTorch's derivative."""
    return aten("log_sigmoid_forward.default", input, compute=lambda: (call.compute(), input.new_empty((0,))))[0]


def _softsign(call: Any, input: Tensor) -> Any:
    return aten("div.Tensor", input, aten("add.Tensor", aten("abs.default", input), 1))


def _isfinite(call: Any, input: Tensor) -> Any:
    if not input.is_floating_point():
        return NotImplemented
    kept = aten("ne.Scalar", aten("abs.default", input), math.inf)
    return aten("mul.Tensor", aten("eq.Tensor", input, input), kept)


def _where(call: Any, condition: Tensor, input: Any = None, other: Any = None) -> Any:
    if input is None or other is None:
        return NotImplemented

    def lifted(value: Any, beside: Any) -> Any:
        if isinstance(value, Handle):
            return value
        if not isinstance(beside, Handle):
            return None
        options = {"dtype": beside.dtype, "layout": beside.layout, "device": beside.device}  # type: ignore[attr-defined]
        return aten("scalar_tensor.default", value, **options)

    is_kept = all(
        isinstance(value, Handle) or (isinstance(beside, Handle) and _fits(value, beside))
        for value, beside in ((input, other), (other, input))
    )
    if not is_kept:
        return NotImplemented
    if isinstance(input, Handle) and isinstance(other, Handle):
        return aten("where.self", condition, input, other, compute=call.compute)
    return aten("where.self", condition, lifted(input, other), lifted(other, input))


def _fits(value: Any, tensor: Any) -> bool:
    """Whether a number changes no tensor's dtype."""
    return isinstance(value, (bool, int)) or (isinstance(value, float) and tensor.is_floating_point())


def _isclose(
    call: Any, input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Any:
    if equal_nan or not input.is_floating_point() or rtol == atol == 0:
        return NotImplemented
    close = aten("eq.Tensor", input, other)
    scaled = aten("abs.default", aten("mul.Scalar", other, rtol))
    allowed = aten("add.Scalar", scaled, atol)
    error = aten("abs.default", aten("sub.Tensor", input, other))
    finite = _isfinite(call, error)
    return aten("bitwise_or_.Tensor", close, aten("bitwise_and_.Tensor", finite, aten("le.Tensor", error, allowed)))


def _clamp(call: Any, input: Tensor, min: Any = None, max: Any = None) -> Any:
    form = "Tensor" if isinstance(min, Handle) or isinstance(max, Handle) else "default"
    return aten(f"{call.op}.{form}", input, min, max, compute=call.compute)


def _dropout(call: Any, input: Tensor, p: float = 0.5, training: bool = True) -> Any:
    if not training or p == 0 or not input.numel():
        return input
    if p == 1:
        return NotImplemented
    kept = aten("empty_like.default", input)
    aten("bernoulli_.float", kept, 1 - p)
    return aten("mul.Tensor", input, aten("div_.Scalar", kept, 1 - p))


RULES: dict[str, Callable[..., Any]] = {
    "add": _commuted,
    "clamp": _clamp,
    "clamp_": _clamp,
    "div": _rdiv,
    "div_": _rdiv,
    "dropout": _dropout,
    "elu": _elu,
    "elu_": _elu,
    "hardtanh": _hardtanh,
    "hardtanh_": _hardtanh,
    "isclose": _isclose,
    "isfinite": _isfinite,
    "logsigmoid": _logsigmoid,
    "mul": _commuted,
    "relu6": _relu6,
    "relu6_": _relu6,
    "rsub": _rsub,
    "selu": _selu,
    "selu_": _selu,
    "softsign": _softsign,
    "square": _square,
    "square_": _square,
    "sub": _sub,
    "where": _where,
}

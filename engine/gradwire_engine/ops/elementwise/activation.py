"""Activations of neural networks, elementwise (softmax has its own module).

Where it costs nothing, gradient formulas use ops, so derivatives of any order follow. Piecewise linear functions
multiply by a slope from an op whose derivative is zero. Formulas clip the argument of exp to the side that uses it.
Otherwise an inf in the unused branch would become nan in the next derivative.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType, Number, cast_number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.basic import neg
from gradwire_engine.ops.base.blocked import BLOCK, elementwise, is_plain
from gradwire_engine.ops.base.checks import needs_order
from gradwire_engine.ops.base.fill import where, zeros
from gradwire_engine.ops.base.loops import LEAST_OF_CHEAP, Loops, each, elementwise_loop, with_loop
from gradwire_engine.ops.base.precision import formula_through_float32, special, through_float32
from gradwire_engine.ops.elementwise.unary import abs as absolute
from gradwire_engine.ops.elementwise.unary import exp, sigmoid, tanh

Ints = tuple[int, ...]
_SAME_SIZE_INT = {2: np.int16, 4: np.int32, 8: np.int64}


def _check_float(name: str, input: Array, complex_too: bool = False) -> None:
    """Refuse dtypes without a kernel in PyTorch. Raises EngineError: NOT_SUPPORTED."""
    kind = dtypes.category(input.dtype)
    if kind < dtypes.FLOAT or (kind == dtypes.COMPLEX and not complex_too):
        raise EngineError(
            Reason.NOT_SUPPORTED, f"\"{name}\" not implemented for '{dtypes.TITLES[input.dtype]}'", op=name
        )


@functools.cache
def _zeros(dtype: DType) -> Array:
    return np.zeros(BLOCK, dtype)


def _positive_part(xp: Any, x: Array) -> Array:
    """max(x, 0); nan for nan. NumPy's maximum of two arrays is several times as fast as of an array and a number."""
    if xp is not np or x.ndim == 0 or not x.flags.c_contiguous:
        return xp.maximum(x, x.dtype.type(0))
    zeros = _zeros(x.dtype)
    if x.size <= BLOCK:
        return np.maximum(x.reshape(-1), zeros[: x.size]).reshape(x.shape)
    result = np.empty_like(x)
    flat, target = x.reshape(-1), result.reshape(-1)
    whole = x.size - x.size % BLOCK
    np.maximum(flat[:whole].reshape(-1, BLOCK), zeros, out=target[:whole].reshape(-1, BLOCK))
    np.maximum(flat[whole:], zeros[: x.size - whole], out=target[whole:])
    return result


def keep(xp: Any, values: Array, mask: Array) -> Array:
    """values where the mask is True, else 0, also for inf and nan. On the CPU it multiplies bits, faster than where."""
    if xp is not np or values.dtype.itemsize not in _SAME_SIZE_INT or values.ndim == 0:
        return xp.where(mask, values, values.dtype.type(0))
    bits = values.view(_SAME_SIZE_INT[values.dtype.itemsize])
    return (bits * mask).view(values.dtype)


@op(name="_masked", cost=4)
def masked(xp: Any, grad: Array, mask: Array) -> Array:
    """grad where the mask is True, else 0."""
    return keep(xp, grad, mask)


masked.grad(grad=lambda g, mask: masked(g, mask)).tangent("holomorphic")


@op(name="_masked_by", cost=4)
def _masked_by(xp: Any, grad: Array, input: Array, mask: Array) -> Array:
    """grad where the mask is True, else 0. The mask depends on `input`, so the derivative by `input` is 0, not None."""
    return keep(xp, grad, mask)


_masked_by.grad(grad=lambda g, input, mask: _masked_by(g, input, mask), input=lambda g: zeros(g)).tangent("pointwise")


@op(in_place=True, cost=4)
@with_loop(elementwise_loop("relu"), least=LEAST_OF_CHEAP)
def relu(xp: Any, input: Array) -> Array:
    """max(input, 0) (torch.nn.functional.relu). The derivative at 0 is 0."""
    if input.dtype == dtypes.bool_:
        raise EngineError(Reason.RUNTIME, "Boolean inputs not supported for relu")
    needs_order("clamp_min_scalar_cpu", input.dtype)
    return _positive_part(xp, input)


@op(name="_threshold_backward", cost=4)
@with_loop(elementwise_loop("relu_backward"), least=LEAST_OF_CHEAP)
def _threshold_backward(xp: Any, grad: Array, result: Array) -> Array:
    """grad where relu's result is not 0; the result may be nan."""
    return keep(xp, grad, result != 0)


relu.by_loops("relu", "relu_backward")
_threshold_backward.by_loops("relu_backward")
relu.grad(input=lambda g, out: _threshold_backward(g, out)).tangent("holomorphic")
_threshold_backward.grad(grad=lambda g, result: _threshold_backward(g, result), result=lambda g: zeros(g))
_threshold_backward.tangent("pointwise")


@op(in_place=True, cost=4)
def threshold(xp: Any, input: Array, threshold: Number, value: Number) -> Array:
    """input where it exceeds the threshold, `value` elsewhere (torch.nn.functional.threshold)."""
    needs_order("threshold_cpu", input.dtype)
    return xp.where(input <= threshold, input.dtype.type(value), input)


threshold.unsupported("b", "threshold_cpu")
threshold.casts_numbers("value")
threshold.grad(input=lambda g, input, threshold: _masked_by(g, input, ~(input <= threshold))).tangent("holomorphic")


@op(in_place=True, cost=4)
def hardtanh(xp: Any, input: Array, min_val: float = -1.0, max_val: float = 1.0) -> Array:
    """Clamp the input to [min_val, max_val] (torch.nn.functional.hardtanh). The derivative at the bounds is 0."""
    needs_order("clamp", input.dtype)
    if input.dtype == dtypes.bool_:
        raise EngineError(Reason.RUNTIME, "Bool inputs not supported for hardtanh")
    if min_val > max_val:
        raise EngineError(Reason.ARGUMENT_VALUE, "min_val cannot be greater than max_val")
    if input.dtype == dtypes.uint8 and min(min_val, max_val) < 0:
        raise EngineError(Reason.RUNTIME, "cannot do hardtanh on an unsigned type with negative limits")
    return _clipped(xp, input, cast_number(min_val, input.dtype), cast_number(max_val, input.dtype))


@through_float32
def _clipped(xp: Any, input: Array, low: Number, high: Number) -> Array:
    return xp.clip(input, input.dtype.type(low), input.dtype.type(high))


hardtanh.works_in(widens=True)
hardtanh.grad(
    input=lambda g, input, min_val, max_val: _masked_by(g, input, ~((input <= min_val) | (input >= max_val)))
).tangent("holomorphic")


@op(in_place=True, node="HardtanhBackward0", cost=4)
@through_float32
def relu6(xp: Any, input: Array) -> Array:
    """min(max(input, 0), 6) (torch.nn.functional.relu6)."""
    needs_order("clamp", input.dtype)
    if input.dtype == dtypes.bool_:
        raise EngineError(Reason.RUNTIME, "Bool inputs not supported for hardtanh")
    return xp.clip(input, input.dtype.type(0), input.dtype.type(6))


relu6.grad(input=lambda g, input: _masked_by(g, input, ~((input <= 0) | (input >= 6)))).tangent("holomorphic")


@op(name="_slope", cost=4)
def _slope(xp: Any, input: Array, slope: float) -> Array:
    """1 where the input is positive, `slope` elsewhere; its derivative is 0."""
    if xp is np and input.ndim:
        factor = (input > 0).astype(input.dtype)
        factor *= input.dtype.type(1 - slope)
        factor += input.dtype.type(slope)
        return factor
    return xp.where(input > 0, input.dtype.type(1), input.dtype.type(slope))


_slope.grad(input=lambda g: zeros(g)).tangent("pointwise")


@op(in_place=True, cost=4)
def leaky_relu(xp: Any, input: Array, negative_slope: float = 0.01) -> Array:
    """input where positive, negative_slope * input elsewhere (torch.nn.functional.leaky_relu)."""
    _check_float("leaky_relu_cpu", input)
    scaled = input * input.dtype.type(negative_slope)
    if 0 < negative_slope <= 1:
        return xp.maximum(input, scaled)
    return xp.where(input > 0, input, scaled)


leaky_relu.works_in(forward=1)
leaky_relu.grad(input=lambda g, input, negative_slope: g * _slope(input, negative_slope)).tangent("holomorphic")


_HUGE = 1e30  # factors from which 0 times a factor may be nan, since a double factor may be infinite in float32


def _elu(xp: Any, input: Array, alpha: float, scale: float, input_scale: float) -> Array:
    _check_float("elu_cpu", input)
    if is_plain(input) and 0 < input_scale < _HUGE and abs(alpha * scale) < _HUGE:
        return elementwise(functools.partial(_elu_block, alpha * scale, scale, input_scale), 1, input)
    negative = xp.expm1(xp.minimum(input, 0) * input_scale) * (alpha * scale)
    return xp.where(input < 0, negative, input * scale if scale != 1 else input)


def _elu_block(factor: float, scale: float, input_scale: float, out: Array, x: Array, t: Array) -> None:
    """Add both branches, each 0 in the other's range. exp(y) - 1 = 2 h / (1 - h), h = tanh(y / 2), exact near 0."""
    zero = _zeros(x.dtype)[: x.size]
    np.minimum(x, zero, out=t)
    np.multiply(t, x.dtype.type(input_scale / 2), out=t)
    np.tanh(t, out=t)
    np.subtract(x.dtype.type(1), t, out=out)
    np.divide(t, out, out=t)
    np.multiply(t, x.dtype.type(2 * factor), out=t)
    np.maximum(x, zero, out=out)
    if scale != 1:
        np.multiply(out, x.dtype.type(scale), out=out)
    np.add(out, t, out=out)


def _elu_slope_block(slope: float, scale: float, input_scale: float, out: Array, g: Array, x: Array, t: Array) -> None:
    """g * slope * exp(input_scale * x) where x <= 0, else g * scale, also for nan."""
    zero = _zeros(x.dtype)[: x.size]
    np.fmin(x, zero, out=t)
    np.multiply(t, x.dtype.type(input_scale), out=t)
    np.exp(t, out=t)
    np.multiply(t, x.dtype.type(slope), out=t)
    if slope != scale:
        np.multiply(~(x <= zero), x.dtype.type(scale - slope), out=out)
        np.add(t, out, out=t)
    np.multiply(g, t, out=out)


def _elu_input(g: Any, input: Any, alpha: float, scale: float, input_scale: float) -> Any:
    # A larger slope would round away the other branch's, which is added to it.
    if is_plain(g, input) and abs(alpha * scale * input_scale) <= 2 and abs(input_scale) < _HUGE:
        kernel = functools.partial(_elu_slope_block, alpha * scale * input_scale, scale, input_scale)
        return elementwise(kernel, 1, g, input)
    return g * _elu_slope(input, alpha, scale, input_scale)


def _elu_slope(input: Any, alpha: float, scale: float, input_scale: float) -> Any:
    below = where(input < 0, input, 0)
    return where(input <= 0, exp(below * input_scale) * (alpha * scale * input_scale), scale)


@op(in_place=True, cost=12)
@through_float32
def elu(xp: Any, input: Array, alpha: float = 1.0) -> Array:
    """input where it is positive, else alpha * (exp(input) - 1) (torch.nn.functional.elu)."""
    return _elu(xp, input, alpha, 1.0, 1.0)


elu.works_in(widens=True)


@op(in_place=True, cost=12)
@through_float32
def celu(xp: Any, input: Array, alpha: float = 1.0) -> Array:
    """input where it is positive, else alpha * (exp(input / alpha) - 1) (torch.nn.functional.celu)."""
    if alpha == 0:
        raise EngineError(Reason.RUNTIME, "ZeroDivisionError: alpha cannot be 0 for CELU")
    return _elu(xp, input, alpha, 1.0, 1.0 / alpha)


celu.works_in(widens=True)


_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


@op(in_place=True, node="EluBackward0", cost=12)
@through_float32
def selu(xp: Any, input: Array) -> Array:
    """elu scaled for self-normalizing networks (torch.nn.functional.selu)."""
    return _elu(xp, input, _SELU_ALPHA, _SELU_SCALE, 1.0)


elu.grad(input=lambda g, input, alpha: _elu_input(g, input, alpha, 1.0, 1.0)).tangent("holomorphic")
celu.grad(input=lambda g, input, alpha: _elu_input(g, input, alpha, 1.0, 1.0 / alpha)).tangent("holomorphic")
selu.grad(input=lambda g, input: _elu_input(g, input, _SELU_ALPHA, _SELU_SCALE, 1.0)).tangent("holomorphic")

# Normal CDF: 1 / 2 + tanh(x P(x**2)) / 2, P fitted for the least error over [-6.2, 6.2]: 3e-8, below float32's
# precision. Beyond, the last coefficient drives tanh to 1. NumPy has no faster function than tanh.
_LOGIT = (0.797884941, 0.0363330844, -3.25947439e-05, -5.53063171e-05, 3.96477321e-06, -1.32266283e-07, 1.75627757e-09)
_DENSITY_SCALE = 1 / math.sqrt(2 * math.pi)


def _constant(value: float) -> Array:
    """A number as a float32 array, which ufuncs process fastest."""
    return np.array(value, np.float32)


_LOGIT32 = tuple(map(_constant, _LOGIT))
_HALF, _ONE, _MINUS_HALF, _DOUBLE_DENSITY = map(_constant, (0.5, 1, -0.5, 2 * _DENSITY_SCALE))


def _doubled_cdf(x: Array, out: Array, t: Array) -> None:
    """Twice the normal CDF of float32 values, in `out`; t receives their squares."""
    np.multiply(x, x, out=t)
    np.multiply(t, _LOGIT32[-1], out=out)
    for coefficient in _LOGIT32[-2:0:-1]:
        np.add(out, coefficient, out=out)
        np.multiply(out, t, out=out)
    np.add(out, _LOGIT32[0], out=out)
    np.multiply(out, x, out=out)
    np.tanh(out, out=out)
    np.add(out, _ONE, out=out)


def _normal_cdf_block(out: Array, x: Array, t: Array) -> None:
    _doubled_cdf(x, out, t)
    np.multiply(out, _HALF, out=out)


def _gelu_block(out: Array, x: Array, t: Array) -> None:
    _doubled_cdf(x, out, t)
    np.multiply(x, _HALF, out=t)
    np.multiply(out, t, out=out)


def _gelu_slope_block(out: Array, g: Array, x: Array, t: Array) -> None:
    """g * (cdf(x) + x * density(x))."""
    _doubled_cdf(x, out, t)
    np.multiply(t, _MINUS_HALF, out=t)
    np.exp(t, out=t)
    np.multiply(t, _DOUBLE_DENSITY, out=t)
    np.multiply(t, x, out=t)
    np.add(out, t, out=out)
    np.multiply(g, _HALF, out=t)
    np.multiply(out, t, out=out)


@op(name="_normal_cdf", cost=12)
@through_float32
def _normal_cdf(xp: Any, input: Array) -> Array:
    """Normal CDF."""
    if is_plain(input) and input.dtype == dtypes.float32:
        return elementwise(_normal_cdf_block, 1, input)
    result = special(xp).erfc(input * input.dtype.type(-math.sqrt(0.5)))
    return result * input.dtype.type(0.5)


def _normal_density(input: Any) -> Any:
    return exp(input * input * -0.5) * _DENSITY_SCALE


_normal_cdf.grad(input=lambda g, input: g * _normal_density(input)).tangent("pointwise")

_MOST_SOFT = 80.0  # a threshold of softplus, below which exp does not overflow
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715


def _gelu_tanh_block(out: Array, x: Array, t: Array) -> None:
    np.multiply(x, x, out=t)
    np.multiply(t, x.dtype.type(_TANH_CUBE * _TANH_SCALE), out=t)
    np.add(t, x.dtype.type(_TANH_SCALE), out=t)
    np.multiply(t, x, out=t)
    np.tanh(t, out=t)
    np.add(t, x.dtype.type(1), out=t)
    np.multiply(x, x.dtype.type(0.5), out=out)
    np.multiply(out, t, out=out)


_GELU_LOOPS = {"none": "gelu", "tanh": "gelu_tanh"}


def _gelu_loop(loops: Loops, xp: Any, input: Array, *, approximate: str = "none") -> Array | None:
    name = _GELU_LOOPS.get(approximate)
    return None if name is None else each(loops, name, input)


@op(in_place=False, cost=12)
@through_float32
@with_loop(_gelu_loop)
def gelu(xp: Any, input: Array, *, approximate: Literal["none", "tanh"] = "none") -> Array:
    """input * normal CDF of the input, or its "tanh" approximation (torch.nn.functional.gelu)."""
    _check_float("GeluKernelImpl", input)
    if approximate == "none":
        if is_plain(input) and input.dtype == dtypes.float32:
            return elementwise(_gelu_block, 1, input)
        return input * _normal_cdf(input)
    if approximate != "tanh":
        raise EngineError(Reason.RUNTIME, "approximate argument must be either none or tanh.")
    if is_plain(input):
        return elementwise(_gelu_tanh_block, 1, input)
    inner = input * (1 + input * input * _TANH_CUBE) * _TANH_SCALE
    return (xp.tanh(inner) + 1) * 0.5 * input


def _gelu_slope(input: Any, approximate: str) -> Any:
    if approximate == "none":
        return _normal_cdf(input) + input * _normal_density(input)
    squared = input * input
    tanh_inner = tanh(input * (squared * _TANH_CUBE + 1) * _TANH_SCALE)
    inner_slope = (squared * (3 * _TANH_CUBE) + 1) * _TANH_SCALE
    return (tanh_inner + 1) * 0.5 + input * 0.5 * (1 - tanh_inner * tanh_inner) * inner_slope


def _gelu_input_loop(loops: Loops, g: Any, input: Any, approximate: str) -> Any:
    return each(loops, _GELU_LOOPS[approximate] + "_backward", g, input)


@formula_through_float32
@with_loop(_gelu_input_loop, 0)
def _gelu_input(g: Any, input: Any, approximate: str) -> Any:
    if approximate == "none" and input.dtype == dtypes.float32 and is_plain(g, input):
        return elementwise(_gelu_slope_block, 1, g, input)
    return g * _gelu_slope(input, approximate)


gelu.by_loops(*_GELU_LOOPS.values(), *(f"{name}_backward" for name in _GELU_LOOPS.values()))
gelu.grad(input=_gelu_input).tangent("holomorphic")


@op(in_place=True, complex_grad=False, cost=8)
@through_float32
@with_loop(elementwise_loop("silu"))
def silu(xp: Any, input: Array) -> Array:
    """input * sigmoid(input) (torch.nn.functional.silu)."""
    _check_float("silu_cpu", input, complex_too=True)
    return input * sigmoid(input)


def _silu_slope(input: Any) -> Any:
    gate = sigmoid(input)
    return gate * (input * (1 - gate) + 1)


@with_loop(lambda loops, g, input: each(loops, "silu_backward", g, input), 0)
def _silu_input(g: Any, input: Any) -> Any:
    return g * _silu_slope(input)


silu.by_loops("silu", "silu_backward", "sigmoid")
silu.grad(input=_silu_input).tangent("holomorphic")


def _softplus_loop(loops: Loops, xp: Any, input: Array, beta: float = 1.0, threshold: float = 20.0) -> Array | None:
    return each(loops, "softplus", input, numbers=(beta, threshold)) if beta > 0 and threshold <= _MOST_SOFT else None


@op(cost=12)
@through_float32
@with_loop(_softplus_loop)
def softplus(xp: Any, input: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """log(1 + exp(beta * input)) / beta; input itself where beta * input > threshold (torch.nn.functional.softplus)."""
    _check_float("softplus_cpu", input)
    scaled = input * beta
    return xp.where(scaled > threshold, input, xp.log1p(xp.exp(xp.minimum(scaled, threshold))) / beta)


softplus.works_in(forward=0.7)
softplus.by_loops("softplus", "softplus_backward", "sigmoid")


def _softplus_input_loop(loops: Loops, g: Any, input: Any, beta: float, threshold: float) -> Any:
    return each(loops, "softplus_backward", g, input, numbers=(beta, threshold))


@with_loop(_softplus_input_loop, 0)
def _softplus_input(g: Any, input: Any, beta: float, threshold: float) -> Any:
    return where(input * beta > threshold, g, g * sigmoid(input * beta))


softplus.grad(input=_softplus_input).tangent("holomorphic")


@op(in_place=True, cost=12)
@through_float32
def mish(xp: Any, input: Array) -> Array:
    """input * tanh(softplus(input)) (torch.nn.functional.mish)."""
    _check_float("mish_cpu", input)
    return input * xp.tanh(softplus(input))


mish.works_in(forward=0.7, backward=3.1)


def _mish_slope(input: Any) -> Any:
    gate = tanh(softplus(input))
    return gate + input * sigmoid(input) * (1 - gate * gate)


mish.grad(input=lambda g, input: g * _mish_slope(input)).tangent("holomorphic")


@op(node="LogSigmoidBackward0", cost=12)
@through_float32
def logsigmoid(xp: Any, input: Array) -> Array:
    """log(sigmoid(input)), without overflow (torch.nn.functional.logsigmoid)."""
    _check_float("log_sigmoid_cpu", input)
    excess = xp.log1p(xp.exp(-xp.abs(input)))  # computed first: two arrays are live at once, not three
    return xp.minimum(input, 0) - excess


logsigmoid.grad(input=lambda g, input: g * sigmoid(neg(input))).tangent("holomorphic")


@op(in_place=True, cost=4)
@through_float32
def hardsigmoid(xp: Any, input: Array) -> Array:
    """input / 6 + 1 / 2, clamped to [0, 1] (torch.nn.functional.hardsigmoid)."""
    _check_float("hardsigmoid_cpu", input)
    return xp.clip(input + 3, 0, 6) / 6


hardsigmoid.works_in(forward=1, widens=True)
hardsigmoid.grad(input=lambda g, input: masked(g, (input > -3) & (input < 3)) / 6).tangent("holomorphic")


@op(in_place=True, cost=8)
@through_float32
def hardswish(xp: Any, input: Array) -> Array:
    """input * hardsigmoid(input) (torch.nn.functional.hardswish)."""
    _check_float("hardswish_cpu", input)
    return input * xp.clip(input + 3, 0, 6) / 6


hardswish.works_in(forward=1.2, widens=True)


def _hardswish_backward(g: Any, input: Any) -> Any:
    return where(input < 3, where(input <= -3, 0, g * (input / 3 + 0.5)), g)


hardswish.grad(input=lambda g, input: _hardswish_backward(g, input)).tangent("holomorphic")


@op(cost=4)
def hardshrink(xp: Any, input: Array, lambd: float = 0.5) -> Array:
    """0 within [-lambd, lambd], input elsewhere (torch.nn.functional.hardshrink)."""
    _check_float("hardshrink_cpu", input)
    return xp.where((input >= -lambd) & (input <= lambd), input.dtype.type(0), input)


def _shrink_backward(g: Any, input: Any, lambd: float) -> Any:
    return _masked_by(g, input, ~((input <= lambd) & (input >= -lambd)))


hardshrink.grad(input=lambda g, input, lambd: _shrink_backward(g, input, lambd)).tangent("holomorphic")


@op(cost=8)
def softshrink(xp: Any, input: Array, lambd: float = 0.5) -> Array:
    """Shift the input towards 0 by lambd; 0 within [-lambd, lambd] (torch.nn.functional.softshrink)."""
    _check_float("softshrink_cpu", input)
    if lambd < 0:
        raise EngineError(Reason.RUNTIME, f"lambda must be in range [0, inf), but found {lambd}")
    lower, upper = input.dtype.type(-lambd), input.dtype.type(lambd)
    shrunk = xp.where(input > upper, input - upper, xp.where(input < lower, input - lower, input.dtype.type(0)))
    return xp.where(xp.isnan(input), input, shrunk)


softshrink.works_in(forward=0.8)
softshrink.grad(input=lambda g, input, lambd: _shrink_backward(g, input, lambd)).tangent("holomorphic")


@composite
def softsign(input: Array) -> Any:
    """input / (1 + |input|) (torch.nn.functional.softsign)."""
    return input / (absolute(input) + 1)


@composite
def tanhshrink(input: Array) -> Any:
    """input - tanh(input) (torch.nn.functional.tanhshrink)."""
    return input - tanh(input)


@op(cost=8)
@through_float32
def glu(xp: Any, input: Array, dim: int = -1) -> Array:
    """First half of a dimension times the sigmoid of the second half (torch.nn.functional.glu).

    Raises EngineError: SHAPE if the dimension's size is odd.
    """
    _check_float("glu_cpu", input)
    first, second = _halves(xp, input, dim)
    return first * sigmoid(second)


def _halves(xp: Any, input: Array, dim: int) -> Any:
    if input.ndim == 0:
        raise EngineError(Reason.SHAPE, "glu does not support scalars because halving size must be even")
    if input.shape[dim] % 2:
        raise EngineError(
            Reason.SHAPE,
            f"Halving dimension must be even, but dimension {dim % input.ndim} is size {input.shape[dim]}",
        )
    return xp.split(input, 2, axis=dim)


@op(name="_half", view=True, cost=4)
def _half(xp: Any, input: Array, dim: int, second: bool) -> Array:
    return _halves(xp, input, dim)[second]


@op(name="_join_halves", cost=8)
def _join_halves(xp: Any, first: Array, second: Array, dim: int) -> Array:
    return xp.concatenate((first, second), axis=dim)


_join_halves.sized_by(lambda first, second, dim: first.nbytes + second.nbytes)


def _zero_half(g: Any, dim: int, second: bool) -> Any:
    nothing = g * 0
    return _join_halves(nothing, g, dim) if second else _join_halves(g, nothing, dim)


_half.grad(input=lambda g, dim, second: _zero_half(g, dim, second)).tangent("linear")
_join_halves.grad(first=lambda g, dim: _half(g, dim, False), second=lambda g, dim: _half(g, dim, True))
_join_halves.tangent("linear")


def _glu_backward(g: Any, input: Any, dim: int) -> Any:
    first, gate = _half(input, dim, False), sigmoid(_half(input, dim, True))
    gated = g * gate
    return _join_halves(gated, gated * first * (1 - gate), dim)


glu.grad(input=lambda g, input, dim: _glu_backward(g, input, dim))

"""Batching rules of elementwise ops: operands broadcast as one sample's would, with its dtypes."""

from __future__ import annotations

from typing import Any

from gradwire._base.errors import refuse
from gradwire._base.promotion import promote_types
from gradwire._tensor import ops
from gradwire._tensor.call import _call
from gradwire._tensor.tensor import Tensor
from gradwire.func._batched import Level, is_batched
from gradwire.func.rules.calls import OpCall, padded, refuse_in_place, rule


def _promoted(tensors: list[Any], level: Level) -> dict[int, Any]:
    """Replacements for tensors with a batch dimension that would change dtype promotion."""
    if len({each.dtype for each in tensors}) < 2:
        return {}
    points = [each for each in tensors if not each.dim()]
    dimensioned = [each for each in tensors if each.dim()]
    if not dimensioned:
        joint = points[0].dtype
        for each in points[1:]:
            joint = promote_types(joint, each.dtype)
        return {id(each): each.to(joint) for each in points}
    wide = dimensioned[0].dtype
    for each in dimensioned[1:]:
        wide = promote_types(wide, each.dtype)
    return {id(each): each.to(wide) for each in points if is_batched(each, level) and _kind(each.dtype) <= _kind(wide)}


def _kind(dtype: Any) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype.name == "bool" else 1


@rule(
    "abs detach acos acosh angle asin asinh atan atanh bitwise_not ceil celu clone conj contiguous cos cosh deg2rad "
    "digamma elu empty_like erf erfc erfinv exp exp2 expm1 fill floor frac full_like gelu hardshrink hardsigmoid "
    "hardswish hardtanh i0 imag isfinite isinf isnan isneginf isposinf isreal leaky_relu lgamma log log10 log1p "
    "log2 logical_not logit logsigmoid mish mvlgamma nan_to_num neg ones_like positive rad2deg real reciprocal "
    "relu relu6 resolve_conj round rsqrt selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink "
    "softsign special_entr special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_ndtr "
    "special_ndtri sqrt square tan tanh tanhshrink threshold to trunc zero zeros_like polygamma add addcdiv "
    "addcmul atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor clamp clamp_max "
    "clamp_min complex copy copysign div eq float_power floor_divide fmax fmin fmod gcd ge gt heaviside hypot "
    "igamma igammac isclose lcm ldexp le lerp logaddexp logaddexp2 logical_and logical_or logical_xor lt "
    "masked_fill maximum minimum mul ne nextafter polar pow remainder rsub special_xlog1py special_zeta sub "
    "type_as where xlogy "
)
def elementwise(call: OpCall) -> Any:
    """Operands as in broadcasting, with the batch before the dimensions added on the left."""
    refuse_in_place(call)
    level = call.level
    named = [*call.args, *call.kwargs.values()]
    tensors = [each for each in named if isinstance(each, Tensor)]
    ndim = max(each.dim() for each in tensors)
    if call.in_place and ndim > call.args[0].dim():
        raise refuse(
            f"output with shape {list(call.args[0].shape)} doesn't match the broadcast shape of {call.op}'s operands"
        )
    counted = tensors if call.base not in _FIRST_IS_CONDITION else tensors[1:]
    stand_in = {} if call.in_place or call.base in _ONE_DTYPE or len(counted) < 2 else _promoted(counted, level)

    def made(each: Any) -> Any:
        return padded(stand_in.get(id(each), each), ndim, level) if isinstance(each, Tensor) else each

    target = call.args[0]
    call.args = [made(each) for each in call.args]
    call.kwargs = {name: made(each) for name, each in call.kwargs.items()}
    answer = call.run()
    return target if call.in_place else call.wrap(answer)


_FIRST_IS_CONDITION = frozenset(["where"])


_ONE_DTYPE = frozenset(["masked_fill", "type_as", "copy"])


@rule("cosine_similarity")
def cosine_similarity(call: OpCall) -> Any:
    one, other, dim, eps = call.args[0], call.get("x2"), call.get("dim", 1), call.get("eps", 1e-8)
    one, other = ops.broadcast_tensors(one, other)
    lengths = [each.norm(2, dim, keepdim=True).clamp(min=eps) for each in (one, other)]
    return ((one / lengths[0]) * (other / lengths[1])).sum(dim)


@rule("prelu")
def prelu(call: OpCall) -> Any:
    tensor, weight = call.args[0], call.get("weight")
    if weight.numel() > 1 and tensor.dim() > 1:
        weight = weight.reshape((-1, *(1,) * (tensor.dim() - 2)))
    elif weight.numel() == 1:
        weight = weight.reshape(())
    return _call("where", (tensor > 0, tensor, tensor * weight))

"""Batching rules of layers that take a batch already: the samples go into it."""

from __future__ import annotations

import math
from typing import Any

from gradwire._base import dtypes
from gradwire._base.errors import refuse
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.func._batched import UnmappableError, is_batched, spread, value_at
from gradwire.func._pytree import tree_map
from gradwire.func.rules.calls import OpCall, padded, rule


@rule(
    "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d interpolate pixel_shuffle "
    "pixel_unshuffle"
)
def folded(call: OpCall) -> Any:
    tensor, level = call.args[0], call.level
    value = call.first()
    spatial = next((int(c) for c in call.base if c.isdigit()), None)
    unbatched = spatial is not None and tensor.dim() == spatial + 1
    if unbatched or call.base.startswith("pixel"):
        call.args[0] = value
        return call.wrap(call.run())
    call.args[0] = value.reshape((level.size * tensor.shape[0], *tensor.shape[1:]))
    return call.wrap(tree_map(lambda one: one.reshape((level.size, tensor.shape[0], *one.shape[1:])), call.run()))


@rule("conv1d conv2d conv3d")
def convolution(call: OpCall) -> Any:
    """Samples go into the batch; if each has separate weights, into groups of channels."""
    level, spatial = call.level, int(call.base[4])
    tensor, weight, bias = call.args[0], call.get("weight"), call.get("bias")
    if tensor.dim() == spatial + 1:
        call.args[0] = tensor.unsqueeze(0)
        return call.run().squeeze(0)
    call.set("bias", None)
    count = tensor.shape[0]
    if not is_batched(weight, level):
        value = call.first()
        call.args[0] = value.reshape((level.size * count, *tensor.shape[1:]))
        answer = call.run()
        made = call.wrap(answer.reshape((level.size, count, *answer.shape[1:])))
    else:
        value = spread(tensor, level).movedim(0, 1)
        call.args[0] = value.reshape((count, level.size * tensor.shape[1], *tensor.shape[2:]))
        call.set("weight", value_at(weight, level).reshape((level.size * weight.shape[0], *weight.shape[1:])))
        call.set("groups", level.size * call.get("groups", 1))
        answer = call.run()
        made = call.wrap(answer.reshape((count, level.size, weight.shape[0], *answer.shape[2:])).movedim(1, 0))
    return made if bias is None else made + bias.reshape((-1, *(1,) * spatial))


@rule("batch_norm")
def batch_normalization(call: OpCall) -> Any:
    """Samples go into the channels, which batch norm keeps apart."""
    level, tensor = call.level, call.args[0]
    channels = tensor.shape[1]
    statistics = [call.get("running_mean"), call.get("running_var")]
    training = call.get("training", False)
    if training and any(each is not None and not is_batched(each, level) for each in statistics):
        raise UnmappableError(
            "vmap: batch_norm would write each sample's statistics into a running_mean or running_var that all samples "
            "share. Take the running statistics out (torch.func.replace_all_batch_norm_modules_), or map over them."
        )
    flat: dict[str, Any] = {}
    for name in ("running_mean", "running_var", "weight", "bias"):
        held = call.get(name)
        if held is not None:
            flat[name] = spread(held, level).reshape(-1)
            if training and name.startswith("running"):
                flat[name] = flat[name].clone()
            call.set(name, flat[name])
    value = call.first().movedim(0, 1)
    call.args[0] = value.reshape((tensor.shape[0], level.size * channels, *tensor.shape[2:]))
    made = call.run().reshape((tensor.shape[0], level.size, *tensor.shape[1:])).movedim(1, 0)
    for name, held in zip(("running_mean", "running_var"), statistics, strict=True):
        if training and held is not None:
            value_at(held, level).copy_(flat[name].reshape((level.size, channels)))
    return call.wrap(made)


@rule("layer_norm rms_norm group_norm")
def normalization(call: OpCall) -> Any:
    tensor, weight, bias = call.args[0], call.get("weight"), call.get("bias") if "bias" in call.names else None
    call.set("weight", None)
    if "bias" in call.names:
        call.set("bias", None)
    if call.base == "group_norm":
        made = folded(call)
        shape = (-1, *(1,) * (tensor.dim() - 2))
        weight, bias = (None if one is None else one.reshape(shape) for one in (weight, bias))
    else:
        call.args[0] = call.first()
        made = call.wrap(call.run())
    made = made if weight is None else made * weight
    return made if bias is None else made + bias


_OPERANDS = ("query", "key", "value", "attn_mask")


@rule("scaled_dot_product_attention")
def attention(call: OpCall) -> Any:
    operands = [call.get(name) for name in _OPERANDS]
    if call.get("dropout_p", 0.0) and call.level.randomness == "same" and not call.get("enable_gqa", False):
        return _attention_with_one_mask(call, *operands)
    ndim = max(each.dim() for each in operands if each is not None)
    for name, each in zip(_OPERANDS, operands, strict=True):
        if each is not None:
            call.set(name, padded(each, ndim, call.level) if is_batched(each, call.level) else each)
    return call.wrap(call.run())


def _attention_with_one_mask(call: OpCall, query: Any, key: Any, value: Any, attn_mask: Any) -> Any:
    """Attention of samples whose dropout is the same: in single ops, of which dropout has a rule for it."""
    is_causal, scale = call.get("is_causal", False), call.get("scale")
    if is_causal and attn_mask is not None:
        raise refuse("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = ops.ones(scores.shape[-2:], dtype=dtypes.bool_, device=query.device).tril()
    if attn_mask is not None:
        attends = attn_mask.dtype is dtypes.bool_
        scores = scores.masked_fill(~attn_mask, -math.inf) if attends else scores + attn_mask
    weights = ops.softmax(scores, -1)
    if attn_mask is not None:  # a query that attends to nothing has zeros
        weights = weights.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)
    return ops.dropout(weights, call.get("dropout_p")) @ value


@rule("embedding")
def embedding(call: OpCall) -> Any:
    level, weight = call.level, call.get("weight")
    if call.get("max_norm") is not None:
        raise refuse("vmap: embedding(max_norm=…) changes its weight, which samples cannot do one by one")
    if not is_batched(weight, level):
        call.args[0] = call.first()
        return call.wrap(call.run())
    if call.get("padding_idx") is not None:
        raise refuse("vmap: embedding with a weight per sample takes no padding_idx")
    return weight[call.args[0]]


@rule("lstm_layer gru_layer rnn_layer")
def recurrent(call: OpCall) -> Any:
    """The op takes a layer for each sample, so all tensors get the batch in front."""
    for name in call.names:
        value = call.get(name)
        if isinstance(value, Tensor):
            call.set(name, spread(value, call.level))
    return call.wrap(call.run())

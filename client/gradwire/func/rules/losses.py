"""Batching rules of losses: each sample's own mean or sum, in terms of the other ops."""

from __future__ import annotations

from typing import Any

from gradwire._base.errors import refuse
from gradwire._tensor.call import _call
from gradwire.func._batched import BatchedTensor, is_batched, spread
from gradwire.func.rules.calls import OpCall, reduced, rule
from gradwire.func.rules.elementwise import elementwise


@rule(
    "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div "
    "soft_margin_loss poisson_nll_loss"
)
def elementwise_loss(call: OpCall) -> Any:
    reduction = call.get("reduction", "mean")
    batch = call.args[0].shape[0] if call.args[0].dim() else 1
    call.set("reduction", "none")
    for name in call.names[:2]:  # of one shape by these ops' own rules, so the batch is given to both
        call.set(name, BatchedTensor(spread(call.get(name), call.level), call.level))
    losses = elementwise(call)
    if reduction == "batchmean":
        return losses.sum() / batch
    return reduced(losses, reduction)


@rule("cross_entropy nll_loss")
def class_loss(call: OpCall) -> Any:
    """The samples' batches as one, then the mean of each sample by itself."""
    level, reduction = call.level, call.get("reduction", "mean")
    input, target, weight = call.args[0], call.get("target"), call.get("weight")
    if input.dim() == 1:
        call.args[0] = input.unsqueeze(0)
        call.set("target", target.unsqueeze(0))
        made = class_loss(call)
        return made.squeeze(0) if reduction == "none" else made
    if is_batched(weight, level):
        raise refuse(f"vmap: {call.op} takes no weight per sample")
    flat = [spread(each, level) for each in (input, target)]
    call.args[0] = flat[0].reshape((level.size * input.shape[0], *input.shape[1:]))
    call.set("target", flat[1].reshape((level.size * target.shape[0], *target.shape[1:])))
    call.set("reduction", "none")
    answer = call.run()
    losses = call.wrap(answer.reshape((level.size, input.shape[0], *answer.shape[1:])))
    if reduction != "mean":
        return reduced(losses, reduction)
    if target.is_floating_point():
        return losses.sum() / losses.numel()
    counted = target != call.get("ignore_index", -100)
    if weight is None:
        return losses.sum() / counted.sum()
    return losses.sum() / _call("where", (counted, weight[_call("where", (counted, target, 0))], 0.0)).sum()

"""Batching rules of what indexes: x[...], gather and scatter, index_select."""

from __future__ import annotations

import math
from typing import Any

from gradwire._base.errors import refuse
from gradwire._tensor import ops
from gradwire._tensor.call import _call
from gradwire._tensor.indexing import Index
from gradwire._tensor.tensor import Tensor
from gradwire.func._batched import Level, is_batched, spread, value_at
from gradwire.func.rules.calls import OpCall, padded, refuse_in_place, rule, shifted


def _taken(item: Any) -> int:
    """How many dimensions an index item stands for."""
    if item is None or isinstance(item, bool):
        return 0
    if isinstance(item, Tensor):
        return item.dim() if item.dtype.name == "bool" else 1
    return 1


def _numbers(level: Level, like: Tensor, ndim: int) -> Tensor:
    """The samples' numbers, as an index that broadcasts with others of so many dimensions behind the batch."""
    return ops.arange(level.size, device=like.device).reshape((level.size, *(1,) * ndim))


class _Plan:
    """An index of a sample as one of the value, and where the dimensions of tensor indices come out."""

    def __init__(self, tensor: Any, items: tuple[Any, ...], level: Level) -> None:
        self.level = level
        tensors = [each for each in items if isinstance(each, Tensor)]
        for each in tensors:
            if each.dtype.name == "bool" and is_batched(each, level):
                raise refuse(
                    "vmap: there is no batching rule for an index that is a different mask per sample: the number of "
                    "elements would vary. gradwire.where chooses between values."
                )
        self.per_sample = any(is_batched(each, level) for each in tensors)
        self.ndim = max((1 if each.dtype.name == "bool" else each.dim() for each in tensors), default=0)
        places = [place for place, each in enumerate(items) if isinstance(each, Tensor)]
        self.together = not places or places[-1] - places[0] == len(places) - 1
        self.before = 0
        if places and self.together:
            self.before = self._dims_before(tensor, items, places[0])
        self.has_tensors = bool(places)
        self.items = tuple(padded(each, self.ndim, level) if isinstance(each, Tensor) else each for each in items)

    def _dims_before(self, tensor: Any, items: tuple[Any, ...], first: int) -> int:
        """How many dimensions of the result come from the items before the first tensor."""
        count = 0
        for item in items[:first]:
            if item is Ellipsis:
                count += tensor.dim() - sum(_taken(each) for each in items if each is not Ellipsis)
            elif item is None or isinstance(item, (slice, bool)):
                count += 1
        return count


@rule("getitem")
def getitem(call: OpCall) -> Any:
    tensor, level = call.args[0], call.level
    plan = _Plan(tensor, call.args[1].items, level)
    if not plan.per_sample:
        answer = _call("getitem", (call.first(), Index((slice(None), *plan.items))))
        if plan.has_tensors and not plan.together:
            answer = answer.movedim(plan.ndim, 0)
        return call.wrap(answer)
    if not is_batched(tensor, level):
        answer = _call("getitem", (tensor, Index(plan.items)))
        return call.wrap(answer.movedim(plan.before, 0) if plan.together and plan.before else answer)
    numbers = _numbers(level, tensor, plan.ndim)
    answer = _call("getitem", (value_at(tensor, level), Index((numbers, *plan.items))))
    if plan.together and plan.before:
        block = tuple(range(1, 1 + plan.ndim))
        answer = answer.movedim(block, tuple(one + plan.before for one in block)) if block else answer
    return call.wrap(answer)


@rule("setitem")
def setitem(call: OpCall) -> Any:
    refuse_in_place(call)
    tensor, value, level = call.args[0], call.args[2], call.level
    plan = _Plan(tensor, call.args[1].items, level)
    if plan.has_tensors and (plan.per_sample or not plan.together):
        raise refuse("vmap: there is no batching rule for x[i] = value with an index per sample; use scatter")
    if is_batched(value, level):
        value = padded(value, tensor[call.args[1].items].dim(), level)
    _call(call.op, (value_at(tensor, level), Index((slice(None), *plan.items)), value))
    return tensor


@rule("gather take_along_dim")
def gather(call: OpCall) -> Any:
    name = "index" if call.base == "gather" else "indices"
    tensor, index, dim = call.args[0], call.get(name), call.get("dim")
    if dim is None:
        tensor, index, dim = tensor.reshape((-1,)), index.reshape((-1,)), 0
    dim = shifted(dim, tensor.dim())
    values = spread(tensor, call.level), spread(index, call.level)
    if not tensor.dim():
        return call.wrap(_call("gather", (values[0].unsqueeze(1), 1, values[1].reshape((call.level.size, -1)))))
    if call.base == "take_along_dim":
        return call.wrap(_call("take_along_dim", (*values, dim)))
    return call.wrap(_call("gather", (values[0], dim, values[1])))


@rule("scatter scatter_add scatter_reduce")
def scatter(call: OpCall) -> Any:
    refuse_in_place(call)
    target, level = call.args[0], call.level
    if not target.dim():
        raise refuse(f"vmap: there is no batching rule for {call.op} of samples without dimensions")
    call.args[0] = spread(target, level)
    call.set("dim", shifted(call.get("dim"), target.dim()))
    call.set("index", spread(call.get("index"), level))
    source = call.get("src")
    if isinstance(source, Tensor):
        call.set("src", spread(source, level))
    answer = call.run()
    return target if call.in_place else call.wrap(answer)


@rule("index_select")
def index_select(call: OpCall) -> Any:
    tensor, index = call.args[0], call.get("index")
    dim = shifted(call.get("dim"), tensor.dim()) - 1
    if not is_batched(index, call.level):
        return call.wrap(_call("index_select", (call.first(), dim + 1, index)))
    return tensor[(slice(None),) * dim + (index.reshape((math.prod(index.shape),)),)]


@rule("take")
def take(call: OpCall) -> Any:
    return call.args[0].reshape((-1,))[call.get("index")]


@rule("index_add")
def index_add(call: OpCall) -> Any:
    refuse_in_place(call)
    target, index, source = call.args[0], call.get("index"), call.get("source")
    if is_batched(index, call.level):
        raise refuse("vmap: there is no batching rule for index_add with an index per sample; use scatter_add")
    call.args[0] = spread(target, call.level)
    call.set("dim", shifted(call.get("dim"), target.dim()))
    call.set("source", spread(source, call.level))
    answer = call.run()
    return target if call.in_place else call.wrap(answer)

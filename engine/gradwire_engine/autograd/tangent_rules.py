"""Tangent rules: how the tangents of an op's results follow from those of its inputs.

An op declares its rule beside its formulas (`Declaration.tangent`). Rules apply ops to tensors, so what they compute is
recorded, and has tangents itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.op import Op
from gradwire_engine.op.saving import meta_of
from gradwire_engine.ops.base.basic import cast, conj, expand
from gradwire_engine.ops.base.fill import ones, zeros
from gradwire_engine.ops.index.gather import gather
from gradwire_engine.ops.reduce.reduce import sum as total
from gradwire_engine.ops.shape.shape import squeeze, unsqueeze

#: Tangents by the place of their input; for a list one per item, None where an item has none.
Given = dict[int, Any]


class Values:
    """What the names in an op's formulas stand for in one call."""

    def __init__(self, op: Op, args: Sequence[Any], outs: Sequence[Any]) -> None:
        self._op, self._args, self._outs = op, args, outs

    def of(self, name: str) -> Any:
        """The value of a formula's parameter of this name."""
        kind, place = self._op.getter(name)
        if kind == "output":
            return self._outs[place]
        if kind == "rest":
            place, described = place
            return [
                meta_of(item) if type(item) is Tensor and number in described else item
                for number, item in enumerate(self._args[place])
            ]
        value = self._args[place]
        if kind == "meta":
            return meta_of(value) if type(value) is Tensor else value
        if kind == "metas":
            return [meta_of(item) if type(item) is Tensor else item for item in value]
        return value


def by_rule(op: Op, args: tuple[Any, ...], given: Given, outs: tuple[Tensor, ...]) -> Any:
    """The results' tangents by the op's rule; None if it has none, or none for these dtypes."""
    rule = op.tangent_rule
    if rule is None:
        return None
    if isinstance(rule, str):
        return _DERIVED[rule](op, args, given, outs)
    values = Values(op, args, outs)
    return rule(
        *[given.get(op.positions[name[2:]]) if name.startswith("t_") else values.of(name) for name in _parameters(rule)]
    )


@cache
def _parameters(rule: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(rule).parameters)


def _linear(op: Op, args: tuple[Any, ...], given: Given, outs: tuple[Tensor, ...]) -> Any:
    """The op of the tangents; zeros stand for the differentiable inputs without one."""
    changed = list(args)
    for place in op.tensor_positions:
        if op.params[place].name in op.formulas:
            changed[place] = _or_zeros(args[place], given.get(place))
    return op.apply(tuple(changed))


def _or_zeros(value: Any, tangent: Any) -> Any:
    if type(value) is list:
        given = [None] * len(value) if tangent is None else tangent
        return [_or_zeros(item, each) for item, each in zip(value, given, strict=True)]
    if tangent is not None or value is None:
        return tangent
    return zeros(value) if type(value) is Tensor else type(value)(0)


def _multilinear(op: Op, args: tuple[Any, ...], given: Given, outs: tuple[Tensor, ...]) -> Any:
    """The sum of the op with one input after the other replaced by its tangent."""
    return _sum([op.apply((*args[:place], tangent, *args[place + 1 :])) for place, tangent in given.items()])


def _pointwise(op: Op, args: tuple[Any, ...], given: Given, outs: tuple[Tensor, ...]) -> Any:
    """The formulas of the tangents, since a diagonal Jacobian is its own transpose; not with complex numbers."""
    if any(type(each) is Tensor and each.dtype.kind == "c" for each in (outs[0], *args)):
        return None
    return _diagonal(op, args, given, outs)


def _holomorphic(op: Op, args: tuple[Any, ...], given: Given, outs: tuple[Tensor, ...]) -> Any:
    """As pointwise, also with complex numbers: their formulas multiply by the conjugate of the derivative."""
    if outs[0].dtype.kind != "c":
        return _pointwise(op, args, given, outs)
    return conj(_diagonal(op, args, {place: conj(tangent) for place, tangent in given.items()}, outs))


def _diagonal(op: Op, args: tuple[Any, ...], given: Given, outs: tuple[Tensor, ...]) -> Any:
    out = outs[0]
    values = Values(op, args, outs)
    parts = []
    for place, tangent in given.items():
        formula, names = op.formulas[op.params[place].name]
        if tangent.dtype != out.dtype:
            tangent = cast(tangent, out.dtype)
        if tangent.shape != out.shape:
            tangent = expand(tangent, out.shape)
        parts.append(formula(tangent, *[values.of(name) for name in names]))
    return _sum(parts)


def _symmetric(op: Op, args: tuple[Any, ...], given: Given, outs: tuple[Tensor, ...]) -> Any:
    """The formula of the tangent, since the Jacobian is its own transpose; not with complex numbers or casts."""
    ((place, tangent),) = given.items()
    if outs[0].dtype.kind == "c" or args[place].dtype != outs[0].dtype:
        return None
    formula, names = op.formulas[op.params[place].name]
    values = Values(op, args, outs)
    return formula(tangent, *[values.of(name) for name in names])


def _selection(op: Op, args: tuple[Any, ...], given: Given, outs: tuple[Tensor, ...]) -> Any:
    """The tangents of the chosen elements: the second result has their indices along `dim`."""
    ((_, tangent),) = given.items()
    indices, dim = outs[1], args[op.positions["dim"]]
    if indices.ndim == tangent.ndim:
        return gather(tangent, dim, indices), None
    return squeeze(gather(tangent, dim, unsqueeze(indices, dim)), dim), None


def _reduction(op: Op, args: tuple[Any, ...], given: Given, outs: tuple[Tensor, ...]) -> Any:
    """The tangents summed over the reduced dimensions, with the derivatives as weights."""
    ((place, tangent),) = given.items()
    formula, names = op.formulas[op.params[place].name]
    values = Values(op, args, outs)
    weights = formula(ones(outs[0]), *[values.of(name) for name in names])
    dim = args[op.positions["dim"]] if "dim" in op.positions else None
    keepdim = bool(args[op.positions["keepdim"]]) if "keepdim" in op.positions else False
    return total(conj(weights) * tangent, dim, keepdim)


def _loss(op: Op, args: tuple[Any, ...], given: Given, outs: tuple[Tensor, ...]) -> Any:
    """As pointwise; a sum or mean of the elements is a sum with the derivatives as weights."""
    if args[op.positions["reduction"]] == "none":
        return _pointwise(op, args, given, outs)
    if any(type(each) is Tensor and each.dtype.kind == "c" for each in (outs[0], *args)):
        return None
    values = Values(op, args, outs)
    parts = []
    for place, tangent in given.items():
        formula, names = op.formulas[op.params[place].name]
        parts.append(total(formula(ones(outs[0]), *[values.of(name) for name in names]) * tangent))
    return _sum(parts)


def _sum(parts: Sequence[Any]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


_DERIVED: dict[str, Callable[..., Any]] = {
    "linear": _linear,
    "multilinear": _multilinear,
    "pointwise": _pointwise,
    "holomorphic": _holomorphic,
    "symmetric": _symmetric,
    "selection": _selection,
    "reduction": _reduction,
    "loss": _loss,
}

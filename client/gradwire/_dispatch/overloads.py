"""Which overload of ATen a call is, and its arguments as PyTorch's dispatcher passes them.

Trailing arguments that equal their defaults are left out, and tuples of integers become lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gradwire._base import dtypes
from gradwire._dispatch.schemas import Parameter, Schema, schema_of, schemas
from gradwire._proxy.handle import Handle

#: Ops whose second operand is a number in an overload for tensors: PyTorch makes a tensor of it.
_WRAPS_NUMBERS = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "floor_divide",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "logical_and",
        "logical_or",
        "logical_xor",
        "copysign",
        "xlogy",
        "heaviside",
        "ldexp",
        "float_power",
    ]
)
_MISSING = object()


class Choice(NamedTuple):
    """An overload with the arguments for it."""

    overload: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def choose(
    name: str, given: Sequence[tuple[str, Any]], optional: Mapping[str, Any], only: str | None = None
) -> Choice | None:
    """The overload of an op that takes these arguments, by name. None if no overload does.

    `optional` are the values that count as left out, if an overload has no such parameter. only: the one to try.
    """
    found = schemas().get(name, {})
    if only is not None:
        found = {only: found[only]}
    wraps = name.rstrip("_") in _WRAPS_NUMBERS
    order = sorted(found, key=lambda each: (wraps and each != "Tensor", each != "default", each))
    for overload in order:
        fitted = _fit(found[overload], given, optional, wraps)
        if fitted is not None:
            return Choice(overload, *normalized(found[overload], *fitted))
    return None


def _fit(
    schema: Schema, given: Sequence[tuple[str, Any]], optional: Mapping[str, Any], wraps: bool
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    bound: dict[str, Any] = {}
    by_name = {each.name: each for each in schema}
    for place, (name, value) in enumerate(given):
        parameter = by_name.get(name)
        if parameter is None and place < 2 and place < len(schema) and not schema[place].is_keyword:
            parameter = schema[place]
        left_out = optional.get(name, _MISSING)
        is_left_out = not isinstance(value, Handle) and type(value) is type(left_out) and value == left_out
        if parameter is None or parameter.name in bound or not _takes(parameter, value, wraps and place == 1):
            if is_left_out:
                continue
            return None
        bound[parameter.name] = value
    args: list[Any] = []
    for each in schema:
        if each.name not in bound and each.required:
            return None
        if not each.is_keyword:
            args.append(bound.pop(each.name, each.default))
    return tuple(args), bound


def _takes(parameter: Parameter, value: Any, wraps: bool) -> bool:
    """Whether a parameter's kind has the value."""
    kind = parameter.kind
    if value is None:
        return kind.endswith("?")
    kind = kind.rstrip("?")
    if kind.endswith("[]"):
        items = value if isinstance(value, (list, tuple)) else None
        if items is None:
            return kind == "i[]" and type(value) is int
        return all(_is_of(kind[:-2].rstrip("?"), each) or (each is None and "?" in kind) for each in items)
    if kind == "T" and wraps and isinstance(value, (bool, int, float, complex)):
        return True
    return _is_of(kind, value)


def _is_of(kind: str, value: Any) -> bool:
    if kind == "T" or isinstance(value, Handle):
        return kind == "T" and isinstance(value, Handle)
    types: dict[str, Any] = {
        "i": int,
        "f": (int, float),
        "s": (bool, int, float, complex),
        "b": bool,
        "c": str,
        "d": dtypes.dtype,
    }
    return isinstance(value, types.get(kind, object)) and not (kind == "i" and isinstance(value, bool))


def normalized(
    schema: Schema, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments as the dispatcher passes them: lists for tuples, without those that equal their defaults."""
    positional = [each for each in schema if not each.is_keyword]
    values = [_listed(each, value) for each, value in zip(positional, args, strict=False)]
    while values and not positional[len(values) - 1].required and _equal(values[-1], positional[len(values) - 1]):
        values.pop()
    named: dict[str, Any] = {}
    for each in schema:
        if each.is_keyword and each.name in kwargs:
            value = _listed(each, kwargs[each.name])
            if each.required or not _equal(value, each):
                named[each.name] = value
    return tuple(values), named


def _listed(parameter: Parameter, value: Any) -> Any:
    if parameter.kind.rstrip("?").endswith("[]") and value is not None:
        return list(value) if isinstance(value, (list, tuple)) else [value]
    return value


def _equal(value: Any, parameter: Parameter) -> bool:
    default = parameter.default
    if isinstance(value, Handle) or value is None or default is None:
        return value is None and default is None
    return bool(value == default) and isinstance(value, bool) == isinstance(default, bool)


def normal_call(name: str, overload: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Choice:
    """A call of an overload by its name, with arguments by place and name, as the dispatcher passes it."""
    schema = schema_of(name, overload)
    if schema is None:
        return Choice(overload, tuple(args), dict(kwargs))
    positional = [each.name for each in schema if not each.is_keyword]
    given = list(args)
    rest = dict(kwargs)
    for each in schema[len(given) : len(positional)]:
        if each.name not in rest:
            break
        given.append(rest.pop(each.name))
    for each in schema[len(given) : len(positional)]:
        if each.name in rest:  # behind one that is left out
            while len(given) < positional.index(each.name):
                given.append(schema[len(given)].default)
            given.append(rest.pop(each.name))
    return Choice(overload, *normalized(schema, given, rest))

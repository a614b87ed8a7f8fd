"""Kinds of arguments: whether each value is of a type that its parameter takes. The server refuses others.

The engine's registry declares the kinds; the generated module of the ops has them, as annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from gradwire._base.dtypes import device, dtype
from gradwire._proxy.handle import Handle
from gradwire._tensor.indexing import Index

#: The kinds of an op's parameters by name, positional ones first; filled when the ops' module is imported.
PARAMETER_KINDS: dict[str, dict[str, str]] = {}


def _of(*types: type[Any]) -> Callable[[Any], bool]:
    """Whether a value has one of the types, and not merely a derived one: a bool is no int."""
    return lambda value: type(value) in types


def _lists(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, (list, tuple)) and all(map(holds, value))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Handle)


# A kind is one of these, or several of them. Complex numbers are left out: some ops refuse them.
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "Tensor": _is_tensor,
    "Sequence[Tensor]": _lists(_is_tensor),
    "Number": _of(int, float, bool),
    "float": _of(int, float),
    "Sequence[float]": _lists(_of(int, float)),
    "int": _of(int),
    "Sequence[int]": _lists(_of(int)),
    "bool": _of(bool),
    "str": _of(str),
    "dtype": _of(dtype),
    "device": _of(device),
    "Index": _of(Index),
    "None": _of(type(None)),
}


@cache
def _checks_of(op: str) -> dict[str, tuple[Callable[[Any], bool], ...]]:
    """What tells whether a value is of its parameter's kinds, by the parameter."""
    kinds = PARAMETER_KINDS.get(op) or PARAMETER_KINDS[op.removesuffix("_")]
    return {name: tuple([_CHECKS[kind] for kind in each.split(" | ") if kind]) for name, each in kinds.items()}


def have_kinds(op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]]) -> bool:
    """Whether all arguments of a call are of their parameters' kinds."""
    checks = _checks_of(op)
    if len(args) > len(checks):
        return False
    for of_kind, value in zip(checks.values(), args, strict=False):
        if not any(check(value) for check in of_kind):
            return False
    return all(any(check(value) for check in checks.get(name, ())) for name, value in kwargs)

"""Schema: an op's parameters and overloads as data, read from Python signatures: for ListOps, client and docs."""

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, get_args

# Strings that parameters of several ops accept.
Reduction = Literal["none", "mean", "sum"]
FourierNorm = Literal["forward", "backward", "ortho"]
PadMode = Literal["constant", "reflect", "replicate", "circular"]


class Kind(Enum):
    """Type of a parameter; names equal those of `gradwire.v1.ParameterKind`."""

    TENSOR = "Array"
    TENSOR_OR_NUMBER = "Array | Number"
    TENSORS = "list[Array]"
    NUMBER = "Number"
    FLOAT = "float"
    INTEGER = "int"
    BOOLEAN = "bool"
    STRING = "str"
    DTYPE = "DType"
    DEVICE = "Device"
    INTEGERS = "Ints"
    FLOATS = "list[float]"
    INDEX = "Index"
    NUMBER_OR_STRING = "Number | str"
    INTEGERS_OR_STRING = "Ints | str"


TENSOR_KINDS = (Kind.TENSOR, Kind.TENSOR_OR_NUMBER, Kind.TENSORS)
REQUIRED = inspect.Parameter.empty
_BY_ANNOTATION = {kind.value: kind for kind in Kind}
_NAMED = {"Reduction": Reduction, "FourierNorm": FourierNorm, "PadMode": PadMode}
_LITERAL = re.compile(rf"Literal\[(.*)\]|\b({'|'.join(_NAMED)})\b")


@dataclass(frozen=True)
class Param:
    """A parameter of an op or an overload.

    default: REQUIRED if there is none. optional: whether None is accepted. choices: the strings that it accepts; empty
    for any string. fixed: the one value that a call of this overload gives it; else None.
    """

    name: str
    kind: Kind
    optional: bool
    default: Any
    keyword_only: bool
    choices: tuple[str, ...] = ()
    fixed: bool | str | None = None


@dataclass(frozen=True)
class Overload:
    """One way to call an op. outputs: names of its results, ("...",) for a list of any length."""

    name: str
    params: tuple[Param, ...]
    outputs: tuple[str, ...]


def read_signature(function: Callable[..., Any], skip: int) -> tuple[Param, ...]:
    """Parameters after the first `skip`; kinds come from the annotations, read as strings and never evaluated."""
    parameters = list(inspect.signature(function).parameters.values())[skip:]
    return tuple(_param(function, parameter) for parameter in parameters)


def _param(function: Callable[..., Any], parameter: inspect.Parameter) -> Param:
    text = parameter.annotation
    if not isinstance(text, str):
        raise TypeError(
            f"{function.__module__} needs `from __future__ import annotations` and types on {function.__name__}"
        )
    optional = text.endswith(" | None")
    plain, values = _without_literal(text.removesuffix(" | None"))
    kind = _BY_ANNOTATION.get(plain)
    if kind is None:
        raise TypeError(
            f"{function.__name__}({parameter.name}: {text}): one of {', '.join(_BY_ANNOTATION)} is expected"
        )
    choices = tuple(value for value in values if isinstance(value, str))
    fixed = values[0] if len(values) == 1 else None
    keyword_only = parameter.kind is parameter.KEYWORD_ONLY
    return Param(parameter.name, kind, optional, parameter.default, keyword_only, choices, fixed)


def _without_literal(text: str) -> tuple[str, tuple[Any, ...]]:
    """An annotation with `str` or `bool` in place of its Literal, and the Literal's values; () if it has none."""
    found = _LITERAL.search(text)
    if found is None:
        return text, ()
    values = get_args(_NAMED[found[2]]) if found[2] else ast.literal_eval(f"({found[1]},)")
    return text.replace(found[0], type(values[0]).__name__), values

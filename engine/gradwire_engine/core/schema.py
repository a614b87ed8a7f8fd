"""Schema: an op's parameters as data, read from its Python signature, for ListOps, the client and the docs."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any


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


TENSOR_KINDS = (Kind.TENSOR, Kind.TENSOR_OR_NUMBER, Kind.TENSORS)
REQUIRED = inspect.Parameter.empty
_BY_ANNOTATION = {kind.value: kind for kind in Kind}


@dataclass(frozen=True)
class Param:
    """A parameter of an op. `default` is REQUIRED if there is none; `optional` is whether None is accepted."""

    name: str
    kind: Kind
    optional: bool
    default: Any
    keyword_only: bool


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
    kind = _BY_ANNOTATION.get(text.removesuffix(" | None"))
    if kind is None:
        raise TypeError(
            f"{function.__name__}({parameter.name}: {text}): one of {', '.join(_BY_ANNOTATION)} is expected"
        )
    return Param(parameter.name, kind, optional, parameter.default, parameter.kind is parameter.KEYWORD_ONLY)

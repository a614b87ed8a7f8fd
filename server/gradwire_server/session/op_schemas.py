"""Op schemas: the answer to ListOps, from the engine's registry: parameters, overloads, results and PyTorch's names."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gradwire.v1 import service_pb2, types_pb2
from gradwire_engine import Composite, Op
from gradwire_engine.core.schema import REQUIRED, Kind, Overload, Param
from gradwire_engine.ops import torch_names
from gradwire_server.common.payload import TO_WIRE

AnyOp = Op | Composite

_VIEWS = {
    "never": service_pb2.VIEW_KIND_NEVER,
    "maybe": service_pb2.VIEW_KIND_SOMETIMES,
    "always": service_pb2.VIEW_KIND_ALWAYS,
}
_LIST = ("...",)
_RESULT = "result"  # name of an only result, as in PyTorch's declarations


def schemas(registry: Mapping[str, AnyOp]) -> service_pb2.ListOpsResponse:
    """All ops and their in-place forms, sorted by name, and the hash of all but the documentation."""
    response = service_pb2.ListOpsResponse()
    forms = [(name, op, getattr(op, "writes", False)) for name, op in registry.items()]
    forms += [(f"{name}_", op, True) for name, op in registry.items() if op.has_in_place]
    for name, op, in_place in sorted(forms, key=lambda form: form[0]):
        _fill_schema(response.ops.add(), name, op, in_place)
    response.hash = hashlib.sha256(response.SerializeToString(deterministic=True)).hexdigest()
    for schema in response.ops:
        schema.doc = registry[schema.base or schema.name].doc
    return response


def _fill_schema(schema: service_pb2.OpSchema, name: str, op: AnyOp, in_place: bool) -> None:
    """Describe an op, or its in-place form, without its documentation."""
    of_base = name != op.name
    schema.name, schema.base = name, op.name if of_base else ""
    schema.in_place = in_place
    schema.differentiable = op.differentiable
    schema.data_dependent = bool(op.data_dependent)
    schema.outputs.extend(() if of_base else op.outputs)
    schema.namespace = torch_names.namespace_of(op)
    schema.function = not in_place and torch_names.is_function_somewhere(op)
    schema.method = torch_names.has_in_place_method(op) if of_base else torch_names.is_method(op)
    schema.aliases.extend(torch_names.in_place_aliases_of(op) if of_base else torch_names.aliases_of(op))
    schema.view = service_pb2.VIEW_KIND_NEVER if in_place else _VIEWS[op.views]
    schema.random = op.draws
    schema.deprecated = op.deprecated
    places = {param.name: place for place, param in enumerate(op.params)}
    _fill_parameters(schema.parameters, op, op.params, places, in_place)
    for overload in op.overloads:
        if not in_place or len(overload.outputs) < 2:  # an in-place form has one result
            _fill_overload(schema.overloads.add(), op, overload, places, in_place)


def _fill_overload(
    message: service_pb2.Overload, op: AnyOp, overload: Overload, places: Mapping[str, int], in_place: bool
) -> None:
    message.name = overload.name
    message.returns_list = overload.outputs == _LIST
    if not message.returns_list:
        message.results.extend(overload.outputs or (_RESULT,))
    _fill_parameters(message.parameters, op, overload.params, places, in_place)


def _fill_parameters(
    messages: Any, op: AnyOp, params: Sequence[Param], places: Mapping[str, int], in_place: bool
) -> None:
    """Describe the parameters of an op or of an overload. `places`: positions of the op's parameters.

    What stands elsewhere than in the op's signature must be given by name, and so must all that follows it.
    """
    by_name = False
    for place, param in enumerate(params):
        by_name = by_name or param.keyword_only or places[param.name] != place
        if in_place and not place:
            param = replace(param, kind=Kind.TENSOR)  # what is changed is a tensor
        message = messages.add()
        _fill_parameter(message, replace(param, keyword_only=by_name))
        message.variadic = torch_names.is_variadic(op, op.params[places[param.name]])


def _fill_parameter(parameter: service_pb2.Parameter, param: Param) -> None:
    parameter.name = param.name
    parameter.kind = service_pb2.ParameterKind.Value(f"PARAMETER_KIND_{param.kind.name}")  # type: ignore[assignment]
    parameter.optional = param.optional
    parameter.keyword_only = param.keyword_only
    parameter.choices.extend(param.choices)
    if param.fixed is not None:
        fill_argument(parameter.fixed, param.fixed, param.kind)
    if param.default is not REQUIRED:
        fill_argument(parameter.default, param.default, param.kind)


def fill_argument(argument: types_pb2.Argument, value: Any, kind: Kind) -> None:
    """Write a parameter's default to an Argument, for ListOps."""
    if value is None:
        argument.none.SetInParent()
    elif isinstance(value, bool):
        argument.boolean = value
    elif isinstance(value, int):
        argument.integer = value
    elif isinstance(value, float):
        argument.float = value
    elif isinstance(value, complex):
        argument.complex.real, argument.complex.imag = value.real, value.imag
    elif isinstance(value, str):
        argument.string = value
    elif kind is Kind.INTEGERS:
        argument.integers.values.extend(value)
        argument.integers.SetInParent()
    elif kind is Kind.FLOATS:
        argument.floats.values.extend(value)
        argument.floats.SetInParent()
    elif not hasattr(value, "itemsize"):
        raise TypeError(f"the default {value!r} has no Argument encoding")
    else:
        argument.dtype = TO_WIRE[value]  # type: ignore[assignment]

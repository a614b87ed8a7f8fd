"""The functions that every language needs: one for each overload that a user may call.

Required and optional parameters are apart. Each language's module writes them in its own syntax.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradwire.v1 import service_pb2
from gradwire_engine import REGISTRY
from gradwire_server.session.op_schemas import schemas

ROOT = Path(__file__).resolve().parents[2]
NAMES = {value: name.removeprefix("PARAMETER_KIND_") for name, value in service_pb2.ParameterKind.items()}
# In PyTorch none of these is called by its name; the clients have indexing for them.
LEFT_OUT = {"getitem", "setitem", "setitem_"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function. `default` is the Argument's kind and value, absent for None."""

    name: str
    kind: str
    optional: bool
    default: tuple[str, Any] | None
    keyword_only: bool
    choices: tuple[str, ...]


@dataclass(frozen=True)
class Function:
    """An overload of an op as a function of a language."""

    op: str
    name: str  # in PyTorch's spelling, with the overload's name: "max_dim"
    namespace: str  # "", "nn.functional", "linalg", "fft", "special"
    method: bool
    in_place: bool
    required: tuple[Parameter, ...]
    options: tuple[Parameter, ...]
    fixed: tuple[tuple[str, tuple[str, Any]], ...]
    results: tuple[str, ...]  # empty for a list of unknown length
    doc: str
    deprecated: str


def functions() -> list[Function]:
    """All functions, sorted by op."""
    return [each for op in schemas(REGISTRY).ops if _is_public(op) for each in _of_op(op)]


def schema_hash() -> str:
    """What ListOpsResponse.hash is for these functions."""
    return schemas(REGISTRY).hash


def _is_public(op: service_pb2.OpSchema) -> bool:
    return op.name not in LEFT_OUT and (op.function or op.method or (op.in_place and bool(op.namespace)))


def _of_op(op: service_pb2.OpSchema) -> Iterator[Function]:
    base = op.name.rpartition(".")[2].removesuffix("_") if op.in_place else op.name.rpartition(".")[2]
    for overload in op.overloads:
        given = [each for each in overload.parameters if not each.HasField("fixed")]
        required = [each for each in given if not each.HasField("default") and not each.keyword_only]
        if required != list(overload.parameters)[: len(required)]:
            raise SystemExit(f"{op.name}: a required parameter does not come first, so it has no place")
        yield Function(
            op=op.name,
            name=f"{base}_{overload.name}" if overload.name else base,
            namespace=op.namespace,
            method=op.method,
            in_place=op.in_place,
            required=tuple(_parameter(each) for each in required),
            options=tuple(_parameter(each) for each in given if each not in required),
            fixed=tuple((each.name, _argument(each.fixed)) for each in overload.parameters if each.HasField("fixed")),
            results=() if overload.returns_list else tuple(overload.results),
            doc=op.doc.splitlines()[0] if op.doc else "",
            deprecated=op.deprecated,
        )


def _parameter(given: service_pb2.Parameter) -> Parameter:
    default = _argument(given.default) if given.HasField("default") else None
    return Parameter(
        name=given.name,
        kind=NAMES[given.kind],
        optional=given.optional,
        default=None if default is None or default[0] == "none" else default,
        keyword_only=given.keyword_only,
        choices=tuple(given.choices),
    )


def _argument(given: Any) -> tuple[str, Any]:
    kind = given.WhichOneof("kind")
    value = getattr(given, kind)
    return kind, list(value.values) if kind in ("integers", "floats") else value

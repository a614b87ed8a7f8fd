"""The answer to ListOps: defaults as arguments, overloads, and a hash that tells whether calls mean the same."""

from dataclasses import replace
from typing import Any

import pytest

from gradwire.v1 import service_pb2, types_pb2
from gradwire_engine import REGISTRY
from gradwire_engine.core import dtypes
from gradwire_engine.core.schema import Kind, Param
from gradwire_server.session import arguments, op_schemas
from tests.server.harness import Id, Remote, Running

A = types_pb2.Argument


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, Kind.INTEGER),
        (True, Kind.BOOLEAN),
        (3, Kind.INTEGER),
        (2.5, Kind.FLOAT),
        (1 + 2j, Kind.NUMBER),
        ("mean", Kind.STRING),
        ((0, 1), Kind.INTEGERS),
        ((), Kind.INTEGERS),
        ([0.5], Kind.FLOATS),
        (dtypes.int8, Kind.DTYPE),
    ],
)
def test_a_default_that_is_told_is_read_back_the_same(value: Any, kind: Kind) -> None:
    told = A()
    op_schemas.fill_argument(told, value, kind)
    readers = arguments.readers_of(Param("p", kind, True, None, False))
    assert readers[told.WhichOneof("kind")](told, None) == value


def test_a_default_that_cannot_be_told_is_a_mistake_of_the_declaration() -> None:
    with pytest.raises(TypeError, match="has no Argument encoding"):
        op_schemas.fill_argument(A(), object(), Kind.DTYPE)


def test_all_ops_and_their_in_place_forms_are_listed_by_name() -> None:
    told = op_schemas.schemas(REGISTRY)
    names = [each.name for each in told.ops]
    assert names == sorted(names)
    assert {"add", "add_", "sum"} <= set(names)
    add = next(each for each in told.ops if each.name == "add")
    assert [each.name for each in add.parameters] == ["input", "other", "alpha"]
    alpha = add.parameters[2]
    assert (alpha.keyword_only, alpha.default.integer, alpha.kind) == (True, 1, service_pb2.PARAMETER_KIND_NUMBER)
    assert next(each for each in told.ops if each.name == "add_").in_place


def overloads(name: str) -> dict[str, service_pb2.Overload]:
    (schema,) = [each for each in op_schemas.schemas(REGISTRY).ops if each.name == name]
    return {each.name: each for each in schema.overloads}


def names(overload: service_pb2.Overload) -> list[str]:
    return [each.name + (" by name" if each.keyword_only else "") for each in overload.parameters]


def test_overloads_have_their_own_parameters_and_results() -> None:
    told = overloads("max")
    assert [list(each.results) for each in told.values()] == [["result"], ["values", "indices"], ["result"]]
    assert [names(each) for each in told.values()] == [
        ["input"],
        ["input", "dim", "keepdim"],
        ["input", "other by name"],
    ]
    assert told["dim"].parameters[1].kind == service_pb2.PARAMETER_KIND_INTEGER
    assert not told["dim"].parameters[1].HasField("default")


def test_a_flag_that_selects_an_overload_is_fixed() -> None:
    told = overloads("unique")
    assert list(told["inverse_counts"].results) == ["output", "inverse_indices", "counts"]
    assert names(told["counts"]) == ["input", "sorted", "return_counts by name", "dim by name"]
    assert told["counts"].parameters[2].fixed.boolean
    assert not told[""].parameters[1].HasField("fixed")


def test_a_list_of_any_length_is_no_result() -> None:
    told = overloads("nonzero")
    assert (list(told[""].results), told[""].returns_list) == (["result"], False)
    assert (list(told["as_tuple"].results), told["as_tuple"].returns_list) == ([], True)


def test_a_padding_is_numbers_or_one_of_two_strings() -> None:
    told = {
        name: {each.name: each for each in each.parameters}["padding"] for name, each in overloads("conv2d").items()
    }
    assert told[""].kind == service_pb2.PARAMETER_KIND_INTEGERS
    assert not told[""].choices
    assert told["padding"].kind == service_pb2.PARAMETER_KIND_STRING
    assert list(told["padding"].choices) == ["valid", "same"]


def test_an_in_place_form_takes_a_tensor_and_has_one_result() -> None:
    told = overloads("mul_")[""]
    kinds = [each.kind for each in told.parameters]
    assert kinds == [service_pb2.PARAMETER_KIND_TENSOR, service_pb2.PARAMETER_KIND_TENSOR_OR_NUMBER]
    assert list(told.results) == ["result"]


def test_the_hash_tells_calls_but_not_words(monkeypatch: pytest.MonkeyPatch) -> None:
    before = op_schemas.schemas(REGISTRY).hash
    assert op_schemas.schemas(REGISTRY).hash == before
    monkeypatch.setattr(REGISTRY["msort"], "doc", "Other words.")
    assert op_schemas.schemas(REGISTRY).hash == before
    (param,) = REGISTRY["msort"].params
    monkeypatch.setattr(REGISTRY["msort"], "params", (replace(param, optional=True),))
    assert op_schemas.schemas(REGISTRY).hash != before


def test_a_known_hash_is_answered_without_ops(server: Running) -> None:
    told = server.stub.ListOps(service_pb2.ListOpsRequest())
    again = server.stub.ListOps(service_pb2.ListOpsRequest(known_hash=told.hash))
    assert (again.hash, len(again.ops)) == (told.hash, 0)
    other = server.stub.ListOps(service_pb2.ListOpsRequest(known_hash="other", prefix="mul"))
    assert other.hash == told.hash
    assert {each.name for each in other.ops} == {name.name for name in told.ops if name.name.startswith("mul")}


@pytest.mark.parametrize(("padding", "size"), [("same", 5), ("valid", 3), ([1], 5), (0, 3)])
def test_a_convolution_takes_its_padding_by_name(session: Remote, padding: Any, size: int) -> None:
    x, w = session.create([[[1.0] * 5] * 2]), session.create([[[1.0] * 3] * 2])
    assert list(session.op("conv1d", Id(x), Id(w), named={"padding": padding}).shape) == [1, 1, size]

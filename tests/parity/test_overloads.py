"""What ListOps says of an op is so: each call fits one overload and has its results, views share memory, choices work.

The calls are those of the parity table, and a few more for overloads that it does not reach. Names and results are
compared with PyTorch's where it is installed.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import gradwire
import gradwire_engine as engine
from gradwire_engine import REGISTRY, Tensor
from gradwire_engine.core.context import CURRENT, Context, activate
from gradwire_engine.core.errors import EngineError
from gradwire_engine.core.schema import REQUIRED, Kind, Overload, Param
from gradwire_engine.ops import torch_names
from tests.parity.harness import Case, Sample, _Call, _engine_value, ints, results, s, t, torch
from tests.parity.test_ops import CASES

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")

_POSITIVE = t(3, low=0.1, high=0.9)
_LABELS = ints(2, 1, 2, 2)
# Calls of ops and overloads that the parity table has no case of.
MORE = {
    "bernoulli": [s(_POSITIVE), s(t(3), 0.5)],
    "binomial": [s(t(2, low=5, high=9), t(2, low=0.2, high=0.8))],
    "cauchy": [s(t(3))],
    "conv1d": [s(t(2, 3, 6), t(4, 3, 3), padding="same")],
    "conv3d": [s(t(2, 3, 6, 6, 6), t(4, 3, 3, 3, 3), padding="same")],
    "dropout": [s(t(9)), s(t(9), 0.5, False)],
    "dropout1d": [s(t(2, 3, 4))],
    "dropout2d": [s(t(2, 3, 4, 2))],
    "dropout3d": [s(t(2, 3, 4, 2, 2))],
    "alpha_dropout": [s(t(9), 0.5, True)],
    "feature_alpha_dropout": [s(t(2, 3, 4), 0.5, True)],
    "empty": [s((2, 3))],
    "empty_like": [s(t(2))],
    "exponential": [s(t(3))],
    "geometric": [s(t(3), 0.5)],
    "linalg.eig": [s(t(3, 3))],
    "linalg.eigh": [s(t(3, 3))],
    "linalg.eigvals": [s(t(3, 3))],
    "log_normal": [s(t(3))],
    "max_pool1d": [s(t(2, 3, 8), 2, return_indices=True)],
    "max_pool3d": [s(t(2, 3, 4, 4, 4), 2, return_indices=True)],
    "multinomial": [s(_POSITIVE, 2)],
    "multi_head_attention_forward": [
        s(*[t(3, 2, 4)] * 3, 4, 2, t(12, 4), None, None, None, False, 0.5, t(4, 4), None, True)
    ],
    "new_empty": [s(t(2), (3,))],
    "nonzero": [s(t(2, 3)), s(t(2, 3), as_tuple=True)],
    "normal": [s(0.0, 1.0, (3,)), s(t(3), 1.0), s(t(3), _POSITIVE)],
    "bernoulli_": [s(t(3, low=0.0, high=1.0, grad=False)), s(t(3, grad=False), 0.5)],
    "normal_": [s(t(3, grad=False))],
    "poisson": [s(_POSITIVE)],
    "rand": [s((3,))],
    "rand_like": [s(t(3))],
    "randint": [s(0, 9, (3,))],
    "randint_like": [s(t(3), 0, 9)],
    "dual_primal": [s(t(3), t())],
    "dual_tangent": [s(t(3), t())],
    "exit_dual_level": [s(t())],
    "check_all": [s(t(2, dtype="bool", values=[True, True], grad=False), "not all are true")],
    "make_dual": [s(t(3), t(3), t(), 1)],
    "randn": [s((3,))],
    "randn_like": [s(t(3))],
    "random": [s(t(3))],
    "randperm": [s(5)],
    "reshape_as": [s(t(2, 3), t(6)), s(t(3, 2, layout="F"), t(6))],
    "rrelu": [s(t(9), training=True)],
    "standard_gamma": [s(_POSITIVE)],
    "standard_gamma_grad": [s(_POSITIVE, _POSITIVE)],
    "sample_dirichlet": [s(_POSITIVE)],
    "dirichlet_grad": [s(t(3, low=0.1, high=0.9), _POSITIVE, t(3, low=5.0, high=6.0))],
    "scaled_dot_product_attention": [s(*[t(2, 3, 4)] * 3, None, 0.5)],
    "scatter": [s(t(3, 4), 0, ints([0, 1], [1, 0]), value=1.5)],
    "take_geometry": [s(t(2, 3), t(3, 2))],
    "type_as": [s(t(3), t(2)), s(t(3), ints(1))],
    "uniform": [s(t(3))],
    "unique": [
        s(_LABELS, return_counts=True), s(_LABELS, return_inverse=True), s(_LABELS, True, True, True), s(_LABELS)
    ],
    "unique_consecutive": [
        s(_LABELS, return_counts=True), s(_LABELS, return_inverse=True), s(_LABELS, True, True), s(_LABELS)
    ],
}  # fmt: skip


@dataclass
class Facts:
    """What the calls of an op showed."""

    overloads: set[str] = field(default_factory=set)
    shares: set[bool] = field(default_factory=set)
    draws: set[bool] = field(default_factory=set)


def samples(name: str) -> Iterator[tuple[Case, Sample]]:
    for made in CASES:
        if made.op == name:
            yield from ((made, sample) for sample in made.samples)
    yield from ((Case(name, ()), sample) for sample in MORE.get(name, ()))


def kind_fits(param: Param, value: Any) -> bool:
    """Whether a parameter accepts a value of a call."""
    if value is None:
        return param.optional or param.default is None or param.kind is Kind.INDEX
    if param.fixed is not None:
        return value is param.fixed
    integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    number = isinstance(value, bool | int | float | complex | np.number)
    a_list = isinstance(value, list | tuple)
    whole = a_list and all(each is None or isinstance(each, int | np.integer | list | tuple) for each in value)
    fits = {
        Kind.TENSOR: isinstance(value, Tensor),
        Kind.TENSOR_OR_NUMBER: isinstance(value, Tensor) or number,
        Kind.TENSORS: a_list and all(isinstance(each, Tensor) for each in value),
        Kind.NUMBER: number,
        Kind.FLOAT: number,
        Kind.INTEGER: integer,
        Kind.BOOLEAN: isinstance(value, bool),
        Kind.STRING: isinstance(value, str) and (not param.choices or value in param.choices),
        Kind.NUMBER_OR_STRING: number or value in param.choices,
        Kind.INTEGERS: whole or integer,
        Kind.FLOATS: a_list or number,  # the Python client sends a number as a list
    }
    return fits.get(param.kind, True)


def fits(name: str, overload: Overload, given: dict[str, Any]) -> bool:
    """Whether a call's arguments, without those equal to the op's defaults, fit an overload."""
    params = {param.name: param for param in overload.params}
    if any(param.default is REQUIRED and param.name not in given for param in overload.params):
        return False
    integers = {p.name for each in REGISTRY[name].overloads for p in each.params if p.kind is Kind.INTEGER}
    for parameter, value in given.items():
        param = params.get(parameter)
        if param is None or not kind_fits(param, value):
            return False
        # A single integer means the overload with an integer, if there is one.
        if param.kind is Kind.INTEGERS and isinstance(value, int) and parameter in integers:
            return False
    return True


def given_arguments(name: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name; those that have their default need not be given, unless the op has no other parameters."""
    params = REGISTRY[name].params
    by_name = {**dict(zip([param.name for param in params], args, strict=False)), **kwargs}
    if name in ("max", "min") and isinstance(by_name.get("dim"), Tensor):
        by_name["other"] = by_name.pop("dim")
    defaults = {param.name: param.default for param in params}
    return {key: value for key, value in by_name.items() if defaults[key] is REQUIRED or value is not defaults[key]}


def observe(name: str) -> Facts:
    """Call an op in every way, and check what its overloads say."""
    facts, op = Facts(), REGISTRY[name]
    for made, sample in samples(name):
        call = _Call(made, sample, sample.dtypes[-1])
        with activate(Context()), np.errstate(all="ignore"):
            leaves = call.ours()
            args, kwargs = call.with_tensors(leaves, _engine_value)
            given = given_arguments(name, args, kwargs)
            fitting = [overload for overload in op.overloads if fits(name, overload, given)]
            # A composite reads its only parameter's default where a call gives another name for it.
            assert len(fitting) == 1, f"{name}{sample} fits {[each.name for each in fitting]}"
            (overload,) = fitting
            drawn = CURRENT.get().generator.get_state()
            raw = engine.call(name, args, kwargs)
            made_list = isinstance(raw, list | tuple)
            found = results(raw)
            if overload.outputs == ("...",):
                assert made_list, f"{name}.{overload.name} returns no list"
            else:
                assert len(found) == (len(overload.outputs) or 1), f"{name}.{overload.name}{sample}"
            facts.overloads.add(overload.name)
            facts.draws.add(not np.array_equal(drawn, CURRENT.get().generator.get_state()))
            storages = {id(each.storage) for each in leaves}
            facts.shares |= {id(each.storage) in storages for each in found if isinstance(each, Tensor)}
    return facts


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_each_call_fits_one_overload_and_has_its_results(name: str) -> None:
    op, facts = REGISTRY[name], observe(name)
    assert facts.overloads == {each.name for each in op.overloads}
    assert len({each.name for each in op.overloads}) == len(op.overloads)
    assert (True in facts.draws) == op.draws
    if not getattr(op, "writes", False):
        wanted = {"never": {False}, "always": {True}}.get(op.views)
        assert facts.shares == wanted if wanted else True in facts.shares


def test_defaults_of_an_overload_are_the_ops() -> None:
    for op in REGISTRY.values():
        defaults = {param.name: param.default for param in op.params}
        for param in [param for overload in op.overloads for param in overload.params]:
            assert param.default is REQUIRED or param.default == defaults[param.name], op.name


CHOICES = [
    (name, param.name) for name, op in sorted(REGISTRY.items()) for param in op.params if param.choices
]  # fmt: skip


def accepts(name: str, parameter: str, choice: str) -> bool:
    """Whether some call of the op works with a string for a parameter."""
    for made, sample in samples(name):
        call = _Call(made, sample, sample.dtypes[-1])
        with activate(Context()), np.errstate(all="ignore"):
            args, kwargs = call.with_tensors(call.ours(), _engine_value)
            names = [param.name for param in REGISTRY[name].params]
            given = {**dict(zip(names, args, strict=False)), **kwargs, parameter: choice}
            if choice == "circular":
                given.pop("value", None)
            # A loss with these, and a signal without padding, read no string.
            ignored = parameter == "reduction" and (given.get("size_average"), given.get("reduce")) != (None, None)
            if ignored or given.get("center") is False:
                continue
            try:
                engine.call(name, [], given)
            except EngineError:
                continue
            return True
    return False


@pytest.mark.parametrize(("name", "parameter"), CHOICES)
def test_an_op_accepts_its_choices_and_no_other_string(name: str, parameter: str) -> None:
    (param,) = [each for each in REGISTRY[name].params if each.name == parameter]
    assert [choice for choice in param.choices if not accepts(name, parameter, choice)] == []
    assert not accepts(name, parameter, "no such choice")


def test_every_string_has_its_choices() -> None:
    strings = (Kind.STRING, Kind.NUMBER_OR_STRING, Kind.INTEGERS_OR_STRING)
    free = [(op.name, p.name) for op in REGISTRY.values() for p in op.params if p.kind in strings and not p.choices]
    assert free == [("check_all", "message"), ("einsum", "equation")]


def python_function(name: str) -> Any:
    found: Any = gradwire
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def test_lists_that_are_variadic_are_so_in_the_python_client() -> None:
    compared = 0
    for name, op in REGISTRY.items():
        told = [param.name for param in op.params if torch_names.is_variadic(op, param)]
        assert len(told) <= 1
        owner = getattr(gradwire.Tensor, name, None) if torch_names.is_method(op) else python_function(name)
        if told and owner is not None:
            parameters = inspect.signature(owner).parameters.values()
            assert any(each.kind is each.VAR_POSITIONAL for each in parameters), name
            compared += 1
    assert compared > 15


# Ops that PyTorch has no name for: they serve operators, the Python client, or the in-place form alone.
NAMELESS = {
    "cauchy", "check_all", "copy", "dirichlet_grad", "dual_primal", "dual_tangent", "exit_dual_level", "exponential",
    "geometric", "getitem", "gru_layer", "log_normal", "lstm_layer", "make_dual", "rnn_layer", "sample_dirichlet",
    "setitem", "standard_gamma", "standard_gamma_grad", "take_geometry", "uniform", "view_dtype", "zero",
}  # fmt: skip
# Functions of torch that are none for users: they have another meaning or undocumented arguments.
PRIVATE = {"random"}


@needs_torch
def test_pytorch_has_each_op_where_the_schema_says() -> None:
    for name, op in REGISTRY.items():
        last = name.rpartition(".")[2]
        module: Any = torch
        for part in torch_names.namespace_of(op).split("."):
            module = getattr(module, part) if part else module
        function, method = torch_names.is_function_somewhere(op), torch_names.is_method(op)
        assert function == hasattr(module, last) or name in PRIVATE | {"normal_"}, name
        if not ("." in name or name == "polygamma"):
            in_functional = torch_names.namespace_of(op) == "nn.functional"
            assert method == hasattr(torch.Tensor, name) or in_functional, name
        if torch_names.has_in_place_method(op):
            assert hasattr(torch.Tensor, f"{name}_"), name
        assert all(hasattr(torch, alias) for alias in torch_names.aliases_of(op)), name
        assert all(hasattr(torch.Tensor, alias) for alias in torch_names.in_place_aliases_of(op)), name
        assert (not (function or method)) == (name in NAMELESS | PRIVATE), name


# Overloads of PyTorch's that have the name of one of ours, but are called otherwise.
OTHER_CALLS = {
    "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "embedding_bag", "unique_consecutive", "where",
}  # fmt: skip


@needs_torch
def test_results_are_those_of_pytorchs_declarations() -> None:
    declared: dict[tuple[str, str], Any] = {}
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space == "aten":
            declared.setdefault((name, schema.overload_name), schema)
    compared = defaultdict(list)
    for op in REGISTRY.values():
        for overload in op.overloads:
            schema = declared.get((op.name.replace(".", "_"), overload.name))
            if schema is None or op.name in OTHER_CALLS:
                continue
            told = [] if overload.outputs == ("...",) else list(overload.outputs or ("",))
            theirs = [each.name or "" for each in schema.returns]
            if [str(each.type) for each in schema.returns] == ["List[Tensor]"]:
                same = not told
            else:
                same = told == theirs or (len(told) == len(theirs) and not any(theirs))
            compared[same].append((op.name, overload.name, told, theirs))
    assert len(compared[True]) > 300
    assert compared[False] == []


@needs_torch
def test_deprecated_ops_are_those_that_pytorch_documents_so() -> None:
    documented = set()
    for name in REGISTRY:
        found: Any = torch
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not None and re.search(rf"torch\.{re.escape(name)} is deprecated", inspect.getdoc(found) or ""):
            documented.add(name)
    assert documented == {name for name, op in REGISTRY.items() if op.deprecated}

"""Composites and formulas declare `reads_values` if they read arrays: checked against the names in their code.

A wrong declaration would let a plan repeat decisions that followed from the values of the first run.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from gradwire_engine import REGISTRY
from gradwire_engine.op.composite import Composite
from gradwire_engine.op.declaration import OPS
from gradwire_engine.op.op import Op
from gradwire_engine.op.saving import Saving
from gradwire_engine.op.value_access import read_array

# Names with which a function reads arrays, or draws random numbers other than by an op.
REVEALING = frozenset(("array", "storage", "host", "generator_for", "sampler_for"))
DRAWING = frozenset(("generator_for", "sampler_for"))
COMPOSITES = {name: each for name, each in REGISTRY.items() if isinstance(each, Composite)}
FORMULAS = {(op.name, of): formula for op in OPS.values() for of, (formula, _) in op.formulas.items()}


def inferred(function: Callable[..., Any]) -> bool:
    """Whether a function, or a function of gradwire_engine.ops that it calls, names what reads arrays."""
    return names_any(function, REVEALING, Composite)


def names_any(function: Callable[..., Any], revealing: frozenset[str], through: Any) -> bool:
    """Whether a function names one of these, or one that it calls does. through: classes of ops that are followed."""
    seen: set[types.CodeType] = set()
    waiting: list[Any] = [function]
    while waiting:
        one = waiting.pop()
        code = one.__code__
        if code in seen:
            continue
        seen.add(code)
        names = set(names_in(code))
        if names & revealing:
            return True
        for found in (*map(one.__globals__.get, names), *(cell.cell_contents for cell in one.__closure__ or ())):
            called = found.function if isinstance(found, through) else found
            if isinstance(called, types.FunctionType) and called.__module__.startswith("gradwire_engine.ops"):
                waiting.append(called)
    return False


def names_in(code: types.CodeType) -> Iterable[str]:
    """The names that a function's code has, and those of the functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


def test_a_composite_declares_whether_it_reads_values() -> None:
    wrong = {
        name: each.reads_values for name, each in COMPOSITES.items() if each.reads_values != inferred(each.function)
    }
    assert not wrong


def test_an_op_declares_whether_it_draws() -> None:
    """The client counts draws by these declarations."""
    undeclared = [
        name for name, each in REGISTRY.items() if not each.draws and names_any(each.function, DRAWING, (Composite, Op))
    ]
    assert not undeclared
    assert names_any(REGISTRY["dropout"].function, DRAWING, (Composite, Op))
    assert not [which for which, formula in FORMULAS.items() if names_any(formula, DRAWING, (Composite, Op))]


def test_a_formula_declares_whether_it_reads_values() -> None:
    declared = {which: getattr(formula, "reads_values", False) for which, formula in FORMULAS.items()}
    wrong = {which: said for which, said in declared.items() if said != inferred(FORMULAS[which])}
    assert not wrong
    assert any(declared.values())


@pytest.mark.parametrize(
    ("function", "reads"),
    [
        (lambda x: x.array[0], True),
        (lambda x: [each.storage for each in x], True),
        (COMPOSITES["nanmean"].function, True),  # by a function that it calls
        (lambda x: read_array(x).sum(), False),  # `read_array` ends a trace itself
        (lambda x: x * 2 + x.shape[0], False),
    ],
    ids=["array", "nested", "called", "read_array", "ops"],
)
def test_names_in_the_code_tell_what_reads_values(function: Callable[..., Any], reads: bool) -> None:
    assert inferred(function) is reads


def test_a_node_knows_whether_its_formulas_read_values() -> None:
    def saving(op: str, needed: int) -> Saving:
        return OPS[op].saving_plan(needed)

    assert saving("prod", 1).reads_values
    assert not saving("prod", 0).reads_values
    assert not saving("mul", 3).reads_values

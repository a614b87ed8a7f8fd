"""What the graph asks of ops: every declared op and its plans have it."""

import inspect

import pytest

from gradwire_engine.graph.protocols import GraphOp, Named, SavingPlan
from gradwire_engine.op.declaration import OPS
from gradwire_engine.op.signature import REGISTRY


def _members(protocol: type) -> set[str]:
    own = {name for name, value in vars(protocol).items() if isinstance(value, property) or inspect.isfunction(value)}
    return {name for name in own | set(vars(protocol).get("__annotations__", ())) if not name.startswith("_")}


def test_every_op_has_what_a_node_needs_of_it() -> None:
    wanted = _members(GraphOp) | _members(Named)
    assert {"saving_plan", "compute", "formulas", "name"} <= wanted
    lacking = {op.name: [name for name in wanted if not hasattr(op, name)] for op in OPS.values()}
    assert {name: missing for name, missing in lacking.items() if missing} == {}


def test_every_op_and_composite_has_a_name_for_refusals() -> None:
    assert [name for name, each in REGISTRY.items() if each.name != name] == []


@pytest.mark.parametrize("name", ["add", "where", "cat", "linalg.svdvals"])
def test_a_plan_has_what_a_node_needs_of_it(name: str) -> None:
    plan = OPS[name].saving_plan(1)
    assert [member for member in _members(SavingPlan) if not hasattr(plan, member)] == []
    assert len(plan.names) == len(plan.getters)

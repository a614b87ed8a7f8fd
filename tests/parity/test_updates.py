"""Ops that update operands in place declare which: each sample of the tables changes these operands and no others."""

from __future__ import annotations

from typing import Any

import pytest

from gradwire_engine import REGISTRY
from gradwire_engine.op.composite import Composite
from tests.parity.harness import ints, of, s, t
from tests.parity.test_ops import CASES as TABLES
from tests.parity.test_ops import harness

TABLE, STATISTICS = t(4, 3, grad=False), (of(0.1, 0.2, 0.3, grad=False), of(1.0, 2.0, 3.0, grad=False))
# Besides the tables: calls with and without an update.
CASES = [
    *TABLES,
    harness.Case("batch_norm", (s(t(4, 3), *STATISTICS, training=True), s(t(4, 3), *STATISTICS, training=False))),
    harness.Case("instance_norm", (s(t(2, 3, 4), *STATISTICS), s(t(2, 3, 4), *STATISTICS, use_input_stats=False))),
    harness.Case("embedding", (s(ints(1, 2), TABLE, max_norm=0.1), s(ints(1, 2), TABLE, max_norm=None))),
    harness.Case("embedding_bag", (s(ints([[1, 2]]), TABLE, max_norm=0.1), s(ints([[1, 2]]), TABLE))),
]
DECLARED = {name for name, op in REGISTRY.items() if isinstance(op, Composite) and op.updated_places}


def _changed(made: harness.Case, sample: harness.Sample) -> tuple[list[int], list[int]]:
    """Numbers of a sample's tensors that the call changed, and of those that the op's declaration names."""
    call = harness._Call(made, sample, sample.dtypes[0])
    tensors = call.ours()
    before = [each.storage.version for each in tensors]
    args, kwargs = call.with_tensors(tensors, harness._engine_value)
    call.call_ours(tensors)
    op: Any = REGISTRY[made.op]
    bound = op.bind(args, kwargs)
    named = [
        bound[place]
        for place, by in getattr(op, "updated_places", ())
        if bound[by] is not None and bound[by] is not False
    ]
    changed = [place for place, each in enumerate(tensors) if each.storage.version != before[place]]
    return changed, [place for place, each in enumerate(tensors) if any(each is one for one in named)]


@pytest.mark.parametrize("made", CASES, ids=str)
def test_an_op_changes_the_operands_that_it_declares(made: harness.Case) -> None:
    for sample in made.samples:
        changed, declared = _changed(made, sample)
        assert changed == declared, sample


def test_some_sample_of_each_such_op_changes_operands() -> None:
    found = {made.op for made in CASES if made.op in DECLARED and any(_changed(made, each)[0] for each in made.samples)}
    assert found == DECLARED

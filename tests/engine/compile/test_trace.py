"""The trace: registers, the memory that they may share, and instructions."""

import numpy as np
import pytest

from gradwire_engine.compile.trace import Num, NumRef, Ref, Trace, has_history, leaves, plain
from gradwire_engine.compile.tracing import ArrayMemory
from gradwire_engine.graph.tensor import tensor
from gradwire_engine.op.declaration import OPS


def _traced(*arrays: np.ndarray) -> tuple[Trace, list[int]]:
    trace = Trace()
    return trace, [trace.constant(array) for array in arrays]


def test_operand_replaces_arrays_and_numbers_at_any_depth() -> None:
    trace, _ = _traced()
    array = np.ones(2, np.float32)
    template = trace.operand(([array, Num.at(3, 0.5)], "mean"))
    assert template == ([Ref(0), NumRef(3)], "mean")
    assert [type(item) for item in leaves(template)] == [Ref, NumRef, str]
    assert trace.instrs[0].kind == "constant"
    assert trace.instrs[0].what is not array


def test_plain_replaces_numbers_by_floats() -> None:
    made = plain([Num.at(0, 0.5), "mean"])
    assert made == (0.5, "mean")
    assert type(made[0]) is float


@pytest.mark.parametrize("other", [np.ones(2, np.float64), np.ones(3, np.float32)])
def test_a_sum_of_gradients_that_differ_in_shape_or_dtype_ends_the_trace(other: np.ndarray) -> None:
    trace, registers = _traced(np.ones(2, np.float32), other)
    trace.sum(*registers)
    assert trace.failed == "gradients of two kinds are added"


def test_a_formula_may_share_its_operands_memory_but_a_sum_has_its_own() -> None:
    trace, (one, other) = _traced(np.ones(2, np.float32), np.ones(2, np.float32))
    made = trace.formula(("view", "input", None), (Ref(one),), ((2,), np.dtype(np.float32)))
    total = trace.sum(made, other)
    assert trace.regs[made].roots == {made, one}
    assert not trace.regs[made].fresh
    assert trace.regs[total].roots == {total}
    assert trace.instrs[-1].reads() == (made, other)


def test_accumulating_counts_a_change_of_all_memory_that_the_target_may_share() -> None:
    trace, (one,) = _traced(np.ones(2, np.float32))
    held = tensor(np.zeros(2, np.float32))
    made = trace.formula(("view", "input", None), (Ref(one),), ((2,), np.dtype(np.float32)))
    trace.name(held.array, made)
    trace.accumulate(held, one)
    assert trace.changes == {one: 1, made: 1}


def test_an_array_that_no_instruction_made_ends_the_trace_with_the_first_reason() -> None:
    trace, _ = _traced()
    assert trace.register(np.ones(2)) is None
    trace.fail("a later reason")
    assert trace.failed == "an array that no op made"


def test_entangled_tensors_have_a_node_or_are_views_that_require_grad() -> None:
    leaf = tensor(np.ones(2, np.float32), requires_grad=True)
    assert not has_history(leaf)
    assert has_history(OPS["mul"](leaf, leaf))


@pytest.mark.parametrize("seed", range(40))
def test_inputs_over_the_same_memory_are_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    base, memory, known = np.zeros(60, np.float32), ArrayMemory(), []
    for number in range(14):
        begin, step = rng.integers(0, 60), rng.choice([1, 1, 1, 1, 2])
        array = base[begin : begin + rng.integers(0, 12) : step]
        expected = [place for place, each in enumerate(known) if np.may_share_memory(array, each)]
        assert sorted(memory.registers_over(array)) == expected
        memory.add(array, number)
        known.append(array)

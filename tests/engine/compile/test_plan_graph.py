"""Which plans of a GPU may be captured as a CUDA graph, by their instructions: told without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from gradwire_engine import Tensor, call, tensor
from gradwire_engine.compile.plan_graph import _uncaptured
from gradwire_engine.core.context import Context, activate
from tests.engine.compile.fusing import traced

Program = Callable[[Tensor], list[Tensor]]


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with activate(Context()):
        yield


def transposed_copy(x: Tensor) -> list[Tensor]:
    return [call("contiguous", (call("transpose", (x, 1, 2)),))]


def channels_last_copy(x: Tensor) -> list[Tensor]:
    return [call("contiguous", (x,), {"memory_format": "channels_last"})]


def merged_heads(x: Tensor) -> list[Tensor]:
    """What attention does with its result."""
    heads = call("contiguous", (call("transpose", (x, 1, 2)),))
    return [call("exp", (call("reshape", (heads, (2, 4, 15))),))]


def sorted_rows(x: Tensor) -> list[Tensor]:
    return list(call("sort", (x,)))


@pytest.mark.parametrize("program", [transposed_copy, channels_last_copy, merged_heads])
def test_copies_in_another_order_of_memory_are_captured(program: Program) -> None:
    plan = traced(program, [tensor(np.ones((2, 3, 4, 5), np.float32))])
    assert [why for instr in plan.instrs if (why := _uncaptured(instr, ()))] == []


def test_an_op_that_waits_for_the_gpu_is_named() -> None:
    plan = traced(sorted_rows, [tensor(np.ones((2, 3), np.float32))])
    reasons = [why for instr in plan.instrs if (why := _uncaptured(instr, ()))]
    assert "sort may wait for the GPU or read host memory" in reasons

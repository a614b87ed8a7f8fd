"""Sequences of elementwise operations by a loop of machine code: NumPy's bits, whatever the operands."""

from __future__ import annotations

import time
from array import array as packed
from typing import Any

import numpy as np
import pytest

from gradwire_engine.compile.eager.library import Library
from gradwire_engine.compile.eager.sequences import NAMES, source_of
from gradwire_engine.ops.base.loops import address
from gradwire_engine.ops.base.sequences import BINARY, KINDS, NAME, UNARY, WORDS, code_of
from tests.engine.compile.fusing import NotedLoops

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.usefixtures("machine_code")

DTYPES = [np.float32, np.float64]
COUNTS = [1, 2, 15, 16, 17, 31, 32, 33, 100]
FORWARDS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative}
SPECIAL = [0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-320, 3e38, -1e308, 1.0, 1 / 3]


def entry_of(noted: NotedLoops, dtype: Any) -> Any:
    loop = noted.find(NAME, np.dtype(dtype).char)
    assert loop is not None
    return loop.entry


def run(entry: Any, operations: list[tuple[int, ...]], *arrays: np.ndarray) -> None:
    """Run operations whose bases are arrays."""
    words = packed("q", [word for each in operations for word in each])
    bases = packed("q", [address(each) for each in arrays])
    table = packed("q", (0, words.buffer_info()[0], 1, bases.buffer_info()[0], 1))
    entry(0, len(operations), None, table.buffer_info()[0])


def drawn(count: int, seed: int, dtype: Any) -> np.ndarray:
    """Numbers of which some are special."""
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        return np.where(rng.random(count) < 0.4, rng.choice(SPECIAL, count), rng.standard_normal(count)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*BINARY, *UNARY])
def test_each_operation_has_the_bits_of_numpy(name: str, dtype: Any, noted: NotedLoops) -> None:
    entry = entry_of(noted, dtype)
    for count in COUNTS:
        one, other, out = drawn(count, 1, dtype), drawn(count, 2, dtype), np.full(count + 1, 7, dtype)
        for kinds in KINDS if name in BINARY else KINDS[:1]:
            with np.errstate(all="ignore"):
                operands = [
                    given if is_array else given[0] for given, is_array in zip((one, other), kinds, strict=True)
                ]
                expected = FORWARDS[name](*operands[: 2 if name in BINARY else 1])
            run(entry, [(code_of(name, *kinds), 0, 0, 1, 0, 2, 0, count)], one, other, out)
            assert np.array_equal(out[:count], expected, equal_nan=True)
            numbers = ~np.isnan(expected)
            assert out[:count][numbers].tobytes() == expected[numbers].tobytes()
            assert out[count] == 7, "nothing is written behind the result"


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_result_may_take_the_place_of_an_operand(dtype: Any, noted: NotedLoops) -> None:
    values, numbers = drawn(50, 3, np.float32).astype(dtype), np.array([1.5, 0.25], dtype)
    expected = (values * numbers[0] + numbers[1]) * (values * numbers[0] + numbers[1])
    item = np.dtype(dtype).itemsize
    steps = [
        (code_of("mul", True, False), 0, 0, 1, 0, 0, 0, 50),
        (code_of("add", True, False), 0, 0, 1, item, 0, 0, 50),
        (code_of("mul"), 0, 0, 0, 0, 0, 0, 50),
    ]
    run(entry_of(noted, dtype), steps, values, numbers)
    assert np.array_equal(values, expected, equal_nan=True)


def test_products_and_sums_are_not_contracted(noted: NotedLoops) -> None:
    one = np.full(40, 1 + 2**-12, np.float32)
    other = np.full(40, -1 - 2**-11, np.float32)
    steps = [(code_of("mul"), 0, 0, 0, 0, 1, 160, 40), (code_of("add"), 1, 160, 1, 0, 1, 160, 40)]
    memory = np.concatenate([other, other])
    run(entry_of(noted, np.float32), steps, one, memory)
    assert not memory[40:].any(), "the product is rounded before the sum"


def test_operations_are_told_apart_and_other_loops_have_other_names() -> None:
    codes = [code_of(name, *kinds) for name in BINARY for kinds in KINDS] + [code_of(name) for name in UNARY]
    assert codes == list(range(len(codes)))
    assert len(WORDS) == 8
    assert NAMES == (NAME,)
    assert source_of("cumsum", "f4") is None


def test_a_loop_that_is_asked_for_is_loaded_in_the_background(noted: NotedLoops) -> None:
    loops = NotedLoops(library=Library())
    assert loops.loaded(NAME, "f") is None
    for _ in range(3):
        loops.ask(NAME, "f")
    began = time.monotonic()
    while loops.loaded(NAME, "f") is None:
        assert time.monotonic() - began < 120
        time.sleep(0.01)


def test_a_session_that_computes_by_numpy_asks_for_no_loop() -> None:
    library = Library()
    NotedLoops(applies=False, library=library).ask(NAME, "f")
    assert not library._asked

"""Rules for the bounds of results, on arrays of the stand-in for CuPy; tensors in host memory have none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.core import device as devices
from gradwire_engine.core.context import Context, activate
from gradwire_engine.core.index_bounds import IGNORED, known, note
from gradwire_engine.graph.tensor import set_version
from gradwire_engine.op import integer_bounds as rules
from gradwire_engine.op.integer_bounds import Operands, Range, joined, like_input, note_positions, positions
from tests.gpu import stand_in


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with stand_in.installed(), activate(Context()):
        yield


def on_gpu(values: Any, dtype: str = "int64") -> engine.Tensor:
    given = np.array(values, dtype)
    made = engine.tensor(devices.to_device(given, "cuda:0"))
    note(made.storage, made.array, given)
    return made


def asked(rule: rules.Rule, *args: Any) -> list[Range | None]:
    tensors = [each for arg in args for each in (arg if isinstance(arg, list) else [arg])]
    given = [each for each in tensors if type(each) is engine.Tensor and type(each.array) is not np.ndarray]
    return list(rule(args, Operands(given)))


def test_positions_are_below_the_size_of_their_dimension() -> None:
    x = on_gpu(np.zeros((3, 5)), "float32")
    assert asked(positions(1), x, 1) == [(0, 4, False)]
    assert asked(positions(1), x, -2) == [(0, 2, False)]
    assert asked(positions(1), x, None) == [(0, 14, False)]
    assert asked(positions(2, 1), x, 0, 0) == [None, (0, 2, False)]
    assert asked(positions(1), on_gpu(1.0, "float32"), 0) == [(0, 0, False)]


def test_a_selection_has_its_operands_bounds() -> None:
    assert asked(like_input, on_gpu([3, IGNORED, 8])) == [(3, 8, True)]
    assert asked(like_input, on_gpu([1.0], "float32")) == [None]
    assert asked(like_input, engine.tensor(np.array([1, 2]))) == [None]
    assert asked(like_input, np.array([1, 2])) == [None]


def unknown(values: Any, dtype: str = "int64") -> engine.Tensor:
    return engine.tensor(devices.to_device(np.array(values, dtype), "cuda:0"))


def test_joined_tensors_have_the_bounds_of_all() -> None:
    parts = [on_gpu([3, 5]), on_gpu([-7]), on_gpu([4, IGNORED])]
    assert asked(joined, parts, 0) == [(-7, 5, True)]
    assert asked(joined, [*parts, unknown([1])], 0) == [None]
    assert asked(joined, [], 0) == [None]


def test_what_a_dtype_holds_bounds_unknown_integers_of_one_byte() -> None:
    assert asked(like_input, unknown([1], "uint8")) == [(0, 255, False)]
    assert asked(like_input, unknown([1], "int8")) == [(-128, 127, False)]
    assert asked(like_input, unknown([1], "int16")) == [None]
    assert asked(like_input, unknown([True], "bool")) == [None]


def test_numbers_that_are_whole_are_integers_also_as_floats() -> None:
    x = on_gpu([3, 8])
    assert asked(rules.elements_of(0, 1), x, 9.0) == [(3, 9, False)]
    assert asked(rules.elements_of(0, 1), x, IGNORED) == [(0, 8, True)]
    for value in (0.5, float("inf"), float("nan"), 1j):
        assert asked(rules.elements_of(0, 1), x, value) == [None]


ARITHMETIC: list[tuple[rules.Rule, Any, int]] = [
    (rules.of_ranges(rules.added), lambda a, b, k: a + k * b, 3),
    (rules.of_ranges(rules.subtracted), lambda a, b, k: a - k * b, 3),
    (rules.of_ranges(rules.multiplied), lambda a, b: a * b, 2),
    (rules.of_ranges(rules.negated), lambda a: -a, 1),
    (rules.of_ranges(rules.magnitude), abs, 1),
    (rules.of_ranges(rules.modulo), lambda a, b: a % b if b else 0, 2),
    (rules.of_ranges(rules.divided), lambda a, b: a // b if b else 0, 2),
    (rules.of_ranges(rules.larger), max, 2),
    (rules.of_ranges(rules.smaller), min, 2),
    (rules.of_ranges(rules.clamped), lambda a, low, high: min(max(a, low), high), 3),
    (rules.of_ranges(rules.masked), lambda a, b: a & b, 2),
    (rules.of_ranges(rules.united), lambda a, b: a | b, 2),
    (rules.of_ranges(rules.united), lambda a, b: a ^ b, 2),
    (rules.inverted, lambda a: ~a, 1),
]


@pytest.mark.parametrize("number", range(len(ARITHMETIC)))
def test_no_result_of_arithmetic_is_outside_its_bounds(number: int) -> None:
    rule, compute, count = ARITHMETIC[number]
    rng, told = np.random.default_rng(number), 0
    for _ in range(300):
        least = rng.integers(-6, 7, count)
        ranges = [(int(each), int(each + rng.integers(0, 5))) for each in least]
        operands = [on_gpu(pair) for pair in ranges]
        (found,) = asked(rule, *operands)
        if found is None:
            continue
        told += 1
        for values in np.ndindex(*[most - least + 1 for least, most in ranges]):
            made = compute(*[int(each + pair[0]) for each, pair in zip(values, ranges, strict=True)])
            assert found.least <= made <= found.most
    assert told > 30


def test_sums_have_bounds_of_as_many_elements_as_are_added() -> None:
    x = on_gpu([[1, 5], [-2, 3], [0, 4]])
    assert asked(rules.summed, x, None) == [(-12, 30, False)]
    assert asked(rules.summed, x, 1) == [(-4, 10, False)]
    assert asked(rules.summed, x, (0, -1)) == [(-12, 30, False)]
    assert asked(rules.running, x, 0) == [(-6, 15, False)]
    assert asked(rules.running, on_gpu([2, 5]), 0) == [(2, 10, False)]
    assert asked(rules.summed, on_gpu(7), None) == [(7, 7, False)]
    assert asked(rules.summed, on_gpu([1, IGNORED]), None) == [(-200, 2, False)]


def test_bools_are_zero_or_one_unless_their_bytes_are_unknown() -> None:
    x = on_gpu([1, 2])
    assert asked(rules.truth, x, 3) == [(0, 1, False)]
    assert asked(rules.truth, on_gpu([True], "bool")) == [(0, 1, False)]
    assert asked(rules.truth, unknown([True], "bool")) == [None]
    strange = engine.call("view_dtype", (unknown([7, 1], "uint8"), engine.core.dtypes.bool_))
    for made in (
        engine.call("to", (strange, engine.core.dtypes.int64)),
        engine.call("to", (engine.call("logical_not", (strange,)), engine.core.dtypes.int64)),
        engine.call("where", (strange, strange, strange)),
    ):
        assert known(made.storage, made.array) is None
    wider = engine.call("to", (engine.call("lt", (x, 2)), engine.core.dtypes.int64))
    found = known(wider.storage, wider.array)
    assert found is not None
    assert (found.least, found.most) == (0, 1)


def test_integers_that_wrap_around_have_no_bounds() -> None:
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("add", (on_gpu([200], "uint8"), 100)),
        ("sub", (on_gpu([3], "uint8"), 4)),
        ("add", (on_gpu([2**62]), 2**62)),
        ("mul", (on_gpu([2**40]), 2**40)),
        ("neg", (on_gpu([-(2**63)]),)),
        ("abs", (on_gpu([-(2**63)]),)),
        ("sum", (on_gpu([2**62, 2**62]),)),
        ("cumsum", (on_gpu([2**62, 2**62]), 0)),
        ("to", (on_gpu([300]), engine.core.dtypes.int8)),
    ]
    for name, args in calls:
        made = engine.call(name, args)
        assert known(made.storage, made.array) is None, name


def test_a_version_that_was_set_says_nothing_of_bounds() -> None:
    made = on_gpu([1, 2])
    version = made.storage.version
    assert known(made.storage, made.array) is not None
    made.array[0] = 90
    set_version(made, version)
    assert known(made.storage, made.array) is None


def test_bounds_that_a_dtype_cannot_hold_are_not_noted() -> None:
    for most, kept in ((255, True), (256, False)):
        made = engine.tensor(devices.to_device(np.array([1, 2], np.uint8), "cuda:0"))
        note_positions(made, 0, most)
        assert (made.storage.bounds is not None) is kept
    host = engine.tensor(np.array([1, 2]))
    note_positions(host, 0, 2)
    assert host.storage.bounds is None

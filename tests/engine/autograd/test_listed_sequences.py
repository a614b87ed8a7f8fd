"""Runs of elementwise forwards by one call: the bits and the layouts of the forwards, which run where it cannot."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from gradwire_engine.autograd import listed_sequences
from gradwire_engine.autograd.listed_sequences import Forward, ListedSequence, Registers, Sequences, plain_sum
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.repeated import computed_by
from gradwire_engine.ops.base.basic import add, div, mul, neg, sub
from gradwire_engine.ops.base.sequences import NAME
from tests.engine.compile.fusing import KERNELS, NotedLoops

ONE, NONE = 0, 1  # registers of constants
BINARY: list[tuple[Any, tuple[int, ...]]] = [
    (add.forward, (ONE,)), (sub.forward, (ONE,)), (mul.forward, ()), (div.forward, (NONE,)), (plain_sum, ()),
]  # fmt: skip


@pytest.fixture(autouse=True)
def machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPTIONS, "mode", "on")
    monkeypatch.setattr(OPTIONS, "kernels", KERNELS)


@pytest.fixture
def loops(machine_code: None) -> NotedLoops:
    """Loops of which that for sequences is loaded."""
    pytest.importorskip("llvmlite")
    made = NotedLoops()
    assert made.find(NAME, "f") is not None
    assert made.find(NAME, "d") is not None
    return made


class List:
    """A random list: its registers and its forwards. stays: registers that stay after it."""

    def __init__(self, seed: int) -> None:
        pick = random.Random(seed)
        rng = np.random.default_rng(seed)
        self.dtype = pick.choice([np.float32, np.float64])
        shape = pick.choice([(32,), (3, 7), (1,), (), (5, 1, 4)])
        whole = rng.standard_normal(shape).astype(self.dtype)
        self.registers: list[Any] = [
            1, None, whole, np.broadcast_to(self.dtype(1.5), shape), np.full((1,) * len(shape), 0.3, self.dtype),
            pick.uniform(0.5, 2), pick.uniform(-2, 2), 1e300, 2.5, 3,
        ]  # fmt: skip
        self.numbers = range(5, 8)
        self.arrays = [2]
        self.places: list[tuple[Any, tuple[int, ...], int]] = []
        for _ in range(pick.randrange(20, 60)):
            self._add(pick)
        self.stays = {each for each in self.arrays if pick.random() < 0.2} | {self.arrays[-1]}
        self.expected = self.registers.copy()
        with np.errstate(all="ignore"):
            for forward, places, out in self.places:
                self.expected[out] = np.asarray(forward(np, *[self.expected[place] for place in places]))
        self.layouts = {
            place: (each.shape, each.strides, each.dtype)
            for place, each in enumerate(self.expected)
            if type(each) is np.ndarray
        }

    def _add(self, pick: random.Random) -> None:
        out = len(self.registers)
        one, other = pick.choice(self.arrays[-3:]), pick.choice([*self.arrays[-3:], 3, 4, 5, 6, 7, 8, 9])
        kind = pick.randrange(12)
        if kind == 0:
            self.places.append((neg.forward, (one,), out))
        elif kind == 1:
            self.places.append((_exponential, (one,), out))
        elif kind == 2:
            op, constants = pick.choice([(add, (ONE,)), (sub, (ONE,)), (mul, ()), (div, (NONE,))])
            self.places.append((computed_by(op), (one, 9, *constants), out))
        else:
            forward, constants = pick.choice(BINARY)
            pair = (one, other) if forward is plain_sum or pick.random() < 0.7 else (other, one)
            self.places.append((forward, (*pair, *constants), out))
        self.registers.append(None)
        self.arrays.append(out)

    def forwards(self) -> list[Forward]:
        needed, found = {*self.stays, *range(10)}, []
        for forward, places, out in reversed(self.places):
            ended = {*places, out} - needed
            needed |= {*places, out}
            found.append(Forward(forward, places, out, tuple(ended)))
        return found[::-1]

    def known(self) -> Registers:
        return Registers(self.layouts, self.numbers, self.registers)


def divided(forwards: list[Forward], contexts: list[Any], known: Registers) -> list[Any]:
    found = Sequences([(each.compute, each.places, each.out) for each in forwards], contexts, known)
    return found.divided(forwards)


def _exponential(xp: Any, value: Any) -> Any:
    return np.exp(-np.abs(value))


def computed(spans: list[Any], forwards: list[Forward], registers: list[Any], loops: Any) -> int:
    """Compute a list; how many of its forwards the loop has computed."""
    found = 0
    with np.errstate(all="ignore"):
        for begin, end, sequence in spans:
            if sequence is not None and sequence.run(registers, loops):
                found += end - begin
                continue
            for each in forwards[begin:end]:
                registers[each.out] = np.asarray(each.compute(np, *[registers[place] for place in each.places]))
                for ended in each.ended:
                    registers[ended] = None
    return found


@pytest.mark.parametrize("seed", range(60))
def test_random_lists_have_the_results_of_their_forwards(seed: int, loops: NotedLoops) -> None:
    made = List(seed)
    forwards = made.forwards()
    spans = divided(forwards, [None] * len(forwards), made.known())
    assert [each for begin, end, _ in spans for each in range(begin, end)] == list(range(len(forwards)))
    for turn in range(2):
        registers = made.registers.copy()
        found = computed(spans, forwards, registers, loops)
        assert found == sum(end - begin for begin, end, sequence in spans if sequence is not None)
        for register in made.stays:
            one, other = registers[register], made.expected[register]
            assert (one.shape, one.strides, one.dtype) == (other.shape, other.strides, other.dtype)
            assert np.array_equal(one, other, equal_nan=True), turn
            numbers = ~np.isnan(other)
            assert one[numbers].tobytes() == other[numbers].tobytes()
            if register >= 10:
                assert one.flags.owndata, "a result that stays has memory of its own"
                assert one.flags.writeable


def chain(count: int, dtype: Any = np.float32) -> tuple[list[Forward], Registers]:
    """A chain of products with one number; of its results the last stays."""
    layout = ((32,), (np.dtype(dtype).itemsize,), np.dtype(dtype))
    forwards = [
        Forward(mul.forward, (each + 1 if each else 0, 1), each + 2, (each + 1,) if each else ())
        for each in range(count)
    ]
    layouts = {place: layout for place in range(count + 2) if place != 1}
    return forwards, Registers(layouts, [1], [None] * (count + 2))


def test_only_long_runs_are_sequences_and_a_context_ends_one() -> None:
    few = listed_sequences._FEWEST
    for count, expected in ((few - 1, [None]), (few, [ListedSequence])):
        forwards, known = chain(count)
        spans = divided(forwards, [None] * count, known)
        assert [each and type(each) for _, _, each in spans] == expected
    forwards, known = chain(2 * few)
    first, second = object(), object()
    spans = divided(forwards, [first] * few + [second] * few, known)
    assert [(begin, end) for begin, end, _ in spans] == [(0, few), (few, 2 * few)]
    spans = divided(forwards, [first, second] * few, known)
    assert [(begin, end, each) for begin, end, each in spans] == [(at, at + 1, None) for at in range(2 * few)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_another_op_ends_a_sequence_of_either_precision(dtype: Any) -> None:
    few = listed_sequences._FEWEST
    forwards, known = chain(2 * few + 1, dtype)
    other = forwards[few]
    forwards[few] = Forward(_exponential, other.places[:1], other.out, other.ended)
    spans = divided(forwards, [None] * len(forwards), known)
    assert [(begin, end) for begin, end, _ in spans] == [(0, few), (few, few + 1), (few + 1, 2 * few + 1)]
    assert [sequence is not None for _, _, sequence in spans] == [True, False, True]


def test_a_long_sequence_is_divided_so_that_others_can_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed_sequences, "_MOST", 320)
    forwards, known = chain(50)
    spans = divided(forwards, [None] * 50, known)
    assert len(spans) == 5
    assert all(sequence is not None for _, _, sequence in spans)


def test_results_in_between_take_the_memory_of_one(loops: NotedLoops) -> None:
    forwards, known = chain(100)
    ((_, _, sequence),) = divided(forwards, [None] * 100, known)
    assert sequence is not None
    assert sequence._size == 32
    registers: list[Any] = [np.ones(32, np.float32), 1.5] + [None] * 100
    assert sequence.run(registers, loops)
    assert [place for place, each in enumerate(registers) if each is not None] == [0, 1, 101]
    given = registers[0]
    expected = given
    for _ in range(100):
        expected = expected * np.float32(1.5)
    assert registers[101].tobytes() == expected.tobytes()


@pytest.mark.parametrize("change", ["dtype", "shape", "strides", "type"])
def test_an_array_of_another_layout_is_left_to_the_forwards(change: str, loops: NotedLoops) -> None:
    forwards, known = chain(10)
    ((_, _, sequence),) = divided(forwards, [None] * 10, known)
    assert sequence is not None
    given = {
        "dtype": np.ones(32), "shape": np.ones((1, 32), np.float32), "strides": np.ones(64, np.float32)[::2],
        "type": np.float32(1),
    }[change]  # fmt: skip
    registers: list[Any] = [given, 1.5] + [None] * 10
    assert not sequence.run(registers, loops)
    assert registers[2:] == [None] * 10
    registers[0] = np.ones(32, np.float32)
    assert sequence.run(registers, loops)


def test_without_a_loaded_loop_the_forwards_run_and_it_is_asked_for() -> None:
    asked: list[tuple[str, str]] = []

    class Unloaded(NotedLoops):
        def loaded(self, name: str, dtype: str) -> Any:
            return None

        def ask(self, name: str, dtype: str) -> None:
            asked.append((name, dtype))

    forwards, known = chain(10)
    ((_, _, sequence),) = divided(forwards, [None] * 10, known)
    registers: list[Any] = [np.ones(32, np.float32), 1.5] + [None] * 10
    assert sequence is not None
    assert not sequence.run(registers, None)
    assert not sequence.run(registers, Unloaded())
    assert asked == [(NAME, "f")]
    assert registers[2:] == [None] * 10


def test_results_that_differ_are_left_to_the_forwards_if_they_are_verified(
    loops: NotedLoops, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forwards, known = chain(10)
    ((_, _, sequence),) = divided(forwards, [None] * 10, known)
    assert sequence is not None
    monkeypatch.setattr(OPTIONS, "mode", "verify")
    registers: list[Any] = [np.ones(32, np.float32), 1.5] + [None] * 10
    assert sequence.run(registers.copy(), loops)

    def differs(name: str, made: Any, expected: Any) -> None:
        raise EngineError(Reason.RUNTIME, "they differ")

    monkeypatch.setattr(loops, "check", differs)
    assert not sequence.run(registers, loops)
    assert "they differ" in caplog.text
    assert registers[2:] == [None] * 10


@pytest.mark.parametrize("number", [True, 1 << 24, 1 << 70, 1j, None])
def test_numbers_that_are_converted_otherwise_are_left_to_the_forwards(number: Any) -> None:
    forwards, known = chain(10)
    registers = [None, number, *known.values[2:]]
    spans = divided(forwards, [None] * 10, Registers(known.layouts, (), registers))
    assert [sequence for _, _, sequence in spans] == [None]


def test_a_whole_number_before_an_array_is_left_to_the_op() -> None:
    forwards, known = chain(10)
    registers = [None, 3, *known.values[2:]]
    for swaps, expected in ((False, ListedSequence), (True, type(None))):
        given = [
            each._replace(compute=computed_by(mul), places=each.places[::-1] if swaps else each.places)
            for each in forwards
        ]
        spans = divided(given, [None] * 10, Registers(known.layouts, (), registers))
        assert [type(sequence) for _, _, sequence in spans] == [expected]

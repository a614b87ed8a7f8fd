"""Cost estimates: elements of the broadcast, lists, dtypes, sorting, shapes and indices."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gradwire_engine.op import admission, cost
from gradwire_engine.op.declaration import OPS
from gradwire_engine.op.workload import estimate


def _zeros(*shape: int, dtype: str = "f4") -> np.ndarray:
    return np.broadcast_to(np.zeros((), dtype), shape)


@pytest.mark.parametrize(
    ("shapes", "count"),
    [
        ([(3, 4)], 12),
        ([(3, 1), (4,)], 12),
        ([(0, 4), (5, 1, 1)], 20),
        ([()], 1),
        ([(2, 3), (4, 5)], 26),
        ([(100,), ()], 100),
    ],
)
def test_elements_are_those_of_the_broadcast_shape_or_the_sum(shapes: list, count: int) -> None:
    assert cost.elements([_zeros(*shape) for shape in shapes]) == count


def test_numbers_count_for_nothing_and_lists_by_their_arrays() -> None:
    assert cost.elements([2.0, None, _zeros(7)]) == 7
    assert cost.elements([]) == 1
    one = cost.elements([[_zeros(10)]])
    assert cost.elements([[_zeros(10)] * 3]) == 3 * one > 30
    assert [each.size for each in cost.operands([_zeros(2), [_zeros(3), None], 4.0, "x"])] == [2, 3]


def test_a_linear_cost_grows_with_elements_and_with_wide_dtypes() -> None:
    made = cost.linear(4, backward=2.0)
    assert made.forward(_zeros(1000)) == 4000
    assert made.forward(_zeros(1000, dtype="c16")) == 8000
    assert made.backward(_zeros(1000)) == 8000
    assert (made.linear, made.copies) == (True, True)
    assert not cost.linear(30).copies


@pytest.mark.parametrize("name", ["cat", "stack"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(3, 4), (5,), (), (0, 2)])
def test_a_list_of_arrays_alike_is_estimated_as_any_list(
    name: str, dtype: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    op = OPS[name]
    arrays: list[Any] = [[np.zeros(shape, dtype) for _ in range(3)], 0]

    def asked() -> list[float]:
        room: list[float] = []
        account: Any = SimpleNamespace(limit=1 << 20, admit=room.append)
        admission.admit(op, account, arrays)
        return [op.cost.forward(*arrays), op.cost.backward(*arrays), *room]

    found = asked()
    assert cost.alike(arrays[0]) is arrays[0][0]
    monkeypatch.setattr(cost, "alike", lambda items: None)
    monkeypatch.setattr(admission, "alike", lambda items: None)
    assert found == asked()


def test_arrays_that_differ_in_shape_or_dtype_or_are_no_floats_are_not_alike() -> None:
    one = np.zeros((2, 3), np.float32)
    others: list[Any] = [np.zeros((3, 2), np.float32), np.zeros((2, 3)), 1.0, None, [one]]
    for other in others:
        assert cost.alike([one, other]) is None
    assert cost.alike([np.zeros(2, np.int64)] * 2) is None
    assert cost.alike([]) is None


@pytest.mark.parametrize("weight", [4.0, 30.0, 250.0])
def test_below_the_stated_number_of_elements_nothing_is_long(weight: float) -> None:
    made = cost.linear(weight)
    assert made.forward(_zeros(made.cheap_size)) <= cost.LONG
    assert made.backward(_zeros(made.cheap_size)) <= cost.LONG


def test_a_counted_cost_takes_a_multiple_or_a_function_for_its_formulas() -> None:
    multiple = cost.counted(lambda x: float(x.size), 5.0)
    assert (multiple.forward(_zeros(3)), multiple.backward(_zeros(3)), multiple.cheap_size) == (3.0, 15.0, -1)
    separate = cost.counted(lambda x: 1.0, lambda x: 7.0, 99)
    assert (separate.backward(_zeros(3)), separate.cheap_size) == (7.0, 99)


def test_a_multiply_add_costs_more_where_there_is_no_blas() -> None:
    costs = [cost.flop(np.dtype(name)) for name in ("f4", "f8", "c8", "c16", "f2", "i8")]
    assert costs == [0.04, 0.08, 0.16, 0.32, 3.0, 3.0]


def test_sorting_costs_the_logarithm_of_the_longest_dimension() -> None:
    made = cost.by_sorting(6)
    assert made.forward(_zeros(5, 1022)) == pytest.approx(6 * 5110 * math.log2(1024))
    assert made.forward(_zeros()) == pytest.approx(6 * math.log2(3))


def test_shapes_given_as_arguments_count_with_sizes_of_zero_as_one() -> None:
    made = cost.of_shape(2, 1)
    assert made.forward(_zeros(5), (10, 0, 3)) == 2 * (30 + 5)


def test_one_operand_of_an_indexing_op_selects_no_rows() -> None:
    assert cost.indexing(3).forward(_zeros(100, 100)) == 3.0 * 10_000


def test_indexing_costs_the_row_that_each_index_selects() -> None:
    made = cost.indexing(3)
    assert made.forward(_zeros(100, 7), 0, _zeros(5, dtype="i8")) == 3.0 * (705 + 5 * 7)
    assert made.forward(2.0) == 0.0
    assert cost.gathering(3).forward(_zeros(100), 0, _zeros(5, dtype="i8")) == 315.0


POINTWISE = sorted(
    name for name, op in OPS.items() if op.promotes and op.view is False and op.list_position < 0 and not op.outputs
)


@pytest.mark.parametrize("shape", [(3, 4), (), (0, 2), (1 << 20,)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i8"])
def test_operands_of_one_shape_and_dtype_are_estimated_as_any(
    dtype: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = _zeros(*shape, dtype=dtype)

    def asked() -> list[tuple[float, int]]:
        found = []
        for name in POINTWISE:
            op = OPS[name]
            arrays = [given if place in op.tensor_positions else 2.0 for place in range(len(op.params))]
            found.append((estimate(op, arrays), admission.needed(op, arrays)))
        return found

    quick = asked()
    monkeypatch.setattr(cost, "of_one_shape", lambda arrays: None)
    monkeypatch.setattr(admission, "of_one_shape", lambda arrays: None)
    assert len(POINTWISE) > 50
    assert quick == asked()
